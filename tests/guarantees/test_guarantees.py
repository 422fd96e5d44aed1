"""Guarantees: exact against references, valid by simulation, kept through files and
merges.
"""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

from hokical import Gaussian, Hoki, load
from hokical.calibrators import make, method_names
from hokical.cli import app
from hokical.guarantees import clopper_pearson, plan
from hokical.guarantees.scores import (
    LEVELS,
    ScoreTable,
    level_log_odds,
    lowest_level,
    score_levels,
    starting_levels,
)
from tests.conftest import repetitions, synthetic_logits
from tests.fitted import label_scores

TEMPERATURE = 3.0
RISK, DELTA = 0.1, 0.1


# exact tails and intervals


def exact_tail(hits: int, trials: int, share: Fraction) -> Fraction:
    terms = (
        comb(trials, k) * share**k * (1 - share) ** (trials - k)
        for k in range(hits + 1)
    )
    return sum(terms, Fraction(0))


@given(st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.5, 0.1, 0.05, 0.01]))
def test_clopper_pearson_inverts_both_tails(a: int, b: int, delta: float) -> None:
    hits, trials = min(a, b), max(a, b)
    low, high = clopper_pearson(hits, trials, delta=delta)
    tail = delta / 2
    if hits == 0:
        assert low == 0.0
    else:  # at the lower end, so many hits or more have just the probability `tail`
        assert 1.0 - exact_tail(hits - 1, trials, Fraction(low)) == pytest.approx(tail)
    if hits == trials:
        assert high == 1.0
    else:
        assert float(exact_tail(hits, trials, Fraction(high))) == pytest.approx(tail)


@pytest.mark.parametrize("trials", [1, 7, 60])
@pytest.mark.parametrize("share", [0.01, 0.37, 0.9])
def test_clopper_pearson_covers_by_enumeration(trials: int, share: float) -> None:
    hits = np.arange(trials + 1)
    low, high = clopper_pearson(hits, trials, delta=0.1).T
    chance = np.array(
        [comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in hits]
    )
    assert chance[(low <= share) & (share <= high)].sum() >= 0.9
    assert chance[share < low].sum() <= 0.05 + 1e-12
    assert chance[share > high].sum() <= 0.05 + 1e-12


def test_clopper_pearson_refuses_what_is_no_count() -> None:
    with pytest.raises(ValueError, match="`hits` must be counts from 0 to `trials`"):
        clopper_pearson(3, 2)
    with pytest.raises(
        ValueError, match=r"`delta` must lie strictly between 0 and 1; got 95"
    ):
        clopper_pearson(1, 2, delta=95)


# the choice of a threshold


def slow_threshold(
    level: np.ndarray, wrong: np.ndarray, risk: float, delta: float, starts: list[int]
) -> int:
    """The fallback procedure, from the examples one by one."""
    lowest, spent_above = LEVELS, 0.0
    for threshold in sorted(range(LEVELS), reverse=True):
        accepted = level >= threshold
        budget = delta / len(starts) * starts.count(threshold) + spent_above
        if budget == 0.0:
            continue
        share = Fraction(risk).limit_denominator(1000)
        p_value = exact_tail(int(wrong[accepted].sum()), int(accepted.sum()), share)
        spent_above = budget if p_value <= budget else 0.0
        lowest = threshold if p_value <= budget else lowest
    return lowest


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_equals_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    level = rng.integers(2000, 2012, size=90)
    wrong = rng.random(90) < np.where(level > 2004, 0.03, 0.5)
    starts = [2010, 2007, 2007, 2003]
    table = ScoreTable.from_examples(level, wrong)
    found = lowest_level(table, 0.15, 0.2, np.array(starts))
    assert found == slow_threshold(level, wrong, 0.15, 0.2, starts)
    accepted = level >= found
    assert (table.count[found:].sum(), table.total) == (accepted.sum(), 90)
    assert table.wrong[found:].sum() == wrong[accepted].sum()


