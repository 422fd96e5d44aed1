"""Monitors refuse arguments of another type by name, and count nothing then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hokical import CalibrationMonitor
from hokical.monitoring import CoverageMonitor

FRAME = pd.DataFrame({"x": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.watch("auto"), "`calibrator` must be a fitted calibrator"),
        (lambda m: m.watch(FRAME), "`calibrator` must be a fitted calibrator"),
        (
            lambda m: CalibrationMonitor.from_validation(0.5, [0.5], [1]),  # type: ignore[arg-type]
            "`calibrator` must be a fitted calibrator",
        ),
        (lambda m: m.update([0.5], [True], again=FRAME), "`again` must be one of"),
        (lambda m: m.update([0.5], ids=["a"], again=3), "`again` must be one of"),
        (lambda m: m.lock(FRAME), "`path` must be the path of a file"),
    ],
)
def test_of_calibration(call: Callable[[CalibrationMonitor], Any], words: str) -> None:
    monitor = CalibrationMonitor(None)
    with pytest.raises((TypeError, ValueError), match=words):
        call(monitor)
    assert monitor.n == 0


@pytest.mark.parametrize(
    "covered", [[[1.0, 2.0], [3.0]], pd.Series([pd.NA] * 3), ["a"], FRAME]
)
def test_of_coverage(covered: Any) -> None:
    monitor = CoverageMonitor(0.9)
    with pytest.raises((TypeError, ValueError), match="`covered` "):
        monitor.update(covered)
    with pytest.raises(TypeError, match="`sets` must be those of `predict_set`"):
        monitor.update_sets(covered, np.zeros(3, int))
    assert monitor.n == 0
