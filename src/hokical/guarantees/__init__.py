"""Guarantees for predictions: when to answer, and how precise the confidence is."""

from hokical.guarantees.binomial import clopper_pearson
from hokical.guarantees.bounds import calibration_bound
from hokical.guarantees.plan import Plan, plan
from hokical.guarantees.selective import SelectivePrediction

__all__ = ["Plan", "SelectivePrediction", "calibration_bound", "clopper_pearson", "plan"]
