"""What Hoki learns: the noise, counts by label stability, and Algorithm 1 of the paper on them.

The noise is the one whose confidences differ most between examples. With all examples in one bin,
alpha and beta give the confidence alpha gamma + beta (1 - gamma), whose standard deviation over the
validation set is sigma_hat = |alpha - beta| std(gamma). The mean of the noise moves no label, so
the family and its width are all there is to choose, and sigma_hat is a smooth function of the
width: a wide grid of widths is tried on a few rows, then narrower ones around the best on more
rows.

Algorithm 1 runs on a stability table, which takes one pass over the logits; Algorithm 2 is
`rules.hoki.Steps.replay`. Each step groups the examples into confidence bins and gives every bin
two numbers: alpha, the accuracy of "the label survived", and beta, that of "the label switched".
The new confidence is alpha gamma + beta (1 - gamma). When no example changes its bin, the mean
confidence of every bin is its accuracy.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import FloatArray, IntArray, float64_scope
from hokical._core.checks import bin_index, sum_by
from hokical._core.logits import as_logits, per_row
from hokical._core.reading import as_labels, as_weights
from hokical._core.special import uniform_draws
from hokical._fitting.examples import (
    Examples,
    ExampleStats,
    Partition,
    reduce_with_stats,
    sample_block,
)
from hokical.guarantees.control import can_be_counts
from hokical.rules.hoki import HokiRule
from hokical.stability import gumbel
from hokical.stability.noise import NARROWEST, WIDEST, Noise, family_named
from hokical.stability.tables import Cells, StabilityTable

#: No example changes its bin any more; or some go back and forth for ever; or steps ran out.
Ending = Literal["converged", "cycle", "limit"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """What Algorithm 1 learned: alpha and beta (steps, bins), NaN where no example was.

    `count` (bins,) are the examples of each bin at the last step.
    """

    alpha: FloatArray
    beta: FloatArray
    count: FloatArray
    ending: Ending
    validation_ece: float

    @property
    def converged(self) -> bool:
        return self.ending == "converged"

    @property
    def n_steps(self) -> int:
        return int(self.alpha.shape[0])

    @property
    def occupied(self) -> NDArray[np.bool_]:
        """Which bins held validation examples at each step, (steps, bins)."""
        return ~np.isnan(self.alpha)

    def smoothed(self) -> tuple[FloatArray, FloatArray]:
        """Alpha and beta for more than was seen: no bin is left alone, and none is certain.

        A bin without examples takes the numbers of the nearest one with some. Of n examples in a
        bin, however they came out, one more could be right or wrong: at the last step alpha and
        beta stay between 1 / (n + 2) and (n + 1) / (n + 2), the rule of succession for none and
        all.
        """
        alpha, beta = self.alpha.copy(), self.beta.copy()
        least = 1.0 / (self.count + 2.0)
        for part in (alpha, beta):
            part[-1] = np.clip(part[-1], least, 1.0 - least)
        place = np.arange(alpha.shape[1])
        for step, occupied in enumerate(self.occupied):
            known = np.flatnonzero(occupied)
            nearest = known[np.abs(place[:, None] - known).argmin(axis=1)]
            alpha[step], beta[step] = alpha[step, nearest], beta[step, nearest]
        return alpha, beta


def learn_schedule(
    table: StabilityTable, n_bins: int, max_iter: int, *, as_printed: bool = False
) -> Schedule:
    """Algorithm 1: repeat until no example changes its bin, at most `max_iter` times.

    A step depends on the bins alone, so once they return to an earlier state they repeat for ever.
    The recursion then ends at the step of the cycle whose bins fit best. The algorithm `as_printed`
    does not notice and goes on to the step `max_iter`, where the cycle happens to be by then.
    """
    cells = table.occupied_cells()
    stability = cells.level / table.levels
    several_starts = table.n_starts > 1
    confidence = np.full(cells.level.shape, table.accuracy)
    bins = cells.start if several_starts else bin_index(confidence, n_bins)
    parts = _survival_parts(table.levels, cells)
    steps: list[_Step] = []
    seen: dict[bytes, int] = {}
    mark = _fingerprint(bins)
    while len(steps) < max_iter:
        seen[mark] = len(steps)
        starts = np.flatnonzero(np.diff(bins, prepend=-1))  # neighbours mostly share their bin
        runs = np.add.reduceat(parts, starts, axis=1)
        *rates, count = (sum_by(bins[starts], part, n_bins) for part in runs)
        alpha, beta = survival_rates(*rates)
        a, b = alpha[bins], beta[bins]  # none is NaN: a cell's own examples are in its bin
        confidence = np.clip((a - b) * stability + b, 0.0, 1.0)
        bins = bin_index(confidence, n_bins)
        gaps = sum_by(bins, cells.weight * confidence - cells.correct, n_bins)
        steps.append(_Step(alpha, beta, count, float(np.abs(gaps).sum() / cells.weight.sum())))
        mark = _fingerprint(bins)
        if mark in seen:
            first = seen[mark]
            if first == len(steps) - 1:
                return _schedule(steps, "converged")
            length = max_iter if as_printed else _best_length(steps, first)
            return _schedule(_repeat_cycle(steps, first, length), "cycle")
    return _schedule(steps, "limit")


def _fingerprint(bins: IntArray) -> bytes:
    """The same for the same bins; short, as there is one for every step."""
    narrow = bins.astype(np.min_scalar_type(int(bins.max())))
    return hashlib.blake2b(narrow.tobytes(), digest_size=16).digest()


class _Step(NamedTuple):
    alpha: FloatArray
    beta: FloatArray
    examples: FloatArray
    ece: float


def _best_length(steps: list[_Step], first: int) -> int:
    """How many steps end at the best of the cycle that begins at `first`."""
    return 1 + min(range(first, len(steps)), key=lambda k: steps[k].ece)


def _repeat_cycle(steps: list[_Step], first: int, length: int) -> list[_Step]:
    """So many steps, of which those from `first` on repeat."""
    period = len(steps) - first
    return [steps[k if k < first else first + (k - first) % period] for k in range(length)]


def _schedule(steps: list[_Step], ending: Ending) -> Schedule:
    alphas, betas, counts, eces = zip(*steps, strict=True)
    return Schedule(np.array(alphas), np.array(betas), counts[-1], ending, eces[-1])


def survival_rates(
    kept: FloatArray, switched: FloatArray, kept_correct: FloatArray, switched_correct: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """alpha and beta from sums over the labels kept and switched; NaN for an empty bin.

    If nothing was kept, or nothing switched, both are the accuracy, as the paper prints it.
    """
    total = kept + switched
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = (kept_correct + switched_correct) / total
        one_sided = (kept == 0) | (switched == 0)
        alpha = np.where(one_sided, accuracy, kept_correct / kept)
        beta = np.where(one_sided, accuracy, switched_correct / switched)
    return alpha, beta


def _survival_parts(levels: int, cells: Cells) -> FloatArray:
    """What alpha and beta are sums of, (5, cells): kept and switched, then of the correct ones; and
    the examples.

    Levels are integers, so the sums are exact (as long as weights are whole numbers).
    """
    up, down = cells.level.astype(np.float64), (levels - cells.level).astype(np.float64)
    # Weights that are no counts are relative; there are at least as many examples as cells.
    amount = cells.weight if can_be_counts(cells.weight) else np.ones_like(cells.weight)
    weight, correct = cells.weight, cells.correct
    return np.stack([up * weight, down * weight, up * correct, down * correct, amount])


#: The families that are considered unless others are asked for.
FAMILIES = ("gaussian", "uniform")
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


@dataclass(frozen=True)
class NoiseSelection(Trial):
    """The best setting, and all `trials` in the order in which they were made."""

    trials: tuple[Trial, ...] = field(repr=False)

    @classmethod
    def of(cls, best: Trial, trials: Sequence[Trial]) -> NoiseSelection:
        """The selection of one of the trials."""
        return cls(**vars(best), trials=tuple(trials))


def select_noise(
    logits: Any, labels: Any, *, families: Sequence[str] = FAMILIES, sample_weight: Any = None
) -> NoiseSelection:
    """Find the noise with the largest spread of one-bin confidences on a validation set.

    Widths of each family are tried with exact stability: a wide grid on 256 rows, a narrower one on
    1024, and the last on all rows, or on 8192 of more than 16,384, drawn in proportion to their
    weights. (The paper's grid of 1640 settings is in hokical-paper.)

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Class indices.
    families : sequence of str
        Which of "gaussian", "uniform" and "gumbel" to consider.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    selection : NoiseSelection

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import select_noise
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=500)
    >>> logits = rng.normal(size=(500, 5)) + 2 * np.eye(5)[labels]
    >>> select_noise(logits, labels, families=["gaussian"]).noise.family
    'gaussian'
    """
    if isinstance(families, str) or not families:
        raise ValueError(f"`families` must be a non-empty sequence of names; got {families!r}.")
    with float64_scope(logits):
        data = as_logits(logits).without_gradient()
        truth = as_labels(labels, data.n_rows, data.n_classes)
        block = Examples(data, truth, as_weights(sample_weight, data.n_rows))
        return choose_noise(sample_block(block), families)


def choose_noise(examples: Examples, families: Sequence[str] = FAMILIES) -> NoiseSelection:
    """Find the noise on some of the rows."""
    most = max(_STAGE_ROWS[-1], min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns))
    sample = sample_rows(examples, most)
    sizes = [min(rows, sample.n_rows) for rows in _STAGE_ROWS]
    stages = [sample.take(np.arange(k) * sample.n_rows // k) for k in sizes] + [sample]
    low, high = _usual_gaps(stages[1])
    kinds = map(family_named, families)
    grids = {kind: (low / kind.unit_deviation, high / kind.unit_deviation) for kind in kinds}
    trials: list[Trial] = []
    for stage, points, behind in zip(stages, _GRID_POINTS, _CLEARLY_BEHIND, strict=True):
        best: dict[type[Noise], Trial] = {}
        for kind, ends in grids.items():
            found = _try_widths(stage, kind, np.geomspace(*ends, points))
            best[kind] = max(found, key=lambda trial: trial.sigma_hat)
            trials += found
        leader = max(best.values(), key=lambda trial: trial.sigma_hat)
        ahead = [k for k, trial in best.items() if trial.sigma_hat >= behind * leader.sigma_hat]
        step = {kind: (grids[kind][1] / grids[kind][0]) ** (1.0 / (points - 1)) for kind in ahead}
        grids = {k: (best[k].noise.width / step[k], best[k].noise.width * step[k]) for k in ahead}
    return NoiseSelection.of(leader, trials)


def _try_widths(examples: Examples, kind: type[Noise], widths: FloatArray) -> list[Trial]:
    """Trials of one family with all examples in one bin (Equations 1 to 4 of the paper).

    Widths are rounded to three digits: sigma_hat is flat around its maximum, so rounding costs
    nothing, and they are the same on every machine, where the last bits of a search are not.
    """
    tidy = np.array([float(f"{width:.2e}") for width in np.clip(widths, NARROWEST, WIDEST)])
    gamma = examples.logits.to_host(kind.stabilities(examples.logits, tidy))
    counts, hits = examples.counts, examples.counts * examples.correct
    kept, switched, kept_right, switched_right = (
        np.sum(weight * part, axis=1) for weight in (counts, hits) for part in (gamma, 1.0 - gamma)
    )
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    squares = counts * (gamma - (kept / counts.sum())[:, None]) ** 2
    spread = np.abs(alpha - beta) * np.sqrt(np.sum(squares, axis=1) / counts.sum())
    columns = zip(*(each.tolist() for each in (tidy, alpha, beta, spread)), strict=True)
    return [Trial(kind.of_width(w), a, b, s, examples.n_rows) for w, a, b, s in columns]


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


def count_with_stats(
    examples: Partition, rule: HokiRule, n_starts: int
) -> tuple[StabilityTable, ExampleStats]:
    """The table of all examples, and their statistics, in one pass."""
    count = partial(count_stability, rule=rule, n_starts=n_starts)
    table, stats = reduce_with_stats(examples, count, operator.add)
    if not table.weight.any():
        raise ValueError("`sample_weight` must not be zero everywhere. Give some a weight.")
    return table, stats


def count_stability(block: Examples, rule: HokiRule, n_starts: int) -> StabilityTable:
    """The examples by their level; and, if `n_starts` is above 1, by the bin of their softmax."""
    logits, start = block.logits, None
    if n_starts > 1:
        start = bin_index(logits.to_host(gumbel.stability(logits, 1.0)), n_starts)
    return StabilityTable.from_examples(
        per_row(rule.on_device_of(logits).level, logits).astype(np.int64),
        block.correct,
        levels=rule.levels,
        sample_weight=block.weights,
        start=start,
        n_starts=n_starts,
    )
