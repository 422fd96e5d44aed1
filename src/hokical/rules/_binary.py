"""Methods for two classes as rules: functions of the log-odds of class 1."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import LARGEST_COEFFICIENT, check_array, check_rising, store_float
from hokical.rules._probabilities import log_probabilities, softmax

#: Scores are compared as float32, in the fit and in predictions: rows that differ by rounding tie.
LARGEST_KEY = float(np.finfo(np.float32).max)


def log_odds(logits: Logits) -> Array:
    """The score of class 1 above that of class 0, (n,)."""
    return logits.margins[:, 0] - logits.margins[:, 1]


class LogisticRule(Rule):
    """Base of the rules that give log-odds of class 1."""

    preserves_labels: ClassVar[bool] = False
    binary_only: ClassVar[bool] = True

    def score(self, logits: Logits) -> Array:
        """The calibrated log-odds, (n,)."""
        raise TypeError(f"{type(self).__name__} has no predictions.")

    def proba(self, logits: Logits) -> Array:
        score = self.score(logits)
        return softmax(logits.xp.stack([logits.xp.zeros_like(score), score], axis=1), logits)


@dataclass(frozen=True)
class PlattRule(LogisticRule):
    """Log-odds `slope` times the score plus `intercept`."""

    name: ClassVar[str] = "platt"

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        for name in ("slope", "intercept"):
            store_float(self, name, -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)

    def score(self, logits: Logits) -> Array:
        return log_odds(logits) * self.slope + self.intercept


@dataclass(frozen=True)
class BetaRule(LogisticRule):
    """Log-odds a log p - b log(1 - p) + c of a probability p of class 1; a and b are not negative.

    They are called `rise`, `fall` and `intercept`.
    """

    name: ClassVar[str] = "beta"

    rise: float
    fall: float
    intercept: float

    def __post_init__(self) -> None:
        store_float(self, "rise", 0.0, LARGEST_COEFFICIENT)
        store_float(self, "fall", 0.0, LARGEST_COEFFICIENT)
        store_float(self, "intercept", -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)

    def score(self, logits: Logits) -> Array:
        logs = log_probabilities(logits)
        return logs[:, 1] * self.rise - logs[:, 0] * self.fall + self.intercept


@dataclass(frozen=True, eq=False)
class VennAbersRule(Rule):
    """Two rising step functions of the score with steps at `knots` (k,).

    `lower` and `upper` (k + 1,) are the probabilities of class 1 if an example with that score was
    added to the fit as one of class 0, and of class 1. `lower` takes its step at a knot, `upper`
    behind it.
    """

    name: ClassVar[str] = "venn_abers"
    preserves_labels: ClassVar[bool] = False
    binary_only: ClassVar[bool] = True

    knots: FloatArray
    lower: FloatArray
    upper: FloatArray

    def __post_init__(self) -> None:
        check_array("knots", self.knots, (None,), -LARGEST_KEY, LARGEST_KEY)
        check_rising("knots", self.knots)
        size = (self.knots.size + 1,)
        check_array("lower", self.lower, size, 0.0, 1.0 - 2.0**-53)
        check_array("upper", self.upper, size, 1e-300, 1.0)
        for steps in (self.lower, self.upper):
            if not (np.diff(steps) >= 0.0).all():
                raise ValueError("`lower` and `upper` must not fall.")
        if (self.lower[1:] > self.upper[:-1]).any() or self.lower[-1] > self.upper[-1]:
            raise ValueError("`lower` must not be above `upper`.")

    def proba(self, logits: Logits) -> Array:
        """Of class 1: upper / (1 - lower + upper), the minimax choice for log loss."""
        xp = logits.xp
        lower, upper = self._ends(logits)
        shares = xp.stack([1.0 - lower, upper], axis=1)
        shares = xp.where(logits.possible, shares, xp.zeros_like(shares))
        return shares / xp.sum(shares, axis=1, keepdims=True)

    def label_interval(self, logits: Logits) -> tuple[Array, Array]:
        xp = logits.xp
        is_first = self.labels(logits) == 0
        first, second = (self.class_interval(logits, label) for label in (0, 1))
        low, high = (xp.where(is_first, *ends) for ends in zip(first, second, strict=True))
        return low, high

    def class_interval(self, logits: Logits, label: int) -> tuple[Array, Array]:
        """p0 and p1 of a class; 0 or 1 where the other or it alone is possible."""
        xp = logits.xp
        lower, upper = self._ends(logits)
        low, high = (lower, upper) if label == 1 else (1.0 - upper, 1.0 - lower)
        alone = logits.possible_counts == 1.0
        sure = xp.astype(logits.labels == label, low.dtype)
        return xp.where(alone, sure, low), xp.where(alone, sure, high)

    def _ends(self, logits: Logits) -> tuple[Array, Array]:
        """Both functions, (n,) each."""
        xp = logits.xp
        key = xp.astype(xp.clip(log_odds(logits), -LARGEST_KEY, LARGEST_KEY), xp.float32)
        key = to_float64(key, xp)
        lower = xp.take(self.lower, xp.searchsorted(self.knots, key, side="right"))
        upper = xp.take(self.upper, xp.searchsorted(self.knots, key, side="left"))
        return lower, upper
