"""Rules that make do with the best logits: hidden classes count as equal ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hokical import TopK
from hokical.rules import Rule, as_logits
from hokical.rules.base import predict_blocks
from hokical.rules.hoki import Curve, HokiRule
from hokical.stability.tables import EXACT_LEVELS
from tests.rules.making import NAMES, assert_chances, make_noise, make_rule, seeds

TOP_K_NAMES = [name for name in NAMES if make_rule(name, 0, 3).accepts_top_k]
#: The row correction is not monotone in the hidden logits, and has no bounds.
BOUNDED = [name for name in TOP_K_NAMES if name != "adaptive"]


def make_top_k_rule(name: str, seed: int, n_classes: int) -> Rule:
    """For hoki the stability itself: a jump of its curve could turn rounding into
    anything.
    """
    if name != "hoki":
        return make_rule(name, seed, n_classes)
    noise = make_noise(np.random.default_rng(seed))
    return HokiRule(
        noise, None, EXACT_LEVELS, Curve(np.zeros(1), np.ones(1), np.zeros(1))
    )


def rows_and_best(seed: int, keep_rest: bool) -> tuple[np.ndarray, TopK]:
    """Rows of possible classes: a hidden one is taken for possible."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, int(rng.integers(3, 30)))) * np.exp(
        rng.normal(size=(8, 1))
    )
    rows[1] = rows[1, 0]
    return rows, TopK.from_logits(
        rows, int(rng.integers(1, rows.shape[1])), keep_rest=keep_rest
    )


@pytest.mark.parametrize("keep_rest", [False, True])
@pytest.mark.parametrize("name", BOUNDED)
@given(seed=seeds)
def test_hidden_classes_count_as_equal_ones(
    name: str, keep_rest: bool, seed: int
) -> None:
    rows, best = rows_and_best(seed, keep_rest)
    rule = make_top_k_rule(name, seed, rows.shape[1])
    confidence = predict_blocks(rule, "confidence", best)
    filled = predict_blocks(rule, "confidence", as_logits(best.to_dense()))
    np.testing.assert_allclose(confidence, filled, atol=3e-5)  # levels are 1.5e-5 apart
    assert_chances(confidence)


@pytest.mark.sample(5)
@pytest.mark.parametrize("keep_rest", [False, True])
@pytest.mark.parametrize("name", TOP_K_NAMES)
@given(seed=seeds)
def test_probabilities_of_all_classes(name: str, keep_rest: bool, seed: int) -> None:
    """Rows sum to 1, and the label has its confidence."""
    rows, best = rows_and_best(seed, keep_rest)
    rule = make_top_k_rule(name, seed, rows.shape[1])
    proba, confidence = (
        predict_blocks(rule, "proba", best),
        predict_blocks(rule, "confidence", best),
    )
    assert proba.shape == rows.shape
    assert_chances(proba)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    own = np.take_along_axis(proba, best.labels[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(
        own, np.where(best.possible_counts == 1.0, 1.0, confidence), atol=1e-12
    )


@pytest.mark.parametrize("name", TOP_K_NAMES)
@given(seed=seeds)
def test_nothing_hidden_is_nothing_lost(name: str, seed: int) -> None:
    rows, _ = rows_and_best(seed, keep_rest=True)
    rule = make_top_k_rule(name, seed, rows.shape[1])
    whole = as_logits(TopK.from_logits(rows, rows.shape[1]))
    for what in ("labels", "confidence", "proba"):
        expected = predict_blocks(rule, what, as_logits(rows))
        np.testing.assert_allclose(
            predict_blocks(rule, what, whole), expected, atol=1e-12
        )
