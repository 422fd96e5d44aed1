"""Confidence and accuracy in every bin at fit time, and whether inputs have shifted since then."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.labels import as_labels
from hokical._core.logits import as_logits
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.calibrators import Calibrator
from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._chi_square import chi_square_tail, merge_cells
from hokical.metrics._binned_sums import BinnedSums, total
from hokical.rules._hoki import HokiRule

#: Probability that one of the intervals of fit-time gaps fails.
_DELTA = 0.05
#: The usual threshold of PSI for a moderate shift.
PSI_OF_A_SHIFT = 0.1
#: The chi-square approximation needs about this many expected examples in a cell.
_LEAST_EXPECTED = 5.0


@storable("monitor-reference")
@dataclass(frozen=True, eq=False)
class Reference:
    """Sums over the reference examples in each bin of confidence, (J,) float64 each.

    >>> at_fit_time = Reference.from_examples([0.9, 0.8, 0.95], [True, False, True], n_bins=5)
    >>> at_fit_time.weight
    array([0., 0., 0., 0., 3.])
    """

    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray

    @classmethod
    def from_examples(cls, confidence: Any, correct: Any, *, n_bins: int = 15) -> Self:
        """From `confidence` (n,) in [0, 1] and `correct` (n,), boolean."""
        sums = BinnedSums.from_examples(confidence, correct, n_bins=n_bins)
        return cls(sums.weight, sums.correct, total(sums.confidence_words))

    @classmethod
    def from_hoki(cls, calibrator: Calibrator, *, n_bins: int = 15) -> Self:
        """From the table of examples in a fitted Hoki.

        An integer weight counts as that many examples, as in `fit`. Other weights are refused, as
        their sums do not tell how many examples there were, and so how well a gap is known.
        """
        if calibrator.fit_scores_ is None:
            raise ValueError(
                "`calibrator` must have been fitted without weights, or with whole numbers of "
                "examples, to be a reference: its sums of weights do not tell how many examples "
                "there were. Use `from_validation(calibrator, logits, labels)`."
            )
        cells = calibrator.table_.occupied_cells()  # type: ignore[attr-defined]
        start = (cells.start + 0.5) / calibrator.n_bins_  # type: ignore[attr-defined]
        confidence = calibrator.rule_.confidence_at(cells.level, start)  # type: ignore[attr-defined]
        index = bin_index(confidence, n_bins)
        parts = (cells.weight, cells.correct, cells.weight * confidence)
        return cls(*(sum_by(index, part, n_bins) for part in parts))

    @classmethod
    def from_validation(
        cls, calibrator: Calibrator, logits: Any, labels: Any, *, n_bins: int = 15
    ) -> Self:
        """From labelled examples, (n, classes) and (n,), and a fitted calibrator."""
        data = as_logits(logits, fitted_by=calibrator)
        truth = as_labels(labels, data.n_rows, data.n_classes)
        correct = calibrator.predict(data) == truth
        return cls.from_examples(calibrator.predict_confidence(data), correct, n_bins=n_bins)

    @property
    def n_bins(self) -> int:
        return int(self.weight.shape[0])

    def gap_intervals(self) -> tuple[FloatArray, FloatArray]:
        """Ends of intervals for the fit-time mean of correct - confidence, (1 + J,) each.

        First overall (a normal interval), then in each bin (the Clopper-Pearson interval of the
        accuracy); they hold simultaneously. A bin without examples may have any gap.
        """
        from statistics import NormalDist

        tail = _DELTA / (2.0 * (1 + self.n_bins))
        n, n_all = self.weight, max(float(self.weight.sum()), 1.0)
        least, most = clopper_pearson(self.correct, n, delta=2.0 * tail).T
        said = self.confidence / np.maximum(n, 1.0)
        share = (self.correct + 2.0) / (n + 4.0)  # so that no bin has a variance of 0
        spread = math.sqrt(float((n * share * (1.0 - share)).sum())) / n_all
        overall = float((self.correct - self.confidence).sum()) / n_all
        reach = -NormalDist().inv_cdf(tail) * spread
        return np.append(overall - reach, least - said), np.append(overall + reach, most - said)


def as_reference(reference: Any, n_bins: int) -> Reference | None:
    """What a monitor was given, as a reference with the same bins, or None."""
    if isinstance(reference, Calibrator):
        if isinstance(reference.rule_, HokiRule):
            return Reference.from_hoki(reference, n_bins=n_bins)
        raise ValueError(
            f"{reference.name!r} does not keep its fit-time examples. Use "
            "`CalibrationMonitor.from_validation(calibrator, logits, labels)`."
        )
    if reference is not None and not isinstance(reference, Reference):
        raise TypeError(
            f"`reference` must be a fitted Hoki, a `Reference` or None; got {reference!r}."
        )
    if reference is not None and reference.n_bins != n_bins:
        raise ValueError(
            f"`reference` must have {n_bins} bins like the monitor; got {reference.n_bins}. Make "
            "it with the same `n_bins`."
        )
    return reference


@dataclass(frozen=True)
class InputDrift:
    """The window's confidences compared with the reference's.

    `p_value` is valid for a single look. `shifted`: it is below delta and `psi` is 0.1 or more.
    """

    n: int
    psi: float
    p_value: float
    shifted: bool


def input_drift(counts: IntArray, reference: FloatArray, delta: float) -> InputDrift:
    """Compare counts per bin, (J,), with the reference's weights per bin, (J,).

    >>> same = input_drift(np.array([10, 30, 60]), np.array([100.0, 300.0, 600.0]), 0.01)
    >>> same.p_value, same.shifted
    (1.0, False)
    >>> input_drift(np.array([60, 30, 10]), np.array([100.0, 300.0, 600.0]), 0.01).shifted
    True
    """
    table = _merge_small_cells(np.array([counts, reference], dtype=np.float64))
    share = (table + 0.5) / (table + 0.5).sum(axis=1, keepdims=True)  # no empty cells
    psi = float(((share[0] - share[1]) * np.log(share[0] / share[1])).sum())
    p_value, freedom = 1.0, table.shape[1] - 1
    if freedom:
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        statistic = float(((table - expected) ** 2 / expected).sum())
        p_value = chi_square_tail(freedom, statistic) if math.isfinite(statistic) else 0.0
    shifted = p_value < delta and psi >= PSI_OF_A_SHIFT
    return InputDrift(int(counts.sum()), psi, p_value, shifted)


def _merge_small_cells(table: FloatArray) -> FloatArray:
    """Join neighbouring bins until both samples expect enough examples in each, (2, cells)."""
    pooled, sizes = table.sum(axis=0), table.sum(axis=1)
    least = _LEAST_EXPECTED * sizes.sum() / sizes.min()
    group = merge_cells(pooled, least)
    return np.array([np.bincount(group, row, int(group.max()) + 1) for row in table])
