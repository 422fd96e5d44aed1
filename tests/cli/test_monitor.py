"""`hokical monitor`: a monitor that goes on between runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical import CalibrationMonitor, Hoki
from tests.cli.running import hokical_command, one_line
from tests.conftest import synthetic_logits


@pytest.fixture
def files(tmp_path: Path) -> Path:
    val, test = (synthetic_logits(800, 4, seed=seed) for seed in (1, 2))
    new_rows = {"test_logits": test[0], "test_labels": test[1]}
    np.savez(tmp_path / "data.npz", val_logits=val[0], val_labels=val[1], **new_rows)
    for name in ("hoki", "temps"):
        completed = hokical_command(
            "fit",
            tmp_path / "data.npz",
            "-o",
            tmp_path / f"{name}.json",
            "--method",
            name,
        )
        assert completed.code == 0
    return tmp_path


def test_it_goes_on_between_runs(files: Path) -> None:
    command = (
        "monitor",
        files / "hoki.json",
        files / "data.npz",
        "--state",
        files / "s.json",
    )
    first = hokical_command(*command)
    assert first.code == 0, first.err
    assert "calibrated: confidence" in first.out
    before = (files / "s.json").read_bytes()
    assert "800 rows were counted before" in one_line(hokical_command(*command))
    assert (files / "s.json").read_bytes() == before
    second = hokical_command(*command, "--json", "--again").json
    assert second["n"] == 1600
    assert CalibrationMonitor.load(files / "s.json").status().n == 1600


@pytest.mark.parametrize("method", ["hoki", "temps"])
def test_a_reference_travels_with_the_calibrator(files: Path, method: str) -> None:
    command = ("monitor", files / f"{method}.json", files / "data.npz", "--json")
    assert hokical_command(*command).json["inputs"]["shifted"] is False
    with_reference = hokical_command(*command, "--reference", files / "data.npz").json
    assert with_reference["inputs"]["shifted"] is False


def test_fits_with_weights_need_a_reference(files: Path) -> None:
    logits, labels = synthetic_logits(800, 4, seed=1)
    Hoki().fit(logits, labels, np.linspace(0.1, 1, 800)).save(files / "weighted.json")
    command = ("monitor", files / "weighted.json", files / "data.npz")
    assert "--reference" in one_line(hokical_command(*command))
    assert hokical_command(*command, "--reference", files / "data.npz").code == 0


def test_late_labels_are_joined_by_id(files: Path) -> None:
    logits, labels = synthetic_logits(300, 4, seed=2)
    ids = [f"row {k}" for k in range(300)]
    np.savez(files / "new.npz", logits=logits, ids=ids)
    np.savez(files / "later.npz", logits=logits, labels=labels, ids=ids)
    state = ("--state", files / "s.json", "--id-column", "ids", "--json")
    command = ("monitor", files / "temps.json")
    first = hokical_command(*command, files / "new.npz", *state).json
    assert (first["n"], first["n_observed"], first["n_waiting"]) == (0, 300, 300)
    second = hokical_command(*command, files / "later.npz", *state).json
    assert (second["n"], second["n_observed"], second["n_waiting"]) == (300, 300, 0)
    refused = one_line(hokical_command(*command, files / "later.npz", *state))
    assert "'row 0' was counted with its label before" in refused


def test_late_labels_without_ids_are_refused(files: Path) -> None:
    logits, labels = synthetic_logits(300, 4, seed=2)
    np.savez(files / "new.npz", logits=logits)
    np.savez(files / "later.npz", logits=logits, labels=labels)
    state = ("--state", files / "s.json")
    assert (
        hokical_command("monitor", files / "temps.json", files / "new.npz", *state).code
        == 0
    )
    refused = hokical_command(
        "monitor", files / "temps.json", files / "later.npz", *state
    )
    assert "If only their labels are new, name --id-column" in one_line(refused)


def test_another_calibrator_is_refused(files: Path) -> None:
    options = (files / "data.npz", "--state", files / "s.json")
    assert hokical_command("monitor", files / "hoki.json", *options).code == 0
    before = (files / "s.json").read_bytes()
    refused = one_line(hokical_command("monitor", files / "temps.json", *options))
    assert "made with, hoki of 4 classes" in refused
    assert "got temps of 4 classes" in refused
    assert (files / "s.json").read_bytes() == before


def test_bad_options_and_files_are_refused(files: Path) -> None:
    command = ("monitor", files / "hoki.json", files / "data.npz")
    assert "`delta` must lie" in one_line(hokical_command(*command, "--delta", 2))
    assert "--window" in one_line(hokical_command(*command, "--window", 0))
    (files / "bad.json").write_text("{")
    assert "cut short" in one_line(
        hokical_command(*command, "--state", files / "bad.json")
    )
    assert (files / "bad.json").read_text() == "{"
    assert "input too" in one_line(
        hokical_command(*command, "--state", files / "data.npz")
    )


def test_an_alarm_ends_with_3_and_shows_the_classes(files: Path) -> None:
    logits, labels = synthetic_logits(800, 4, seed=3)
    np.savez(files / "new.npz", logits=logits, labels=np.where(labels == 2, 3, labels))
    command = ("monitor", files / "hoki.json", files / "new.npz")
    ran = hokical_command(*command)
    assert ran.code == 3
    assert "predicted class 2: confidence" in ran.out
    assert "predicted class   confidence   accuracy" in ran.out
    assert "nan" not in ran.out + hokical_command(*command, "--json").out.lower()


def test_rows_without_labels_count_among_the_inputs(files: Path) -> None:
    logits, labels = synthetic_logits(600, 4, seed=2)
    lines = ["logit_0,logit_1,logit_2,logit_3,label"]
    for row, (scores, label) in enumerate(
        zip(logits.tolist(), labels.tolist(), strict=True)
    ):
        lines.append(",".join([*map(str, scores), "" if row % 3 else str(label)]))
    (files / "new.csv").write_text("\n".join(lines))
    command = (
        "monitor",
        files / "hoki.json",
        files / "new.csv",
        "--window",
        40,
        "--json",
    )
    status = hokical_command(*command).json
    assert (status["n"], status["n_observed"], status["n_window"]) == (200, 600, 40)
    np.savez(files / "bare.npz", logits=logits)
    none = hokical_command("monitor", files / "hoki.json", files / "bare.npz")
    assert "0 so far" in none.out
    assert "nan" not in none.out


def test_a_bad_option_is_named(files: Path) -> None:
    command = ("monitor", files / "hoki.json", files / "data.npz")
    text = one_line(hokical_command(*command, "--coverage", "1.5"))
    assert text.startswith(
        "Error: `coverage` must lie strictly between 0 and 1; got 1.5."
    )
