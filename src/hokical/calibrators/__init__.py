"""One calibration method per file, and the registry of all of them."""

from hokical.calibrators.base import Calibrator
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.registry import load, make, table

__all__ = ["Calibrator", "Hoki", "load", "make", "table"]
