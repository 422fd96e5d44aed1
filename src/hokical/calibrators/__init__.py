"""Calibration methods, and all of them by name.

Names are imported on first use, so a loaded calibrator predicts without scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hokical._fitting.examples import Examples
from hokical.calibrators._calibrator import Calibrator, with_sets
from hokical.calibrators._catalog import AUTOMATIC, BUILT_IN, method_names, register
from hokical.calibrators._catalog import load as load
from hokical.calibrators._catalog import make as make
from hokical.calibrators._method import Fit, MethodInfo

if TYPE_CHECKING:
    from hokical.calibrators._adaptive import (
        AdaptiveTemperatureScaling as AdaptiveTemperatureScaling,
    )
    from hokical.calibrators._automatic import AutoCalibrator as AutoCalibrator
    from hokical.calibrators._binary import BetaCalibration as BetaCalibration
    from hokical.calibrators._binary import PlattScaling as PlattScaling
    from hokical.calibrators._binary import VennAbers as VennAbers
    from hokical.calibrators._hoki import Hoki as Hoki
    from hokical.calibrators._isotonic import IsotonicMulticlass as IsotonicMulticlass
    from hokical.calibrators._isotonic import IsotonicOneVsAllTS as IsotonicOneVsAllTS
    from hokical.calibrators._scaling import (
        EnsembleTemperatureScaling as EnsembleTemperatureScaling,
    )
    from hokical.calibrators._scaling import TemperatureScaling as TemperatureScaling
    from hokical.calibrators._scaling import Uncalibrated as Uncalibrated
    from hokical.calibrators._scaling import VectorScaling as VectorScaling
    from hokical.calibrators._structured import StructuredScaling as StructuredScaling

_METHODS = {kind: module for module, kind in (BUILT_IN | AUTOMATIC).values()}

__all__ = [
    "Calibrator", "Examples", "Fit", "MethodInfo", "method_names", "register", "with_sets",
    *(kind for _, kind in BUILT_IN.values()),
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _METHODS:
        raise AttributeError(f"module 'hokical.calibrators' has no attribute {name!r}")
    return getattr(import_module(f"hokical.calibrators._{_METHODS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
