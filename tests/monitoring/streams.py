"""Streams of confidences and labels whose true calibration is known, and monitors'
exact state.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hokical.monitoring import CalibrationMonitor


def stream(n: int, *, seed: int, gap: float = 0.0, a: float = 6.0) -> tuple[Any, Any]:
    """`n` examples whose probability of being right is confidence - gap."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(a, 1.0, size=n)
    return confidence, rng.uniform(size=n) < np.clip(confidence - gap, 0.0, 1.0)


def monitor(**options: Any) -> CalibrationMonitor:
    """With a calibrated reference."""
    return CalibrationMonitor.from_validation(None, *stream(5000, seed=99), **options)


def exact_state(monitor: CalibrationMonitor) -> str:
    """Every number that a monitor holds, to the bit, as text; without the hashes of
    batches.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "monitor.json"
        monitor.save(path)
        return path.read_text()
