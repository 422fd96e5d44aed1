"""How ODIR-regularised methods choose their penalties; parameters and files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from tests.conftest import max_examples, quiet_fit, read_pair

from hokical.calibrators import Examples, load
from hokical.rules import as_logits
from hokical_paper.odir import MatrixScalingODIR, search
from hokical_paper.odir.examples import MatrixExamples
from hokical_paper.odir.folds import fold_numbers, number_examples
from paper.tests.odir.worlds import both, counted, finite_values, noisy


@max_examples(30)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-200, 1e-9, 1.0, 1e9]))
def test_copies_have_one_number_and_others_their_own(seed, scale):
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(40, 6))
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    logits[:, 0] = 0.0
    logits[:, 5] = -1e9 * scale  # as some mask: it must not drown the others
    labels = rng.integers(3, size=40)
    which = rng.integers(40, size=100)
    numbers = number_examples(as_logits(logits[which]), labels[which])
    _, first, place = np.unique(which, return_index=True, return_inverse=True)
    expected = np.argsort(np.argsort(first))[place]
    np.testing.assert_array_equal(numbers, expected)
    relabelled = number_examples(
        as_logits(np.tile(logits[:1], (3, 1))), np.array([1, 0, 1])
    )
    np.testing.assert_array_equal(relabelled, [0, 1, 0])


def test_folds_spread_each_class_and_keep_copies_together():
    logits, labels = noisy(90, 3)
    folds = fold_numbers(as_logits(logits), labels, 3, 0)
    assert set(np.bincount(folds)) == {30}
    for label in range(3):
        counts = np.bincount(folds[labels == label], minlength=3)
        assert counts.max() - counts.min() <= 1
    twice = fold_numbers(
        as_logits(np.vstack([logits, logits + 7.0])), np.tile(labels, 2), 3, 0
    )
    np.testing.assert_array_equal(twice, np.tile(folds, 2))
    assert (fold_numbers(as_logits(logits), labels, 3, 1) != folds).any()


@both
def test_the_score_is_the_held_out_log_loss_and_the_least_is_chosen(method):
    logits, labels = noisy(120, 3)
    fitted = method(lambdas=[10.0, 1.0, 0.1], cv=4).fit(logits, labels)
    results = fitted.cv_results_
    folds = fold_numbers(as_logits(logits), labels, 4, 0)
    for strength, score in zip(results["lambda"], results["log_loss"], strict=True):
        held_out = np.empty(120)
        for fold in range(4):
            out = folds == fold
            part = method(lambdas=strength).fit(logits[~out], labels[~out])
            held_out[out] = part.predict_proba(logits[out])[
                np.arange(out.sum()), labels[out]
            ]
        assert score == pytest.approx(-np.log(held_out).mean(), abs=1e-4)
    best = results["log_loss"].argmin()
    assert fitted.lambda_ == results["lambda"][best]
    assert fitted.mu_ == fitted.lambda_
    alone = method(lambdas=fitted.lambda_).fit(logits, labels)
    np.testing.assert_array_equal(alone.weight_, fitted.weight_)
    assert alone.cv_results_["lambda"].size == 0


@both
def test_own_splits_of_the_rows_given_are_used(method):
    logits, labels = noisy(120, 3)
    weights = np.arange(120) % 7 > 0
    counted = np.flatnonzero(weights)
    folds = fold_numbers(as_logits(logits[weights]), labels[weights], 3, 0)
    splits = [(counted[folds != fold], counted[folds == fold]) for fold in range(3)]
    given_splits = method(lambdas=[1.0, 0.1], cv=splits).fit(logits, labels, weights)
    given_number = method(lambdas=[1.0, 0.1], cv=3).fit(logits, labels, weights)
    np.testing.assert_array_equal(
        given_splits.cv_results_["log_loss"], given_number.cv_results_["log_loss"]
    )


def scale_per_class(seed):
    """The truth is a scale per class: large penalties are best."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(150, 6))
    chance = logits * np.array([0.3, 0.5, 0.7, 0.9, 1.1, 1.3])
    return logits, np.argmax(chance + rng.gumbel(size=chance.shape), axis=1)


