"""Ensemble temperature scaling: its losses, its solvers, and labels that never move."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from hokical._core.jit import has_compiler
from hokical._core.logits import as_logits
from hokical._core.parallel import threads
from hokical._core.topk import TopK
from hokical._fitting.descent import Point, descend
from hokical._fitting.ensemble import MixturePart, mixture_loss, portable_products
from hokical._fitting.kernels import margin_products
from hokical._fitting.likelihood import FAR, WeightedExamples, count_block
from hokical._fitting.partitions import Block
from hokical._fitting.simplex import best_weights, least_on_simplex
from hokical._fitting.temperature import BOUNDS
from hokical.calibrators import EnsembleTemperatureScaling, load
from tests.conftest import max_examples, real_logits

REAL = ["cifar10_resnet110", "cifar100_wrn28_10", "mnist_lenet5"]
LOSSES = ["log", "mse"]


def simulated(seed, n=1500, classes=5, temperature=2.0, guesses=0.15):
    """Logits that are too large by `temperature`, and labels some of which are pure guesses."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    guess = rng.random(n) < guesses
    labels[guess] = rng.integers(classes, size=guess.sum())
    return temperature * logits, labels


def mixture(logits, temperature, weights):
    possible = logits > -np.inf
    uniform = possible / possible.sum(axis=1, keepdims=True)
    parts = softmax(logits / temperature, axis=1), softmax(logits, axis=1), uniform
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))


def mean_loss(proba, labels, loss, weights=None):
    """The plain, reference implementation."""
    if loss == "log":
        each = -np.log(proba[np.arange(labels.size), labels])
    else:
        each = ((proba - np.eye(proba.shape[1])[labels]) ** 2).sum(axis=1)
    return np.average(each, weights=weights)


def slow_fit(logits, labels, loss):
    """Joint minimisation from several starts by a general optimiser."""

    def objective(theta):
        weights = softmax(np.append(theta[1:], 0.0))
        return mean_loss(mixture(logits, np.exp(theta[0]), weights), labels, loss)

    starts = [(s, 2.0, a) for s in (-0.7, 0.3, 0.9) for a in (-2.0, 2.0)]
    return min(
        minimize(objective, start, method="Nelder-Mead", options={"maxiter": 1500}).fun
        for start in starts
    )


def wild(seed):
    """Logits with heavy tails, labels with guesses, of any size: the loss has many valleys."""
    rng = np.random.default_rng(seed)
    n, classes = int(rng.choice([60, 226, 600, 1500, 4000])), int(rng.choice([2, 3, 6, 10]))
    logits = rng.choice([0.5, 1, 2, 4]) * rng.standard_t(rng.choice([2, 5, 50]), size=(n, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    guess = rng.random(n) < rng.choice([0.0, 0.05, 0.2, 0.6])
    labels[guess] = rng.integers(classes, size=guess.sum())
    return np.exp(rng.normal()) * logits, labels


def best_on_a_grid(logits, labels, loss):
    """The least loss over 40 temperatures, with the weights left to a general optimiser."""

    def objective(weights, temperature):
        proba = mixture(logits, temperature, weights)
        return mean_loss(np.maximum(proba, 1e-300), labels, loss)

    return min(
        minimize(
            objective,
            np.full(3, 1 / 3),
            args=(temperature,),
            method="SLSQP",
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        ).fun
        for temperature in np.geomspace(1e-3, 100, 40)
    )


def counted(logits, labels) -> WeightedExamples:
    return count_block(Block(as_logits(logits), labels, None))


def quiet_fit(logits, labels, weights=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EnsembleTemperatureScaling(**options).fit(logits, labels, weights)


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("seed", "temperature"), [(0, 2.0), (1, 0.6), (2, 1.0)])
def test_finds_what_a_general_optimiser_finds(loss, seed, temperature):
    logits, labels = simulated(seed, 400, 4, temperature)
    cal = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.converged_
    ours = mean_loss(mixture(logits, cal.temperature_, cal.weights_), labels, loss)
    assert_allclose(cal.loss_, ours, rtol=1e-9)
    assert ours <= slow_fit(logits, labels, loss) + 1e-6
    assert_allclose(cal.predict_proba(logits), mixture(logits, cal.temperature_, cal.weights_))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "loss"),
    [(44, "mse"), (79, "mse"), (162, "log"), (93, "log"), (93, "mse"), (146, "mse")],
)
def test_the_deepest_of_many_valleys_is_found(seed, loss):
    """Once the nearest valley was taken, or a temperature without weight (93 and 146)."""
    logits, labels = wild(seed)
    cal = quiet_fit(logits, labels, loss=loss)
    assert cal.loss_ <= best_on_a_grid(logits, labels, loss) + 1e-8
    ours = mean_loss(mixture(logits, cal.temperature_, cal.weights_), labels, loss)
    assert_allclose(cal.loss_, ours, rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1e-130, 1e24, 1e130])
