"""Logits and labels of the batches of a data loader, as a network gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from hokical._core.checks import check_choice
from hokical._core.reading import to_numpy
from hokical._core.runtime import progress_bar
from hokical.integrations.torch.networks import (
    check_network,
    device_of,
    evaluation_mode,
    takes_one_argument,
)
from hokical.integrations.torch.outputs import (
    GetLogits,
    MaybeOutputs,
    Outputs,
    classes_last,
    find_logits,
    outputs_as_logits,
    recognize_outputs,
)

#: The names of the labels in a batch that is a mapping.
_LABEL_KEYS = ("labels", "label", "targets", "target", "y")
#: Rows of a batch where tensors are given instead of a loader.
_BATCH_ROWS = 256


@dataclass(frozen=True)
class OutputReading:
    """How a network's outputs become rows of logits; see `collect_logits`."""

    get_logits: GetLogits | None = None
    class_axis: int = -1
    ignore_label: int | None = None
    outputs: MaybeOutputs = "auto"
    #: Whether batches have one input; by default as the network's forward says.
    takes_one: bool | None = None
    #: Whether labels (n, classes) are several at once, and no votes; by default, unless
    #: the outputs are the probabilities of exclusive classes.
    multilabel: bool | None = None
    #: The members of an ensemble whose outputs are side by side.
    n_members: int = 1


class CollectedOutputs(NamedTuple):
    """Logits (n, classes) and labels (n,) of the batches of a loader.

    `outputs` is what the network returns; `n_axes` is the largest number of axes of its
    outputs, more than two where an example has several positions.
    """

    logits: Tensor
    labels: Tensor
    outputs: Outputs
    n_axes: int


def collect_logits(
    model: nn.Module,
    loader: object,
    *,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
    outputs: MaybeOutputs = "auto",
) -> tuple[Tensor, Tensor]:
    """Run a network over a data loader: logits (n, classes) and labels (n,), on its
    device.

    In evaluation mode and without gradients; every part of the network has its own mode
    back afterwards, also after an error.

    `loader` gives batches: (inputs, labels); (inputs, labels, anything else) for a
    network of one argument, else more inputs with the labels last, or a tuple of them
    before; or mappings with "labels" or "target", whose other entries are the network's
    keyword arguments. A pair of tensors (X, y) is taken in batches of 256. Inputs are
    sent to `device`, by default where the network is. `get_logits` and `class_axis` are
    as in `CalibratedModel`: images and tokens are flattened, each position a row,
    without those labelled `ignore_label`, say -100 or 255. Labels of the shape of the
    logits, votes or several labels at once, are returned as (n, labels), with NaN, not
    known, in the place of `ignore_label`. `progress` shows a progress bar; None means: if
    stderr is a terminal.

    A network with one output, the log-odds of class 1, gives logits (n, 2). `outputs`
    says whether it returns "logits" or "probabilities", which become their logarithms
    (log-odds for several labels at once); "auto" takes outputs in [0, 1] for
    probabilities, where the rows of several classes sum to 1.

    >>> import torch
    >>> from hokical.integrations.torch import collect_logits
    >>> network = torch.nn.Linear(4, 3)
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])) for _ in range(3)]
    >>> logits, labels = collect_logits(network, batches)
    >>> logits.shape, labels.shape
    (torch.Size([15, 3]), torch.Size([15]))
    """
    reading = OutputReading(get_logits, class_axis, ignore_label, outputs)
    collected = collect_outputs(model, loader, reading, device, progress)
    return collected.logits, collected.labels


def collect_outputs(
    model: nn.Module,
    loader: object,
    reading: OutputReading,
    device: torch.device | str | None,
    progress: bool | None,
) -> CollectedOutputs:
    """Logits and labels as `collect_logits` returns them, and what the outputs are."""
    check_network(model, "Logits that you have are for `hokical.auto(logits, labels)`.")
    check_choice("outputs", reading.outputs, MaybeOutputs)
    get_logits = reading.get_logits or find_logits
    target = device_of(model) if device is None else torch.device(device)
    takes_one = reading.takes_one
    if takes_one is None:
        takes_one = takes_one_argument(model)
    batches = _as_batches(loader)
    # Loaders of iterable datasets have a `__len__` that raises a TypeError.
    n_batches = length_hint(batches, 0)
    blocks: list[tuple[Tensor, Tensor]] = []
    n_axes = 0
    with (
        evaluation_mode(model),
        torch.no_grad(),
        progress_bar("collecting logits", n_batches, progress) as advance,
    ):
        for batch in batches:
            args, kwargs, labels = split_batch(_to_device(batch, target), takes_one)
            scores = get_logits(model(*args, **kwargs))
            n_axes = max(n_axes, scores.ndim)
            blocks.append(_labelled_rows(scores, labels, reading))
            advance()
    return _join_blocks(blocks, reading, n_axes)


def with_labels(data: object, labels: object) -> object:
    """A loader as it is, or inputs and their labels (n,) as a pair of tensors."""
    if labels is None:
        return data
    if not isinstance(data, (Tensor, np.ndarray)):
        raise TypeError(
            "`data` must be a tensor of inputs where `labels` are given; got "
            f"{type(data).__name__} with labels of type {type(labels).__name__}. "
            "Batches of a loader have their labels; a method is a name or a calibrator."
        )
    if isinstance(labels, Tensor):
        return data, labels
    return data, torch.tensor(to_numpy(labels, "labels"))


