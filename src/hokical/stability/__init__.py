"""Label stability: how likely is a label to survive noise on the logits?"""

from hokical.stability.noise import Gaussian, Gumbel, Noise, Uniform
from hokical.stability.sampled import Draws, label_distribution, label_stability, survivals  # noqa: F401
from hokical.stability.tables import EXACT_LEVELS, StabilityTable  # noqa: F401

__all__ = [
    "Gaussian", "Gumbel", "Noise", "StabilityTable", "Uniform", "label_distribution",
    "label_stability",
]  # fmt: skip
