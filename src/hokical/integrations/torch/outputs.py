"""Where the logits are in what a model returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

GetLogits = Callable[[Any], Tensor]


def find_logits(output: Any) -> Tensor:
    """The logits in a model's output: a tensor, `.logits`, `["logits"]`, or first of a tuple.

    >>> import torch
    >>> find_logits({"loss": None, "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else None
    found = getattr(output, "logits", None) if found is None else found
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if isinstance(found, Tensor):
        return found
    raise TypeError(
        f"no logits found in a model's output of type {type(output).__name__}: it must be a "
        "tensor, have `logits` as an attribute or key, or be a tuple that begins with them. Say "
        "where they are with `get_logits=lambda output: ...`."
    )


def classes_last(logits: Tensor, class_axis: int) -> Tensor:
    """The logits (..., classes) with the class axis moved to the end."""
    if not -logits.ndim <= class_axis < logits.ndim:
        raise ValueError(
            f"`class_axis` must be an axis of the logits, which have shape {tuple(logits.shape)}; "
            f"got {class_axis}."
        )
    return logits.movedim(class_axis, -1)
