"""Adaptive temperature scaling, and the default on few examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hokical
from hokical.calibrators import AdaptiveTemperatureScaling, TemperatureScaling
from tests.conftest import repetitions, softmax_examples
from tests.fitted import fingerprint


def log_loss(cal: object, logits: np.ndarray, labels: np.ndarray) -> float:
    return float(
        -np.log(cal.predict_proba(logits)[np.arange(labels.size), labels]).mean()
    )


@pytest.mark.parametrize("n_classes", [3, 40])
def test_rows_with_temperatures_of_their_own(n_classes: int) -> None:
    given, fresh = (
        softmax_examples(2000, n_classes, spread=2.0, seed=seed, uneven=1.0)
        for seed in (0, 1)
    )
    cal, temps = (
        AdaptiveTemperatureScaling().fit(*given),
        TemperatureScaling().fit(*given),
    )
    assert cal.correction_ is not None
    assert cal.temperature_ == temps.temperature_
    assert log_loss(cal, *fresh) < log_loss(temps, *fresh) - 0.01


@pytest.mark.parametrize("n_classes", [2, 10, 40])
def test_without_need_it_is_temperature_scaling(n_classes: int, tmp_path: Path) -> None:
    logits, labels = softmax_examples(1000, n_classes, spread=2.0)
    cal, temps = AdaptiveTemperatureScaling().fit(logits, labels), TemperatureScaling()
    expected = temps.fit(logits, labels).predict_proba(logits)
    cal.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    for each in (cal, loaded, loaded):
        assert each.correction_ is None
        assert each.temperature_ == temps.temperature_
        assert_array_equal(each.predict_proba(logits), expected)


@pytest.mark.parametrize("n_classes", [3, 20])
def test_saved_and_loaded(n_classes: int, tmp_path: Path) -> None:
    logits, labels = softmax_examples(
        1000, n_classes, spread=2.0, uneven=1.0, masked=0.2
    )
    cal = AdaptiveTemperatureScaling().fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    assert loaded.name == "adaptive"
    assert fingerprint(loaded) == fingerprint(cal)
    assert_array_equal(loaded.correction_.shift, cal.correction_.shift)
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))


@pytest.mark.parametrize("n_classes", [2, 3, 10, 20, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_are_kept(n_classes: int, dtype: type) -> None:
    """They are the first maxima of the probabilities, also of ties."""
    logits, labels = softmax_examples(
        1000, n_classes, spread=2.0, uneven=1.0, masked=0.1
    )
    cal = AdaptiveTemperatureScaling().fit(logits, labels)
    logits[:50, :2] = logits[:50].max(axis=1, keepdims=True)
    logits[50:60] = 0.0
    rows = logits.astype(dtype)
    own = rows.argmax(axis=1)
    assert_array_equal(cal.predict(rows), own)
    for kind in ("float32", "float64"):
        assert_array_equal(cal.predict_proba(rows, dtype=kind).argmax(axis=1), own)
    assert_array_equal(
        cal.predict_confidence(rows), cal.predict_proba(rows).max(axis=1)
    )


def test_best_classes_alone() -> None:
    logits, labels = softmax_examples(1500, 30, spread=2.0, uneven=1.0)
    for k in (3, 20):  # few columns, and as many as kernels have
        some = hokical.TopK.from_logits(logits, k)
        cal = AdaptiveTemperatureScaling().fit(some, labels)
        assert cal.correction_ is not None
        assert_array_equal(cal.predict(some), logits.argmax(axis=1))
        proba, confidence = cal.predict_proba(some), cal.predict_confidence(some)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
        np.testing.assert_allclose(
            proba[np.arange(1500), some.labels], confidence, atol=1e-12
        )
        right = logits.argmax(axis=1) == labels
        assert confidence.mean() == pytest.approx(right.mean(), abs=0.03)


def test_without_a_mistake_there_is_no_correction() -> None:
    logits, _ = softmax_examples(300, 10, spread=2.0)
    with pytest.warns(UserWarning, match="did not converge"):
        cal = AdaptiveTemperatureScaling().fit(logits, logits.argmax(axis=1))
    assert cal.correction_ is None


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("n", "n_classes", "masked"), [(50, 2, 0.0), (50, 5, 0.0), (30, 10, 0.3)]
)
def test_few_examples_of_a_calibrated_classifier_do_no_harm(
    n: int, n_classes: int, masked: float
) -> None:
    """The default loses at most 0.1 nats on any of a few dozen samples."""
    for seed in range(repetitions(36, 12)):
        rng = np.random.default_rng([seed, n_classes])
        logits = 2.0 * rng.normal(size=(n + 1000, n_classes))
        logits[:, 1:][rng.random((n + 1000, n_classes - 1)) < masked] = -np.inf
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        cal = hokical.auto(logits[:n], labels[:n])
        own = hokical.make("uncalibrated").fit(logits[:n], labels[:n])
        fresh = logits[n:], labels[n:]
        assert log_loss(cal, *fresh) < log_loss(own, *fresh) + 0.1