def _as_batches(loader: Any) -> Any:
    """The loader, or one of batches of a pair of tensors (inputs, labels)."""
    if not isinstance(loader, (tuple, list)) or len(loader) != 2:
        return loader
    if not all(isinstance(array, (Tensor, np.ndarray)) for array in loader):
        return loader
    inputs, labels = map(torch.as_tensor, loader)
    if len(inputs) != len(labels):
        raise ValueError(
            f"inputs and labels must have the same length; got {len(inputs)} inputs "
            f"and {len(labels)} labels."
        )
    # A generator of its own, or the loader would draw from the global one.
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, labels),
        batch_size=_BATCH_ROWS,
        generator=torch.Generator(),
    )


def _to_device(batch: object, device: torch.device) -> object:
    """The batch with its tensors on a device."""
    # From a GPU to the host, numbers would be read before they arrive.
    non_blocking = device.type == "cuda"
    return tree_map_only(
        Tensor,
        lambda tensor: tensor.to(device, non_blocking=non_blocking),
        dict(batch) if isinstance(batch, Mapping) else batch,
    )


def _join_blocks(
    blocks: list[tuple[Tensor, Tensor]], reading: OutputReading, n_axes: int
) -> CollectedOutputs:
    """The rows of all batches as logits."""
    if not any(labels.numel() for _, labels in blocks):
        raise ValueError(
            "`loader` must give at least one batch with a label that counts."
        )
    scores = torch.cat([block for block, _ in blocks])
    labels = torch.cat([labels for _, labels in blocks])
    multilabel = labels.ndim == 2 and reading.multilabel is not False
    if multilabel and reading.multilabel is None:
        multilabel = labels.shape[1] == scores.shape[1]
        multilabel &= recognize_outputs(scores, multilabel=False) == "logits"
    outputs = reading.outputs
    if outputs == "auto":
        outputs = recognize_outputs(scores, multilabel=multilabel)
    logits = outputs_as_logits(scores, outputs, multilabel=multilabel)
    return CollectedOutputs(logits, labels, outputs, n_axes)


def split_batch(
    batch: object, takes_one: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional arguments, keyword arguments and labels of a batch.

    Labels come last; after the inputs if the network takes one argument, as in (x, y,
    index). A tuple of inputs is passed as separate arguments, unless the network takes
    one.

    >>> split_batch(("inputs", "labels"))
    (('inputs',), {}, 'labels')
    >>> split_batch(("inputs", "labels", "index"), takes_one=True)
    (('inputs',), {}, 'labels')
    >>> split_batch((("image", "text"), "labels"))
    (('image', 'text'), {}, 'labels')
    """
    if isinstance(batch, Mapping):
        for name in _LABEL_KEYS:
            if name in batch:
                inputs = {key: batch[key] for key in batch if key != name}
                return (), inputs, batch[name]
        description = f"keys {list(batch)}"
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return _split_sequence(batch, takes_one)
    else:
        description = type(batch).__name__
    raise TypeError(
        "a batch must be (inputs, labels), or a mapping with one of "
        f"{', '.join(_LABEL_KEYS)}; got {description}. Wrap the loader: "
        "`((batch.x, batch.y) for batch in loader)`."
    )


def _split_sequence(
    batch: tuple[Any, ...] | list[Any], takes_one: bool
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    n_inputs = 1 if takes_one else len(batch) - 1
    inputs = batch[:n_inputs]
    labels = batch[n_inputs]
    if takes_one or n_inputs > 1:
        return tuple(inputs), {}, labels
    # A nested mapping or tuple holds the arguments of the network.
    nested = inputs[0]
    if isinstance(nested, Mapping):
        return (), dict(nested), labels
    return tuple(nested if isinstance(nested, (tuple, list)) else inputs), {}, labels


def _labelled_rows(
    scores: Tensor, labels: object, reading: OutputReading
) -> tuple[Tensor, Tensor]:
    """Scores (rows, classes) and labels (rows,) of a batch, ignored labels left out.

    One output for class 1 of two, with or without an axis of its own, is (rows, 1).
    """
    truth = torch.as_tensor(labels, device=scores.device)
    class_axis = reading.class_axis
    shapes_of_one = [scores.shape, (*scores.shape, 1), (*scores.shape, 2)]
    if scores.ndim == 1 and truth.shape in shapes_of_one:
        scores = scores[:, None]
        class_axis = -1
    rows = classes_last(scores, class_axis)
    is_binary = rows.shape[-1] == 1
    n_classes = max(rows.shape[-1] // reading.n_members, 2)
    if scores.ndim == 2 and truth.shape == (len(rows), n_classes):
        return rows, _mask_ignored(truth, reading.ignore_label)
    if is_binary and truth.shape == scores.shape:
        truth = truth.squeeze(class_axis)
    _check_label_shape(truth, rows)
    rows = rows.reshape(-1, rows.shape[-1])
    truth = truth.reshape(-1)
    if is_binary and truth.is_floating_point() and bool((truth == truth.round()).all()):
        truth = truth.long()  # binary cross-entropy takes labels as floats
    if reading.ignore_label is None:
        return rows, truth
    counts = truth != reading.ignore_label
    return rows[counts], truth[counts]


def _mask_ignored(labels: Tensor, ignore_label: int | None) -> Tensor:
    """Several labels (n, labels), NaN where they are not known."""
    if ignore_label is None:
        return labels
    return labels.float().masked_fill(labels == ignore_label, torch.nan)


def _check_label_shape(labels: Tensor, rows: Tensor) -> None:
    """Raise unless labels have the shape of the rows without their classes."""
    if labels.shape == rows.shape[:-1]:
        return
    remedy = "Give `class_axis` if the classes are not last"
    if labels.ndim == rows.ndim and labels.shape[-1] == 1:
        remedy = "Use `labels.squeeze(-1)`"
    raise ValueError(
        "a batch's labels must have the shape of its logits without the classes, "
        f"{tuple(rows.shape[:-1])}; got {tuple(labels.shape)}. {remedy}."
    )
