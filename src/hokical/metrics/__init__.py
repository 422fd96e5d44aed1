"""Metrics of calibration, from (confidence, correct) or from (proba, labels).

`ece` documents `confidence`, `correct` and `sample_weight`, `classwise_ece` documents `proba` and
`labels`; they mean the same everywhere. Every metric also takes chunks, each (confidence, correct)
or (confidence, correct, sample_weight), as its first argument: a list of them, an iterator, or a
function that returns one; and Dask arrays. See `chunked` and `sums`.

>>> chunks = [([0.9, 0.8], [True, False]), ([0.7], [True])]
>>> round(brier(chunks), 4)
0.2467
"""

from hokical.metrics._binned_sums import BinnedSums
from hokical.metrics._by_class import ClassRow, ClassSums, ClassTable, class_table
from hokical.metrics._by_group import GroupRow, GroupTable, LargestGap, group_table
from hokical.metrics._calibration import (
    brier,
    brier_full,
    classwise_ece,
    debiased_ece,
    ece,
    log_loss,
    log_loss_full,
    ranked_probability_score,
)
from hokical.metrics._metric import METRICS, Metric
from hokical.metrics._ranking import aurc, auroc, risk_coverage_curve, selective_risk
from hokical.metrics._sets import SetRow, SetSummary, set_summary
from hokical.metrics._smooth import smooth_ece
from hokical.metrics._summaries import Estimate, Summary, summarize_sums, summary
from hokical.metrics._sums import FullSums, MetricSums

__all__ = [
    "METRICS", "BinnedSums", "ClassRow", "ClassSums", "ClassTable", "Estimate", "FullSums",
    "GroupRow", "GroupTable", "LargestGap", "Metric", "MetricSums", "SetRow", "SetSummary",
    "Summary", "aurc", "auroc", "brier", "brier_full", "class_table", "classwise_ece",
    "debiased_ece", "ece", "group_table", "log_loss", "log_loss_full", "ranked_probability_score",
    "risk_coverage_curve", "selective_risk", "set_summary", "smooth_ece", "summarize_sums",
    "summary",
]  # fmt: skip
