"""Promises about predictions, and what examples prove."""

from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._bounds import calibration_bound
from hokical.guarantees._label_sets import LabelSets
from hokical.guarantees._plan import DensityRatios, density_ratios, plan
from hokical.guarantees._risk import RiskControl
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._sets import Detections, PredictionSets
from hokical.guarantees._shift import ShiftEstimate

__all__ = [
    "DensityRatios", "Detections", "LabelSets", "PredictionSets", "RiskControl",
    "SelectivePrediction", "ShiftEstimate", "calibration_bound", "clopper_pearson",
    "density_ratios", "plan",
]  # fmt: skip
