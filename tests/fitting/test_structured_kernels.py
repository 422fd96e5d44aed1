"""The compiled loops of structured scaling, against their portable reference implementations."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

from hokical import make
from hokical._core import jit
from hokical._core.fast_exp import log_of
from hokical._core.jit import kernel
from hokical._core.logits import Logits, as_logits
from hokical._fitting.floor import floored_values
from hokical._fitting.kernels import floor_rows
from hokical._fitting.likelihood import WeightedExamples
from hokical._fitting.structured_blocks import (
    CompiledBlock,
    StructuredBlock,
    make_blocks,
    make_features,
)
from tests.conftest import synthetic_logits

pytest.importorskip("numba")

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


@kernel
def logs(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.shape[0]):
        out[i] = log_of(x[i])


def test_logarithms() -> None:
    x = np.concatenate([10.0 ** np.linspace(-299, 2, 400), 1.0 - 10.0 ** np.linspace(-16, -1, 50)])
    found = np.empty_like(x)
    logs(x, found)
    np.testing.assert_allclose(found, np.log(x), rtol=1e-14, atol=1e-15)


def hard_logits(dtype: type) -> Logits:
    """Usual rows, a tie, a sure one, a very sure one, and one far beyond exp's range."""
    logits, _ = synthetic_logits(40, 7, seed=3)
    logits[0, :2] = logits[0].max()
    logits[1], logits[2], logits[3] = np.arange(7.0) * 8, np.arange(7.0) * 60, np.arange(7.0) * 1e4
    return as_logits(logits.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_features(monkeypatch, dtype: type, temperature: float) -> None:
    monkeypatch.setattr(jit, "FEW_CLASSES", 1)
    logits = hard_logits(dtype)
    for part, twin in zip(
        make_features(logits, temperature, True),
        make_features.portable(logits, temperature, True),
        strict=True,
    ):
        np.testing.assert_allclose(part, twin, **CLOSE)


@pytest.mark.parametrize("floor", [1e-60, 1e-8, 1e-2])
def test_floors(floor: float) -> None:
    logits = hard_logits(np.float64)
    logits.values[5, 0] = -np.inf
    found = np.empty(logits.values.shape)
    floor_rows(logits.block(), logits.top, floor, found)
    np.testing.assert_allclose(found, floored_values.portable(logits, floor), **CLOSE)


def test_sums() -> None:
    """Probabilities, slope and curvature of a block."""
    logits = hard_logits(np.float64)
    rng = np.random.default_rng(0)
    weights = rng.random(40) * rng.integers(0, 2, 40)
    examples = WeightedExamples(logits, rng.integers(0, 7, 40), weights / weights.sum())
    (slow,) = make_blocks(examples, 1.5, cross_terms=False).blocks
    fields = {name: getattr(slow, name) for name in StructuredBlock.__dataclass_fields__}
    quick = CompiledBlock(**fields)
    coef, direction = 0.3 * rng.normal(size=(2, 17))
    (proba, loss), (expected, expected_loss) = quick.probabilities(coef), slow.probabilities(coef)
    np.testing.assert_allclose(proba, expected, **CLOSE)
    assert loss == pytest.approx(float(expected_loss), rel=1e-12)
    np.testing.assert_allclose(quick.slope(expected), slow.slope(expected), **CLOSE)
    np.testing.assert_allclose(
        quick.curvature(expected, direction), slow.curvature(expected, direction), **CLOSE
    )
    np.testing.assert_allclose(quick.moments(expected), slow.moments(expected), **CLOSE)


@pytest.mark.parametrize("masked", [False, True])
def test_fits_are_the_same(monkeypatch, masked: bool) -> None:
    logits, labels = synthetic_logits(400, 5, seed=1)
    if masked:
        logits[labels != 0, 0] = -np.inf
    expected = make("structured", cross=False).fit(logits, labels)
    monkeypatch.setattr(jit, "FEW_CLASSES", 1)
    found = make("structured", cross=False).fit(logits, labels)
    np.testing.assert_allclose(
        found.predict_proba(logits), expected.predict_proba(logits), atol=1e-9
    )


def test_without_cross_terms_in_another_library() -> None:
    logits, labels = synthetic_logits(200, 4, seed=1)
    expected = make("structured", cross=False).fit(logits, labels)
    found = make("structured", cross=False).fit(strict.asarray(logits), labels)
    assert found.log_loss_ == pytest.approx(expected.log_loss_, rel=1e-9)


@pytest.mark.parametrize(("n", "n_classes"), [(6554, 10), (13_108, 5)])
def test_a_last_block_of_a_few_rows(n: int, n_classes: int) -> None:
    """Shorter than the distance between the rows that the Hessian is made of."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(n, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    assert make("structured").fit(logits, labels).converged_
