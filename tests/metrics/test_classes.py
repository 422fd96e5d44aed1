"""Calibration by predicted label: the sums, the test, and its false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hokical.metrics import ClassSums, class_table, ece, summary
from hokical.metrics._by_class import gap_p_values, holm


def shifted_model(n: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence, labels given and true ones of a model trained at equal shares."""
    rng = np.random.default_rng(0)
    positive = rng.uniform(size=n) < share
    score = rng.normal(size=n) + 2 * positive - 1
    return 1 / (1 + np.exp(-2 * np.abs(score))), score > 0, positive


def test_a_class_that_the_average_hides_is_named() -> None:
    confidence, predicted, labels = shifted_model(10_000, 0.05)
    assert ece(confidence, predicted == labels) < 0.01
    found = summary(confidence, predicted == labels, predicted=predicted, n_resamples=0)
    assert found.classes is not None
    row = found.classes.rows[1]
    assert row.n == predicted.sum()
    assert row.says == pytest.approx(confidence[predicted].mean())
    assert row.right == pytest.approx(labels[predicted].mean())
    assert found.classes == class_table(confidence, predicted, labels)
    assert "hides class 1: its 1,942 rows say 73.9% and are right 21.9%" in str(found.class_warning)
    assert str(found.class_warning) in str(found)
    named = found.warn_of_class(("calm", "storm"))
    assert named == str(found.class_warning).replace("class 1", "class storm")


@pytest.mark.parametrize("n_classes", [2, 30])
def test_a_calibrated_model_hardly_ever_raises_an_alarm(n_classes: int) -> None:
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(100):
        confidence = rng.beta(3, 1, size=500)
        predicted = rng.integers(n_classes, size=500)
        sums = ClassSums.from_examples(
            predicted, confidence, rng.uniform(size=500) < confidence, n_classes=n_classes
        )
        alarms += bool(sums.table(ece=0.0).flagged)
    assert alarms <= 5


def test_a_small_gap_is_no_alarm_however_certain() -> None:
    predicted, confidence = np.zeros(10**6, np.int64), np.full(10**6, 0.9)
    correct = np.arange(10**6) < 0.86 * 10**6
    sums = ClassSums.from_examples(predicted, confidence, correct, n_classes=2)
    assert sums.table(ece=0.0).flagged == ()
    assert sums.table(ece=0.0).rows[0].p_value == 1.0


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.floats(0, 1))
def test_the_chance_is_bounded_from_above(n: int, says: float, share: float) -> None:
    hits = round(share * n)
    bound = float(gap_p_values(np.array(n), np.array(says), np.array(hits / n)))
    one_sided = binom.cdf(hits, n, says) if hits < n * says else binom.sf(hits - 1, n, says)
    assert bound >= min(1.0, one_sided) - 1e-12


def test_chunks_and_weights_add_up() -> None:
    confidence, predicted, labels = shifted_model(900, 0.3)
    correct = predicted == labels
    whole = ClassSums.from_examples(predicted, confidence, correct, n_classes=2)
    parts = [
        ClassSums.from_examples(predicted[rows], confidence[rows], correct[rows], n_classes=2)
        for rows in (slice(0, 400), slice(400, 900))
    ]
    first, joined = whole.table(ece=0.02), (parts[0] + parts[1]).table(ece=0.02)
    twice = class_table(confidence, predicted, labels, sample_weight=np.full(900, 2.0))
    for row, other, weighted in zip(first.rows, joined.rows, twice.rows, strict=True):
        assert (row.n, row.n) == (other.n, weighted.n)
        assert [row.says, row.right] == pytest.approx([other.says, other.right], rel=1e-12)
        assert row.says == pytest.approx(weighted.says, rel=1e-12)


def test_the_worst_classes_come_first() -> None:
    confidence = np.full(1000, 0.8)
    predicted = np.repeat([0, 1, 2, 3], 250)
    labels = np.where(
        np.arange(1000) % 250 < np.array([200, 100, 160, 240])[predicted], predicted, 0
    )
    labels[0:250] = np.where(np.arange(250) < 200, 0, 1)
    table = class_table(confidence, predicted, labels)
    assert [row.label for row in table.worst(3)] == [1, 2, 3]
    assert table.worst()[-1].label == 0


def test_labels_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match="`predicted` must be integers"):
        class_table([0.5], [0.7], [1])
    with pytest.raises(ValueError, match="`labels` must lie in"):
        class_table([0.5], [1], [-2])


def test_holm_is_never_below_the_given_and_ignores_nan() -> None:
    adjusted = holm(np.array([0.04, np.nan, 0.01]))
    np.testing.assert_allclose(adjusted, [0.04, np.nan, 0.02])
