"""Every rule against its definition, written out one row at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hokical.rules import as_logits
from hokical.rules.base import predict_blocks
from hokical.rules.hoki import Curve, HokiRule
from hokical.rules.scaling import VectorRule
from hokical.stability.tables import EXACT_LEVELS
from tests.rules import twins
from tests.rules.making import (
    NAMES,
    class_counts,
    make_noise,
    make_rows,
    make_rule,
    seeds,
)


def ordinary_rows(seed: int, n_classes: int) -> np.ndarray:
    """float64 rows with ties and masked classes, and none so large that softmaxes
    need care.
    """
    rows = make_rows(seed, n_classes).astype(np.float64)
    rng = np.random.default_rng(seed)
    rows[4:8] = rng.normal(size=(4, n_classes)) * np.array(
        [[20.0], [5.0], [1.0], [0.1]]
    )
    return rows


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "hoki"])
@given(seed=seeds, n_classes=class_counts)
def test_probabilities_and_confidence(name: str, seed: int, n_classes: int) -> None:
    rule = make_rule(name, seed, n_classes)
    rows = ordinary_rows(seed, rule.n_classes or n_classes)
    if (
        name == "auto-averaged"
    ):  # which of equal averages is on top is a matter of rounding
        rows = rows[2:]
    logits = as_logits(rows)
    proba, confidence = (
        predict_blocks(rule, "proba", logits),
        predict_blocks(rule, "confidence", logits),
    )
    # Keys are float32: where the two round to neighbours, they differ by a slope times
    # 6e-8.
    tolerance = 1e-5 if name in ("irm", "irova_ts", "floored", "clipped") else 1e-10
    for i, row in enumerate(rows):
        expected = twins.proba_of(rule, row)
        np.testing.assert_allclose(proba[i], expected, atol=tolerance)
        found = twins.confidence_of(rule, row)
        np.testing.assert_allclose(confidence[i], found, atol=tolerance)


@given(seed=seeds, n_classes=class_counts)
def test_hoki_is_its_link_at_the_stability(seed: int, n_classes: int) -> None:
    """The stability itself is compared with its twins elsewhere; draws are counted
    here.
    """
    rule, rows = make_rule("hoki", seed, n_classes), ordinary_rows(seed, n_classes)
    logits = as_logits(rows)
    confidence, proba = (
        predict_blocks(rule, "confidence", logits),
        predict_blocks(rule, "proba", logits),
    )
    exact = rule.noise.stability(logits)
    for i, row in enumerate(rows):
        stability = None if rule.draws is not None else float(exact[i])
        expected = twins.hoki_confidence(rule, row, stability)
        np.testing.assert_allclose(confidence[i], expected, atol=1e-9)
        alone = np.count_nonzero(row > -np.inf) == 1
        np.testing.assert_allclose(
            proba[i, row.argmax()], 1.0 if alone else expected, atol=1e-9
        )


@given(seed=seeds, n_classes=class_counts)
def test_hoki_shares_what_is_left_by_switches(seed: int, n_classes: int) -> None:
    """Classes other than the label stand to each other as the noise switches to
    them.
    """
    rule, rows = make_rule("hoki", seed, n_classes), ordinary_rows(seed, n_classes)
    if rule.noise.family == "uniform":
        return
    logits = as_logits(rows)
    proba, switches = (
        predict_blocks(rule, "proba", logits),
        rule.noise.distribution(logits),
    )
    others = (np.arange(n_classes)[None] != logits.labels[:, None]) & (
        switches > 1e-250
    )
    for i in np.flatnonzero(others.any(axis=1)):
        mine, theirs = proba[i, others[i]], switches[i, others[i]]
        np.testing.assert_allclose(
            mine * theirs.sum(), mine.sum() * theirs, rtol=1e-9, atol=1e-300
        )


@given(seed=seeds, n_classes=class_counts)
def test_answers_do_not_depend_on_a_constant(seed: int, n_classes: int) -> None:
    """Rows are taken relative to their top, so that a shift changes rounding alone."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-8, 8, (5, n_classes)) / 4.0
    for name in NAMES:
        rule = make_rule(name, seed, n_classes)
        if rule.n_classes in (None, n_classes):
            shifted = predict_blocks(rule, "proba", as_logits(rows + 1024.0))
            np.testing.assert_array_equal(
                shifted, predict_blocks(rule, "proba", as_logits(rows))
            )


def test_vector_scaling_by_hand() -> None:
    """Two classes of probability 1/2: log-odds are the difference of scale *
    log(1/2) + bias.
    """
    rule = VectorRule(np.array([1.0, 3.0]), np.array([0.0, 1.0]))
    odds = np.exp((1.0 - 3.0) * np.log(0.5) - 1.0)
    proba = predict_blocks(rule, "proba", as_logits(np.zeros((1, 2))))
    np.testing.assert_allclose(proba, [[odds / (1 + odds), 1 / (1 + odds)]])


@given(seed=seeds)
def test_hoki_confidence_is_a_curve_of_levels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = make_noise(rng)
    link = Curve(np.zeros(1), np.ones(1), np.zeros(1))
    rule = HokiRule(noise, None, EXACT_LEVELS, link)
    logits = as_logits(ordinary_rows(seed, 5))
    level = rule.level(logits)
    np.testing.assert_array_equal(level, np.rint(level))
    np.testing.assert_array_equal(
        predict_blocks(rule, "confidence", logits), level / EXACT_LEVELS
    )