def test_some_of_those_tables_accept_and_others_do_not() -> None:
    none = ScoreTable.from_examples(np.full(90, 2005), np.ones(90, np.bool_))
    assert lowest_level(none, 0.15, 0.2, np.array([2005])) == LEVELS
    every = ScoreTable.from_examples(np.full(90, 2005), np.zeros(90, np.bool_))
    assert lowest_level(every, 0.15, 0.2, np.array([2005])) == 0
    too_high = lowest_level(
        every, 0.15, 0.2, np.array([2006])
    )  # starts with no examples
    assert too_high == LEVELS


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_a_mistake_more_never_lowers_the_threshold(seed: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    level = np.sort(rng.integers(1000, 1600, size=300))
    wrong = rng.random(300) < 0.04
    worse = wrong.copy()
    worse[rng.integers(300, size=extra)] = True
    starts = starting_levels(RISK, "fit")
    better, other = (
        lowest_level(ScoreTable.from_examples(level, bad), RISK, DELTA, starts)
        for bad in (wrong, worse)
    )
    assert better <= other


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.3])
def test_the_fewest_examples_are_just_enough(risk: float) -> None:
    n_starts = starting_levels(risk, "held-out").size
    fewest = plan(risk=risk, delta=DELTA).fewest
    enough, too_few = ((1.0 - risk) ** n for n in (fewest, fewest - 1))
    assert enough <= DELTA / n_starts < too_few


def test_a_start_follows_from_the_risk_alone() -> None:
    for risk in (1e-4, 0.05, 0.5, 0.9):
        held_out = starting_levels(risk, "held-out")
        assert held_out[-1] == score_levels(np.log1p(-risk) - np.log(risk))
        assert (np.diff(held_out) < 0).all()
    assert starting_levels(0.05, "fit")[1] == starting_levels(0.05, "held-out")[-1]
    assert starting_levels(0.7, "fit").tolist() == [score_levels(0.0)] * 5


# validity, by simulation on a model of known risk

CELLS = score_levels(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0]))
MASS = np.array([0.1, 0.1, 0.15, 0.15, 0.15, 0.15, 0.1, 0.1])
ERROR_RATES = {
    "falling": [0.5, 0.4, 0.25, 0.15, 0.06, 0.03, 0.01, 0.005],
    "just above the target everywhere": [0.101] * 8,
    "bad at the top": [0.3, 0.3, 0.12, 0.02, 0.01, 0.02, 0.15, 0.2],
    "bad, good, bad": [0.4, 0.3, 0.01, 0.01, 0.01, 0.01, 0.02, 0.3],
}


def true_risks(rates: np.ndarray) -> np.ndarray:
    """Error rate above each level, (LEVELS,)."""
    mass, wrong = (np.bincount(CELLS, part, LEVELS) for part in (MASS, MASS * rates))
    above = np.cumsum(mass[::-1])[::-1]
    return np.divide(
        np.cumsum(wrong[::-1])[::-1], above, out=np.zeros(LEVELS), where=above > 1e-12
    )


def naive_threshold(table: ScoreTable, risk: float) -> int | None:
    """The lowest level whose measured error rate is within the risk: no test, no
    guarantee.
    """
    accepted, wrong = (
        np.cumsum(part[::-1])[::-1] for part in (table.count, table.wrong)
    )
    good = np.flatnonzero((accepted > 0) & (wrong <= risk * accepted))
    return int(good[0]) if good.size else None


@pytest.mark.sample(1)
@pytest.mark.parametrize("shape", ERROR_RATES)
@pytest.mark.parametrize(
    "source", [pytest.param("fit", marks=pytest.mark.slow), "held-out"]
)
def test_the_risk_is_kept_as_often_as_guaranteed(shape: str, source: Any) -> None:
    rates = np.array(ERROR_RATES[shape])
    risks, starts = true_risks(rates), starting_levels(RISK, source)
    rng = np.random.default_rng(17)
    broken, broken_naively, repeats = 0, 0, 400
    for _ in range(repeats):
        count = rng.multinomial(800, MASS)
        table = ScoreTable(np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64))
        table.count[CELLS], table.wrong[CELLS] = count, rng.binomial(count, rates)
        chosen = lowest_level(table, RISK, DELTA, starts)
        naive = naive_threshold(table, RISK)
        broken += chosen < LEVELS and risks[chosen] > RISK
        broken_naively += naive is not None and risks[naive] > RISK
    assert broken <= DELTA * repeats + 2 * np.sqrt(repeats * DELTA * (1 - DELTA))
    if shape.startswith(
        ("just", "bad at")
    ):  # the same count does catch a rule that breaks it
        assert broken_naively > 3 * DELTA * repeats