def test_logits_in_absurd_units(loss, scale):
    logits, labels = simulated(4, 300)
    cal = quiet_fit(scale * logits, labels, loss=loss)
    assert np.isfinite(cal.loss_)
    assert BOUNDS[0] <= cal.temperature_ <= BOUNDS[1]
    wide = quiet_fit(scale * logits, labels, loss=loss, bounds=(scale / 1e4, scale * 1e4))
    assert wide.loss_ <= cal.loss_ + 1e-9


def test_iterations_are_passes(monkeypatch):
    passes = []
    plain = MixturePart.square_sums

    def counting(self, beta):
        passes.append(self.examples.labels.size)
        return plain(self, beta)

    monkeypatch.setattr(MixturePart, "square_sums", counting)
    cal = EnsembleTemperatureScaling().fit(*simulated(0, 6000, 20))
    assert cal.n_iter_ == passes.count(6000)


@pytest.mark.parametrize("loss", LOSSES)
@max_examples(15)
@given(
    seed=st.integers(0, 10_000),
    log_beta=st.floats(-2.0, 1.5),
    share=st.floats(0.05, 0.9),
    masked=st.booleans(),
)
def test_derivatives_agree_with_differences(loss, seed, log_beta, share, masked):
    logits, labels = simulated(seed, 50, 4)
    if masked:
        rows = np.flatnonzero(labels != 1)[:20]
        logits[rows, 1] = -np.inf
    examples = counted(logits, labels)
    weights = np.array([share, 0.6 * (1 - share), 0.4 * (1 - share)])

    def around(s, w=weights):
        return mixture_loss(examples, loss, np.exp(s))(w)

    here, up, down = around(log_beta), around(log_beta + 1e-5), around(log_beta - 1e-5)
    expected = mean_loss(mixture(logits, np.exp(-log_beta), weights), labels, loss)
    assert_allclose(here.value, expected, rtol=1e-10)
    assert_allclose(here.slope, (up.value - down.value) / 2e-5, atol=1e-7)
    assert_allclose(here.curvature, (up.slope - down.slope) / 2e-5, atol=1e-6)
    assert_allclose(here.mixed, (up.gradient - down.gradient) / 2e-5, atol=1e-6)
    for k, unit in enumerate(1e-5 * np.eye(3)):
        right, left = around(log_beta, weights + unit), around(log_beta, weights - unit)
        assert_allclose(here.gradient[k], (right.value - left.value) / 2e-5, atol=1e-6)
        assert_allclose(
            here.hessian[k], (right.gradient - left.gradient) / 2e-5, rtol=1e-4, atol=1e-6
        )


@max_examples(60)
@given(seed=st.integers(0, 100_000), rank=st.integers(1, 3))
def test_the_quadratic_on_the_simplex_has_no_better_point(seed, rank):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, rank))
    linear, hessian = rng.normal(size=3), root @ root.T
    found = least_on_simplex(linear, hessian)
    assert found.min() >= 0
    assert_allclose(found.sum(), 1.0)
    others = np.vstack([rng.dirichlet(np.ones(3), size=300), np.eye(3)])

    def value(w):
        return w @ linear + 0.5 * np.einsum("...i,ij,...j->...", w, hessian, w)

    assert value(found) <= value(others).min() + 1e-9


