"""Soft labels: votes of annotators or distributions, of metrics, evaluations and fits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import hokical
from hokical import metrics
from tests.conftest import hold_often, repetitions


def draw_votes(
    n: int, n_classes: int, seed: int, n_votes: int = 7
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, votes (n, classes) of annotators, and the distribution they come from."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, n_classes))
    chances = softmax(logits + rng.normal(size=(n, n_classes)), axis=1)
    return 1.5 * logits, rng.multinomial(n_votes, chances), chances


@pytest.mark.parametrize("n_classes", [2, 4])
def test_metrics_are_means_over_votes(n_classes: int) -> None:
    logits, votes, _ = draw_votes(200, n_classes, 0)
    proba = softmax(logits, axis=1)
    share = votes / votes.sum(axis=1, keepdims=True)
    log_loss = -(share * np.log(proba)).sum(axis=1).mean()
    assert metrics.log_loss(proba, votes) == pytest.approx(log_loss, rel=1e-12)
    brier = (proba**2).sum(axis=1) - 2.0 * (proba * share).sum(axis=1) + 1.0
    assert metrics.brier(proba, share) == pytest.approx(brier.mean(), rel=1e-12)
    # Each annotator in turn, as rows of their own.
    rows = np.repeat(np.arange(200), 7)
    labels = np.concatenate([np.repeat(np.arange(n_classes), row) for row in votes])
    names = ["ece", "auroc", "smooth_ece", "classwise_ece", "aurc", "brier"]
    names += ["ranked_probability_score", "log_loss"]
    names += ["binary_summary"] if n_classes == 2 else []
    for name in names:
        metric = getattr(metrics, name)
        by_row = metric(proba, votes)
        by_vote = metric(proba[rows], labels, sample_weight=np.full(labels.size, 1 / 7))
        if name == "binary_summary":
            by_row, by_vote = by_row["oe_ratio"].value, by_vote["oe_ratio"].value
        assert by_row == pytest.approx(by_vote, rel=1e-9), name
    found = metrics.summary(proba, votes)
    assert found.n == 200
    assert not found.bounds
    assert found["log_loss"].low < log_loss < found["log_loss"].high
    weight = np.arange(200) % 3
    weighted = metrics.log_loss(proba, votes, sample_weight=weight)
    kept = weight > 0
    again = metrics.log_loss(proba[kept], votes[kept], sample_weight=weight[kept])
    assert weighted == pytest.approx(again)
    assert metrics.summary(proba, votes, sample_weight=weight).n == kept.sum()


def test_one_hot_labels_are_labels() -> None:
    logits, votes, _ = draw_votes(200, 3, 1)
    labels = votes.argmax(axis=1)
    one_hot = np.eye(3)[labels]
    proba = softmax(logits, axis=1)
    assert str(metrics.summary(proba, one_hot)) == str(metrics.summary(proba, labels))
    cals = [hokical.auto(logits, given) for given in (labels, one_hot, 5 * one_hot)]
    assert len({cal.predict_proba(logits).tobytes() for cal in cals}) == 1
    found = hokical.evaluate(cals[0], logits + 0.1, one_hot)
    assert found.summary.bounds
    assert str(found) == str(hokical.evaluate(cals[0], logits + 0.1, labels))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_votes_with_names_are_put_in_the_order_of_the_scores(library: str) -> None:
    """Of a fit, an evaluation, a comparison and a metric."""
    frame = pytest.importorskip(library).DataFrame
    logits, votes, _ = draw_votes(200, 3, 9)
    names = ["ant", "bee", "cow"]
    scores = frame({f"logit_{name}": logits[:, k] for k, name in enumerate(names)})
    by_name = {name: votes[:, k] for k, name in enumerate(names)}
    shuffled = frame({name: by_name[name] for name in ("cow", "ant", "bee")})
    turned = scores[["logit_bee", "logit_cow", "logit_ant"]]
    cal = hokical.make("temps").fit(logits, votes)
    expected = str(hokical.evaluate(cal, logits, votes))
    for given in (scores, turned):
        fitted = hokical.make("temps").fit(given, shuffled)
        assert fitted.temperature_ == pytest.approx(cal.temperature_)
        assert str(hokical.evaluate(fitted, turned, shuffled)) == expected
    compared = hokical.compare((scores, shuffled), (turned, shuffled), ["temps"])
    by_place = hokical.compare((logits, votes), (logits, votes), ["temps"])
    assert str(compared) == str(by_place)
    proba = frame(dict(zip(names, softmax(logits, axis=1).T, strict=True)))
    assert metrics.log_loss(proba, shuffled) == pytest.approx(
        metrics.log_loss(softmax(logits, axis=1), votes)
    )


@pytest.mark.parametrize("votes_have", ["names of classes", "names of columns"])
def test_votes_go_by_classes_or_by_columns(votes_have: str) -> None:
    """Where the scores have other names than the classes."""
    frame = pytest.importorskip("pandas").DataFrame
    logits, votes, _ = draw_votes(200, 3, 9)
    classes = ["ant", "bee", "cow"]
    scores = frame(logits, columns=["z0", "z1", "z2"])
    names = classes if votes_have == "names of classes" else scores.columns
    shuffled = frame(votes, columns=names).iloc[:, [2, 0, 1]]
    cal = hokical.make("temps").fit(logits, votes, classes=classes)
    fitted = hokical.make("temps").fit(scores, shuffled, classes=classes)
    assert fitted.temperature_ == pytest.approx(cal.temperature_)
    expected = str(hokical.evaluate(cal, logits, votes))
    assert str(hokical.evaluate(fitted, scores, shuffled)) == expected
    pair = scores, shuffled
    compared = hokical.compare(pair, pair, ["temps"], classes=classes)
    pair = logits, votes
    assert str(compared) == str(hokical.compare(pair, pair, ["temps"], classes=classes))


@pytest.mark.sample(0)
@pytest.mark.parametrize("sets_of_votes", ["one", "several"])
def test_intervals_hold(sets_of_votes: str) -> None:
    """A row is one example, whatever the number of its votes."""
    many = draw_votes(100_000, 3, 2)
    proba = softmax(many[0], axis=1)
    truth = {
        "log_loss": -(many[2] * log_softmax(many[0], axis=1)).sum(axis=1).mean(),
        "accuracy": many[2][np.arange(100_000), proba.argmax(axis=1)].mean(),
    }
    held = dict.fromkeys(truth, 0)
    trials = repetitions(1000, 150)
    for seed in range(trials):
        n_votes = 1 if sets_of_votes == "one" else 20
        logits, votes, _ = draw_votes(80, 3, seed + 3, n_votes)
        found = metrics.summary(softmax(logits, axis=1), votes)
        for name, value in truth.items():
            held[name] += found[name].low <= value <= found[name].high
    assert hold_often([*held.values()], trials), held


@pytest.mark.parametrize("method", ["temps", "auto", "hoki", "vecs"])
def test_fits_learn_the_distribution(method: str) -> None:
    """Votes are as weighted rows; the most frequent label alone is over-confident."""
    logits, votes, _ = draw_votes(1500, 3, 4)
    new, _, chances = draw_votes(3000, 3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of copies above all
        soft = hokical.make(method).fit(logits, votes)
    hard = hokical.make(method).fit(logits, votes.argmax(axis=1))
    losses = [metrics.log_loss(cal.predict_proba(new), chances) for cal in (soft, hard)]
    assert losses[0] < losses[1] - 0.02


def test_a_fit_is_that_of_weighted_rows() -> None:
    logits, votes, _ = draw_votes(300, 3, 6)
    weight = 1.0 + np.arange(300) % 2
    rows, classes = np.nonzero(votes)
    shares = votes[rows, classes] / 7.0
    soft = hokical.make("vecs").fit(logits, votes, weight)
    rowwise = hokical.make("vecs").fit(logits[rows], classes, weight[rows] * shares)
    assert np.allclose(
        soft.predict_proba(logits), rowwise.predict_proba(logits), atol=1e-7
    )


def test_groups_go_along_with_votes() -> None:
    logits, votes, _ = draw_votes(3000, 3, 7)
    site = np.where(np.arange(3000) % 2 == 0, "north", "south")
    logits[site == "south"] *= 3.0
    cal = hokical.auto(logits, votes, groups=site)
    sharp = cal.predict_proba([[3.0, 0.0, 0.0]] * 2, groups=["north", "south"])
    assert sharp[0, 0] > sharp[1, 0] + 0.05


def test_evaluations() -> None:
    logits, votes, _ = draw_votes(600, 3, 8)
    new, new_votes, _ = draw_votes(400, 3, 9)
    cal = hokical.make("temps").fit(logits, votes)
    found = hokical.evaluate(cal, new, new_votes)
    proba = cal.predict_proba(new)
    assert found["log_loss"].value == pytest.approx(metrics.log_loss(proba, new_votes))
    assert (found.n, found.data.n_rows, found.data.n_clusters) == (400, 400, None)
    assert found["log_loss"] == metrics.summary(proba, new_votes)["log_loss"]
    assert found.classes is None
    assert not found.summary.bounds
    crossed = hokical.evaluate("temps", logits, votes, folds=5)
    assert crossed.n == 600
    assert crossed.score("log_loss") < crossed.before.score("log_loss")
    comparison = hokical.compare(
        (logits, votes), (new, new_votes), ["uncalibrated", "temps"]
    )
    assert comparison["temps"].score("log_loss") == pytest.approx(
        found.score("log_loss")
    )
    (difference,) = comparison.differences(against="uncalibrated")
    assert difference.verdict == "better"


def two_members(n: int, seed: int) -> tuple[hokical.Ensemble, np.ndarray, np.ndarray]:
    """Two noisy evaluations of each example, votes, and the distribution they are from."""
    logits, votes, chances = draw_votes(n, 3, seed)
    noise = np.random.default_rng(seed).normal(size=(2, n, 3))
    return hokical.Ensemble(logits + noise), votes, chances


@pytest.mark.parametrize("method", ["auto", "temps", "uncalibrated"])
def test_fits_and_evaluations_of_ensembles(method: str) -> None:
    ensemble, votes, _ = two_members(600, 11)
    new, new_votes, chances = two_members(2000, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soft = hokical.make(method).fit(ensemble, votes)
        evaluation = hokical.evaluate(soft, new, new_votes)
        alone = hokical.evaluate(None, new, new_votes)
        crossed = hokical.evaluate(method, ensemble, votes, folds=3)
    proba = soft.predict_proba(new)
    loss = metrics.log_loss(proba, new_votes)
    assert evaluation.score("log_loss") == pytest.approx(loss)
    mean = np.mean([softmax(member, axis=1) for member in new.members], axis=0)
    before = metrics.log_loss(mean, new_votes)
    assert alone.score("log_loss") == pytest.approx(before)
    assert (evaluation.before or alone).score("log_loss") == pytest.approx(before)
    assert (evaluation.n, crossed.n) == (2000, 600)
    pairs = (ensemble, votes), (new, new_votes)
    compared = hokical.compare(*pairs, {"soft": soft, "fitted": method})
    for name in ("soft", "fitted"):
        assert compared[name].score("log_loss") == pytest.approx(loss)
    if method != "uncalibrated":
        hard = hokical.make(method).fit(ensemble, votes.argmax(axis=1))
        by_hard = metrics.log_loss(hard.predict_proba(new), chances)
        assert metrics.log_loss(proba, chances) < by_hard - 0.02


def test_one_hot_labels_of_ensembles_are_labels() -> None:
    ensemble, votes, _ = two_members(200, 13)
    labels = votes.argmax(axis=1)
    cals = [hokical.auto(ensemble, given) for given in (labels, 3 * np.eye(3)[labels])]
    assert np.array_equal(*(cal.predict_proba(ensemble) for cal in cals))


def test_votes_prove_nothing() -> None:
    """Two annotators who disagree on each row are as rows of equal weights."""
    logits, votes, _ = draw_votes(300, 3, 14)
    votes = 2 * (np.arange(3) != votes.argmin(axis=1)[:, None])
    cal = hokical.make("temps").fit(logits, votes)
    with pytest.raises(ValueError, match="votes"):
        cal.predict_or_abstain(logits, risk=0.6)
    with pytest.raises(ValueError, match="votes"):
        cal.predict_set(logits, coverage=0.9)


def test_folds_keep_rows_of_a_cluster_together() -> None:
    """Copies of a row in other folds would give its label away to a nearest fit."""
    rng = np.random.default_rng(0)
    logits = np.repeat(rng.normal(size=(40, 3)), 6, axis=0)
    labels = np.repeat(rng.integers(0, 3, 40), 6)
    cluster = np.repeat(np.arange(40), 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = hokical.evaluate("vecs", logits, labels, folds=5)
        together = hokical.evaluate("vecs", logits, labels, folds=5, cluster=cluster)
    assert together.score("log_loss") > apart.score("log_loss")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([[1, -1], [1, 0]], "votes or shares, >= 0; got -1.0 in row 0"),
        ([[2, 0], [0, 0]], "must have a vote in each row; got 0.0 in row 1"),
        ([[1, 1], [0, 1]], "one 1 in each row; got 2.0 in row 0.*MultilabelCalibrator"),
        ([[1, 0], [0, 0]], "one 1 in each row; got 0.0 in row 1"),
        ([[1, np.nan], [0, 1]], "votes or shares"),
    ],
)
def test_what_are_no_votes(labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metrics.log_loss([[0.2, 0.8], [0.4, 0.6]], labels)
    with pytest.raises(ValueError, match=words):
        hokical.make("temps").fit([[0.2, 0.8], [0.4, 3.6]], labels)


def test_what_needs_one_label_per_row() -> None:
    logits, votes, _ = draw_votes(300, 3, 10)
    proba = softmax(logits, axis=1)
    site = np.arange(300) % 2
    cal = hokical.make("temps").fit(logits, votes)
    with pytest.raises(ValueError, match=r"one entry per row.*votes"):
        cal.certify(logits, votes)
    with pytest.raises(ValueError, match=r"one per row \(n,\), for tests of groups"):
        metrics.group_table(proba, votes, site)
    for option in ({"groups": site}, {"coverage": 0.9}):
        with pytest.raises(TypeError, match="need one label per row"):
            hokical.evaluate(cal, logits, votes, **option)
