"""Label stability: how likely is a label to survive noise on the logits?"""

from hokical.stability._label_stability import label_distribution, label_stability
from hokical.stability._noise import Gaussian, Gumbel, Noise, Uniform
from hokical.stability._sampled import Draws, survivals  # noqa: F401
from hokical.stability._table import EXACT_LEVELS, StabilityTable  # noqa: F401

__all__ = [
    "Gaussian",
    "Gumbel",
    "Noise",
    "StabilityTable",
    "Uniform",
    "label_distribution",
    "label_stability",
]
