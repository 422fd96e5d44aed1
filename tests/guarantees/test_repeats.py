"""Copies and reshaped rows are noticed; ties, sorted labels and series are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from hokical import (
    ConfidenceCalibrator,
    FitDataWarning,
    MultilabelCalibrator,
    calibrate_confidence,
    compare,
    evaluate,
    make,
)
from hokical._core.logits import as_logits
from hokical.guarantees.repeats import RowMarks, refuse_copies
from hokical.streams import certify
from tests.conftest import softmax_examples

ROWS, LABELS = softmax_examples(300, 5, seed=1)
RNG = np.random.default_rng(0)
TIMES = 5


@pytest.fixture
def calibrator() -> Any:
    return make("temps").fit(*softmax_examples(400, 5, seed=2))


def copied(how: str) -> tuple[Any, Any]:
    """Rows of which a fifth or more copy another one, and their labels."""
    chosen = {
        "in a row": np.repeat(np.arange(300), TIMES),
        "in turn": np.tile(np.arange(300), TIMES),
        "twice, shuffled": np.random.default_rng(1).permutation(
            np.repeat(np.arange(300), 2)
        ),
        "bootstrap": np.random.default_rng(2).integers(300, size=300),
        "one class raised": np.append(
            np.arange(300), np.repeat(np.flatnonzero(LABELS == 2), 4)
        ),
    }[how]
    return ROWS[chosen], LABELS[chosen]


COPIES = ["in a row", "in turn", "twice, shuffled", "bootstrap", "one class raised"]


@pytest.mark.parametrize("how", COPIES)
def test_copies_certify_nothing(how: str, calibrator: Any) -> None:
    logits, labels = copied(how)
    words = r"exact copies of another one with the same label, .*`cluster=`"
    with pytest.raises(ValueError, match=words):
        calibrator.certify(logits, labels)
    assert calibrator.predictor_.held_out is None
    with pytest.raises(ValueError, match="one row of each example"):
        calibrator.control_risk(
            logits, labels, loss=lambda proba, y, t: proba[:, 0] < t, risk=0.5
        )
    if how != "one class raised":  # whose copies are far from their rows
        parts = [(logits[i : i + 100], labels[i : i + 100]) for i in range(0, 300, 100)]
        parts += [(logits[300:], labels[300:])] if len(logits) > 300 else []
        with pytest.raises(ValueError, match="exact copies"):
            certify(calibrator, parts)
    calibrator.certify(logits, labels, reused="ignore")
    assert calibrator.predictor_.held_out.label_scores.total == len(labels)


@pytest.mark.parametrize("form", [np.float32, np.float64])
def test_clusters_go_on_with_one_of_each(form: Any, calibrator: Any) -> None:
    logits, labels = copied("in a row")
    cluster = np.repeat(np.arange(300), TIMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator.certify(logits.astype(form), labels, cluster=cluster)
    assert calibrator.predictor_.held_out.label_scores.total == 300


def test_several_labels_are_examined_too() -> None:
    odds = RNG.normal(size=(400, 4))
    labels = (RNG.logistic(size=odds.shape) < odds).astype(float)
    calibrator = MultilabelCalibrator().fit(odds[:200], labels[:200])
    with pytest.raises(ValueError, match=r"`scores` must be of independent examples"):
        calibrator.certify(np.tile(odds[200:], (3, 1)), np.tile(labels[200:], (3, 1)))
    calibrator.certify(odds[200:], labels[200:])


def test_a_few_copies_are_reported(calibrator: Any) -> None:
    """Without a refusal: data from the web has a few images twice."""
    rows = np.append(np.arange(300), np.arange(40))
    with pytest.warns(FitDataWarning, match="12% of 340 rows are exact copies"):
        calibrator.certify(ROWS[rows], LABELS[rows])
    assert calibrator.predictor_.held_out.label_scores.total == 340


@pytest.mark.parametrize("method", ["auto", "temps", "hoki"])
def test_a_fit_reports_copies(method: str) -> None:
    with pytest.warns(FitDataWarning, match="80% of 1,500 rows are exact copies"):
        make(method).fit(*copied("in a row"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(method).fit(ROWS, LABELS)


def test_labels_of_several_annotators_are_reported(calibrator: Any) -> None:
    """Equal rows with labels of their own are no examples of their own."""
    logits = np.repeat(ROWS, 3, axis=0)
    labels = np.argmax(logits + RNG.gumbel(size=logits.shape), axis=1)
    with pytest.warns(FitDataWarning, match="another one with any label"):
        calibrator.certify(logits, labels)


def noisy(rows: Any, spread: float = 0.5) -> Any:
    return rows + spread * RNG.normal(size=rows.shape)


@pytest.mark.parametrize("times", [2, 3, 16])
@pytest.mark.parametrize("order", ["in a row", "in turn"])
def test_reshaped_rows_are_reported(order: str, times: int, calibrator: Any) -> None:
    """A stack (examples, views, classes) or (views, examples, classes), reshaped."""
    if order == "in a row":
        logits = noisy(np.repeat(ROWS, times, axis=0))
        labels = np.repeat(LABELS, times)
        cluster = np.repeat(np.arange(300), times)
    else:
        logits = noisy(np.tile(ROWS, (times, 1)))
        labels = np.tile(LABELS, times)
        cluster = np.tile(np.arange(300), times)
    words = f"like {times} rows of each of 300 examples.*`cluster=`.*Ensemble"
    with pytest.warns(FitDataWarning, match=words):
        calibrator.certify(logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator.certify(logits, labels, cluster=cluster)
        calibrator.certify(logits, labels, reused="ignore")


def views_in_any_order(times: int) -> tuple[Any, Any]:
    """Rows of each of 300 examples of 20 classes, shuffled."""
    rows, labels = softmax_examples(300, 20, seed=3, spread=5.0)
    chosen = np.random.default_rng(4).permutation(np.repeat(np.arange(300), times))
    return noisy(rows[chosen]), labels[chosen]


@pytest.mark.parametrize("times", [2, 5])
def test_shuffled_rows_of_examples_are_reported(times: int) -> None:
    logits, labels = views_in_any_order(times)
    cal = make("temps").fit(*softmax_examples(400, 20, seed=2, spread=5.0))
    words = "the nearest row of those with a wrong label has the same label.*Ensemble"
    with pytest.warns(FitDataWarning, match=words):
        cal.certify(logits, labels)
    with pytest.warns(FitDataWarning, match=words):
        make("temps").fit(logits, labels)


def a_class_always_wrong(n: int, seed: int) -> tuple[Any, Any]:
    """Its rows are near to each other; and the others' errors are not."""
    logits, labels = softmax_examples(n, 20, seed=seed, spread=5.0)
    rng = np.random.default_rng(seed)
    center = 3.0 * np.eye(20)[1] + rng.normal(size=20)
    logits[: n // 15] = center + 0.2 * rng.normal(size=(n // 15, 20))
    labels[: n // 15] = 0
    return logits, labels


@pytest.mark.parametrize("n", [200, 1000])
def test_errors_near_to_each_other_are_no_copies(n: int) -> None:
    cal = make("temps").fit(*softmax_examples(400, 20, seed=2, spread=5.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(10, 15):
            cal.certify(*a_class_always_wrong(n, seed))


def sorted_rows(n: int, seed: int) -> tuple[Any, Any]:
    logits, labels = softmax_examples(n, 5, seed=seed)
    order = np.argsort(labels, kind="stable")
    return logits[order], labels[order]


def blocks_of_classes(n: int, seed: int) -> tuple[Any, Any]:
    """Four independent rows of a class in a row, as some samplers draw them."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(5, size=n // 4), 4)
    return 2.0 * np.eye(5)[labels] + rng.normal(size=(labels.size, 5)), labels


def classes_in_turn(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 5
    return 2.0 * np.eye(5)[labels] + rng.normal(size=(n, 5)), labels


def series(n: int, seed: int) -> tuple[Any, Any]:
    """A slowly changing state, seen through noise: long runs of labels."""
    rng = np.random.default_rng(seed)
    logits = np.zeros((n, 5))
    for row in range(1, n):
        logits[row] = 0.95 * logits[row - 1] + rng.normal(size=5)
    smooth = logits + rng.gumbel(size=(n, 5)).cumsum(axis=0) * 0.05
    return logits, smooth.argmax(axis=1)


def leaves(n: int, seed: int) -> tuple[Any, Any]:
    """Forty values of a tree, each with labels of its own."""
    values = np.random.default_rng(0).normal(size=(40, 5))
    rng = np.random.default_rng(seed)
    logits = values[rng.integers(40, size=n)]
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def sure_votes(n: int, seed: int) -> tuple[Any, Any]:
    """Nine of ten rows are certain and right: equal rows have equal labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    logits = np.log(np.full((n, 5), 1e-3)) + 7.0 * np.eye(5)[labels]
    unsure = rng.random(n) < 0.1
    logits[unsure] = rng.normal(size=(int(unsure.sum()), 5))
    return logits, labels


@pytest.mark.parametrize(
    "rows",
    [sorted_rows, blocks_of_classes, classes_in_turn, series, leaves, sure_votes],
)
def test_independent_rows_are_not_reported(rows: Any, calibrator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(10, 20):
            calibrator.certify(*rows(600, seed))


def test_many_rows_of_two_classes_are_no_copies() -> None:
    """One margin in steps of 1/4096: a fifth of so many rows has an equal."""
    odds = RNG.normal(size=20_000)
    labels = (RNG.logistic(size=odds.size) < odds).astype(int)
    logits = np.stack([np.zeros_like(odds), odds], axis=1)
    marks = RowMarks.of(as_logits(logits), labels, None)
    assert marks.copies().n_distinct < 0.9 * odds.size
    refuse_copies(marks.copies(), "refuse")


def test_rows_without_a_weight_do_not_count(calibrator: Any) -> None:
    logits, labels = copied("in a row")
    weights = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], 300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels repeat, whatever counts
        calibrator.certify(logits, labels, weights)
    assert calibrator.predictor_.held_out.conformity.n == 300


def answers(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    return confidence, rng.random(n) < confidence


def some_copies(how: str, n: int = 300) -> np.ndarray:
    """Row numbers of which a fifth or more come again."""
    rng = np.random.default_rng(5)
    return {
        "in a row": np.repeat(np.arange(n), 4),
        "in turn": np.tile(np.arange(n), 2),
        "shuffled": rng.permutation(np.repeat(np.arange(n), 3)),
        "bootstrap": rng.integers(n, size=n),
        "half of them": np.append(np.arange(n), rng.permutation(n)[: n // 2]),
    }[how]


HOW = ["in a row", "in turn", "shuffled", "bootstrap", "half of them"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", HOW)
def test_copies_of_answers_are_reported(how: str) -> None:
    confidence, right = answers()
    rows = some_copies(how)
    words = r"`confidence` hold copies: .* with the same label.*`sample_weight`"
    with pytest.warns(FitDataWarning, match=words):
        calibrate_confidence(confidence[rows], right[rows])
    signals = np.stack([confidence, RNG.random(300)], axis=1)
    signals[::3, 1] = np.nan
    with pytest.warns(FitDataWarning, match=words):
        calibrate_confidence(signals[rows], right[rows])
    fresh, outcomes = answers(seed=1)
    calibrator = calibrate_confidence(fresh, outcomes)
    with pytest.raises(ValueError, match="`confidence` must be of independent"):
        calibrator.certify(confidence[rows], right[rows])


def test_copies_of_tied_answers_are_reported() -> None:
    """Percentages that come again by themselves, all of them four times."""
    confidence, right = answers()
    rows = some_copies("in a row")
    with pytest.warns(FitDataWarning, match="300 are different"):
        calibrate_confidence(confidence[rows].round(2), right[rows])


#: Answers that come again by themselves: confidences and whether they are right.
TIES: dict[str, Any] = {
    "percentages": lambda c, u: (c.round(2), u < c),
    "ten samples": lambda c, u: (c.round(1), u < c),
    "words": lambda c, u: (np.array([0.5, 0.8, 0.95])[(3.0 * c).astype(int)], u < c),
    "hardly any is right": lambda c, u: (c.round(2), u < 0.02),
    "nearly all are right": lambda c, u: (c.round(2), u < 0.98),
    "told apart": lambda c, u: (c.round(2), c.round(2) > 0.5),
    "nearly told apart": lambda c, u: (c.round(3), u < c**9),
    "sure or not": lambda c, u: (np.where(c > 0.5, 1.0, c), (c > 0.5) | (u < c)),
}


@pytest.mark.parametrize("kind", TIES)
@pytest.mark.parametrize("n", [60, 600, 3000])
def test_ties_of_answers_are_no_copies(kind: str, n: int) -> None:
    calibrator = calibrate_confidence(*answers(600, seed=99))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        confidence, right = TIES[kind](rng.random(n), rng.random(n))
        rows = calibrator.read_labelled(confidence, right)
        assert calibrator.copies(rows).share == 0.0, seed


def test_weights_are_the_remedy() -> None:
    confidence, right = answers()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrate_confidence(confidence, right, np.full(300, 4.0))
        make("temps").fit(ROWS, LABELS, sample_weight=np.full(300, 4.0))


@pytest.mark.parametrize("how", HOW)
def test_copies_of_several_labels_are_reported(how: str) -> None:
    odds = RNG.normal(size=(300, 4))
    labels = (RNG.logistic(size=odds.shape) < odds).astype(float)
    labels[RNG.random(labels.shape) < 0.1] = np.nan
    rows = some_copies(how)
    with pytest.warns(FitDataWarning, match="`scores` hold copies"):
        calibrator = MultilabelCalibrator().fit(odds[rows], labels[rows])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultilabelCalibrator().fit(odds, labels)
    with pytest.raises(ValueError, match="one row of each example"):
        calibrator.control_risk(
            odds[rows] + 1.0, labels[rows], loss=lambda p, y, t: p[:, 0] > t, risk=0.9
        )


def count_copies(caught: list[warnings.WarningMessage]) -> int:
    return sum("copies" in str(warning.message) for warning in caught)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "temps"])
def test_copies_across_folds_are_reported(method: str) -> None:
    logits, labels = copied("twice, shuffled")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(method, logits, labels, folds=5)
    assert count_copies(caught) == 1
    assert "folds hold copies of what their fits have seen" in str(caught[0].message)
    assert "`cluster=`" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster = np.unique(logits[:, 0], return_inverse=True)[1]
        evaluate(method, logits, labels, folds=5, cluster=cluster)
        evaluate(method, ROWS, LABELS, folds=5)


@pytest.mark.slow
def test_copies_of_answers_across_folds_are_reported() -> None:
    confidence, right = answers()
    rows = some_copies("shuffled")
    calls: list[Any] = [
        lambda c, r, **of: evaluate(ConfidenceCalibrator(), c, r, folds=5, **of),
        lambda c, r, **of: compare(({"a": c, "b": c**2}, r), folds=5, **of),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(confidence[rows], right[rows])
        assert count_copies(caught) == 1
        assert "folds hold copies" in str(caught[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(confidence[rows], right[rows], cluster=rows)
            call(confidence, right)


def test_copies_in_a_test_are_reported() -> None:
    logits, labels = copied("twice, shuffled")
    fresh = softmax_examples(400, 5, seed=2)
    message = "hold copies: .*Intervals and tests take each"
    with pytest.warns(FitDataWarning, match=f"`x` {message}"):
        evaluate(None, logits, labels)
    with pytest.warns(FitDataWarning, match=f"`test` {message}"):
        compare(fresh, (logits, labels), ["temps", "auto"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compare((logits, labels), fresh, ["temps", "auto", "ets"])
    assert count_copies(caught) == 1
    confidence, right = answers()
    rows = some_copies("shuffled")
    with pytest.warns(FitDataWarning, match=f"`x` {message}"):
        evaluate(None, confidence[rows], right[rows])


def test_reshaped_rows_are_reported_by_fits_and_evaluations() -> None:
    logits = noisy(np.repeat(ROWS, 3, axis=0))
    labels = np.repeat(LABELS, 3)
    words = "look like 3 rows of each of 300 examples.*Ensemble"
    with pytest.warns(FitDataWarning, match=words):
        make("temps").fit(logits, labels)
    with pytest.warns(FitDataWarning, match=words):
        evaluate(None, logits, labels)
    with pytest.warns(FitDataWarning, match=words):
        evaluate("temps", logits, labels, folds=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (sorted_rows, blocks_of_classes, classes_in_turn, leaves):
            make("temps").fit(*rows(600, 10))
            evaluate(None, *rows(600, 10))
