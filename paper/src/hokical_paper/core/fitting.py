"""What fits: searches, penalised objectives, and how Hoki learns."""

from hokical._fitting.partial_pooling import BinaryTerms, binary_losses
from hokical._fitting.recursion import Schedule, learn_schedule, survival_rates
from hokical._fitting.searches import (
    Solution,
    base_temperature,
    best_temperature,
    cg_steps,
    minimize_dense,
    minimize_newton,
)
from hokical._fitting.structured import (
    ClassBlocks,
    FeatureBlock,
    SoftmaxObjective,
    make_blocks,
)
from hokical.calibrators.noise_selection import NoiseSelection, Trial

__all__ = [
    "BinaryTerms",
    "ClassBlocks",
    "FeatureBlock",
    "NoiseSelection",
    "Schedule",
    "SoftmaxObjective",
    "Solution",
    "Trial",
    "base_temperature",
    "best_temperature",
    "binary_losses",
    "cg_steps",
    "learn_schedule",
    "make_blocks",
    "minimize_dense",
    "minimize_newton",
    "survival_rates",
]
