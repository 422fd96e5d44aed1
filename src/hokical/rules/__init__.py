"""A fitted method is a rule: a few frozen numbers and one pure answer.

All rules are imported here, so that any of them can be read from a file.
"""

from hokical._core.logits import Logits
from hokical.rules._adaptive import AdaptiveRule
from hokical.rules._auto import AutoRule
from hokical.rules._balanced import BalancedRule
from hokical.rules._base import Rule
from hokical.rules._binary import BetaRule, PlattRule, VennAbersRule
from hokical.rules._ensemble import EnsembleRule
from hokical.rules._floored import FlooredRule
from hokical.rules._grouped import GroupedRule
from hokical.rules._hoki import HokiRule
from hokical.rules._isotonic import ClasswiseIsotonicRule, PooledIsotonicRule
from hokical.rules._softmax import TemperatureRule, UncalibratedRule
from hokical.rules._structured import StructuredRule
from hokical.rules._vector import VectorRule

__all__ = [
    "AdaptiveRule", "AutoRule", "BalancedRule", "BetaRule", "ClasswiseIsotonicRule",
    "EnsembleRule", "FlooredRule", "GroupedRule", "HokiRule", "Logits", "PlattRule",
    "PooledIsotonicRule", "Rule", "StructuredRule", "TemperatureRule", "UncalibratedRule",
    "VectorRule", "VennAbersRule",
]  # fmt: skip
