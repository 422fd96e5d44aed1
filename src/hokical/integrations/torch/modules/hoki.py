"""The module of `hoki`: label stability, then the fitted curve or the recorded steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.bins import bin_edges, bin_index
from hokical.calibrators.hoki import Hoki
from hokical.integrations.torch.kernels import gaussian, gumbel, rows, sampled, uniform
from hokical.integrations.torch.modules.base import CalibratorModule
from hokical.integrations.torch.modules.sharing import share_rest
from hokical.noise import FAMILIES, Uniform
from hokical.recursion import Schedule
from hokical.stability.sampled import Draws

FloatArray = NDArray[np.float64]

_EXACT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gaussian": gaussian.stability,
    "uniform": uniform.stability,
    "gumbel": gumbel.stability,
}
#: Families whose stability has a gradient.
_SMOOTH = ("gaussian", "gumbel")


class HokiModule(CalibratorModule):
    """Stability as a level of the fit's table, and the confidence that belongs to it.

    The confidence is a function of the level, so it moves in tiny steps. What is differentiated is
    the line that they follow: exact stability under Gaussian or Gumbel noise carries a gradient,
    uniform noise and draws carry none.
    """

    free_sizes = frozenset({"alpha", "beta"})
    width: Tensor
    seed: Tensor
    noise: Tensor
    curve: Tensor
    slope: Tensor
    alpha: Tensor
    beta: Tensor

    def __init__(self, calibrator: Hoki) -> None:
        noise, draws = calibrator.noise_, calibrator.draws_
        how = "exact" if draws is None else f"{draws.n_draws} draws"
        start = f"start at the {calibrator.init_}"
        super().__init__(calibrator, f"{noise.family} noise", how, start)
        self.family = noise.family
        self.levels = int(calibrator.table_.levels)
        self.from_confidence = calibrator.init_ == "confidence"
        self._keep("width", float(noise.width))
        schedule = calibrator._curve.schedule
        if self.from_confidence:
            self._keep("alpha", schedule.alpha)
            self._keep("beta", schedule.beta)
        else:
            self._keep("curve", calibrator._curve.confidence)
            self._keep("slope", slopes(schedule, self.levels, calibrator.accuracy_))
        self.sampled = draws is not None
        if draws is not None:
            self._keep("seed", np.array(draws.seed, np.uint64).view(np.int64))
            self.register_buffer("noise", torch.tensor(draws.values), persistent=False)

    @property
    def _floats_per_row(self) -> int:
        return 1  # the kernels see to it

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        level, motion = self._level(values)
        if self.from_confidence:
            stability = level.double() / self.levels
            moving = stability if motion is None else stability + motion
            return self._replay(moving, gumbel.stability(self._tracked(values), 1.0))
        confidence = self.curve[level]
        return confidence if motion is None else confidence + self.slope[level] * motion

    def _level(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """Level of each row's stability, (n,); and a 0 that moves as the stability does."""
        if self.sampled:
            return sampled.survivals(values.detach(), self.noise), None
        gamma = _EXACT[self.family](self._tracked(values), self.width)
        level = torch.round(gamma.detach() * self.levels).long().clamp(0, self.levels)
        return level, gamma - gamma.detach() if gamma.requires_grad else None

    def _tracked(self, values: Tensor) -> Tensor:
        """The values, with their gradient where there is one to have."""
        return values if self.family in _SMOOTH and not self.sampled else values.detach()

    def _replay(self, stability: Tensor, confidence: Tensor) -> Tensor:
        """The recorded steps: see `hokical.recursion.Schedule.replay`."""
        inner = confidence.new_tensor(bin_edges(self.alpha.shape[1])[1:-1])
        for alpha, beta in zip(self.alpha, self.beta, strict=True):
            bins = torch.bucketize(confidence.detach(), inner, right=True)
            a, b = alpha[bins], beta[bins]
            empty = torch.isnan(a)
            a, b = torch.where(empty, 0.0, a), torch.where(empty, 0.0, b)
            updated = ((a - b) * stability + b).clamp(0.0, 1.0)
            confidence = torch.where(empty, confidence, updated)
        return confidence

    def _proba(self, values: Tensor) -> Tensor:
        confidence = self._confidence(values, rows.labels(values))
        if self.family == "gumbel":
            return share_rest(
                values, confidence, gumbel.distribution(values, self.width), self.width
            )
        # As in the core, Gaussian noise of the same deviation stands in for uniform noise.
        scale = self.width * Uniform.unit_deviation if self.family == "uniform" else self.width
        return share_rest(values, confidence, gaussian.distribution(values, scale), scale)

    def _refresh(self) -> None:
        if self.sampled:  # the noise is not stored, but drawn again
            noise = FAMILIES[self.family].of_width(float(self.width))
            seed = int(self.seed.cpu().numpy().view(np.uint64))
            draws = Draws(noise, seed, self.levels, self.n_classes)
            self.noise = torch.tensor(draws.values, device=self.width.device)


def slopes(schedule: Schedule, levels: int, start: float) -> FloatArray:
    """What the curve gains per unit of stability at each level, (levels + 1,).

    That is alpha - beta of the last step that moved the level's confidence, 0 where it was cut.
    """
    stability = np.arange(levels + 1) / levels
    confidence, slope = np.full(levels + 1, float(start)), np.zeros(levels + 1)
    for alpha, beta in zip(schedule.alpha, schedule.beta, strict=True):
        bins = bin_index(confidence, schedule.n_bins)
        a, b = alpha[bins], beta[bins]
        updated = (a - b) * stability + b
        cut = (updated < 0.0) | (updated > 1.0)
        slope = np.where(np.isnan(a), slope, np.where(cut, 0.0, a - b))
        confidence = np.where(np.isnan(a), confidence, np.clip(updated, 0.0, 1.0))
    return slope
