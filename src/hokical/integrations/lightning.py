"""Calibration at the end of a Lightning run, by `lightning` or `pytorch_lightning`."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hokical._core.warn import warn_user
from hokical.calibrators._calibrator import Calibrator
from hokical.integrations.torch import torch
from hokical.integrations.torch._collecting import calibrate
from hokical.integrations.torch._model import CalibratedModel

_HOMES = ("lightning.pytorch", "pytorch_lightning")


def _callback_class() -> Any:
    """`Callback` of the Lightning in use: the one imported already, else the one installed."""
    for home in sorted(_HOMES, key=lambda name: name not in sys.modules):
        if find_spec(home.split(".")[0]) is not None:
            return import_module(home).Callback
    return object


_Callback: Any = _callback_class()


class CalibrationCallback(_Callback):  # type: ignore[misc]
    """Calibrate the network on the validation set once training, or `trainer.validate`, ends.

    The network, the LightningModule's `forward`, runs over the trainer's validation loaders once
    more, in evaluation mode, without gradients, in the trainer's precision and with the module's
    (or data module's) hooks for batches. A calibrator is fitted on the device, for the weights that
    the network has at that moment: after loading a better checkpoint, run `trainer.validate` with
    this callback again.

    Afterwards the network has its modes back: call `callback.calibrated.eval()` before predicting.
    Under mixed precision predict within the same autocast, under "bf16-true" and the like with
    inputs of that type, as ever.

    In a run over several processes each of them calibrates on its own share of the validation set,
    with a warning. To use all of it, run `trainer.validate` with one device afterwards.

    `method` and `options` are those of `hokical.integrations.torch.calibrate`; the calibrator is
    saved as JSON to `path`, if there is one. `calibrated` (a CalibratedModel) and `calibrator` are
    None before there is one. A trainer takes it like any callback, `Trainer(callbacks=[callback])`;
    after `trainer.fit(...)` `callback.calibrated.eval()(inputs)` gives logits, labels and
    confidence:

        callback = CalibrationCallback("hoki", path="cal.json")
    """

    def __init__(
        self,
        method: str | Calibrator = "auto",
        *,
        path: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if _Callback is object:
            raise ImportError("CalibrationCallback needs Lightning: pip install lightning.")
        super().__init__()
        self.method, self.path, self.options = method, path, options
        self.calibrated: CalibratedModel | None = None

    @property
    def calibrator(self) -> Calibrator | None:
        return None if self.calibrated is None else self.calibrated.fitted

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """After the last step of `trainer.fit`."""
        self._calibrate(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """After `trainer.validate`; validation during training is passed over."""
        if trainer.state.fn == "validate":
            self._calibrate(trainer, pl_module)

    def _calibrate(self, trainer: Any, pl_module: Any) -> None:
        loaders = _loaders(trainer.val_dataloaders)
        if not loaders:
            warn_user(
                "CalibrationCallback did nothing: there is no validation loader. Give "
                "`val_dataloaders` to the trainer.",
                RuntimeWarning,
            )
            return
        if trainer.world_size > 1:
            warn_user(
                f"CalibrationCallback: {trainer.world_size} processes calibrate on their own "
                "shares of the validation set. Run `trainer.validate` with one device for all.",
                RuntimeWarning,
            )
        with torch.inference_mode(False):  # of `validate`; its tensors would bar gradients for good
            runner = _InItsPrecision(trainer, pl_module)
            calibrated = calibrate(runner, _batches(trainer, loaders), self.method, **self.options)
        calibrated.model = pl_module
        self.calibrated = calibrated
        if self.path is not None and trainer.is_global_zero and self.calibrator is not None:
            self.calibrator.save(self.path)


class _InItsPrecision(torch.nn.Module):
    """The network as the trainer runs it: its `forward` in the trainer's precision."""

    def __init__(self, trainer: Any, module: Any) -> None:
        super().__init__()
        self.module, self.precision = module, trainer.precision_plugin
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision.forward_context():
            return self.module(*args, **kwargs)


def _batches(trainer: Any, loaders: list[Any]) -> Iterator[Any]:
    """The batches of all loaders, made ready as the trainer makes them ready for a step."""
    for index, loader in enumerate(loaders):
        for batch in loader:
            batch = trainer.precision_plugin.convert_input(batch)
            batch = trainer.lightning_module._on_before_batch_transfer(batch, index)
            yield trainer.strategy.batch_to_device(batch, dataloader_idx=index)


def _loaders(found: Any) -> list[Any]:
    """The validation loaders: none, one, or several in a list or by name."""
    if found is None:
        return []
    if isinstance(found, dict):
        return list(found.values())
    return list(found) if isinstance(found, (list, tuple)) else [found]
