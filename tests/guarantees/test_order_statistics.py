"""Each threshold is exactly the order statistic of its proof: neither the next one up,
which would fall short of the guarantee, nor the next one down, which would give it away.

Examples have distinct probabilities of their true class, far enough apart for float32,
so a rank that is off by one gives another threshold. The ranks are found here by plain
search, from the definitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from hokical import Calibrator, MultilabelCalibrator, make

#: Examples of each class, with 80 % to cover. Four are just enough for a threshold of
#: their own; the last two classes have fewer and share one.
SIZES = [57, 41, 4, 3, 2]
COVERAGE = 0.8
#: Far above the rounding of float32, far below the distance of two probabilities.
CLOSE = {"rtol": 1e-5, "atol": 0.0}


def examples(sizes: list[int], seed: int = 0) -> tuple[Any, Any, Any]:
    """Logits, labels and probabilities; those of the true classes are all distinct."""
    rng = np.random.default_rng(seed)
    n_classes = len(sizes)
    labels = rng.permutation(np.repeat(np.arange(n_classes), sizes))
    n = labels.size
    truth = rng.permutation(np.linspace(0.03, 0.97, n))
    rest = rng.dirichlet(np.full(n_classes - 1, 2.0), size=n)
    proba = np.insert(rest * (1.0 - truth[:, None]), 0, truth, axis=1)
    for row, label in zip(proba, labels, strict=True):
        row[[0, label]] = row[[label, 0]]
    return np.log(proba), labels, proba


def certified(sizes: list[int], groups: Any = None) -> tuple[Calibrator, Any, Any]:
    """A calibrator that changes nothing, with examples; their labels, probabilities."""
    calibrator = make("uncalibrated").fit(*examples([20] * len(sizes), seed=1)[:2])
    logits, labels, proba = examples(sizes)
    return calibrator.certify(logits, labels, groups=groups), labels, proba


def of_truth(proba: Any, labels: Any) -> Any:
    return proba[np.arange(labels.size), labels]


def rank_on_average(n: int, coverage: float) -> int:
    """The least rank that a further value exceeds with probability 1 - coverage.

    Among n + 1 exchangeable values each rank is as likely.
    """
    return next(k for k in range(n + 2) if k >= coverage * (n + 1) - 1e-9)


def rank_with_confidence(n: int, coverage: float, delta: float) -> int:
    """The least rank whose value covers the share, but for a probability delta.

    Coverage falls short where `rank` or more of the values lie below its quantile.
    """
    return next(
        k for k in range(1, n + 2) if binom.sf(k - 1, n, coverage) <= delta or k > n
    )


def rank(n: int, coverage: float, delta: float | None) -> int:
    if delta is None:
        return rank_on_average(n, coverage)
    return rank_with_confidence(n, coverage, delta)


def order_statistic(scores: Any, coverage: float, delta: float | None = None) -> float:
    """The score of this rank from below; infinite where there are too few."""
    chosen = rank(len(scores), coverage, delta)
    return float(np.append(np.sort(scores), np.inf)[chosen - 1])


def least_probability(truth: Any, delta: float | None = None) -> float:
    """The threshold of sets as a probability; 0 where every class is needed."""
    return max(-order_statistic(-truth, COVERAGE, delta), 0.0)


@pytest.mark.parametrize("delta", [None, 0.1])
@pytest.mark.parametrize("source", ["fit", "held-out"])
def test_sets(delta: float | None, source: str) -> None:
    calibrator, labels, proba = certified(SIZES)
    if source == "fit":
        calibrator = make("uncalibrated").fit(np.log(proba), labels)
    sets = calibrator.predict_set(np.log(proba), coverage=COVERAGE, delta=delta)
    truth = of_truth(proba, labels)
    least = least_probability(truth, delta)
    np.testing.assert_allclose(sets.thresholds, [least], **CLOSE)
    needed = rank(labels.size, COVERAGE, delta)
    single = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, delta=delta, allow_empty=True
    )
    assert single.members[np.arange(labels.size), labels].sum() == needed


@pytest.mark.parametrize("delta", [None, 0.1])
@pytest.mark.parametrize("source", ["fit", "held-out"])
def test_sets_by_class(delta: float | None, source: str) -> None:
    """The classes with too few share the threshold of all that have at most just
    enough.
    """
    sizes = SIZES if delta is None else [57, 41, 11, 10, 9]
    fewest = 4 if delta is None else 11  # 1 / (1 - .8) - 1; .8^11 < .1 < .8^10
    calibrator, labels, proba = certified(sizes)
    if source == "fit":
        calibrator = make("uncalibrated").fit(np.log(proba), labels)
    sets = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, delta=delta, by="class"
    )
    truth = of_truth(proba, labels)
    of_class = [truth[labels == k] for k in range(len(sizes))]
    few = np.concatenate([scores for scores in of_class if scores.size <= fewest])
    expected = [
        least_probability(few if scores.size < fewest else scores, delta)
        for scores in of_class
    ]
    assert all(threshold > 0.0 for threshold in expected)
    np.testing.assert_allclose(sets.thresholds, expected, **CLOSE)


def test_pooled_sets_by_class() -> None:
    """One order statistic of the scores divided by the frequencies of their classes."""
    calibrator, labels, proba = certified(SIZES)
    sets = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, by="class", pooled=True
    )
    frequency = np.array(SIZES) + 1.0
    scaled = -of_truth(proba, labels) / frequency[labels]
    expected = -order_statistic(scaled, COVERAGE) * frequency
    np.testing.assert_allclose(sets.thresholds, expected, **CLOSE)


@pytest.mark.parametrize("delta", [None, 0.1])
def test_sets_by_group(delta: float | None) -> None:
    groups = np.repeat(["a", "b"], [70, 37])
    calibrator, labels, proba = certified(SIZES, groups)
    sets = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, delta=delta, by="group", groups=groups
    )
    truth = of_truth(proba, labels)
    expected = [least_probability(truth[groups == name], delta) for name in "ab"]
    np.testing.assert_allclose(sets.thresholds[:2], expected, **CLOSE)


@pytest.mark.parametrize("delta", [None, 0.1])
@pytest.mark.parametrize("kind", ["adaptive", "ordered"])
def test_other_kinds_of_sets(kind: Any, delta: float | None) -> None:
    calibrator, labels, proba = certified(SIZES)
    sets = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, delta=delta, kind=kind
    )
    scores = []
    for row, label in zip(proba, labels, strict=True):
        low, high = sorted([int(row.argmax()), int(label)])
        above = row[row > row[label]].sum()
        scores.append(above if kind == "adaptive" else -row[low : high + 1].min())
    expected = abs(order_statistic(np.array(scores), COVERAGE, delta))
    np.testing.assert_allclose(sets.thresholds, [expected], **CLOSE)


@pytest.mark.parametrize("delta", [None, 0.1])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_detections(label: int, delta: float | None) -> None:
    """The threshold of one class, by its examples alone."""
    calibrator, labels, proba = certified([57, 41, 23])
    found = calibrator.detect(np.log(proba), label, recall=COVERAGE, delta=delta)
    truth = of_truth(proba, labels)[labels == label]
    least = least_probability(truth, delta)
    assert least > 0.0
    np.testing.assert_allclose(found.threshold, [least], **CLOSE)
    needed = rank(truth.size, COVERAGE, delta)
    assert found.flagged[labels == label].sum() == needed


def test_sets_of_a_new_group_on_average() -> None:
    """Each group counts as one example, which its own examples share."""
    sizes = [5, 9, 14, 20, 8]
    groups = np.repeat(np.arange(5), sizes)
    calibrator, labels, proba = certified([30, 20, 6], groups)
    sets = calibrator.predict_set(np.log(proba), coverage=COVERAGE, by="new group")
    scores = -of_truth(proba, labels)
    shares = 1.0 / np.array(sizes)[groups]
    expected = next(
        limit
        for limit in np.sort(scores)
        if shares[scores <= limit].sum() >= COVERAGE * (len(sizes) + 1) - 1e-9
    )
    np.testing.assert_allclose(sets.thresholds, [-expected], **CLOSE)


def test_sets_of_a_new_group_with_confidence() -> None:
    """The order statistic of groups, of the order statistic of each one's examples."""
    n_groups = 14
    delta = 0.2
    groups = np.arange(140) % n_groups
    calibrator, labels, proba = certified([70, 50, 20], groups)
    sets = calibrator.predict_set(
        np.log(proba), coverage=COVERAGE, delta=delta, by="new group"
    )
    scores = -of_truth(proba, labels)
    limits = [
        next(
            limit
            for limit in np.sort(own)
            if (own <= limit).sum() >= COVERAGE * own.size - 1e-9
        )
        for own in (scores[groups == group] for group in range(n_groups))
    ]
    expected = order_statistic(np.array(limits), 1.0 - delta)
    np.testing.assert_allclose(sets.thresholds, [-expected], **CLOSE)


