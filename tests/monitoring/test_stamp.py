"""A monitor belongs to one calibrator."""

from __future__ import annotations

from pathlib import Path

import pytest

import hokical
from hokical import CalibrationMonitor, Gaussian, Hoki
from hokical.calibrators import make
from tests.conftest import synthetic_logits
from tests.monitoring.streams import exact_state, monitor

LOGITS, LABELS = synthetic_logits(600, 4, seed=1)


def hoki(width: float = 4.0, rows: int = 600) -> Hoki:
    return Hoki(noise=Gaussian(width)).fit(LOGITS[:rows], LABELS[:rows])


@pytest.mark.parametrize("made_by", ["hoki", "validation"])
def test_another_calibrator_is_refused(made_by: str, tmp_path: Path) -> None:
    cal, path = hoki(), tmp_path / "monitor.json"
    made = (
        CalibrationMonitor(cal)
        if made_by == "hoki"
        else CalibrationMonitor.from_validation(cal, LOGITS, LABELS)
    )
    made.update_logits(LOGITS, LABELS).save(path)
    fewer = Hoki(noise=Gaussian(4.0)).fit(LOGITS[:, :3], LOGITS[:, :3].argmax(axis=1))
    for other in (
        make("uncalibrated").fit(LOGITS, LABELS),
        hoki(3.0),
        hoki(rows=500),
        fewer,
    ):
        with pytest.raises(
            ValueError, match=r"made with, hoki of 4 classes, stamp .*; got "
        ):
            CalibrationMonitor.load(path, other)
    cal.certify(1.01 * LOGITS, LABELS).save(tmp_path / "cal.json")
    same = CalibrationMonitor.load(path, hokical.load(tmp_path / "cal.json"))
    assert exact_state(same.update_logits(LOGITS, LABELS, again=True)) == exact_state(
        made.update_logits(LOGITS, LABELS, again=True)
    )


def test_the_stamp_outlives_restarts_without_the_calibrator(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    CalibrationMonitor(hoki()).save(path)
    CalibrationMonitor.load(path).save(path)
    with pytest.raises(ValueError, match="must be the one"):
        CalibrationMonitor.load(path, hoki(3.0))


def test_a_calibrator_may_come_later_but_only_one(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    monitor().save(path)
    CalibrationMonitor.load(path, hoki()).save(path)
    with pytest.raises(ValueError, match="must be the one"):
        CalibrationMonitor.load(path, hoki(3.0))
