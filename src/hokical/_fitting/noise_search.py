"""The search for the noise whose confidences differ most between examples.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). The mean
of the noise moves no label, so the family and its width are all there is to choose, and sigma_hat
is a smooth function of the width: it is located on a few rows, and refined on more and more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.portable import uniform_draws
from hokical._core.progress import progress_bar
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.recursion import survival_rates
from hokical.stability._noise import NARROWEST, WIDEST, Gaussian, Noise, Uniform
from hokical.stability._sampled import Draws, survivals

#: The families that are considered unless others are asked for.
KINDS: tuple[type[Noise], ...] = (Gaussian, Uniform)
#: The width is chosen on so many rows, or logits if that is fewer rows; with up to twice as many
#: rows, on all. sigma_hat is flat around its maximum: on all rows it is within 1 % of the best.
_SAMPLE_ROWS, _SAMPLE_LOGITS = 8192, 1 << 23
#: It is refined on so many of them before; with up to twice as many rows, on all rows at once. One
#: in four of these rows is enough to locate it.
_SCOUT_ROWS = 1024
_LOCATE_ON_EVERY = 4
_GRID_POINTS = 12
_MATCHED_POINTS = 5
#: Steps of the logarithm of the width, on the scout rows and on all.
_SCOUT_STEP, _LAST_STEP = math.log(1.5), math.log(1.2)
_WORTH_A_PASS = 1e-3
_MOST_STEPS = 20
_USUAL_TRIALS = 17  # per family, for the progress bar
#: A family this far behind on the scout rows is not tried on all of them.
_CLEARLY_BEHIND = 0.99


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


class Evaluator:
    """Tries noise settings on examples, and remembers every one."""

    def __init__(self, examples: Examples, after_each: Callable[[], None] = lambda: None) -> None:
        self.examples, self.after_each = examples, after_each
        self.trials: list[Trial] = []
        self._known: dict[tuple[str, float], Trial] = {}

    def __call__(self, noise: Noise, draws: Draws | None = None) -> Trial:
        """The trial of one setting, with exact stability unless there are draws."""
        if draws is None:
            return self.together([noise])[0]
        logits, xp = self.examples.logits, self.examples.logits.xp
        stability = xp.astype(survivals(logits, draws), xp.float64) / float(draws.n_draws)
        return self._try([noise], stability[None, :])[0]

    def together(self, noises: Sequence[Noise]) -> list[Trial]:
        """The trials of settings of one family, by one pass over the examples for all new ones.

        Settings that differ in their mean alone share one trial, as it moves no label.
        """
        keys = [(noise.family, noise.width) for noise in noises]
        new = {key: n for key, n in zip(keys, noises, strict=True) if key not in self._known}
        if new:
            widths = np.array([width for _, width in new])
            stability = type(noises[0]).stabilities(self.examples.logits, widths)
            self._known |= zip(new, self._try([*new.values()], stability), strict=True)
        return [replace(self._known[key], noise=n) for key, n in zip(keys, noises, strict=True)]

    def _try(self, noises: Sequence[Noise], stability: Array) -> list[Trial]:
        """New trials, from stability (settings, n)."""
        examples = self.examples
        hits = examples.counts * examples.correct
        sums = _one_bin_sums(examples.logits.to_host(stability), examples.weights, hits)
        found = _trials(noises, sums, examples.n_rows)
        for trial in found:
            self.trials.append(trial)
            self.after_each()
        return found


def choose_noise(
    examples: Examples, kinds: Sequence[type[Noise]] = KINDS, progress: bool | None = None
) -> NoiseSelection:
    """Find the noise on some of the rows."""
    most = max(_SCOUT_ROWS, min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns))
    return search_widths(sample_rows(examples, most), kinds, progress)


def search_widths(
    sample: Examples, kinds: Sequence[type[Noise]], progress: bool | None
) -> NoiseSelection:
    """Find the best width of each family on some rows of the sample; then on all of it."""
    with progress_bar("Choosing the noise", _USUAL_TRIALS * len(kinds), progress) as advance:
        scouts = sample
        if sample.n_rows > 2 * _SCOUT_ROWS:
            scouts = sample.take(np.linspace(0, sample.n_rows - 1, _SCOUT_ROWS).astype(np.int64))
        scout = Evaluator(scouts, advance)
        final = scout if scouts is sample else Evaluator(sample, advance)
        rough = scout
        if scouts.n_rows >= _SCOUT_ROWS:
            few = scouts.take(np.arange(0, scouts.n_rows, _LOCATE_ON_EVERY))
            rough = Evaluator(few, advance)
        found: list[Trial] = []
        for kind in kinds:
            grid = _matched_grid(kind, found[0].noise) if found else _width_grid(scouts)
            tried = rough.together([_tidy(kind, width) for width in grid])
            first = max(tried, key=lambda trial: trial.sigma_hat)
            found.append(climb(scout, first.noise, _SCOUT_STEP))
        leader = max(trial.sigma_hat for trial in found)
        last = [
            climb(final, trial.noise, _LAST_STEP)
            for trial in found
            if trial.sigma_hat >= _CLEARLY_BEHIND * leader
        ]
    stages = {id(stage): stage.trials for stage in (rough, scout, final)}
    best = max(last, key=lambda trial: trial.sigma_hat)
    return NoiseSelection(best, tuple(chain(*stages.values())))


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


def climb(evaluate: Evaluator, noise: Noise, step: float) -> Trial:
    """Step uphill; then once to the top of the parabola, if that promises more. The best trial."""
    centre, place = math.log(noise.width), 0

    def setting(place: float) -> Noise:
        return _tidy(type(noise), math.exp(centre + place * step))

    for _ in range(_MOST_STEPS):
        around = evaluate.together([setting(place + k) for k in (0, -1, 1)])
        at, below, above = (trial.sigma_hat for trial in around)
        if at >= max(below, above):
            break
        place += -1 if below >= above else 1
    curvature = below - 2.0 * at + above
    shift = 0.5 * (below - above) / curvature if curvature < 0.0 else 0.0
    if -0.5 * curvature * shift * shift > _WORTH_A_PASS * at:
        around.append(evaluate(setting(place + shift)))
    return max(around, key=lambda trial: trial.sigma_hat)  # of equals, where the steps ended


def _matched_grid(kind: type[Noise], known: Noise) -> FloatArray:
    """Widths around the one whose standard deviation is that of another family's best."""
    centre = known.width * known.unit_deviation / kind.unit_deviation
    return np.geomspace(centre / 4.0, 4.0 * centre, _MATCHED_POINTS)


def _width_grid(examples: Examples) -> FloatArray:
    """Widths from far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = per_row(lambda part: part.gaps, examples.logits), examples.counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return np.array([0.5, 1.0, 2.0])
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return np.geomspace(low / 4.0, 8.0 * min(high, WIDEST), _GRID_POINTS)


def _tidy(kind: type[Noise], width: float) -> Noise:
    """Noise of about that width, rounded to three digits.

    sigma_hat is flat around its maximum, so rounding costs nothing; and a width that people can
    read is also the same on every machine, where the last bits of a search are not.
    """
    return kind.of_width(float(f"{min(max(width, NARROWEST), WIDEST):.2e}"))


def one_bin_trial(noise: Noise, stability: FloatArray, correct: NDArray[np.bool_]) -> Trial:
    """alpha, beta and sigma_hat with all examples in one bin (Equations 1 to 4 of the paper)."""
    sums = _one_bin_sums(stability[None, :], None, correct.astype(np.float64))
    return _trials([noise], sums, stability.shape[0])[0]


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
