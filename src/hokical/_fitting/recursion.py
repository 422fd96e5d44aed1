"""Algorithm 1 of the paper, on a stability table; Algorithm 2 is `rules.hoki.Steps.replay`.

Each step groups the examples into confidence bins and gives every bin two numbers: alpha, the
accuracy of "the label survived", and beta, that of "the label switched". The new confidence is
alpha gamma + beta (1 - gamma). When no example changes its bin, the mean confidence of every bin is
its accuracy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hokical._core.bins import bin_index, sum_by
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._control import can_be_counts
from hokical.stability._table import Cells, StabilityTable

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