def test_best_weights_meet_the_conditions_of_optimality():
    logits, labels = simulated(3)
    for beta, start in ((1.0, np.eye(3)[0]), (0.5, np.array([0.2, 0.3, 0.5]))):
        loss = mixture_loss(counted(logits, labels), "log", beta)
        weights = best_weights(loss, start)
        gradient = loss(weights).gradient
        assert_allclose(gradient[weights > 0], gradient.min(), atol=1e-6)


def test_a_search_does_not_settle_on_a_plateau_that_it_jumped_to():
    def evaluate(at):  # a parabola with its valley at 1, cut off at 0, where all is flat
        if at <= 0.0:
            return Point(at, 1.0, 0.0, 0.0, 0.0, True)
        slope = 2.0 * (at - 1.0)
        step = -1.0 if at > 3.9 else -0.5 * slope  # the last of the first steps goes too far
        step = -4.0 if at >= 4.0 - 1e-9 else step
        return Point(at, (at - 1.0) ** 2 - 10.0, slope, 2.0, step, abs(step) < 1e-9)

    found = descend(evaluate, np.exp(-4.0), (np.exp(-10.0), np.exp(10.0)), 100)
    assert found.converged
    assert_allclose(found.x, np.exp(-1.0))


@pytest.mark.skipif(not has_compiler(), reason="numba is not installed")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_compiled_and_portable_sums_agree(dtype):
    logits = simulated(4, 40, 33)[0].astype(dtype)
    logits[3, 5] = -np.inf
    checked = as_logits(logits)
    for beta in (1e-5, 0.3, 7.0, 1e5):
        portable = portable_products(checked, beta)
        compiled = np.empty((3, 3, 40))
        margin_products(checked.block(), checked.top, beta, FAR, compiled)
        assert_allclose(compiled, np.array(portable), rtol=1e-11, atol=1e-290)