RISK = 0.1
DELTA = 0.1


def sure_examples(n: int, n_wrong: int) -> tuple[Any, Any]:
    """Rows of one score, above where any test starts; the first ones are wrong."""
    return sure_rows(n), (np.arange(n) < n_wrong).astype(int)


def sure_rows(n: int) -> Any:
    """Rows of one score that differ in a class that has no share in it."""
    return np.stack([np.full(n, 20.0), np.zeros(n), np.linspace(-40, -60, n)], axis=1)


def n_accepted(source: str, n: int, n_wrong: int, by: Any = "all") -> int:
    logits, labels = sure_examples(n, n_wrong)
    groups = np.repeat(["a"], n) if by == "group" else None
    if source == "fit":
        calibrator = make("uncalibrated").fit(logits, labels)
    else:
        calibrator = make("uncalibrated").fit(*examples([20] * 3)[:2])
        calibrator.certify(logits, labels, groups=groups)
    answers = calibrator.predict_or_abstain(
        logits, risk=RISK, delta=DELTA, by=by, groups=groups
    )
    return int(answers.accepted.sum())


@pytest.mark.parametrize(
    ("source", "by", "n_starts"),
    [("fit", "all", 5), ("held-out", "all", 4), ("held-out", "group", 4)],
)
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
@pytest.mark.parametrize("n_wrong", [0, 1, 3])
def test_abstention(source: str, by: str, n_starts: int, n_wrong: int) -> None:
    """With one example fewer nothing is accepted, nor with one more error."""
    fewest = next(
        n
        for n in range(1, 1000)
        if binom.cdf(n_wrong, n, RISK) <= DELTA / n_starts and n > n_wrong
    )
    assert n_accepted(source, fewest, n_wrong, by) == fewest
    assert n_accepted(source, fewest - 1, n_wrong, by) == 0
    assert n_accepted(source, fewest, n_wrong + 1, by) == 0


