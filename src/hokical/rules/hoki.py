"""Hoki as a rule: label stability, then the fitted curve (Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from hokical._core import checks
from hokical._core.arrays import Array, FloatArray, IntArray, Namespace
from hokical._core.checks import ArrayOf, Checked
from hokical._core.logits import Logits
from hokical._core.storage import storable
from hokical.rules.base import Rule, distribute_remainder
from hokical.stability.noise import Noise
from hokical.stability.sampled import MOST_DRAWS, Draws, survivals
from hokical.stability.tables import EXACT_LEVELS

#: Slopes are bounded: within one level confidence changes by 1 at most.
_STEEPEST = 2.0 * MOST_DRAWS
_ROUNDING = 1e-12
Lines = Annotated[FloatArray, ArrayOf(("runs",), -_STEEPEST, _STEEPEST)]


@storable("hoki-curve")
@dataclass(frozen=True, eq=False)
class Curve(Checked):
    """Confidence as a function of stability, for rows that all start in one place.

    Runs of stability levels share a line: `first` (k,), the first level of each run,
    rising from 0, and its `slope` and `base` (k,): confidence = slope * stability +
    base, cut to [0, 1].
    """

    first: Annotated[FloatArray, ArrayOf(("runs",), 0.0, MOST_DRAWS, rising=True)]
    slope: Lines
    base: Lines

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first[0] != 0.0 or (self.first != np.rint(self.first)).any():
            raise ValueError("`first` must be whole numbers that rise from 0.")

    @classmethod
    def from_steps(
        cls, alpha: FloatArray, beta: FloatArray, levels: int, start: float
    ) -> Curve:
        """Algorithm 2 with alpha and beta (steps, bins) at every level, in runs.

        A bin in which they are NaN leaves the confidence as it is.
        """
        curve = cls(np.zeros(1), np.zeros(1), np.full(1, start))
        for alphas, betas in zip(alpha, beta, strict=True):
            level, bins = curve._cut_by_bins(alpha.shape[1], levels)
            slope = (alphas - betas)[bins]
            base = betas[bins]
            if np.isnan(alphas).any():  # a bin has no examples
                unset = np.isnan(slope)
                run = curve._runs(level)
                slope[unset] = curve.slope[run[unset]]
                base[unset] = curve.base[run[unset]]
            curve = cls.from_lines(level, slope, base)
        return curve

    @classmethod
    def from_lines(cls, level: IntArray, slope: FloatArray, base: FloatArray) -> Curve:
        """From the line (k,) that holds from each of some levels on, rising from 0."""
        changes = (np.diff(slope) != 0.0) | (np.diff(base) != 0.0)
        first = np.append(0, 1 + np.flatnonzero(changes))
        return cls(level[first].astype(np.float64), slope[first], base[first])

    def held_by(self, observed: IntArray, levels: int, chance: float) -> Curve:
        """The same at the levels that were `observed` (k,), without extrapolation to
        others.

        Between two observed levels confidence stays within the range of its values at
        both; above the largest it is constant. Below the smallest it follows a line to
        (chance, chance), as flat logits have that stability; if it is below stability
        there already, it is constant until stability is below it, and then equal to
        stability.
        """
        level = self._levels_to_check(observed, levels)
        confidence = self.at(level, levels)
        gap = np.searchsorted(observed, level, side="right")
        before = self.at(observed[gap - 1], levels)
        after = self.at(observed[np.minimum(gap, observed.size - 1)], levels)
        low = np.minimum(before, after)
        high = np.maximum(before, after)
        outside = (confidence < low - _ROUNDING) | (confidence > high + _ROUNDING)
        run = self._runs(level)
        slope = np.where(outside, 0.0, self.slope[run])
        base = np.where(outside, np.clip(confidence, low, high), self.base[run])
        below = np.arange(observed[0])
        slope_below, base_below = _lines_below(
            observed[0] / levels, confidence[0], chance, below / levels
        )
        return self.from_lines(
            np.concatenate([below, level]),
            np.concatenate([slope_below, slope]),
            np.concatenate([base_below, base]),
        )

    def _levels_to_check(self, observed: IntArray, levels: int) -> IntArray:
        """The smallest observed level, those at which a line begins, and all in gaps
        between observed levels in which one begins.

        Along one line confidence stays within the range of its ends.
        """
        after_bends = np.searchsorted(observed, self.first)
        bends = np.unique(np.append(after_bends, observed.size))[1:]
        gaps = [
            np.arange(observed[bend - 1], observed[bend] + 1) for bend in bends[:-1]
        ]
        gaps.append(np.arange(observed[-1], levels + 1))
        later = self.first[self.first > observed[0]]
        return np.unique(np.concatenate([observed[:1], later, *gaps]))

    def confidence(self, stability: Array, level: Array, xp: Namespace = np) -> Array:
        """Confidence (n,) at stability (n,), which lies on the level (n,)."""
        run = xp.searchsorted(self.first, level, side="right") - 1
        return xp.clip(
            xp.take(self.slope, run) * stability + xp.take(self.base, run), 0.0, 1.0
        )

    def at(self, level: IntArray, levels: int) -> FloatArray:
        """Confidence (n,) on the host at levels (n,)."""
        return np.asarray(self.confidence(level / levels, level))

    def _runs(self, level: IntArray) -> IntArray:
        """The run of each level (n,)."""
        return np.searchsorted(self.first, level, side="right") - 1

    def _cut_by_bins(self, n_bins: int, levels: int) -> tuple[IntArray, IntArray]:
        """Levels (k,), among them the first of each bin in each run, and the bins (k,).

        A line is monotone, also with rounding, so the first level of a bin is found by
        bisection, which starts at the level without rounding.
        """
        last = np.append(self.first[1:] - 1.0, levels)
        with np.errstate(divide="ignore", invalid="ignore"):
            lines = (checks.bin_edges(n_bins)[1:-1, None] - self.base) / self.slope
        cross = np.floor(lines * levels)
        cross = cross[(cross >= self.first) & (cross < last)]
        level = np.unique(
            np.concatenate([self.first, last, cross, cross + 1.0])
        ).astype(np.int64)
        while True:
            bins = checks.bin_index(self.at(level, levels), n_bins)
            wide = np.flatnonzero((np.diff(bins) != 0) & (np.diff(level) > 1))
            if not wide.size:
                return level, bins
            level = np.sort(np.append(level, (level[wide] + level[wide + 1]) // 2))


def _lines_below(
    least: float, confidence: float, chance: float, stability: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slope and base at each stability (n,) below the least observed one, whose
    `confidence` is given.
    """
    if least <= chance:
        return np.zeros(stability.size), np.full(stability.size, confidence)
    rise = 1.0 if confidence < least else (confidence - chance) / (least - chance)
    base = 0.0 if confidence < least else chance * (1.0 - rise)
    line = rise * stability + base
    floor = min(confidence, chance)
    slope = np.where((line > floor) & (line < confidence), rise, 0.0)
    return slope, np.where(slope > 0.0, base, np.clip(line, floor, confidence))


