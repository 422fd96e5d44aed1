"""Hoki against the printed algorithm, its fixed point, its table, and real logits."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from hokical import Gaussian, Gumbel, Hoki, Uniform, label_stability, load
from hokical._fitting.recursion import learn_schedule
from hokical.stability import StabilityTable
from tests import references
from tests.conftest import max_examples, synthetic_logits
from tests.fitted import label_scores

Data = tuple[np.ndarray, np.ndarray]


#: Cycles are legitimate here; the tests that are about them ask for the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.sample(3)
@pytest.mark.parametrize("draws", [None, 300])
@pytest.mark.parametrize("n_bins", [1, 4, 15, 40])
def test_it_is_the_printed_algorithm(
    draws: int | None, n_bins: int, overconfident: Data
) -> None:
    logits, labels = overconfident
    options = {"draws": draws, "n_bins": n_bins, "random_state": 1}
    cal = Hoki(noise=Gaussian(3.0), unseen="as_printed", **options).fit(logits, labels)
    correct = logits.argmax(axis=1) == labels
    start = np.full(len(labels), correct.mean())
    p, alphas, betas = references.hoki_confidence(
        cal.stability(logits), correct, start, n_bins=n_bins, max_iter=cal.n_iter_
    )
    again = references.hoki_confidence(
        cal.stability(logits), correct, start, n_bins=n_bins, max_iter=200
    )
    assert len(again[1]) == cal.n_iter_  # in a cycle, too
    np.testing.assert_allclose(cal.predict_confidence(logits), p, atol=1e-12)
    np.testing.assert_allclose(cal.alpha_, alphas, atol=1e-12)
    np.testing.assert_allclose(cal.beta_, betas, atol=1e-12)


def test_stability_is_kept_to_two_to_the_minus_sixteen(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = Hoki(noise=Gaussian(3.0)).fit(logits, labels)
    exact = label_stability(logits, Gaussian(3.0))
    np.testing.assert_allclose(
        cal.stability(logits), exact, atol=0.5 / cal.rule_.levels
    )


@given(
    st.integers(0, 10**6),
    st.sampled_from([2, 3, 10]),
    st.sampled_from([1, 5, 15, 50]),
    st.sampled_from([Gaussian(2.0), Uniform(-3, 3), Gumbel(2.0)]),
)
def test_validation_ece_is_zero_at_a_fixed_point(
    seed: int, c: int, n_bins: int, noise: object
) -> None:
    logits, labels = synthetic_logits(400, c, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cal = Hoki(noise=noise, n_bins=n_bins, unseen="as_printed").fit(logits, labels)
        smoothed = Hoki(noise=noise, n_bins=n_bins).fit(logits, labels)
    confidence, correct = cal.predict_confidence(logits), cal.predict(logits) == labels
    assert np.all((confidence >= 0.0) & (confidence <= 1.0))
    measured = references.ece(confidence, correct, n_bins)
    assert cal.validation_ece_ == pytest.approx(measured, abs=1e-12)
    if cal.converged_:
        assert measured < 1e-9
        assert cal.ending_ == "converged"
    # Certainty of a bin is cut by what one more example could do: one in 400, at most,
    # per bin.
    error = references.ece(smoothed.predict_confidence(logits), correct, n_bins)
    assert error <= cal.validation_ece_ + 2.0 * n_bins / 400.0


def test_rows_with_one_possible_class_are_examples_like_others() -> None:
    """They survive any noise; what they teach must agree with what is said of them."""
    rng = np.random.default_rng(0)
    logits, labels = synthetic_logits(1000, 4, seed=1)
    logits[::10] = -np.inf
    logits[::10, 1] = 0.0
    labels[::10] = rng.integers(2, size=100)
    cal = Hoki(noise=Gaussian(2.0)).fit(logits, labels)
    correct = cal.predict(logits) == labels
    ece = references.ece(cal.predict_confidence(logits), correct)
    assert ece == pytest.approx(cal.validation_ece_, abs=1e-12)


def test_parameters_changed_after_the_fit_change_nothing(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = Hoki(noise=Gaussian(2.0), draws=100, random_state=0).fit(logits, labels)
    before = cal.predict_confidence(logits)
    cal.set_params(draws=None, n_bins=4, noise=Gaussian(9.0))
    np.testing.assert_array_equal(cal.predict_confidence(logits), before)
    cal.partial_fit(logits[:10], labels[:10])


def test_a_fit_broken_off_is_no_fit(
    overconfident: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = overconfident
    cal = Hoki(noise=Gaussian(2.0)).fit(logits, labels)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hokical.calibrators.hoki.learn_schedule", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cal.fit(logits[:, :4], labels % 4)
    for method in ("predict", "predict_confidence", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(cal, method)(logits)


def test_warnings_point_at_the_users_line(overconfident: Data) -> None:
    cal = Hoki(noise=Gaussian(3.0), max_iter=1)
    for call in (cal.fit, cal.partial_fit):
        with pytest.warns(ConvergenceWarning) as caught:
            call(*overconfident)
        assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning) as caught:
        cal.merge(cal)
    assert caught[0].filename == __file__


def test_pickles_are_small(overconfident: Data) -> None:
    for draws in (None, 50):
        cal = Hoki(noise=Gaussian(2.0), draws=draws).fit(*overconfident)
        expected = cal.predict_confidence(overconfident[0])
        stored = pickle.dumps(cal)
        assert len(stored) < 260_000
        again = pickle.loads(stored)
        np.testing.assert_array_equal(
            again.predict_confidence(overconfident[0]), expected
        )


@pytest.mark.slow
@max_examples(20)
@given(st.integers(0, 10**6), st.integers(1, 399))
def test_two_halves_are_one_whole(seed: int, cut: int) -> None:
    logits, labels = synthetic_logits(400, 5, seed=seed)
    options = {"noise": Gaussian(2.5)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = Hoki(**options).fit(logits, labels)
        left = Hoki(**options).fit(logits[:cut], labels[:cut])
        right = Hoki(**options).fit(logits[cut:], labels[cut:])
        merged = left.merge(right)
        streamed = Hoki(**options)
        for rows in np.array_split(np.arange(400), 7):
            streamed.partial_fit(logits[rows], labels[rows])
    for other in (merged, streamed, right.merge(left)):
        np.testing.assert_array_equal(other.alpha_, whole.alpha_)
        np.testing.assert_array_equal(other.beta_, whole.beta_)
        np.testing.assert_array_equal(
            other.predict_confidence(logits), whole.predict_confidence(logits)
        )
    assert left.table_.total == cut


@pytest.mark.parametrize("draws", [None, 40])
def test_a_calibrator_from_a_file_goes_on(
    draws: int | None, overconfident: Data, tmp_path: Path
) -> None:
    logits, labels = overconfident
    cal = Hoki(noise=Gaussian(2.0), draws=draws).fit(logits[:2000], labels[:2000])
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert loaded.get_params() == cal.get_params()
    for name in ("predict_confidence", "predict_proba", "predict_interval"):
        np.testing.assert_array_equal(
            getattr(loaded, name)(logits), getattr(cal, name)(logits)
        )
    for name in ("alpha_", "beta_", "occupied_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(cal, name))
    rest = logits[2000:], labels[2000:]
    whole = cal.merge(Hoki(noise=Gaussian(2.0), draws=draws).fit(*rest))
    np.testing.assert_array_equal(
        loaded.partial_fit(*rest).table_.weight, whole.table_.weight
    )
    np.testing.assert_array_equal(loaded.alpha_, whole.alpha_)
    np.testing.assert_array_equal(label_scores(loaded).count, label_scores(whole).count)


def test_a_table_of_another_fit_is_refused(overconfident: Data, tmp_path: Path) -> None:
    cal = Hoki(noise=Gaussian(2.0)).fit(*overconfident)
    cal.table_ = cal._report["table"] = cycling_table()
    cal.save(tmp_path / "cal.json")
    with pytest.raises(ValueError, match="does not belong to the rule"):
        load(tmp_path / "cal.json")


def test_more_examples_have_the_same_columns(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = Hoki(noise=Gaussian(2.0)).fit(logits, labels)
    with pytest.raises(ValueError, match=r"is expecting 6 features"):
        cal.partial_fit(logits[:, :3], labels % 3)


def test_only_calibrators_that_agree_can_be_merged(overconfident: Data) -> None:
    one = Hoki(noise=Gaussian(2.0)).fit(*overconfident)
    two = Hoki(noise=Gaussian(2.1)).fit(*overconfident)
    with pytest.raises(ValueError, match="must agree to be merged"):
        one.merge(two)
    with pytest.raises(NotFittedError):
        one.merge(Hoki())


def test_weights_are_repetitions(overconfident: Data) -> None:
    logits, labels = overconfident[0][:500], overconfident[1][:500]
    times = np.random.default_rng(0).integers(0, 4, size=500)
    weighted = Hoki(noise=Gaussian(2.0)).fit(logits, labels, sample_weight=times)
    repeated = Hoki(noise=Gaussian(2.0)).fit(
        np.repeat(logits, times, 0), np.repeat(labels, times)
    )
    np.testing.assert_array_equal(weighted.alpha_, repeated.alpha_)
    auto = Hoki().fit(logits, labels, sample_weight=times)
    assert auto.accuracy_ == pytest.approx(repeated.accuracy_)


def test_the_same_seed_gives_the_same_draws(overconfident: Data) -> None:
    logits, labels = overconfident
    options = {"noise": Gaussian(2.0), "draws": 100}
    one, two = (Hoki(**options, random_state=3).fit(logits, labels) for _ in range(2))
    np.testing.assert_array_equal(
        one.predict_confidence(logits), two.predict_confidence(logits)
    )
    other = Hoki(**options, random_state=4).fit(logits, labels)
    assert not np.array_equal(
        one.predict_confidence(logits), other.predict_confidence(logits)
    )
    np.random.seed(0)  # noqa: NPY002  the global state must not matter
    np.testing.assert_array_equal(
        Hoki(**options, random_state=3).fit(logits, labels).alpha_, one.alpha_
    )


def test_probabilities_agree_with_confidence(overconfident: Data) -> None:
    logits, labels = overconfident
    for noise in (Gaussian(2.0), Uniform(0, 3), Gumbel(2.0)):
        cal = Hoki(noise=noise).fit(logits, labels)
        proba, confidence = cal.predict_proba(logits), cal.predict_confidence(logits)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
        assert proba.min() >= 0.0
        np.testing.assert_array_equal(
            proba[np.arange(len(labels)), cal.predict(logits)], confidence
        )


def test_masked_classes_get_nothing() -> None:
    logits, labels = synthetic_logits(500, 4, seed=0)
    logits[:, 2] = -np.inf
    labels[labels == 2] = 0
    logits[7] = [-np.inf, 5.0, -np.inf, -np.inf]
    cal = Hoki(noise=Uniform(0.0, 1.0)).fit(logits, labels)
    proba = cal.predict_proba(logits)
    assert np.isfinite(proba).all()
    np.testing.assert_array_equal(proba[:, 2], 0.0)
    np.testing.assert_array_equal(proba[7], [0.0, 1.0, 0.0, 0.0])
    assert (
        cal.predict_confidence(logits)[7] < 1.0
    )  # what experience says; the mask says otherwise
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong(right: bool) -> None:
    logits = np.random.default_rng(0).normal(size=(60, 3))
    labels = logits.argmax(axis=1) if right else logits.argmin(axis=1)
    cal = Hoki().fit(logits, labels)
    np.testing.assert_allclose(
        cal.predict_confidence(logits), (61.0 if right else 1.0) / 62.0
    )
    printed = Hoki(unseen="as_printed").fit(logits, labels)
    np.testing.assert_array_equal(printed.predict_confidence(logits), float(right))


def test_one_example_is_enough() -> None:
    cal = Hoki().fit([[1.0, 0.0]], [0])
    np.testing.assert_allclose(cal.predict_confidence([[0.0, 1.0]]), 2.0 / 3.0)
    np.testing.assert_allclose(cal.predict_confidence([[0.0, 0.0]]), 0.5)


def test_tied_logits_take_the_first_class() -> None:
    cal = Hoki().fit(np.zeros((4, 3)), [0, 0, 1, 2])
    np.testing.assert_array_equal(cal.predict(np.zeros((2, 3))), 0)
    np.testing.assert_allclose(cal.predict_confidence(np.zeros((2, 3))), 0.5)


def test_predicting_before_fitting_is_scikit_learns_error() -> None:
    for method in ("predict", "predict_confidence", "predict_proba", "stability"):
        with pytest.raises(NotFittedError):
            getattr(Hoki(), method)([[0.0, 1.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 0}, "`n_bins` must be an integer of at least 1; got 0"),
        ({"n_bins": 2.5}, "`n_bins` must be an integer"),
        ({"max_iter": 0}, "`max_iter` must be an integer of at least 1"),
        ({"draws": -5}, "`draws` must be an integer from 1"),
        ({"unseen": "guess"}, "`unseen` must be"),
    ],
)
def test_bad_parameters_are_named(
    options: dict, message: str, overconfident: Data
) -> None:
    with pytest.raises(ValueError, match=message):
        Hoki(**options).fit(*overconfident)


def test_bad_noise_is_named(overconfident: Data) -> None:
    with pytest.raises(TypeError, match=r"Gaussian\(scale=2.0\)`; got 'gaussian'"):
        Hoki(noise="gaussian").fit(*overconfident)
    with pytest.raises(ValueError, match="one column per class"):
        Hoki(noise=Gaussian(1.0)).fit(*overconfident).predict(np.zeros((2, 3)))


def test_too_few_iterations_are_said(overconfident: Data) -> None:
    with pytest.warns(
        ConvergenceWarning, match=r"did not converge \(limit\): after 1 iter.*raise"
    ):
        cal = Hoki(noise=Gaussian(3.0), max_iter=1).fit(*overconfident)
    assert not cal.converged_
    assert cal.ending_ == "limit"
    assert cal.n_iter_ == 1


def cycling_table() -> StabilityTable:
    """A table whose recursion goes round: the first such among small random tables."""
    rng = np.random.default_rng(4197)
    level = rng.integers(0, 11, size=40)
    correct = rng.random(40) < level / 12
    table = StabilityTable.from_examples(level, correct, levels=10)
    assert learn_schedule(table, 15, 100).ending == "cycle"
    return table


def test_a_cycle_is_seen_at_once() -> None:
    table = cycling_table()
    schedule = learn_schedule(table, 15, 100)
    assert not schedule.converged
    assert schedule.n_steps < 30


def test_both_algorithms_from_the_text(overconfident: Data) -> None:
    logits, labels = (part[:400] for part in overconfident)
    hoki = Hoki(noise=Uniform(-4, 4), draws=60, unseen="as_printed", random_state=5)
    hoki.fit(logits, labels)
    new = overconfident[0][400:700]
    seen, unseen, steps = references.printed_hoki(
        logits,
        labels,
        new,
        hoki.draws_.values,
        n_bins=15,
        max_iter=200,
        from_confidence=False,
    )
    assert hoki.n_iter_ == steps
    np.testing.assert_allclose(
        hoki.predict_confidence(logits), seen, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(hoki.predict_confidence(new), unseen, rtol=0, atol=1e-12)


def test_a_cycling_calibrator_warns(overconfident: Data) -> None:
    cal = Hoki(noise=Gaussian(3.0), draws=10, random_state=0).fit(*overconfident)
    cal.table_ = cycling_table()
    with pytest.warns(ConvergenceWarning, match=r"did not converge \(cycle\)"):
        merged = cal.merge()
    assert merged.ending_ == "cycle"


def test_estimator_parameters_survive_clone() -> None:
    from sklearn.base import clone

    cal = Hoki(noise=Gaussian(2.0), draws=10, n_bins=7, random_state=1)
    assert clone(cal).get_params() == cal.get_params()


def test_grid_search_over_noise(overconfident: Data) -> None:
    from sklearn.model_selection import GridSearchCV

    grid = GridSearchCV(Hoki(), {"noise": [Gaussian(0.01), Gaussian(3.0)]}, cv=3)
    assert grid.fit(*overconfident).best_params_["noise"] == Gaussian(3.0)


@pytest.mark.slow
def test_real_logits(resnet110: dict[str, np.ndarray]) -> None:
    """A ResNet-110 on CIFAR-10: uncalibrated ECE 0.0546, below 0.010 afterwards."""
    test, labels = resnet110["test_logits"], resnet110["test_labels"]
    cal = Hoki().fit(resnet110["val_logits"], resnet110["val_labels"])
    correct = cal.predict(test) == labels
    before = label_stability(test, Gumbel(1.0))
    assert references.ece(before, correct) == pytest.approx(0.0546, abs=5e-4)
    assert references.ece(cal.predict_confidence(test), correct) < 0.010
    sampled = Hoki(noise=Gaussian(3.0), draws=1000, random_state=0)
    sampled.fit(resnet110["val_logits"], resnet110["val_labels"])
    assert references.ece(sampled.predict_confidence(test), correct) < 0.012


@pytest.mark.parametrize("noise", [Gaussian(1.0), Gumbel(1.5), Uniform(-1.0, 1.0)])
def test_margins_that_overflow_leave_probabilities_that_sum_to_one(noise) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=500)
    logits = rng.normal(size=(500, 3)) + 2 * np.eye(3)[labels]
    largest = np.finfo(np.float64).max
    proba = (
        Hoki(noise=noise)
        .fit(logits, labels)
        .predict_proba([[largest, -largest, -largest]])
    )
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
