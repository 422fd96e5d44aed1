"""Proper scores and the classwise ECE, top-label and full-vector."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss

from hokical.metrics import (
    auroc,
    brier,
    classwise_ece,
    ece,
    log_loss,
)

from . import twins


def probabilities(
    n: int, n_classes: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(n_classes, 0.3), size=n)
    return proba, rng.integers(n_classes, size=n)


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_agrees(weighted: bool) -> None:
    confidence, correct = twins.model(3000, seed=8)
    weight = np.random.default_rng(0).exponential(size=3000) if weighted else None
    ours = {"sample_weight": weight}
    assert brier(confidence, correct, **ours) == pytest.approx(
        brier_score_loss(correct, confidence, sample_weight=weight), rel=1e-12
    )
    assert log_loss(confidence, correct, **ours) == pytest.approx(
        sklearn_log_loss(correct, confidence, sample_weight=weight), rel=1e-12
    )
    assert auroc(confidence, correct, **ours) == pytest.approx(
        roc_auc_score(correct, confidence, sample_weight=weight), rel=1e-12
    )


def test_scikit_learn_agrees_on_vectors() -> None:
    proba, labels = probabilities(800, 5, seed=9)
    classes = np.arange(5)
    assert log_loss(proba, labels, clip=2**-52) == pytest.approx(
        sklearn_log_loss(labels, proba, labels=classes), rel=1e-9
    )
    if (
        "scale_by_half" in inspect.signature(brier_score_loss).parameters
    ):  # scikit-learn 1.7
        expected = brier_score_loss(labels, proba, labels=classes, scale_by_half=False)
        assert brier(proba, labels) == pytest.approx(expected, rel=1e-12)


def test_two_classes_are_twice_the_top_label() -> None:
    confidence, correct = twins.model(400, seed=10)
    proba = np.stack([1.0 - confidence, confidence], axis=1)
    labels = correct.astype(int)
    assert brier(proba, labels) == pytest.approx(2.0 * brier(confidence, correct))
    assert log_loss(proba, labels) == pytest.approx(log_loss(confidence, correct))


def test_certain_and_wrong_is_infinite_unless_clipped() -> None:
    assert log_loss([1.0, 0.5], [False, True]) == math.inf
    assert log_loss([0.0], [True]) == math.inf
    assert log_loss([[1.0, 0.0]], [1]) == math.inf
    assert log_loss([0.0, 1.0], [False, True]) == 0.0
    assert log_loss([1.0], [False], clip=1e-10) == pytest.approx(10 * math.log(10))
    assert log_loss([[1.0, 0.0]], [1], clip=1e-10) == pytest.approx(10 * math.log(10))
    # A row that does not count cannot make the mean infinite, or NaN.
    assert log_loss([1.0, 0.5], [False, True], sample_weight=[0, 1]) == pytest.approx(
        math.log(2)
    )
    with pytest.raises(ValueError, match="`clip` must be at least 0 and below 1/2"):
        log_loss([0.5], [True], clip=0.5)


def test_log_loss_keeps_tiny_chances() -> None:
    assert log_loss([1e-17], [False]) == pytest.approx(1e-17, rel=1e-12)
    assert log_loss([1e-299], [True]) == pytest.approx(299 * math.log(10))


def test_a_probability_at_the_floor_of_predictions_is_a_certainty() -> None:
    """No prediction is below 1e-300, so at that the class was called impossible."""
    assert log_loss([1e-300], [True]) == math.inf
    assert log_loss([[1.0, 1e-300]], [1]) == math.inf
    assert log_loss([[1.0, 1e-20]], [1]) == pytest.approx(20 * math.log(10))


@given(twins.rows)
def test_weight_two_is_the_row_twice(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    long = (np.repeat(confidence, weight), np.repeat(correct, weight))
    assert log_loss(confidence, correct, sample_weight=weight) == pytest.approx(
        log_loss(*long)
    )


@given(st.integers(2, 6), st.integers(1, 30))
def test_metrics_of_all_classes_by_hand_and_by_repetition(
    n_classes: int, n: int
) -> None:
    proba, labels = probabilities(n, n_classes, seed=n)
    weight = np.arange(n) % 3 + 1
    long = (np.repeat(proba, weight, axis=0), np.repeat(labels, weight))
    per_class = [ece(long[0][:, k], long[1] == k) for k in range(n_classes)]
    found = classwise_ece(proba, labels, sample_weight=weight)
    assert found == pytest.approx(np.mean(per_class), rel=1e-12)
    assert brier(proba, labels, sample_weight=weight) == pytest.approx(brier(*long))
    by_hand = ((proba - np.eye(n_classes)[labels]) ** 2).sum(axis=1).mean()
    assert brier(proba, labels) == pytest.approx(by_hand)


def test_float32_and_memory_maps_are_read_in_blocks(tmp_path: object) -> None:
    proba, labels = probabilities(3000, 200, seed=11)  # more than one block of rows
    path = tmp_path / "proba.npy"  # type: ignore[operator]
    np.save(path, proba.astype(np.float32))
    mapped = np.load(path, mmap_mode="r")
    assert brier(mapped, labels) == pytest.approx(brier(proba, labels), rel=1e-5)


def test_metrics_of_the_label_take_probabilities() -> None:
    proba, labels = probabilities(300, 4, seed=1)
    top = proba.max(axis=1), proba.argmax(axis=1) == labels
    for metric in (ece, auroc):
        assert metric(proba, labels) == metric(*top)
