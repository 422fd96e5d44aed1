"""From what a network returns to logits with the classes last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from hokical._core.conversion import LOG_ZERO, SUM_ERROR

#: What a network returns: logits (of one class: log-odds), or probabilities, which are
#: the softmax or sigmoid of them.
Outputs = Literal["logits", "probabilities"]
#: The same, or to be recognized by their values.
MaybeOutputs = Literal["logits", "probabilities", "auto"]
GetLogits = Callable[[Any], Tensor]


def find_logits(output: object) -> Tensor:
    """The logits in a model's output: a tensor, `.logits`, `["logits"]`, or first of a
    tuple.

    >>> import torch
    >>> find_logits({"loss": None, "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else None
    if logits is None:
        logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, (tuple, list)) and output:
        logits = output[0]
    if isinstance(logits, Tensor):
        return logits
    raise TypeError(
        "a network's output must be a tensor, have `logits` as an attribute or key, or "
        f"be a tuple that begins with them; got {type(output).__name__}. Say where they "
        "are with `get_logits=lambda output: ...`."
    )


def classes_last(scores: Tensor, class_axis: int) -> Tensor:
    """The scores (..., classes) with the class axis moved to the end."""
    if not -scores.ndim <= class_axis < scores.ndim:
        raise ValueError(
            "`class_axis` must be an axis of the logits, which have shape "
            f"{tuple(scores.shape)}; got {class_axis}."
        )
    return scores.movedim(class_axis, -1)


def recognize_outputs(scores: Tensor, *, multilabel: bool) -> Outputs:
    """Whether scores (rows, classes) are logits or probabilities, by their values.

    Probabilities lie in [0, 1] and, of several exclusive classes, each row sums to 1.
    """
    is_proba = bool(((scores >= 0.0) & (scores <= 1.0)).all())
    if is_proba and not multilabel and scores.shape[1] > 1:
        sums = scores.double().sum(dim=1)
        is_proba = bool(((sums - 1.0).abs() <= SUM_ERROR).all())
    return "probabilities" if is_proba else "logits"


def outputs_as_logits(scores: Tensor, outputs: Outputs, *, multilabel: bool) -> Tensor:
    """Logits (..., classes) of a network's scores (..., classes), two of one (..., 1).

    The values are not looked at, for graphs; gradients pass. Zeros are as in
    `hokical.from_probabilities`, and in `from_binary_probabilities` for sigmoids.
    """
    is_binary = scores.shape[-1] == 1 and not multilabel
    logits = scores
    if outputs == "probabilities":
        proba = scores if scores.dtype == torch.float64 else scores.float()
        logits = _log_odds(proba) if is_binary or multilabel else _log_proba(proba)
    if is_binary:
        return torch.cat([torch.zeros_like(logits), logits], dim=-1)
    return logits


def _log_odds(proba: Tensor) -> Tensor:
    """Finite log-odds of sigmoids."""
    info = torch.finfo(proba.dtype)
    return torch.logit(proba.clamp(info.smallest_normal, 1.0 - 0.5 * info.eps))


def _log_proba(proba: Tensor) -> Tensor:
    """Logarithms of probabilities (..., classes), with finite gradients."""
    positive = proba.clamp_min(torch.finfo(proba.dtype).smallest_normal)
    logs = log_below_label(positive, proba.argmax(dim=-1))
    return torch.where(proba <= 0.0, LOG_ZERO, logs)


def log_below_label(proba: Tensor, labels: Tensor) -> Tensor:
    """Logarithms of probabilities (..., classes) whose first maximum is at the labels
    (...).

    Probabilities that differ by a rounding can have the same logarithm; and where a
    method keeps the network's label, another class may be more probable: it is then
    lowered to the label's.
    """
    logs = proba.log()
    label_index = labels[..., None]
    top = logs.gather(-1, label_index).detach()
    precedes_label = torch.arange(proba.shape[-1], device=proba.device) < label_index
    info = torch.finfo(top.dtype)
    # At least one rounding below: `nextafter` has no operator in ONNX.
    below_top = top - (top.abs() * info.eps + info.smallest_normal)
    return torch.minimum(logs, torch.where(precedes_label, below_top, top))
