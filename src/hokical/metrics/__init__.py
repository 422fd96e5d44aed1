"""Metrics of calibration, from probabilities (n, classes) and labels, or from
confidences (n,).

`ece` documents `proba`, `labels` and `sample_weight`, which mean the same everywhere:
the shape of `proba` decides whether a score is of all classes or of a confidence. Every
metric also takes chunks, each (proba, labels) or (proba, labels, sample_weight), as its
first argument: a list of them, an iterator, or a function that returns one; and Dask
arrays.

>>> chunks = [([0.9, 0.8], [True, False]), ([0.7], [True])]
>>> round(brier(chunks), 4)
0.2467
"""

from hokical.metrics.calibration import (
    aurc,
    auroc,
    brier,
    classwise_ece,
    debiased_ece,
    ece,
    log_loss,
    ranked_probability_score,
    risk_coverage_curve,
    selective_risk,
    smooth_ece,
)
from hokical.metrics.groups import (
    GroupRow,
    GroupTable,
    PredictionPowered,
    group_table,
    prediction_powered_accuracy,
)
from hokical.metrics.risk_models import (
    BinarySummary,
    CalibrationCurve,
    RiskBands,
    binary_summary,
    calibration_slope,
    decision_curve,
    population_stability_index,
    risk_bands,
    smooth_calibration_curve,
)
from hokical.metrics.summaries import METRICS, Estimate, Metric, Summary, summary

__all__ = [
    "METRICS",
    "BinarySummary",
    "CalibrationCurve",
    "Estimate",
    "GroupRow",
    "GroupTable",
    "Metric",
    "PredictionPowered",
    "RiskBands",
    "Summary",
    "aurc",
    "auroc",
    "binary_summary",
    "brier",
    "calibration_slope",
    "classwise_ece",
    "debiased_ece",
    "decision_curve",
    "ece",
    "group_table",
    "log_loss",
    "population_stability_index",
    "prediction_powered_accuracy",
    "ranked_probability_score",
    "risk_bands",
    "risk_coverage_curve",
    "selective_risk",
    "smooth_calibration_curve",
    "smooth_ece",
    "summary",
]