def accepted_of_groups(n_groups: int, n_broken: int) -> int:
    """Groups of 100 examples, of which the broken ones show 11 errors and others 10."""
    size = 100
    logits = sure_rows(n_groups * size)
    place = np.arange(len(logits)) % size
    groups = np.arange(len(logits)) // size
    limit = round(RISK * size)
    labels = np.where(groups < n_broken, place <= limit, place < limit - 1).astype(int)
    calibrator = make("uncalibrated").fit(*examples([20] * 3)[:2])
    calibrator.certify(logits, labels, groups=groups)
    answers = calibrator.predict_or_abstain(
        logits, risk=RISK, delta=DELTA, by="new group"
    )
    return int(answers.accepted.sum())


@pytest.mark.parametrize("n_broken", [0, 1, 2])
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
def test_abstention_for_a_new_group(n_broken: int) -> None:
    """A further group is broken with probability (broken + 1) / (groups + 1)."""
    fewest = next(n for n in range(1, 99) if n_broken + 1 <= DELTA * (n + 1) + 1e-9)
    assert accepted_of_groups(fewest, n_broken) == fewest * 100
    assert accepted_of_groups(fewest - 1, n_broken) == 0
    assert accepted_of_groups(fewest, n_broken + 1) == 0


def missed(proba: Any, labels: Any, threshold: float) -> Any:
    """Truths below the threshold, but for rounding."""
    return of_truth(proba, labels) < threshold * (1.0 - 1e-9)


def test_own_losses_on_average() -> None:
    calibrator, labels, proba = certified(SIZES)
    truth = np.sort(of_truth(proba, labels))
    found = calibrator.control_risk(
        np.log(proba), labels, loss=missed, risk=0.2, thresholds=truth
    )
    expected = -order_statistic(-truth, 0.8)
    np.testing.assert_allclose(found.threshold, expected, **CLOSE)


def test_own_losses_with_confidence() -> None:
    """Half of delta starts at the first threshold; what a passed test used goes on."""
    calibrator, labels, proba = certified(SIZES)
    truth = np.sort(of_truth(proba, labels))
    found = calibrator.control_risk(
        np.log(proba), labels, loss=missed, risk=0.2, delta=DELTA, thresholds=truth
    )
    starts = np.linspace(0, truth.size - 1, 10).astype(int).tolist()
    allowed = DELTA / 18 * 8
    last = -1
    for k in range(truth.size):
        allowed += DELTA / 18 * starts.count(k)
        if allowed > 0.0 and binom.cdf(k, truth.size, 0.2) <= allowed:
            last = k
        else:
            allowed = 0.0
    assert last > 0
    np.testing.assert_allclose(found.threshold, truth[last], **CLOSE)


@pytest.mark.parametrize("delta", [None, 0.1])
def test_several_labels(delta: float | None) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(400, 2))
    labels = (rng.logistic(size=odds.shape) < odds).astype(float)
    calibrator = MultilabelCalibrator().fit(odds[:200], labels[:200])
    calibrator.certify(odds[200:], labels[200:])
    proba = calibrator.predict_proba(odds[200:])
    truth = labels[200:] == 1.0
    close = {"rtol": 5e-5}  # thresholds are moved outwards by what rounding may change
    worst = np.where(truth, 1.0 - proba, proba).max(axis=1)
    by_row = calibrator.predict_set(odds, coverage=COVERAGE, delta=delta)
    limit = order_statistic(worst, COVERAGE, delta)
    sides = np.array([1.0 - limit, limit])
    sides = sides if sides[0] <= sides[1] else np.array([0.5, 0.5])
    np.testing.assert_allclose(by_row.thresholds, [sides, sides], **close)
    by_label = calibrator.predict_set(odds, coverage=0.95, delta=delta, by="label")
    for label, (low, high) in enumerate(by_label.thresholds):
        positive = proba[truth[:, label], label]
        negative = proba[~truth[:, label], label]
        lowest = -order_statistic(-positive, 0.95, delta)
        highest = order_statistic(negative, 0.95, delta)
        assert lowest < highest
        np.testing.assert_allclose([low, high], [lowest, highest], **close)
