"""Probabilities that were rounded: taken where rounding explains their sums, and
said.
"""

import warnings

import numpy as np
import pytest

from hokical import FitDataWarning, from_probabilities, make


def rounded(digits: int, n_classes: int = 10) -> np.ndarray:
    rng = np.random.default_rng(1)
    proba = rng.dirichlet(np.full(n_classes, 0.4), size=400)
    return np.round(proba, digits)


def test_what_rounding_explains_is_taken_and_said() -> None:
    proba = rounded(2)
    assert (np.abs(proba.sum(axis=1) - 1.0) > 1.05e-2).any()
    with pytest.warns(FitDataWarning, match="rounded: sums of rows differ"):
        logits = from_probabilities(proba)
    sums = np.exp(logits).sum(axis=1)
    assert (np.abs(sums - 1.0) < 1.05e-2).all()
    np.testing.assert_array_equal(logits.argmax(axis=1), proba.argmax(axis=1))


@pytest.mark.parametrize(
    "row", [[0.9, 0.3], [0.6123456, 0.4500001], [1.0, 1.0], [0.0, 0.0]]
)
def test_what_it_does_not_explain_is_refused(row: list[float]) -> None:
    with pytest.raises(ValueError, match="rows must sum to 1"):
        from_probabilities([[0.25, 0.75], row])


@pytest.mark.parametrize("digits", [2, 3])
def test_rounded_probabilities_are_noticed_as_logits(digits: int) -> None:
    proba = rounded(digits)
    with pytest.warns(FitDataWarning, match="probabilities"):
        make("temps").fit(proba, np.where(np.arange(400) % 4, proba.argmax(axis=1), 0))


def test_exact_ones_are_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = from_probabilities([[0.25, 0.75], [0.5, 0.505]])
    np.testing.assert_array_equal(found, np.log([[0.25, 0.75], [0.5, 0.505]]))
