"""Fits that must be the same to the bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def assert_same_fit(left: Any, right: Any) -> None:
    """Two fitted calibrators: whatever a file keeps of them, scores and reports
    included.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("left", "right")]
        for calibrator, path in zip((left, right), paths, strict=True):
            calibrator.save(path)
        one, other = (path.read_text().splitlines() for path in paths)
    assert one == other
