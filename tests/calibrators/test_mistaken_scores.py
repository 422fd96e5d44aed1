"""Scores of another kind than those that a method takes are noticed: probabilities in
the place of logits from the first row on, features in the place of scores,
probabilities of a class in the place of confidences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer, load_digits

import hokical
from hokical import FitDataWarning, make
from hokical._core.schema import count_digits
from tests.conftest import synthetic_logits

Change = Callable[[np.ndarray], np.ndarray]
#: How services hold numbers.
PRECISIONS: dict[str, Change] = {
    "float64": lambda array: array,
    "float32": lambda array: array.astype(np.float32),
    "float16": lambda array: array.astype(np.float16),
    "float16 as float32": lambda array: array.astype(np.float16).astype(np.float32),
    "4 digits": lambda array: array.round(4),
    "3 digits": lambda array: array.round(3),
}


def count_alarms(cal: hokical.Calibrator, rows: np.ndarray, step: int) -> int:
    """How many of consecutive batches of fresh copies of a calibrator warn."""
    alarms = 0
    for start in range(0, len(rows) - step + 1, step):
        service = deepcopy(cal)  # warns once
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            service.predict_proba(rows[start : start + step])
        alarms += any("look like" in str(warning.message) for warning in caught)
    return alarms


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 5])
def test_probabilities_are_noticed_from_the_first_row(
    n_rows: int, n_classes: int, precision: str
) -> None:
    logits, labels = synthetic_logits(500, n_classes, seed=3, stretch=1.5)
    cal = make("temps").fit(logits, labels)
    proba = PRECISIONS[precision](softmax(logits[: 12 * n_rows], axis=1))
    assert count_alarms(cal, proba, n_rows) >= 11


def _of_score(score: np.ndarray) -> np.ndarray:
    return np.stack([1.0 - score, score], axis=1)


def logits_near_probabilities() -> dict[str, np.ndarray]:
    """Logits of which single rows are numbers in [0, 1] with a sum of 1."""
    rng = np.random.default_rng(0)
    score = rng.normal(0.5, 1.5, 600)
    whole = rng.integers(-4, 5, (600, 2)).astype(float)
    return {
        "1 - s and s": _of_score(score),
        "1 - s and s, float32": _of_score(score).astype(np.float32),
        "1 - s and s, 2 digits": _of_score(score.round(2)),
        "small": rng.normal(0.3, 0.4, (600, 2)),
        "uniform": 3.0 * rng.random((600, 2)),
        "whole": whole,
        "whole scores of class 1": whole * [0.0, 1.0],
        "1 digit": rng.normal(0.0, 2.0, (600, 2)).round(1),
        "2 digits": rng.normal(0.0, 2.0, (600, 2)).round(2),
        "float16": rng.normal(0.0, 2.0, (600, 2)).astype(np.float16),
        "shares of votes": rng.multinomial(7, np.full(5, 0.2), 600) / 2.0,
        "masked": np.stack([score, np.full(600, -np.inf), 2.0 * score], axis=1),
        "one vote": np.eye(3)[rng.integers(0, 3, 600)] * rng.integers(1, 4, (600, 1)),
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", logits_near_probabilities())
@pytest.mark.parametrize("n_rows", [1, 3])
def test_rows_of_logits_that_sum_to_one_raise_no_alarm(kind: str, n_rows: int) -> None:
    logits = logits_near_probabilities()[kind]
    labels = np.arange(300) % logits.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = make("temps").fit(logits[:300], labels)
    assert count_alarms(cal, logits[300:], n_rows) == 0


def test_a_stored_calibrator_knows_what_its_fit_saw(tmp_path) -> None:  # type: ignore[no-untyped-def]
    logits = logits_near_probabilities()["1 - s and s"]
    make("temps").fit(logits[:300], np.arange(300) % 2).save(tmp_path / "cal.json")
    cal = hokical.load(tmp_path / "cal.json")
    assert 0.1 < cal.schema_.like_probabilities < 0.4
    assert count_alarms(cal, logits[300:], 1) == 0


@pytest.mark.parametrize("n_digits", range(6))
def test_digits_are_counted_in_every_type(n_digits: int) -> None:
    numbers = np.random.default_rng(n_digits).random(200).round(n_digits)
    assert count_digits(numbers) == n_digits
    assert count_digits(numbers.astype(np.float32)) == n_digits


@pytest.mark.slow
def test_features_are_not_scores_of_classes() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for features in (X, scaled):
        with pytest.warns(FitDataWarning, match="28 are classes without a label"):
            hokical.auto(features, y)
    X, y = load_digits(return_X_y=True)  # 64 pixels, 10 classes
    with pytest.warns(FitDataWarning, match="seem to be features"):
        make("temps").fit(X, y)


@pytest.mark.parametrize(("n_rows", "n_classes"), [(60, 100), (300, 1000), (40, 8)])
def test_few_labels_of_many_classes_are_no_features(
    n_rows: int, n_classes: int
) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(n_rows, n_classes))  # of a classifier that knows nothing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make("temps").fit(logits, rng.integers(0, n_classes, n_rows))
    assert not any("features" in str(warning.message) for warning in caught)


def test_probabilities_of_class_1_are_no_confidences() -> None:
    rng = np.random.default_rng(2)
    p1 = expit(rng.normal(0.0, 2.0, 400))
    labels = (rng.random(400) < p1).astype(int)
    with pytest.raises(ValueError, match=r"can be confidences or probabilities .* row"):
        hokical.evaluate(None, p1, labels)
    for right in (labels, labels.astype(float)):
        with pytest.raises(ValueError, match=r"`y.astype\(bool\)`"):
            hokical.evaluate(None, list(p1), list(right))
    of_classes = hokical.evaluate(None, hokical.from_probabilities(p1), labels)
    assert of_classes["accuracy"].value == ((p1 >= 0.5) == labels).mean()
    right = (p1 >= 0.5) == labels
    stated = hokical.evaluate(None, np.maximum(p1, 1.0 - p1), right.astype(int))
    assert stated["accuracy"].value == right.mean()
    assert hokical.evaluate(None, p1, labels == 1)["accuracy"].value == labels.mean()
