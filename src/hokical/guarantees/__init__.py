"""Guarantees for predictions: when to answer, and how precise the confidence is."""

from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._bounds import calibration_bound
from hokical.guarantees._plan import Plan, plan
from hokical.guarantees._selective import SelectivePrediction

__all__ = ["Plan", "SelectivePrediction", "calibration_bound", "clopper_pearson", "plan"]