@pytest.mark.sample(1)
@pytest.mark.parametrize("loss", LOSSES)
def test_threads_and_the_compiled_path_change_nothing(loss, monkeypatch):
    logits, labels = simulated(5, 6000, 60)
    with threads(1):
        one = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    with threads(3):
        three = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert one.temperature_ == three.temperature_
    assert_array_equal(one.weights_, three.weights_)
    monkeypatch.setattr("hokical._core.jit.has_compiler", lambda: False)
    portable = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert_allclose(portable.predict_proba(logits), one.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_hidden_classes_count_as_equal_ones(loss):
    logits, labels = simulated(13, 400, 9)
    top = TopK.from_logits(logits, 4)
    known = (top.indices == labels[:, None]).any(axis=1)
    cal = EnsembleTemperatureScaling(loss=loss).fit(top[known], labels[known])
    dense = EnsembleTemperatureScaling(loss=loss).fit(top[known].to_dense(), labels[known])
    assert_allclose(cal.loss_, dense.loss_, rtol=1e-10)
    assert_allclose(cal.weights_, dense.weights_, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@max_examples(15)
@given(seed=st.integers(0, 10_000), temperature=st.floats(0.3, 4.0), guesses=st.floats(0.0, 0.6))
def test_constants_and_the_order_of_classes_do_not_matter(loss, seed, temperature, guesses):
    logits, labels = simulated(seed, 150, 4, temperature, guesses)
    rng = np.random.default_rng(seed)
    order = rng.permutation(4)
    plain = quiet_fit(logits, labels, loss=loss).predict_proba(logits)
    moved = quiet_fit(logits + rng.normal(size=(150, 1)), labels, loss=loss)
    permuted = quiet_fit(logits[:, order], np.argsort(order)[labels], loss=loss)
    assert_allclose(moved.predict_proba(logits), plain, atol=1e-8)
    assert_allclose(permuted.predict_proba(logits[:, order]), plain[:, order], atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_repetitions(loss):
    logits, labels = simulated(6, 6000, 20)
    counts = np.random.default_rng(6).integers(0, 4, size=labels.size)
    weighted = EnsembleTemperatureScaling(loss=loss).fit(logits, labels, counts)
    repeated = EnsembleTemperatureScaling(loss=loss).fit(
        np.repeat(logits, counts, axis=0), np.repeat(labels, counts)
    )
    assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-11)
    assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_stay_even_where_floats_tie(loss):
    logits, _ = simulated(7, 300, 4)
    logits[:50] *= 1e-13
    cal = quiet_fit(logits, logits.argmin(axis=1), loss=loss)  # nearly all weight on uniform
    assert_array_equal(cal.predict_proba(logits).argmax(axis=1), logits.argmax(axis=1))
    assert_array_equal(cal.predict(logits), logits.argmax(axis=1))
    own = cal.predict_proba(logits)[np.arange(300), logits.argmax(axis=1)]
    assert_allclose(cal.predict_confidence(logits), own, rtol=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_right_ends_at_the_lower_bound_and_says_so(loss):
    logits, _ = simulated(8, 100, 4)
    with pytest.warns(ConvergenceWarning, match="every validation label has the top logit"):
        cal = EnsembleTemperatureScaling(loss=loss).fit(logits, logits.argmax(axis=1))
    assert cal.temperature_ == BOUNDS[0]
    assert not cal.converged_
    assert cal.loss_ < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_masked_classes_get_nothing_of_the_uniform_part(loss):
    logits, labels = simulated(9)
    padded = np.hstack([logits, np.full((labels.size, 3), -np.inf)])
    cal = EnsembleTemperatureScaling(loss=loss).fit(padded, labels)
    plain = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.weights_[2] > 0.05
    assert_allclose(cal.weights_, plain.weights_, atol=1e-8)
    assert_allclose(cal.predict_proba(padded)[:, :5], plain.predict_proba(logits), atol=1e-8)
    assert_array_equal(cal.predict_proba(padded)[:, 5:], 0.0)


def test_impossible_truths_are_left_out_with_a_word():
    logits, labels = simulated(10)
    logits[np.arange(10), labels[:10]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 1500 examples are left out"):
        cal = EnsembleTemperatureScaling().fit(logits, labels)
    twin = EnsembleTemperatureScaling().fit(logits[10:], labels[10:])
    assert_allclose(cal.temperature_, twin.temperature_, rtol=1e-6)


def test_too_few_iterations_are_reported():
    logits, labels = simulated(11)
    with pytest.warns(ConvergenceWarning, match="Raise `max_iter`"):
        cal = EnsembleTemperatureScaling(max_iter=1).fit(logits, labels)
    assert not cal.converged_


def test_a_bad_loss_is_named():
    with pytest.raises(ValueError, match='`loss` must be "mse" or "log"; got \'ce\''):
        EnsembleTemperatureScaling(loss="ce").fit(*simulated(0, 20))


def test_a_file_gives_back_the_fit(tmp_path):
    logits, labels = simulated(12)
    cal = EnsembleTemperatureScaling(loss="log").fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))
    assert (loaded.loss_, loaded.message_) == (cal.loss_, cal.message_)
    assert loaded.estimator().loss == "log"


@pytest.mark.peer
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", REAL)
def test_at_least_as_good_as_probmetrics_on_real_logits(name, loss):
    """They fit one parameter after the other, so equality holds where that is no loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("probmetrics", reason="the peer probmetrics is not installed")
        from probmetrics.calibrators.temperature_scaling import ETSCalibrator

        logits, labels = real_logits(name)
        proba = softmax(logits.astype(np.float64), axis=1)
        peer = ETSCalibrator(loss="ce" if loss == "log" else "mse").fit(proba, labels)
        their_loss = mean_loss(peer.predict_proba(proba), labels, loss)
    cal = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.converged_
    assert cal.loss_ <= their_loss + 1e-5
    at_theirs = mean_loss(mixture(logits.astype(np.float64), peer.t_, peer.w_), labels, loss)
    assert_allclose(at_theirs, their_loss, atol=1e-4)  # the same model, the same loss
    assert_allclose(cal.loss_, their_loss, atol=1e-4)
