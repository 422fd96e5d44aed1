"""Matrix scaling and Dirichlet calibration against references, limits and real logits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from tests.conftest import max_examples, read_pair
from tests.integrations.torch.examples import as_on_device

from hokical import Dense
from hokical._core.logits import as_logits
from hokical._core.parallel import threads
from hokical._fitting import linear_examples
from hokical.calibrators import load
from hokical.streams import fit as fit_stream
from hokical.streams import from_arrays
from hokical_paper.odir import DirichletODIR, MatrixScalingODIR, objective, search
from hokical_paper.odir.examples import MatrixExamples
from hokical_paper.odir.folds import fold_numbers, number_examples

GOLDEN = Path(__file__).parents[2] / "tests" / "calibrators" / "golden"

METHODS = [MatrixScalingODIR, DirichletODIR]
both = pytest.mark.parametrize("method", METHODS)


def noisy(n=200, n_classes=4, seed=0, size=2.0):
    """Logits and labels with errors, so that the optimum is finite."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    logits = size * (rng.normal(size=(n, n_classes)) + np.eye(n_classes)[labels])
    return logits, labels


def plain_features(method, logits):
    if method is DirichletODIR:
        return log_softmax(logits, axis=1)
    return logits - logits.mean(axis=1, keepdims=True)


def plain_loss(weight, bias, features, labels, strength, sample_weight=None):
    """The paper's objective, written out."""
    log_proba = log_softmax(features @ weight.T + bias, axis=1)
    n_classes = len(bias)
    off = ~np.eye(n_classes, dtype=bool)
    loss = -np.average(log_proba[np.arange(len(labels)), labels], weights=sample_weight)
    return loss + strength[0] * np.mean(weight[off] ** 2) + strength[1] * np.mean(bias**2)


def random_problem(seed, n=30, n_classes=3, masked=False):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_classes))
    labels = rng.integers(n_classes, size=n)
    if masked:
        impossible = rng.random((n, n_classes)) < 0.2
        impossible[np.arange(n), labels] = False
        features[impossible] = -np.inf
    examples = MatrixExamples.from_logits(as_logits(features), labels, rng.random(n), finite_values)
    coef = rng.normal(size=(n_classes, n_classes + 1))
    absent = np.bincount(labels, minlength=n_classes) == 0
    penalty = objective.penalty_matrix(absent, (0.3, 0.7), 1.5)
    return examples, penalty, coef


def finite_values(logits):
    return np.where(logits.possible, logits.values, -3.0)


def point_at(examples, penalty, coef):
    centre = objective.identity(examples.n_classes)
    return objective.PenalisedProblem(examples, penalty, centre).evaluate(coef)


# Derivatives and solver -----------------------------------------------------------------------


@given(st.integers(0, 10_000), st.booleans())
@max_examples(20)
def test_gradient_is_the_difference_quotient(seed, masked):
    examples, penalty, coef = random_problem(seed, masked=masked)
    slope = point_at(examples, penalty, coef).gradient
    for index in np.ndindex(coef.shape):
        step = np.zeros_like(coef)
        step[index] = 1e-5
        up = point_at(examples, penalty, coef + step).value
        down = point_at(examples, penalty, coef - step).value
        assert slope[index] == pytest.approx((up - down) / 2e-5, abs=1e-8)


