"""A fitted method is a rule: a few frozen numbers and one pure answer.

All rules are imported here, so that any of them can be read from a file.
"""

from hokical.rules.auto import AutoRule
from hokical.rules.base import Rule
from hokical.rules.binary import BetaRule, PlattRule, VennAbersRule
from hokical.rules.ensemble import EnsembleRule
from hokical.rules.floored import FlooredRule
from hokical.rules.hoki import HokiRule
from hokical.rules.isotonic import ClasswiseIsotonicRule, PooledIsotonicRule
from hokical.rules.odir import DirichletRule, MatrixRule
from hokical.rules.profile import ProfileRule
from hokical.rules.softmax import TemperatureRule, UncalibratedRule
from hokical.rules.structured import StructuredRule
from hokical.rules.vector import VectorRule

__all__ = [
    "AutoRule", "BetaRule", "ClasswiseIsotonicRule", "DirichletRule", "EnsembleRule",
    "FlooredRule", "HokiRule", "MatrixRule", "PlattRule", "PooledIsotonicRule", "ProfileRule",
    "Rule", "StructuredRule", "TemperatureRule", "UncalibratedRule", "VectorRule",
    "VennAbersRule",
]  # fmt: skip
