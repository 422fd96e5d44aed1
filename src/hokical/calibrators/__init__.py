"""Calibration methods, and all of them by name.

Names are imported on first use, so a loaded calibrator predicts without scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hokical._fitting.examples import Examples
from hokical.calibrators.calibrator import Calibrator, with_sets
from hokical.calibrators.catalog import AUTOMATIC, BUILT_IN, method_names, register
from hokical.calibrators.catalog import load as load
from hokical.calibrators.catalog import make as make
from hokical.calibrators.stored import Fit, MethodInfo

if TYPE_CHECKING:
    from hokical.calibrators.automatic import AutoCalibrator as AutoCalibrator
    from hokical.calibrators.hoki import Hoki
    from hokical.calibrators.methods import (
        AdaptiveTemperatureScaling,
        BetaCalibration,
        EnsembleTemperatureScaling,
        IsotonicMulticlass,
        IsotonicOneVsAllTS,
        PlattScaling,
        StructuredScaling,
        TemperatureScaling,
        Uncalibrated,
        VectorScaling,
        VennAbers,
    )
    from hokical.calibrators.survival import SurvivalCalibrator

_METHODS = {kind: module for module, kind in (BUILT_IN | AUTOMATIC).values()}
_METHODS["SurvivalCalibrator"] = "survival"

__all__ = [
    "AdaptiveTemperatureScaling",
    "BetaCalibration",
    "Calibrator",
    "EnsembleTemperatureScaling",
    "Examples",
    "Fit",
    "Hoki",
    "IsotonicMulticlass",
    "IsotonicOneVsAllTS",
    "MethodInfo",
    "PlattScaling",
    "StructuredScaling",
    "SurvivalCalibrator",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "VennAbers",
    "method_names",
    "register",
    "with_sets",
]


def __getattr__(name: str) -> Any:
    if name not in _METHODS:
        raise AttributeError(f"module 'hokical.calibrators' has no attribute {name!r}")
    return getattr(import_module(f"hokical.calibrators.{_METHODS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
