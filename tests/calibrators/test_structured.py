"""Structured scaling: its optimum against SciPy's, what it corrects, and data that
is awkward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning

from hokical import make
from hokical.calibrators import StructuredScaling
from hokical.rules import as_logits
from hokical.rules.base import floored_scores
from hokical.rules.scaling import shape_features
from tests.conftest import max_examples, quiet_fit, synthetic_logits


def quiet(
    logits: np.ndarray,
    labels: np.ndarray,
    weights: Any = None,
    *,
    name: str = "structured",
    **options: Any,
) -> Any:
    return quiet_fit(make(name, **options), logits, labels, weights)


def mean_log_loss(calibrator: Any, logits: np.ndarray, labels: np.ndarray) -> float:
    proba = calibrator.predict_proba(logits)
    return float(-np.log(proba[np.arange(labels.size), labels]).mean())


@pytest.mark.sample(2)
@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_coefficients_are_those_of_a_general_solver(
    n_classes: int, cross: bool
) -> None:
    """The objective of the documentation, written anew and left to L-BFGS."""
    logits, labels = synthetic_logits(150, n_classes, seed=5, signal=1.0)
    weights = np.random.default_rng(0).integers(0, 3, 150).astype(float)
    found = quiet(logits, labels, 3.0 * weights, cross=cross, strength=0.7)
    weights *= weights.sum() / (
        weights @ weights
    )  # they count by their effective number
    rule, rows = found.rule_, as_logits(logits)
    z, *shapes = shape_features(
        floored_scores(rows, rule.floor, 1.0 / rule.temperature), rows
    )
    sizes = [2, n_classes, n_classes, n_classes**2 if cross else 0]
    penalty = 0.7 * np.repeat(
        [1, n_classes, n_classes, n_classes * (n_classes - 1)], sizes
    )

    def loss(x: np.ndarray) -> float:
        w, v, b, m = np.split(x, np.cumsum(sizes)[:-1])
        scores = (
            z * (1.0 + v) + b + sum(c * part for c, part in zip(w, shapes, strict=True))
        )
        scores = scores + z @ m.reshape(n_classes, -1).T if cross else scores
        own = log_softmax(scores, axis=1)[np.arange(150), labels]
        return float(-weights @ own + 0.5 * penalty @ (x * x))

    best = minimize(
        loss, np.zeros(sum(sizes)), method="L-BFGS-B", options={"maxfun": 100_000}
    )
    ours = np.concatenate([rule.shape, rule.scale - 1.0, rule.bias, rule.cross.ravel()])
    assert loss(ours) <= best.fun + 1e-6
    np.testing.assert_allclose(ours, best.x, atol=1e-2)  # its slopes are differences
    assert found.even_ == pytest.approx(1.0 / (weights.sum() + 1.0))
    proba = found.predict_proba(logits)[np.arange(150), labels]
    assert found.log_loss_ == pytest.approx(-np.average(np.log(proba), weights=weights))


@pytest.mark.parametrize("name", ["structured", "auto"])
@max_examples(4)
@given(factor=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_only_ratios_of_weights_matter(name: str, factor: float, seed: int) -> None:
    logits, labels = synthetic_logits(120, 3, seed=seed, signal=1.0)
    weights = np.random.default_rng(seed).exponential(size=120)
    expected = quiet(logits, labels, weights, name=name).predict_proba(logits)
    found = quiet(logits, labels, factor * weights, name=name).predict_proba(logits)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)


def test_equal_weights_are_no_weights() -> None:
    logits, labels = synthetic_logits(150, 3, seed=1, signal=1.0)
    for name in ("structured", "auto"):
        expected = quiet(logits, labels, name=name).predict_proba(logits)
        found = quiet(logits, labels, np.full(150, 7.0), name=name).predict_proba(
            logits
        )
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_a_changed_class_balance_is_corrected() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random(8000) < 0.05).astype(int)
    score = rng.normal(size=8000) + 2.0 * (labels - 0.5)
    logits = np.stack([-score, score], axis=1)  # right for a balance of one half
    found = quiet(logits[:4000], labels[:4000])
    proba = found.predict_proba(logits[4000:])
    assert abs(proba[:, 1].mean() - labels[4000:].mean()) < 0.01
    temps = quiet(logits[:4000], labels[:4000], name="temps")
    theirs = mean_log_loss(temps, logits[4000:], labels[4000:])
    assert mean_log_loss(found, logits[4000:], labels[4000:]) < theirs - 0.05


def test_probabilities_of_nothing_are_smoothed() -> None:
    """A model that is now and then certain and wrong: the floor says how often that
    is.
    """
    logits, labels = synthetic_logits(2000, 3, seed=2, stretch=1.0)
    logits[::50] = np.where(np.arange(3) == labels[::50, None], -690.0, 0.0)
    found = quiet(logits, labels)
    assert found.floor_ > 1e-10
    assert found.log_loss_ < quiet(logits, labels, name="temps").log_loss_ - 0.05


def test_units_of_the_logits_hardly_matter() -> None:
    logits, labels = synthetic_logits(1000, 4, seed=6)
    usual = quiet(logits, labels)
    assert abs(quiet(1e4 * logits, labels).log_loss_ - usual.log_loss_) < 0.02


def test_more_strength_is_closer_to_temperature_scaling() -> None:
    logits, labels = synthetic_logits(500, 4, seed=4)
    away = [
        np.abs(quiet(logits, labels, strength=strength).scale_ - 1.0).max()
        for strength in (0.03, 3.0, 1e9)
    ]
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-6


def test_cross_terms_by_the_number_of_classes() -> None:
    few = synthetic_logits(60, 5, seed=1)
    many = synthetic_logits(200, 101, seed=1)
    assert quiet(*few).cross_.shape == (5, 5)
    assert quiet(*few, cross=False).cross_.shape == (0, 0)
    assert quiet(*many).cross_.shape == (0, 0)
    assert quiet(*many, cross=True).cross_.shape == (101, 101)


@max_examples(12)
@given(seed=st.integers(0, 999), n_classes=st.integers(2, 5), data=st.data())
def test_no_possible_class_gets_nothing(
    seed: int, n_classes: int, data: st.DataObject
) -> None:
    """Whatever the examples are, weights on one class among them."""
    n = data.draw(st.integers(1, 30))
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes)) * 10.0 ** rng.uniform(-3, 3)
    labels = rng.integers(n_classes, size=n)
    masked = (rng.random(logits.shape) < 0.2) & (
        np.arange(n_classes) != labels[:, None]
    )
    logits = np.where(masked, -np.inf, logits)
    weights = (labels == labels[0]).astype(float) if data.draw(st.booleans()) else None
    proba = quiet(logits, labels, weights).predict_proba(logits)
    assert ((proba > 0.0) == ~masked).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize(
    ("case", "match"),
    [
        ("one class", "every validation example is of class 2"),
        ("all right", "no temperature"),
    ],
)
def test_what_the_examples_do_not_tell_is_said(case: str, match: str) -> None:
    logits, _ = synthetic_logits(60, 3, seed=9)
    labels = np.full(60, 2) if case == "one class" else logits.argmax(axis=1)
    with pytest.warns(ConvergenceWarning, match=match):
        found = StructuredScaling().fit(logits, labels)
    assert not found.converged_
    assert match in found.message_


@pytest.mark.parametrize(
    "options",
    [{"cross": "yes"}, {"cross": 1}, {"strength": 0.0}, {"strength": True}],
)
def test_wrong_parameters_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be"):
        StructuredScaling(**options).fit(*synthetic_logits(20, 3, seed=0))
