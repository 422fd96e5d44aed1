"""The stability profile: what it is at its limits, against references, and where it
helps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning
from tests.conftest import read_pair, synthetic_logits

from hokical import Gaussian, TopK, load, threads
from hokical._fitting.partial_pooling import binary_losses
from hokical.calibrators import Hoki, make
from hokical.metrics import brier, log_loss
from hokical.rules import as_logits
from hokical_paper.profile import StabilityProfile
from hokical_paper.profile.link import (
    PENALTIES,
    error_price,
    fit_link,
    weigh_candidates,
)

Data = tuple[np.ndarray, np.ndarray]


def noisy_labels(n: int, seed: int, n_classes: int = 10) -> Data:
    """Labels are where Gaussian noise leads: the stability at width 2 is the true
    confidence.
    """
    rng = np.random.default_rng(seed)
    logits = 4.0 * rng.normal(size=(n, n_classes))
    return logits, np.argmax(logits + 2.0 * rng.normal(size=logits.shape), axis=1)


def softmax_labels(n: int, seed: int) -> Data:
    """Labels are drawn from the softmax: temperature scaling is the truth, and T is
    2.
    """
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.normal(size=(n, 10))
    return 2.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def loss_of(cal: Any, data: Data) -> float:
    return log_loss(cal.predict_confidence(data[0]), cal.predict(data[0]) == data[1])


@pytest.fixture(scope="module")
def overconfident() -> Data:
    return synthetic_logits(1500, 6, seed=7)


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, offset and outcomes of a small regression."""
    rng = np.random.default_rng(4)
    columns = rng.normal(size=(60, 3)) * [1.0, 5.0, 0.1] + [0.0, 3.0, -1.0]
    offset = rng.normal(size=60)
    truth = offset + 0.5 + columns @ [1.0, -0.1, 3.0]
    return columns, offset, rng.random(60) < 1.0 / (1.0 + np.exp(-truth))


# --- the link


@pytest.mark.parametrize("penalty", [0.1, 1.0, 30.0])
def test_the_link_is_the_penalised_optimum(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray], penalty: float
) -> None:
    columns, offset, correct = problem
    found = fit_link(columns, offset, correct, np.ones(60), penalties=(penalty,))
    scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)

    def objective(b: np.ndarray) -> float:
        losses = binary_losses(offset + b[0] + scaled @ b[1:], correct)
        return float(losses.sum() + 0.5 * penalty * (b @ b))

    slow = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    want = offset + slow.x[0] + scaled @ slow.x[1:]
    np.testing.assert_allclose(
        offset + found.intercept + columns @ found.coef, want, atol=1e-5
    )
    assert found.converged


@pytest.mark.sample(1)
@pytest.mark.parametrize("penalty", [0.3, 10.0])
def test_leave_one_out_without_refitting(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray], penalty: float
) -> None:
    """Twin: fit again without each example, in the units of the whole."""
    columns, offset, correct = problem
    units = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    quick = fit_link(
        columns, offset, correct, np.ones(60), penalties=(penalty,)
    ).loo_losses[0]
    losses = []
    for i in range(60):
        weights = np.ones(60)
        weights[i] = 0.0

        def objective(b: np.ndarray, weights: np.ndarray = weights) -> float:
            eta = offset + b[0] + units @ b[1:]
            loss = binary_losses(eta, correct)
            return float((weights * loss).sum() + 0.5 * penalty * (b @ b))

        b = minimize(objective, np.zeros(4), method="BFGS").x
        eta = offset[i] + b[0] + units[i] @ b[1:]
        losses.append(np.logaddexp(0.0, -eta if correct[i] else eta))
    assert quick == pytest.approx(np.mean(losses), rel=0.02)


def test_what_gains_less_than_its_error_hardly_counts() -> None:
    counts = np.ones(400)
    base = np.zeros(400)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    noise -= noise.mean()
    error = np.sqrt(np.sum(noise**2))
    shares = weigh_candidates(
        [base, noise - 0.5 * error / 400, noise - 3.0 * error / 400], counts, 1.0
    )
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] < 1e-3 * shares[0]
    assert shares[2] > 0.99
    dearer = weigh_candidates([base, noise - 3.0 * error / 400], counts, 4.0)
    assert dearer[0] > 0.99
    assert weigh_candidates([base, base - 1.0], counts, np.inf).tolist() == [1.0, 0.0]


def test_the_price_follows_the_number_of_mistakes() -> None:
    right = np.arange(100) >= 10
    assert error_price(right, np.ones(100)) == error_price(~right, np.ones(100)) == 3.0
    assert error_price(right, np.full(100, 2.0)) == 2.0
    assert error_price(np.ones(5, bool), np.ones(5)) == np.inf


