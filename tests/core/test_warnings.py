"""Each cause of a warning is reported once for each object, at the fit if it shows
there, and in words that Python's filters fold where no object is involved.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from hokical import from_probabilities, make
from hokical._core.runtime import FitDataWarning, WarningLog, warn_user
from tests.conftest import synthetic_logits


def messages_of(action: Callable[[], Any], filters: str = "always") -> list[str]:
    """The warnings that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        action()
    return [str(warning.message) for warning in caught]


def test_a_cause_is_reported_once_for_each_log() -> None:
    def warn(log: WarningLog, n_rows: int, cause: str = "") -> list[str]:
        with log.once():
            return messages_of(lambda: warn_user(f"{n_rows} rows", cause=cause))

    log = WarningLog()
    assert warn(log, 3, "rounded") == ["3 rows"]
    assert warn(log, 5, "rounded") == []
    assert warn(log, 5, "certain") == ["5 rows"]
    assert warn(log, 7) == ["7 rows"]  # its own text is its cause
    assert warn(log, 7) == []
    assert warn(WarningLog(), 5, "rounded") == ["5 rows"]
    assert warn(pickle.loads(pickle.dumps(log)), 5, "rounded") == ["5 rows"]


def test_the_outermost_log_speaks() -> None:
    outer, inner = WarningLog(), WarningLog()
    with outer.once(), inner.once():
        assert WarningLog.current() is outer
        assert len(messages_of(lambda: warn_user("rounded"))) == 1
    assert "rounded" in outer
    assert "rounded" not in inner
    with inner.once():
        assert len(messages_of(lambda: warn_user("rounded"))) == 1
    assert WarningLog.current() is not outer


def test_a_warning_that_is_raised_as_an_error_is_raised_again() -> None:
    log = WarningLog()
    for _ in range(2):
        with log.once(), pytest.raises(FitDataWarning):
            messages_of(lambda: warn_user("rounded", FitDataWarning), "error")


def test_predictions_do_not_repeat_a_warning() -> None:
    logits, labels = synthetic_logits(400, 4, seed=1, stretch=3.0)
    proba = softmax(logits, axis=1)
    cal = make("temps").fit(logits, labels)
    assert len(messages_of(lambda: cal.predict_proba(proba[:200]))) == 1
    assert messages_of(lambda: cal.predict_proba(proba[200:])) == []
    assert messages_of(lambda: cal.predict_set(proba[200:])) == []
    assert len(messages_of(lambda: make("temps").fit(proba, labels))) == 1
    cal.fit(logits, labels)  # begins anew
    assert len(messages_of(lambda: cal.predict(proba))) == 1


def test_what_the_fit_said_of_groups_is_not_said_again() -> None:
    rng = np.random.default_rng(5)
    logits, labels = synthetic_logits(3000, 3, seed=2, stretch=1.0)
    groups = rng.integers(0, 3, 3000)
    logits[:, 0] += 3.0 * (groups - 1)
    names = np.array(["a", "b", None], object)[groups]
    cal = make("auto")
    assert any(
        "group is missing" in message
        for message in messages_of(lambda: cal.fit(logits, labels, groups=names))
    )
    assert cal.needed_groups is not None
    assert messages_of(lambda: cal.predict(logits, groups=names)) == []


@pytest.mark.parametrize("digits", [1, 2])
def test_batches_of_a_service_fold(digits: int) -> None:
    """Where no object is involved, equal texts are shown once by Python's default."""
    proba = softmax(synthetic_logits(900, 6, seed=3, stretch=6.0)[0], axis=1)
    batches = np.split(proba.round(digits), 9)
    texts: set[str] = set()
    for batch in batches:
        sound = batch[np.abs(batch.sum(axis=1) - 1.0) <= 0.05]
        texts |= {*messages_of(lambda rows=sound: from_probabilities(rows))}
    assert 0 < len(texts) <= 2