@dataclass(frozen=True, eq=False)
class HokiRule(Rule):
    """Stability under `noise`, exact or over `draws`, on `levels` levels; then the
    `link`.
    """

    name: ClassVar[str] = "hoki"
    accepts_top_k: ClassVar[bool] = True

    noise: Noise
    draws: Draws | None
    levels: int
    link: Curve

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws is not None and self.draws.noise != self.noise:
            raise ValueError(
                f"`draws` must be None or draws of {self.noise}; got {self.draws!r}."
            )
        expected = EXACT_LEVELS if self.draws is None else self.draws.n_draws
        checks.check_count("levels", self.levels, least=expected, most=expected)
        if isinstance(self.link, Curve) and self.link.first[-1] > self.levels:
            raise ValueError(f"`first` must lie within the {self.levels} levels.")

    @property
    def n_classes(self) -> int | None:
        return None if self.draws is None else self.draws.n_classes

    @property
    def cheap_proba(self) -> bool:  # type: ignore[override]
        """Under Gumbel noise they are a softmax; otherwise they cost more than the
        stability.
        """
        return self.noise.has_cheap_distribution

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Two per line that is in use."""
        return 2 * len(self.link.first)

    def level(self, logits: Logits) -> Array:
        """Stability of each row as a level, (n,) float64, whole numbers from 0 to
        `levels`.
        """
        xp = logits.xp
        if self.draws is not None:
            return xp.astype(survivals(logits, self.draws), xp.float64)
        exact = self.noise.stability(logits) * float(self.levels)
        return logits.backend.follow(logits.xp.round(exact), exact)

    def confidence_at(self, level: NDArray[np.int64], start: FloatArray) -> FloatArray:
        """Confidence (n,) on the host at levels (n,), from starts (n,) where these
        matter.
        """
        return self.link.at(level, self.levels)

    def confidence(self, logits: Logits) -> Array:
        level = self.level(logits)
        fixed_level = logits.backend.without_gradient(level)
        return self.link.confidence(level / float(self.levels), fixed_level, logits.xp)

    def proba(self, logits: Logits) -> Array:
        noise = self.noise.unbounded()
        if logits.is_numpy:
            logits.with_margins()  # for stability and shares alike
        shares = noise.distribution(logits)
        return distribute_remainder(
            logits, self.confidence(logits), shares, noise.width
        )
