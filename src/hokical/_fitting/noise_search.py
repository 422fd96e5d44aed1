"""The search for the width of the noise: located on a few rows, refined on more and more.

The mean of the noise moves no label, so the family and its width are all there is to choose, and
sigma_hat is a smooth function of the width.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from hokical._core.blocks import per_row
from hokical._core.portable import uniform_draws
from hokical._core.progress import progress_bar
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.examples import Examples
from hokical._fitting.noise_trials import Evaluator, NoiseSelection, Trial
from hokical.stability._noise import NARROWEST, WIDEST, Gaussian, Noise, Uniform

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
#: Steps that a device makes at once, in the direction in which the walk goes.
_LOOK_AHEAD = 4
_WORTH_A_PASS = 1e-3
_LONGEST_WALK = 20
_USUAL_TRIALS = 17  # per family, for the progress bar
#: A family this far behind on the scout rows is not tried on all of them.
_CLEARLY_BEHIND = 0.99


def choose_noise(
    block: Examples, kinds: Sequence[type[Noise]] = KINDS, progress: bool | None = None
) -> NoiseSelection:
    """Find the noise on some rows of a block."""
    n_counting, total = int(np.count_nonzero(block.counts)), float(np.sum(block.counts))
    places = sample_places(n_counting, total, block.logits.n_columns)
    return search_widths(take_places(block, places), kinds, progress)


def search_widths(
    sample: Examples, kinds: Sequence[type[Noise]], progress: bool | None
) -> NoiseSelection:
    """Find the best width of each family on some rows of the sample; then on all of it."""
    with progress_bar("Choosing the noise", _USUAL_TRIALS * len(kinds), progress) as advance:
        scouts = sample
        if sample.n_rows > 2 * _SCOUT_ROWS:
            scouts = sample.take(_spread(sample.n_rows, _SCOUT_ROWS))
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
    return NoiseSelection.from_trials(last, [trial for part in stages.values() for trial in part])


def sample_places(n_counting: int, total: float, n_columns: int) -> FloatArray | None:
    """Where to take rows from, on the scale of the sum of the weights; None for all of them.

    One place at random, always the same, in each of many equal parts: rows come in proportion to
    their weights, and no order of the rows can hide some of them.
    """
    most = max(_SCOUT_ROWS, min(_SAMPLE_ROWS, _SAMPLE_LOGITS // n_columns))
    if n_counting <= 2 * most:
        return None
    return np.asarray((np.arange(most) + uniform_draws(0, (1, most))[0]) * (total / most))


def take_places(block: Examples, places: FloatArray | None) -> Examples:
    """The rows at some places, with a weight of 1 each, or all that count."""
    if places is None:
        return block.without_weightless()
    rows = np.searchsorted(np.cumsum(block.counts), places, side="right")
    return replace(block.take(rows), weights=None)


def _spread(n_rows: int, count: int) -> IntArray:
    """So many evenly spaced rows."""
    return np.linspace(0, n_rows - 1, count).astype(np.int64)


def climb(evaluate: Evaluator, noise: Noise, step: float) -> Trial:
    """Walk uphill; then once to the top of the parabola, if that promises more. The best trial."""
    kind, centre = type(noise), math.log(noise.width)
    seen: dict[int, Trial] = {}

    @cache
    def setting(place: float) -> Noise:
        return _tidy(kind, math.exp(centre + place * step))

    def scores_around(place: int) -> list[float]:
        around = range(place - 1, place + 2)
        new = [each for each in around if each not in seen]
        onward = (place > 0) - (place < 0)
        ahead = (place + onward * k for k in range(2, _LOOK_AHEAD + 1))
        found = evaluate.together([*map(setting, new)], map(setting, ahead))
        seen.update(zip(new, found, strict=True))
        return [seen[each].sigma_hat for each in around]

    best = 0
    for _ in range(_LONGEST_WALK):
        below, at, above = scores_around(best)
        if at >= max(below, above):
            break
        best += -1 if below >= above else 1
    below, at, above = scores_around(best)
    curvature = below - 2.0 * at + above
    shift = 0.5 * (below - above) / curvature if curvature < 0.0 else 0.0
    trials = [seen[best], *seen.values()]  # of equals, the one that the walk ended at
    if -0.5 * curvature * shift * shift > _WORTH_A_PASS * at:
        trials.append(evaluate(setting(best + shift)))
    return max(trials, key=lambda trial: trial.sigma_hat)


def _matched_grid(kind: type[Noise], known: Noise) -> FloatArray:
    """Widths around the one whose standard deviation is that of another family's best."""
    centre = known.width * known.unit_deviation / kind.unit_deviation
    return np.geomspace(centre / 4.0, 4.0 * centre, _MATCHED_POINTS)


def _width_grid(block: Examples) -> FloatArray:
    """Widths from far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = per_row(lambda part: part.gaps, block.logits), block.counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return np.array([0.5, 1.0, 2.0])
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return np.geomspace(low / 4.0, 8.0 * min(high, WIDEST), _GRID_POINTS)


def _tidy(kind: type[Noise], width: float) -> Noise:
    """Noise of about that width, rounded to three digits.

    sigma_hat is flat around its maximum, so nothing is lost; and a width that people can read is
    also the same on every machine, where the last bits of a search are not.
    """
    return kind.of_width(float(f"{min(max(width, NARROWEST), WIDEST):.2e}"))
