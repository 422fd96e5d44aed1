"""Choosing the noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import Gaussian, Gumbel, Uniform, label_stability, select_noise
from hokical._fitting.noise_search import Evaluator, climb, sample_rows
from hokical._fitting.noise_selection import one_bin_trial, paper_grid
from hokical.calibrators import Examples
from hokical.rules import as_logits
from tests.conftest import max_examples, synthetic_logits

Data = tuple[np.ndarray, np.ndarray]


def test_sigma_hat_is_the_spread_of_one_bin_confidences(overconfident: Data) -> None:
    logits, labels = overconfident
    correct = logits.argmax(axis=1) == labels
    gamma = label_stability(logits, Gaussian(2.0))
    trial = one_bin_trial(Gaussian(2.0), gamma, correct)
    confidence = trial.alpha * gamma + trial.beta * (1 - gamma)
    assert trial.sigma_hat == pytest.approx(confidence.std())
    assert trial.alpha == pytest.approx((gamma * correct).sum() / gamma.sum())
    assert trial.beta == pytest.approx(((1 - gamma) * correct).sum() / (1 - gamma).sum())


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", [Gaussian, Uniform, Gumbel])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_width_on_a_fine_grid_is_better(family: type, seed: int) -> None:
    logits, labels = synthetic_logits(1500, 5, seed=seed)
    correct = logits.argmax(axis=1) == labels
    found = select_noise(logits, labels, families=[family.family])
    widths = np.geomspace(0.05, 500.0, 80)
    spreads = [
        one_bin_trial(
            family.of_width(w), label_stability(logits, family.of_width(w)), correct
        ).sigma_hat
        for w in widths
    ]
    assert found.sigma_hat >= max(spreads) * (1 - 1e-3)
    assert isinstance(found.noise, family)


def test_the_winner_is_the_best_of_all_tried(overconfident: Data) -> None:
    found = select_noise(*overconfident, families=["gaussian", "uniform", "gumbel"])
    assert found.best in found.trials
    assert found.sigma_hat == max(trial.sigma_hat for trial in found.trials)
    assert {trial.noise.family for trial in found.trials} == {"gaussian", "uniform", "gumbel"}
    assert "settings tried" in repr(found)


@pytest.mark.parametrize("family", [Gaussian, Uniform, Gumbel])
def test_several_widths_at_once_are_each_by_itself(overconfident: Data, family: type) -> None:
    logits, labels = overconfident
    block = Examples(as_logits(logits), labels, np.arange(labels.size) % 3.0)
    noises = [family.of_width(width) for width in (0.5, 2.0, 0.5, 7.0)]
    together, alone = Evaluator(block), Evaluator(block)
    assert together.together(noises) == [alone(noise) for noise in noises]
    assert together.trials == alone.trials
    assert len(together.trials) == 3
    assert together.together([]) == []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_family_finds_the_same_alone_and_after_another(seed: int) -> None:
    logits, labels = synthetic_logits(1500, 8, seed=seed)
    for family in ("uniform", "gumbel"):
        alone = select_noise(logits, labels, families=[family])
        after = select_noise(logits, labels, families=["gaussian", family])
        best = max(t.sigma_hat for t in after.trials if t.noise.family == family)
        assert best == pytest.approx(alone.sigma_hat, rel=1e-3)


def test_large_sets_are_scouted_then_refined_on_more_rows() -> None:
    logits, labels = synthetic_logits(20_000, 20, seed=3, signal=3.0)
    found = select_noise(logits, labels)
    assert found.best.n_examples == 8192
    assert {trial.n_examples for trial in found.trials} == {256, 1024, 8192}
    assert sum(trial.n_examples == 8192 for trial in found.trials) <= 8
    on_all = Evaluator(Examples(as_logits(logits), labels, None))
    widths = found.noise.width * np.geomspace(0.7, 1.4, 9)
    most = max(on_all(type(found.noise).of_width(width)).sigma_hat for width in widths)
    assert on_all(found.noise).sigma_hat > 0.998 * most


@max_examples(15)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 40]))
def test_rows_are_taken_in_proportion_to_their_weights(seed: int, heavy: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, size=400) * rng.choice([1.0, heavy], p=[0.95, 0.05], size=400)
    block = Examples(as_logits(rng.normal(size=(400, 3))), np.arange(400), weights)
    taken = sample_rows(block, 100)
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
    on_all = Evaluator(Examples(as_logits(logits[:32_768]), labels[:32_768], None))
    widths = np.geomspace(0.05, 20.0, 25)
    most = max(on_all(Gaussian(width)).sigma_hat for width in widths)
    assert on_all(found.noise).sigma_hat > 0.98 * most


def test_scouts_are_rows_that_count() -> None:
    logits, labels = synthetic_logits(9000, 4, seed=3)
    weights = np.zeros(9000)
    weights[1::2] = 1.0
    with_zeros = select_noise(logits, labels, sample_weight=weights)
    without = select_noise(logits[1::2], labels[1::2])
    assert with_zeros.noise == without.noise


def test_a_bad_start_is_walked_out_of() -> None:
    """The refinement on all rows does not depend on where the scouts put it."""
    logits, labels = synthetic_logits(9000, 4, seed=3)
    best = select_noise(logits, labels, families=["gaussian"]).sigma_hat
    evaluate = Evaluator(Examples(as_logits(logits), labels, None))
    found = climb(evaluate, Gaussian(0.5), 0.2)
    assert found.sigma_hat == pytest.approx(best, rel=1e-3)


def test_of_equal_widths_the_start_is_kept() -> None:
    """Where every label is right, no noise tells more than another."""
    logits = np.random.default_rng(0).normal(size=(100, 4))
    evaluate = Evaluator(Examples(as_logits(logits), logits.argmax(axis=1), None))
    assert climb(evaluate, Gaussian(0.5), 0.2).noise == Gaussian(0.5)


def test_the_paper_grid_is_the_papers() -> None:
    gaussian, uniform = list(paper_grid(Gaussian)), list(paper_grid(Uniform))
    assert len(gaussian) == len(uniform) == 820
    assert Gaussian(2, -20) in gaussian
    assert Uniform(-16, -8) in uniform
    assert len(set(gaussian) | set(uniform)) == 1640


@pytest.mark.slow
def test_paper_search_exact_and_sampled(overconfident: Data) -> None:
    logits, labels = overconfident[0][:150], overconfident[1][:150]
    exact = select_noise(logits, labels, search="paper")
    assert len(exact.trials) == 1640
    by_width = {}
    for trial in exact.trials:  # the mean of the noise cannot matter
        key = (trial.noise.family, trial.noise.width)
        assert by_width.setdefault(key, trial.sigma_hat) == trial.sigma_hat
    options = {"search": "paper", "draws": 20, "families": ["gaussian"]}
    sampled = select_noise(logits, labels, **options, random_state=1)
    again = select_noise(logits, labels, **options, random_state=1)
    assert sampled.trials == again.trials
    assert sampled.sigma_hat == pytest.approx(exact.sigma_hat, rel=0.5)


def test_degenerate_sets_still_answer() -> None:
    tied = select_noise(np.zeros((20, 3)), np.zeros(20, int))
    assert tied.sigma_hat == 0.0
    masked = np.full((10, 3), -np.inf)
    masked[:, 1] = 0.0
    assert select_noise(masked, np.ones(10, int)).sigma_hat == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "random"}, '`search` must be "exact" or "paper"'),
        ({"families": ["cauchy"]}, "noise family must be one of"),
        ({"families": []}, "`families` must be a non-empty sequence"),
        ({"families": "gaussian"}, "`families` must be a non-empty sequence"),
        ({"draws": 10}, '`draws` goes with search="paper"'),
        ({"search": "paper", "families": ["gumbel"]}, "holds gaussian and uniform"),
    ],
)
def test_bad_options_are_named(options: dict, message: str, overconfident: Data) -> None:
    with pytest.raises(ValueError, match=message):
        select_noise(*overconfident, **options)


def test_a_bar_is_drawn_on_request(
    overconfident: Data, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hokical._core.progress._SHOW_AFTER_SECONDS", 0.0)
    select_noise(overconfident[0][:50], overconfident[1][:50], progress=True)
    shown = capsys.readouterr()
    assert "Choosing the noise" in shown.err
    assert shown.out == ""
    select_noise(overconfident[0][:50], overconfident[1][:50], progress=False)
    assert capsys.readouterr().err == ""


def test_real_logits(resnet110: dict[str, np.ndarray]) -> None:
    found = select_noise(resnet110["val_logits"], resnet110["val_labels"], families=["gaussian"])
    assert found.alpha == pytest.approx(0.945, abs=0.005)
    assert found.beta == pytest.approx(0.65, abs=0.03)
    assert found.sigma_hat == pytest.approx(0.042, abs=0.002)
