"""Confidence and accuracy in every bin at fit time, and whether inputs have shifted since then."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.calibrators import Calibrator
from hokical.guarantees._binomial import chi_square_tail, merge_cells
from hokical.guarantees._scores import middle_log_odds
from hokical.metrics._examples import as_examples

#: Probability that one of the intervals of fit-time gaps fails.
_DELTA = 0.05
#: Total variation distance of the confidences below which a shift is negligible.
_LEAST_DISTANCE = 0.1
#: The chi-square approximation needs about this many expected examples in a cell.
_LEAST_EXPECTED = 5.0


@storable("monitor-reference")
@dataclass(frozen=True, eq=False)
class Reference:
    """Sums over the reference examples in each bin of confidence, (J,) float64 each."""

    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray

    @classmethod
    def from_examples(cls, confidence: Any, correct: Any, n_bins: int) -> Self:
        """From `confidence` (n,) in [0, 1] and `correct` (n,), boolean."""
        rows = as_examples(confidence, correct)
        return cls._add_up(rows.confidence, np.ones(rows.n_rows), rows.correct, n_bins)

    @classmethod
    def from_calibrator(cls, calibrator: Calibrator, n_bins: int) -> Self:
        """From the confidence of a calibrator on held-out examples, or on those of its fit."""
        table = calibrator.kept_.held_out_scores or calibrator.kept_.fit_confidences
        if table is None:
            raise ValueError(
                f"`reference` must keep a histogram of its confidence; this {calibrator.name!r} "
                "has none (weights that are not whole numbers, positions of maps, or a file before "
                "0.4). Use `CalibrationMonitor.from_validation(calibrator, logits, labels)`."
            )
        whole = table.whole
        confidence = 0.5 * (1.0 + np.tanh(0.5 * middle_log_odds(whole.count.size)))
        return cls._add_up(confidence, whole.count, whole.correct, n_bins)

    @classmethod
    def _add_up(cls, confidence: FloatArray, weight: Any, correct: Any, n_bins: int) -> Self:
        index = bin_index(confidence, n_bins)
        parts = (weight, correct, weight * confidence)
        return cls(*(sum_by(index, part, n_bins) for part in parts))

    def allowances(self, tolerance: float) -> FloatArray:
        """How far confidence may be off, (2, 1 + J): the tolerance, or what the fit cannot exclude.

        First over all examples (a normal interval for the mean of correct - confidence), then in
        each bin (Agresti and Coull's interval of the accuracy), simultaneously with 95 %. A bin
        without examples may have any gap.
        """
        n, n_all = self.weight, max(float(self.weight.sum()), 1.0)
        z = -NormalDist().inv_cdf(_DELTA / (2.0 * (1 + n.size)))
        right = (self.correct + 0.5 * z**2) / (n + z**2)
        reach = z * np.sqrt(right * (1.0 - right) / (n + z**2))
        says = self.confidence / np.maximum(n, 1.0)
        share = (self.correct + 2.0) / (n + 4.0)  # so that no bin has a variance of 0
        overall = float((self.correct - self.confidence).sum()) / n_all
        spread = z * math.sqrt(float((n * share * (1.0 - share)).sum())) / n_all
        over = np.append(spread - overall, np.where(n > 0, says - right + reach, 1.0))
        under = np.append(overall + spread, np.where(n > 0, right + reach - says, 1.0))
        return np.asarray(np.clip([over, under], tolerance, 1.0))


@dataclass(frozen=True)
class InputShift:
    """The window's confidences compared with the reference's, by bins.

    `p_value` (chi-square) is valid for a single look; `distance` is the total variation distance.
    `shifted`: the p-value is below delta and the distance 0.1 or more.
    """

    n: int
    distance: float
    p_value: float
    shifted: bool


def input_shift(counts: IntArray, reference: FloatArray, delta: float) -> InputShift:
    """Compare counts per bin, (J,), with the reference's weights per bin, (J,).

    >>> same = input_shift(np.array([10, 30, 60]), np.array([100.0, 300.0, 600.0]), 0.01)
    >>> same.p_value, same.shifted
    (1.0, False)
    >>> input_shift(np.array([60, 30, 10]), np.array([100.0, 300.0, 600.0]), 0.01).shifted
    True
    """
    table = np.array([counts, reference], dtype=np.float64)
    sizes = table.sum(axis=1)
    # Neighbouring bins are joined until both samples expect enough examples in each.
    group = merge_cells(table.sum(axis=0), _LEAST_EXPECTED * sizes.sum() / sizes.min())
    table = np.array([np.bincount(group, row, int(group.max()) + 1) for row in table])
    share = table / sizes[:, None]
    distance = 0.5 * float(np.abs(share[0] - share[1]).sum())
    p_value, freedom = 1.0, table.shape[1] - 1
    if freedom:
        expected = np.outer(sizes, table.sum(axis=0)) / sizes.sum()
        statistic = float(((table - expected) ** 2 / expected).sum())
        p_value = chi_square_tail(freedom, statistic) if math.isfinite(statistic) else 0.0
    shifted = p_value < delta and distance >= _LEAST_DISTANCE
    return InputShift(int(counts.sum()), distance, p_value, shifted)
