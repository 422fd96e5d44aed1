"""Calibrated networks in PyTorch. Needs `pip install "hokical[torch]"`.

- `calibrate(model, val_loader)`: a calibrated model in one line
- `CalibratedModel(model, calibrator)`: logits, labels and confidence in one forward
- `collect_logits(model, loader)`: validation logits and labels, left on the device
- `views("image")`: mild transformations of images, for test-time augmentation
- `as_module(calibrator)`: a fitted calibrator as an `nn.Module`

Calibrators themselves take tensors as well, in `fit` and in `predict`, and leave them
where they are.
"""

try:
    import torch as torch
except ImportError as error:
    raise ImportError(
        'hokical.integrations.torch needs PyTorch: pip install "hokical[torch]".'
    ) from error

from hokical.integrations.torch.model import CalibratedModel, calibrate, collect_logits
from hokical.integrations.torch.module import as_module
from hokical.integrations.torch.views import views

__all__ = ["CalibratedModel", "as_module", "calibrate", "collect_logits", "views"]
