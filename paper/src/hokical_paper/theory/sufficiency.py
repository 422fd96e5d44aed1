"""Theorem 1 on data: in every bin, does the mean confidence equal what survival
implies?
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical import Hoki
from hokical.calibrators import SurvivalCalibrator
from hokical_paper.core import as_labels, as_weights, bin_index, sum_by, to_host
from hokical_paper.core.fitting import survival_rates
from hokical_paper.types import FloatArray


@dataclass(frozen=True, eq=False)
class SufficiencyGap:
    """Both sides of Theorem 1, one entry per bin, NaN in empty bins.

    `implied` = alpha stability + beta (1 - stability) is the accuracy of the bin, split
    by whether the label survived; a calibrator is perfect where it equals `confidence`.
    """

    weight: FloatArray
    confidence: FloatArray
    alpha: FloatArray
    beta: FloatArray
    stability: FloatArray

    @property
    def implied(self) -> FloatArray:
        return self.alpha * self.stability + self.beta * (1.0 - self.stability)

    @property
    def gap(self) -> FloatArray:
        """implied - confidence per bin."""
        return self.implied - self.confidence

    @property
    def calibration_error(self) -> float:
        """The gaps' sizes averaged by weight: the ECE of the data."""
        occupied = self.weight > 0
        share = self.weight[occupied] / self.weight.sum()
        return float((share * np.abs(self.gap[occupied])).sum())


def sufficiency_gap(
    hoki: Hoki, logits: Any, labels: Any, sample_weight: Any = None
) -> SufficiencyGap:
    """Both sides per bin of a fitted Hoki, on logits (n, classes) and labels (n,).

    >>> from hokical.demo import demo_logits
    >>> (logits, labels), _ = demo_logits()
    >>> hoki = Hoki(unseen="as_printed").fit(logits, labels)
    >>> round(sufficiency_gap(hoki, logits, labels).calibration_error, 6)
    0.0
    """
    rows = hoki.schema_.read(logits)  # whose answers are of double precision
    truth = as_labels(labels, rows.n_rows, rows.n_classes)
    return measure_sufficiency(
        to_host(hoki.predict_confidence(rows)),
        to_host(hoki.stability(rows)),
        to_host(hoki.predict(rows)) == truth,
        n_bins=hoki.n_bins_,
        weights=None
        if sample_weight is None
        else as_weights(sample_weight, rows.n_rows),
    )


def survival_gap(
    calibrator: SurvivalCalibrator, survived: Any, correct: Any
) -> SufficiencyGap:
    """The same of any transformations: which of them (transformations, n) kept the
    label, and whether it was correct (n,).
    """
    rows = calibrator.read_labelled(survived, correct)
    return measure_sufficiency(
        calibrator.predict(rows.scores),
        calibrator.stability(rows.scores),
        rows.labels == 1,
        n_bins=calibrator.n_bins,
    )


def measure_sufficiency(
    confidence: FloatArray,
    stability: FloatArray,
    correct: NDArray[np.bool_],
    *,
    n_bins: int,
    weights: FloatArray | None = None,
) -> SufficiencyGap:
    """Estimate both sides per confidence bin."""
    bins = bin_index(confidence, n_bins)
    w = np.ones_like(confidence) if weights is None else weights

    def per_bin(values: FloatArray) -> FloatArray:
        return sum_by(bins, w * values, n_bins)

    weight = per_bin(np.ones_like(confidence))
    survived = per_bin(stability)
    switched = per_bin(1.0 - stability)
    alpha, beta = survival_rates(
        survived,
        switched,
        per_bin(stability * correct),
        per_bin((1.0 - stability) * correct),
    )
    with np.errstate(invalid="ignore"):
        return SufficiencyGap(
            weight, per_bin(confidence) / weight, alpha, beta, survived / weight
        )
