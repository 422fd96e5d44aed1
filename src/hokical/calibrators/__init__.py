"""One calibration method per file, and the registry of all of them.

Names are imported on first use, so a loaded calibrator answers without scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import (
    AUTOMATIC,
    BUILT_IN,
    method_names,
    methods_from_logits,
    register,
)
from hokical.calibrators.fitted import FittedCalibrator, load
from hokical.core.optional import import_moved
from hokical.core.storage import CalibratorFileError

if TYPE_CHECKING:
    from hokical.calibrators.automatic import AutoCalibrator as AutoCalibrator
    from hokical.calibrators.automatic import auto as auto
    from hokical.calibrators.base import BaseCalibrator as BaseCalibrator
    from hokical.calibrators.base import Fit as Fit
    from hokical.calibrators.binary import BetaCalibration as BetaCalibration
    from hokical.calibrators.binary import PlattScaling as PlattScaling
    from hokical.calibrators.binary import VennAbers as VennAbers
    from hokical.calibrators.ets import EnsembleTemperatureScaling as EnsembleTemperatureScaling
    from hokical.calibrators.hoki import Hoki as Hoki
    from hokical.calibrators.isotonic import IsotonicMulticlass as IsotonicMulticlass
    from hokical.calibrators.isotonic import IsotonicOneVsAllTS as IsotonicOneVsAllTS
    from hokical.calibrators.odir import DirichletODIR as DirichletODIR
    from hokical.calibrators.odir import MatrixScalingODIR as MatrixScalingODIR
    from hokical.calibrators.profile import StabilityProfile as StabilityProfile
    from hokical.calibrators.registry import make as make
    from hokical.calibrators.registry import make_seeded as make_seeded
    from hokical.calibrators.registry import table as table
    from hokical.calibrators.structured import StructuredScaling as StructuredScaling
    from hokical.calibrators.temps import TemperatureScaling as TemperatureScaling
    from hokical.calibrators.temps import Uncalibrated as Uncalibrated
    from hokical.calibrators.vecs import VectorScaling as VectorScaling

_HOMES = {kind: module for module, kind in (BUILT_IN | AUTOMATIC).values()} | {
    "BaseCalibrator": "base",
    "Fit": "base",
    "auto": "automatic",
    "make": "registry",
    "make_seeded": "registry",
    "table": "registry",
}

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
    if name == "ReCal":
        return import_moved(name, "hokical_paper.recal", "hokical-paper")
    if name not in _HOMES:
        raise AttributeError(f"module 'hokical.calibrators' has no attribute {name!r}")
    return getattr(import_module(f"hokical.calibrators.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
