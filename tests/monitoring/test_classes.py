"""A class that is miscalibrated while all together look fine; rows without labels;
maps.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import CalibrationMonitor, make
from hokical.dense import Dense
from tests.conftest import max_examples, synthetic_logits
from tests.monitoring.streams import exact_state

N_CLASSES = 4


def hidden(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Confidence, right and predicted: class 1 says 76 % and is right 24 %, the rest
    makes up.
    """
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(n) < 0.1, 1, 0)
    confidence = np.where(
        predicted == 1, rng.uniform(0.66, 0.86, n), rng.uniform(0.6, 0.9, n)
    )
    chance = np.where(
        predicted == 1, confidence - 0.52, np.minimum(confidence + 0.058, 1.0)
    )
    return confidence, rng.random(n) < chance, predicted


def test_a_class_is_off_while_all_together_look_fine() -> None:
    monitor = CalibrationMonitor(None, n_classes=2, tolerance=0.02)
    confidence, correct, predicted = hidden(3000, seed=1)
    status = monitor.update(confidence, correct, predicted=predicted).status()
    worst = status.classes[0]
    assert status.calibration.alarm is None
    assert status.alarmed
    assert (worst.label, worst.n) == (1, int((predicted == 1).sum()))
    assert worst.mean_confidence == pytest.approx(confidence[predicted == 1].mean())
    assert worst.accuracy == pytest.approx(correct[predicted == 1].mean())
    assert worst.alarm is not None
    assert worst.alarm.direction == "over"
    assert (status.verdict.kind, status.classes[1].alarm) == (
        "class miscalibrated",
        None,
    )
    assert status.verdict.text.startswith(
        "predicted class 1: confidence 76%, accuracy 2"
    )
    assert "; overall calibrated: confidence" in status.verdict.text
    listed = status.to_dict()["classes"][0]
    assert (listed["label"], listed["alarm"]["direction"]) == (1, "over")


def test_an_alarm_about_a_class_stays_when_the_class_is_mended() -> None:
    monitor = CalibrationMonitor(None, n_classes=2, tolerance=0.1, window=500)
    confidence, correct, predicted = hidden(800, seed=1)
    monitor.update(confidence, correct, predicted=predicted)
    rng = np.random.default_rng(0)
    confidence, predicted = rng.uniform(0.6, 0.9, 1000), rng.integers(2, size=1000)
    monitor.update(confidence, rng.random(1000) < confidence, predicted=predicted)
    assert monitor.status().alarmed
    assert monitor.status().verdict.kind == "calibrated"
    assert str(monitor.status()).endswith(
        "; a predicted class was miscalibrated, not in the window"
    )


@pytest.mark.slow
def test_false_alarms_about_any_class_are_rare() -> None:
    """Every class off by exactly the tolerance, in both directions: the worst
    allowed case.
    """
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        confidence, predicted = (
            rng.uniform(0.3, 0.9, 1500),
            rng.integers(N_CLASSES, size=1500),
        )
        right = rng.random(1500) < confidence + np.where(predicted % 2, 0.05, -0.05)
        monitor = CalibrationMonitor(None, n_classes=N_CLASSES, delta=0.2)
        status = monitor.update(confidence, right, predicted=predicted).status()
        alarms += any(class_status.alarm is not None for class_status in status.classes)
    assert alarms <= 12


@max_examples(4)
@given(st.lists(st.integers(0, 400), max_size=4))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    data = hidden(400, seed=2)

    def feed(cuts: list[int]) -> CalibrationMonitor:
        monitor = CalibrationMonitor(None, n_classes=2, window=200)
        for rows in (
            slice(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), 400])
        ):
            numbers = np.arange(400)[rows]
            monitor.update(
                data[0][rows], data[1][rows], predicted=data[2][rows], ids=numbers
            )
        return monitor

    uncut = feed([])
    assert exact_state(feed(cuts)) == exact_state(uncut)


def test_a_saved_monitor_knows_its_classes(tmp_path: Any) -> None:
    confidence, correct, predicted = hidden(900, seed=3)
    monitor = CalibrationMonitor(None, n_classes=2).update(
        confidence, correct, predicted=predicted
    )
    monitor.save(tmp_path / "m.json")
    assert CalibrationMonitor.load(tmp_path / "m.json").status() == monitor.status()


def test_predicted_classes_are_checked() -> None:
    with pytest.raises(ValueError, match="`predicted` needs the number of classes"):
        CalibrationMonitor(None).update(0.5, True, predicted=1)
    monitor = CalibrationMonitor(None, n_classes=2)
    with pytest.raises(ValueError, match=r"`predicted` must lie in \[0, 1\]"):
        monitor.update([0.5], [True], predicted=[2])
    assert monitor.n == 0
    with pytest.raises(ValueError, match="`class_tolerance` must be at least 0"):
        CalibrationMonitor(None, class_tolerance=1.5)


def test_rows_without_labels_are_inputs() -> None:
    logits, labels = synthetic_logits(800, 4, seed=1)
    cal = make("temps").fit(logits, labels)
    labels_of_some = labels.astype(float)
    labels_of_some[::2] = np.nan
    monitor = CalibrationMonitor(cal).update_logits(logits, labels_of_some)
    assert (monitor.n, monitor.status().n_observed, monitor.status().n_waiting) == (
        400,
        800,
        0,
    )
    same = CalibrationMonitor(cal)
    same.update_logits(
        logits, np.where(np.isnan(labels_of_some), -1, labels_of_some).astype(int)
    )
    assert exact_state(same) == exact_state(monitor)
    with pytest.raises(ValueError, match=r"`labels` must lie in \[0, 3\]"):
        monitor.update_logits(logits[:2], [-1, 9])


def test_maps_are_watched_by_one_position_per_item() -> None:
    """All positions of an item are right or wrong together: as many independent rows
    as items.
    """
    rng = np.random.default_rng(0)

    def maps(n: int) -> tuple[Any, Any]:
        labels = rng.integers(3, size=(n, 6, 5))
        logits = 2 * (rng.normal(size=(n, 6, 5, 3)) + 2 * np.eye(3)[labels])
        return logits, labels

    dense = Dense("temps").fit(*maps(60))
    cal = dense.fitted_calibrator()
    monitor = CalibrationMonitor.from_validation(cal, *dense.draw_positions(*maps(300)))
    monitor.update_logits(*dense.draw_positions(*maps(250)))
    assert monitor.n == 250
    assert monitor.status().verdict.kind == "calibrated"
    with pytest.raises(TypeError, match="for a `Dense`, its"):
        CalibrationMonitor(dense)  # type: ignore[arg-type]
