"""A fitted method is a rule: a few frozen numbers and one pure answer.

All rules are imported here, so that any of them can be read from a file.
"""

from hokical.rules.auto import AutoRule as AutoRule
from hokical.rules.base import Rule as Rule
from hokical.rules.binary import BetaRule as BetaRule
from hokical.rules.binary import PlattRule as PlattRule
from hokical.rules.binary import VennAbersRule as VennAbersRule
from hokical.rules.ensemble import EnsembleRule as EnsembleRule
from hokical.rules.floored import FlooredRule as FlooredRule
from hokical.rules.hoki import HokiRule as HokiRule
from hokical.rules.isotonic import ClasswiseIsotonicRule as ClasswiseIsotonicRule
from hokical.rules.isotonic import PooledIsotonicRule as PooledIsotonicRule
from hokical.rules.odir import DirichletRule as DirichletRule
from hokical.rules.odir import MatrixRule as MatrixRule
from hokical.rules.profile import ProfileRule as ProfileRule
from hokical.rules.recal import ReCalRule as ReCalRule
from hokical.rules.softmax import TemperatureRule as TemperatureRule
from hokical.rules.softmax import UncalibratedRule as UncalibratedRule
from hokical.rules.structured import StructuredRule as StructuredRule
from hokical.rules.vector import VectorRule as VectorRule

__all__ = sorted(name for name in globals() if name.endswith("Rule"))
