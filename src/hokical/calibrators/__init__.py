"""One calibration method per file, and the registry of all of them.

Names are imported on first use, so a loaded calibrator answers without scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hokical._core.optional import import_moved
from hokical._core.storage import CalibratorFileError
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import (
    AUTOMATIC,
    BUILT_IN,
    MOVED,
    method_names,
    methods_from_logits,
    register,
)
from hokical.calibrators._fitted import FittedCalibrator, load

if TYPE_CHECKING:
    from hokical.calibrators._adaptive import (
        AdaptiveTemperatureScaling as AdaptiveTemperatureScaling,
    )
    from hokical.calibrators._automatic import AutoCalibrator as AutoCalibrator
    from hokical.calibrators._automatic import auto as auto
    from hokical.calibrators._base import BaseCalibrator as BaseCalibrator
    from hokical.calibrators._base import Fit as Fit
    from hokical.calibrators._binary import BetaCalibration as BetaCalibration
    from hokical.calibrators._binary import PlattScaling as PlattScaling
    from hokical.calibrators._binary import VennAbers as VennAbers
    from hokical.calibrators._confidence import ConfidenceCalibrator as ConfidenceCalibrator
    from hokical.calibrators._confidence import calibrate_confidence as calibrate_confidence
    from hokical.calibrators._ets import EnsembleTemperatureScaling as EnsembleTemperatureScaling
    from hokical.calibrators._hoki import Hoki as Hoki
    from hokical.calibrators._isotonic import IsotonicMulticlass as IsotonicMulticlass
    from hokical.calibrators._isotonic import IsotonicOneVsAllTS as IsotonicOneVsAllTS
    from hokical.calibrators._multilabel import MultilabelCalibrator as MultilabelCalibrator
    from hokical.calibrators._registry import make as make
    from hokical.calibrators._registry import make_seeded as make_seeded
    from hokical.calibrators._registry import table as table
    from hokical.calibrators._structured import StructuredScaling as StructuredScaling
    from hokical.calibrators._temps import TemperatureScaling as TemperatureScaling
    from hokical.calibrators._temps import Uncalibrated as Uncalibrated
    from hokical.calibrators._vecs import VectorScaling as VectorScaling

_HOMES = {kind: module for module, kind in (BUILT_IN | AUTOMATIC).values()} | {
    "BaseCalibrator": "base",
    "ConfidenceCalibrator": "confidence",
    "Fit": "base",
    "MultilabelCalibrator": "multilabel",
    "auto": "automatic",
    "calibrate_confidence": "confidence",
    "make": "registry",
    "make_seeded": "registry",
    "table": "registry",
}

_MOVED = {kind: module for module, kind in MOVED.values()}

__all__ = [
    "Calibrator",
    "CalibratorFileError",
    "FittedCalibrator",
    "load",
    "method_names",
    "methods_from_logits",
    "register",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return import_moved(name, f"hokical_paper.{_MOVED[name]}", "hokical-paper")
    if name not in _HOMES:
        raise AttributeError(f"module 'hokical.calibrators' has no attribute {name!r}")
    return getattr(import_module(f"hokical.calibrators._{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
