"""Guarantees about predictions, and the examples that support them."""

from hokical.guarantees.bounds import calibration_bound, clopper_pearson
from hokical.guarantees.control import RiskControl
from hokical.guarantees.covariate_shift import DensityRatios, density_ratios
from hokical.guarantees.planning import plan
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import Detections, LabelSets, PredictionSets
from hokical.guarantees.shift import ShiftEstimate
from hokical.guarantees.validation import ValidationPlan, plan_validation

__all__ = [
    "DensityRatios",
    "Detections",
    "LabelSets",
    "PredictionSets",
    "RiskControl",
    "SelectivePrediction",
    "ShiftEstimate",
    "ValidationPlan",
    "calibration_bound",
    "clopper_pearson",
    "density_ratios",
    "plan",
    "plan_validation",
]
