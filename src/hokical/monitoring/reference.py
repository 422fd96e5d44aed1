"""What was known when the calibrator was fitted: how confidence and accuracy lay in every bin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from hokical.bins import bin_index, sum_by
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.hoki import Hoki
from hokical.logits import as_labels, as_logits
from hokical.metrics.binned import BinnedSums
from hokical.metrics.exact import total

FloatArray = NDArray[np.float64]

#: Simultaneous confidence of the intervals within which fit-time gaps are known.
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Reference:
    """Sums over the reference examples in each bin of confidence, (J,) float64 each.

    Examples
    --------
    >>> at_fit_time = Reference.from_examples([0.9, 0.8, 0.95], [True, False, True], n_bins=5)
    >>> at_fit_time.weight
    array([0., 0., 0., 0., 3.])
    """

    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray

    @classmethod
    def from_examples(cls, confidence: Any, correct: Any, *, n_bins: int = 15) -> Reference:
        """From `confidence` (n,) in [0, 1] and `correct` (n,), boolean."""
        sums = BinnedSums.from_examples(confidence, correct, n_bins=n_bins)
        return cls(sums.weight, sums.correct, total(sums.confidence_words))

    @classmethod
    def from_hoki(cls, calibrator: Hoki, *, n_bins: int = 15) -> Reference:
        """From the table of the examples that a fitted Hoki was made of.

        A whole weight counts as so many examples, as in `fit`. Other weights are refused: how many
        examples there were, and so how well a gap is known, cannot be told from their sums.
        """
        check_is_fitted(calibrator, "n_classes_")
        if calibrator.fit_scores_ is None:
            raise ValueError(
                "`calibrator` must have been fitted without weights, or with whole numbers of "
                "examples, to be a reference: its sums of weights (or its file, of an earlier "
                "version) do not tell how many examples there were. Use "
                "`from_validation(calibrator, logits, labels)`."
            )
        cells = calibrator.table_.occupied()
        start = (cells.start + 0.5) / calibrator.n_bins_
        if calibrator.init_ == "accuracy":
            start = np.full(cells.level.shape, calibrator.accuracy_)
        stability = cells.level / calibrator.table_.levels
        confidence = calibrator._curve.schedule.replay(stability, start)
        index = bin_index(confidence, n_bins)
        parts = (cells.weight, cells.correct, cells.weight * confidence)
        return cls(*(sum_by(index, part, n_bins) for part in parts))

    @classmethod
    def from_validation(
        cls, calibrator: BaseCalibrator, logits: Any, labels: Any, *, n_bins: int = 15
    ) -> Reference:
        """From labelled examples, (n, classes) and (n,), seen through a fitted calibrator."""
        confidence, correct = judged(calibrator, logits, labels)
        return cls.from_examples(confidence, correct, n_bins=n_bins)

    @property
    def n_bins(self) -> int:
        return int(self.weight.shape[0])

    def gap_intervals(self) -> tuple[FloatArray, FloatArray]:
        """Ends of what the fit-time mean of correct - confidence may be, (1 + J,) each.

        First over all examples (a normal interval), then in each bin (Clopper and Pearson's
        interval of the accuracy); they hold together. A bin without examples may have any gap.
        """
        from scipy.special import ndtri

        tail = (1.0 - _LEVEL) / (2.0 * (1 + self.n_bins))
        n, n_all = self.weight, max(float(self.weight.sum()), 1.0)
        least, most = _accuracy_interval(self.correct, n - self.correct, tail)
        said = self.confidence / np.maximum(n, 1.0)
        share = (self.correct + 2.0) / (n + 4.0)  # no bin is without spread
        spread = math.sqrt(float((n * share * (1.0 - share)).sum())) / n_all
        overall = float((self.correct - self.confidence).sum()) / n_all
        reach = -float(ndtri(tail)) * spread
        return np.append(overall - reach, least - said), np.append(overall + reach, most - said)

    def to_dict(self) -> dict[str, FloatArray]:
        """For storage."""
        return {"weight": self.weight, "correct": self.correct, "confidence": self.confidence}


def judged(
    calibrator: BaseCalibrator, logits: Any, labels: Any
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Confidence (n,) of a calibrator's labels, and whether they are right (n,)."""
    check_is_fitted(calibrator, "n_classes_")
    data = as_logits(logits, fitted_by=calibrator)
    truth = as_labels(labels, data.n_rows, data.n_classes)
    return calibrator.predict_confidence(data), calibrator.predict(data) == truth


def _accuracy_interval(
    right: FloatArray, wrong: FloatArray, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Clopper and Pearson's interval (J,), which misses on either side with chance `tail`."""
    from scipy.special import betaincinv

    least = np.where(right > 0, betaincinv(np.maximum(right, 1e-9), wrong + 1.0, tail), 0.0)
    most = np.where(wrong > 0, betaincinv(right + 1.0, np.maximum(wrong, 1e-9), 1.0 - tail), 1.0)
    return least, most
