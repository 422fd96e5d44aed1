"""What the default fits before its row correction: scores of all classes, and held-out ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical._fitting.likelihood import WeightedExamples
from hokical.rules._auto import Average, ClassScaling

#: A gain is clear beyond this many standard errors, which are doubled with so many examples: of
#: calibration over none, and of the row correction, which gains less and was seen to overfit more.
ERRORS, FEW_EXAMPLES, FEW_TO_CORRECT = 0.5, 85.0, 150.0


@dataclass(frozen=True, eq=False)
class BaseFit:
    """The `base` of the default's rule, behind a `floor` for probabilities of 0.

    `held_out` are its scores of `examples` by a fit without each; these count as `n_examples`.
    `shares` and held-out log `losses` are of its candidates, by name.
    """

    base: Average | ClassScaling
    floor: float
    examples: WeightedExamples
    n_examples: float
    held_out: Logits
    shares: dict[str, float]
    losses: dict[str, float]
    converged: bool


def standard_error(
    gains: FloatArray, variances: FloatArray, weights: FloatArray, few: float = FEW_EXAMPLES
) -> float:
    """Standard error of the mean of gains (n,) in log loss, doubled with `few` examples.

    It is the larger of two: by the gains themselves, and by the `variances` (n,) that gains have if
    the probabilities without the change are right, which counts mistakes that are yet to come.
    Weights (n,) sum to 1.
    """
    squares = weights * weights
    own = np.sum(squares * (gains - weights @ gains) ** 2)
    expected = np.sum(squares * np.maximum(variances, 0.0))
    n_examples = 1.0 / np.sum(squares)
    return float(np.sqrt(max(own, expected)) * (1.0 + (few / n_examples) ** 2))
