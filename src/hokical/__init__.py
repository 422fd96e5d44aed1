"""Honest confidence for classifiers.

Names are loaded when they are first used, so `import hokical` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hokical.bounds import calibration_bound as calibration_bound
    from hokical.calibrators import Calibrator as Calibrator
    from hokical.calibrators import Hoki as Hoki
    from hokical.calibrators import StabilityProfile as StabilityProfile
    from hokical.calibrators import auto as auto
    from hokical.calibrators import load as load
    from hokical.classifier import CalibratedClassifier as CalibratedClassifier
    from hokical.comparison import compare as compare
    from hokical.dense import Dense as Dense
    from hokical.logits import from_binary_scores as from_binary_scores
    from hokical.logits import from_probabilities as from_probabilities
    from hokical.monitoring import CalibrationMonitor as CalibrationMonitor
    from hokical.selection import select_noise as select_noise
    from hokical.stability import label_distribution as label_distribution
    from hokical.stability import label_stability as label_stability
    from hokical.stability import stability_bounds as stability_bounds
    from hokical.topk import TopK as TopK

__version__ = "0.1.0"

_HOMES = {
    "CalibratedClassifier": "hokical.classifier",
    "CalibrationMonitor": "hokical.monitoring",
    "Calibrator": "hokical.calibrators",
    "Dense": "hokical.dense",
    "Hoki": "hokical.calibrators",
    "StabilityProfile": "hokical.calibrators",
    "TopK": "hokical.topk",
    "auto": "hokical.calibrators",
    "calibration_bound": "hokical.bounds",
    "compare": "hokical.comparison",
    "from_binary_scores": "hokical.logits",
    "from_probabilities": "hokical.logits",
    "label_distribution": "hokical.stability",
    "label_stability": "hokical.stability",
    "load": "hokical.calibrators",
    "select_noise": "hokical.selection",
    "stability_bounds": "hokical.stability",
}

__all__ = list(_HOMES)


_MODULES = {
    "bounds",
    "calibrators",
    "dense",
    "metrics",
    "monitoring",
    "noise",
    "parallel",
    "plots",
    "report",
    "streams",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"hokical.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'hokical' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
