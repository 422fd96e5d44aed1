"""The row correction: features by their definition, and what it may change."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import TopK
from hokical.rules import as_logits
from hokical.rules.base import LEAST, FlooredRule, predict_blocks
from hokical.rules.scaling import N_COEFFICIENTS, WIDTHS, AdaptiveRule, row_features
from hokical.stability import Gumbel
from tests.conftest import random_rows
from tests.rules import twins
from tests.rules.making import (
    class_counts,
    make_case,
    make_correction,
    make_rows,
    seeds,
)

many_classes = st.sampled_from([17, 23, 33, 40, 100])


@given(seed=seeds, n_classes=class_counts, temperature=st.sampled_from([0.3, 1.0, 5.0]))
def test_features_by_their_definition(
    seed: int, n_classes: int, temperature: float
) -> None:
    """Ties, masked classes, one alone, huge logits, constants."""
    rows = make_rows(seed, n_classes).astype(np.float64)
    found = row_features(as_logits(rows), temperature)
    expected = np.stack([twins.row_features(row / temperature) for row in rows], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-7)


def test_stabilities_are_those_under_gumbel_noise() -> None:
    logits = random_rows(6, 2.0, seed=0)
    for log_odds, width in zip(row_features(logits), WIDTHS, strict=False):
        expected = Gumbel(width).stability(logits)
        np.testing.assert_allclose(
            1.0 / (1.0 + np.exp(-log_odds)), expected, rtol=1e-12
        )


@given(
    seed=seeds, keep_rest=st.booleans(), temperature=st.sampled_from([0.3, 1.0, 5.0])
)
def test_a_tail_counts_as_so_many_classes(
    seed: int, keep_rest: bool, temperature: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, 9)) * np.exp(rng.normal(size=(8, 1)))
    rows[3, 4:] = -np.inf
    best = TopK.from_logits(rows, int(rng.integers(1, 9)), keep_rest=keep_rest)
    np.testing.assert_allclose(
        row_features(best, temperature),
        row_features(best.fill(), temperature),
        atol=1e-7,
    )


@given(
    name=st.sampled_from(["auto", "adaptive"]),
    seed=seeds,
    n_classes=class_counts | many_classes,
)
def test_the_confidence_is_that_of_the_label_to_the_bit(
    name: str, seed: int, n_classes: int
) -> None:
    rule, rows = make_case(name, seed, n_classes)
    labels, confidence, proba = (
        predict_blocks(rule, what, as_logits(rows))
        for what in ("labels", "confidence", "proba")
    )
    # A rule of random numbers may all but exclude the label that it keeps.
    confidence = np.maximum(confidence, LEAST)
    np.testing.assert_array_equal(proba[np.arange(len(rows)), labels], confidence)


@given(seed=seeds, n_classes=class_counts | many_classes)
def test_adaptive_keeps_the_label_on_top(seed: int, n_classes: int) -> None:
    """Also of ties, in float32, and where a floor makes two classes equal."""
    rule, rows = make_case("adaptive", seed, n_classes)
    rows[9] = nearly_tied(rows[9])
    for data in (
        rows,
        np.nan_to_num(rows, neginf=-np.inf).clip(-1e37, 1e37).astype(np.float32),
    ):
        for some in (rule, FlooredRule(0.5, rule)):
            own = data.argmax(axis=1)
            for narrow in (False, True):
                proba = predict_blocks(some, "proba", as_logits(data), narrow=narrow)
                np.testing.assert_array_equal(proba.argmax(axis=1), own)


def nearly_tied(row: np.ndarray) -> np.ndarray:
    """The second of two classes ahead of the first by one rounding."""
    tied = np.minimum(row, 0.0)
    tied[:2] = 1.0, np.nextafter(row.dtype.type(1.0), row.dtype.type(2.0))
    return tied


@pytest.mark.parametrize("n_classes", [5, 20, 40])
def test_a_margin_that_overflows_is_not_masked(n_classes: int) -> None:
    rule, rows = make_case("adaptive", 0, n_classes)
    rows = rows.astype(np.float64)
    rows[8, :2] = 1.7e308, -1.7e308
    alone, beside_masked = (
        predict_blocks(rule, "proba", as_logits(some)) for some in (rows[8:], rows)
    )
    assert (alone > 0.0).all()
    np.testing.assert_array_equal(beside_masked[8:], alone)


def test_scale_and_shift_are_limited() -> None:
    """However large the coefficients are."""
    correction = make_correction(np.random.default_rng(0))
    huge = AdaptiveRule(1.0, correction).with_numbers(
        {
            "correction.log_scale": np.full(N_COEFFICIENTS, 1e100),
            "correction.shift": np.full(N_COEFFICIENTS, -1e100),
        },
        check=True,
    )
    scale, shift = huge.correction.scale_and_shift(random_rows(5, 3.0, seed=1))
    assert set(np.round(np.log(scale), 9)) <= {-3.0, 3.0}
    assert set(shift) <= {-4.0, 4.0}


@pytest.mark.parametrize("name", ["auto", "adaptive", "structured"])
def test_pickles_do_not_depend_on_what_was_asked(name: str) -> None:
    rule, rows = make_case(name, 0, 20)
    fresh = pickle.dumps(rule)
    found = rule.proba(as_logits(rows))
    assert pickle.dumps(rule) == fresh
    np.testing.assert_array_equal(pickle.loads(fresh).proba(as_logits(rows)), found)
