"""JSON lines, the picture and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import CalibrationMonitor
from hokical._core.storage import CalibratorFileError, read_document, write_document
from hokical.monitoring import draw_history, read_history
from tests.cli.running import hokical_command
from tests.conftest import synthetic_logits
from tests.monitoring.streams import reference, stream

NASTY = 'a "quoted"\\name\nof two lines, {x="y"}'


def monitor(n: int = 3000, gap: float = 0.0, **options: Any) -> CalibrationMonitor:
    made = CalibrationMonitor(reference(), **options)
    return made.update(*stream(n, seed=1, gap=gap)) if n else made


# JSON lines


def test_json_line_is_the_status(tmp_path: Path) -> None:
    made = monitor(gap=0.1, model=NASTY)
    line = made.to_json_line()
    assert "\n" not in line
    found = json.loads(line, parse_constant=pytest.fail)
    assert found == made.status().to_dict()
    assert found["calibration"]["alarm"]["direction"] == "over"
    assert found["verdict"]["kind"] == "over-confident"
    empty = json.loads(monitor(0).to_json_line(), parse_constant=pytest.fail)
    assert (empty["accuracy"], empty["ece"]["value"], empty["inputs"]) == (None, None, None)


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    made = monitor()
    made.append_json_line(path)
    made.update(*stream(500, seed=2)).append_json_line(path)
    assert [entry["n"] for entry in read_history(path)] == [3000, 3500]
    assert read_history(path)[1] == made.status().to_dict()


def test_a_line_that_a_crash_has_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    monitor().append_json_line(path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:200])
    monitor().append_json_line(path)
    with pytest.warns(RuntimeWarning, match="line 2, was cut short"):
        assert [entry["n"] for entry in read_history(path)] == [3000, 3000]
    path.write_text('{"other": 1}\n')
    with pytest.raises(ValueError, match="line 1, must be a status of a monitor"):
        read_history(path)


# the picture


def history(timed: bool) -> list[Any]:
    made = CalibrationMonitor(None, window=2000)
    found = [made.status()]
    for day in range(12):
        data = stream(500, seed=day, gap=0.06 if day > 5 else 0.0)
        found.append(made.update(*data, 1.7e9 + 86400.0 * day if timed else None).status())
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("timed", [False, True])
def test_picture_of_a_history(tmp_path: Path, timed: bool) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    statuses = history(timed)
    ax = draw_history(statuses)
    line = ax.get_lines()[0]
    assert np.array_equal(line.get_ydata(), [status.ece.value for status in statuses[1:]])
    assert ax.get_xlabel() == ("time (UTC)" if timed else "labels so far")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[-1].startswith("alarm: over-confident by about")
    ax.figure.canvas.draw()
    plt.close("all")
    with pytest.raises(ValueError, match="at least one status with labels"):
        draw_history([statuses[0]])


# the command


@pytest.fixture
def files(tmp_path: Path) -> Path:
    val, test = (synthetic_logits(800, 4, seed=seed) for seed in (1, 2))
    np.savez(
        tmp_path / "data.npz",
        val_logits=val[0],
        val_labels=val[1],
        test_logits=test[0],
        test_labels=test[1],
    )
    for name in ("hoki", "temps"):
        made = hokical_command(
            "fit", tmp_path / "data.npz", "-o", tmp_path / f"{name}.json", "--method", name
        )
        assert made.code == 0
    return tmp_path


def test_numbers_that_make_no_status_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    CalibrationMonitor(None).update(np.full(300, 0.7), np.arange(300) % 10 < 7).save(path)
    document = read_document(path)
    sums = document["state"].labelled.held[0]
    document["state"].labelled.held[0] = replace(sums, error_words=-1e300 * sums.error_words)
    write_document(path, document)
    with pytest.raises(CalibratorFileError, match="unusable numbers"):
        CalibrationMonitor.load(path)
