"""Log-loss fits find the same in any library, in passes and in memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from hokical.calibrators import Calibrator, Examples, make
from tests.conftest import quiet_fit, synthetic_logits
from tests.libraries import get_library, in_library

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "uncalibrated": ("uncalibrated", {}),
    "temps": ("temps", {}),
    "ets": ("ets", {}),
    "vecs": ("vecs", {}),
    "structured": ("structured", {}),
}
LIBRARIES = ["array_api_strict", "torch", "jax"]


def examples(n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, some masked (a few truths among them), with labels and weights, some
    0.
    """
    logits, labels = synthetic_logits(n, 5, seed=11, signal=1.0)
    rng = np.random.default_rng(0)
    masked = (rng.random(logits.shape) < 0.1) & (np.arange(5) != labels[:, None])
    masked[np.arange(3), labels[:3]] = True
    return (
        np.where(masked, -np.inf, logits),
        labels,
        rng.integers(0, 4, size=n).astype(float),
    )


def fit(case: str, *data: Any) -> Calibrator:
    name, options = CASES[case]
    return quiet_fit(make(name, **options), *data)


def assert_same(found: Calibrator, expected: Calibrator) -> None:
    """The numbers of the rules, all of them on the host."""
    numbers = found.rule_.numbers()
    for name, value in expected.rule_.numbers().items():
        assert isinstance(numbers[name], (np.ndarray, float))
        np.testing.assert_allclose(numbers[name], value, rtol=1e-9, atol=1e-11)


@pytest.mark.sample(9)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", CASES)
def test_a_fit_in_any_library_is_numpys(case: str, library: str) -> None:
    kind = get_library(library)
    if library == "jax" and case not in ("temps", "vecs"):
        pytest.skip("JAX compiles every operation for every shape: few fits will do")
    logits, labels, weights = examples()
    expected = fit(case, logits, labels, weights)
    block_size = 1 << 20 if library == "jax" else 256
    with kind.scope():
        found = fit(case, in_library(kind.make(logits), block_size), labels, weights)
    if case in (
        "structured",
        "ets",
    ):  # their searches end at a tolerance, not at the rounding
        losses = [
            cal.log_loss_ if case == "structured" else cal.loss_
            for cal in (found, expected)
        ]
        np.testing.assert_allclose(*losses, atol=1e-8)
        return
    assert_same(found, expected)
    if case != "uncalibrated":
        assert (found.converged_, found.n_iter_) == (
            expected.converged_,
            expected.n_iter_,
        )


@pytest.mark.parametrize("case", CASES)
def test_weights_are_repetitions_and_may_be_zero(case: str) -> None:
    logits, labels, weights = examples()
    counts = weights.astype(int)
    weighted = fit(case, logits, labels, weights)
    repeated = fit(case, np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    found, expected = weighted.predict_proba(logits), repeated.predict_proba(logits)
    if case == "structured":  # whose penalty goes by the effective number of examples
        assert np.abs(found - expected).mean() < 0.02
    else:
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("name", ["temps", "vecs", "ets", "structured", "auto"])
def test_what_a_fit_keeps_of_its_examples_goes_with_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, not when garbage is collected."""
    seen: list[weakref.ref[Examples]] = []
    plain = Examples.share.func

    def share(self: Examples) -> Any:
        seen.append(weakref.ref(self))
        return plain(self)

    monkeypatch.setattr(Examples, "share", property(share))
    gc.disable()
    try:
        make(name).fit(*synthetic_logits(300, 4, seed=0))
        assert seen
        assert all(examples() is None for examples in seen)
    finally:
        gc.enable()
