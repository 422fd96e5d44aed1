"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

All rules and their parts are imported here, so that any of them can be read from a file, and what
other packages of this project need to write rules.
"""

from hokical._core.logits import Logits, as_logits
from hokical.rules._adaptive import AdaptiveRule  # noqa: F401
from hokical.rules._auto import AutoRule  # noqa: F401
from hokical.rules._base import Rule
from hokical.rules._binary import BetaRule, PlattRule, VennAbersRule  # noqa: F401
from hokical.rules._frozen import AveragedRule  # noqa: F401
from hokical.rules._hoki import Curve as Curve
from hokical.rules._hoki import HokiRule  # noqa: F401
from hokical.rules._hoki import Steps as Steps
from hokical.rules._isotonic import ClasswiseIsotonicRule, PooledIsotonicRule  # noqa: F401
from hokical.rules._predicting import predict_blocks  # noqa: F401
from hokical.rules._row_correction import RowCorrection  # noqa: F401
from hokical.rules._scaling import (  # noqa: F401
    EnsembleRule,
    TemperatureRule,
    UncalibratedRule,
    VectorRule,
)
from hokical.rules._structured import StructuredRule  # noqa: F401
from hokical.rules._wrapped import BalancedRule, FlooredRule, GroupedRule  # noqa: F401

__all__ = ["Logits", "Rule", "as_logits"]
