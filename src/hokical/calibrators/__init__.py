"""One calibration method per file, and the registry of all of them."""

from hokical.calibrators.automatic import Calibrator, auto
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.dir_odir import DirichletODIR
from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.irm import IsotonicMulticlass
from hokical.calibrators.irova_ts import IsotonicOneVsAllTS
from hokical.calibrators.ms_odir import MatrixScalingODIR
from hokical.calibrators.profile import StabilityProfile
from hokical.calibrators.recal import ReCal
from hokical.calibrators.registry import load, make, table
from hokical.calibrators.temps import TemperatureScaling
from hokical.calibrators.uncalibrated import Uncalibrated
from hokical.calibrators.vecs import VectorScaling

__all__ = [
    "BaseCalibrator",
    "Calibrator",
    "DirichletODIR",
    "EnsembleTemperatureScaling",
    "Hoki",
    "IsotonicMulticlass",
    "IsotonicOneVsAllTS",
    "MatrixScalingODIR",
    "ReCal",
    "StabilityProfile",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "auto",
    "load",
    "make",
    "table",
]
