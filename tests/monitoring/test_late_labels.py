"""Labels that arrive later: joined by id, counted once, and refused where they are
ambiguous.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import CalibrationMonitor, make
from hokical._core.reading import as_partial_labels
from tests.conftest import synthetic_logits
from tests.monitoring.streams import exact_state, monitor, stream

CONFIDENCE, CORRECT = stream(1500, seed=3, gap=0.08)
IDS = np.arange(1500)


def same(first: CalibrationMonitor, second: CalibrationMonitor) -> bool:
    return first.status() == second.status()


def test_labels_that_arrive_later_count_as_those_at_once() -> None:
    now = monitor().update(CONFIDENCE, CORRECT, ids=IDS)
    later = monitor().update(CONFIDENCE, ids=IDS)
    waiting = later.status()
    assert (waiting.n, waiting.n_observed, waiting.n_waiting) == (0, 1500, 1500)
    assert waiting.inputs == now.status().inputs
    assert np.isnan(waiting.accuracy)
    for rows in np.array_split(IDS, 7):
        later.add_labels(rows, CORRECT[rows])
    assert same(later, now)


def test_logits_wait_with_their_class_and_class_names(tmp_path: Path) -> None:
    val, (logits, labels) = (synthetic_logits(800, 4, seed=seed) for seed in (1, 2))
    names = np.array(["ant", "bee", "cat", "dog"])
    cal = make("temps").fit(*val)
    later = CalibrationMonitor(cal).update_logits(
        logits, ids=[f"a{k}" for k in range(800)]
    )
    later.save(tmp_path / "m.json")  # rows wait in the file as well
    later = CalibrationMonitor.load(tmp_path / "m.json", cal)
    later.class_names = tuple(names)
    order = np.random.default_rng(0).permutation(800)
    now = CalibrationMonitor(cal).update_logits(logits[order], labels[order])
    later.add_labels([f"a{k}" for k in order], names[labels[order]])
    assert later.status().classes[0].name in names
    now.class_names = tuple(names)
    assert (later.status().classes, later.status().calibration) == (
        now.status().classes,
        now.status().calibration,
    )
    assert later.status().n_waiting == 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.add_labels([7, 99_999], [1, 1]), "'99999' is unknown"),
        (lambda m: m.add_labels([1, 7], [1, 1]), "'1' has one already"),
        (lambda m: m.add_labels([7, 7], [1, 0]), "must be different; got '7' twice"),
        (lambda m: m.add_labels([7, 8], [1]), "`labels` must be .* one entry per row"),
        (lambda m: m.add_labels([7], [2]), r"`labels` must be True or False.*got 2"),
        (
            lambda m: m.update([0.5, 0.6], ids=[7, 5000]),
            "'7' waits for its label.*`add_labels",
        ),
        (
            lambda m: m.update([0.5], [True], ids=[1]),
            "'1' was counted with its label before",
        ),
        (lambda m: m.update([0.5, 0.6], ids=[5000, 5000]), "must be different"),
        (
            lambda m: m.update([0.5, 0.6], ids=[5000]),
            r"one entry per row \(2\); got shape \(1,\)",
        ),
        (
            lambda m: m.update([0.5], ids=[1.5]),
            "`ids` must be text or integers; got 1.5",
        ),
        (
            lambda m: m.update([0.5], ids=[None]),
            "`ids` must be text or integers; got None",
        ),
    ],
)
def test_ambiguous_ids_are_refused_and_nothing_is_counted(
    call: Any, message: str
) -> None:
    fed_monitor = (
        monitor().update(CONFIDENCE, ids=IDS).add_labels([0, 1, 2], CORRECT[:3])
    )
    before = exact_state(fed_monitor)
    with pytest.raises((TypeError, ValueError), match=message):
        call(fed_monitor)
    assert exact_state(fed_monitor) == before


def test_labels_without_ids_of_rows_that_were_counted_are_refused() -> None:
    fed_monitor = monitor().update(CONFIDENCE)
    before = exact_state(fed_monitor)
    with pytest.raises(
        ValueError, match=r"1,500 of these 1,500 rows were counted before.*`ids`"
    ):
        fed_monitor.update(CONFIDENCE, CORRECT)
    shuffled = np.random.default_rng(0).permutation(1500)[:100]
    with pytest.raises(ValueError, match="100 of these 100 rows"):
        fed_monitor.update(CONFIDENCE[shuffled], CORRECT[shuffled])
    assert exact_state(fed_monitor) == before
    fed_monitor.update(*stream(1500, seed=4))  # other rows are welcome
    assert fed_monitor.update(CONFIDENCE, CORRECT, again=True).n == 3000


def test_equal_values_of_other_rows_are_welcome() -> None:
    """Confidences of ten levels come again by themselves; a batch in the same order
    does not.
    """
    monitor, rng = CalibrationMonitor(None), np.random.default_rng(0)
    for _ in range(20):
        confidence = rng.integers(1, 11, size=50) / 10
        monitor.update(confidence, rng.random(50) < confidence)
    with pytest.raises(ValueError, match="50 of these 50 rows"):
        monitor.update(confidence, rng.random(50) < confidence)


@pytest.mark.parametrize("levels", [[0.9], [0.7, 0.9, 0.9, 0.9], np.arange(1, 21) / 20])
def test_batches_that_can_be_equal_by_chance_are_welcome(levels: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        monitor = CalibrationMonitor(None)
        for _ in range(20):
            confidence = rng.choice(levels, 10)
            monitor.update(confidence, rng.random(10) < confidence)
        assert monitor.n == 200


def test_rows_that_wait_are_bounded() -> None:
    monitor = CalibrationMonitor(None, max_waiting=100).update(CONFIDENCE, ids=IDS)
    status = monitor.status()
    assert (status.n_waiting, status.n_dropped, status.n_observed) == (100, 1400, 1500)
    assert monitor.waits_for([0, 1399, 1400, 1499]).tolist() == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(
        ValueError, match=r"more than 100 that waited.*larger `max_waiting`"
    ):
        monitor.add_labels([5], [True])
    monitor.add_labels(IDS[1400:], CORRECT[1400:])
    assert (monitor.n, monitor.status().n_waiting) == (100, 0)


def test_some_rows_of_a_batch_have_labels() -> None:
    fed_monitor = monitor().update(
        CONFIDENCE[:4], [True, None, np.nan, False], ids=list("abcd")
    )
    assert (fed_monitor.n, fed_monitor.status().n_waiting) == (2, 2)
    fed_monitor.add_labels(["c", "b"], [True, False])
    assert fed_monitor.status().accuracy == 0.5


def test_labels_of_one_call_are_of_one_kind() -> None:
    logits, labels = synthetic_logits(300, 3, seed=1)
    monitor = CalibrationMonitor(make("temps").fit(logits, labels))
    monitor.update([0.5], ids=[1]).update_logits(logits[:1], ids=[2])
    with pytest.raises(ValueError, match="of one kind"):
        monitor.add_labels([1, 2], [0, 1])


def test_labels_that_are_not_known_yet_leave_their_rows_waiting() -> None:
    later = monitor().update(CONFIDENCE[:6], ids=IDS[:6])
    later.add_labels(IDS[:4], [True, None, float("nan"), False])
    assert (later.n, later.status().n_waiting) == (2, 4)
    later.add_labels(IDS[1:3], [1, 0])
    assert (later.n, later.status().n_waiting) == (4, 2)
    with pytest.raises(ValueError, match="has one already"):
        later.add_labels(IDS[:2], [1, None])


def test_ids_that_nobody_waits_for_may_be_skipped() -> None:
    later = monitor().update(CONFIDENCE[:4], ids=IDS[:4])
    late = ([2, 99, 0], [True, False, True])
    with pytest.raises(
        ValueError, match=r"'99' is unknown.*`unknown=\"skip\"` leaves such out"
    ):
        later.add_labels(*late)
    assert later.n == 0
    later.add_labels(*late, unknown="skip").add_labels(*late, unknown="skip")
    assert (later.n, later.status().n_waiting) == (2, 2)
    with pytest.raises(ValueError, match="`unknown` must be one of"):
        later.add_labels(*late, unknown="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one entry per row .* of the `ids`"):
        later.add_labels([1, 3], [True])


def test_rows_count_once_with_ids_or_without(tmp_path: Path) -> None:
    val, (logits, labels) = (synthetic_logits(300, 4, seed=seed) for seed in (1, 2))
    cal = make("temps").fit(*val)
    ids = [f"a{k}" for k in range(300)]
    for first, second in (({"ids": ids}, {}), ({}, {"ids": ids})):
        monitor = CalibrationMonitor(cal).update_logits(logits, labels, **first)
        monitor.save(tmp_path / "m.json")
        for resumed in (monitor, CalibrationMonitor.load(tmp_path / "m.json", cal)):
            with pytest.raises(
                ValueError, match="300 of these 300 rows were counted before"
            ):
                resumed.update_logits(logits, labels, **second)
            assert resumed.n == 300
            assert resumed.status().n_waiting == 0
            assert resumed.update_logits(logits, labels, **second, again=True).n == 600
    # New ids say that predictions are new, whatever they hold.
    two = CalibrationMonitor(cal).update_logits(logits, labels, ids=ids)
    assert two.update_logits(logits, labels, ids=[f"b{k}" for k in range(300)]).n == 600


def test_a_wrong_label_is_named_by_its_row_among_all() -> None:
    for labels in ([None, 0, 5], [np.nan, 0.0, 5.0], np.array([-1, 0, 5])):
        with pytest.raises(ValueError, match=r"got 5 in row 2"):
            as_partial_labels(labels, 3, 3)
    with pytest.raises(ValueError, match="got 'dog' in row 2"):
        as_partial_labels(["a", None, "dog"], 3, 2, classes=["a", "b"])
    assert as_partial_labels(["b", None, "a"], 3, 2, classes=["a", "b"]).tolist() == [
        1,
        -1,
        0,
    ]
    assert as_partial_labels([np.nan, None, -1], 3, 2).tolist() == [-1, -1, -1]
    assert as_partial_labels([1.0, np.nan, 0], 3, 2).tolist() == [1, -1, 0]


def test_labels_of_confidences_are_right_or_wrong() -> None:
    monitor = CalibrationMonitor(None).update([0.5, 0.6], ids=["a", "b"])
    with pytest.raises(
        ValueError, match=r"`labels` must be True or False \(1 or 0\); got 2"
    ):
        monitor.add_labels(["a", "b"], [2, 0])
    assert monitor.add_labels(["a", "b"], [True, False]).status().n == 2
