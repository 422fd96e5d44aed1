"""Train a network; with a GPU, each step is one CUDA graph.

`Trainer.run` is a generator that yields after each launch, so that several trainings
can share one device (see `lanes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hokical_paper.core import warn_user
from hokical_paper.making.augment import Feed, Normalisation, draw_gates, draw_plan
from hokical_paper.making.checkpoints import Checkpoint
from hokical_paper.making.datasets.images import LabelledImages
from hokical_paper.making.recipes import Recipe
from hokical_paper.making.weights import FlatWeights

#: What a job yields: it has queued a launch, or it needs an empty queue to continue.
Piece = Literal["launched", "drain"]
Work = Iterator[Piece]

_WARMUP_STEPS = 3


class Trainer:
    """One network in training.

    Parameters
    ----------
    network : nn.Module
        Moved to the device; its convolutions use `dtype`.
    data : LabelledImages
        The training examples.
    recipe : Recipe
    device : torch.device
    dtype : torch.dtype
        bfloat16 on GPUs; float32 is the default.
    use_graph : bool
        Whether to replay steps as a CUDA graph; ignored without a GPU.
    """

    def __init__(
        self,
        network: nn.Module,
        data: LabelledImages,
        recipe: Recipe,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        use_graph: bool = True,
    ) -> None:
        if len(data) < recipe.batch_size:
            raise ValueError(
                "`batch_size` must be at most the number of training examples, "
                f"{len(data)}; got {recipe.batch_size}."
            )
        self.recipe = recipe
        self.device = device
        self.dtype = dtype
        self.network = network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.normalisation = Normalisation.from_images(data.images)
        self.weights = FlatWeights(self.network, dtype)
        self.feed = Feed(data, self.normalisation, recipe.batch_size, device, dtype)
        self.steps_per_epoch = len(data) // recipe.batch_size
        self.rates = learning_rates(recipe, self.steps_per_epoch).to(device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.losses: list[float] = []
        self.seconds = 0.0
        self._gate_table = self._make_gate_table()
        self._use_graph = use_graph and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, after_epoch: Callable[[Trainer], Work] | None = None) -> Work:
        """Train from the current epoch to the last; `after_epoch` is a job to run
        after each.
        """
        self.network.train()
        if self._use_graph and self._graph is None and self.epoch < self.recipe.epochs:
            yield "drain"
            self._try_to_capture()
        while self.epoch < self.recipe.epochs:
            begun = time.perf_counter()
            self._begin_epoch()
            for _ in range(self.steps_per_epoch):
                self._launch()
                yield "launched"
            yield "drain"
            self.losses.append(float(self.loss_sum) / self.steps_per_epoch)
            self.seconds += time.perf_counter() - begun
            if not np.isfinite(self.losses[-1]):
                raise FloatingPointError(
                    f"the loss of {self.recipe.name} is {self.losses[-1]} after epoch "
                    f"{self.epoch}. Lower `learning_rate`, now "
                    f"{self.recipe.learning_rate}."
                )
            if after_epoch is not None:
                yield from after_epoch(self)
                self.network.train()

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.losses)

    def state(self) -> Checkpoint:
        """A copy of everything needed to continue the training."""
        return Checkpoint(
            weights=self.weights.values.cpu().numpy().copy(),
            momentum=self.weights.momentum.cpu().numpy().copy(),
            statistics=_join(self._statistics()).cpu().numpy(),
            losses=np.array(self.losses),
            seconds=self.seconds,
        )

    def restore(self, state: Checkpoint) -> None:
        """Continue from a state."""
        self.weights.values.copy_(torch.from_numpy(state.weights))
        self.weights.momentum.copy_(torch.from_numpy(state.momentum))
        self.weights.refresh()
        start = 0
        for buffer in self._statistics():
            part = state.statistics[start : start + buffer.numel()]
            buffer.copy_(torch.from_numpy(part))
            start += buffer.numel()
        self.losses = state.losses.tolist()
        self.seconds = state.seconds

    def _begin_epoch(self) -> None:
        recipe = self.recipe
        done = self.epoch
        n = self.feed.labels.numel()
        self.feed.begin(
            draw_plan(n, augment=recipe.augment, seed=recipe.seed, epoch=done)
        )
        self.step.fill_(done * self.steps_per_epoch)
        self.loss_sum.zero_()
        if self._gate_table is not None:
            survival = self.network.survival.cpu().numpy().astype(np.float64)
            gates = draw_gates(
                survival, self.steps_per_epoch, seed=recipe.seed, epoch=done
            )
            self._gate_table.copy_(torch.from_numpy(gates))

    def _launch(self) -> None:
        if self._graph is None:
            self._take_step()
        else:
            self._graph.replay()

    def _take_step(self) -> None:
        """One step without new tensors as input or output, so that a graph can
        record it.
        """
        if self._gate_table is not None:
            within = self.step.remainder(self.steps_per_epoch).reshape(1)
            self.network.gates.copy_(self._gate_table.index_select(0, within)[0])
        images, labels = self.feed.batch()
        loss = F.cross_entropy(self.network(images), labels)
        gradients = torch.autograd.grad(loss, self.weights.parameters)
        rate = self.rates.index_select(0, self.step.reshape(1))[0]
        with torch.no_grad():
            self.weights.update(
                gradients,
                rate,
                momentum=self.recipe.momentum,
                weight_decay=self.recipe.weight_decay,
            )
            self.loss_sum.add_(loss.detach())
            self.step.add_(1)

    def _try_to_capture(self) -> None:
        """Record the step as a graph; if that fails, warn and continue without one."""
        before = self.state()
        try:
            self._capture()
        except RuntimeError as error:
            self._graph = None
            self._use_graph = False
            warn_user(
                f"the training step of {self.recipe.name} could not be recorded as a "
                f"CUDA graph ({error}); it runs without one, several times slower.",
                RuntimeWarning,
            )
        self.restore(before)

    def _capture(self) -> None:
        """Run a few steps so that cuDNN selects its algorithms; the caller reverts
        them.
        """
        self._begin_epoch()
        usual = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            for _ in range(_WARMUP_STEPS):
                self._take_step()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                self._take_step()
        finally:
            torch.backends.cudnn.benchmark = usual
        self._graph = graph

    def _make_gate_table(self) -> Tensor | None:
        if not getattr(self.network, "is_stochastic", False):
            return None
        n_blocks = self.network.gates.numel()
        return torch.ones((self.steps_per_epoch, n_blocks), device=self.device)

    def _statistics(self) -> list[Tensor]:
        norms = [m for m in self.network.modules() if isinstance(m, nn.BatchNorm2d)]
        return [
            b
            for norm in norms
            for b in (norm.running_mean, norm.running_var)
            if b is not None
        ]


def learning_rates(recipe: Recipe, steps_per_epoch: int) -> Tensor:
    """The rate of every step, (steps,): linear warm-up, then half a cosine to 0."""
    steps = np.arange(recipe.epochs * steps_per_epoch, dtype=np.float64)
    warm = min(recipe.warmup_epochs, recipe.epochs - 1) * steps_per_epoch
    falling = 0.5 * (1.0 + np.cos(np.pi * (steps - warm) / (steps.size - warm)))
    rising = (steps + 1.0) / max(warm, 1)
    rates = recipe.learning_rate * np.where(steps < warm, rising, falling)
    return torch.from_numpy(rates.astype(np.float32))


def _join(buffers: list[Tensor]) -> Tensor:
    return torch.cat([b.reshape(-1) for b in buffers]) if buffers else torch.zeros(0)
