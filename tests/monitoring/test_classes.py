"""A class that is off while all together look fine; rows unlike the fit; rows without labels."""

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
    """Confidence, right and predicted: class 1 says 76 % and is right 24 %, the rest makes up."""
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(n) < 0.1, 1, 0)
    confidence = np.where(predicted == 1, rng.uniform(0.66, 0.86, n), rng.uniform(0.6, 0.9, n))
    chance = np.where(predicted == 1, confidence - 0.52, np.minimum(confidence + 0.058, 1.0))
    return confidence, rng.random(n) < chance, predicted


def test_a_class_is_off_while_all_together_look_fine() -> None:
    made = CalibrationMonitor(None, n_classes=2, tolerance=0.02)
    confidence, correct, predicted = hidden(3000, seed=1)
    status = made.update(confidence, correct, predicted=predicted).status()
    worst = status.classes[0]
    assert status.calibration.alarm is None
    assert status.alarmed
    assert (worst.label, worst.n) == (1, int((predicted == 1).sum()))
    assert worst.says == pytest.approx(confidence[predicted == 1].mean())
    assert worst.right == pytest.approx(correct[predicted == 1].mean())
    assert worst.alarm is not None
    assert worst.alarm.direction == "over"
    assert (status.verdict.kind, status.classes[1].alarm) == ("a class is off", None)
    assert status.verdict.text.startswith("rows labelled 1 say 76%, are right 2")
    assert "; overall calibrated: says" in status.verdict.text
    listed = status.to_dict()["classes"][0]
    assert (listed["label"], listed["alarm"]["direction"]) == (1, "over")


def test_an_alarm_about_a_class_stays_when_the_class_is_mended() -> None:
    made = CalibrationMonitor(None, n_classes=2, tolerance=0.1, window=500)
    confidence, correct, predicted = hidden(800, seed=1)
    made.update(confidence, correct, predicted=predicted)
    rng = np.random.default_rng(0)
    confidence, predicted = rng.uniform(0.6, 0.9, 1000), rng.integers(2, size=1000)
    made.update(confidence, rng.random(1000) < confidence, predicted=predicted)
    assert made.status().alarmed
    assert made.status().verdict.kind == "calibrated"
    assert str(made.status()).endswith("; a class was off, not so in the window")


@pytest.mark.slow
def test_false_alarms_about_any_class_are_rare() -> None:
    """Every class off by exactly the tolerance, in both directions: the worst allowed case."""
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        confidence, predicted = rng.uniform(0.3, 0.9, 1500), rng.integers(N_CLASSES, size=1500)
        right = rng.random(1500) < confidence + np.where(predicted % 2, 0.05, -0.05)
        made = CalibrationMonitor(None, n_classes=N_CLASSES, delta=0.2)
        status = made.update(confidence, right, predicted=predicted).status()
        alarms += any(each.alarm is not None for each in status.classes)
    assert alarms <= 12


@max_examples(4)
@given(st.lists(st.integers(0, 400), max_size=4))
def test_cuts_and_merges_do_not_matter(cuts: list[int]) -> None:
    data = hidden(400, seed=2)

    def feed(cuts: list[int]) -> CalibrationMonitor:
        made = CalibrationMonitor(None, n_classes=2, window=200)
        for rows in (slice(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), 400])):
            made.update(data[0][rows], data[1][rows], predicted=data[2][rows])
        return made

    whole = feed([])
    assert exact_state(feed(cuts)) == exact_state(whole)
    other = CalibrationMonitor(None, n_classes=2, window=200).update(
        *(part[:200] for part in data[:2]), predicted=data[2][:200]
    )
    assert exact_state(whole.merge(other)) == exact_state(other.merge(whole))
    rows = [each for each in whole.merge(other).status().classes if each.label == 1]
    assert rows[0].alarm is not None


def test_a_saved_monitor_knows_its_classes(tmp_path: Any) -> None:
    confidence, correct, predicted = hidden(900, seed=3)
    made = CalibrationMonitor(None, n_classes=2).update(confidence, correct, predicted=predicted)
    for each in (made, made.merge(made)):
        each.save(tmp_path / "m.json")
        assert CalibrationMonitor.load(tmp_path / "m.json").status() == each.status()


def test_predicted_classes_are_checked() -> None:
    with pytest.raises(ValueError, match="`predicted` needs the number of classes"):
        CalibrationMonitor(None).update(0.5, True, predicted=1)
    made = CalibrationMonitor(None, n_classes=2)
    with pytest.raises(ValueError, match=r"`predicted` must lie in \[0, 1\]"):
        made.update([0.5], [True], predicted=[2])
    assert made.n == 0
    with pytest.raises(ValueError, match="`class_tolerance` must be at least 0"):
        CalibrationMonitor(None, class_tolerance=1.5)


def test_rows_without_labels_are_inputs_and_rows_unlike_the_fit_are_counted() -> None:
    logits, labels = synthetic_logits(800, 4, seed=1)
    cal = make("temps").fit(logits, labels)
    some = labels.astype(float)
    some[::2] = np.nan
    made = CalibrationMonitor.from_validation(cal, logits, labels).update_logits(logits, some)
    status = made.status()
    assert (status.n, status.n_observed, status.n_seen, status.n_unlike) == (400, 800, 800, 0)
    same = CalibrationMonitor.from_validation(cal, logits, labels)
    same.update_logits(logits, np.where(np.isnan(some), -1, some).astype(int))
    assert exact_state(same) == exact_state(made)
    far = made.update_logits(50.0 * logits).status()
    assert far.n == 400
    assert far.n_unlike is not None
    assert far.n_unlike > 700
    with pytest.raises(ValueError, match=r"`labels` must lie in \[0, 3\]"):
        made.update_logits(logits[:2], [-1, 9])


def test_a_file_is_counted_once() -> None:
    made = CalibrationMonitor(None)
    assert [made.note_batch(name) for name in ("a", "b", "a")] == [True, True, False]
    assert not made.merge(CalibrationMonitor(None)).note_batch("a")


def test_maps_are_watched_by_one_position_per_item() -> None:
    """All positions of an item are right or wrong together: as many witnesses as items."""
    rng = np.random.default_rng(0)

    def maps(n: int) -> tuple[Any, Any]:
        labels = rng.integers(3, size=(n, 6, 5))
        logits = 2 * (rng.normal(size=(n, 6, 5, 3)) + 2 * np.eye(3)[labels])
        labels[:, 0] = 255
        return np.moveaxis(logits, -1, 1), labels

    dense = Dense("temps", class_axis=1, ignore_label=255).fit(*maps(60))
    made = CalibrationMonitor.from_validation(dense, *maps(300))
    made.update_logits(*maps(250)).observe_logits(maps(50)[0])
    assert (made.n, made.status().n_observed) == (250, 300)
    assert made.status().verdict.kind == "calibrated"
    first, second = (dense.draw_positions(*maps(40), random_state=seed)[1] for seed in (0, 1))
    assert first.shape == second.shape == (40,)
