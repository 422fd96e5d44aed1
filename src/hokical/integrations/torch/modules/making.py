"""From a fitted calibrator to its module."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from sklearn.utils.validation import check_is_fitted

from hokical.calibrators.automatic import Calibrator
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.irm import IsotonicMulticlass
from hokical.calibrators.irova_ts import IsotonicOneVsAllTS
from hokical.calibrators.odir import ODIRCalibrator
from hokical.calibrators.profile import StabilityProfile
from hokical.calibrators.recal import ReCal
from hokical.calibrators.temps import TemperatureScaling
from hokical.calibrators.uncalibrated import Uncalibrated
from hokical.calibrators.vecs import VectorScaling
from hokical.integrations.torch.modules.base import CalibratorModule
from hokical.integrations.torch.modules.hoki import HokiModule
from hokical.integrations.torch.modules.isotonic import (
    ClasswiseIsotonicModule,
    PooledIsotonicModule,
)
from hokical.integrations.torch.modules.odir import ODIRModule
from hokical.integrations.torch.modules.profile import ProfileModule
from hokical.integrations.torch.modules.recal import ReCalModule
from hokical.integrations.torch.modules.scaling import (
    EnsembleModule,
    TemperatureModule,
    VectorModule,
)


def as_module(calibrator: BaseCalibrator) -> CalibratorModule:
    """A fitted calibrator as an `nn.Module`: logits in, labels and confidence out.

    Parameters
    ----------
    calibrator : a fitted calibrator
        Any method; of a `Calibrator` (auto) the module is that of the method it chose.

    Returns
    -------
    CalibratorModule
        Its results are those of the calibrator's `predict`, `predict_confidence` and
        `predict_proba`. It holds a copy: fitting the calibrator again does not change it.

    Examples
    --------
    >>> import torch
    >>> from hokical.calibrators import make
    >>> from hokical.integrations.torch import as_module
    >>> cal = make("temps").fit([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> module = as_module(cal)
    >>> labels, confidence = module(torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    >>> labels, bool(confidence == cal.predict_confidence([[1.0, 3.0]])[0])
    (tensor([1]), True)
    >>> module.proba(torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    """
    if not isinstance(calibrator, BaseCalibrator):
        raise TypeError(
            f"`calibrator` must be a fitted calibrator; got {type(calibrator).__name__}. Make one "
            'with `hokical.calibrators.make("hoki").fit(logits, labels)`.'
        )
    check_is_fitted(calibrator, "n_classes_")
    return _module_of(calibrator)


@singledispatch
def _module_of(calibrator: Any) -> CalibratorModule:
    raise TypeError(f"{type(calibrator).__name__} has no module.")


_module_of.register(Uncalibrated, TemperatureModule)
_module_of.register(TemperatureScaling, TemperatureModule)
_module_of.register(VectorScaling, VectorModule)
_module_of.register(ODIRCalibrator, ODIRModule)
_module_of.register(EnsembleTemperatureScaling, EnsembleModule)
_module_of.register(IsotonicMulticlass, PooledIsotonicModule)
_module_of.register(IsotonicOneVsAllTS, ClasswiseIsotonicModule)
_module_of.register(ReCal, ReCalModule)
_module_of.register(Hoki, HokiModule)
_module_of.register(StabilityProfile, ProfileModule)


@_module_of.register
def _(calibrator: Calibrator) -> CalibratorModule:
    return _module_of(calibrator.calibrator_)
