"""The monitor as users meet it: streams cut anyhow, replicas, restarts, words, bad input."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import CalibrationMonitor, Hoki
from hokical._core.storage import CalibratorFileError
from hokical.calibrators import make
from hokical.metrics import BinnedSums, ece
from hokical.monitoring import Reference
from hokical.monitoring._status import window_numbers
from tests.conftest import max_examples, synthetic_logits
from tests.monitoring.streams import exact_state, reference, stream

HOUR = timedelta(hours=1)
CONFIDENCE, CORRECT = stream(1500, seed=3, gap=0.08)
TIMES = 1.7e9 + np.cumsum(np.random.default_rng(4).exponential(5.0, size=1500))
WINDOWS: list[Any] = [7, 120, 1000, HOUR, timedelta(minutes=10)]


def monitor(window: Any = 1000, **options: Any) -> CalibrationMonitor:
    return CalibrationMonitor(reference(), window=window, **options)


def feed_in(cuts: list[int], window: Any, n: int = 1500) -> CalibrationMonitor:
    made = monitor(window)
    for rows in (slice(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), n])):
        made.update(CONFIDENCE[rows], CORRECT[rows], TIMES[rows])
    return made


# the stream


@max_examples(12)
@given(st.lists(st.integers(0, 1500), max_size=8), st.sampled_from(WINDOWS))
def test_cuts_do_not_matter(cuts: list[int], window: Any) -> None:
    whole, cut = feed_in([], window), feed_in(cuts, window)
    assert exact_state(cut) == exact_state(whole)
    assert cut.status() == whole.status()


def test_one_by_one_is_the_same_too() -> None:
    made = monitor(120)
    for row in range(250):
        made.update(CONFIDENCE[row], CORRECT[row], TIMES[row])
    assert exact_state(made) == exact_state(feed_in([], 120, n=250))


@pytest.mark.parametrize("n", [1, 100, 999, 1500])
def test_window_holds_the_last_examples(n: int) -> None:
    """Pane by pane: the open one and the 49 before it."""
    status = feed_in([], 1000, n).status()
    kept = slice(max(0, (n - 1) // 20 - 49) * 20, n)
    assert status.n_window == len(CONFIDENCE[kept])
    assert status.accuracy == CORRECT[kept].mean()
    assert status.mean_confidence == pytest.approx(CONFIDENCE[kept].mean(), rel=1e-14)
    assert status.ece.value == ece(CONFIDENCE[kept], CORRECT[kept])
    assert status.ece_since_start == ece(CONFIDENCE[:n], CORRECT[:n])


def test_window_of_time_takes_late_examples_into_account() -> None:
    pane = HOUR.total_seconds() / 50
    kept = np.floor(TIMES / pane) > np.floor(TIMES.max() / pane) - 50
    status = feed_in([], HOUR).status()
    assert 0 < kept.sum() < 1500
    assert status.n_window == kept.sum()
    shuffled = np.random.default_rng(0).permutation(1500)
    other = monitor(HOUR).update(CONFIDENCE[shuffled], CORRECT[shuffled], TIMES[shuffled]).status()
    assert (other.ece, other.accuracy, other.time) == (status.ece, status.accuracy, status.time)


def test_observed_predictions_count_once() -> None:
    plain = monitor().update(CONFIDENCE, CORRECT)
    late = monitor().observe(CONFIDENCE).update(CONFIDENCE, CORRECT, observed=True)
    assert exact_state(late) == exact_state(plain)
    unlabelled = monitor().observe(CONFIDENCE).status()
    assert (unlabelled.n, unlabelled.n_observed) == (0, 1500)
    assert unlabelled.inputs == plain.status().inputs
    assert np.isnan(unlabelled.accuracy)


def test_interval_holds_the_true_error() -> None:
    """The true binned error of a model that is 4 points too sure, in 300 windows."""
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.55, 0.75, 0.95], size=(300, 800))
    held = 0
    for row in confidence:
        sums = BinnedSums.from_examples(row, rng.uniform(size=800) < row - 0.04)
        found = window_numbers(sums, 0.2)["ece"]
        held += found.low <= 0.04 <= found.high
    assert held / 300 >= 0.8


@pytest.mark.parametrize("seed", [1, 10, 21])
def test_an_alarm_stays_whenever_one_looks(seed: int) -> None:
    """In these streams the evidence falls back in the middle of a block of 100."""
    rng = np.random.default_rng(seed)
    made, alarms = CalibrationMonitor(None), []
    for _ in range(60):
        confidence = rng.uniform(0.5, 1.0, size=10)
        made.update(confidence, rng.random(10) < confidence - 0.12)
        alarms.append(made.status().calibration.alarm)
    first = next(place for place, alarm in enumerate(alarms) if alarm is not None)
    assert alarms[first].n is not None
    assert 10 * first < alarms[first].n <= 10 * (first + 1)
    assert alarms[first:] == [alarms[first]] * (60 - first)


# replicas


@pytest.mark.sample(1)
@pytest.mark.parametrize("window", [120, 1000, HOUR])
def test_merging_is_the_same_in_any_order(window: Any) -> None:
    parts = [
        monitor(window).update(CONFIDENCE[rows], CORRECT[rows], TIMES[rows])
        for rows in (slice(0, 1000), slice(1000, 1090), slice(1090, 1500))
    ] + [monitor(window)]
    a, b, c, empty = parts
    merged = a.merge(b, c, empty)
    for others in itertools.islice(itertools.permutations(parts), 0, None, 3):
        assert exact_state(others[0].merge(*others[1:])) == exact_state(merged)
    assert exact_state(a.merge(b).merge(c).merge(empty)) == exact_state(a.merge(b, c.merge(empty)))
    assert merged.status().ece_since_start == ece(CONFIDENCE, CORRECT)
    assert merged.status().replicas == 4


def test_replicas_share_their_evidence() -> None:
    """None has enough by itself; a window of time is that of one monitor for all."""
    parts = [
        CalibrationMonitor(None, window=HOUR).update(
            *stream(300, seed=seed, gap=0.05), 1.7e9 + np.arange(300.0)
        )
        for seed in range(10)
    ]
    assert all(part.status().calibration.alarm is None for part in parts)
    status = parts[0].merge(*parts[1:]).status()
    assert status.verdict.kind == "over-confident"
    assert status.verdict.text.startswith("over-confident by about 5 points")
    assert status.n_window == 3000
    calm = [CalibrationMonitor(None, window=HOUR).update(*stream(9000, seed=3), 1.7e9)] * 6
    later = parts[0].merge(*parts[1:], *calm).status()
    assert later.calibration.alarm is None  # what only all together show is of the moment


def test_an_alarm_survives_merging() -> None:
    off = CalibrationMonitor(None).update(*stream(3000, seed=1, gap=0.1))
    calm = [CalibrationMonitor(None).update(*stream(9000, seed=seed)) for seed in (2, 3)]
    alarm = off.status().calibration.alarm
    assert alarm is not None
    merged = calm[0].merge(off, calm[1]).status()
    # Labels of one replica are no places in all of them.
    assert merged.calibration.alarm == replace(alarm, since=None, n=None)
    assert "since" not in str(merged)


def test_what_cannot_be_merged_or_fed() -> None:
    merged = monitor().merge(monitor())
    for feed in (lambda: merged.update(0.5, True), lambda: merged.observe(0.5)):
        with pytest.raises(ValueError, match="merged monitor of 2 replicas cannot be fed"):
            feed()
    with pytest.raises(ValueError, match="same options"):
        monitor().merge(monitor(delta=0.05))
    with pytest.raises(ValueError, match="same reference"):
        monitor().merge(CalibrationMonitor(reference(seed=1), window=1000))
    with pytest.raises(TypeError, match="takes monitors; got 3"):
        monitor().merge(3)  # type: ignore[arg-type]


# restarts


@pytest.mark.sample(2)
@pytest.mark.parametrize("window", [120, HOUR])
@pytest.mark.parametrize("n", [0, 130, 1200])
def test_a_restart_changes_nothing(tmp_path: Path, window: Any, n: int) -> None:
    path = tmp_path / "monitor.json"
    feed_in([], window, n).save(path) if n else monitor(window).save(path)
    later = CalibrationMonitor.load(path)
    later.update(CONFIDENCE[n:], CORRECT[n:], TIMES[n:])
    whole = feed_in([], window)
    assert exact_state(later) == exact_state(whole)
    assert later.status() == whole.status()


def test_merged_monitors_can_be_kept(tmp_path: Path) -> None:
    merged = feed_in([], 120).merge(feed_in([], 120, 300))
    merged.save(tmp_path / "m.json")
    back = CalibrationMonitor.load(tmp_path / "m.json")
    assert exact_state(back) == exact_state(merged)
    assert exact_state(back.merge(monitor(120))) == exact_state(merged.merge(monitor(120)))


def test_damaged_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    feed_in([], 120).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CalibratorFileError, match="cut short"):
        CalibrationMonitor.load(path)
    assert path.read_bytes() == whole[: len(whole) // 2]
    path.write_bytes(whole.replace(b'"n": 1500', b'"n": 1501'))
    with pytest.raises(CalibratorFileError, match="checksum"):
        CalibrationMonitor.load(path)
    logits, labels = synthetic_logits(200, 3, seed=0)
    make("temps").fit(logits, labels).save(path)
    with pytest.raises(CalibratorFileError, match="does not hold a CalibrationMonitor"):
        CalibrationMonitor.load(path)


def test_a_save_that_fails_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "monitor.json"
    feed_in([], 120, 300).save(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        feed_in([], 120).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# references and logits


@pytest.mark.parametrize("options", [{}, {"init": "confidence"}, {"draws": 200, "random_state": 0}])
def test_hokis_table_is_the_reference_of_its_own_examples(options: dict[str, Any]) -> None:
    logits, labels = synthetic_logits(2000, 5, seed=1)
    cal = Hoki(**options).fit(logits, labels)
    own, again = Reference.from_hoki(cal), Reference.from_validation(cal, logits, labels)
    assert np.array_equal(own.weight, again.weight)
    assert np.array_equal(own.correct, again.correct)
    np.testing.assert_allclose(own.confidence, again.confidence, rtol=1e-12)


def test_logits_through_the_calibrator(tmp_path: Path) -> None:
    val, test = (synthetic_logits(3000, 5, seed=seed) for seed in (1, 2))
    cal = Hoki().fit(*val)
    found = CalibrationMonitor(cal).update_logits(*test)
    confidence, predicted = cal.predict_confidence(test[0]), cal.predict(test[0])
    same = CalibrationMonitor(cal).update(confidence, predicted == test[1], predicted=predicted)
    assert replace(found.status(), n_unlike=None, expected=None) == same.status()
    assert found.status().verdict.kind == "calibrated"
    assert CalibrationMonitor(cal).observe_logits(test[0]).status().inputs is not None
    found.save(tmp_path / "m.json")
    with pytest.raises(ValueError, match="no calibrator for logits"):
        CalibrationMonitor.load(tmp_path / "m.json").update_logits(*test)
    CalibrationMonitor.load(tmp_path / "m.json", cal).update_logits(*test)


def test_other_calibrators_need_their_examples() -> None:
    logits, labels = synthetic_logits(2000, 5, seed=1)
    cal = make("temps").fit(logits, labels)
    with pytest.raises(ValueError, match="'temps' does not keep"):
        CalibrationMonitor(cal)  # type: ignore[arg-type]
    made = CalibrationMonitor.from_validation(cal, logits, labels, n_bins=10, model="x")
    assert made.reference is not None
    assert made.reference.n_bins == 10
    assert made.update_logits(logits, labels).status().verdict.kind == "calibrated"


# words


def words(*streams: tuple[Any, Any], **options: Any) -> str:
    made = CalibrationMonitor(reference(), **options)
    for confidence, correct in streams:
        made.update(confidence, correct)
    return str(made.status().verdict)


def test_verdicts_in_words() -> None:
    assert words() == "too few labels yet (0; at least 200 needed)"
    assert words(stream(37, seed=1)) == "too few labels yet (37; at least 200 needed)"
    assert words(stream(4000, seed=1)).startswith("calibrated: says 85.")
    calm, over = stream(5000, seed=1), stream(5000, seed=2, gap=0.065)
    alone = re.fullmatch(
        r"over-confident by about 6 points since label (\d+) or before", words(over)
    )
    assert alone is not None
    found = re.fullmatch(
        r"over-confident by about 6 points since label ([\d,]+) or before", words(calm, over)
    )
    assert found is not None
    assert 5001 <= int(found[1].replace(",", "")) <= 8000
    assert words(stream(5000, seed=2, gap=-0.06)).startswith("under-confident by about 5 points")
    again = words(over, stream(6000, seed=3))
    assert again == (
        f"was over-confident since label {alone[1]} or before; confidence holds again in the window"
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", [1000, 4000])
def test_a_change_is_never_said_to_be_older_than_it_can_be(change: int) -> None:
    for seed in range(20):
        made = CalibrationMonitor(None, min_labels=1)
        made.update(*stream(change, seed=seed)).update(*stream(4000, seed=seed + 99, gap=0.12))
        alarm = made.status().calibration.alarm
        assert alarm is not None
        assert alarm.n is not None
        assert alarm.n > change  # "since label n or before" holds


def test_verdicts_without_an_alarm_are_not_a_blessing() -> None:
    """A model that was 6 points too sure at fit time has not drifted, and is not calibrated."""
    known = Reference.from_examples(*stream(5000, seed=8, gap=0.06))
    status = CalibrationMonitor(known).update(*stream(5000, seed=9, gap=0.06)).status()
    assert status.calibration.alarm is None
    assert status.verdict.kind == "as at fit time"
    assert status.verdict.text == "over-confident by about 6 points, much as at fit time"
    early = CalibrationMonitor(None, delta=1e-9).update(*stream(600, seed=9, gap=0.1)).status()
    assert early.verdict.kind == "suspect"
    assert early.verdict.text == (
        "perhaps over-confident by about 7 points; not enough evidence for an alarm yet"
    )


def test_verdicts_on_inputs() -> None:
    shifted = stream(5000, seed=4, a=2.5)
    assert words(shifted) == "inputs have shifted but confidence still holds"
    unlabelled = (
        CalibrationMonitor(reference()).observe(shifted[0]).update(0.5, True, observed=True)
    )
    assert str(unlabelled.status().verdict) == (
        "inputs have shifted; too few labels yet to say whether confidence still holds "
        "(1; at least 200 needed)"
    )
    assert words(stream(5000, seed=4, a=2.5, gap=0.1)).endswith("; inputs have shifted too")


def test_a_quiet_hour_says_nothing() -> None:
    made = monitor(HOUR).update(*stream(1500, seed=1), 1.7e9).update(0.9, True, 1.7e9 + 7200)
    assert str(made.status().verdict) == "too few labels yet (1; at least 200 needed)"


def test_verdict_on_a_bin_and_a_time() -> None:
    rng = np.random.default_rng(5)
    confidence = rng.permutation(np.repeat([0.7, 0.95], 4000))
    correct = rng.uniform(size=8000) < np.where(confidence == 0.7, 0.85, 0.9)
    start = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    made = CalibrationMonitor(None, window=8000)
    made.update(confidence, correct, start.timestamp() + np.arange(8000) * 1e-3)
    assert str(made.status()) == (
        "model: under-confident by about 15 points where it says 67% to 73% "
        "since 2026-03-01 09:30 UTC or before"
    )


# bad input


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 1.2], [True, True]), r"`confidence` must lie in \[0, 1\]; got 1.2 in row 1"),
        (([0.5, np.nan], [True, True]), "got nan in row 1"),
        (([0.5], [True, False]), "`correct` must be 1-D with one entry per confidence"),
        (([0.5], [3]), "must be True or False"),
        (([[0.5]], [True]), "must be 1-D"),
        (([0.5], [True], [1.0, 2.0]), "`timestamp` must be seconds since 1970"),
        (([0.5], [True], "noon"), "`timestamp` must be seconds since 1970"),
        (([0.5], [True], np.inf), "`timestamp` must be finite"),
        (([0.5], [True], datetime(2026, 1, 1)), "must have a time zone"),
    ],
)
def test_bad_examples_change_nothing(arguments: tuple[Any, ...], message: str) -> None:
    made = monitor().update(CONFIDENCE, CORRECT)
    before = exact_state(made)
    with pytest.raises(ValueError, match=message):
        made.update(*arguments)
    assert exact_state(made) == before


def test_a_window_of_time_needs_timestamps() -> None:
    made = monitor(HOUR)
    with pytest.raises(ValueError, match="`timestamp` must be given when the window is a time"):
        made.update(CONFIDENCE, CORRECT)
    assert (made.n, made.status().n_observed) == (0, 0)
    made.update(CONFIDENCE, CORRECT, datetime.now(UTC))
    assert made.n == 1500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "`window` must be a number of examples of at least 1, or a `timedelta`"),
        ({"window": 2.5}, "`window` must be a number"),
        ({"window": timedelta(0)}, "`window` must be longer than no time"),
        ({"delta": 0}, "`delta` must lie strictly between 0 and 1; got 0"),
        ({"interval_delta": 1.0}, "`interval_delta` must lie strictly between"),
        ({"tolerance": -0.1}, "`tolerance` must be at least 0 and below 1"),
        ({"n_bins": 0}, "`n_bins` must be an integer of at least 1"),
        ({"min_labels": 0}, "`min_labels` must be an integer of at least 1"),
        ({"n_bins": 10}, "`reference` must have 10 bins like the monitor; got 15"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationMonitor(reference(), **options)


def test_bad_reference_and_name() -> None:
    with pytest.raises(TypeError, match="`reference` must be a fitted Hoki"):
        CalibrationMonitor([0.5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`model` must be a name; got 3"):
        CalibrationMonitor(None, model=3)  # type: ignore[arg-type]
