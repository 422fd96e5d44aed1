"""Where a search ended and why: the one result of every solver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

X = TypeVar("X")


class StopReason(Enum):
    """Why a search ended, in words that may name the answer `x` and the iterations `n_iter`."""

    CONVERGED = "converged"
    MAX_ITER = "no answer in {n_iter} iterations. Raise `max_iter`."
    ROUNDING = (
        "rounding errors hide the optimum. Look for examples with extreme logits or hardly any "
        "differences between them."
    )
    LARGEST_TEMPERATURE = (
        "the loss still falls at the largest temperature allowed, {x:g}: the labels are hardly "
        "better than chance, or the logits are very large. Check that `labels` index the columns "
        "of `logits`, or raise the upper of the `bounds`."
    )
    SMALLEST_TEMPERATURE = (
        "the loss still falls at the smallest temperature allowed, {x:g}: mistakes have tiny "
        "margins, or the logits are very small. Lower the lower of the `bounds`."
    )
    NO_MISTAKES = (
        "every validation label has the top logit, so the log loss falls all the way to "
        "temperature 0; the smallest allowed, {x:g}, was taken. Use more validation examples, some "
        "of which are wrong, or raise the lower of the `bounds`."
    )
    EQUAL_LOGITS = (
        "the possible classes of each example have equal logits, so every temperature fits equally "
        "well and 1 was taken. Use examples on which the logits differ."
    )


@dataclass(frozen=True, eq=False)
class Solution(Generic[X]):
    """The answer `x`, the objective there, and why the search ended.

    `point` is what else is known at the answer, and `precondition` a preconditioner, if any.
    """

    x: X
    value: float
    n_iter: int
    reason: StopReason
    point: Any = None
    precondition: Any = None

    @property
    def converged(self) -> bool:
        return self.reason is StopReason.CONVERGED

    @property
    def message(self) -> str:
        """The reason in words, with a remedy if the search did not converge."""
        return self.reason.value.format(x=self.x, n_iter=self.n_iter)
