"""Prediction sets on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hokical import load
from hokical.cli import app
from tests.guarantees.test_sets import world


def run(*args: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for part, seed in (("val", 1), ("test", 2)):
        logits, labels = world(500, 3, seed=seed)
        np.savez(tmp_path / f"{part}.npz", logits=logits, labels=labels)
    names = "--classes", "cat,dog,bird"
    run("fit", tmp_path / "val.npz", "--method", "temps", "-o", tmp_path / "cal.json", *names)
    return tmp_path


def test_apply_writes_the_names(files: Path) -> None:
    output = files / "out.csv"
    text = run("apply", files / "cal.json", files / "test.npz", "-o", output, "--coverage", "0.9")
    assert "At least 0.9 of new examples" in " ".join(text.split())
    rows = list(csv.DictReader(output.read_text().splitlines()))
    found = load(files / "cal.json").predict_set(
        np.load(files / "test.npz")["logits"], coverage=0.9
    )
    names = np.array(["cat", "dog", "bird"])
    assert rows[0]["set"] == "|".join(names[found.members[0]])
    assert [int(row["set_size"]) for row in rows] == found.sizes.tolist()
    arrays = files / "out.npz"
    run("apply", files / "cal.json", files / "test.npz", "-o", arrays, "--coverage", "0.9")
    np.testing.assert_array_equal(np.load(arrays)["members"], found.members)
    wrong = run(
        "apply", files / "cal.json", files / "test.npz", "-o", output, "--coverage", "2", code=2
    )
    assert "--coverage" in wrong


def test_evaluate_and_compare_show_sets(files: Path) -> None:
    test = files / "test.npz"
    args = ("evaluate", test, "--calibrator", files / "cal.json", "--coverage", "0.9")
    assert "Prediction sets at 0.9, on 500 examples" in run(*args, "--resamples", "0")
    shown = json.loads(run(*args, "--resamples", "0", "--json"))
    assert shown["temps"]["sets"]["goal"] == 0.9
    pair = ("compare", files / "val.npz", test, "--methods", "temps", "--resamples", "0")
    assert "Prediction sets at 0.9, on 250" in run(*pair, "--coverage", "0.9")
    assert "--coverage" in run("evaluate", test, "--coverage", "0.9", code=2)


def test_plan_counts_examples() -> None:
    assert "Below 9 examples every set holds every class." in run("plan", "--coverage", "0.9")
    shown = json.loads(run("plan", "--coverage", "0.9", "--delta", "0.1", "--json"))
    assert shown["fewest"] == 22
