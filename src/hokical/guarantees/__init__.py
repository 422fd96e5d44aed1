"""Guarantees for predictions: when to answer, and how precise the confidence is."""

from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._bounds import calibration_bound
from hokical.guarantees._decisions import Decisions, Detections
from hokical.guarantees._label_sets import LabelSets
from hokical.guarantees._plan import CoveragePlan, Plan, plan, plan_coverage
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._sets import PredictionSets
from hokical.guarantees._shift import AccuracyEstimate, ShiftEstimate
from hokical.guarantees._thresholds import examples_to_cover, fewest_for_coverage

__all__ = [
    "AccuracyEstimate", "CoveragePlan", "Decisions", "Detections", "LabelSets", "Plan",
    "PredictionSets", "SelectivePrediction", "ShiftEstimate", "calibration_bound",
    "clopper_pearson", "examples_to_cover", "fewest_for_coverage", "plan", "plan_coverage",
]  # fmt: skip
