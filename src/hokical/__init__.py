"""Honest confidence for classifiers.

Names are loaded when they are first used, so `import hokical` costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hokical._core.arrays import announce_backend
from hokical._core.version import VERSION

if TYPE_CHECKING:
    from hokical import calibrators as calibrators
    from hokical import dense as dense
    from hokical import guarantees as guarantees
    from hokical import integrations as integrations
    from hokical import io as io
    from hokical import metrics as metrics
    from hokical import monitoring as monitoring
    from hokical import plots as plots
    from hokical import report as report
    from hokical import rules as rules
    from hokical import stability as stability
    from hokical import streams as streams
    from hokical._core.conversion import from_binary_probabilities as from_binary_probabilities
    from hokical._core.conversion import from_binary_scores as from_binary_scores
    from hokical._core.conversion import from_probabilities as from_probabilities
    from hokical._core.messages import FitDataWarning as FitDataWarning
    from hokical._core.parallel import threads as threads
    from hokical._core.storage import CalibratorFileError as CalibratorFileError
    from hokical._core.topk import TopK as TopK
    from hokical._fitting.hoki import select_noise as select_noise
    from hokical.calibrators import AutoCalibrator as AutoCalibrator
    from hokical.calibrators import Calibrator as Calibrator
    from hokical.calibrators import Hoki as Hoki
    from hokical.calibrators import TemperatureScaling as TemperatureScaling
    from hokical.calibrators import load as load
    from hokical.calibrators import make as make
    from hokical.calibrators.automatic import auto as auto
    from hokical.calibrators.confidence import ConfidenceCalibrator as ConfidenceCalibrator
    from hokical.calibrators.confidence import calibrate_confidence as calibrate_confidence
    from hokical.calibrators.multilabel import MultilabelCalibrator as MultilabelCalibrator
    from hokical.dense import Dense as Dense
    from hokical.guarantees import calibration_bound as calibration_bound
    from hokical.integrations.sklearn import CalibratedClassifier as CalibratedClassifier
    from hokical.integrations.torch import calibrate as calibrate
    from hokical.monitoring import CalibrationMonitor as CalibrationMonitor
    from hokical.report.comparison import compare as compare
    from hokical.report.evaluating import evaluate as evaluate
    from hokical.stability import Gaussian as Gaussian
    from hokical.stability import Gumbel as Gumbel
    from hokical.stability import Uniform as Uniform
    from hokical.stability import label_distribution as label_distribution
    from hokical.stability import label_stability as label_stability

__version__ = VERSION

_HOMES = {
    "AutoCalibrator": "calibrators", "CalibratedClassifier": "integrations.sklearn",
    "CalibrationMonitor": "monitoring", "Calibrator": "calibrators",
    "CalibratorFileError": "_core.storage", "ConfidenceCalibrator": "calibrators.confidence",
    "Dense": "dense", "Gaussian": "stability", "Gumbel": "stability", "Hoki": "calibrators",
    "MultilabelCalibrator": "calibrators.multilabel", "TemperatureScaling": "calibrators",
    "TopK": "_core.topk", "Uniform": "stability",
    "FitDataWarning": "_core.messages", "auto": "calibrators.automatic",
    "calibrate": "integrations.torch", "calibrate_confidence": "calibrators.confidence",
    "calibration_bound": "guarantees",
    "compare": "report.comparison", "evaluate": "report.evaluating",
    "from_binary_probabilities": "_core.conversion",
    "from_binary_scores": "_core.conversion",
    "from_probabilities": "_core.conversion", "label_distribution": "stability",
    "label_stability": "stability", "load": "calibrators", "make": "calibrators",
    "select_noise": "_fitting.hoki",
    "threads": "_core.parallel",
}  # fmt: skip

#: Without PyTorch, `hokical.calibrate` says what to install, and `import *` works.
__all__ = [name for name in _HOMES if name != "calibrate" or find_spec("torch")]

#: Packages that are loaded when an attribute of theirs is asked for.
_PACKAGES = {
    "calibrators", "dense", "guarantees", "integrations", "io", "metrics", "monitoring", "plots",
    "report", "rules", "stability", "streams",
}  # fmt: skip

#: Libraries of arrays that need more than the standard, and who knows how; loaded when met.
for _library, _home in {
    "dask": "hokical.integrations.dask",
    "jax": "hokical.integrations.jax",
    "jaxlib": "hokical.integrations.jax",
    "ndonnx": "hokical.integrations.onnx.backend",
    "torch": "hokical.integrations.torch.backend",
}.items():
    announce_backend(_library, _home)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"hokical.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'hokical' has no attribute {name!r}")
    value = getattr(import_module(f"hokical.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
