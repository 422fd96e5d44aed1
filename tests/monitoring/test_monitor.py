"""The monitor as users meet it: streams cut anyhow, restarts, verdicts, bad input."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hokical
from hokical import CalibrationMonitor, CalibratorFileError, Gaussian, Hoki, TopK
from hokical._core.storage import checksum
from hokical.calibrators import make
from hokical.metrics import ece
from tests.conftest import max_examples, peak_memory, synthetic_logits
from tests.monitoring.streams import exact_state, monitor, stream

CONFIDENCE, CORRECT = stream(1500, seed=3, gap=0.08)
WINDOWS = [7, 120, 1000]


def feed_in(cuts: list[int], window: int, n: int = 1500) -> CalibrationMonitor:
    fed_monitor = monitor(window=window)
    for rows in (slice(a, b) for a, b in itertools.pairwise([0, *sorted(cuts), n])):
        fed_monitor.update(CONFIDENCE[rows], CORRECT[rows], ids=np.arange(n)[rows])
    return fed_monitor


# the stream


@max_examples(12)
@given(st.lists(st.integers(0, 1500), max_size=8), st.sampled_from(WINDOWS))
def test_cuts_do_not_matter(cuts: list[int], window: Any) -> None:
    uncut, cut = feed_in([], window), feed_in(cuts, window)
    assert exact_state(cut) == exact_state(uncut)
    assert cut.status() == uncut.status()


def test_one_by_one_is_the_same_too() -> None:
    fed_monitor = monitor(window=120)
    for row in range(250):
        fed_monitor.update(CONFIDENCE[row], CORRECT[row], ids=row)
    assert exact_state(fed_monitor) == exact_state(feed_in([], 120, n=250))


@pytest.mark.parametrize("n", [1, 999, 1500])
def test_window_holds_the_newest_rows(n: int) -> None:
    status = feed_in([], 1000, n).status()
    newest = slice(max(0, n - 1000), n)
    assert status.n_window == len(CONFIDENCE[newest])
    assert status.accuracy == CORRECT[newest].mean()
    assert status.mean_confidence == pytest.approx(CONFIDENCE[newest].mean(), rel=1e-14)
    assert status.brier == pytest.approx(
        ((CORRECT - CONFIDENCE)[newest] ** 2).mean(), rel=1e-14
    )
    assert status.ece.value == pytest.approx(
        ece(CONFIDENCE[newest], CORRECT[newest]), rel=1e-12
    )


@pytest.mark.slow
def test_interval_holds_the_true_error() -> None:
    """The true binned error of a model that is 4 points too sure, in 300 windows."""
    rng = np.random.default_rng(0)
    held = 0
    for row in rng.choice([0.55, 0.75, 0.95], size=(300, 800)):
        monitor = CalibrationMonitor(None, window=800)
        error = monitor.update(row, rng.uniform(size=800) < row - 0.04).status().ece
        held += error.low <= 0.04 <= error.high
    assert held / 300 >= 0.95


@pytest.mark.parametrize("seed", [1, 10, 21])
def test_an_alarm_stays_whenever_one_looks(seed: int) -> None:
    """In these streams the evidence falls back in the middle of a block of 100."""
    rng = np.random.default_rng(seed)
    monitor, alarms = CalibrationMonitor(None), []
    for _ in range(60):
        confidence = rng.uniform(0.5, 1.0, size=10)
        monitor.update(confidence, rng.random(10) < confidence - 0.12)
        alarms.append(monitor.status().calibration.alarm)
    first = next(step for step, alarm in enumerate(alarms) if alarm is not None)
    assert 10 * first < alarms[first].n <= 10 * (first + 1)
    assert alarms[first:] == [alarms[first]] * (60 - first)


# restarts


@pytest.mark.parametrize("n", [0, 130, 1200])
def test_a_restart_changes_nothing(tmp_path: Path, n: int) -> None:
    path = tmp_path / "monitor.json"
    feed_in([], 120, n).save(path) if n else monitor(window=120).save(path)
    later = CalibrationMonitor.load(path)
    later.update(CONFIDENCE[n:], CORRECT[n:], ids=np.arange(n, 1500))
    uninterrupted = feed_in([], 120)
    assert exact_state(later) == exact_state(uninterrupted)
    assert later.status() == uninterrupted.status()


@pytest.mark.parametrize("version", ["0.5", "0.6"])
def test_monitors_of_earlier_versions_go_on(version: str) -> None:
    """The file was written after 700 rows of this stream."""
    later = CalibrationMonitor.load(
        Path(__file__).parent / "golden" / f"monitor-{version}.json"
    )
    assert later.status() == feed_in([], 120, 700).status()
    later.update(CONFIDENCE[700:], CORRECT[700:], ids=np.arange(700, 1500))
    assert later.status() == feed_in([], 120).status()


def test_damaged_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    feed_in([], 120).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CalibratorFileError, match="cut short"):
        CalibrationMonitor.load(path)
    assert path.read_bytes() == content[: len(content) // 2]
    path.write_bytes(content.replace(b'"n": 1500', b'"n": 1501'))
    with pytest.raises(CalibratorFileError, match="checksum"):
        CalibrationMonitor.load(path)
    document = json.loads(content)
    del document["checksum"]
    document["state"]["test"] = {}
    path.write_text(json.dumps(document | {"checksum": checksum(document)}))
    with pytest.raises(
        CalibratorFileError, match="usable CalibrationMonitor: `test` must be EProcess"
    ):
        CalibrationMonitor.load(path)
    logits, labels = synthetic_logits(200, 3, seed=0)
    make("temps").fit(logits, labels).save(path)
    with pytest.raises(
        CalibratorFileError, match="hold: CalibrationMonitor; it holds: calibrator"
    ):
        CalibrationMonitor.load(path)
    CalibrationMonitor(None).save(path)
    with pytest.raises(
        CalibratorFileError, match="hold: calibrator; it holds: CalibrationMonitor"
    ):
        hokical.load(path)


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


@pytest.mark.sample(3)
@pytest.mark.parametrize("certified", [False, True])
@pytest.mark.parametrize("method", ["auto", "temps", "hoki", "hoki drawn"])
def test_the_reference_of_a_fit_travels_with_the_calibrator(
    method: str, certified: bool, tmp_path: Path
) -> None:
    logits, labels = synthetic_logits(2000, 5, seed=1)
    held, held_labels = synthetic_logits(1500, 5, seed=2)
    hokis = {"hoki": {}, "hoki drawn": {"draws": 200}}
    cal: Any = Hoki(**hokis[method]) if method in hokis else make(method)  # type: ignore[arg-type]
    cal.fit(logits, labels)
    if certified:
        cal.certify(held, held_labels)
    cal.save(tmp_path / "cal.json")
    reference = (held, held_labels) if certified else (logits, labels)
    from_reference = CalibrationMonitor.from_validation(cal, *reference)
    fresh = synthetic_logits(1000, 5, seed=3)
    expected = from_reference.update_logits(*fresh).status()
    for calibrator in (cal, hokical.load(tmp_path / "cal.json")):
        status = CalibrationMonitor(calibrator).update_logits(*fresh).status()
        assert status.inputs is not None
        assert expected.inputs is not None
        # A level of confidence is 0.4 % of the log-odds, so a row may lie in the next
        # bin.
        assert status.inputs.distance == pytest.approx(
            expected.inputs.distance, abs=0.005
        )
        assert status.verdict.kind == "calibrated"


def test_weights_that_are_no_counts_make_no_reference() -> None:
    logits, labels = synthetic_logits(600, 4, seed=1)
    cal = make("temps").fit(logits, labels, 1.0 + np.arange(600) % 2)
    with pytest.raises(
        ValueError,
        match=r"has none \(votes, weights.*Use `CalibrationMonitor.from_valid",
    ):
        CalibrationMonitor(cal)
    monitor = CalibrationMonitor.from_validation(cal, logits, labels)
    assert monitor.update_logits(logits + 0.01, labels).status().inputs is not None


def test_logits_through_the_calibrator(tmp_path: Path) -> None:
    val, test = (synthetic_logits(3000, 5, seed=seed) for seed in (1, 2))
    cal = Hoki().fit(*val)
    monitor = CalibrationMonitor(cal).update_logits(*test)
    confidence, predicted = cal.predict_confidence(test[0]), cal.predict(test[0])
    same = CalibrationMonitor(cal).update(
        confidence, predicted == test[1], predicted=predicted
    )
    assert monitor.status() == same.status()
    assert monitor.status().verdict.kind == "calibrated"
    assert CalibrationMonitor(cal).update_logits(test[0]).status().inputs is not None
    monitor.save(tmp_path / "m.json")
    with pytest.raises(ValueError, match="`logits` need a calibrator"):
        CalibrationMonitor.load(tmp_path / "m.json").update_logits(*test)
    loaded = CalibrationMonitor.load(tmp_path / "m.json", cal).update_logits(
        *test, again=True
    )
    assert loaded.n == 6000


def test_logits_of_the_best_classes() -> None:
    logits, labels = synthetic_logits(3000, 8, seed=1)
    cal = Hoki(noise=Gaussian(4.0)).fit(logits[:1500], labels[:1500])
    best, truth = TopK.from_logits(logits[1500:], 3), labels[1500:]
    confidence, correct = cal.predict_confidence(best), cal.predict(best) == truth
    status = CalibrationMonitor(cal).update_logits(best, truth).status()
    expected = CalibrationMonitor(cal).update(
        confidence, correct, predicted=cal.predict(best)
    )
    assert status == expected.status()


def test_empty_batches_change_nothing() -> None:
    logits, labels = synthetic_logits(500, 4, seed=1)
    monitor = CalibrationMonitor(Hoki(noise=Gaussian(4.0)).fit(logits, labels))
    before = exact_state(monitor)
    monitor.update([], []).update([]).update_logits(logits[:0]).update_logits(
        []
    ).add_labels([], [])
    monitor.update_logits(logits[:0], labels[:0]).update_logits([], [])
    assert exact_state(monitor) == before
    with pytest.raises(ValueError, match="at least one row"):
        monitor.update_logits(logits[:0], labels[:1])


@pytest.mark.slow
def test_a_status_of_many_classes_needs_no_row_of_each() -> None:
    logits, labels = synthetic_logits(1000, 1000, seed=1)
    monitor = CalibrationMonitor(make("temps").fit(logits, labels))
    monitor.update_logits(*synthetic_logits(1000, 1000, seed=2))
    assert peak_memory(monitor.status) < logits.nbytes / 4


# verdicts


def words(*streams: tuple[Any, Any], **options: Any) -> str:
    fed_monitor = monitor(**options)
    for confidence, correct in streams:
        fed_monitor.update(confidence, correct)
    return str(fed_monitor.status().verdict)


def test_verdicts_in_words() -> None:
    assert words() == "too few labels yet (0; at least 200 needed)"
    assert words(stream(37, seed=1)) == "too few labels yet (37; at least 200 needed)"
    assert words(stream(4000, seed=1)).startswith("calibrated: confidence 85.")
    calm, over = stream(5000, seed=1), stream(5000, seed=2, gap=0.065)
    alone = re.fullmatch(
        r"over-confident by about 6 points, started no later than label (\d+)",
        words(over),
    )
    assert alone is not None
    verdict = re.fullmatch(
        r"over-confident by about 6 points, started no later than label ([\d,]+)",
        words(calm, over),
    )
    assert verdict is not None
    assert 5001 <= int(verdict[1].replace(",", "")) <= 8000
    assert words(stream(5000, seed=2, gap=-0.06)).startswith(
        "under-confident by about 5 points"
    )
    mended = words(over, stream(6000, seed=3))
    since = f"started no later than label {alone[1]}"
    assert mended == f"was over-confident, {since}; calibrated again in the window"


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", [1000, 4000])
def test_a_change_is_never_said_to_be_older_than_it_can_be(change: int) -> None:
    for seed in range(20):
        monitor = CalibrationMonitor(None, min_labels=1)
        monitor.update(*stream(change, seed=seed)).update(
            *stream(4000, seed=seed + 99, gap=0.12)
        )
        alarm = monitor.status().calibration.alarm
        assert alarm is not None
        assert alarm.n > change  # "no later than label n" holds


def test_verdicts_without_an_alarm_are_not_a_blessing() -> None:
    """A model that was 6 points too sure at fit time has not drifted, and is not
    calibrated.
    """
    monitor = CalibrationMonitor.from_validation(None, *stream(5000, seed=8, gap=0.06))
    status = monitor.update(*stream(5000, seed=9, gap=0.06)).status()
    assert status.calibration.alarm is None
    assert status.verdict.kind == "as at fit time"
    assert (
        status.verdict.text == "over-confident by about 6 points, much as at fit time"
    )
    early = (
        CalibrationMonitor(None, delta=1e-9)
        .update(*stream(600, seed=9, gap=0.1))
        .status()
    )
    assert early.verdict.kind == "suspect"
    assert early.verdict.text == (
        "perhaps over-confident by about 7 points; not enough evidence for an alarm yet"
    )


def test_verdicts_on_inputs() -> None:
    shifted = stream(5000, seed=4, a=2.5)
    assert words(shifted) == "inputs have shifted but confidence is still calibrated"
    unlabelled = monitor().update(shifted[0]).update(0.5, True)
    assert str(unlabelled.status().verdict) == (
        "inputs have shifted; too few labels yet to judge calibration (1; at least 200 "
        "needed)"
    )
    assert words(stream(5000, seed=4, a=2.5, gap=0.1)).endswith(
        "; inputs have shifted too"
    )


def test_verdict_on_a_bin() -> None:
    rng = np.random.default_rng(5)
    confidence = rng.permutation(np.repeat([0.7, 0.95], 4000))
    correct = rng.uniform(size=8000) < np.where(confidence == 0.7, 0.85, 0.9)
    monitor = CalibrationMonitor(None, window=8000).update(confidence, correct)
    text = str(monitor.status())
    assert text.startswith(
        "under-confident by about 15 points at confidences of 67% to 73%"
    )


# bad input


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([0.5, 1.2], [True, True]),
            r"`confidence` must lie in \[0, 1\]; got 1.2 in row 1",
        ),
        (([0.5, np.nan], [True, True]), "got nan in row 1"),
        (([0.5], [True, False]), "`correct` must be 1-D with one entry per row"),
        (([0.5], [3]), r"`correct` must be True or False \(1 or 0\); got 3"),
        (([[0.5]], [True]), r"must be \(n,\)"),
    ],
)
def test_bad_examples_change_nothing(arguments: tuple[Any, ...], message: str) -> None:
    fed_monitor = monitor().update(CONFIDENCE, CORRECT)
    before = exact_state(fed_monitor)
    with pytest.raises(ValueError, match=message):
        fed_monitor.update(*arguments)
    assert exact_state(fed_monitor) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "`window` must be an integer of at least 1; got 0"),
        ({"window": 2.5}, "`window` must be an integer"),
        ({"max_waiting": 0}, "`max_waiting` must be an integer"),
        ({"delta": 0}, "`delta` must lie strictly between 0 and 1; got 0"),
        ({"tolerance": -0.1}, "`tolerance` must be at least 0 and below 1"),
        ({"n_bins": 0}, "`n_bins` must be an integer of at least 1"),
        ({"min_labels": 0}, "`min_labels` must be an integer of at least 1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationMonitor(None, **options)


def test_bad_reference() -> None:
    with pytest.raises(
        TypeError, match="`reference` must be a fitted calibrator or None"
    ):
        CalibrationMonitor([0.5])  # type: ignore[arg-type]


def test_a_monitor_of_any_values_is_loaded(tmp_path: Path) -> None:
    """Those that a loaded monitor is tried with, too."""
    monitor = CalibrationMonitor(None).update(
        np.linspace(0.1, 0.9, 64), np.arange(64) % 2
    )
    monitor.save(tmp_path / "monitor.json")
    assert CalibrationMonitor.load(tmp_path / "monitor.json").n == 64


def test_whether_labels_were_right_is_no_class() -> None:
    with pytest.raises(
        ValueError, match=r"`correct` must be True or False \(1 or 0\); got 2"
    ):
        CalibrationMonitor(None).update([0.5, 0.6], [2, 0])


def test_logits_are_not_taken_for_confidences() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(5, 3\). Logits go through `update_l"
    ):
        CalibrationMonitor(None).update(np.zeros((5, 3)), [True] * 5)
