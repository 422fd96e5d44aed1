"""Validation logits from a network and a data loader."""

from typing import Any

import torch
from torch import Tensor, nn

from hokical._core.progress import progress_bar
from hokical.integrations.torch import _batches as batches
from hokical.integrations.torch._batches import GetLogits


def collect_logits(
    model: nn.Module,
    loader: Any,
    *,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a network over a data loader: logits (n, classes) and labels (n,), on its device.

    In evaluation mode and without gradients; every part of the network has its own mode back
    afterwards, also after an error.

    `loader` gives batches: (inputs, labels); (inputs, labels, anything else) for a network of one
    argument, else more inputs with the labels last; or mappings with "labels", whose other entries
    are the network's keyword arguments. A pair of tensors (X, y) is taken in batches of 256. Inputs
    are sent to `device`, by default where the network is. `get_logits` and `class_axis` are as in
    `CalibratedModel`: images and tokens are flattened, each position a row, without those labelled
    `ignore_label`, say -100 or 255. Labels of the shape of the logits, for several labels at once,
    are returned as (n, labels). `progress` shows a progress bar; None means: if stderr is a
    terminal.

    >>> import torch
    >>> from hokical.integrations.torch import collect_logits
    >>> network = torch.nn.Linear(4, 3)
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])) for _ in range(3)]
    >>> logits, labels = collect_logits(network, batches)
    >>> logits.shape, labels.shape
    (torch.Size([15, 3]), torch.Size([15]))
    """
    place = batches.device_of(model) if device is None else torch.device(device)
    pick = batches.find_logits if get_logits is None else get_logits
    one, loader = batches.takes_one_argument(model), batches.as_loader(loader)
    total = len(loader) if hasattr(loader, "__len__") else 0
    parts: list[tuple[Tensor, Tensor]] = []
    with (
        batches.evaluation_mode(model),
        torch.no_grad(),
        progress_bar("collecting logits", total, progress) as advance,
    ):
        for batch in loader:
            args, kwargs, labels = batches.split_batch(batches.to_device(batch, place), one)
            logits = batches.classes_last(pick(model(*args, **kwargs)), class_axis)
            parts.append(_as_rows(logits, labels, ignore_label))
            advance()
    if not sum(labels.numel() for _, labels in parts):
        raise ValueError("`loader` must give at least one batch with a label that counts.")
    logits, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    return logits, labels


def _as_rows(logits: Tensor, labels: Any, ignore_label: int | None) -> tuple[Tensor, Tensor]:
    """Logits (rows, classes) and labels (rows,), without positions that do not count."""
    truth = torch.as_tensor(labels, device=logits.device)
    if truth.shape == logits.shape and logits.ndim == 2:  # several labels at once
        return logits, truth
    if truth.shape != logits.shape[:-1]:
        remedy = "Give `class_axis` if the classes are not last"
        if truth.ndim == logits.ndim and truth.shape[-1] == 1:
            remedy = "Use `labels.squeeze(-1)`"
        raise ValueError(
            f"a batch's labels must have the shape of its logits without the classes, "
            f"{tuple(logits.shape[:-1])}; got {tuple(truth.shape)}. {remedy}."
        )
    rows, truth = logits.reshape(-1, logits.shape[-1]), truth.reshape(-1)
    if ignore_label is not None:
        counts = truth != ignore_label
        rows, truth = rows[counts], truth[counts]
    return rows, truth
