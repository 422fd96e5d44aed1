"""Rows that belong together: intervals of metrics, evaluations and guarantees allow
for it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from hokical import metrics
from hokical.metrics.levels import Outcomes
from hokical.metrics.summaries import (
    METRICS,
    Metric,
    SummaryOptions,
    count_levels,
    metric_estimate,
)
from tests.conftest import hold_often, repetitions, synthetic_logits

NAMES = ("accuracy", "mean_confidence", "brier", "log_loss", "auroc")


def draw(
    n_clusters: int, spread: float, rng: Any, rows: int = 10
) -> tuple[Any, Any, Any]:
    """Confidences and correctness that share an effect of their cluster, of unequal
    sizes.
    """
    size = rng.geometric(1.0 / rows, n_clusters)
    cluster = np.repeat(np.arange(n_clusters), size)
    hard, off = spread * rng.normal(size=(2, n_clusters))
    log_odds = np.abs(2.0 + hard[cluster] + rng.normal(size=cluster.size))
    right = rng.random(cluster.size) < 1.0 / (1.0 + np.exp(-log_odds - off[cluster]))
    return 1.0 / (1.0 + np.exp(-log_odds)), right, cluster


@pytest.mark.sample(0)
@pytest.mark.parametrize(("n_clusters", "spread"), [(20, 1.0), (60, 0.5), (60, 0.0)])
def test_intervals_hold(n_clusters: int, spread: float) -> None:
    rng, trials = np.random.default_rng(n_clusters), repetitions(400, 80)
    confidence, right, _ = draw(40_000, spread, rng)
    truth = {name: metrics.summary(confidence, right)[name].value for name in NAMES}
    risk = metrics.binary_summary(confidence, right)
    truth |= {name: risk[name].value for name in ("oe_ratio", "slope", "intercept")}
    held, alone = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for _ in range(trials):
        *rows, cluster = draw(n_clusters, spread, rng)
        for count, own in ((held, {"cluster": cluster}), (alone, {})):
            both = metrics.summary(*rows, **own), metrics.binary_summary(*rows, **own)
            for name, value in truth.items():
                found = both[name not in NAMES][name]
                count[name] += not (value < found.low or value > found.high)
    assert hold_often([*held.values()], trials), held
    assert (
        spread < 1.0 or min(alone.values()) < 0.8 * trials
    )  # without, they are too narrow


def cluster_sizes(kind: str, n_clusters: int, rng: Any) -> Any:
    """Rows of each cluster: a few clusters hold most of them."""
    if kind == "one in fifteen":
        size = rng.integers(1, 6, n_clusters)
        size[: n_clusters // 15] = 60
        return size
    return np.minimum(np.ceil(3.0 * rng.pareto(1.2, n_clusters) + 1.0), 400).astype(int)


@pytest.mark.sample(2)
@pytest.mark.parametrize("n_clusters", [20, 60])
@pytest.mark.parametrize("kind", ["Pareto", "one in fifteen"])
def test_clusters_of_unequal_sizes(kind: str, n_clusters: int) -> None:
    """Their variance is known as badly as that of (sum s)^2 / sum s^2 clusters."""
    rng = np.random.default_rng(1)
    trials = repetitions(1000, 150)
    share = float((1.0 / (1.0 + np.exp(-rng.normal(1.0, 1.5, 1_000_000)))).mean())
    held = 0
    for _ in range(trials):
        codes = np.repeat(np.arange(n_clusters), cluster_sizes(kind, n_clusters, rng))
        chance = 1.0 / (1.0 + np.exp(-rng.normal(1.0, 1.5, n_clusters)))
        right = rng.uniform(size=codes.size) < chance[codes]
        rows = Outcomes(np.full(codes.size, 0.7), right)
        levels = count_levels(rows, codes=codes).of("accuracy")
        found = metric_estimate(METRICS["accuracy"], levels, SummaryOptions())
        held += found.low <= share <= found.high
    assert hold_often(held, trials), held


def test_a_row_of_each_cluster_is_independent() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 2000)
    right = rng.random(2000) < confidence
    plain = metrics.summary(confidence, right)
    own = metrics.summary(confidence, right, cluster=rng.permutation(2000))
    copies = np.repeat(np.arange(2000), 5)
    five = metrics.summary(
        confidence[copies], right[copies], cluster=copies.astype(str)
    )
    assert not own.bounds
    for name in (*NAMES, "ece"):
        widths = [found[name].high - found[name].low for found in (plain, own, five)]
        assert widths[0] * 0.99 < widths[1] < widths[0] * 1.2, name
        assert widths[0] * 0.95 < widths[2] < widths[0] * 1.3, name
        assert five[name].value == pytest.approx(plain[name].value), name


def test_without_an_error_clusters_are_counted() -> None:
    """Nothing is known of how errors belong together: 20 patients are worth 20 rows."""
    cluster = np.repeat(np.arange(20), 50)
    found = metrics.summary(np.full(1000, 0.99), np.ones(1000, bool), cluster=cluster)
    assert found["accuracy"].low < 1.0 - 3.0 / 20
    assert (
        metrics.summary(np.full(1000, 0.99), np.ones(1000, bool))["accuracy"].low > 0.99
    )


def test_what_is_refused() -> None:
    proba, right = np.full(4, 0.8), [1, 1, 0, 1]
    for cluster, words in [
        ([1, 2, 3], "one entry per row"),
        ([1, 1, 1, 1], "at least two"),
        ([1, None, 2, 2], "must be known; got None in row 1"),
        ([1.0, math.nan, 2.0, 2.0], "must be known; got nan in row 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            metrics.summary(proba, right, cluster=cluster)
    with pytest.raises(TypeError, match="chunks"):
        metrics.summary([(proba, right)], cluster=[1, 2, 3, 4])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_evaluations(n_classes: int) -> None:
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(60), 20)
    logits = 2.0 * rng.normal(size=(60, n_classes))[cluster] + rng.normal(
        size=(1200, n_classes)
    )
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    weight = np.where(np.arange(1200) % 7 == 0, 0.0, 1.0)
    cal = hokical.make("temps").fit(logits[::2], labels[::2])
    for own in ({}, {"sample_weight": weight}):
        plain = hokical.evaluate(cal, logits + 0.01, labels, **own)
        found = hokical.evaluate(cal, logits + 0.01, labels, cluster=cluster, **own)
        assert found.score("brier") == pytest.approx(plain.score("brier"))
        assert not found.summary.bounds
        for name in ("mean_confidence", "brier"):
            assert found[name].high - found[name].low > 1.05 * (
                plain[name].high - plain[name].low
            )
        assert found.row_scores["brier"].size == 60
        assert found.row_scores["brier"].mean() == pytest.approx(found.score("brier"))
        if n_classes == 2:
            widths = [e.binary["mean_probability"] for e in (plain, found)]
            assert widths[1].high - widths[1].low > 1.5 * (
                widths[0].high - widths[0].low
            )
        assert "brier" in str(found).lower()
    confident = hokical.evaluate(
        None, [0.9, 0.8, 0.7], [1, 0, 1], cluster=["a", "a", "b"]
    )
    assert confident.n == 3


def test_comparisons() -> None:
    """Of copies of each row, a difference is as certain as of one copy."""
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(900, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    known, copies = (logits[:600], labels[:600]), np.repeat(np.arange(600, 900), 8)
    given: dict[str, Any] = {"methods": ["uncalibrated", "vecs"], "coverage": 0.8}
    once, apart, together = (
        hokical.compare(known, (logits[rows], labels[rows]), cluster=own, **given)
        for rows, own in ((np.arange(600, 900), None), (copies, None), (copies, copies))
    )
    widths = [
        np.ptp([d.low, d.high])
        for c in (once, apart, together)
        for d in c.differences()
    ]
    assert widths[1] < 0.4 * widths[0]
    assert widths[2] == pytest.approx(widths[0], rel=0.02)
    with pytest.raises(TypeError, match="must be a pair"):
        hokical.compare({"a": known}, {"a": known}, cluster=labels)


def test_certified_clusters_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    cluster = rng.integers(0, 40, 2000)
    logits = rng.normal(size=(2000, 3))
    labels = logits.argmax(axis=1)
    cal = hokical.make("temps").fit(*_answers(300, 0.3, rng)[:2])
    cal.certify(logits, labels, cluster=cluster, reused="ignore")
    cal.save(tmp_path / "cal.json")
    for each in (cal, hokical.load(tmp_path / "cal.json")):
        sets, kept = (
            each.predict_set(logits, coverage=0.8),
            each.predict_or_abstain(logits),
        )
        assert "on 40 held-out examples (one of each cluster)" in sets.guarantee
        assert "40 examples do not prove" in kept.guarantee
        lax = each.predict_or_abstain(logits, risk=0.5).guarantee
        assert "of 40 held-out examples (one of each cluster)" in lax
    low, _ = cal.predict_interval(logits[:1])[0]
    assert low < 0.95  # of 40 rows without an error, not of 2000
    confidence = hokical.ConfidenceCalibrator().fit(
        rng.random(200), rng.random(200) < 0.7
    )
    confidence.certify(
        rng.random(500), np.ones(500, bool), cluster=np.arange(500) // 25
    )
    assert "20" in confidence.predict_or_abstain([0.9], risk=0.01).guarantee


@pytest.mark.slow
def test_guarantees_hold_for_new_clusters() -> None:
    """Questions that all their answers get wrong: rows alone prove too much."""
    rng, trials = np.random.default_rng(3), repetitions(400, 40)
    cal = hokical.make("temps").fit(*_answers(3000, 0.05, rng)[:2])
    broken = {True: 0, False: 0}
    for _ in range(trials):
        *rows, cluster = _answers(
            3000, 0.06, rng
        )  # 4.8 % of the labels are wrong, at any score
        for own in (True, False):
            cal.certify(*rows, cluster=cluster if own else None)
            broken[own] += cal.predict_or_abstain(
                rows[0], risk=0.045, delta=0.1
            ).accepted.any()
    assert hold_often(trials - broken[True], trials, 0.9), broken
    assert broken[False] > 0.15 * trials, broken


def _answers(n: int, share: float, rng: Any) -> tuple[Any, Any, Any]:
    """Twenty rows of each cluster; four of five labels are wrong in a share of the
    clusters.
    """
    cluster = np.arange(n) // 20
    logits = 3.0 * rng.normal(size=(n, 3))
    wrong = (rng.random(cluster[-1] + 1) < share)[cluster] & (rng.random(n) < 0.8)
    return (
        logits,
        np.where(wrong, logits.argmin(axis=1), logits.argmax(axis=1)),
        cluster,
    )


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_clusters_are_named(missing: Any) -> None:
    logits, labels = synthetic_logits(40, 3, seed=0)
    cluster = np.array([f"patient {k // 2}" for k in range(40)], object)
    cluster[7] = missing
    with pytest.raises(ValueError, match=r"`cluster` must be known; got .* in row 7"):
        hokical.evaluate(None, logits, labels, cluster=cluster)


def test_a_metric_of_unknown_worth_has_no_interval_by_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is added to the table is not taken as if rows were independent."""
    metric = Metric(
        "gap",
        "gap",
        function=lambda levels, _: levels.accuracy - levels.mean_confidence,
        interval=lambda levels, _: (-1.0 / levels.worth, 1.0 / levels.worth),
    )
    monkeypatch.setitem(METRICS, "gap", metric)
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=60)
    right = rng.uniform(size=60) < confidence
    alone = metrics.summary(confidence, right)["gap"]
    assert alone.low < alone.high
    clustered = metrics.summary(confidence, right, cluster=np.arange(60) // 3)["gap"]
    assert clustered.value == alone.value
    assert np.isnan([clustered.low, clustered.high]).all()
    assert "independent rows a cluster is worth" in clustered.reason


def test_every_metric_with_an_interval_has_one_by_cluster() -> None:
    rng = np.random.default_rng(1)
    proba = rng.dirichlet(np.ones(3), size=90)
    labels = rng.integers(3, size=90)
    alone = metrics.summary(proba, labels)
    clustered = metrics.summary(proba, labels, cluster=np.arange(90) // 3)
    for name, estimate in alone.estimates.items():
        has_interval = not np.isnan(clustered[name].low)
        assert has_interval == (not np.isnan(estimate.low)), name
