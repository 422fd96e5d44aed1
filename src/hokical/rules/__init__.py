"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

All rules and their parts are imported here, so that any of them can be read from a file, and what
other packages of this project need to write rules.
"""

from hokical._core.logits import Logits, as_logits
from hokical.rules.automatic import (
    AdaptiveRule,  # noqa: F401
    AutoRule,  # noqa: F401
    AveragedRule,  # noqa: F401
    RowCorrection,  # noqa: F401
)
from hokical.rules.base import Rule, predict_blocks  # noqa: F401
from hokical.rules.binary_isotonic import (  # noqa: F401  # noqa: F401
    BetaRule,
    ClasswiseIsotonicRule,
    PlattRule,
    PooledIsotonicRule,
    VennAbersRule,
)
from hokical.rules.hoki import Curve as Curve
from hokical.rules.hoki import HokiRule  # noqa: F401
from hokical.rules.hoki import Steps as Steps
from hokical.rules.scaling import (  # noqa: F401
    EnsembleRule,
    StructuredRule,
    TemperatureRule,
    UncalibratedRule,
    VectorRule,
)
from hokical.rules.wrapped import BalancedRule, FlooredRule, GroupedRule  # noqa: F401

__all__ = ["Logits", "Rule", "as_logits"]