class Nature:
    """Overconfident logits whose labels follow the softmax at a known temperature."""

    def __init__(self, n: int = 10_000) -> None:
        self.logits, _ = self.draw(np.random.default_rng(1), n)
        proba = np.exp(
            (self.logits - self.logits.max(axis=1, keepdims=True)) / TEMPERATURE
        )
        self.proba = proba / proba.sum(axis=1, keepdims=True)

    @staticmethod
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        honest = 2.5 * rng.normal(size=(n, 4))
        return TEMPERATURE * honest, np.argmax(
            honest + rng.gumbel(size=honest.shape), axis=1
        )

    def chance(self, labels: np.ndarray) -> np.ndarray:
        """The true probability that each label is right."""
        return self.proba[np.arange(labels.size), labels]

    def best_coverage(self) -> float:
        """The share that could be accepted if all probabilities were known."""
        errors = np.sort(1.0 - self.proba.max(axis=1))
        return float((np.cumsum(errors) <= RISK * np.arange(1, errors.size + 1)).mean())


@pytest.fixture(scope="module")
def nature() -> Nature:
    return Nature()


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("name", "certified"), [("temps", False), ("temps", True), ("vecs", True)]
)
def test_fitted_calibrators_keep_the_risk(
    nature: Nature, name: str, certified: bool
) -> None:
    rng = np.random.default_rng(23)
    broken, coverage, repeats = 0, [], repetitions(100, 40)
    for _ in range(repeats):
        cal = make(name).fit(*nature.draw(rng, 500))
        if certified:
            cal.certify(*nature.draw(rng, 500))
        found = cal.predict_or_abstain(nature.logits, risk=RISK, delta=DELTA)
        errors = 1.0 - nature.chance(found.labels)[found.accepted]
        broken += errors.size > 0 and errors.mean() > RISK
        coverage.append(found.accepted.mean())
    assert broken <= DELTA * repeats + 2 * np.sqrt(repeats * DELTA * (1 - DELTA))
    assert np.mean(coverage) > 0.4 * nature.best_coverage()


