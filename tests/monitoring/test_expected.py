"""Accuracy of a window without labels."""

from __future__ import annotations

import numpy as np
import pytest

from hokical import CalibrationMonitor, make
from tests.guarantees.test_shift import NEW, world


@pytest.fixture(scope="module")
def cal():
    return make("temps").fit(*world(4000, seed=0))


def watch(cal, **options) -> CalibrationMonitor:
    options = {"window": 2000} | options
    return CalibrationMonitor.from_validation(cal, *world(2000, seed=1), **options)


def test_accuracy_is_estimated_before_labels_arrive(cal) -> None:
    monitor = watch(cal)
    logits, labels = world(2000, NEW, seed=7)
    with pytest.raises(ValueError, match="needs predictions of `update_logits`"):
        monitor.estimate_shift()
    found = monitor.update_logits(logits, ids=range(2000)).estimate_shift()
    right = (cal.predict(logits) == labels).mean()
    assert found.holds
    low, high = found.accuracy_interval
    assert low < right < high
    np.testing.assert_allclose(found.accuracy, cal.estimate_shift(logits).accuracy, atol=1e-4)
    np.testing.assert_allclose(found.class_frequencies[4], NEW[4], atol=0.05)
    monitor.add_labels(range(2000), labels)
    assert abs(monitor.status().accuracy - right) < 1e-12


def test_neither_batches_nor_files_change_it(cal, tmp_path, monkeypatch) -> None:
    from hokical.monitoring import _rows

    monkeypatch.setattr(_rows, "_MOST_LOGITS", 600 * 5)  # some 450 of 1500 rows are kept
    logits, _ = world(1500, NEW, seed=3)
    whole, parts = watch(cal), watch(cal)
    whole.update_logits(logits)
    for rows in np.array_split(logits, 13):
        parts.update_logits(rows)
    expected = whole.estimate_shift()
    assert 350 < expected.n < 550
    whole.save(tmp_path / "monitor.json")
    for same in (parts, CalibrationMonitor.load(tmp_path / "monitor.json", cal)):
        assert same.estimate_shift().accuracy == expected.accuracy


def test_the_sample_is_of_the_window(cal) -> None:
    monitor = watch(cal, window=700)
    for seed in (4, 5):
        monitor.update_logits(world(1000, seed=seed)[0])
    newest = world(1000, seed=5)[0][300:].astype(np.float32)
    assert monitor.estimate_shift().accuracy == cal.estimate_shift(newest).accuracy


def test_other_changes_leave_the_interval_open(cal) -> None:
    found = watch(cal).update_logits(0.5 * world(2000, seed=4)[0]).estimate_shift()
    assert not found.holds
    assert found.accuracy_interval.tolist() == [0.0, 1.0]
