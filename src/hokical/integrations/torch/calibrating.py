"""A calibrated network from a network and validation data, or the validation logits alone."""

import copy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hokical._core.messages import progress_bar
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.integrations.torch import batches
from hokical.integrations.torch.batches import GetLogits, Outputs
from hokical.integrations.torch.model import CalibratedModel


def collect_logits(
    model: nn.Module,
    loader: Any,
    *,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
    outputs: Outputs | Literal["auto"] = "auto",
) -> tuple[Tensor, Tensor]:
    """Run a network over a data loader: logits (n, classes) and labels (n,), on its device.

    In evaluation mode and without gradients; every part of the network has its own mode back
    afterwards, also after an error.

    `loader` gives batches: (inputs, labels); (inputs, labels, anything else) for a network of one
    argument, else more inputs with the labels last, or a tuple of them before; or mappings with
    "labels" or "target", whose other entries are the network's keyword arguments. A pair of tensors
    (X, y) is taken in batches of 256. Inputs are sent to `device`, by default where the network is.
    `get_logits` and `class_axis` are as in `CalibratedModel`: images and tokens are flattened, each
    position a row, without those labelled `ignore_label`, say -100 or 255. Labels of the shape of
    the logits, for several labels at once, are returned as (n, labels). `progress` shows a progress
    bar; None means: if stderr is a terminal.

    A network with one output, the log-odds of class 1, gives logits (n, 2). `outputs` says whether
    it returns "logits" or "probabilities", which become their logarithms (log-odds for several
    labels at once); "auto" takes outputs in [0, 1] for probabilities, where the rows of several
    classes sum to 1.

    >>> import torch
    >>> from hokical.integrations.torch import collect_logits
    >>> network = torch.nn.Linear(4, 3)
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])) for _ in range(3)]
    >>> logits, labels = collect_logits(network, batches)
    >>> logits.shape, labels.shape
    (torch.Size([15, 3]), torch.Size([15]))
    """
    reading = (get_logits, class_axis, ignore_label, outputs)
    return _collect(model, loader, device, progress, *reading)[:2]


def _collect(
    model: nn.Module, loader: Any, device: Any, progress: bool | None, get_logits: GetLogits | None,
    class_axis: int, ignore_label: int | None, outputs: Outputs | Literal["auto"],
) -> tuple[Tensor, Tensor, Outputs]:  # fmt: skip
    """What `collect_logits` returns, and what the network's outputs are."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`model` must be a network, a `torch.nn.Module`; got {type(model).__name__}. Logits "
            "that you have are for `hokical.auto(logits, labels)`."
        )
    batches.check_outputs(outputs, "auto")
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
            found = pick(model(*args, **kwargs))
            parts.append(_as_rows(found, labels, class_axis, ignore_label))
            advance()
    if not sum(labels.numel() for _, labels in parts):
        raise ValueError("`loader` must give at least one batch with a label that counts.")
    rows, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    several = labels.ndim == 2
    form = batches.find_outputs(rows, several) if outputs == "auto" else outputs
    return batches.outputs_as_logits(rows, form, several), labels, form


def calibrate(
    model: nn.Module,
    data: Any,
    labels: Any = None,
    method: str | Calibrator | MultilabelCalibrator = "auto",
    *,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
    outputs: Outputs | Literal["auto"] = "auto",
    **options: Any,
) -> CalibratedModel:
    """Collect validation logits, fit a calibrator, and return the network with it.

    `data` are examples that the network was not trained on: a data loader as in `collect_logits`,
    or a tensor of inputs, with `labels` (n,). `method` is a name (`hokical methods` lists them),
    with `options` for it; or a calibrator, of which a copy is fitted. After a data loader it may
    come third: `calibrate(model, loader, "temps")`. A `MultilabelCalibrator` is for networks with a
    sigmoid for each label. Networks with one output for class 1 of two, and those that end in a
    softmax or sigmoid, are recognized. The other arguments are those of `collect_logits`.

    The result's `fitted` is the calibrator: `fitted.save("cal.json")`. The network has the modes it
    came with: call `.eval()` before predicting, as below, or dropout stays on.

    >>> import torch
    >>> from hokical import calibrate
    >>> _ = torch.manual_seed(0)
    >>> inputs = torch.randn(600, 3)
    >>> labels = (inputs + torch.randn(600, 3)).argmax(dim=1)
    >>> network = torch.nn.Linear(3, 3, bias=False)
    >>> network.weight = torch.nn.Parameter(5 * torch.eye(3))
    >>> loader = torch.utils.data.DataLoader(list(zip(inputs, labels)), batch_size=100)
    >>> calibrated = calibrate(network, loader, "temps").eval()
    >>> calibrated.fitted
    TemperatureScaling(): 3 classes, 600 examples, temperature ...
    >>> calibrated(inputs[:4]).confidence.shape
    torch.Size([4])
    """
    from hokical.calibrators.catalog import new_calibrator

    if not isinstance(labels, (Tensor, np.ndarray, list, type(None))):
        labels, method = None, labels
    several = isinstance(method, MultilabelCalibrator)
    estimator: Any = copy.deepcopy(method) if several else new_calibrator(method, **options)
    axes: set[int] = set()

    def pick(output: Any) -> Tensor:
        found = (batches.find_logits if get_logits is None else get_logits)(output)
        axes.add(found.ndim)
        return found

    given = data if labels is None else (data, labels)
    reading = (pick, class_axis, ignore_label, outputs)
    logits, truth, form = _collect(model, given, device, progress, *reading)
    estimator.fit(logits, truth)
    if not axes <= {1, 2} and not several:  # positions of one item are not independent
        estimator.forget_examples()
    return CalibratedModel(
        model, estimator, get_logits=get_logits, class_axis=class_axis, outputs=form
    )


def _as_rows(
    found: Tensor, labels: Any, class_axis: int, ignore_label: int | None
) -> tuple[Tensor, Tensor]:
    """Outputs (rows, classes) and labels (rows,), without positions that do not count.

    One output for class 1 of two, with an axis of its own or without, is (rows, 1).
    """
    truth = torch.as_tensor(labels, device=found.device)
    if found.ndim == 1 and truth.shape in (found.shape, (*found.shape, 1)):
        found, class_axis = found[:, None], -1
    logits = batches.classes_last(found, class_axis)
    one = logits.shape[-1] == 1
    if truth.shape == found.shape and found.ndim == 2 and not one:  # several labels at once
        return logits, truth
    if one and truth.shape == found.shape:
        truth = truth.squeeze(class_axis)
    if truth.shape != logits.shape[:-1]:
        remedy = "Give `class_axis` if the classes are not last"
        if truth.ndim == logits.ndim and truth.shape[-1] == 1:
            remedy = "Use `labels.squeeze(-1)`"
        raise ValueError(
            f"a batch's labels must have the shape of its logits without the classes, "
            f"{tuple(logits.shape[:-1])}; got {tuple(truth.shape)}. {remedy}."
        )
    rows, truth = logits.reshape(-1, logits.shape[-1]), truth.reshape(-1)
    if one and truth.is_floating_point() and bool((truth == truth.round()).all()):
        truth = truth.long()  # as the loss of such networks wants them
    if ignore_label is not None:
        counts = truth != ignore_label
        rows, truth = rows[counts], truth[counts]
    return rows, truth
