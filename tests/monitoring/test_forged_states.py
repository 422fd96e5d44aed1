"""Files of streams with forged values are refused when they are loaded, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import CalibrationMonitor, CalibratorFileError, make
from hokical._core.storage import checksum
from hokical.monitoring import OnlineSets
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(120, 3, seed=1)
CALIBRATOR = make("temps").fit(LOGITS, LABELS)
CALIBRATOR.certify(*synthetic_logits(120, 3, seed=2))


def forge(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the state in a file, and its checksum."""
    document = json.loads(path.read_text())
    change(document["state"])
    del document["checksum"]
    path.write_text(json.dumps(document | {"checksum": checksum(document)}))


def set_waiting(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda state: state["waiting"]["rows"]["7"]["$tuple"].__setitem__(
        place, value
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state["test"].update(n={}), "`n` must be an integer"),
        (lambda state: state["test"].update(delta=2.0), "`delta` must be"),
        (lambda state: state["options"].update(n_bins=2**31), "must have .* bins"),
        (lambda state: state.update(n=0.5), "`n` must be an integer"),
        (lambda state: state["waiting"].update(rows=[]), "`rows` must hold"),
        (set_waiting(0, 2.0), "`rows` must hold predictions"),
        (set_waiting(1, "a"), "`rows` must hold predictions"),
        (set_waiting(2, {"$tuple": [1]}), "must have 0 columns of groups"),
        (set_waiting(4, 0.5), "`rows` must hold predictions"),
        (lambda state: state["sets"].update(_covered=None), "`_covered` must be"),
        (lambda state: state["classes"].update(tolerance=[]), "`tolerance` must be"),
    ],
)
def test_monitors(change: Callable[[Any], Any], words: str, tmp_path) -> None:
    monitor = CalibrationMonitor(CALIBRATOR, n_classes=3, coverage=0.8)
    monitor.update_logits(LOGITS, ids=np.arange(120)).save(tmp_path / "m.json")
    CalibrationMonitor.load(tmp_path / "m.json", CALIBRATOR)
    forge(tmp_path / "m.json", change)
    with pytest.raises(CalibratorFileError, match=rf"m\.json .*{words}"):
        CalibrationMonitor.load(tmp_path / "m.json", CALIBRATOR)


@pytest.mark.parametrize(
    "row",
    [
        [0.5, True],
        [np.zeros(6), np.zeros(4, np.int8)],
        [np.zeros(7), np.zeros(4, np.int8)],
        [np.full(6, 50.0), np.zeros(3, np.int8)],
        [np.zeros(6), np.full(3, 2, np.int8)],
    ],
)
def test_online_sets(row: list[Any], tmp_path) -> None:
    sets = OnlineSets(CALIBRATOR, coverage=0.8)
    sets.predict_set(LOGITS, ids=np.arange(120))
    sets.save(tmp_path / "m.json")
    OnlineSets.load(tmp_path / "m.json", CALIBRATOR)
    stored = [_as_stored(value) for value in row]
    forge(tmp_path / "m.json", lambda state: state["rows"].update({"7": stored}))
    with pytest.raises(CalibratorFileError, match=r"m\.json "):
        OnlineSets.load(tmp_path / "m.json", CALIBRATOR)


def _as_stored(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    shape, dtype = [*value.shape], value.dtype.name
    return {"$array": {"dtype": dtype, "shape": shape, "values": value.tolist()}}
