"""Batches for a network: what is in them, where they belong, and its mode meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from hokical._core.conversion import LOG_ZERO

#: What a network returns: logits (of one class: log-odds), or what softmax or sigmoid made of them.
Outputs = Literal["logits", "probabilities"]
#: Under which names a batch that is a mapping has its labels.
_LABELS = ("labels", "label", "targets", "target", "y")
#: How far sums of probabilities, in half precision too, may be from 1.
_SUM_ERROR = 1e-2
#: Rows of a batch where tensors are given instead of a loader.
_ROWS = 256
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


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


def split_batch(batch: Any, takes_one: bool = False) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional arguments, keyword arguments and labels of a batch.

    Labels come last; after the inputs if the network takes one argument, as in (x, y, index). A
    tuple of inputs is passed as so many arguments, unless the network takes one.

    >>> split_batch(("inputs", "labels"))
    (('inputs',), {}, 'labels')
    >>> split_batch(("inputs", "labels", "index"), takes_one=True)
    (('inputs',), {}, 'labels')
    >>> split_batch((("image", "text"), "labels"))
    (('image', 'text'), {}, 'labels')
    """
    if isinstance(batch, Mapping):
        for name in _LABELS:
            if name in batch:
                return (), {key: batch[key] for key in batch if key != name}, batch[name]
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        n_inputs = 1 if takes_one else len(batch) - 1
        inputs, labels = batch[:n_inputs], batch[n_inputs]
        if len(inputs) == 1 and not takes_one:  # what is nested are the arguments
            if isinstance(inputs[0], Mapping):
                return (), dict(inputs[0]), labels
            inputs = inputs[0] if isinstance(inputs[0], (tuple, list)) else inputs
        return tuple(inputs), {}, labels
    found = f"keys {list(batch)}" if isinstance(batch, Mapping) else type(batch).__name__
    raise TypeError(
        f"a batch must be (inputs, labels), or a mapping with one of {', '.join(_LABELS)}; got "
        f"{found}. Wrap the loader: `((batch.x, batch.y) for batch in loader)`."
    )


def takes_one_argument(model: nn.Module) -> bool:
    """Whether a network's `forward` takes a single positional argument."""
    parameters = signature(bare(model).forward).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    positional = [kind for kind in kinds if kind in _POSITIONAL]
    return len(positional) == 1 and Parameter.VAR_POSITIONAL not in kinds


def as_loader(data: Any) -> Any:
    """Batches of a pair of tensors (inputs, labels); anything else is a loader itself."""
    is_pair = isinstance(data, (tuple, list)) and len(data) == 2
    if not is_pair or not all(isinstance(part, (Tensor, np.ndarray)) for part in data):
        return data
    inputs, labels = (torch.as_tensor(part) for part in data)
    if len(inputs) != len(labels):
        raise ValueError(
            "inputs and labels must have the same length; got "
            f"{len(inputs)} inputs and {len(labels)} labels."
        )
    dataset = torch.utils.data.TensorDataset(inputs, labels)
    return torch.utils.data.DataLoader(dataset, batch_size=_ROWS)


def device_of(model: nn.Module) -> torch.device:
    """The device of a network: that of its first parameter or buffer, else the host."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def to_device(data: Any, device: torch.device) -> Any:
    """Tensors within tuples, lists and dictionaries, moved; a mapping becomes a dictionary."""

    def move(part: Any) -> Any:
        # Towards the host the numbers would be read before they are there.
        away = device.type == "cuda"
        return part.to(device, non_blocking=away) if isinstance(part, Tensor) else part

    return tree_map(move, dict(data) if isinstance(data, Mapping) else data)


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


def log_below_label(proba: Tensor, labels: Tensor) -> Tensor:
    """Logarithms of probabilities (..., classes) whose first maximum is at the labels (...).

    Probabilities that differ by a rounding can have the same logarithm; and where a method keeps
    the network's label, another class may be more probable: it is then lowered to the label's.
    """
    logs, best = proba.log(), labels[..., None]
    top = logs.gather(-1, best).detach()
    earlier = torch.arange(proba.shape[-1], device=proba.device) < best
    below = torch.nextafter(top, torch.full_like(top, -torch.inf))
    return torch.minimum(logs, torch.where(earlier, below, top))


def replace_logits(output: Any, logits: Tensor) -> Any:
    """A model's output, of its own class, with other logits."""
    if not isinstance(output, Mapping) or "logits" not in output:
        raise TypeError(
            "the network must return a mapping with `logits`, as those of transformers do with "
            f"`return_dict=True`; got {type(output).__name__}."
        )
    return type(output)(**{**output, "logits": logits})


def check_problem(model: nn.Module, several: bool) -> None:
    """Raise where a pipeline would turn logits into scores in another way than was calibrated."""
    config = getattr(model, "config", None)
    problem = getattr(config, "problem_type", None)
    wanted = ("multi_label_classification",) if several else (None, "single_label_classification")
    if problem not in wanted:
        raise ValueError(
            f"`model.config.problem_type` must be {' or '.join(map(repr, wanted))} for this "
            f"calibrator, because a pipeline takes the softmax or the sigmoid by it; got "
            f"{problem!r}. For several labels at once calibrate with "
            "`hokical.MultilabelCalibrator`."
        )


def classes_last(logits: Tensor, class_axis: int) -> Tensor:
    """The logits (..., classes) with the class axis moved to the end."""
    if not -logits.ndim <= class_axis < logits.ndim:
        raise ValueError(
            f"`class_axis` must be an axis of the logits, which have shape {tuple(logits.shape)}; "
            f"got {class_axis}."
        )
    return logits.movedim(class_axis, -1)


def check_outputs(outputs: Any, *more: str) -> None:
    """Raise unless it says what a network returns."""
    if outputs not in (*get_args(Outputs), *more):
        allowed = " or ".join(f'"{each}"' for each in (*get_args(Outputs), *more))
        raise ValueError(f"`outputs` must be {allowed}; got {outputs!r}.")


def find_outputs(rows: Tensor, several: bool) -> Outputs:
    """What outputs (n, classes), (n, 1) for one class, or (n, labels) of several labels are.

    Probabilities where all lie in [0, 1] and, of several classes, each row sums to 1.
    """
    within = bool(((rows >= 0.0) & (rows <= 1.0)).all())
    if within and not several and rows.shape[1] > 1:
        within = bool(((rows.double().sum(dim=1) - 1.0).abs() <= _SUM_ERROR).all())
    return "probabilities" if within else "logits"


def outputs_as_logits(rows: Tensor, outputs: Outputs, several: bool) -> Tensor:
    """Logits (..., classes) of a network's outputs (..., classes), two of one class (..., 1).

    Without a look at the values, for graphs; gradients pass. Zeros are as in
    `hokical.from_probabilities`, and in `from_binary_probabilities` for sigmoids.
    """
    one = rows.shape[-1] == 1 and not several
    if outputs == "probabilities":
        rows = rows if rows.dtype == torch.float64 else rows.float()
        info = torch.finfo(rows.dtype)
        if one or several:
            rows = torch.logit(rows.clamp(info.smallest_normal, 1.0 - 0.5 * info.eps))
        else:  # without gradients that no float can hold
            sound = rows.clamp_min(info.smallest_normal)
            logs = log_below_label(sound, rows.argmax(dim=-1))
            rows = torch.where(rows <= 0.0, LOG_ZERO, logs)
    return torch.cat([torch.zeros_like(rows), rows], dim=-1) if one else rows


def bare(model: nn.Module) -> nn.Module:
    """The network within `DataParallel`, `DistributedDataParallel` and `torch.compile`."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
