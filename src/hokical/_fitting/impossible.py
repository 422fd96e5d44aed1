"""Examples whose true class has the logit -inf: one place says what is done about them."""

import numpy as np

from hokical._core.types import BoolArray
from hokical._core.warn import warn_user
from hokical._fitting.partitions import Block

_REMEDY = "Mask only classes that cannot occur."


def find_impossible(block: Block) -> BoolArray:
    """Rows (n,) that count and whose true class is impossible."""
    return np.asarray((block.logits.of_class(block.labels) == -np.inf) & block.counting)


def report_left_out(n_impossible: int, n_rows: int, *, weight_left: float) -> None:
    """For log-loss fits, where such an example costs infinitely much whatever is fitted.

    Raises if no weight is left without them, otherwise warns if there are any.
    """
    if not weight_left > 0.0 and not n_impossible:
        raise ValueError("`sample_weight` must not be zero everywhere. Give some example a weight.")
    if not weight_left > 0.0:
        raise ValueError(
            "`labels` must name a possible class in at least one example; the logit of the true "
            f"class is -inf in all {n_impossible} that count. Check that `labels` index the "
            f"columns of `logits`. {_REMEDY}"
        )
    if n_impossible:
        warn_user(
            f"{n_impossible} of {n_rows} examples are left out of the fit: the logit of their true "
            f"class is -inf, which makes the log loss infinite whatever is fitted. {_REMEDY}",
            RuntimeWarning,
        )


def warn_about_impossible(block: Block) -> None:
    """For other fits, which keep such examples."""
    count = int(np.count_nonzero(find_impossible(block)))
    if count:
        warn_user(
            f"{count} of {block.n_rows} examples have a true class with logit -inf; they only show "
            f"that the other classes were wrong. {_REMEDY}",
            RuntimeWarning,
        )
