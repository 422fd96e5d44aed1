"""A calibrated network from a network and validation data."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.integrations.torch import _batches as batches
from hokical.integrations.torch._batches import GetLogits
from hokical.integrations.torch._collecting import collect_logits
from hokical.integrations.torch._model import CalibratedModel


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
    **options: Any,
) -> CalibratedModel:
    """Collect validation logits, fit a calibrator, and return the network with it.

    `data` are examples that the network was not trained on: a data loader as in `collect_logits`,
    or a tensor of inputs, with `labels` (n,). `method` is a name (`hokical methods` lists them),
    with `options` for it; or a calibrator, of which a copy is fitted. After a data loader it may
    come third: `calibrate(model, loader, "temps")`. A `MultilabelCalibrator` is for networks with a
    sigmoid for each label. The other arguments are those of `collect_logits`.

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
    from hokical.calibrators._catalog import new_calibrator  # with scikit-learn, not needed before

    if not isinstance(labels, (Tensor, np.ndarray, list, type(None))):
        labels, method = None, labels
    several = isinstance(method, MultilabelCalibrator)
    estimator: Any = copy.deepcopy(method) if several else new_calibrator(method, **options)
    axes: set[int] = set()

    def pick(output: Any) -> Tensor:
        found = (batches.find_logits if get_logits is None else get_logits)(output)
        axes.add(found.ndim)
        return found

    logits, truth = collect_logits(
        model,
        data if labels is None else (data, labels),
        device=device,
        progress=progress,
        get_logits=pick,
        class_axis=class_axis,
        ignore_label=ignore_label,
    )
    estimator.fit(logits, truth)
    if axes != {2} and not several:  # positions of one item are not independent, and prove nothing
        estimator.forget_examples()
    return CalibratedModel(model, estimator, get_logits=get_logits, class_axis=class_axis)
