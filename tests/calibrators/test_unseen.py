"""Nothing is invented where nothing was seen: extrapolation, certainty, and
intervals.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import Gaussian, Hoki, make
from hokical.calibrators import method_names
from hokical.rules.hoki import Curve
from tests.conftest import max_examples, quiet_fit, read_pair, synthetic_logits

LEVELS = 200
EVERY = np.arange(LEVELS + 1)


@given(st.integers(0, 2**32 - 1), st.integers(2, 1000))
def test_a_curve_is_held_by_what_was_seen(seed: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    first = np.unique(np.append(0, rng.integers(1, LEVELS + 1, size=6)))
    base, end = rng.random((2, first.size))
    printed = Curve(first.astype(float), end - base, base)
    seen = np.unique(rng.integers(LEVELS + 1, size=rng.integers(1, 30)))
    held, chance = printed.held_by(seen, LEVELS, 1.0 / n_classes), 1.0 / n_classes
    before, after = printed.at(EVERY, LEVELS), held.at(EVERY, LEVELS)
    np.testing.assert_allclose(after[seen], before[seen], atol=1e-12)
    for left, right in itertools.pairwise(seen):
        inside, ends = after[left : right + 1], sorted(after[[left, right]])
        assert inside.min() >= ends[0] - 1e-9
        assert inside.max() <= ends[1] + 1e-9
    np.testing.assert_allclose(after[seen[-1] :], after[seen[-1]], atol=1e-12)
    below, stability = after[: seen[0] + 1], np.arange(seen[0] + 1) / LEVELS
    assert (np.diff(below) >= -1e-12).all()
    assert below.max() <= after[seen[0]] + 1e-12
    guess = np.minimum(below[-1], np.maximum(stability, chance))
    assert (below[stability >= chance] >= guess[stability >= chance] - 1e-9).all()
    if stability[-1] > chance:
        np.testing.assert_allclose(
            below[stability <= chance], min(below[-1], chance), atol=1e-9
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["cifar10_resnet110", "cifar100_lenet5"])
def test_flat_rows_of_real_networks_are_guesses(name: str) -> None:
    pair = read_pair(name)
    n_classes = pair["val_logits"].shape[1]
    options: dict[str, Any] = {"noise": Gaussian(2.0)}
    cal = Hoki(**options).fit(pair["val_logits"], pair["val_labels"])
    printed = Hoki(unseen="as_printed", **options).fit(
        pair["val_logits"], pair["val_labels"]
    )
    flat = np.zeros((1, n_classes))
    assert cal.predict_confidence(flat)[0] < 2.0 / n_classes
    assert printed.predict_confidence(flat)[0] > 3.0 / n_classes
    rows = pair["test_logits"][:500]
    faint = [cal.predict_confidence(size * rows).mean() for size in (0.1, 0.05, 0.01)]
    assert sorted(faint, reverse=True) == faint
    assert faint[-1] < 3.0 / n_classes
    seen = cal.predict_support(rows)
    np.testing.assert_allclose(
        cal.predict_confidence(rows)[seen],
        printed.predict_confidence(rows)[seen],
        atol=0.05,
    )


def fitted(name: str, seed: int, n: int, separable: bool) -> tuple[Any, np.ndarray]:
    """On data that tempt a method to be certain: classes that never occur, labels
    never wrong.
    """
    calibrator = make(name)
    n_classes = 2 if calibrator.method.binary_only else 4
    logits, labels = synthetic_logits(n, n_classes, seed=seed)
    labels = logits.argmax(axis=1) if separable else np.where(labels == 1, 0, labels)
    quiet_fit(calibrator, logits, labels)
    return calibrator, logits


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", method_names(2))
@pytest.mark.parametrize(("n", "separable"), [(80, False), (80, True), (3, False)])
def test_no_possible_class_is_certain_or_excluded(
    name: str, n: int, separable: bool
) -> None:
    calibrator, logits = fitted(name, 3, n, separable)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [logits, 5.0 * rng.normal(size=(40, logits.shape[1])), 0.0 * logits[:1]]
    )
    confidence = calibrator.predict_confidence(rows)
    proba = calibrator.predict_proba(rows)
    for found in (confidence, proba):
        assert found.min() > 0.0
        # A fit without a mistake has no finite temperature: softmax methods end at its
        # bound.
        softmax = name in (
            "temps",
            "adaptive",
            "vecs",
            "ets",
            "structured",
            "ms_odir",
            "dir_odir",
        )
        assert found.max() < 1.0 or (softmax and separable) or n == 3


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", [*method_names(2), "auto"])
def test_an_interval_holds_its_confidence(name: str) -> None:
    calibrator, logits = fitted(name, 5, 150, separable=False)
    if not calibrator.rule_.preserves_labels:
        fresh, labels = synthetic_logits(100, logits.shape[1], seed=9)
        calibrator.certify(fresh, labels)
    for rows in (logits, 0.0 * logits[:2], 0.05 * logits, 40.0 * logits):
        confidence = calibrator.predict_confidence(rows)
        low, high = calibrator.predict_interval(rows).T
        assert (low <= confidence).all()
        assert (confidence <= high).all()


@max_examples(20)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 20.0))
def test_hoki_never_gains_confidence_below_the_least_stable(
    seed: int, width: float
) -> None:
    logits, labels = synthetic_logits(60, 5, seed=seed % 1000)
    cal = quiet_fit(Hoki(noise=Gaussian(width)), logits, labels)
    row = logits[[np.argmin(cal.stability(logits))]]
    shrunk = np.concatenate([row * size for size in np.linspace(1.0, 0.0, 30)])
    confidence = cal.predict_confidence(shrunk)
    assert (np.diff(confidence) <= 1e-12).all()
    # The least stable example may be said to be wrong; else a flat row is a guess.
    assert confidence[-1] <= max(0.2, confidence[0]) + 1e-4
