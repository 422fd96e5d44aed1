"""Accuracy and balance of a window without labels."""

from __future__ import annotations

import numpy as np
import pytest

from hokical import CalibrationMonitor, make
from hokical.monitoring import draw_accuracy, read_history
from tests.guarantees.test_shift import NEW, world


@pytest.fixture(scope="module")
def cal():
    return make("temps").fit(*world(4000, seed=0))


def watch(cal, **options) -> CalibrationMonitor:
    options = {"window": 2000} | options
    return CalibrationMonitor.from_validation(cal, *world(2000, seed=1), **options)


def test_expected_accuracy_comes_before_labels(cal, tmp_path) -> None:
    monitor, log = watch(cal), tmp_path / "log.jsonl"
    logits, labels = world(2000, NEW, seed=7)
    assert monitor.status().expected is None
    monitor.observe_logits(logits)
    monitor.append_json_line(log)
    found = monitor.status().expected
    right = (cal.predict(logits) == labels).mean()
    assert found.holds
    assert found.low < right < found.high
    assert not found.dropped, "mean confidence is hardly below that of the fit"
    assert found.balance[0].name == "4"
    assert abs(found.balance[0].share - NEW[4]) < 0.05
    whole = cal.estimate_shift(logits)
    np.testing.assert_allclose(found.accuracy, whole.accuracy, atol=1e-6)
    monitor.update_logits(logits, labels, observed=True)
    monitor.append_json_line(log)
    assert abs(monitor.status().accuracy - right) < 1e-12
    pytest.importorskip("matplotlib")
    lines = draw_accuracy(read_history(log)).get_lines()
    assert [line.get_label() for line in lines] == ["expected", "measured"]
    with pytest.raises(ValueError, match="must hold a status"):
        draw_accuracy([])


def test_a_drop_by_all_that_can_be_told(cal) -> None:
    monitor = watch(cal)
    logits, labels = world(2000, np.array([0.0, 0.0, 0.05, 0.05, 0.9]), seed=8)
    found = monitor.observe_logits(logits).status().expected
    assert found.holds
    assert found.dropped
    assert (
        found.low < (cal.predict(logits) == labels).mean() < found.high < cal.fit_scores_.accuracy
    )


def test_neither_batches_nor_replicas_nor_files_change_it(cal, tmp_path, monkeypatch) -> None:
    from hokical.monitoring import _expected

    monkeypatch.setattr(_expected, "_MOST_NUMBERS", 50 * 5 * 12)  # a pane keeps 12 rows
    logits, _ = world(1500, NEW, seed=3)
    whole, parts = watch(cal), watch(cal)
    whole.observe_logits(logits)
    for rows in np.array_split(logits, 13):
        parts.observe_logits(rows)
    expected = whole.status().expected
    assert parts.status().expected == expected
    whole.save(tmp_path / "monitor.json")
    loaded = CalibrationMonitor.load(tmp_path / "monitor.json", cal)
    assert loaded.status().expected == expected
    one, two = watch(cal), watch(cal)
    one.observe_logits(logits[:700])
    two.observe_logits(logits[700:])
    assert one.merge(two).status().expected == two.merge(one).status().expected


def test_other_changes_leave_the_interval_open(cal) -> None:
    monitor = watch(cal)
    monitor.observe_logits(0.5 * world(2000, seed=4)[0])
    found = monitor.status().expected
    assert (found.holds, found.low, found.high, found.dropped) == (False, 0.0, 1.0, False)


def test_rows_that_come_again_are_no_news(cal) -> None:
    """As in `estimate_shift`: a batch that is fed five times says no more than once."""
    logits, _ = world(400, NEW, seed=4)
    once, often = watch(cal), watch(cal)
    once.observe_logits(logits)
    for _ in range(5):
        often.observe_logits(logits)
    first, second = once.status().expected, often.status().expected
    np.testing.assert_allclose(second.high - second.low, first.high - first.low, rtol=0.05)