@given(st.integers(0, 10_000), st.booleans())
@max_examples(20)
def test_hessian_product_is_the_difference_of_gradients(seed, masked):
    examples, penalty, coef = random_problem(seed, masked=masked)
    direction = np.random.default_rng(seed + 1).normal(size=coef.shape)

    def slope_at(point):
        return point_at(examples, penalty, point).gradient

    product = point_at(examples, penalty, coef).curvature_along(direction)
    quotient = (slope_at(coef + 1e-5 * direction) - slope_at(coef - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(product, quotient, atol=1e-8)


def test_preconditioner_is_the_inverse_of_diagonal_plus_outer_product():
    examples, penalty, coef = random_problem(3)
    point = point_at(examples, penalty, coef)
    slope = np.random.default_rng(0).normal(size=coef.shape)
    chance = np.concatenate(point.proba)
    inputs = np.concatenate([block.inputs for block in examples.blocks])
    for row in range(examples.n_classes):
        weights = examples.weights * chance[:, row] * (1 - chance[:, row])
        mean = weights @ inputs / weights.sum()
        spread = weights @ (inputs - mean) ** 2
        matrix = np.diag(spread + penalty[row]) + weights.sum() * np.outer(mean, mean)
        np.testing.assert_allclose(matrix @ point.precondition(slope)[row], slope[row], rtol=1e-9)


def test_block_sums_do_not_depend_on_threads_or_blocks(monkeypatch):
    def slope():
        examples, penalty, coef = random_problem(0, n=101)
        point = point_at(examples, penalty, coef)
        return len(point.proba), point.gradient

    one, whole = slope()
    monkeypatch.setattr(linear_examples, "MIN_BLOCK_SIZE", 1)
    with threads(1):
        several, cut = slope()
    with threads(4):
        _, threaded = slope()
    assert (one, several) == (1, 8)
    np.testing.assert_array_equal(cut, threaded)
    np.testing.assert_allclose(cut, whole, atol=1e-15)


@given(seed=st.integers(0, 1000), masked=st.booleans())
@max_examples(10)
def test_some_of_the_examples_are_as_if_there_were_no_others(seed, masked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_examples, "MIN_BLOCK_SIZE", 1)
        rng = np.random.default_rng(seed)
        logits, labels, weights = rng.normal(size=(90, 3)), rng.integers(3, size=90), rng.random(90)
        logits[:30, 0] = -np.inf if masked else 0.0
        rows = rng.random(90) < 0.5
        every = MatrixExamples.from_logits(as_logits(logits), labels, weights, finite_values)
        some = MatrixExamples.from_logits(
            as_logits(logits[rows]), labels[rows], weights[rows], finite_values
        )
        coef, penalty = rng.normal(size=(3, 4)), np.ones((3, 4))
        expected = point_at(some, penalty, coef)
        found = point_at(every.take(rows), penalty, coef)
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(np.concatenate(found.proba), np.concatenate(expected.proba))


@pytest.mark.slow
@both
@given(
    seed=st.integers(0, 1000),
    strength=st.tuples(st.floats(-3, 2), st.floats(-3, 2)),
    n_classes=st.integers(2, 4),
)
@max_examples(8)
def test_no_worse_than_a_plain_quasi_newton_twin(method, seed, strength, n_classes):
    strength = tuple(10.0**power for power in strength)
    logits, labels = noisy(80, n_classes, seed)
    labels = np.where(np.arange(80) % 3, labels, (labels + 1) % n_classes)  # never separable
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(flat):
        matrix = flat.reshape(n_classes, n_classes + 1)
        return plain_loss(matrix[:, :-1], matrix[:, -1], features, labels, strength)

    twin = minimize(loss, np.eye(n_classes, n_classes + 1).ravel(), method="BFGS", tol=1e-7)
    ours = plain_loss(fitted.weight_, fitted.bias_, features, labels, strength)
    assert fitted.converged_
    assert ours <= twin.fun + 1e-8
    assert ours == pytest.approx(twin.fun, abs=1e-5)


def counted(counts, seed=0):
    """Logits and labels with so many examples of each class, some of them wrong."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    logits = rng.normal(size=(labels.size, len(counts))) * 2 + 1.5 * np.eye(len(counts))[labels]
    return logits, labels


@pytest.mark.slow
@both
@pytest.mark.parametrize("counts", [[74, 53, 3], [90, 92, 1], [40, 2, 60, 1]])
@pytest.mark.parametrize("strength", [(1.0, 10.0), (100.0, 100.0), (0.1, 0.01)])
def test_rare_classes_get_the_optimum_of_the_paper(method, counts, strength):
    n_classes = len(counts)
    logits, labels = counted(counts)
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(flat):
        matrix = flat.reshape(n_classes, n_classes + 1)
        return plain_loss(matrix[:, :-1], matrix[:, -1], features, labels, strength)

    starts = (np.eye(n_classes, n_classes + 1), np.hstack([fitted.weight_, fitted.bias_[:, None]]))
    twin = min(minimize(loss, start.ravel(), method="BFGS", tol=1e-7).fun for start in starts)
    assert fitted.converged_
    assert plain_loss(fitted.weight_, fitted.bias_, features, labels, strength) <= twin + 1e-5


@pytest.mark.sample(2)
@both
@pytest.mark.parametrize("strength", [(1.0, 10.0), (0.1, 0.01)])
def test_an_absent_class_gets_the_optimum_of_the_documented_objective(method, strength):
    logits, labels = counted([48, 49, 0])
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)
    off, scale = ~np.eye(3, dtype=bool), fitted.weight_[2, 2]

    def loss(flat):
        weight, bias = np.diag([0.0, 0.0, scale]), flat[:3]
        weight[:2] = flat[3:].reshape(2, 3)
        mus = np.array([strength[1], strength[1], min(strength[1], 1e-5)])
        rows = log_softmax(features @ weight.T + bias, axis=1)[np.arange(97), labels]
        return -rows.mean() + strength[0] * np.mean(weight[off] ** 2) + np.mean(mus * bias**2)

    ours = loss(np.concatenate([fitted.bias_, fitted.weight_[:2].ravel()]))
    twin = minimize(loss, np.concatenate([np.zeros(3), np.eye(2, 3).ravel()]), tol=1e-8)
    assert fitted.converged_
    assert np.abs(fitted.weight_[2, :2]).max() < 1e-6
    assert ours == pytest.approx(twin.fun, abs=1e-6)
    alone = minimize(  # the paper's infimum: the class as good as impossible
        lambda flat: plain_loss(
            flat[:6].reshape(2, 3)[:, :2], flat[[2, 5]], features[:, :2], labels, strength
        ),
        np.eye(2, 3).ravel(),
    )
    assert ours < alone.fun + 0.02


@pytest.mark.sample(1)
@both
def test_an_absent_class_is_hardly_ever_predicted(method):
    rng = np.random.default_rng(0)
    n_classes, absent = 10, 4
    labels = rng.integers(n_classes, size=25_000)
    logits = 2.0 * (rng.normal(size=(25_000, n_classes)) + 1.5 * np.eye(n_classes)[labels])
    present = np.flatnonzero(labels != absent)
    train, fresh = present[:1000], present[1000:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = method().fit(logits[train], labels[train])
    assert fitted.converged_
    assert (fitted.predict(logits[fresh]) == absent).sum() <= 2
    proba = fitted.predict_proba(logits[labels == absent])[:, absent]
    assert (proba > 0.0).all()  # unlikely, not impossible


def test_a_diagonal_that_only_the_ridge_holds_is_named(monkeypatch):
    coef = objective.identity(4)
    coef[0, 0] = 30.0
    assert objective.held_by_ridge(coef).size == 0
    coef[2, 2] = 1e4
    np.testing.assert_array_equal(objective.held_by_ridge(coef), [2])
    monkeypatch.setattr(objective, "DIAGONAL_RIDGE", 1e-3)
    with pytest.warns(ConvergenceWarning, match=r"diagonal of class 2: a tiny ridge.*`mus`"):
        fitted = DirichletODIR(lambdas=100.0).fit(*counted([74, 53, 1]))
    assert not fitted.converged_


@both
def test_tiny_and_huge_logits_are_fine(method):
    logits, labels = noisy(100, 3)
    for size in (1e-300, 1e-310, 1e-80, 1e90, 1e150):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = method(lambdas=[1.0, 0.1]).fit(logits * size, labels)
        assert np.isfinite(fitted.weight_).all()
        assert np.isfinite(fitted.predict_proba(logits * size)).all()


@pytest.mark.sample(1)
@both
def test_hardly_any_penalty_is_logistic_regression(method):
    logits, labels = noisy(600, 4)
    ours = method(lambdas=1e-9, mus=1e-9).fit(logits, labels).predict_proba(logits)
    features = plain_features(method, logits)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(features, labels)
    np.testing.assert_allclose(ours, peer.predict_proba(features), atol=1e-4)


@both
def test_large_penalties_leave_a_scale_per_class(method):
    logits, labels = noisy(600, 4)
    fitted = method(lambdas=1e9).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(scales):
        return plain_loss(np.diag(scales), np.zeros(4), features, labels, (0.0, 0.0))

    twin = minimize(loss, np.ones(4), method="BFGS", tol=1e-8)
    off = ~np.eye(4, dtype=bool)
    assert np.abs(fitted.weight_[off]).max() < 1e-7
    assert np.abs(fitted.bias_).max() < 1e-7
    np.testing.assert_allclose(np.diag(fitted.weight_), twin.x, atol=1e-4)
    assert fitted.mu_ == fitted.lambda_ == 1e9


@both
@pytest.mark.parametrize("temperature", [1e-3, 0.02, 1.0, 50.0, 1e3])
def test_any_temperature_of_the_logits_is_undone(method, temperature):
    logits, labels = noisy(500, 5)
    plain = method(lambdas=1e12).fit(logits, labels).predict_proba(logits)
    hot = logits * temperature
    if method is MatrixScalingODIR:
        found = method(lambdas=1e12).fit(hot, labels).predict_proba(hot)
        np.testing.assert_allclose(found, plain, atol=1e-5)
    else:  # log-probabilities do not scale with the logits
        fitted = method(lambdas=1e12).fit(hot, labels)
        assert fitted.converged_
        best = minimize(
            lambda t: plain_loss(t * np.eye(5), np.zeros(5), hot, labels, (0, 0)),
            1 / temperature,
            method="Nelder-Mead",
        ).fun
        ours = fitted.predict_proba(hot)[np.arange(500), labels]
        assert -np.log(ours).mean() <= best + 1e-8


# What every calibrator must be ----------------------------------------------------------------


@pytest.mark.sample(1)
@both
@given(seed=st.integers(0, 1000))
@max_examples(5)
def test_classes_may_be_renumbered_and_rows_shifted(method, seed):
    logits, labels = noisy(120, 5, seed)
    order = np.random.default_rng(seed).permutation(5)
    place = np.argsort(order)
    shift = np.random.default_rng(seed).normal(size=(120, 1)) * 10
    kwargs = {"lambdas": [10.0, 1.0, 0.1], "mus": [1.0, 0.01]}
    plain = method(**kwargs).fit(logits, labels)
    moved = method(**kwargs).fit(logits[:, order] + shift, place[labels])
    assert (plain.lambda_, plain.mu_) == (moved.lambda_, moved.mu_)
    np.testing.assert_allclose(
        moved.predict_proba(logits[:, order]), plain.predict_proba(logits)[:, order], atol=1e-6
    )


@pytest.mark.sample(2)
@both
@pytest.mark.parametrize("lambdas", [1.0, [10.0, 1.0, 0.1], "quick"])
def test_weights_are_repetition_with_cross_validation_too(method, lambdas):
    logits, labels = noisy(150, 3)
    weights = np.random.default_rng(1).integers(0, 4, size=150)
    weighted = method(lambdas=lambdas).fit(logits, labels, sample_weight=weights)
    repeated = method(lambdas=lambdas).fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    )
    assert (weighted.lambda_, weighted.mu_) == (repeated.lambda_, repeated.mu_)
    np.testing.assert_allclose(
        weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-7
    )


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_small_floats_are_their_float64_values(method, dtype):
    logits, labels = noisy(100, 3)
    logits = logits.astype(dtype)
    narrow = method(lambdas=[1.0, 0.1]).fit(logits, labels).predict_proba(logits)
    wide = logits.astype(np.float64)
    expected = method(lambdas=[1.0, 0.1]).fit(wide, labels).predict_proba(wide)
    np.testing.assert_array_equal(narrow, expected)


@pytest.mark.sample(1)
@both
def test_same_result_again_and_with_other_thread_counts(method):
    logits, labels = noisy(300, 4)
    before = logits.copy()
    first = method().fit(logits, labels)
    with threads(1):
        second = clone(first).fit(logits, labels)
    np.testing.assert_array_equal(first.weight_, second.weight_)
    np.testing.assert_array_equal(first.bias_, second.bias_)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize("kind", ["absent", "two", "n = C", "copies", "all equal"])
def test_odd_data_stay_finite(method, kind):
    logits, labels = noisy(60, 4)
    if kind == "absent":
        labels = labels % 3
    elif kind == "two":
        logits, labels = logits[:, :2], labels % 2
    elif kind == "n = C":
        logits, labels = logits[:4], labels[:4]
    elif kind == "copies":
        logits, labels = logits[:1].repeat(5, axis=0), labels[:1].repeat(5)
    else:
        logits = np.zeros_like(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # four examples may be separable
        proba = method().fit(logits, labels).predict_proba(logits)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@both
def test_an_absent_class_converges_to_nearly_nothing(method):
    logits, labels = noisy(300, 4)
    fitted = method(lambdas=0.01, mus=1e-4).fit(logits, labels % 3)
    assert fitted.converged_
    assert fitted.predict_proba(logits)[:, 3].mean() < 0.02


@both
def test_all_right_is_reported_as_having_no_optimum(method):
    logits, _ = noisy(100, 3)
    with pytest.warns(ConvergenceWarning, match=r"no finite optimum.*more examples"):
        fitted = method(lambdas=1.0).fit(logits, logits.argmax(axis=1))
    assert not fitted.converged_
    assert fitted.predict_confidence(logits).mean() > 0.999


@both
def test_all_wrong_learns_to_avoid_the_label(method):
    logits, _ = noisy(300, 3)
    labels = logits.argmin(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = method(lambdas=0.1).fit(logits, labels)
    assert (fitted.predict(logits) == labels).mean() > 0.9


@both
def test_too_few_iterations_are_reported(method):
    logits, labels = noisy()
    with pytest.warns(ConvergenceWarning, match=r"1 iterations.*Raise `max_iter`"):
        fitted = method(lambdas=0.01, max_iter=1).fit(logits, labels)
    assert not fitted.converged_
    assert fitted.n_iter_ == 1


# Impossible classes ---------------------------------------------------------------------------


@both
def test_impossible_classes_get_nothing_and_a_masked_column_is_as_if_not_there(method):
    logits, labels = noisy(200, 4)
    logits[:50, 3][labels[:50] != 3] = -np.inf
    fitted = method(lambdas=0.5).fit(logits, labels)
    proba = fitted.predict_proba(logits)
    assert fitted.converged_
    assert (proba[logits == -np.inf] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)

    three, labels = noisy(200, 3)
    wide = np.hstack([three, np.full((200, 1), -np.inf)])
    padded = method(lambdas=1e9).fit(wide, labels).predict_proba(wide)
    plain = method(lambdas=1e9).fit(three, labels).predict_proba(three)
    np.testing.assert_allclose(padded[:, :3], plain, atol=1e-6)


@both
def test_an_impossible_true_class_is_left_out_with_a_warning(method):
    logits, labels = noisy(100, 3)
    broken = logits.copy()
    broken[[4, 7], labels[[4, 7]]] = -np.inf
    with pytest.warns(RuntimeWarning, match="2 of 100 examples"):
        left_out = method(lambdas=1.0).fit(broken, labels)
    keep = np.ones(100)
    keep[[4, 7]] = 0
    expected = method(lambdas=1.0).fit(logits, labels, sample_weight=keep)
    np.testing.assert_allclose(left_out.weight_, expected.weight_, atol=1e-9)
    hopeless = np.where(np.arange(3) == labels[:, None], -np.inf, logits)
    with pytest.raises(ValueError, match="all 100 that count"):
        method().fit(hopeless, labels)


@both
def test_streams_and_maps_are_gathered(method):
    logits, labels = noisy(120, 3)
    kwargs = {"lambdas": [10.0, 0.1]}
    whole = method(**kwargs).fit(logits, labels)
    streamed = fit_stream(method(**kwargs), from_arrays(logits, labels, chunk_rows=33))
    dense = Dense(method(**kwargs)).fit(logits.reshape(2, 6, 10, 3), labels.reshape(2, 6, 10))
    for found in (streamed, dense.calibrator_):
        np.testing.assert_array_equal(found.weight_, whole.weight_)
        np.testing.assert_array_equal(found.bias_, whole.bias_)


@both
@pytest.mark.parametrize("kind", ["plain", "weights", "masked"])
def test_fits_on_a_device_are_those_of_arrays(method, kind):
    torch = pytest.importorskip("torch")
    logits, labels = noisy(240, 5)
    weights = np.arange(240) % 3 if kind == "weights" else None
    if kind == "masked":
        logits[np.arange(240), (labels + 1) % 5] = -np.inf
    fits = [
        method(lambdas=[1e3, 10.0]).fit(given, labels, weights)
        for given in (logits, as_on_device(torch.from_numpy(logits)))
    ]
    np.testing.assert_allclose(fits[0].weight_, fits[1].weight_, atol=1e-6)
    np.testing.assert_allclose(fits[0].bias_, fits[1].bias_, atol=1e-6)


@both
def test_its_graph_and_its_module_answer_as_it_does(method):
    torch, onnxruntime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    pytest.importorskip("ndonnx")
    from hokical.integrations.onnx import export
    from hokical.integrations.torch import as_module

    logits, labels = noisy(120, 3)
    fitted = method(lambdas=1.0).fit(logits, labels)
    module = as_module(fitted)
    found = module.proba(torch.from_numpy(logits)).detach()
    np.testing.assert_allclose(found, fitted.predict_proba(logits), atol=1e-12)
    session = onnxruntime.InferenceSession(export(fitted).SerializeToString())
    confidence = session.run(["confidence"], {"logits": logits.astype(np.float32)})[0]
    np.testing.assert_allclose(confidence, fitted.predict_confidence(logits), atol=1e-5)


def test_files_of_earlier_versions_give_the_estimator():
    for method in METHODS:
        loaded = load(GOLDEN / f"{method.name}.json")
        assert type(loaded.estimator()) is method
        assert loaded.estimator().stamp == loaded.stamp


# Choice of the penalties ----------------------------------------------------------------------


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
    relabelled = number_examples(as_logits(np.tile(logits[:1], (3, 1))), np.array([1, 0, 1]))
    np.testing.assert_array_equal(relabelled, [0, 1, 0])


def test_folds_spread_each_class_and_keep_copies_together():
    logits, labels = noisy(90, 3)
    folds = fold_numbers(as_logits(logits), labels, 3, 0)
    assert set(np.bincount(folds)) == {30}
    for label in range(3):
        counts = np.bincount(folds[labels == label], minlength=3)
        assert counts.max() - counts.min() <= 1
    twice = fold_numbers(as_logits(np.vstack([logits, logits + 7.0])), np.tile(labels, 2), 3, 0)
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
            held_out[out] = part.predict_proba(logits[out])[np.arange(out.sum()), labels[out]]
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
    chance = logits @ (0.5 * np.eye(4) + strength * rng.normal(size=(4, 4))) + rng.normal(size=4)
    return logits, np.argmax(chance + rng.gumbel(size=chance.shape), axis=1)


def plateau_first(seed):
    """Rare classes and weak logits: many large lambdas score alike before smaller ones help."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(5, size=300, p=[0.55, 0.25, 0.12, 0.06, 0.02])
    truth = rng.normal(size=(300, 5)) + 1.5 * np.eye(5)[labels]
    return truth @ (np.eye(5) + 0.6 * rng.normal(size=(5, 5))), labels


@pytest.mark.sample(1)
@both
@pytest.mark.parametrize(
    "kind",
    [
        "middle",
        "rare",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("large", "small", "plateau")),
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
        everything = method(lambdas=search.QUICK_LAMBDAS, mus=search.QUICK_MUS).fit(logits, labels)
    scores = everything.cv_results_["log_loss"]
    assert scores.size == 17 * 5
    assert quick.cv_results_["log_loss"].min() <= scores.min() + 1e-3
    if kind in ("large", "small"):
        assert (quick.lambda_ >= 10.0) == (kind == "large")


@pytest.mark.slow
@both
@pytest.mark.parametrize("seed", [0, 3])
def test_the_choice_is_past_the_plateau(method, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = method().fit(*plateau_first(seed))
    results = fitted.cv_results_
    on_plateau = results["log_loss"][results["lambda"] >= 1e5].min()
    assert fitted.lambda_ <= 100.0
    assert results["log_loss"].min() < on_plateau - 5e-3


def scores_of(values):
    """A search whose log losses are `values` of (lambda, mu), for more than 20 classes."""

    class Search(search.PenaltySearch):
        def _try(self, strength, near):
            trial = search.PenaltyTrial(strength, values(*strength), True, [])
            self.trials.append(trial)
            if len(self.trials) == 1 or trial.log_loss < self.best.log_loss:
                self.best = trial
            return trial

    examples = MatrixExamples.from_logits(
        as_logits(np.ones((1, 30))), np.zeros(1, np.int64), np.ones(1), finite_values
    )
    return Search(examples, [], 1.0, 1)


def test_a_plateau_never_ends_a_path_and_clear_overfitting_does():
    grid = list(search.QUICK_LAMBDAS), list(search.QUICK_MUS)

    def late(lambda_, mu):  # slowly rising, then a drop in one place
        return 1.0 - 1e-4 * np.log10(lambda_) - (0.05 if 0.1 < lambda_ < 3 and mu < 0.05 else 0.0)

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        paper = method(lambdas="paper", cv=2, max_iter=1).fit(logits, labels)
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
    np.testing.assert_array_equal(fitted.cv_results_["log_loss"], listed.cv_results_["log_loss"])
    for each in (fitted, listed):
        each.save(tmp_path / "it.json")
        np.testing.assert_array_equal(
            load(tmp_path / "it.json").predict_proba(logits), fitted.predict_proba(logits)
        )
    assert fitted.cv is splitter


@both
def test_parameters_changed_after_the_fit_do_not_spoil_the_file(method, tmp_path):
    logits, labels = noisy(60, 3)
    fitted = method(lambdas=1.0).fit(logits, labels).set_params(lambdas=-1, cv=0)
    fitted.save(tmp_path / "it.json")
    again = load(tmp_path / "it.json")
    np.testing.assert_array_equal(again.predict_proba(logits), fitted.predict_proba(logits))


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
        ({"cv": [([0, 1, 2], [2, 3])]}, r"apart .*got 1 rows in both parts of item 0, the first 2"),
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
    np.testing.assert_array_equal(twin.predict_proba(logits), fitted.predict_proba(logits))
    assert (twin.lambda_, twin.mu_, twin.converged_) == (fitted.lambda_, fitted.mu_, True)
    np.testing.assert_array_equal(twin.cv_results_["mu"], fitted.cv_results_["mu"])
    assert twin.estimator().lambdas == [1.0, 0.1]


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
    assert -np.log(proba[rows, labels]).mean() < best  # the best temperature for the test set
    accuracy = (logits.argmax(axis=1) == labels).mean()
    assert (proba.argmax(axis=1) == labels).mean() > accuracy - 0.005
