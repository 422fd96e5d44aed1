"""Monitoring in production: is confidence still calibrated, and have the inputs
shifted?

`CalibrationMonitor` is fed predictions and labels as they arrive; `CoverageMonitor`
tests prediction sets; `OnlineSets` keep their coverage by feedback; a `Status` holds
what is known.
"""

from hokical.monitoring.e_process import CoverageMonitor
from hokical.monitoring.monitor import CalibrationMonitor
from hokical.monitoring.online import OnlineSets
from hokical.monitoring.status import Status

__all__ = ["CalibrationMonitor", "CoverageMonitor", "OnlineSets", "Status"]
