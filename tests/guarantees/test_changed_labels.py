"""Guarantees by the examples of a fit are of the labels that are predicted, also
changed ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from tests.conftest import repetitions, synthetic_logits

RISK, DELTA = 0.15, 0.2


def preferring_examples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, of which the classifier prefers the second by far more than is
    right.
    """
    logits, labels = synthetic_logits(n, 3, seed=seed, stretch=2.0)
    return logits + np.array([0.0, 2.0, 0.0]), labels


@pytest.fixture(scope="module")
def cal() -> hokical.AutoCalibrator:
    return hokical.auto(*preferring_examples(2000, 0))


def test_changed_labels_are_not_accepted(cal: hokical.AutoCalibrator) -> None:
    logits, labels = preferring_examples(20_000, 1)
    own = logits.argmax(axis=1)
    found = cal.predict_or_abstain(logits, risk=RISK)
    np.testing.assert_array_equal(found.labels, cal.predict(logits))
    np.testing.assert_array_equal(found.confidence, cal.predict_confidence(logits))
    changed = found.labels != own
    assert 0.02 < changed.mean() < 0.5
    assert not (found.accepted & changed).any()
    keeping = hokical.auto(
        *preferring_examples(2000, 0), keep_labels=True
    ).predict_or_abstain(logits, risk=RISK)
    np.testing.assert_array_equal(found.accepted, keeping.accepted & ~changed)
    assert found.threshold == keeping.threshold
    assert "A label that calibration has changed is not accepted" in found.guarantee
    assert "changed" not in keeping.guarantee
    wrong = found.accepted & (found.labels != labels)
    assert wrong.sum() <= RISK * keeping.accepted.sum()
    assert (
        wrong.sum() <= RISK * found.accepted.sum()
    )  # changed labels were the worse ones


def test_intervals_of_changed_labels_say_nothing(cal: hokical.AutoCalibrator) -> None:
    logits, _ = preferring_examples(3000, 2)
    changed = cal.predict(logits) != logits.argmax(axis=1)
    found = cal.predict_interval(logits)
    assert (found[changed] == [0.0, 1.0]).all()
    keeping = hokical.auto(
        *preferring_examples(2000, 0), keep_labels=True
    ).predict_interval(logits)
    np.testing.assert_array_equal(found[~changed], keeping[~changed])


def test_certified_examples_test_every_label(
    cal: hokical.AutoCalibrator, tmp_path: Path
) -> None:
    cal.save(tmp_path / "cal.json")
    certified = hokical.load(tmp_path / "cal.json").certify(
        *preferring_examples(3000, 3)
    )
    logits, labels = preferring_examples(20_000, 4)
    found = certified.predict_or_abstain(logits, risk=RISK)
    changed = found.labels != logits.argmax(axis=1)
    assert (found.accepted & changed).any()
    assert (found.labels != labels)[found.accepted].mean() <= RISK
    low, high = certified.predict_interval(logits[changed]).T
    assert (high - low).max() < 0.6


@pytest.mark.slow
def test_the_guarantee_is_kept_as_often_as_it_says() -> None:
    logits, labels = preferring_examples(40_000, 5)
    broken, repeats = 0, repetitions(100, 40)
    for seed in range(repeats):
        cal = hokical.auto(*preferring_examples(400, 100 + seed))
        found = cal.predict_or_abstain(logits, risk=RISK, delta=DELTA)
        reached = hokical.auto(
            *preferring_examples(400, 100 + seed), keep_labels=True
        ).predict_or_abstain(logits, risk=RISK, delta=DELTA)
        wrong = found.accepted & (found.labels != labels)
        broken += wrong.sum() > RISK * max(reached.accepted.sum(), 1)
    assert broken <= repeats * DELTA


def test_shift_and_monitor_go_by_the_labels_that_are_predicted(
    cal: hokical.AutoCalibrator,
) -> None:
    logits, labels = preferring_examples(4000, 6)
    right = (cal.predict(logits) == labels).mean()
    found = cal.estimate_shift(logits)
    assert found.holds
    assert found.accuracy_interval[0] < right < found.accuracy_interval[1]
    shares = np.bincount(cal.predict(logits), minlength=3) / labels.size
    np.testing.assert_allclose(found.label_shares, shares, atol=1e-12)
    monitor = hokical.CalibrationMonitor.from_validation(
        cal, *preferring_examples(2000, 0)
    )
    assert monitor.update_logits(logits, labels).status().accuracy == pytest.approx(
        right, abs=1e-9
    )