def log_odds(confidence: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(confidence) - np.log1p(-confidence)


def groups_of(cal: Any, logits: np.ndarray) -> np.ndarray:
    """The group of neighbouring scores that each row belongs to."""
    held_out = cal.predictor_.held_out
    table = None if held_out is None else held_out.label_scores
    scored = cal
    if table is None:
        table, scored = (
            label_scores(cal),
            make("uncalibrated").fit(logits[:9], np.arange(9) % 4),
        )
    level = score_levels(log_odds(scored.predict_confidence(logits)))
    return table._by_part(0.1)[0][level]


@pytest.mark.parametrize("certified", [False, True])
def test_rounding_does_not_let_a_tied_group_in(certified: bool) -> None:
    """Half the rows tie at the edge of a level, and are wrong too often.

    As float64 they lie below the edge. As float32 they may lie above, and would be
    accepted with a threshold that was tested without them.
    """
    odds = level_log_odds(
        int(starting_levels(0.1, "held-out")[-1])
    )  # where testing starts
    above = np.nextafter(np.float32(odds), np.float32(9))  # what float32 may make of it
    rng, accepted = np.random.default_rng(0), 0
    for _ in range(20):
        tied = rng.random(1600) < 0.5
        logits = np.stack(
            [np.where(tied, odds - 1e-9, odds + 4.0), np.zeros(1600)], axis=1
        )
        labels = (rng.random(1600) < np.where(tied, 0.3, 0.001)).astype(int)
        cal = make("uncalibrated").fit(logits, labels)
        if certified:
            cal.certify(logits, labels)
        rows = logits.astype(np.float32)
        rows[tied, 0] = above
        found = cal.predict_or_abstain(rows, risk=0.1, delta=0.1).accepted
        accepted += bool(found[tied].any())
        assert found[~tied].all()
    assert accepted == 0


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("name", "certified"), [("uncalibrated", False), ("hoki", False), ("temps", True)]
)
def test_intervals_hold_the_accuracy_of_their_group(
    nature: Nature, name: str, certified: bool
) -> None:
    rng = np.random.default_rng(29)
    options = {"noise": Gaussian(6.0)} if name == "hoki" else {}
    held, n_groups, repeats = [], 0, repetitions(100, 40)
    for _ in range(repeats):
        cal = make(name, **options).fit(*nature.draw(rng, 700))
        if certified:
            cal.certify(*nature.draw(rng, 700))
        low, high = cal.predict_interval(nature.logits, delta=0.1).T
        group = np.unique(groups_of(cal, nature.logits), return_inverse=True)[1]
        truth = np.bincount(
            group, nature.chance(cal.predict(nature.logits))
        ) / np.bincount(group)
        # Intervals are extended to the confidence of their rows: the narrowest is the
        # group's.
        least, most = np.full(truth.size, -np.inf), np.full(truth.size, np.inf)
        np.maximum.at(least, group, low)
        np.minimum.at(most, group, high)
        held.append(np.mean((least <= truth) & (truth <= most)))
        n_groups += truth.size
    # a group fails 10 % of the time at most, and the groups of one table nearly
    # independently
    assert np.mean(held) > 0.9 - 2 * np.sqrt(0.09 / n_groups)
    assert n_groups > 4 * repeats


@pytest.mark.parametrize("name", ["hoki", "ets", "irm"])
def test_after_a_fit_alone_every_method_accepts_the_same(
    nature: Nature, name: str
) -> None:
    logits, labels = nature.draw(np.random.default_rng(3), 900)
    rules = [make(kind).fit(logits, labels) for kind in ("temps", name)]
    first, second = (
        cal.predict_or_abstain(nature.logits, risk=RISK).accepted for cal in rules
    )
    np.testing.assert_array_equal(first, second)
    assert 0.2 < first.mean() < 0.6


