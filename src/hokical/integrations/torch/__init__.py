"""Calibrated networks in PyTorch; the extra `torch` installs it.

- `calibrate(model, val_loader)`: a calibrated model in one line
- `CalibratedModel(model, calibrator)`: logits, labels and confidence in one forward
- `calibrate(model, val_loader, transforms=views("image"))`, `calibrate([net_a, net_b],
  val_loader)`, `calibrate(model, val_loader, dropout=8)`: several evaluations of each
  example, pooled; they give a `CalibratedEnsemble` around a `MemberNetwork`
- `collect_logits(model, loader)`: validation logits and labels, left on the device
- `views("image")`: mild transformations of images, for test-time augmentation
- `as_module(calibrator)`: a fitted calibrator as an `nn.Module`

Calibrators themselves take tensors as well, in `fit` and in `predict`, and leave them
where they are.
"""

from hokical._core.runtime import install_command

try:
    import torch as torch
except ImportError as error:
    raise ImportError(
        f"hokical.integrations.torch needs PyTorch: {install_command('torch')}."
    ) from error

from hokical.integrations.torch.augmentation import views
from hokical.integrations.torch.calibrating import calibrate
from hokical.integrations.torch.collecting import collect_logits
from hokical.integrations.torch.ensembles import CalibratedEnsemble
from hokical.integrations.torch.members import MemberNetwork
from hokical.integrations.torch.model import CalibratedModel
from hokical.integrations.torch.module import as_module

__all__ = [
    "CalibratedEnsemble",
    "CalibratedModel",
    "MemberNetwork",
    "as_module",
    "calibrate",
    "collect_logits",
    "views",
]
