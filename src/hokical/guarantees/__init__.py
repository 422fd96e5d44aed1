"""Guarantees about predictions, and the examples that support them."""

from hokical.guarantees.bounds import calibration_bound, clopper_pearson
from hokical.guarantees.control import RiskControl
from hokical.guarantees.planning import DensityRatios, density_ratios, plan
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import Detections, LabelSets, PredictionSets
from hokical.guarantees.shift import ShiftEstimate

__all__ = [
    "DensityRatios",
    "Detections",
    "LabelSets",
    "PredictionSets",
    "RiskControl",
    "SelectivePrediction",
    "ShiftEstimate",
    "calibration_bound",
    "clopper_pearson",
    "density_ratios",
    "plan",
]
