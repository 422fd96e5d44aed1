"""Vector scaling as a rule: a scale and a bias for each class's log-probability."""

from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array
from hokical.rules._probabilities import log_probabilities, softmax


@dataclass(frozen=True, eq=False)
class VectorRule(Rule):
    """softmax(`scale` * log-probabilities + `bias`), both (classes,)."""

    name: ClassVar[str] = "vecs"
    preserves_labels: ClassVar[bool] = False

    scale: FloatArray
    bias: FloatArray

    def __post_init__(self) -> None:
        check_array("scale", self.scale, (None,))
        check_array("bias", self.bias, self.scale.shape)

    @property
    def n_parameters(self) -> int:
        return 2 * self.n_classes

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        features = log_probabilities(logits)
        return softmax(features * self.scale[None, :] + self.bias[None, :], logits)
