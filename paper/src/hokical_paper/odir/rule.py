"""Matrix scaling and Dirichlet calibration as rules: a linear map of features, then a
softmax.

The two differ in their features alone. An impossible class counts as the least likely
of the possible ones: it must say something finite to the others, and its own
probability is 0 anyway.
"""

from dataclasses import dataclass
from typing import ClassVar

from hokical.rules import Logits, Rule
from hokical_paper.core import check_array, contract, log_norms, softmax
from hokical_paper.types import Array, FloatArray


@dataclass(frozen=True, eq=False)
class LinearRule(Rule):
    """softmax(`weight` x + `bias`), (classes, classes) and (classes,), of features
    x.
    """

    preserves_labels: ClassVar[bool] = False

    weight: FloatArray
    bias: FloatArray

    def __post_init__(self) -> None:
        check_array("bias", self.bias, (None,))
        check_array("weight", self.weight, (self.bias.size,) * 2)

    @property
    def n_classes(self) -> int:
        return int(self.bias.shape[0])

    @staticmethod
    def features(logits: Logits) -> Array:
        """x of every row, (n, classes), finite."""
        raise TypeError("the features are those of a subclass.")

    def proba(self, logits: Logits) -> Array:
        across = logits.xp.permute_dims(self.weight, (1, 0))
        scores = contract(self.features(logits), across, logits.xp)
        return softmax(scores + self.bias[None, :], logits)


class MatrixRule(LinearRule):
    """On logits less their row's mean over the possible classes."""

    name: ClassVar[str] = "ms_odir"

    @staticmethod
    def features(logits: Logits) -> Array:
        xp = logits.xp
        below = _below_top(logits)
        mean = xp.sum(below, axis=1, keepdims=True) / logits.possible_counts[:, None]
        return _fill_impossible(below, logits) - mean


class DirichletRule(LinearRule):
    """On log-probabilities."""

    name: ClassVar[str] = "dir_odir"

    @staticmethod
    def features(logits: Logits) -> Array:
        return _fill_impossible(_below_top(logits), logits) - log_norms(
            logits.margins, logits
        )


def _below_top(logits: Logits) -> Array:
    """Logits less their row's top, (n, classes), 0 where impossible."""
    return logits.xp.where(logits.possible, -logits.margins, 0.0)


def _fill_impossible(below: Array, logits: Logits) -> Array:
    """The same with the least of the row where impossible."""
    xp = logits.xp
    return xp.where(logits.possible, below, xp.min(below, axis=1, keepdims=True))
