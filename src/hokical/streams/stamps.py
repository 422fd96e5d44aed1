"""A short name for what a calibrator has learned: equal stamps, equal predictions."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator


def calibrator_stamp(calibrator: BaseCalibrator) -> str:
    """A hash of the file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrator.json"
        calibrator.save(os.fspath(path))
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
