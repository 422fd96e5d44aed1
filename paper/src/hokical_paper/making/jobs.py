"""Make one pair of the suite: train the network, compute its logits, write them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.making.checkpoints import (
    checkpoint_path,
    load_checkpoint,
    save_checkpoint,
)
from hokical_paper.making.datasets.images import DataSet, Split, split
from hokical_paper.making.export import Arrays, add_entry, write_pair
from hokical_paper.making.inference import accuracy, logits_of
from hokical_paper.making.networks import NETWORKS, count_parameters, make_network
from hokical_paper.making.recal_run import save_views
from hokical_paper.making.recipes import Recipe, dataset_title
from hokical_paper.making.reporting import Reporter
from hokical_paper.making.training import Piece, Trainer, Work
from hokical_paper.making.views import ZOOM_SCALES

_QUICK_TITLE = " (small, synthetic)"


@dataclass(frozen=True)
class Settings:
    """Where and how pairs are made.

    out : folder for `suite/`, `checkpoints/` and `views/`
    device : "cuda", "cpu" or another of PyTorch's
    use_graph : replay training steps as CUDA graphs
    checkpoint_every, evaluate_every : in epochs, and always at the end; 0 means only
        then
    train, export : which of the two steps to run
    """

    out: Path
    device: str = "cpu"
    use_graph: bool = True
    checkpoint_every: int = 20
    evaluate_every: int = 10
    train: bool = True
    export: bool = True

    @property
    def suite(self) -> Path:
        return self.out / "suite"

    @property
    def dtype(self) -> torch.dtype:
        """The data type of convolutions."""
        return torch.bfloat16 if self.device.startswith("cuda") else torch.float32


class PairJob:
    """The work on one pair, as a generator of small steps."""

    def __init__(
        self, recipe: Recipe, data: DataSet, settings: Settings, reporter: Reporter
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.reporter = reporter
        self.n_classes = data.n_classes
        self.parts: Split = split(data, n_val=recipe.n_val, seed=recipe.split_seed)
        self._checkpoint = checkpoint_path(settings.out / "checkpoints", recipe)

    def run(self) -> Work:
        """Everything from the last checkpoint, if there is one, to the manifest's
        entry.
        """
        yield "drain"
        trainer = self._make_trainer()
        if self.settings.train:
            yield from trainer.run(self._after_epoch)
        elif trainer.epoch < self.recipe.epochs:
            raise DataFileError(
                self._checkpoint,
                f"expected a training of {self.recipe.epochs} epochs; found "
                f"{trainer.epoch}.",
                f"Run `hokical paper train {self.recipe.name}` with the same options "
                "first.",
            )
        if self.settings.export:
            yield from self._export(trainer)

    def _make_trainer(self) -> Trainer:
        recipe = self.recipe
        settings = self.settings
        channels = self.parts.train.images.shape[-1]
        network = make_network(
            recipe.network,
            self.n_classes,
            channels=channels,
            seed=recipe.seed,
            small=recipe.small,
        )
        trainer = Trainer(
            network,
            self.parts.train,
            recipe,
            device=torch.device(settings.device),
            dtype=settings.dtype,
            use_graph=settings.use_graph,
        )
        state = load_checkpoint(self._checkpoint, recipe)
        if state is not None:
            trainer.restore(state)
            self.reporter.note(f"{recipe.name}: continues after epoch {state.epoch}")
        return trainer

    def _after_epoch(self, trainer: Trainer) -> Work:
        facts = f"loss {trainer.losses[-1]:.4f}, {trainer.seconds:.0f} s"
        if _is_due(trainer.epoch, self.settings.evaluate_every, self.recipe.epochs):
            logits = yield from self._logits(trainer, self.parts.val.images)
            facts += f", val accuracy {accuracy(logits, self.parts.val.labels):.2%}"
        self.reporter.epoch(self.recipe, trainer.epoch, facts)
        if _is_due(trainer.epoch, self.settings.checkpoint_every, self.recipe.epochs):
            save_checkpoint(self._checkpoint, trainer.state(), self.recipe)

    def _export(self, trainer: Trainer) -> Work:
        arrays: Arrays = {}
        views: Arrays = {}
        for part, examples in (("val", self.parts.val), ("test", self.parts.test)):
            logits = yield from self._logits(trainer, examples.images)
            zoomed = yield from self._views(trainer, examples.images)
            kept = np.argmax(zoomed, axis=2) == np.argmax(logits, axis=1)
            arrays |= {
                f"{part}_logits": logits,
                f"{part}_labels": examples.labels.astype(np.uint8),
                f"{part}_kept": np.ascontiguousarray(kept.T),
            }
            views[f"{part}_views"] = zoomed
        save_views(self.settings.out, self.recipe.name, views)
        files = write_pair(self.settings.suite, self.recipe.name, arrays)
        entry = self._entry(trainer, arrays, files)
        add_entry(self.settings.suite, entry)
        self.reporter.note(
            f"{self.recipe.name}: test accuracy {entry['test_accuracy']:.2%}"
        )

    def _views(
        self, trainer: Trainer, images: NDArray[np.uint8]
    ) -> Generator[Piece, None, NDArray[np.float16]]:
        """Logits of the images at every scale, (scales, n, classes)."""
        out = np.empty((len(ZOOM_SCALES), len(images), self.n_classes), np.float16)
        for view, scale in zip(out, ZOOM_SCALES, strict=True):
            view[:] = yield from self._logits(trainer, images, scale=float(scale))
        return out

    def _logits(
        self, trainer: Trainer, images: NDArray[np.uint8], scale: float | None = None
    ) -> Generator[Piece, None, NDArray[np.float16]]:
        return logits_of(
            trainer.network,
            images,
            trainer.normalisation,
            dtype=trainer.dtype,
            scale=scale,
        )

    def _entry(
        self, trainer: Trainer, arrays: Arrays, files: dict[str, str]
    ) -> dict[str, Any]:
        recipe = self.recipe
        parts = self.parts
        sizes = {
            "train": len(parts.train),
            "val": len(parts.val),
            "test": len(parts.test),
        }
        return {
            "name": recipe.name,
            "dataset": recipe.dataset,
            "network": recipe.network,
            "title": NETWORKS[recipe.network].title
            + (_QUICK_TITLE if recipe.small else ""),
            "dataset_title": dataset_title(recipe.dataset),
            "n_classes": self.n_classes,
            "val_accuracy": accuracy(arrays["val_logits"], parts.val.labels),
            "test_accuracy": accuracy(arrays["test_logits"], parts.test.labels),
            "n_parameters": count_parameters(trainer.network),
            "split": sizes | {"seed": recipe.split_seed},
            "training": recipe.facts() | self._environment(trainer),
            "how": _describe(recipe, sizes),
            "quick": recipe.small,
            "recal": None,
            "zoom_scales": [round(float(scale), 6) for scale in ZOOM_SCALES],
            "files": files,
        }

    def _environment(self, trainer: Trainer) -> dict[str, Any]:
        device = self.settings.device
        on_gpu = device.startswith("cuda")
        return {
            "seconds": round(trainer.seconds, 1),
            "device": torch.cuda.get_device_name(device) if on_gpu else device,
            "precision": str(trainer.dtype).removeprefix("torch."),
            "torch": torch.__version__.split("+")[0],
            "last_loss": round(trainer.losses[-1], 6),
            "pixel_mean": [round(value, 4) for value in trainer.normalisation.mean],
            "pixel_deviation": [
                round(value, 4) for value in trainer.normalisation.deviation
            ],
        }


def _is_due(epoch: int, every: int, last: int) -> bool:
    return epoch == last or (every > 0 and epoch % every == 0)


def _describe(recipe: Recipe, sizes: dict[str, int]) -> str:
    if recipe.small:
        return (
            f"Small network, synthetic images (--quick): trained for {recipe.epochs} "
            f"epochs on {sizes['train']} of them; not comparable with "
            f"{dataset_title(recipe.dataset)}."
        )
    moved = ", images shifted by up to 4 pixels and mirrored" if recipe.augment else ""
    return (
        f"Trained from random weights for {recipe.epochs} epochs on {sizes['train']} "
        f"{dataset_title(recipe.dataset)} images (SGD, Nesterov momentum, warm-up then "
        "cosine"
        f"{moved}); {sizes['val']} others are used for calibration; logits rounded to "
        "float16."
    )
