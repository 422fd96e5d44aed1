"""The search for the width of the noise: located on some rows, refined on all of them.

The mean of the noise moves no label, so the family and its width are all there is to choose, and
sigma_hat is a smooth function of the width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hokical.core.blocks import per_row
from hokical.core.progress import progress_bar
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.noise_trials import Evaluator, NoiseSelection, Trial
from hokical.fitting.partitions import Block, InMemory, Partition
from hokical.stability.noise import NARROWEST, WIDEST, Noise

#: Rows on which the width is located before it is refined on all of them.
_SCOUT_ROWS = 2048
#: Up to this many logits and rows, all rows are used all the time.
_SCOUT_FROM, _SCOUT_FROM_ROWS = 4_000_000, 50_000
_GRID_POINTS = 12
_MATCHED_POINTS = 5
_REFINE_TO = 0.03  # relative width at which the search on the scout rows stops
_POLISH_STEP = math.log(1.2)
_WORTH_A_PASS = 1e-3
_LONGEST_WALK = 20
_USUAL_TRIALS = 17  # per family, for the progress bar
#: A family this far behind on the scout rows is not tried on all of them.
_CLEARLY_BEHIND = 0.98


def search_in_memory(
    block: Block, kinds: Sequence[type[Noise]], progress: bool | None
) -> NoiseSelection:
    """Find the noise for examples that are in memory."""
    counting = np.flatnonzero(block.counting)
    if need_no_scouts(block.logits.size, counting.size):
        return search_widths(block, None, kinds, progress)
    scouts = block.take(counting[scout_rows(counting.size)])
    return search_widths(scouts, InMemory(block), kinds, progress)


def search_widths(
    scouts: Block, whole: Partition | None, kinds: Sequence[type[Noise]], progress: bool | None
) -> NoiseSelection:
    """Locate the best width per family on the scouts; refine it on the whole, if that is more."""
    with progress_bar("Choosing the noise", _USUAL_TRIALS * len(kinds), progress) as advance:
        scout = Evaluator(InMemory(scouts), advance)
        found: list[Trial] = []
        for kind in kinds:
            grid = _matched_grid(kind, found[0].noise) if found else _width_grid(scouts)
            found.append(_locate(scout, kind, grid))
        if whole is None:
            return NoiseSelection.from_trials(scout.trials, scout.trials)
        leader = max(trial.sigma_hat for trial in found)
        final = Evaluator(whole, advance)
        for trial in found:
            if trial.sigma_hat >= _CLEARLY_BEHIND * leader:
                polish(final, trial.noise)
    return NoiseSelection.from_trials(final.trials, scout.trials + final.trials)


def need_no_scouts(n_logits: int, n_counting: int) -> bool:
    """Whether all rows can be used all the time."""
    few = n_logits <= _SCOUT_FROM and n_counting <= _SCOUT_FROM_ROWS
    return few or n_counting <= 2 * _SCOUT_ROWS


def scout_rows(n_counting: int) -> IntArray:
    """The scout rows, as positions among those that count."""
    return np.linspace(0, n_counting - 1, _SCOUT_ROWS).astype(np.int64)


def polish(evaluate: Evaluator, noise: Noise) -> None:
    """Walk uphill on all rows; then once to the top of the parabola, if that promises more."""
    kind, centre = type(noise), math.log(noise.width)
    seen: dict[int, float] = {}

    def score(step: int) -> float:
        if step not in seen:
            width = math.exp(centre + step * _POLISH_STEP)
            seen[step] = evaluate(_tidy(kind, width)).sigma_hat
        return seen[step]

    best = 0
    for _ in range(_LONGEST_WALK):
        uphill = max((best - 1, best, best + 1), key=score)
        if uphill == best:
            break
        best = uphill
    below, at, above = score(best - 1), score(best), score(best + 1)
    curvature = below - 2.0 * at + above
    shift = 0.5 * (below - above) / curvature if curvature < 0.0 else 0.0
    if -0.5 * curvature * shift * shift > _WORTH_A_PASS * at:
        evaluate(_tidy(kind, math.exp(centre + (best + shift) * _POLISH_STEP)))


def _locate(evaluate: Evaluator, kind: type[Noise], grid: FloatArray) -> Trial:
    """The best width of a coarse grid, refined between its neighbours by Brent's search."""
    from scipy.optimize import minimize_scalar

    trials = [evaluate(_tidy(kind, width)) for width in grid]
    peak = int(np.argmax([trial.sigma_hat for trial in trials]))
    low, high = grid[max(peak - 1, 0)], grid[min(peak + 1, grid.size - 1)]

    def negative_spread(log_width: float) -> float:
        trials.append(evaluate(_tidy(kind, math.exp(log_width))))
        return -trials[-1].sigma_hat

    minimize_scalar(
        negative_spread,
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": _REFINE_TO},
    )
    return max(trials, key=lambda trial: trial.sigma_hat)


def _matched_grid(kind: type[Noise], known: Noise) -> FloatArray:
    """Widths around the one whose standard deviation is that of another family's best."""
    centre = known.width * known.unit_deviation / kind.unit_deviation
    return np.geomspace(centre / 4.0, 4.0 * centre, _MATCHED_POINTS)


def _width_grid(block: Block) -> FloatArray:
    """Widths from far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = per_row(lambda part: part.gaps, block.logits), block.counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return np.array([0.5, 1.0, 2.0])
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return np.geomspace(low / 4.0, 8.0 * high, _GRID_POINTS)


def _tidy(kind: type[Noise], width: float) -> Noise:
    """Noise of about that width, rounded to three digits.

    sigma_hat is flat around its maximum, so nothing is lost; and a width that people can read is
    also the same on every machine, where the last bits of a search are not.
    """
    return kind.of_width(float(f"{min(max(width, NARROWEST), WIDEST):.2e}"))
