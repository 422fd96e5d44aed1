"""Algorithm 1 of Hoki (Jang et al., 2021): two rates per bin, until no example moves.

The algorithm runs on a stability table, which takes one pass over the logits; Algorithm
2 is `rules.hoki.Curve.from_steps`. Each step groups the examples into confidence bins
and gives every bin two numbers: alpha, the accuracy of "the label survived", and beta,
of "the label switched". The new confidence is alpha gamma + beta (1 - gamma). When no
example changes its bin, the mean confidence of every bin is its accuracy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import bin_index, sum_by
from hokical.guarantees.control import can_be_counts
from hokical.rules.hoki import Curve
from hokical.stability.tables import Cells, StabilityTable

#: How the recursion ends: no example changes its bin any more; some go back and forth
#: for ever; or the steps ran out.
Ending = Literal["converged", "cycle", "limit"]
#: The confidence where the validation set has no example.
Unseen = Literal["nearest", "as_printed"]
#: A cycle that leaves at most this validation ECE fits as well as convergence; sums of
#: float64 leave less.
_ECE_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Step:
    """One step: `alpha`, `beta` and `count`, the examples of each bin, all (bins,).

    `ece` is the validation ECE of the confidences that it leads to.
    """

    alpha: FloatArray
    beta: FloatArray
    count: FloatArray
    ece: float


@dataclass(frozen=True, eq=False)
class Schedule:
    """What Algorithm 1 learned: alpha and beta (steps, bins), NaN in bins without
    examples.

    `count` (bins,) are the examples of each bin at the last step.
    """

    alpha: FloatArray
    beta: FloatArray
    count: FloatArray
    ending: Ending
    validation_ece: float

    @classmethod
    def from_steps(cls, steps: Sequence[Step], ending: Ending) -> Schedule:
        """The schedule of these steps, in their order."""
        last = steps[-1]
        alpha = np.array([step.alpha for step in steps])
        beta = np.array([step.beta for step in steps])
        return cls(alpha, beta, last.count, ending, last.ece)

    @property
    def n_steps(self) -> int:
        """The number of steps."""
        return len(self.alpha)

    @property
    def converged(self) -> bool:
        """Whether no example changes its bin any more."""
        return self.ending == "converged"

    @property
    def occupied(self) -> BoolArray:
        """Which bins held validation examples at each step, (steps, bins)."""
        return ~np.isnan(self.alpha)

    def is_final(self, unseen: Unseen) -> bool:
        """Whether further steps would change nothing that matters.

        A cycle that ends at a step where every bin fits needs no remedy, unless the
        cycle goes on as printed.
        """
        fits = unseen == "nearest" and self.validation_ece <= _ECE_ROUNDING
        return self.converged or fits

    def smoothed(self) -> tuple[FloatArray, FloatArray]:
        """Alpha and beta (steps, bins) of every bin, none of them certain at the end.

        A bin without examples takes the numbers of the nearest one with some. Of n
        examples in a bin, however they came out, one more could be right or wrong: at
        the last step alpha and beta stay between 1 / (n + 2) and (n + 1) / (n + 2), the
        rule of succession for none and all.
        """
        least = 1.0 / (self.count + 2.0)
        alpha = self.alpha.copy()
        beta = self.beta.copy()
        alpha[-1] = np.clip(alpha[-1], least, 1.0 - least)
        beta[-1] = np.clip(beta[-1], least, 1.0 - least)
        bins = np.arange(alpha.shape[1])
        for step, is_occupied in enumerate(self.occupied):
            occupied_bins = np.flatnonzero(is_occupied)
            distances = np.abs(bins[:, None] - occupied_bins)
            nearest = occupied_bins[distances.argmin(axis=1)]
            alpha[step] = alpha[step, nearest]
            beta[step] = beta[step, nearest]
        return alpha, beta

    def curve(self, table: StabilityTable, unseen: Unseen, chance: float) -> Curve:
        """Confidence as a function of stability, by Algorithm 2.

        `chance` is the confidence that the curve falls towards below the least stable
        example.
        """
        if unseen == "as_printed":
            return Curve.from_steps(self.alpha, self.beta, table.levels, table.accuracy)
        curve = Curve.from_steps(*self.smoothed(), table.levels, table.accuracy)
        observed_levels = np.flatnonzero(table.weight[0])
        return curve.held_by(observed_levels, table.levels, chance)


def learn_schedule(
    table: StabilityTable, n_bins: int, max_iter: int, *, as_printed: bool = False
) -> Schedule:
    """Algorithm 1: repeat until no example changes its bin, at most `max_iter` times.

    A step depends on the bins alone, so once they return to an earlier state they
    repeat for ever. The recursion then ends at the step of the cycle whose bins fit
    best. The algorithm `as_printed` does not notice and goes on to the step `max_iter`,
    where the cycle happens to be by then.
    """
    recursion = _Recursion(table, n_bins)
    bins = recursion.starting_bins()
    steps: list[Step] = []
    step_of_state: dict[bytes, int] = {}
    state = _fingerprint(bins)
    while state not in step_of_state and len(steps) < max_iter:
        step_of_state[state] = len(steps)
        step, bins = recursion.step(bins)
        steps.append(step)
        state = _fingerprint(bins)
    if state not in step_of_state:
        return Schedule.from_steps(steps, "limit")
    first = step_of_state[state]
    if first == len(steps) - 1:
        return Schedule.from_steps(steps, "converged")
    best = min(range(first, len(steps)), key=lambda k: steps[k].ece)
    n_steps = max_iter if as_printed else best + 1
    repeated = islice(cycle(steps[first:]), n_steps - first)
    return Schedule.from_steps([*steps[:first], *repeated], "cycle")


class _Recursion:
    """A step of Algorithm 1 as a function of the bins that examples are in.

    Examples of a table are equal within a cell, so that bins are those of its occupied
    cells.
    """

    def __init__(self, table: StabilityTable, n_bins: int) -> None:
        cells = table.occupied_cells()
        self.table = table
        self.cells = cells
        self.n_bins = n_bins
        self.stability = cells.level / table.levels
        self.terms = _terms(cells, table.levels)

    def starting_bins(self) -> IntArray:
        """The bin (cells,) of the accuracy, unless the table has several starts."""
        if self.table.n_starts > 1:
            return self.cells.start
        accuracy = np.full(self.cells.level.shape, self.table.accuracy)
        return bin_index(accuracy, self.n_bins)

    def step(self, bins: IntArray) -> tuple[Step, IntArray]:
        """The step from examples in these bins (cells,), and the bins that follow."""
        cells = self.cells
        # Neighbors mostly share their bin, so runs are summed first.
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        runs = np.add.reduceat(self.terms, starts, axis=1)
        run_bins = bins[starts]
        *rates, count = (sum_by(run_bins, sums, self.n_bins) for sums in runs)
        alpha, beta = survival_rates(*rates)
        # None is NaN: the examples of a cell are in its bin.
        survived = alpha[bins]
        switched = beta[bins]
        confidence = (survived - switched) * self.stability + switched
        confidence = np.clip(confidence, 0.0, 1.0)
        bins = bin_index(confidence, self.n_bins)
        excess = cells.weight * confidence - cells.correct
        gaps = np.abs(sum_by(bins, excess, self.n_bins))
        ece = float(gaps.sum() / cells.weight.sum())
        return Step(alpha, beta, count, ece), bins


def _terms(cells: Cells, levels: int) -> FloatArray:
    """What alpha and beta are quotients of sums of, and examples (5, cells).

    Levels are integers, so the sums are exact as long as weights are whole numbers.
    Weights that are no counts are relative; a cell then has at least one example.
    """
    survived = cells.level.astype(np.float64)
    switched = (levels - cells.level).astype(np.float64)
    n_examples = np.ones_like(cells.weight)
    if can_be_counts(cells.weight):
        n_examples = cells.weight
    return np.stack(
        [
            survived * cells.weight,
            switched * cells.weight,
            survived * cells.correct,
            switched * cells.correct,
            n_examples,
        ]
    )


def _fingerprint(bins: IntArray) -> bytes:
    """A hash of the bins, short because there is one for every step."""
    return hashlib.blake2b(bins.tobytes(), digest_size=16).digest()


def survival_rates(
    survived: FloatArray,
    switched: FloatArray,
    survived_correct: FloatArray,
    switched_correct: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """alpha and beta from sums over labels that survived and switched; NaN for an
    empty bin.

    If none survived, or none switched, both are the accuracy, as the paper prints it.
    """
    total = survived + switched
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = (survived_correct + switched_correct) / total
        one_sided = (survived == 0) | (switched == 0)
        alpha = np.where(one_sided, accuracy, survived_correct / survived)
        beta = np.where(one_sided, accuracy, switched_correct / switched)
    return alpha, beta
