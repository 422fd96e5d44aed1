"""What calibrators do with tensors: answers on the tensor's device, with gradients if it has them.

Tensors on the host go through the core's compiled code; what is on another device, or asks for a
gradient, through the calibrator's module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from hokical.calibrators.automatic import Calibrator
from hokical.calibrators.base import BaseCalibrator
from hokical.integrations.torch.modules.base import CalibratorModule, result_dtype
from hokical.integrations.torch.modules.making import as_module
from hokical.logits import as_logits, to_numpy

#: What a module's answer to each of a calibrator's methods is.
_ANSWERS: dict[str, Callable[..., Tensor]] = {
    "predict": lambda module, logits: module.labels(logits),
    "predict_confidence": lambda module, logits, **given: module(logits, **given).confidence,
    "predict_proba": lambda module, logits, **given: module.proba(logits, **given),
}

#: The modules of a calibrator by device, with the fitted attributes that they were made from.
_modules: WeakKeyDictionary[
    BaseCalibrator, tuple[dict[str, Any], dict[torch.device, CalibratorModule]]
] = WeakKeyDictionary()


def predict_tensors(
    calibrator: BaseCalibrator, method: str, logits: Tensor, **options: Any
) -> Tensor:
    """`predict`, `predict_confidence` or `predict_proba` of a tensor (n, classes), as a tensor.

    On the same device; labels int64, the rest float32, or float64 where the logits are.
    `transformed`, for ReCal, may be a tensor too.
    """
    check_is_fitted(calibrator, "n_classes_")
    given = {name: value for name, value in options.items() if value is not None}
    if _on_host(logits) and all(_on_host(value) for value in given.values()):
        return _through_core(calibrator, method, logits, given)
    calibrator._checked_logits(logits.detach())
    tensors = {name: _checked_views(value, logits, name) for name, value in given.items()}
    return _ANSWERS[method](_module_on(calibrator, logits.device), logits, **tensors)


def _through_core(
    calibrator: BaseCalibrator, method: str, logits: Tensor, given: dict[str, Any]
) -> Tensor:
    arrays = {name: to_numpy(value, name) for name, value in given.items()}
    answer = getattr(calibrator, method)(to_numpy(logits, "logits"), **arrays)
    tensor = torch.from_numpy(answer)
    return tensor.to(result_dtype(logits)) if tensor.is_floating_point() else tensor


def _on_host(value: Any) -> bool:
    """Whether NumPy can have it as it is: not on another device, and with no gradient to keep."""
    if not isinstance(value, Tensor):
        return True
    return value.device.type == "cpu" and not (value.requires_grad and torch.is_grad_enabled())


def _checked_views(views: Any, logits: Tensor, name: str) -> Tensor:
    """Logits of transformed inputs (transforms, n, classes), on the device of the others."""
    tensor = views if isinstance(views, Tensor) else torch.as_tensor(views)
    tensor = tensor.to(logits.device)
    for i, view in enumerate(tensor.detach()):
        as_logits(view, name=f"{name}[{i}]")
    return tensor


def _module_on(calibrator: BaseCalibrator, device: torch.device) -> CalibratorModule:
    """The calibrator's module on a device, made again once it has been fitted again.

    That is seen by the identity of its attributes: arrays changed in place go unnoticed.
    """
    if isinstance(calibrator, Calibrator):
        return _module_on(calibrator.calibrator_, device)
    state, modules = _modules.get(calibrator, ({}, {}))
    if not _same(state, dict(vars(calibrator))):
        modules = {}
    if device not in modules:
        module = as_module(calibrator).to(device)
        module.fitted = None  # or the calibrator would never be forgotten
        # Only now: making a module can leave a cached attribute on the calibrator.
        _modules[calibrator] = dict(vars(calibrator)), {**modules, device: module}
        return module
    return modules[device]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all attributes are the very same objects."""
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)
