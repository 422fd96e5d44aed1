"""A fit on arrays of any library finds what NumPy finds, by the portable code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Gumbel, Uniform, select_noise
from hokical.calibrators import Calibrator, make
from tests.conftest import quiet_fit, synthetic_logits
from tests.fitted import label_scores
from tests.libraries import get_library, in_library

OTHERS = ["array_api_strict", "torch", "jax"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "hoki": ("hoki", {}),
    "hoki gaussian": ("hoki", {"noise": Gaussian(2.0)}),
    "hoki uniform": ("hoki", {"noise": Uniform(-4.0, 4.0)}),
    "hoki gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki sampled": ("hoki", {"noise": Gaussian(2.0), "draws": 50}),
    "irm": ("irm", {}),
    "irova_ts": ("irova_ts", {}),
    "auto": ("auto", {}),
}


def examples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, some masked, with labels and weights, some 0."""
    logits, labels = synthetic_logits(300, 5, seed=11)
    rng = np.random.default_rng(0)
    masked = (rng.random(logits.shape) < 0.1) & (np.arange(5) != labels[:, None])
    return (
        np.where(masked, -np.inf, logits),
        labels,
        rng.integers(0, 4, size=300).astype(float),
    )


def fit(case: str, logits: Any, weighted: bool) -> Calibrator:
    name, options = CASES[case]
    calibrator = make(name, **options)
    _, labels, weights = examples()
    return quiet_fit(calibrator, logits, labels, weights if weighted else None)


#: JAX compiles every operation for every shape: it is asked once per kind of fit.
COMBINATIONS = [
    (case, library, weighted)
    for case in CASES
    for library in OTHERS
    for weighted in (False, True)
    if library != "jax" or (weighted and case in ("hoki gaussian", "irm", "irova_ts"))
]


@pytest.mark.sample(15)
@pytest.mark.parametrize(("case", "library", "weighted"), COMBINATIONS)
def test_a_fit_in_any_library_is_numpys(
    case: str, library: str, weighted: bool
) -> None:
    kind = get_library(library)
    logits = examples()[0]
    expected = fit(case, in_library(logits), weighted)
    with kind.scope():
        found = fit(case, in_library(kind.make(logits)), weighted)
    assert type(found.rule_) is type(expected.rule_)
    numbers = found.rule_.numbers()
    for name, value in expected.rule_.numbers().items():
        assert isinstance(numbers[name], (np.ndarray, float))
        np.testing.assert_allclose(numbers[name], value, rtol=1e-9, atol=1e-12)
    assert (label_scores(found) is None) == (label_scores(expected) is None)


@pytest.mark.parametrize("library", OTHERS[:2])
def test_the_noise_chosen_in_any_library_is_numpys(library: str) -> None:
    kind = get_library(library)
    logits, labels, weights = examples()
    logits, labels, weights = logits[:60], labels[:60], weights[:60]
    expected = select_noise(logits, labels, sample_weight=weights)
    with kind.scope():
        found = select_noise(
            in_library(kind.make(logits)), labels, sample_weight=weights
        )
    assert [trial.noise for trial in found.trials] == [
        trial.noise for trial in expected.trials
    ]
    np.testing.assert_allclose(found.sigma_hat, expected.sigma_hat, rtol=1e-9)


@pytest.mark.parametrize("library", OTHERS[:2])
def test_scouts_are_taken_in_the_library(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hokical.calibrators.noise_selection._STAGE_ROWS", (25, 100))
    kind = get_library(library)
    logits, labels, weights = examples()
    expected = select_noise(logits, labels, sample_weight=weights)
    with kind.scope():
        found = select_noise(
            in_library(kind.make(logits)), labels, sample_weight=weights
        )
    assert {trial.n_examples for trial in found.trials} == {
        25,
        100,
        np.count_nonzero(weights),
    }
    assert found.noise == expected.noise
