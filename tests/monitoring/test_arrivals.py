"""What is fed to a monitor: timestamps of all kinds, empty batches, logits of the best classes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hokical import CalibrationMonitor, Gaussian, Hoki, TopK
from tests.conftest import synthetic_logits
from tests.monitoring.streams import exact_state, reference, stream

HOUR = timedelta(hours=1)
TIMES = [1.7e9, 1.7e9 + 1.5, 1.7e9 + 60.0]


def timed() -> CalibrationMonitor:
    return CalibrationMonitor(reference(), window=HOUR)


@pytest.mark.parametrize("bad", [1.7e12, 1.7e15, 1.7e18, -1e12])
def test_one_wrong_timestamp_does_not_empty_the_window(bad: float) -> None:
    """Milliseconds, microseconds and nanoseconds are refused, alone or among others."""
    made = timed().update(*stream(500, seed=1), 1.7e9)
    before = exact_state(made)
    with pytest.raises(ValueError, match=r"seconds since 1970, in the years 1 to 9999; got .*e\+"):
        made.update(0.9, True, bad)
    with pytest.raises(ValueError, match=r"in row 1\. Divide milliseconds by 1e3"):
        made.observe([0.9, 0.8], [1.7e9, bad])
    assert exact_state(made) == before
    assert made.update(*stream(500, seed=2), 1.7e9 + 60).status().n_window == 1000


@pytest.mark.parametrize(
    "times",
    [
        np.array(TIMES),
        (np.array(TIMES) * 1e3).astype("datetime64[ms]"),
        (np.array(TIMES) * 1e6).astype("datetime64[us]"),
        [datetime.fromtimestamp(time, UTC) for time in TIMES],
        np.array([datetime.fromtimestamp(time, UTC) for time in TIMES]),
    ],
    ids=["seconds", "datetime64[ms]", "datetime64[us]", "datetimes", "array of datetimes"],
)
def test_timestamps_of_all_kinds_mean_the_same(times: Any) -> None:
    confidence, correct = [0.9, 0.8, 0.7], [True, False, True]
    expected = exact_state(timed().update(confidence, correct, TIMES))
    assert exact_state(timed().update(confidence, correct, times)) == expected


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.array(["2026-01-01", "NaT"], "datetime64[s]"), "must be finite; got nan in row 1"),
        ([datetime.now(UTC), datetime(2026, 1, 1)], "must have a time zone"),
        ([datetime.now(UTC), 1.7e9], "must be seconds since 1970"),
        (np.array(["2026-01-01"] * 3, "datetime64[D]"), r"one per example \(2\)"),
    ],
)
def test_bad_timestamps_are_refused(times: Any, message: str) -> None:
    made = timed()
    with pytest.raises(ValueError, match=message):
        made.update([0.9, 0.8], [True, False], times)
    assert (made.n, made.status().n_observed) == (0, 0)


@pytest.mark.parametrize("window", [1000, HOUR])
def test_empty_batches_are_no_news(window: Any) -> None:
    logits, labels = synthetic_logits(500, 4, seed=1)
    cal = Hoki(noise=Gaussian(4.0)).fit(logits, labels)
    made = CalibrationMonitor(cal, window=window)
    before = exact_state(made)
    made.update([], []).observe([]).observe_logits(logits[:0]).observe_logits([])
    made.update_logits(logits[:0], labels[:0]).update_logits([], [])
    assert exact_state(made) == before
    with pytest.raises(ValueError, match="at least one row"):
        made.update_logits(logits[:0], labels[:1])


def test_logits_of_the_best_classes() -> None:
    logits, labels = synthetic_logits(3000, 8, seed=1)
    cal = Hoki(noise=Gaussian(4.0)).fit(logits[:1500], labels[:1500])
    best, truth = TopK.from_logits(logits[1500:], 3), labels[1500:]
    confidence, correct = cal.predict_confidence(best), cal.predict(best) == truth
    found = CalibrationMonitor(cal).update_logits(best, truth)
    expected = CalibrationMonitor(cal).update(confidence, correct, predicted=cal.predict(best))
    assert found.n == 1500
    assert replace(found.status(), n_unlike=None) == expected.status()
    unlabelled = CalibrationMonitor(cal).observe_logits(best).status()
    assert unlabelled.inputs == found.status().inputs
