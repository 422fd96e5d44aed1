"""The compiled pass of the default and of structured scaling against the portable rules."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical._core.logits import as_logits
from hokical.rules import StructuredRule
from hokical.rules._predicting import predict_blocks
from hokical.rules._probabilities import keep_above_zero
from tests.conftest import max_examples
from tests.rules.making import make_case, make_rule, seeds

pytest.importorskip("numba")

class_counts = st.sampled_from([17, 23, 40, 100])


@given(name=st.sampled_from(["auto", "structured"]), seed=seeds, n_classes=class_counts)
@max_examples(60)
def test_random_rules_and_rows(name: str, seed: int, n_classes: int) -> None:
    """Ties, impossible classes, one alone, huge logits, constants; float32 and float64."""
    rule, rows = make_case(name, seed, n_classes)
    logits = as_logits(rows)
    expected = keep_above_zero(rule.portable_proba(logits), logits)
    found = predict_blocks(rule, "proba", logits)
    np.testing.assert_array_equal(found == 0.0, rows == -np.inf)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    confidence = predict_blocks(rule, "confidence", logits)
    labels = predict_blocks(rule, "labels", logits)
    np.testing.assert_allclose(found[np.arange(len(rows)), labels], confidence, atol=1e-36)


@pytest.mark.slow
@given(name=st.sampled_from(["auto", "structured"]), seed=seeds, n_classes=class_counts)
@max_examples(60)
def test_probabilities_of_half_the_size(name: str, seed: int, n_classes: int) -> None:
    """Slow as they are compiled by themselves."""
    rule, rows = make_case(name, seed, n_classes)
    found, small = (
        predict_blocks(rule, "proba", as_logits(rows), narrow=narrow) for narrow in (False, True)
    )
    np.testing.assert_allclose(small, found, rtol=2e-7, atol=1e-36)
    np.testing.assert_array_equal(small.argmax(axis=1), found.argmax(axis=1))


def test_a_floor_too_small_for_the_pass() -> None:
    rule = make_rule("structured", 0, 20)
    assert isinstance(rule, StructuredRule)
    logits = as_logits(1e3 * np.random.default_rng(0).normal(size=(9, 20)))
    tiny = replace(rule, floor=1e-290)
    np.testing.assert_array_equal(tiny.proba(logits), tiny.portable_proba(logits))


@pytest.mark.parametrize("name", ["auto", "structured"])
def test_pickles_do_not_depend_on_what_was_asked(name: str) -> None:
    rule = make_rule(name, 0, 20)
    logits = as_logits(np.random.default_rng(0).normal(size=(3, 20)))
    fresh = pickle.dumps(rule)
    found = rule.proba(logits)
    assert pickle.dumps(rule) == fresh
    np.testing.assert_array_equal(pickle.loads(fresh).proba(logits), found)
