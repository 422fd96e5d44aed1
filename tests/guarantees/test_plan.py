"""How many examples a guarantee needs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from hokical import make
from hokical.guarantees import density_ratios, plan, plan_validation
from hokical.metrics import binary_summary
from tests.conftest import repetitions


def test_below_the_fewest_nothing_is_accepted() -> None:
    found = plan(risk=0.05, confidence=np.full(100, 0.999), examples=(30, 200))
    assert 30 < found.fewest < 200
    assert found.accepted[0] == 0.0
    assert found.accepted[1] > 0.9
    assert str(found).startswith(f"At least {found.fewest} labelled examples")


def test_a_classifier_without_a_sure_answer_accepts_nothing() -> None:
    found = plan(risk=0.01, confidence=np.full(50, 0.6), examples=(100, 10**6))
    assert found.best == 0.0
    assert found.accepted == (0.0, 0.0)


def test_the_plan_is_what_happens() -> None:
    """A calibrated classifier of its own: what `certify` accepts is what was
    planned.
    """
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 4
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    cal = make("temps").fit(logits[:2000], labels[:2000])
    confidence = cal.predict_confidence(logits[2000:])
    found = plan(risk=0.05, confidence=confidence, examples=(600,))
    assert found.best is not None
    assert found.accepted[0] <= found.best
    shares = []
    for seed in range(10):
        rows = 2000 + np.random.default_rng(seed).choice(2000, size=600, replace=False)
        cal.certify(logits[rows], labels[rows])
        shares.append(cal.predict_or_abstain(logits[2000:], risk=0.05).accepted.mean())
    assert found.accepted[0] == pytest.approx(np.mean(shares), abs=0.12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"risk": 0.0}, "`risk`"),
        ({"coverage": 1.0}, "`coverage`"),
        ({"risk": 0.1, "confidence": [[0.5]]}, r"`confidence` must be \(m,\)"),
        (
            {"risk": 0.1, "confidence": [0.5, 85.0]},
            r"lie in \[0, 1\]; got 85.0 in row 1\. Use",
        ),
        ({"risk": 0.1, "examples": [0]}, "examples"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**options)  # type: ignore[arg-type]


def test_one_guarantee_at_a_time() -> None:
    for options in ({}, {"risk": 0.1, "coverage": 0.9}):
        with pytest.raises(TypeError, match="one of `coverage` and `risk`"):
            plan(**options)
    for options, words in [
        ({"coverage": 0.9, "auroc": 0.8}, "go with `plan_validation`"),
        ({"risk": 0.1, "widths": {"auroc": 0.1}}, "go with `plan_validation`"),
        ({"coverage": 0.9, "confidence": [0.5]}, "`confidence` goes with `risk`"),
    ]:
        with pytest.raises(TypeError, match=words):
            plan(**options)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("events", "auroc"), [(0.1, 0.8), (0.3, 0.7)])
def test_a_planned_validation_has_intervals_of_the_planned_widths(
    events: float, auroc: float
) -> None:
    """Data of the assumed kind: slope and AUROC to 6 %, O:E at most, as it also uses
    the scores.
    """
    planned = plan_validation(events, auroc=auroc)
    spread = np.sqrt(2.0) * norm.ppf(auroc)
    assert planned.fewest == max(planned.needed.values())
    rng = np.random.default_rng(0)
    probability = np.zeros(0)
    for name, n in planned.needed.items():
        widths = []
        for _ in range(8):
            event = rng.uniform(size=n) < events
            x = np.log(events / (1 - events)) + np.where(event, 0.5, -0.5) * spread**2
            probability = expit(x + spread * rng.normal(size=n))
            metric = binary_summary(probability, event)[name]
            widths.append(metric.high - metric.low)
        ratio = np.mean(widths) / planned.widths[name]
        assert ratio < 1.06, name
        assert ratio > (0.85 if name == "oe_ratio" else 0.94), name
    observed = plan_validation(events, probability=probability)
    assert observed.auroc == pytest.approx(auroc, abs=0.03)
    assert observed.needed["slope"] == pytest.approx(planned.needed["slope"], rel=0.3)


def test_a_validation_is_planned_of_what_is_known() -> None:
    wide = plan_validation(0.2, auroc=0.75, widths={"auroc": 0.1}).fewest
    narrow = plan_validation(0.2, auroc=0.75, widths={"auroc": 0.05}).fewest
    assert narrow == pytest.approx(4 * wide, rel=0.01)
    # (1 - share) / (share * error^2) with an error of 0.1: exp(0.196) - exp(-0.196)
    # wide
    width = 2 * np.sinh(norm.ppf(0.975) * 0.1)
    assert plan_validation(0.5, auroc=0.75, widths={"oe_ratio": width}).fewest == 100
    assert "with the event" in str(plan_validation(0.2, auroc=0.75))
    with pytest.raises(TypeError, match="give one of `auroc` and `probability`"):
        plan_validation(0.2)
    with pytest.raises(ValueError, match="`widths` must be positive, of some of"):
        plan_validation(0.2, auroc=0.7, widths={"ece": 0.1})
    with pytest.raises(ValueError, match="`auroc` must be above 0"):
        plan_validation(0.2, auroc=0.4)
    with pytest.raises(TypeError, match="give one of `coverage` and `risk`"):
        plan(events=0.2, risk=0.1)


def test_the_retired_form_of_a_validation_warns_and_works() -> None:
    with pytest.warns(FutureWarning, match="is `plan_validation") as caught:
        planned = plan(events=0.2, auroc=0.75, delta=0.1)
    assert planned == plan_validation(0.2, auroc=0.75, delta=0.1)
    assert caught[0].filename == __file__


# known covariate shift


def shifted(n: int, seed: int, new: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels and an input x (n,) that decides how hard a row is; new ones
    have larger x.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(loc=0.8 * new, size=n)
    logits = np.stack([np.zeros(n), 2.0 * rng.normal(size=n)], axis=1)
    flip = rng.random(n) < 0.4 / (1.0 + np.exp(-2.0 * x))
    labels = np.argmax(logits + 0.3 * rng.gumbel(size=logits.shape), axis=1)
    return logits, np.where(flip, 1 - labels, labels), x


def of_being_new(x: np.ndarray) -> np.ndarray:
    """The true probability: both kinds are normal, 0.8 apart."""
    return 1.0 / (1.0 + np.exp(0.32 - 0.8 * x))


@pytest.mark.slow
def test_density_ratios_carry_guarantees_over() -> None:
    """On average with weights, and with delta by rejection sampling; without, they
    fail.
    """
    cal = make("uncalibrated").fit(*shifted(50, 0, new=False)[:2])
    logits, labels, _ = shifted(20_000, 1, new=True)
    error = float((cal.predict(logits) != labels).mean())
    risk = error - 0.01  # accepting everything exceeds the risk
    n_broken = {"sampled": 0, "all": 0}
    covered = []
    runs = repetitions(60, 20)
    for seed in range(runs):
        old, truth, x = shifted(1500, 100 + seed, new=False)
        ratios = density_ratios(of_being_new(x))
        rows = ratios.sample(seed)
        for name, examples in (("sampled", rows), ("all", np.arange(1500))):
            cal.certify(old[examples], truth[examples], reused="ignore")
            prediction = cal.predict_or_abstain(logits, risk=risk, delta=0.1)
            wrong = (prediction.labels != labels)[prediction.accepted]
            n_broken[name] += wrong.size > 0 and wrong.mean() > risk
        cal.certify(old, truth, ratios.weights, reused="ignore")
        sets = cal.predict_set(logits, coverage=0.8, allow_empty=True)
        covered.append(sets.members[np.arange(20_000), labels].mean())
    assert n_broken["sampled"] <= runs * 0.1 + 2.0 * (runs * 0.09) ** 0.5
    assert n_broken["all"] > runs / 3  # what the same check finds without them
    assert np.mean(covered) >= 0.8 - 2.0 * np.std(covered) / runs**0.5


def test_density_ratios_are_clipped_counted_and_refused() -> None:
    found = density_ratios([0.5, 0.5, 1.0, 0.0], new_share=0.5, most=3.0, fewest=1)
    assert found.weights.tolist() == [1.0, 1.0, 3.0, 0.0]
    assert found.clipped == 0.25
    assert found.effective == pytest.approx(25.0 / 11.0)
    assert density_ratios([0.5] * 100, new_share=0.2).weights[0] == pytest.approx(4.0)
    share = np.mean([density_ratios([0.5] * 100).sample(k).size for k in range(50)])
    assert share == pytest.approx(100.0 / 10.0, abs=1.5)
    with pytest.raises(
        ValueError, match=r"at least 100 effective examples.*Label some of the new"
    ):
        density_ratios(np.r_[np.full(5000, 1e-4), 0.99])
    with pytest.raises(ValueError, match=r"`probability` must be \(m,\) numbers"):
        density_ratios([[0.5, 0.5]])
    for most in (0.0, -3.0):
        with pytest.raises(
            ValueError, match=r"`most` must be a finite number above 0; got"
        ):
            density_ratios([0.5] * 200, most=most)


def test_one_number_of_examples_and_odd_widths() -> None:
    assert plan(coverage=0.9, examples=100) == plan(coverage=0.9, examples=(100,))
    for widths in (3, {"slope": "a"}, {}, {"other": 0.1}):
        with pytest.raises(ValueError, match="`widths` must be positive, of some of"):
            plan_validation(0.1, auroc=0.8, widths=widths)
