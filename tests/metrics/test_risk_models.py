"""What is reported of the probability of an event: summary, slope, curve, bands, net
benefit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import beta, binom, chi2, ks_2samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from hokical.metrics import (
    binary_summary,
    calibration_slope,
    decision_curve,
    population_stability_index,
    risk_bands,
    smooth_calibration_curve,
)
from tests.conftest import hold_often, repetitions


def risks(n: int, seed: int, slope: float = 1.0, intercept: float = 0.0) -> tuple:
    rng = np.random.default_rng([n, seed])
    x = rng.normal(-1.5, 1.3, n)
    event = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-(intercept + slope * x)))
    return 1.0 / (1.0 + np.exp(-x)), event


def test_the_slope_is_that_of_a_logistic_regression() -> None:
    risk, event = risks(3000, 0, slope=0.7, intercept=0.3)
    x = np.log(risk / (1.0 - risk))
    known = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, None], event)
    found = calibration_slope(risk, event)
    assert found.slope.value == pytest.approx(known.coef_[0, 0], rel=1e-4)
    assert found.slope.low < 0.7 < found.slope.high < 1.0
    both = np.column_stack([1.0 - risk, risk])
    again = calibration_slope(both, event.astype(int))
    assert again.slope.value == pytest.approx(found.slope.value, rel=1e-9)
    chunks = [(risk[:99], event[:99]), (risk[99:], event[99:])]
    assert calibration_slope(chunks).intercept == found.intercept


def test_the_intercept_makes_the_mean_right() -> None:
    risk, event = risks(2000, 1, intercept=-0.5)
    found = calibration_slope(risk, event).intercept
    moved = 1.0 / (1.0 + np.exp(-(np.log(risk / (1.0 - risk)) + found.value)))
    assert moved.mean() == pytest.approx(event.mean(), rel=1e-9)
    assert found.low < -0.5 < found.high < 0.0


def test_weight_two_is_the_row_twice() -> None:
    risk, event = risks(500, 2)
    whole = calibration_slope(risk, event, sample_weight=np.full(500, 2.0)).slope
    assert whole.value == pytest.approx(
        calibration_slope(risk, event).slope.value, rel=1e-9
    )
    assert whole.low == pytest.approx(
        calibration_slope(risk, event).slope.low, rel=1e-9
    )


def test_what_cannot_be_known_is_nan() -> None:
    assert math.isnan(calibration_slope([0.2, 0.9], [False, True]).slope.value)
    assert math.isnan(calibration_slope([0.2, 0.9], [True, True]).intercept.value)
    with pytest.raises(ValueError, match="`proba` must be of two classes"):
        calibration_slope(np.full((3, 3), 1 / 3), [0, 1, 2])


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [200, 2000, 20_000])
def test_intervals_hold(n: int) -> None:
    """Of slope, intercept and net benefit: at least 93 % of data sets, as far as
    these tell.
    """
    held, short, trials = (
        np.zeros(3),
        np.zeros(3),
        repetitions(500, 25 if n > 2000 else 100),
    )
    big = risks(1_000_000, 0)
    truth = decision_curve(*big, [0.2]).net_benefit[0]
    for seed in range(trials):
        slope = calibration_slope(*risks(n, seed, slope=0.7)).slope
        intercept = calibration_slope(*risks(n, seed, intercept=0.3)).intercept
        curve = decision_curve(*risks(n, seed), [0.2])
        found = (
            (slope.low, slope.high, 0.7),
            (intercept.low, intercept.high, 0.3),
            (curve.low[0], curve.high[0], truth),
        )
        held += [low <= value <= high for low, high, value in found]
        short += [
            abs(value - (low + high) / 2) <= (high - low) / 6
            for low, high, value in found
        ]
    assert hold_often(held, trials), held / trials
    for each in short:  # a third of an interval does not pass for a whole one
        assert not hold_often(each, trials), short / trials


def test_net_benefit_is_its_definition() -> None:
    risk, event = risks(400, 3)
    weight = np.random.default_rng(0).integers(1, 4, 400)
    curve = decision_curve(risk, event, [0.05, 0.3, 0.999], sample_weight=weight)
    for t, found, every in zip(
        curve.threshold, curve.net_benefit, curve.treat_all, strict=True
    ):
        price = t / (1.0 - t)
        gains = np.where(event, 1.0, -price)
        assert found == pytest.approx(
            np.average(gains * (risk >= t), weights=weight), abs=1e-12
        )
        assert every == pytest.approx(np.average(gains, weights=weight))
    assert curve.low[1] < curve.net_benefit[1] < curve.high[1]
    assert curve.low[2] < 0.0 < curve.high[2]  # nobody is treated
    assert decision_curve(risk, event).threshold.size == 99
    with pytest.raises(
        ValueError, match="`thresholds` must lie strictly between 0 and 1"
    ):
        decision_curve(risk, event, [0.0])
    with pytest.raises(
        ValueError, match="`thresholds` must lie strictly between 0 and 1"
    ):
        decision_curve(risk, event, [])


def test_the_summary_is_that_of_plain_formulas() -> None:
    """Each number by scikit-learn or its own definition, with and without weights."""
    risk, event = risks(1500, 4, slope=0.8, intercept=0.4)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 1500)
    for w in (None, weight):
        found, own = (
            binary_summary(risk, event, sample_weight=w),
            np.ones(1500) if w is None else w,
        )
        share, mean = np.average(event, weights=own), np.average(risk, weights=own)
        brier = brier_score_loss(event, risk, sample_weight=w)
        known = {
            "prevalence": share,
            "mean_probability": mean,
            "oe_ratio": share / mean,
            "auroc": roc_auc_score(event, risk, sample_weight=w),
            "gini": 2.0 * roc_auc_score(event, risk, sample_weight=w) - 1.0,
            "brier": brier,
            "scaled_brier": 1.0 - brier / (share * (1.0 - share)),
            "log_loss": log_loss(event, risk, sample_weight=w),
        }
        for name, value in known.items():
            assert found[name].value == pytest.approx(value, abs=1e-9), name
            assert found[name].low < value < found[name].high, name
    found = binary_summary(risk, event)
    assert found["ks"].value == pytest.approx(
        ks_2samp(risk[event], risk[~event]).statistic
    )
    z = ((event - risk) * (1 - 2 * risk)).sum()
    z /= math.sqrt(((1 - 2 * risk) ** 2 * risk * (1 - risk)).sum())
    assert found["spiegelhalter_z"].value == pytest.approx(z, abs=1e-9)
    assert found.n == 1500
    assert found.n_events == event.sum()


def test_the_indices_are_those_of_val_prob() -> None:
    """R2, D, U and Q from deviances that a general optimiser finds."""
    risk, event = risks(900, 5, slope=0.6)
    x = logit(risk)

    def deviance(coefficients: np.ndarray) -> float:
        eta = coefficients[0] + coefficients[1] * x
        return float(-2.0 * (event * eta - np.logaddexp(0.0, eta)).sum())

    fit = minimize(deviance, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9})
    null = (
        -2.0
        * len(x)
        * (
            event.mean() * np.log(event.mean())
            + (1 - event.mean()) * np.log(1 - event.mean())
        )
    )
    found, n = binary_summary(risk, event), len(x)
    gain, off = null - fit.fun, deviance(np.array([0.0, 1.0])) - fit.fun
    known = {
        "logistic_intercept": fit.x[0],
        "slope": fit.x[1],
        "discrimination": (gain - 1) / n,
        "unreliability": (off - 2) / n,
        "quality": (gain - 1) / n - (off - 2) / n,
        "unreliability_p": chi2.sf(off, 2),
        "r2": (1 - np.exp(-gain / n)) / (1 - np.exp(-null / n)),
    }
    for name, value in known.items():
        assert found[name].value == pytest.approx(value, abs=2e-5), name


def test_chunks_have_the_same_summary() -> None:
    risk, event = risks(1200, 6)
    whole = binary_summary(risk, event)
    chunks = [(risk[k : k + 400], event[k : k + 400]) for k in (0, 400, 800)]
    assert binary_summary(chunks).estimates == whole.estimates
    assert str(binary_summary(chunks)) == str(whole)
    assert "oe_ratio" in str(whole)
    with pytest.raises(KeyError, match="no metric 'ece' in this summary; it has"):
        whole["ece"]


TRUE = {
    "calibrated": lambda p: p,
    "too low": lambda p: expit(logit(p) + 0.5),
    "too extreme": lambda p: expit(0.6 * logit(p)),
    "square": lambda p: p**2,
    "wave": lambda p: p + 0.1 * np.sin(2.0 * np.pi * p),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", TRUE)
def test_the_smooth_curve_finds_the_true_one(shape: str) -> None:
    """ICI within .012 of the true one at 4000 rows, and the band holds where most rows
    are.

    A share of 4000 rows alone has an error of .007, so it is the mean of ten data sets.
    """
    off, inside = [], []
    for seed in range(10):
        rng = np.random.default_rng([seed, 7])
        p = expit(rng.normal(-1.0, 1.2, 4000))
        truth = TRUE[shape](p)
        found = binary_summary(p, rng.uniform(size=4000) < truth)
        off.append(abs(found["ici"].value - np.abs(truth - p).mean()))
        kept = slice(5, 70)  # of 101 points; few rows have larger probabilities
        known = TRUE[shape](found.curve.probability[kept])
        inside.append(
            (found.curve.low[kept] <= known) & (known <= found.curve.high[kept])
        )
        order = [found[name].value for name in ("e50", "e90", "emax")]
        assert order == sorted(order)
    assert np.mean(off) < 0.012, off
    assert np.mean(inside) > 0.8, np.mean(inside)


def test_the_curve_of_weight_two_is_that_of_twice_the_rows_up_to_its_band() -> None:
    risk, event = risks(800, 8)
    once = smooth_calibration_curve(risk, event)
    twice = smooth_calibration_curve(risk, event, sample_weight=np.full(800, 2.0))
    np.testing.assert_allclose(once.observed, twice.observed, rtol=1e-6)
    np.testing.assert_allclose(once.low, twice.low, rtol=1e-6)
    with pytest.raises(ValueError, match="`outcome` must have both outcomes"):
        smooth_calibration_curve(risk, np.ones(800))


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1
    )
)
def test_any_rows_have_a_summary(rows: list[tuple[float, bool]]) -> None:
    """Of few rows, one outcome, certain probabilities: numbers or NaN, and text."""
    p, event = map(np.array, zip(*rows, strict=True))
    found = binary_summary(p, event)
    assert found.n == len(rows)
    assert found.n_certain == ((p == 0) | (p == 1)).sum()
    for each in found.estimates.values():
        assert not each.low > each.value
        assert not each.high < each.value
    assert str(found)
    assert sum(row.n for row in found.bands().rows) == len(rows)


def test_bands_are_counted_and_tested_exactly() -> None:
    p = np.repeat([0.01, 0.02, 0.1, 0.3], [200, 100, 80, 40])
    event = np.zeros(420, np.bool_)
    event[[0, 1, 2, 3, 4, 5, 6, 250, 310, 311, 390, 391, 392]] = True
    found = risk_bands(p, event, edges=[0.02, 0.2])
    assert [(row.lower, row.upper, row.n, row.events) for row in found.rows] == [
        (0.0, 0.02, 200.0, 7.0),
        (0.02, 0.2, 180.0, 3.0),
        (0.2, 1.0, 40.0, 3.0),
    ]
    first = found.rows[0]
    assert first.p_value == pytest.approx(2.0 * binom.sf(6, 200, 0.01), rel=1e-9)
    assert first.flagged
    ends = beta.ppf([0.025, 0.975], 7.5, 193.5)
    assert (first.low, first.high) == pytest.approx(tuple(ends))
    assert first.oe_ratio == pytest.approx(3.5)
    n, mean = (
        np.array([200, 180, 40]),
        np.array([0.01, (100 * 0.02 + 80 * 0.1) / 180, 0.3]),
    )
    statistic = ((np.array([7, 3, 3]) - n * mean) ** 2 / (n * mean * (1 - mean))).sum()
    assert found.hosmer_lemeshow == pytest.approx(statistic)
    assert chi2.sf(statistic, 3) < 1e-5
    assert 1e-4 <= found.p_value < 1e-3  # simulated, as the first band expects 2 events
    rng = np.random.default_rng(0)
    many = rng.uniform(0.2, 0.8, 2000)
    bands = risk_bands(many, rng.uniform(size=2000) < many)
    assert bands.p_value == pytest.approx(chi2.sf(bands.hosmer_lemeshow, 10))
    assert [row.n for row in risk_bands(*risks(1000, 9)).rows] == [100.0] * 10
    with pytest.raises(ValueError, match=r"`edges` must be .* ascend between 0 and 1"):
        risk_bands(p, event, edges=[0.3, 0.2])


def test_certain_predictions_have_no_log_odds() -> None:
    """One row of probability 0 with an event does not decide the slope, and it is
    said.
    """
    risk, event = risks(500, 10)
    known = calibration_slope(risk, event)
    more, happened = np.append(risk, 0.0), np.append(event, True)
    with pytest.warns(UserWarning, match="1 predictions are exactly 0 or 1"):
        assert calibration_slope(more, happened) == known
    found = binary_summary(more, happened)
    assert found["slope"] == known.slope
    assert found["log_loss"].value == math.inf
    assert "1 probabilities are exactly 0 or 1" in str(found)


def test_what_is_no_outcome_is_refused_in_words() -> None:
    with pytest.raises(
        ValueError, match=r"`probability` must lie in .* got 1.5 in row 1"
    ):
        binary_summary([0.1, 1.5], [0, 1])
    with pytest.raises(
        ValueError, match=r"`outcome` must be True or False .* got 2 in row 1"
    ):
        binary_summary([0.1, 0.5], [0, 2])
    with pytest.raises(
        TypeError, match=r"`outcome` must be .* got 'paid' in row 0\. Pass whether"
    ):
        binary_summary([0.1, 0.5], ["paid", "default"])


#: Rows; mean and spread of the true log-odds; intercept and slope of the predicted ones
#: on them.
WORLDS = {
    "180 with 60 events": (180, -0.75, 1.0, 0.4, 0.8),
    "180 with 60 events, strong": (180, -1.5, 3.0, 0.0, 1.0),
    "2000 with 40 events": (2000, -4.3, 0.9, 0.0, 1.0),
    "2000 with 40 events, too extreme": (2000, -4.3, 0.9, -0.35, 1.4),
    "20,000": (20_000, -2.0, 1.0, 0.3, 0.7),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_of_a_summary_hold(world: str) -> None:
    """95 % intervals of all numbers that have one: at least 93 %."""
    n, mean, spread, move, stretch = WORLDS[world]

    def draw(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(mean, spread, size)
        return expit(move + stretch * x), expit(x)

    many, chance = draw(500_000, np.random.default_rng(0))
    truth = binary_summary(
        np.tile(many, 2),
        np.repeat([1, 0], many.size),
        sample_weight=np.concatenate([chance, 1.0 - chance]),
    ).estimates
    names = [name for name, each in truth.items() if not math.isnan(each.low)]
    assert {"oe_ratio", "intercept", "slope", "auroc", "brier", "scaled_brier"} < {
        *names
    }
    trials = repetitions(2000 if n < 20_000 else 500, 100 if n < 20_000 else 25)
    rng, held = np.random.default_rng(n), dict.fromkeys(names, 0)
    for _ in range(trials):
        p, chance = draw(n, rng)
        found = binary_summary(p, rng.uniform(size=n) < chance)
        for name in names:
            held[name] += found[name].low <= truth[name].value <= found[name].high
    assert hold_often([*held.values()], trials), held


def test_psi_is_its_definition() -> None:
    old, new = np.array([1.0, 1, 2, 2, 3, 3, 3, 3]), np.array([1.0, 2, 2, 2])
    shares = np.array(
        [[0.25, 0.25, 0.5], [0.25, 0.75, 0.5 / 4]]
    )  # half a row where there is none
    known = ((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum()
    found = population_stability_index(old, new, edges=[1.5, 2.5])
    assert found == pytest.approx(known)
    assert population_stability_index(old, old) == 0.0
    with pytest.raises(ValueError, match="`actual` must be finite numbers"):
        population_stability_index(old, [math.nan])


@pytest.mark.parametrize(
    "edges", [[0.0, np.nan], [0.5, 0.2], [0.3, 0.3], [0.5, np.inf], [[0.1, 0.2]]]
)
def test_edges_must_be_finite_and_ascend(edges: list[object]) -> None:
    p, event = np.linspace(0.1, 0.9, 40), np.arange(40) % 2
    words = "`edges` must be finite numbers that ascend"
    with pytest.raises(ValueError, match=words):
        population_stability_index(p, p, edges=edges)
    with pytest.raises(ValueError, match=f"{words} between 0 and 1"):
        risk_bands(p, event, edges=edges)


def test_separated_predictions_have_an_intercept_and_no_slope() -> None:
    found = calibration_slope([0.2, 0.3, 0.6, 0.9], [0, 0, 1, 1])
    assert np.isnan(found.slope.value)
    assert found.intercept.low < found.intercept.value < found.intercept.high
    found = calibration_slope([0.2, 0.3, 0.6, 0.9], [0, 0, 0, 0])
    assert np.isnan([found.slope.value, found.intercept.value]).all()
