"""Label stability: how likely is a label to survive noise on the logits?"""

from hokical.stability import _compiled  # noqa: F401  (registers the compiled forms)
from hokical.stability._api import label_distribution, label_stability
from hokical.stability._noise import Gaussian, Gumbel, Noise, Uniform, parse_noise
from hokical.stability._stability_table import StabilityTable

__all__ = [
    "Gaussian",
    "Gumbel",
    "Noise",
    "StabilityTable",
    "Uniform",
    "label_distribution",
    "label_stability",
    "parse_noise",
]
