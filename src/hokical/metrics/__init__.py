"""Metrics of calibration, of (confidence, correct) or of (proba, labels); see each function."""

from hokical.metrics.binned import BinnedSums, debiased_ece, ece, mce
from hokical.metrics.classwise import classwise_ece
from hokical.metrics.ks import ks_error
from hokical.metrics.proper import (
    BrierSplit,
    brier,
    brier_full,
    brier_split,
    log_loss,
    log_loss_full,
    refinement,
    sharpness,
    split_sums,
)
from hokical.metrics.ranking import aurc, auroc, risk_coverage_curve, selective_risk
from hokical.metrics.smooth import smooth_ece
from hokical.metrics.summaries import Estimate, Summary, summary

__all__ = [
    "BinnedSums",
    "BrierSplit",
    "Estimate",
    "Summary",
    "aurc",
    "auroc",
    "brier",
    "brier_full",
    "brier_split",
    "classwise_ece",
    "debiased_ece",
    "ece",
    "ks_error",
    "log_loss",
    "log_loss_full",
    "mce",
    "refinement",
    "risk_coverage_curve",
    "selective_risk",
    "sharpness",
    "smooth_ece",
    "split_sums",
    "summary",
]
