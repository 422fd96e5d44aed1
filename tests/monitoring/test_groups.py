"""An alarm about a group that is miscalibrated, none about the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical import CalibrationMonitor
from tests.conftest import grouped_examples


def stream(n: int, seed: int, gap: float = 0.0) -> tuple[np.ndarray, np.ndarray, dict]:
    rng = np.random.default_rng(seed)
    groups = {
        "site": rng.choice(["north", "west"], n),
        "sex": rng.choice(["f", "m"], n),
    }
    confidence = rng.uniform(0.6, 1.0, n)
    right = rng.uniform(size=n) < confidence - gap * (groups["site"] == "west")
    return confidence, right, groups


def test_a_group_that_is_off_is_named() -> None:
    groups = stream(50, 0)[2]
    monitor = CalibrationMonitor(None, groups=groups)
    confidence, right, groups = stream(6000, 1, gap=0.1)
    monitor.update(confidence, right, groups=groups)
    status = monitor.status()
    alarms = {each.name for each in status.groups if each.alarm is not None}
    assert alarms == {"site=west"}
    assert status.alarmed
    assert "group site=west: confidence" in str(status.verdict)


def test_cuts_and_files_change_nothing(tmp_path: Path) -> None:
    confidence, right, groups = stream(2000, 2, gap=0.1)
    whole = CalibrationMonitor(None, groups=groups)
    whole.update(confidence, right, groups=groups)
    parts = CalibrationMonitor(None, groups=groups)
    for rows in (slice(0, 700), slice(700, 2000)):
        some = {name: column[rows] for name, column in groups.items()}
        parts.update(confidence[rows], right[rows], groups=some)
        parts.save(tmp_path / "monitor.json")
        parts = CalibrationMonitor.load(tmp_path / "monitor.json")
    assert parts.status().groups == whole.status().groups


@pytest.mark.slow
def test_false_alarms_about_any_group_are_rare() -> None:
    alarms = 0
    for seed in range(100):
        confidence, right, groups = stream(1500, seed)
        monitor = CalibrationMonitor(None, groups=groups, delta=0.1)
        monitor.update(confidence, right, groups=groups)
        alarms += any(each.alarm is not None for each in monitor.status().groups)
    assert alarms <= 10 + 3 * 3


def test_a_calibrator_that_learned_from_groups_is_watched_by_them() -> None:
    logits, labels, site = grouped_examples(2000, seed=0)
    cal = hokical.auto(logits, labels, groups=site)
    held = grouped_examples(1000, seed=1)
    monitor = CalibrationMonitor.from_validation(cal, *held[:2], groups=held[2])
    new = grouped_examples(1000, seed=2)
    monitor.update_logits(*new[:2], groups=new[2])
    assert sum(each.n for each in monitor.status().groups) == 1000
    with pytest.raises(ValueError, match="`groups` must be given"):
        monitor.update_logits(*new[:2])
    with pytest.raises(ValueError, match="made without them"):
        CalibrationMonitor(None).update([0.9], [True], groups=["a"])


def test_groups_that_the_fit_left_out_may_be_passed() -> None:
    logits, labels, site = grouped_examples(1000, seed=0, effect=0.0)
    cal = hokical.auto(logits, labels, groups=site)
    assert cal.groups_ == []
    monitor = CalibrationMonitor(cal).update_logits(
        *grouped_examples(500, seed=1)[:2], groups=grouped_examples(500, seed=1)[2]
    )
    assert monitor.status().groups == ()


def test_groups_of_rows_that_wait_for_labels() -> None:
    confidence, right, groups = stream(3000, 3, gap=0.1)
    now, later = (CalibrationMonitor(None, groups=groups) for _ in range(2))
    now.update(confidence, right, groups=groups)
    later.update(confidence, ids=range(3000), groups=groups)
    assert later.status().groups == ()
    assert later.add_labels(range(3000), right).status().groups == now.status().groups
