"""JSON lines, the picture and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import CalibrationMonitor, Hoki
from hokical._core.storage import CalibratorFileError, read_document, write_document
from hokical.monitoring import draw_history, read_history
from tests.cli.test_cli import hokical_command, one_line
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


def test_command_goes_on_between_runs(files: Path) -> None:
    places = ("--state", files / "s.json", "--log", files / "l.jsonl")
    words = ("monitor", files / "hoki.json", files / "data.npz", *places, "--model", "mine")
    first = hokical_command(*words)
    assert first.code == 0, first.err
    assert "calibrated: says" in first.out
    before = (files / "s.json").read_bytes()
    assert "was counted before" in one_line(hokical_command(*words))
    assert (files / "s.json").read_bytes() == before
    second = hokical_command(*words, "--json", "--again").json
    assert (second["n"], second["model"]) == (1600, "mine")
    assert [entry["n"] for entry in read_history(files / "l.jsonl")] == [800, 1600]
    loaded = CalibrationMonitor.load(files / "s.json").status().to_dict()  # without a calibrator
    assert loaded == second | {"expected": None}


def test_command_needs_a_reference_for_other_methods(files: Path) -> None:
    words = ("monitor", files / "temps.json", files / "data.npz")
    assert "--reference" in one_line(hokical_command(*words))
    found = hokical_command(*words, "--reference", files / "data.npz", "--json").json
    assert found["inputs"]["shifted"] is False


def test_command_refuses_another_calibrator(files: Path) -> None:
    places = (files / "data.npz", "--state", files / "s.json")
    assert hokical_command("monitor", files / "hoki.json", *places).code == 0
    before = (files / "s.json").read_bytes()
    refused = one_line(hokical_command("monitor", files / "temps.json", *places))
    assert "made with (hoki of 4 classes" in refused
    assert "got temps of 4 classes" in refused
    assert (files / "s.json").read_bytes() == before


def test_command_needs_a_reference_for_a_hoki_of_weights(files: Path) -> None:
    logits, labels = synthetic_logits(800, 4, seed=1)
    Hoki().fit(logits, labels, np.full(800, 0.01)).save(files / "weighted.json")
    words = ("monitor", files / "weighted.json", files / "data.npz")
    assert "--reference" in one_line(hokical_command(*words))
    assert hokical_command(*words, "--reference", files / "data.npz").code == 0


def test_command_refuses_bad_options_and_files(files: Path) -> None:
    words = ("monitor", files / "hoki.json", files / "data.npz")
    assert "`delta` must lie" in one_line(hokical_command(*words, "--delta", 2))
    assert "--window" in one_line(hokical_command(*words, "--window", 0))
    (files / "bad.json").write_text("{")
    assert "cut short" in one_line(hokical_command(*words, "--state", files / "bad.json"))
    assert (files / "bad.json").read_text() == "{"
    assert "input too" in one_line(hokical_command(*words, "--log", files / "data.npz"))


def test_command_ends_with_3_on_an_alarm_and_shows_the_classes(files: Path) -> None:
    logits, labels = synthetic_logits(800, 4, seed=3)
    np.savez(files / "new.npz", logits=logits, labels=np.where(labels == 2, 3, labels))
    words = ("monitor", files / "hoki.json", files / "new.npz")
    ran = hokical_command(*words)
    assert ran.code == 3
    assert "rows labelled 2 say" in ran.out
    assert "rows labelled    says   is right" in ran.out
    assert "nan" not in ran.out + hokical_command(*words, "--json").out.lower()


def test_command_takes_times_and_rows_without_labels(files: Path) -> None:
    logits, labels = synthetic_logits(600, 4, seed=2)
    lines = ["logit_0,logit_1,logit_2,logit_3,label,at"]
    for row, (scores, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        cells = [*map(str, scores), "" if row % 3 else str(label)]
        lines.append(",".join([*cells, f"2026-03-01T{row // 60:02d}:00:00Z"]))
    (files / "new.csv").write_text("\n".join(lines))
    words = ("monitor", files / "hoki.json", files / "new.csv", "--window", "2h")
    found = hokical_command(*words, "--timestamp", "at", "--json").json
    assert (found["n"], found["n_observed"], found["window"]) == (200, 600, "the last 2:00:00")
    assert found["n_window"] == 40
    assert "--timestamp" in one_line(hokical_command(*words))
    assert "2026-03-01" not in hokical_command(*words, "--timestamp", "at").err
    np.savez(files / "bare.npz", logits=logits)
    none = hokical_command("monitor", files / "hoki.json", files / "bare.npz")
    assert "0 so far" in none.out
    assert "nan" not in none.out


def test_command_takes_maps(files: Path) -> None:
    logits, labels = synthetic_logits(300 * 6, 4, seed=2)
    shaped = np.moveaxis(logits.reshape(300, 2, 3, 4), -1, 1)
    np.savez(files / "maps.npz", logits=shaped, labels=labels.reshape(300, 2, 3))
    words = ("monitor", files / "hoki.json", files / "maps.npz", "--class-axis", 1)
    found = hokical_command(*words, "--reference", files / "maps.npz", "--json").json
    assert (found["n"], found["n_observed"]) == (300, 300)
    assert "--class-axis" in one_line(hokical_command(*words[:3]))


def test_numbers_that_make_no_status_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    CalibrationMonitor(None).update(np.full(300, 0.7), np.arange(300) % 10 < 7).save(path)
    document = read_document(path)
    sums = document["state"].labelled.held[0]
    document["state"].labelled.held[0] = replace(sums, error_words=-1e300 * sums.error_words)
    write_document(path, document)
    with pytest.raises(CalibratorFileError, match="unusable numbers"):
        CalibrationMonitor.load(path)