def mixed_classes(seed, n, strength):
    """The truth mixes the classes and favours some."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 2
    chance = logits @ (
        0.5 * np.eye(4) + strength * rng.normal(size=(4, 4))
    ) + rng.normal(size=4)
    return logits, np.argmax(chance + rng.gumbel(size=chance.shape), axis=1)


def plateau_first(seed):
    """Rare classes and weak logits: many large lambdas score alike before smaller
    ones help.
    """
    rng = np.random.default_rng(seed)
    labels = rng.choice(5, size=300, p=[0.55, 0.25, 0.12, 0.06, 0.02])
    truth = rng.normal(size=(300, 5)) + 1.5 * np.eye(5)[labels]
    return truth @ (np.eye(5) + 0.6 * rng.normal(size=(5, 5))), labels


@pytest.mark.sample(0)
@both
@pytest.mark.parametrize(
    "kind",
    [
        "middle",
        "rare",
        *(
            pytest.param(k, marks=pytest.mark.slow)
            for k in ("large", "small", "plateau")
        ),
    ],
)
def test_quick_is_as_good_as_trying_everything(method, kind):
    logits, labels = {
        "large": lambda: scale_per_class(0),
        "middle": lambda: mixed_classes(1, 150, 0.2),
        "small": lambda: mixed_classes(2, 1500, 1.0),
        "plateau": lambda: plateau_first(3),
        "rare": lambda: counted([90, 60, 45, 5]),
    }[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        quick = method().fit(logits, labels)
        everything = method(lambdas=search.QUICK_LAMBDAS, mus=search.QUICK_MUS).fit(
            logits, labels
        )
    scores = everything.cv_results_["log_loss"]
    assert scores.size == 17 * 5
    assert quick.cv_results_["log_loss"].min() <= scores.min() + 1e-3
    if kind in ("large", "small"):
        assert (quick.lambda_ >= 10.0) == (kind == "large")


@pytest.mark.sample(0)
@both
@pytest.mark.parametrize("seed", [0, 3])
def test_the_choice_is_past_the_plateau(method, seed):
    fitted = quiet_fit(method(), *plateau_first(seed))
    results = fitted.cv_results_
    on_plateau = results["log_loss"][results["lambda"] >= 1e5].min()
    assert fitted.lambda_ <= 100.0
    assert results["log_loss"].min() < on_plateau - 5e-3


def scores_of(values):
    """A search whose log losses are `values` of (lambda, mu), for more than 20
    classes.
    """

    class Search(search.PenaltySearch):
        def _try(self, strength, near):
            trial = search.PenaltyTrial(strength, values(*strength), True, [])
            self.trials.append(trial)
            if len(self.trials) == 1 or trial.log_loss < self.best.log_loss:
                self.best = trial
            return trial

    examples = MatrixExamples.of(
        Examples(as_logits(np.ones((1, 30))), np.zeros(1, np.int64)), finite_values
    )
    return Search(examples, [], 1.0, 1)


def test_a_plateau_never_ends_a_path_and_clear_overfitting_does():
    grid = list(search.QUICK_LAMBDAS), list(search.QUICK_MUS)

    def late(lambda_, mu):  # slowly rising, then a drop in one place
        return (
            1.0
            - 1e-4 * np.log10(lambda_)
            - (0.05 if 0.1 < lambda_ < 3 and mu < 0.05 else 0.0)
        )

    best = scores_of(late).try_coarse_to_fine(*grid)
    assert 0.1 < best.strength[0] < 3
    assert best.strength[1] < 0.05
    over = scores_of(lambda lambda_, mu: 1.0 + (lambda_ < 500) * (1.0 / lambda_ + 0.1))
    over.try_coarse_to_fine(*grid)
    assert min(trial.strength[0] for trial in over.trials) == pytest.approx(100.0)


@pytest.mark.slow
@both
def test_quick_and_paper_grids(method):
    logits, labels = noisy(60, 3)
    quick = method().fit(logits, labels)
    assert set(quick.cv_results_["lambda"]) <= set(search.QUICK_LAMBDAS)
    ends = method(lambdas="quick", mus=0.5).fit(logits, labels).cv_results_
    assert set(ends["mu"]) == {0.5}
    assert min(search.paper_grid(100)[1]) == 0.01
    assert len(search.paper_grid(100)[0]) * len(search.paper_grid(100)[1]) == 243
    paper = quiet_fit(method(lambdas="paper", cv=2, max_iter=1), logits, labels)
    lambdas, mus = search.paper_grid(3)
    assert paper.cv_results_["log_loss"].size == len(lambdas) * len(mus) == 432


@both
def test_fold_fits_that_did_not_converge_are_reported(method):
    with (
        pytest.warns(ConvergenceWarning, match=r"chose lambda .* did not converge"),
        pytest.warns(ConvergenceWarning, match=r"in 1 iterations"),
    ):
        fitted = method(lambdas=[0.01, 0.001], max_iter=1).fit(*noisy())
    assert not fitted.cv_results_["converged"].any()


@both
def test_a_splitter_is_its_splits(method, tmp_path):
    logits, labels = noisy(90, 3)
    splitter = KFold(3, shuffle=True, random_state=0)
    fitted = method(lambdas=[1.0, 0.1], cv=splitter).fit(logits, labels)
    pairs = list(splitter.split(logits))
    listed = method(lambdas=[1.0, 0.1], cv=pairs).fit(logits, labels)
    np.testing.assert_array_equal(
        fitted.cv_results_["log_loss"], listed.cv_results_["log_loss"]
    )
    for each in (fitted, listed):
        each.save(tmp_path / "it.json")
        np.testing.assert_array_equal(
            load(tmp_path / "it.json").predict_proba(logits),
            fitted.predict_proba(logits),
        )
    assert fitted.cv is splitter


@both
def test_parameters_changed_after_the_fit_do_not_spoil_the_file(method, tmp_path):
    logits, labels = noisy(60, 3)
    fitted = method(lambdas=1.0).fit(logits, labels).set_params(lambdas=-1, cv=0)
    fitted.save(tmp_path / "it.json")
    again = load(tmp_path / "it.json")
    np.testing.assert_array_equal(
        again.predict_proba(logits), fitted.predict_proba(logits)
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lambdas": 0.0}, r"`lambdas` must be .*above 0.*got 0.0"),
        ({"lambdas": "slow"}, r'`lambdas` must be "quick", "paper".*got \'slow\''),
        ({"lambdas": []}, r"`lambdas` must be"),
        ({"mus": [1.0, -1.0]}, r"`mus` must be"),
        ({"mus": "quick"}, r"`mus` must be"),
        ({"mus": np.inf}, r"`mus` must be"),
        ({"cv": 1}, r"`cv` must be an integer of at least 2 or a list of .*; got 1"),
        ({"cv": "3"}, r"`cv` must be an integer"),
        ({"cv": []}, r"`cv` must be an integer of at least 2 or a list .*; got \[\]"),
        ({"cv": None}, r"`cv` must be an integer .*splitter; got None"),
        ({"cv": [1, 2]}, r"`cv` must hold pairs .*; got 1 as item 0"),
        ({"cv": [([0, 1],)]}, r"`cv` must hold pairs"),
        ({"cv": [([0.5], [1])]}, r"`cv` must hold pairs of 1-D arrays"),
        ({"cv": [([0, 1], [2]), ([0], [20])]}, r"from 0 to 19; got 20 in item 1"),
        ({"cv": [([0, -1], [2])]}, r"from 0 to 19; got -1 in item 0"),
        (
            {"cv": [([0, 1, 2], [2, 3])]},
            r"apart .*got 1 rows in both parts of item 0, the first 2",
        ),
        ({"cv": [([], [2, 3])]}, r"`cv` must hold at least one pair .*got 1 pairs"),
        ({"lambdas": True}, r"`lambdas` must be .*got True"),
        ({"mus": [True, 2.0]}, r"`mus` must be .*got \[True, 2.0\]"),
        ({"tol": True}, r"`tol` must be"),
        ({"max_iter": 0}, r"`max_iter` must be an integer of at least 1"),
        ({"tol": 0.0}, r"`tol` must be"),
    ],
)
def test_wrong_parameters_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        MatrixScalingODIR(**wrong).fit(*noisy(20))


@both
def test_a_file_gives_back_the_fit(method, tmp_path):
    logits, labels = noisy()
    fitted = method(lambdas=[1.0, 0.1]).fit(logits, labels)
    fitted.save(tmp_path / "it.json")
    twin = load(tmp_path / "it.json")
    np.testing.assert_array_equal(
        twin.predict_proba(logits), fitted.predict_proba(logits)
    )
    assert (twin.lambda_, twin.mu_, twin.converged_) == (
        fitted.lambda_,
        fitted.mu_,
        True,
    )
    np.testing.assert_array_equal(twin.cv_results_["mu"], fitted.cv_results_["mu"])
    assert twin.lambdas == [1.0, 0.1]


@pytest.mark.slow
@both
def test_beats_temperature_scaling_on_real_logits(method):
    data = read_pair("cifar10_resnet110")
    fitted = method().fit(data["val_logits"], data["val_labels"])
    logits = data["test_logits"].astype(np.float64)
    rows, labels = np.arange(len(logits)), data["test_labels"]
    best = min(
        -log_softmax(logits * scale, axis=1)[rows, labels].mean()
        for scale in np.geomspace(0.2, 1.0, 60)
    )
    proba = fitted.predict_proba(logits)
    assert fitted.converged_
    assert (
        -np.log(proba[rows, labels]).mean() < best
    )  # the best temperature for the test set
    accuracy = (logits.argmax(axis=1) == labels).mean()
    assert (proba.argmax(axis=1) == labels).mean() > accuracy - 0.005
