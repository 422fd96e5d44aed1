"""Batches for a network: what is in them, where they belong, and its mode meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

#: Under which names a batch that is a mapping has its labels.
_LABELS = ("labels", "label")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def split_batch(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional arguments, keyword arguments and labels of a batch.

    >>> split_batch(("inputs", "labels"))
    (('inputs',), {}, 'labels')
    """
    if isinstance(batch, Mapping):
        for name in _LABELS:
            if name in batch:
                return (), {key: batch[key] for key in batch if key != name}, batch[name]
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return tuple(batch[:-1]), {}, batch[-1]
    found = f"keys {list(batch)}" if isinstance(batch, Mapping) else type(batch).__name__
    raise TypeError(
        'a batch must be (inputs, labels), or a mapping with "labels"; got '
        f"{found}. Wrap the loader: `((batch.x, batch.y) for batch in loader)`."
    )


def device_of(model: nn.Module) -> torch.device:
    """The device of a network: that of its first parameter or buffer, else the host."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def to_device(data: Any, device: torch.device) -> Any:
    """Tensors within tuples, lists and mappings, moved."""
    if isinstance(data, Tensor):
        # Towards the host the numbers would be read before they are there.
        return data.to(device, non_blocking=device.type == "cuda")
    if isinstance(data, Mapping):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(to_device(value, device) for value in data)
    return data


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


def log_probabilities(proba: Tensor, class_axis: int) -> Tensor:
    """Logarithms whose first maximum along the class axis is that of the probabilities.

    Probabilities that differ by a rounding can have the same logarithm.
    """
    rows = classes_last(proba, class_axis)
    logs, best = rows.log(), rows.argmax(dim=-1, keepdim=True)
    top = logs.gather(-1, best).detach()
    earlier = torch.arange(rows.shape[-1], device=rows.device) < best
    below = torch.nextafter(top, torch.full_like(top, -torch.inf))
    return torch.where(earlier & (logs >= top), below, logs).movedim(-1, class_axis)


def replace_logits(output: Any, logits: Tensor) -> Any:
    """A model's output, of its own class, with other logits."""
    if not isinstance(output, Mapping) or "logits" not in output:
        raise TypeError(
            "the network must return a mapping with `logits`, as those of transformers do with "
            f"`return_dict=True`; got {type(output).__name__}."
        )
    return type(output)(**{**output, "logits": logits})


def check_softmax(model: nn.Module) -> None:
    """Raise where libraries would not take a network's outputs for logits of one label."""
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if problem not in (None, "single_label_classification"):
        raise ValueError(
            "`model.config.problem_type` must be None or 'single_label_classification', because "
            f"pipelines take no softmax of others; got {problem!r}. For several labels at once "
            "calibrate the logits with `hokical.MultilabelCalibrator`."
        )


def classes_last(logits: Tensor, class_axis: int) -> Tensor:
    """The logits (..., classes) with the class axis moved to the end."""
    if not -logits.ndim <= class_axis < logits.ndim:
        raise ValueError(
            f"`class_axis` must be an axis of the logits, which have shape {tuple(logits.shape)}; "
            f"got {class_axis}."
        )
    return logits.movedim(class_axis, -1)