# every method, files, weights, merges


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", method_names(2))
def test_every_method_gives_them_and_keeps_them(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = (
        {"lambdas": [1e-2], "mus": [1e-2]} if name.endswith("_odir") else {}
    )
    cal = make(name, **options)
    logits, labels = synthetic_logits(
        600, 2 if cal.method.binary_only else 4, seed=2, signal=3.0
    )
    given, held_out = np.split(logits, 2)
    cal.fit(given, labels[:300])
    path = tmp_path / "cal.json"
    for certified in (False, True):
        if certified:
            assert cal.certify(held_out, labels[300:]) is cal
        cal.save(path)
        for fitted in (cal, load(path)):
            found = fitted.predict_or_abstain(given, risk=0.2)
            assert found.certified_on == ("held-out" if certified else "fit")
            assert 0.3 < found.coverage <= 1.0
            np.testing.assert_array_equal(found.labels, cal.predict(given))
            np.testing.assert_array_equal(
                found.confidence, cal.predict_confidence(given)
            )
            if certified:
                expected = log_odds(found.confidence) >= found.threshold_log_odds
                assert (
                    found.accepted != expected
                ).sum() <= 1  # rounding at a level's edge
            elif not cal.rule_.preserves_labels:
                assert (
                    "A label that calibration has changed is not accepted"
                    in found.guarantee
                )
                assert not (
                    found.accepted & (found.labels != given.argmax(axis=1))
                ).any()
            low, high = fitted.predict_interval(given).T
            assert (low < high).all()
            assert low.min() >= 0.0
            assert high.max() <= 1.0


def test_the_words_and_the_numbers_agree() -> None:
    logits, labels = synthetic_logits(2000, 5, seed=4)
    cal = make("temps").fit(logits[:1000], labels[:1000])
    found = cal.predict_or_abstain(logits[1000:], risk=0.1, delta=0.05)
    assert found.certified_on == "fit"
    assert (
        "At most 10% errors among the accepted labels, with 95% confidence"
        in found.guarantee
    )
    assert f"accepts {round(found.coverage * 1000):,}, with" in found.guarantee
    assert str(found).startswith(f"{found.accepted.sum()} of 1,000 accepted. At most")
    softmax = make("uncalibrated").fit(logits, labels).predict_confidence(logits[1000:])
    assert 0.5 < found.threshold < 1.0
    np.testing.assert_array_equal(found.accepted, softmax >= found.threshold)
    given_up = found.labels_or(-1)
    np.testing.assert_array_equal(given_up == -1, ~found.accepted)
    np.testing.assert_array_equal(
        given_up[found.accepted], found.labels[found.accepted]
    )


def test_nothing_to_accept_is_no_error() -> None:
    logits, labels = synthetic_logits(500, 5, seed=4)
    cal = make("temps").fit(logits, np.roll(labels, 1))  # right by chance alone
    found = cal.predict_or_abstain(logits)
    assert not found.accepted.any()
    assert (found.labels_or() == -1).all()
    assert found.coverage == 0.0
    assert found.threshold_log_odds == np.inf
    assert (
        "500 examples do not prove a risk of 0.05 with 90% confidence"
        in found.guarantee
    )
    assert "More examples will hardly help" in found.guarantee
    few = make("temps").fit(logits[:20], labels[:20]).predict_or_abstain(logits)
    assert "takes at least 77 examples" in few.guarantee
    best = float(
        few.guarantee.split("smallest risk that they prove is ")[1].split()[0][:-1]
    )
    twin = make("temps").fit(logits[:20], labels[:20])
    assert twin.predict_or_abstain(logits, risk=1.01 * best).accepted.any()
    assert not twin.predict_or_abstain(logits, risk=0.98 * best).accepted.any()


def test_answers_do_not_depend_on_the_batch() -> None:
    logits, labels = synthetic_logits(900, 6, seed=8)
    cal = Hoki(noise=Gaussian(3.0)).fit(logits, labels)
    whole = cal.predict_or_abstain(logits, risk=0.2)
    parts = [
        cal.predict_or_abstain(logits[i : i + 7], risk=0.2).accepted
        for i in range(0, 900, 7)
    ]
    np.testing.assert_array_equal(whole.accepted, np.concatenate(parts))
    assert 0 < whole.accepted.sum() < 900
    pieces = [cal.predict_interval(logits[i : i + 7]) for i in range(0, 900, 7)]
    np.testing.assert_array_equal(cal.predict_interval(logits), np.concatenate(pieces))


def same_table(a: ScoreTable | None, b: ScoreTable | None) -> bool:
    assert a is not None
    assert b is not None
    return bool((a.count == b.count).all() and (a.wrong == b.wrong).all())


def test_tables_add_up_and_a_new_fit_ends_a_certificate() -> None:
    logits, labels = synthetic_logits(900, 6, seed=8)
    new = lambda: Hoki(noise=Gaussian(3.0))  # noqa: E731
    whole = new().fit(logits, labels)
    first, second = (
        new().fit(logits[:400], labels[:400]),
        new().fit(logits[400:], labels[400:]),
    )
    first.certify(1.01 * logits, labels)
    merged = first.merge(second)
    assert same_table(
        label_scores(merged),
        label_scores(whole),
    )
    assert merged.predictor_.held_out is None
    first.partial_fit(logits[400:], labels[400:])
    assert same_table(
        label_scores(first),
        label_scores(whole),
    )
    assert first.predictor_.held_out is None
    assert same_table(
        label_scores(pickle.loads(pickle.dumps(whole))),
        label_scores(whole),
    )
    assert (
        first.certify(1.01 * logits, labels).fit(logits, labels).predictor_.held_out
        is None
    )
    halves = new().fit(logits, labels, np.full(900, 0.5))
    assert label_scores(first.merge(halves)) is None
    assert label_scores(first.partial_fit(logits, labels, np.full(900, 0.5))) is None


def test_unequal_weights_of_a_fit_guarantee_nothing() -> None:
    """Whole numbers are no counts: 4 and 0.25 mean what 16 and 1 mean."""
    logits, labels = synthetic_logits(300, 4, seed=6)
    once = make("temps").fit(logits, labels).predict_or_abstain(logits, risk=0.3)
    for scale in (0.5, 3.0):
        cal = make("temps").fit(logits, labels, np.full(300, scale))
        assert cal.predict_or_abstain(logits, risk=0.3).guarantee == once.guarantee
        sets = cal.predict_set(logits, coverage=0.9, delta=0.1)
        assert "on 300 examples" in sets.guarantee
    some = make("temps").fit(logits, labels, np.arange(300) % 2 * 5.0)
    half = make("temps").fit(logits[1::2], labels[1::2])
    assert same_table(label_scores(some), label_scores(half))
    for weights in (1.0 + np.arange(300) % 3, np.where(labels == 0, 4.0, 0.25)):
        cal = make("temps").fit(logits, labels, weights)
        with pytest.raises(
            ValueError, match=r"unequal weights.*`certify\(logits, labels"
        ):
            cal.predict_or_abstain(logits)
        with pytest.raises(ValueError, match="certify"):
            cal.predict_set(logits, coverage=0.9)
    assert cal.certify(1.01 * logits, labels).predict_interval(logits).shape == (300, 2)


def test_bad_arguments_are_named() -> None:
    logits, labels = synthetic_logits(100, 4, seed=6)
    cal = make("temps").fit(logits, labels)
    for name, value in [
        ("risk", 0.0),
        ("risk", 1),
        ("delta", np.nan),
        ("delta", "0.1"),
    ]:
        with pytest.raises(
            ValueError, match=f"`{name}` must lie strictly between 0 and 1"
        ):
            cal.predict_or_abstain(logits, **{name: value})
    with pytest.raises(
        ValueError, match="`delta` must lie strictly between 0 and 1; got True"
    ):
        cal.predict_interval(logits, delta=True)
    with pytest.raises(ValueError, match="one entry per row"):
        cal.certify(logits, labels[:50])
    with pytest.raises(NotFittedError):
        make("temps").certify(logits, labels)


def test_broken_tables_are_refused() -> None:
    logits, labels = synthetic_logits(200, 4, seed=6)
    fit = label_scores(make("temps").fit(logits, labels)).to_stored()
    for broken in (
        fit | {"wrong": fit["count"] + 1},
        fit | {"level": fit["level"] + LEVELS},
        fit | {"level": fit["level"][::-1].copy()},
        fit | {"count": fit["count"] + 0.5},
        fit | {"count": fit["count"][1:]},
    ):
        with pytest.raises((ValueError, IndexError)):
            ScoreTable.from_stored(broken)


def test_the_command_line_writes_what_is_accepted(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(800, 4, seed=6, signal=3.0)
    cal = make("temps").fit(logits[:400], labels[:400])
    cal.save(tmp_path / "cal.json")
    np.savez(tmp_path / "new.npz", logits=logits[400:])
    words = [
        "apply",
        tmp_path / "cal.json",
        tmp_path / "new.npz",
        "-o",
        tmp_path / "out.npz",
    ]
    run = lambda *more: CliRunner().invoke(app, [*map(str, words), *more])  # noqa: E731
    found = json.loads(run("--risk", "0.1", "--delta", "0.2", "--json").stdout)
    expected = cal.predict_or_abstain(logits[400:], risk=0.1, delta=0.2)
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_array_equal(written["accepted"], expected.accepted)
        assert sorted(written) == ["accepted", "confidence", "labels"]
    assert found["guarantee"] == expected.guarantee
    assert found["accepted_share"] == expected.accepted.mean()
    assert "accepted         " in run("--risk", "0.1").stdout
    assert "accepted" not in run().stdout
    refused = run("--risk", "1.5")
    assert refused.exit_code == 2
    assert "`risk` must lie strictly between 0 and 1" in " ".join(
        refused.stderr.split()
    )