def test_counts_are_repetitions(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    columns, offset, correct = problem
    times = np.random.default_rng(1).integers(0, 4, size=60)
    counted = fit_link(columns, offset, correct, times.astype(float))
    rows = np.repeat(np.arange(60), times)
    repeated = fit_link(columns[rows], offset[rows], correct[rows], np.ones(rows.size))
    np.testing.assert_allclose(counted.coef, repeated.coef, rtol=1e-7)
    np.testing.assert_allclose(counted.shares, repeated.shares, rtol=1e-7)


def test_columns_without_information_get_no_coefficient() -> None:
    rng = np.random.default_rng(0)
    columns = np.column_stack([rng.normal(size=50), np.full(50, 3.0), np.full(50, 0.1)])
    columns[1:, 2] += 1e-16
    found = fit_link(columns, np.zeros(50), rng.random(50) < 0.7, np.ones(50))
    assert found.coef[0] != 0.0
    np.testing.assert_array_equal(found.coef[1:], 0.0)


# --- the calibrator


def test_infinite_penalty_is_temperature_scaling(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = StabilityProfile(penalty=np.inf).fit(logits, labels)
    temps = make("temps").fit(logits, labels)
    assert cal.temperature_ == pytest.approx(temps.temperature_, rel=1e-6)
    np.testing.assert_allclose(
        cal.predict_confidence(logits), temps.predict_confidence(logits), atol=1e-6
    )
    assert cal.shares_.tolist() == [1.0]
    np.testing.assert_array_equal(cal.coef_, 0.0)


@pytest.mark.slow
def test_it_finds_what_one_temperature_cannot() -> None:
    val, test = noisy_labels(4000, 0), noisy_labels(20_000, 1)
    cal, temps = StabilityProfile().fit(*val), make("temps").fit(*val)
    gamma = Hoki(noise=Gaussian(2.0)).fit(*val).stability(test[0])
    right = cal.predict(test[0]) == test[1]
    best = brier(gamma, right)
    ours, theirs = (brier(c.predict_confidence(test[0]), right) for c in (cal, temps))
    assert ours - best < 0.25 * (theirs - best)
    assert cal.shares_[0] < 0.1
    assert "a correction that moves the confidence by" in cal.message_


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [100, 300])
def test_where_temperature_scaling_is_right_little_is_lost(n: int) -> None:
    test = softmax_labels(4000, 10**6)
    gaps = []
    for seed in range(12):
        val = softmax_labels(n, seed)
        gaps.append(
            loss_of(StabilityProfile().fit(*val), test)
            - loss_of(make("temps").fit(*val), test)
        )
    assert np.mean(gaps) < 0.004


def test_few_examples_leave_little_of_the_correction() -> None:
    logits, labels = noisy_labels(4000, 3)
    moved = []
    for n in (40, 4000):
        few = logits[:n], labels[:n]
        cal, temps = StabilityProfile().fit(*few), make("temps").fit(*few)
        moved.append(
            np.abs(
                cal.coef_[1:] * cal.rule_.features(as_logits(logits)).std(axis=0)[1:]
            ).sum()
        )
        assert (
            np.abs(
                cal.predict_confidence(logits) - temps.predict_confidence(logits)
            ).mean()
            < 0.04
        )
    assert moved[0] < 0.5 * moved[1]


@pytest.mark.slow
def test_real_logits_improve() -> None:
    pair = read_pair("cifar10_wrn28_10")
    val, test = (
        (pair[f"{part}_logits"], pair[f"{part}_labels"]) for part in ("val", "test")
    )
    cal, temps = StabilityProfile().fit(*val), make("temps").fit(*val)
    assert loss_of(cal, test) < loss_of(temps, test) - 0.001
    gaps = []
    for seed in range(10):
        rows = np.random.default_rng(seed).permutation(5000)[:200]
        few = val[0][rows], val[1][rows]
        gaps.append(
            loss_of(StabilityProfile().fit(*few), test)
            - loss_of(make("temps").fit(*few), test)
        )
    assert np.mean(gaps) < 0.002


def test_attributes(overconfident: Data) -> None:
    cal = StabilityProfile().fit(*overconfident)
    assert cal.converged_
    np.testing.assert_allclose(
        cal.widths_, cal.temperature_ * np.array([1.0, 3.0, 10.0])
    )
    assert cal.coef_.shape == (7,)
    np.testing.assert_array_equal(cal.penalties_, [np.inf, *PENALTIES])
    assert cal.shares_.sum() == pytest.approx(1.0)
    assert cal.penalty_ == cal.penalties_[cal.shares_.argmax()]
    assert cal.loo_log_loss_.shape == cal.penalties_.shape
    assert cal.message_.startswith(f"temperature {cal.temperature_:.4g}; ")


@pytest.mark.slow
def test_the_message_says_whether_there_is_a_correction() -> None:
    """Here no correction counts most of all penalties, and yet less than the others
    together.
    """
    pair = read_pair("cifar10_resnet110")
    logits, labels = pair["val_logits"], pair["val_labels"]
    cal = StabilityProfile().fit(logits, labels)
    assert cal.penalty_ == np.inf
    assert cal.coef_.any()
    assert "most of it with penalty 1e+03" in cal.message_
    alone = StabilityProfile(penalty=np.inf).fit(logits, labels)
    assert alone.message_.endswith("no correction: temperature scaling alone")


def test_no_mistake_to_learn_from() -> None:
    logits, _ = synthetic_logits(200, 5, seed=0)
    labels = logits.argmax(axis=1)
    with pytest.warns(ConvergenceWarning, match="some of which are wrong"):
        cal = StabilityProfile().fit(logits, labels)
    assert cal.temperature_ == 1.0
    assert not cal.converged_
    confidence = cal.predict_confidence(logits)
    assert 0.0 < confidence.min() < confidence.max() < 1.0


@pytest.fixture
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("right", [True, False])
def test_tiny_sets(n: int, right: bool) -> None:
    logits, _ = synthetic_logits(50, 4, seed=2)
    labels = logits.argmax(axis=1) if right else logits.argmin(axis=1)
    cal = StabilityProfile().fit(logits[:n], labels[:n])
    confidence = cal.predict_confidence(logits)
    assert ((confidence > 0.0) & (confidence < 1.0)).all()


def test_a_class_alone_and_extreme_margins() -> None:
    logits, labels = synthetic_logits(400, 3, seed=5)
    cal = StabilityProfile().fit(logits, labels)
    odd = np.array([[0.0, -np.inf, -np.inf], [1e300, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    confidence, proba = cal.predict_confidence(odd), cal.predict_proba(odd)
    assert ((confidence > 0.0) & (confidence < 1.0)).all()
    np.testing.assert_array_equal(proba[0], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(cal.predict(odd), [0, 0, 0])


def crowded_world(n: int, seed: int) -> Data:
    """Labels that are right as the gap to the runner-up says, however many rivals crowd
    there.

    The more certain ones have more rivals, so that the fitted correction falls with
    stability.
    """
    rng = np.random.default_rng(seed)
    gap = rng.uniform(0.0, 8.0, size=n)
    logits = np.where(np.arange(40) <= 5.0 * gap[:, None], 0.0, -15.0)
    logits[:, 0] = gap
    right = rng.random(n) < 1.0 / (1.0 + np.exp(-gap))
    return logits, np.where(right, 0, 1)


def test_labels_surer_than_any_seen_follow_the_softmax() -> None:
    logits, labels = crowded_world(4000, 0)
    cal = StabilityProfile().fit(logits, labels)
    assert np.ptp(cal.range_) > 0.5  # the correction does something
    beyond = np.zeros((4, 40))
    beyond[:, 0] = [9.0, 16.0, 40.0, 400.0]
    alone = np.full((1, 40), -np.inf)
    alone[0, 0] = 0.0
    confidence = cal.predict_confidence(np.vstack([beyond, alone]))
    assert (np.diff(confidence) >= 0.0).all()
    assert confidence[1:].min() > 0.99
    few = np.where(np.arange(40) < 3, logits, -np.inf)  # most classes ruled out
    softmax = expit(cal.rule_.features(as_logits(few))[:, 0])
    assert (cal.predict_confidence(few) >= softmax - 0.5).all()


def test_the_correction_stays_within_what_was_seen(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = StabilityProfile().fit(logits[:800], labels[:800])
    for values in (
        logits,
        10.0 * logits,
        np.where(logits < 0.0, -np.inf, logits + 1e-3),
    ):
        rows = values[np.isfinite(values).any(axis=1)]
        features = cal.rule_.features(as_logits(rows))
        added = logit(cal.predict_confidence(rows)) - features[:, 0]
        inside = np.abs(features[:, 0]) < 30.0
        assert (added[inside] >= cal.range_[0] - 1e-2).all()
        assert (added[inside] <= cal.range_[1] + 1e-2).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_classes", [2, 20_000])
def test_few_and_many_classes(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(n_classes, size=60)
    logits = rng.normal(size=(60, n_classes)).astype(np.float32)
    logits[np.arange(60), labels] += 1.0 if n_classes == 2 else 4.0
    cal = StabilityProfile().fit(logits, labels)
    whole = cal.predict_confidence(logits)
    np.testing.assert_allclose(
        cal.predict_confidence(logits[:7]), whole[:7], atol=1e-12
    )


def test_the_rest_is_shared_as_by_the_scaled_softmax(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = StabilityProfile().fit(logits, labels)
    proba = cal.predict_proba(logits)
    others = make("temps").fit(logits, labels).predict_proba(logits)
    top = np.arange(len(labels)), logits.argmax(axis=1)
    proba[top], others[top] = 0.0, 0.0
    np.testing.assert_allclose(
        proba / proba.sum(axis=1, keepdims=True),
        others / others.sum(axis=1, keepdims=True),
        atol=1e-6,
    )


def test_threads_and_order_change_nothing(overconfident: Data) -> None:
    logits, labels = overconfident
    cal = StabilityProfile().fit(logits, labels)
    with threads(1):
        alone = StabilityProfile().fit(logits, labels)
    np.testing.assert_array_equal(alone.coef_, cal.coef_)
    turned = StabilityProfile().fit(logits[::-1], labels[::-1])
    np.testing.assert_allclose(turned.coef_, cal.coef_, rtol=1e-6, atol=1e-9)


def test_features_can_be_gathered_in_parts(overconfident: Data) -> None:
    """What an out-of-core fit does: features of every part, then one regression."""
    logits, labels = overconfident
    cal = StabilityProfile().fit(logits, labels)
    data = as_logits(logits)
    parts = [
        cal.rule_.features(data.take(slice(i, i + 700))) for i in range(0, 1500, 700)
    ]
    gathered = np.concatenate(parts)
    np.testing.assert_array_equal(gathered, cal.rule_.features(data))
    assert gathered.shape == (1500, 7)
    assert np.isfinite(gathered).all()
    np.testing.assert_array_equal(
        cal.rule_.confidence_from(gathered, np), cal.predict_confidence(logits)
    )


def test_hidden_classes() -> None:
    val, test = noisy_labels(1500, 0, n_classes=40), noisy_labels(300, 1, n_classes=40)
    cal = StabilityProfile().fit(*val)
    full = cal.predict_confidence(test[0])
    for k, near in ((40, 1e-9), (10, 0.05)):
        cut = TopK.from_logits(test[0], k)
        confidence = cal.predict_confidence(cut)
        np.testing.assert_allclose(confidence, full, atol=near)
    again = StabilityProfile().fit(TopK.from_logits(val[0], 10), val[1])
    assert np.abs(again.predict_confidence(cut) - full).mean() < 0.02


def test_a_fit_that_is_broken_off_says_so(overconfident: Data) -> None:
    with pytest.warns(
        ConvergenceWarning, match="a regression did not converge: raise `max_iter"
    ):
        cal = StabilityProfile(max_iter=1).fit(*overconfident)
    assert not cal.converged_


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"widths": ()}, "`widths` must be one or more finite numbers above 0"),
        ({"widths": (1.0, -2.0)}, r"got \(1.0, -2.0\). The default is"),
        ({"widths": 3.0}, "`widths` must be one or more"),
        ({"widths": (1.0, 1.0)}, "`widths` must differ from each other"),
        ({"penalty": 0.0}, '`penalty` must be "auto" or a number above 0'),
        ({"penalty": "best"}, "got 'best'"),
        ({"penalty": True}, "got True"),
        ({"max_iter": 0}, "`max_iter` must be"),
    ],
)
def test_bad_options(overconfident: Data, options: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        StabilityProfile(**options).fit(*overconfident)


def test_it_comes_back_from_its_file(overconfident: Data, tmp_path: Path) -> None:
    cal = StabilityProfile(widths=(1.0, 2.0), penalty=5.0).fit(*overconfident)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    expected = cal.predict_confidence(overconfident[0])
    for again in (loaded, loaded):
        np.testing.assert_array_equal(
            again.predict_confidence(overconfident[0]), expected
        )
        for name in (
            "temperature_",
            "widths_",
            "coef_",
            "range_",
            "penalties_",
            "shares_",
        ):
            np.testing.assert_array_equal(getattr(again, name), getattr(cal, name))
        assert (again.message_, again.n_iter_) == (cal.message_, cal.n_iter_)
    assert loaded.get_params() == cal.get_params()
