"""The classifier's own scores: the compiled sum is the portable one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical._core.jit import FEW_CLASSES, has_compiler
from hokical.guarantees._scores import label_log_odds, portable_sums, rest_sums
from hokical.rules import as_logits
from tests.conftest import max_examples


def rows(seed: int, scale: float, dtype: str) -> np.ndarray:
    """Logits with masked classes, ties, and a row with one possible class."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(200, 17))
    logits[:50, 3] = -np.inf
    logits[7, 1:] = -np.inf
    logits[8] = 0.0
    logits[9, [4, 5]] = logits[9].max()
    return logits.astype(dtype)


@pytest.mark.skipif(not has_compiler(), reason="numba is not installed")
@max_examples(12)
@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 300.0, 1000.0]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_compiled_and_portable_sums_agree(seed: int, scale: float, dtype: str) -> None:
    assert rows(seed, scale, dtype).shape[1] > FEW_CLASSES  # so the kernel answers
    logits = as_logits(rows(seed, scale, dtype))
    expected = portable_sums(logits)
    np.testing.assert_allclose(rest_sums(logits), expected, rtol=1e-12, atol=0.0)
    assert expected[7] == 0.0


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = rows(0, 2.0, "float64")
    odds = label_log_odds(as_logits(logits))
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        expected = np.log(proba.max(axis=1)) - np.log1p(-proba.max(axis=1))
    np.testing.assert_allclose(odds, expected, rtol=1e-9)
    assert odds[7] == np.inf
