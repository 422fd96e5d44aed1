"""Calibrated confidence for classifiers.

Names are loaded when they are first used, so `import hokical` costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
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
    from hokical._core.conversion import (
        from_binary_probabilities as from_binary_probabilities,
    )
    from hokical._core.conversion import from_binary_scores as from_binary_scores
    from hokical._core.conversion import from_probabilities as from_probabilities
    from hokical._core.ensembles import Ensemble as Ensemble
    from hokical._core.logits import TopK as TopK
    from hokical._core.runtime import FitDataWarning as FitDataWarning
    from hokical._core.runtime import threads as threads
    from hokical._core.storage import CalibratorFileError as CalibratorFileError
    from hokical.calibrators import AutoCalibrator as AutoCalibrator
    from hokical.calibrators import Calibrator as Calibrator
    from hokical.calibrators import Hoki as Hoki
    from hokical.calibrators import TemperatureScaling as TemperatureScaling
    from hokical.calibrators import load as load
    from hokical.calibrators import make as make
    from hokical.calibrators.automatic import auto as auto
    from hokical.calibrators.confidence import (
        ConfidenceCalibrator as ConfidenceCalibrator,
    )
    from hokical.calibrators.confidence import (
        MultilabelCalibrator as MultilabelCalibrator,
    )
    from hokical.calibrators.confidence import (
        calibrate_confidence as calibrate_confidence,
    )
    from hokical.calibrators.noise_selection import select_noise as select_noise
    from hokical.dense import Dense as Dense
    from hokical.guarantees import calibration_bound as calibration_bound
    from hokical.integrations.sklearn import (
        CalibratedClassifier as CalibratedClassifier,
    )
    from hokical.integrations.torch import calibrate as calibrate
    from hokical.monitoring import CalibrationMonitor as CalibrationMonitor
    from hokical.report.comparison import compare as compare
    from hokical.report.evaluation import evaluate as evaluate
    from hokical.stability import Gaussian as Gaussian
    from hokical.stability import Gumbel as Gumbel
    from hokical.stability import Uniform as Uniform
    from hokical.stability import label_distribution as label_distribution
    from hokical.stability import label_stability as label_stability

__version__ = VERSION

#: Where public names are, by module.
_NAMES = {
    "_core.conversion": "from_binary_probabilities from_binary_scores from_probabilities",
    "_core.ensembles": "Ensemble",
    "_core.logits": "TopK",
    "_core.runtime": "FitDataWarning threads",
    "_core.storage": "CalibratorFileError",
    "calibrators": "AutoCalibrator Calibrator Hoki TemperatureScaling load make",
    "calibrators.confidence": "ConfidenceCalibrator MultilabelCalibrator calibrate_confidence",
    "calibrators.automatic": "auto",
    "calibrators.noise_selection": "select_noise",
    "dense": "Dense",
    "guarantees": "calibration_bound",
    "integrations.sklearn": "CalibratedClassifier",
    "integrations.torch": "calibrate",
    "monitoring": "CalibrationMonitor",
    "report.comparison": "compare",
    "report.evaluation": "evaluate",
    "stability": "Gaussian Gumbel Uniform label_distribution label_stability",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

#: Without PyTorch, `hokical.calibrate` says what to install, and `import *` works.
__all__ = [name for name in _HOMES if name != "calibrate" or find_spec("torch")]

#: Libraries of arrays that need more than the standard, and who knows how; loaded when
#: met.
for _library, _home in {
    "dask": "dask",
    "jax": "jax",
    "jaxlib": "jax",
    "ndonnx": "onnx.namespace",
    "torch": "torch.backend",
}.items():
    announce_backend(_library, f"hokical.integrations.{_home}")


def _packages() -> list[str]:
    """Packages and modules, which are loaded at their first use."""
    names = [module.name for module in iter_modules(__path__)]
    return [name for name in names if not name.startswith("_")]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        public_object = getattr(import_module(f"hokical.{_HOMES[name]}"), name)
        return globals().setdefault(name, public_object)
    if name in _packages():
        return import_module(f"hokical.{name}")
    raise AttributeError(f"module 'hokical' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_packages()])
