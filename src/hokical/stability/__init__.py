"""Label stability: how likely is a label to survive noise on the logits?"""

from hokical.stability.noise import Gaussian, Gumbel, Noise, Uniform
from hokical.stability.sampled import label_distribution, label_stability
from hokical.stability.tables import StabilityTable

__all__ = [
    "Gaussian",
    "Gumbel",
    "Noise",
    "StabilityTable",
    "Uniform",
    "label_distribution",
    "label_stability",
]
