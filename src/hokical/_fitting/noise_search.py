"""The search for the noise whose confidences differ most between examples.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). The mean
of the noise moves no label, so the family and its width are all there is to choose, and sigma_hat
is a smooth function of the width: a wide grid of widths is tried on a few rows, then narrower ones
around the best on more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.portable import uniform_draws
from hokical._core.progress import track
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.recursion import survival_rates
from hokical.stability._noise import NARROWEST, WIDEST, Gaussian, Noise, Uniform

#: The families that are considered unless others are asked for.
KINDS: tuple[type[Noise], ...] = (Gaussian, Uniform)
#: The width is chosen on so many rows, or logits if that is fewer rows; with up to twice as many
#: rows, on all. sigma_hat is flat around its maximum: on all rows it is within 1 % of the best.
_SAMPLE_ROWS, _SAMPLE_LOGITS = 8192, 1 << 23
#: Rows of the stages before, the widths of the grids, each of which spans a step of the one before
#: to both sides, and the share of the best sigma_hat below which a family is tried no more.
_STAGE_ROWS, _GRID_POINTS, _CLEARLY_BEHIND = (256, 1024), (12, 7, 5), (0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples` examples."""

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True, repr=False)
class NoiseSelection:
    """The winner of a search, and every setting tried in the order in which it was."""

    best: Trial
    trials: tuple[Trial, ...]

    @property
    def noise(self) -> Noise:
        return self.best.noise

    @property
    def alpha(self) -> float:
        return self.best.alpha

    @property
    def beta(self) -> float:
        return self.best.beta

    @property
    def sigma_hat(self) -> float:
        return self.best.sigma_hat

    def __repr__(self) -> str:
        return (
            f"NoiseSelection(noise={self.noise!r}, alpha={self.alpha:.4f}, beta={self.beta:.4f}, "
            f"sigma_hat={self.sigma_hat:.4f}, {len(self.trials)} settings tried)"
        )


def choose_noise(
    examples: Examples, kinds: Sequence[type[Noise]] = KINDS, progress: bool | None = None
) -> NoiseSelection:
    """Find the noise on some of the rows."""
    most = max(_STAGE_ROWS[-1], min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns))
    sample = sample_rows(examples, most)
    sizes = [min(rows, sample.n_rows) for rows in _STAGE_ROWS]
    stages = [sample.take(np.arange(k) * sample.n_rows // k) for k in sizes] + [sample]
    low, high = _usual_gaps(stages[1])
    grids = {kind: (low / kind.unit_deviation, high / kind.unit_deviation) for kind in kinds}
    trials: list[Trial] = []
    settings = zip(stages, _GRID_POINTS, _CLEARLY_BEHIND, strict=True)
    for stage, points, behind in track(settings, "Choosing the noise", len(stages), progress):
        best: dict[type[Noise], Trial] = {}
        for kind, ends in grids.items():
            found = try_noises(stage, [_tidy(kind, w) for w in np.geomspace(*ends, points)])
            best[kind] = max(found, key=lambda trial: trial.sigma_hat)
            trials += found
        leader = max(best.values(), key=lambda trial: trial.sigma_hat)
        ahead = [k for k, trial in best.items() if trial.sigma_hat >= behind * leader.sigma_hat]
        step = {kind: (grids[kind][1] / grids[kind][0]) ** (1.0 / (points - 1)) for kind in ahead}
        grids = {k: (best[k].noise.width / step[k], best[k].noise.width * step[k]) for k in ahead}
    return NoiseSelection(leader, tuple(trials))


def try_noises(examples: Examples, noises: Sequence[Noise]) -> list[Trial]:
    """The trials of settings of one family, with exact stability by one pass for all of them.

    Settings that differ in their mean alone share one trial, as it moves no label.
    """
    widths, place = np.unique([noise.width for noise in noises], return_inverse=True)
    stability = type(noises[0]).stabilities(examples.logits, widths)
    found = trials_by_stability([noises[0]] * widths.size, stability, examples)
    return [replace(found[k], noise=noise) for k, noise in zip(place, noises, strict=True)]


def trials_by_stability(
    noises: Sequence[Noise], stability: Array, examples: Examples
) -> list[Trial]:
    """Trials with all examples in one bin (Equations 1 to 4 of the paper).

    From stability (settings, n) of any library.
    """
    gamma, hits = examples.logits.to_host(stability), examples.counts * examples.correct
    return _trials(noises, _one_bin_sums(gamma, examples.weights, hits), examples.n_rows)


def sample_rows(examples: Examples, n_rows: int) -> Examples:
    """So many rows, with a weight of 1 each, or all that count if they are hardly more.

    One at random, always the same, in each of many equal parts of the sum of the weights: rows come
    in proportion to their weights, and no order of the rows can hide some of them.
    """
    if np.count_nonzero(examples.counts) <= 2 * n_rows:
        return examples.without_weightless()
    total = np.cumsum(examples.counts)
    places = (np.arange(n_rows) + uniform_draws(0, (1, n_rows))[0]) * (total[-1] / n_rows)
    return replace(examples.take(np.searchsorted(total, places, side="right")), weights=None)


def _usual_gaps(examples: Examples) -> tuple[float, float]:
    """From far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = per_row(lambda part: part.gaps, examples.logits), examples.counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return 0.5, 2.0
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return float(low / 4.0), float(8.0 * min(high, WIDEST))


def _tidy(kind: type[Noise], width: float) -> Noise:
    """Noise of about that width, rounded to three digits.

    sigma_hat is flat around its maximum, so rounding costs nothing; and a width that people can
    read is also the same on every machine, where the last bits of a search are not.
    """
    return kind.of_width(float(f"{min(max(width, NARROWEST), WIDEST):.2e}"))


def _one_bin_sums(
    stability: FloatArray, weight: FloatArray | None, right: FloatArray
) -> FloatArray:
    """Sums over the examples of stability (m, n), (6, m): of the weight, of what is kept and what
    is switched, of both for the correct ones alone, and of the squared deviations of stability.
    """

    def add_up(part: FloatArray, weight: FloatArray | None = weight) -> FloatArray:
        return np.asarray(np.sum(part if weight is None else weight * part, axis=1))

    switched = 1.0 - stability
    parts = (stability, switched)
    sums = [*map(add_up, parts), *(add_up(part, right) for part in parts)]
    count = stability.shape[1] if weight is None else np.sum(weight)
    total = np.zeros_like(sums[0]) + count
    squares = add_up((stability - (sums[0] / total)[:, None]) ** 2)
    return np.stack([total, *sums, squares])


def _trials(noises: Sequence[Noise], sums: FloatArray, n_examples: int) -> list[Trial]:
    """One trial for each column of the sums (6, m)."""
    total, kept, switched, kept_right, switched_right, squares = sums
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    spread = np.abs(alpha - beta) * np.sqrt(squares / total)
    columns = zip(noises, alpha.tolist(), beta.tolist(), spread.tolist(), strict=True)
    return [Trial(noise, a, b, sigma_hat, n_examples) for noise, a, b, sigma_hat in columns]
