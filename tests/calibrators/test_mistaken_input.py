"""Input that is not what it should be is refused or named; real logits raise no
false alarm.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import hokical
from hokical import ConfidenceCalibrator, FitDataWarning, MultilabelCalibrator
from hokical.calibrators import make
from hokical.demo import demo_logits
from tests.conftest import synthetic_logits

pd = pytest.importorskip("pandas")


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    return synthetic_logits(300, 3, seed=4)


def frame(logits: np.ndarray) -> Any:
    return pd.DataFrame(logits, columns=["cat", "dog", "cow"])


def test_a_loaded_calibrator_knows_its_columns(data: Any, tmp_path: Path) -> None:
    cal = hokical.auto(frame(data[0]), data[1])
    cal.save(tmp_path / "cal.json", metadata={"of": "animals"})
    for calibrator in (cal, hokical.load(tmp_path / "cal.json")):
        np.testing.assert_array_equal(
            calibrator.predict(frame(data[0])), cal.predict(data[0])
        )
        swapped = frame(data[0])[["dog", "cat", "cow"]]
        np.testing.assert_array_equal(
            calibrator.predict_proba(swapped), cal.predict_proba(data[0])
        )
        brier = hokical.evaluate(calibrator, swapped, data[1]).score("brier")
        assert brier == hokical.evaluate(cal, *data).score("brier")
        for ask in (
            calibrator.predict_proba,
            calibrator.predict_or_abstain,
            calibrator.estimate_shift,
        ):
            with pytest.raises(
                ValueError, match=r"the columns used in `fit`, cat, dog, cow; got"
            ):
                ask(swapped.rename(columns={"dog": "wolf"}))


def test_files_keep_the_names_of_classes(data: Any, tmp_path: Path) -> None:
    cal = hokical.auto(*data, classes=("cat", "dog", "cow"))
    cal.save(tmp_path / "cal.json", metadata={"of": "animals"})
    loaded = hokical.load(tmp_path / "cal.json")
    assert (loaded.class_names, loaded.metadata_) == (
        ("cat", "dog", "cow"),
        {"of": "animals"},
    )
    assert loaded.detect(data[0], "dog").flagged.any()


def test_a_loaded_multilabel_calibrator_knows_its_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = frame(rng.normal(size=(400, 3)))
    labels = rng.random((400, 3)) < 0.3
    cal = MultilabelCalibrator().fit(scores, labels)
    cal.save(tmp_path / "cal.json")
    for calibrator in (cal, hokical.load(tmp_path / "cal.json")):
        swapped = calibrator.predict_proba(scores[["cow", "dog", "cat"]])
        np.testing.assert_array_equal(swapped, cal.predict_proba(scores.to_numpy()))
        with pytest.raises(
            ValueError, match="`scores` must have the columns used in `fit`"
        ):
            calibrator.predict_proba(scores.rename(columns={"dog": "wolf"}))


def test_more_examples_come_in_the_order_of_the_first(data: Any) -> None:
    logits, labels = frame(data[0]), data[1]
    cal = hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(logits[:200], labels[:200])
    cal.partial_fit(logits[200:][["cow", "cat", "dog"]], labels[200:])
    expected = (
        hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(*data).predict_proba(data[0])
    )
    np.testing.assert_array_equal(cal.predict_proba(logits), expected)


def test_percentages_are_named(data: Any) -> None:
    percent = 100.0 * softmax(data[0], axis=1)
    for percentages in (percent, percent.round()):
        with pytest.warns(FitDataWarning, match="look like percentages"):
            make("temps").fit(percentages, data[1])
    labels = np.random.default_rng(1).random((300, 3)) < 0.5
    with pytest.warns(FitDataWarning, match="`scores` look like percentages"):
        MultilabelCalibrator().fit(percent, labels)


def test_probabilities_after_a_fit_on_logits_are_named(
    data: Any, tmp_path: Path
) -> None:
    cal = make("temps").fit(3.0 * data[0], data[1])
    cal.save(tmp_path / "cal.json")
    for calibrator in (cal, hokical.load(tmp_path / "cal.json")):
        with pytest.warns(
            UserWarning, match="look like probabilities: all rows sum to 1"
        ):
            calibrator.predict_proba(softmax(data[0], axis=1))
        with pytest.warns(UserWarning, match="look like percentages"):
            calibrator.predict_confidence(100.0 * softmax(data[0], axis=1))


@pytest.mark.parametrize("n_digits", [1, 2])
def test_few_rows_of_rounded_percentages_are_named(n_digits: int) -> None:
    logits, labels = synthetic_logits(400, 10, seed=0)
    cal = make("temps").fit(logits, labels)
    percent = (100.0 * softmax(logits[:3], axis=1)).round(n_digits)
    assert not np.allclose(percent.sum(axis=1), 100.0, atol=1e-6)
    with pytest.warns(UserWarning, match="look like percentages"):
        cal.predict_proba(percent)


def test_probabilities_after_a_fit_on_logits_are_named_in_a_partial_fit() -> None:
    logits, labels = synthetic_logits(400, 4, seed=0)
    cal = hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(logits[:200], labels[:200])
    with pytest.warns(UserWarning, match="look like probabilities: all rows sum to 1"):
        cal.partial_fit(softmax(logits[200:], axis=1), labels[200:])


def test_logits_raise_no_alarm(data: Any) -> None:
    (logits, labels), (new, truth) = demo_logits()
    rng = np.random.default_rng(2)
    small = rng.random((2000, 2)).astype(np.float32)
    positive = 30.0 * rng.random((500, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cal = make("temps").fit(logits, labels)
        cal.predict_proba(new)
        cal.certify(new, truth)
        make("uncalibrated").fit(positive, rng.integers(0, 4, 500)).predict(positive)
        binary = make("uncalibrated").fit(3.0 * small, rng.integers(0, 2, 2000))
        for row in range(0, 1000, 4):
            binary.predict(small[row : row + 4])
        proba = hokical.from_probabilities(softmax(data[0], axis=1))
        make("temps").fit(proba, data[1]).predict(proba)


def test_an_id_among_the_logits_is_named(data: Any) -> None:
    with_id = np.column_stack([np.arange(1000.0, 1300.0), data[0]])
    with pytest.warns(
        FitDataWarning, match="column, 0, that counts the rows from 1000"
    ):
        make("uncalibrated").fit(with_id, data[1])


def test_rows_in_another_order_are_refused(data: Any) -> None:
    rng = np.random.default_rng(3)
    index = [f"id{k}" for k in range(300)]
    logits = frame(data[0]).set_axis(index)
    labels = pd.Series(data[1], index=index)
    shuffled = labels.sample(frac=1.0, random_state=1)
    cal = make("temps").fit(logits, labels)
    for ask in (make("temps").fit, cal.certify, cal.score):
        with pytest.raises(
            ValueError, match=r"order of `logits`.*labels\.loc\[logits\.index\]"
        ):
            ask(logits, shuffled)
    with pytest.warns(
        FitDataWarning, match=r"`labels\.to_numpy\(\)` if the order is right"
    ):
        make("temps").fit(frame(data[0]), labels.set_axis(rng.permutation(300)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("temps").fit(
            frame(data[0]), labels
        )  # other values: pairs by place are meant
    with pytest.raises(
        ValueError, match=r"`right` must have its rows in the order of `confid"
    ):
        ConfidenceCalibrator().fit(
            pd.Series(rng.random(300), index=index), shuffled > 0
        )


def test_lists_of_two_columns_are_labels() -> None:
    rng = np.random.default_rng(5)
    yes = rng.random((50, 4))
    pairs = [np.column_stack([1.0 - column, column]) for column in yes.T]
    log_odds = hokical.from_binary_probabilities(pairs)
    np.testing.assert_allclose(
        log_odds, hokical.from_binary_probabilities(yes), rtol=1e-9
    )
    with pytest.raises(ValueError, match=r"got shape \(50, 1\) for label 1"):
        hokical.from_binary_probabilities([pairs[0], np.ones((50, 1))])
    with pytest.raises(
        ValueError, match=r"Pass the list of arrays .* `probabilities\[..., 1\].T`"
    ):
        hokical.from_binary_probabilities(np.array(pairs))
    np.testing.assert_allclose(hokical.from_binary_probabilities([[0.5, 0.5]]), 0.0)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (["90%", "80%"], r"'90%' in row 0.*scale=100"),
        ([0.9, None], r"None in row 1\. Drop answers"),
        (["yes", "no"], r"'yes' in row 0\. Map words"),
        (["0.9", "0.8"], r"float\(text\)"),
    ],
)
def test_stated_confidences_that_are_no_numbers(stated: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ConfidenceCalibrator().fit(stated, [1, 0])


def test_percentages_mixed_with_fractions_are_named() -> None:
    rng = np.random.default_rng(6)
    stated = rng.choice([80.0, 90.0], 400)
    right = rng.random(400) < stated / 120
    mixed = np.where(np.arange(400) % 5, stated, stated / 100)
    with pytest.warns(UserWarning, match="mix percentages and fractions: 80 of 400"):
        ConfidenceCalibrator(scale=100).fit(mixed, right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConfidenceCalibrator(scale=100).fit(stated, right)


def test_wrong_arguments_are_named_with_a_remedy(data: Any) -> None:
    cal = make("temps").fit(*data)
    scores, right = np.zeros((50, 2)), np.arange(50) % 2 == 0
    several = MultilabelCalibrator().fit(
        scores + right[:, None], np.stack([right, right], axis=1)
    )
    with pytest.raises(
        TypeError, match="must be one of logits; got MultilabelCalibrator"
    ):
        hokical.calibrators.with_sets(several, coverage=0.9)
    cal.certify(*synthetic_logits(50, 3, seed=5))
    for call in (cal.predict_set, hokical.Dense(cal).predict_set):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'alpha'"):
            call(data[0], coverage=0.9, alpha=0.1)
    with pytest.raises(TypeError, match="argument: 'coverage'"):
        hokical.calibrators.with_sets(cal)
    for fit in (make("temps").fit, hokical.Dense("temps").fit):
        with pytest.raises(TypeError, match=r"`labels` must be integers.*got .*bool"):
            fit(data[0], data[1] == 1)
    make("temps").fit(
        data[0][:, :2], data[1] == 1
    )  # of two classes they are the classes
    for label in (7, -1, "cat"):
        with pytest.raises(ValueError, match=r"column from 0 to 2; got .* Choose one"):
            cal.detect(data[0], label)
    named = make("temps").fit(frame(data[0]), np.array(["cat", "dog", "cow"])[data[1]])
    with pytest.raises(ValueError, match="or a name: cat, dog, cow; got 'lion'"):
        named.predict_interval(frame(data[0]), label="lion")
    with pytest.raises(ValueError, match="`groups` must be given with"):
        cal.predict_or_abstain(data[0], by="group")
    with pytest.raises(
        ValueError, match=r"2-D \(n, labels\); got shape \(50,\).*\[:, None\]"
    ):
        MultilabelCalibrator().fit(scores[:, 0], right)
    stated = ConfidenceCalibrator().fit(np.linspace(0.1, 0.9, 50), right)
    with pytest.raises(
        ValueError, match="need a calibrator of logits, which this monitor"
    ):
        hokical.CalibrationMonitor(stated).update_logits(*data)


def test_a_number_is_no_network(data: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(
        TypeError, match=r"`model` must be a network, .*; got int.*hokical.auto"
    ):
        hokical.calibrate(3, *data)  # type: ignore[arg-type]


def test_results_are_printed_in_a_line(data: Any) -> None:
    cal = make("temps").fit(*data)
    printed = str(cal.predict_action(data[0], 1.0 - np.eye(3)))
    assert printed.startswith("300 rows, 3 different actions; mean expected cost 0.")
    assert str(cal.predict_action(data[0][:1], 1.0 - np.eye(3))).startswith(
        "1 rows, one action; "
    )
    printed = str(cal.detect(data[0], 1))
    assert " of 300 rows are flagged. Recall of class 1 at least 95%" in printed


@pytest.mark.parametrize("kind", ["logits", "labels", "confidence"])
def test_a_failed_refit_leaves_no_half_fitted_state(kind: str, data: Any) -> None:
    scores = frame(data[0])
    if kind == "logits":
        cal, truth = make("temps"), data[1]
    elif kind == "labels":
        cal, truth = MultilabelCalibrator(), np.eye(3)[data[1]]
    else:
        cal, truth = ConfidenceCalibrator(), data[1] == 0
        scores = frame(softmax(data[0], axis=1))
    cal.fit(scores, truth)
    with pytest.raises(ValueError, match="in row 0"):
        cal.fit(scores.to_numpy() * np.nan, truth)
    with pytest.raises(ValueError, match="not fitted"):
        cal.predict(scores[["cow", "dog", "cat"]])
    cal.fit(scores, truth)
    np.testing.assert_array_equal(
        cal.predict(scores[["cow", "dog", "cat"]]), cal.predict(scores)
    )


def test_merged_calibrators_know_their_columns(data: Any) -> None:
    logits, names = frame(data[0]), np.array(["cat", "dog", "cow"])[data[1]]
    first, second, turned = (
        hokical.Hoki(noise=hokical.Gaussian(2.0)) for _ in range(3)
    )
    first.fit(logits[:200], names[:200], classes=["cat", "dog", "cow"])
    merged = first.merge(
        second.fit(logits[200:], names[200:], classes=["cat", "dog", "cow"])
    )
    turned.fit(logits[["cow", "dog", "cat"]], 2 - data[1])
    expected = hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(*data)
    swapped = logits[["cow", "dog", "cat"]]
    np.testing.assert_array_equal(
        merged.predict_proba(swapped), expected.predict_proba(data[0])
    )
    assert merged.class_names == ("cat", "dog", "cow")
    assert first.table_.total == 200
    with pytest.raises(ValueError, match=r"must agree to be merged.*and columns"):
        first.merge(turned)
    unnamed = hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(
        np.asarray(data[0])[200:], data[1][200:]
    )
    for merged in (
        first.merge(unnamed),
        unnamed.merge(first),
    ):  # arrays have no names to disagree
        assert merged.schema_.columns == first.schema_.columns


def test_more_examples_keep_what_the_table_was() -> None:
    logits, labels = synthetic_logits(300, 3, seed=4)
    table = pd.DataFrame(
        softmax(logits, axis=1), columns=["prob_a", "prob_b", "prob_c"]
    )
    table["label"] = np.array(["a", "b", "c"])[labels]
    cal = hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(table[:200], "label")
    before = dict(cal.metadata_)
    cal.partial_fit(table[200:], "label")
    assert cal.metadata_ == before != {}
    assert cal.predict(table.drop(columns="label")).shape == (300,)
    assert hokical.Hoki(noise=hokical.Gaussian(2.0)).fit(logits, labels).metadata_ == {}
    assert cal.fit(logits, labels).metadata_ == {}


@pytest.mark.parametrize(
    ("right", "row"),
    [
        (pd.array([True, False, pd.NA], "boolean"), "got <NA> in row 2"),
        ([True, False, None], "got None in row 2"),
        ([1.0, 0.0, np.nan], "got nan in row 2"),
        (["True", "False", "True"], "got 'True' in row 0"),
        ([0, 1, 2], "got 2 in row 2"),
        (pd.DataFrame({"right": [True, False, True]}), r"\(3, 1\)\. Pass one column"),
    ],
)
def test_whether_an_answer_was_right_is_true_or_false(right: Any, row: str) -> None:
    confidence = [0.3, 0.6, 0.9]
    for measure in (
        hokical.calibrate_confidence,
        hokical.metrics.ece,
        lambda c, right: hokical.evaluate(None, c, right),
        lambda c, right: hokical.metrics.group_table(c, right, ["a", "b", "a"]),
    ):
        error = TypeError if "'True'" in row else ValueError
        with pytest.raises(error, match=f"`(right|correct)` must be .*{row}"):
            measure(confidence, right)


def test_more_columns_than_in_the_fit_are_to_be_selected(data: Any) -> None:
    cal = hokical.auto(frame(data[0]), data[1])
    more = frame(data[0]).assign(id=1)
    with pytest.raises(ValueError, match=r"not in the fit: id\)\. Select those of the"):
        cal.predict(more)
