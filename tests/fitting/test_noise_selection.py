"""Choosing the noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import Gaussian, Gumbel, Uniform, label_stability, select_noise
from hokical.calibrators import Examples, noise_selection
from hokical.rules import as_logits
from hokical.stability import Noise
from tests.conftest import max_examples, synthetic_logits

Data = tuple[np.ndarray, np.ndarray]


def spread_of(
    noise: Noise, logits: np.ndarray, labels: np.ndarray
) -> tuple[float, float, float]:
    """alpha, beta and sigma_hat with all examples in one bin, written out."""
    gamma, correct = label_stability(logits, noise), logits.argmax(axis=1) == labels
    alpha = (gamma * correct).sum() / gamma.sum()
    beta = ((1 - gamma) * correct).sum() / (1 - gamma).sum()
    return alpha, beta, (alpha * gamma + beta * (1 - gamma)).std()


def test_sigma_hat_is_the_spread_of_one_bin_confidences(overconfident: Data) -> None:
    found = select_noise(*overconfident, families=["gaussian", "uniform", "gumbel"])
    for trial in found.trials:
        if trial.n_examples == len(overconfident[1]):
            wanted = spread_of(trial.noise, *overconfident)
            assert (trial.alpha, trial.beta, trial.sigma_hat) == pytest.approx(wanted)


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", [Gaussian, Uniform, Gumbel])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_width_on_a_fine_grid_is_better(family: type, seed: int) -> None:
    logits, labels = synthetic_logits(1500, 5, seed=seed)
    found = select_noise(logits, labels, families=[family.family])
    widths = np.geomspace(0.05, 500.0, 80)
    spreads = [spread_of(family.of_width(w), logits, labels)[2] for w in widths]
    assert found.sigma_hat >= max(spreads) * (1 - 1e-3)
    assert isinstance(found.noise, family)


def test_the_winner_is_the_best_of_all_tried(overconfident: Data) -> None:
    found = select_noise(*overconfident, families=["gaussian", "uniform", "gumbel"])
    assert found.noise in [trial.noise for trial in found.trials]
    last = [
        trial for trial in found.trials if trial.n_examples == len(overconfident[1])
    ]
    assert found.sigma_hat == max(trial.sigma_hat for trial in last)
    assert {trial.noise.family for trial in found.trials} == {
        "gaussian",
        "uniform",
        "gumbel",
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_family_finds_the_same_alone_and_after_another(seed: int) -> None:
    logits, labels = synthetic_logits(1500, 8, seed=seed)
    for family in ("uniform", "gumbel"):
        alone = select_noise(logits, labels, families=[family])
        after = select_noise(logits, labels, families=["gaussian", family])
        tried = [t for t in after.trials if t.noise.family == family]
        assert [t.noise for t in tried] == [t.noise for t in alone.trials][: len(tried)]


def test_large_sets_are_scouted_then_refined_on_more_rows() -> None:
    logits, labels = synthetic_logits(20_000, 20, seed=3, signal=3.0)
    found = select_noise(logits, labels)
    assert found.n_examples == 8192
    assert {trial.n_examples for trial in found.trials} == {256, 1024, 8192}
    assert sum(trial.n_examples == 8192 for trial in found.trials) <= 10
    widths = found.noise.width * np.geomspace(0.7, 1.4, 9)
    noises = [type(found.noise).of_width(width) for width in widths]
    most = max(spread_of(noise, logits, labels)[2] for noise in noises)
    assert spread_of(found.noise, logits, labels)[2] > 0.998 * most


@max_examples(15)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 40]))
def test_rows_are_taken_in_proportion_to_their_weights(seed: int, heavy: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, size=400) * rng.choice(
        [1.0, heavy], p=[0.95, 0.05], size=400
    )
    block = Examples(as_logits(rng.normal(size=(400, 3))), np.arange(400), weights)
    taken = noise_selection.sample_rows(block, 100)
    count = np.bincount(taken.labels, minlength=400)
    assert count.sum() == 100
    assert taken.weights is None
    assert (np.abs(count - 100 * weights / weights.sum()) <= 2.0).all()
    assert not count[weights == 0.0].any()


@pytest.mark.slow
def test_rows_that_take_turns_are_all_seen() -> None:
    """Every fourth row is of another kind, and evenly spaced rows would miss it."""
    logits, labels = synthetic_logits(33_000, 3, seed=5)
    logits[3::4] *= 0.05
    found = select_noise(logits[:32_768], labels[:32_768], families=["gaussian"])
    data, widths = (logits[:32_768], labels[:32_768]), np.geomspace(0.05, 20.0, 25)
    most = max(spread_of(Gaussian(width), *data)[2] for width in widths)
    assert spread_of(found.noise, *data)[2] > 0.98 * most


def test_scouts_are_rows_that_count() -> None:
    logits, labels = synthetic_logits(9000, 4, seed=3)
    weights = np.zeros(9000)
    weights[1::2] = 1.0
    with_zeros = select_noise(logits, labels, sample_weight=weights)
    without = select_noise(logits[1::2], labels[1::2])
    assert with_zeros.noise == without.noise


def test_degenerate_sets_still_answer() -> None:
    tied = select_noise(np.zeros((20, 3)), np.zeros(20, int))
    assert tied.sigma_hat == 0.0
    masked = np.full((10, 3), -np.inf)
    masked[:, 1] = 0.0
    assert select_noise(masked, np.ones(10, int)).sigma_hat == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ["cauchy"]}, "noise family must be one of"),
        ({"families": []}, "`families` must have at least one name"),
        ({"families": "gaussian"}, "`families` must be a sequence of names"),
    ],
)
def test_bad_options_are_named(
    options: dict, message: str, overconfident: Data
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        select_noise(*overconfident, **options)


def test_real_logits(resnet110: dict[str, np.ndarray]) -> None:
    found = select_noise(
        resnet110["val_logits"], resnet110["val_labels"], families=["gaussian"]
    )
    assert found.alpha == pytest.approx(0.945, abs=0.005)
    assert found.beta == pytest.approx(0.65, abs=0.03)
    assert found.sigma_hat == pytest.approx(0.042, abs=0.002)
