"""Watching confidence in service: is it still honest, and are the inputs still the same?

`CalibrationMonitor` is fed predictions as they arrive; the other modules are its parts: the
fit-time reference, sliding windows of exact sums, the two drift tests, words, and export.
"""

from hokical.monitoring._class_watch import ClassStatus
from hokical.monitoring._coverage import CoverageMonitor
from hokical.monitoring._export import (
    append_json_line,
    draw_accuracy,
    draw_history,
    read_history,
)
from hokical.monitoring._monitor import CalibrationMonitor
from hokical.monitoring._reference import Reference
from hokical.monitoring._status import Status, Verdict

__all__ = [
    "CalibrationMonitor", "ClassStatus", "CoverageMonitor", "Reference", "Status", "Verdict",
    "append_json_line", "draw_accuracy", "draw_history", "read_history",
]  # fmt: skip
