"""Honest confidence for classifiers."""

from hokical.bounds import calibration_bound
from hokical.calibrators import Hoki, load
from hokical.logits import from_binary_scores, from_probabilities
from hokical.selection import select_noise
from hokical.stability import label_distribution, label_stability

__version__ = "0.1.0"

__all__ = [
    "Hoki",
    "calibration_bound",
    "from_binary_scores",
    "from_probabilities",
    "label_distribution",
    "label_stability",
    "load",
    "select_noise",
]
