"""Prediction sets in production: from Python, in files, and from the shell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hokical import CalibrationMonitor, ConfidenceCalibrator, make
from hokical.cli import app
from hokical.guarantees import plan
from hokical.monitoring import CoverageMonitor
from tests.conftest import softmax_examples


def watched(certified: int = 2000, **options: Any) -> CalibrationMonitor:
    val = softmax_examples(300, seed=1)
    cal = make("temps").fit(*val).certify(*softmax_examples(certified, seed=2))
    return CalibrationMonitor.from_validation(cal, *val, coverage=0.9, **options)


def shifted(n: int, seed: int) -> Any:
    """Rows of which a third have another label than the classifier was made for."""
    logits, labels = softmax_examples(n, seed=seed)
    return logits, np.where(np.arange(n) % 3 == 0, (labels + 1) % 6, labels)


def test_sets_are_watched_with_the_confidence() -> None:
    monitor = watched()
    logits, labels = softmax_examples(3000, seed=3)
    late = np.where(np.arange(3000) % 3 == 0, -1, labels)
    calm = monitor.update_logits(logits, late, ids=range(3000)).status()
    assert calm.sets is not None
    assert (calm.sets.n, calm.sets.alarm, calm.alarmed) == (2000, None, False)
    members = monitor.calibrator.predict_set(logits, coverage=0.9).members
    assert calm.sets.covered == pytest.approx(
        members[np.arange(3000), labels][late >= 0].mean()
    )
    monitor.add_labels(range(0, 3000, 3), labels[::3])
    assert monitor.status().sets.covered == members[np.arange(3000), labels].mean()
    off = monitor.update_logits(*shifted(3000, 4)).status()
    assert off.sets.n == 6000
    assert off.sets.alarm is not None
    assert off.sets.alarm.n > 3000
    assert (
        "less than the guaranteed 0.9, started no later than label" in off.verdict.text
    )
    assert CalibrationMonitor(None).status().sets is None


def test_batches_and_restarts_change_nothing(tmp_path: Path) -> None:
    logits, labels = shifted(2000, 5)
    whole, cut = watched(), watched()
    whole.update_logits(logits, labels)
    for first in range(0, 2000, 300):
        rows = slice(first, first + 300)
        cut.update_logits(logits[rows], labels[rows]).save(tmp_path / "m.json")
        cut = CalibrationMonitor.load(tmp_path / "m.json", cut.calibrator)
    assert cut.status().sets == whole.status().sets


@pytest.mark.slow
def test_few_certified_examples_are_not_held_against_the_sets() -> None:
    few = CoverageMonitor.of(watched(100).calibrator, 0.9)
    assert few.tolerance == pytest.approx(
        0.9 - plan(coverage=0.9, examples=(100,)).low[0]
    )
    assert CoverageMonitor.of(watched(9000).calibrator, 0.9).tolerance == 0.01
    alarms = 0
    for seed in range(60):
        cal = make("temps").fit(*softmax_examples(200, seed=1))
        cal.certify(*softmax_examples(60, seed=100 + seed))
        logits, labels = softmax_examples(3000, seed=1000 + seed)
        monitor = CoverageMonitor.of(cal, 0.9, delta=0.05)
        found = cal.predict_set(logits, coverage=0.9)
        alarms += monitor.update_sets(found, labels).alarm is not None
    assert alarms <= 12  # 10 % of 60, and three standard errors


def test_coverage_from_the_shell(tmp_path: Path) -> None:
    def run(*words: Any, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    for name, (logits, labels) in (
        ("val", softmax_examples(300, seed=1)),
        ("more", softmax_examples(2000, seed=2)),
        ("new", softmax_examples(1500, seed=3)),
        ("off", shifted(3000, 4)),
    ):
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    val, cal, state = tmp_path / "val.npz", tmp_path / "cal.json", tmp_path / "m.json"
    run("fit", val, "-o", cal, "--method", "temps")
    run("certify", cal, tmp_path / "more.npz")
    sets = ("--coverage", 0.9, "--state", state)
    text = run("monitor", cal, tmp_path / "new.npz", "--reference", val, *sets)
    assert "of 1,500 labels, 0.9 was guaranteed" in text
    other = ("--coverage", 0.8, "--state", state)
    assert "watches 0.9" in run("monitor", cal, tmp_path / "off.npz", *other, code=2)
    words = ("monitor", cal, tmp_path / "off.npz", "--state", state, "--json")
    shown = json.loads(run(*words, code=3).partition("Warning")[0])
    assert shown["sets"]["n"] == 4500
    assert shown["sets"]["alarm"]["direction"] == "over"


def test_coverage_needs_a_calibrator_of_logits(tmp_path: Path) -> None:
    stated = np.linspace(0.1, 0.9, 40)
    right = np.arange(40) % 2 == 0
    cal = ConfidenceCalibrator().fit(stated, right)
    for wrong in (None, cal):
        for work in (
            lambda wrong=wrong: CalibrationMonitor(wrong, coverage=0.9),
            lambda wrong=wrong: CalibrationMonitor.from_validation(
                wrong, stated, right, coverage=0.9
            ),
        ):
            with pytest.raises(
                TypeError, match="`coverage` needs a calibrator of logits; got"
            ):
                work()
    old = CalibrationMonitor(cal)  # as written before this was refused
    old._state.options = replace(old.options, coverage=0.9)
    old.save(tmp_path / "old.json")
    assert CalibrationMonitor.load(tmp_path / "old.json", cal).status().sets is None
