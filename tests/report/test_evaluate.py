"""`hokical.evaluate`: every kind of calibrator and data, before and after."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical.calibrators import SurvivalCalibrator
from hokical.report.output import paired_differences
from tests.calibrators.test_confidence import answers
from tests.calibrators.test_multilabel import tags
from tests.conftest import synthetic_logits

VAL, TEST = (synthetic_logits(1000, 4, seed=seed) for seed in (1, 2))


@pytest.fixture(scope="module")
def cal() -> hokical.Calibrator:
    return hokical.make("temps").fit(*VAL)


def test_logits_are_evaluated_as_compare_does(
    cal: hokical.Calibrator, tmp_path: Path
) -> None:
    evaluation = hokical.evaluate(cal, *TEST, data_name="new")
    comparison = hokical.compare(
        VAL, TEST, {"uncalibrated": "uncalibrated", "temps": cal}
    )
    for evaluated, compared in (
        (evaluation.before, comparison["uncalibrated"]),
        (evaluation, comparison["temps"]),
    ):
        assert str(evaluated.summary) == str(compared.summary)
        assert evaluated.classes == compared.classes
    assert evaluation.headline == comparison["temps"].headline
    page = evaluation.to_html(tmp_path / "page.html").read_text()
    assert "Measured on 1,000 examples of 4 classes." in page
    assert "new: " in page
    assert "Validation data" not in page
    assert (
        json.loads(json.dumps(evaluation.to_dict()))["methods"][1]["method"] == "temps"
    )
    assert "debiased ECE (L2)" in str(evaluation)
    assert evaluation.headline in " ".join(str(evaluation).split())


def test_a_loaded_calibrator_and_none(cal: hokical.Calibrator, tmp_path: Path) -> None:
    cal.save(tmp_path / "cal.json")
    loaded = hokical.evaluate(hokical.load(tmp_path / "cal.json"), *TEST)
    assert loaded["ece"].value == hokical.evaluate(cal, *TEST)["ece"].value
    plain = hokical.evaluate(None, *TEST)
    assert plain.before is None
    assert plain.name == "uncalibrated"
    assert plain["ece"].value == loaded.before["ece"].value
    confidence, right = cal.predict_confidence(TEST[0]), cal.predict(TEST[0]) == TEST[1]
    stated = hokical.evaluate(None, confidence, right)
    assert stated["ece"].value == loaded["ece"].value


def test_a_stream_has_the_numbers_of_the_arrays(
    cal: hokical.Calibrator, tmp_path: Path
) -> None:
    logits, labels = TEST
    of_arrays = hokical.evaluate(cal, logits, labels)
    chunks = [(logits[:300], labels[:300]), (logits[300:], labels[300:])]
    for source in (chunks, iter(chunks), lambda: iter(chunks)):
        of_stream = hokical.evaluate(cal, source)
        for name, estimate in of_arrays.summary.estimates.items():
            assert of_stream[name].value == pytest.approx(estimate.value, rel=1e-12), (
                name
            )
            assert of_stream.before[name].value == pytest.approx(
                of_arrays.before[name].value, rel=1e-12
            )
        assert of_stream["ece"].low == pytest.approx(of_arrays["ece"].low, abs=1e-12)
        assert of_stream.summary.bounds == pytest.approx(of_arrays.summary.bounds)
        assert [row.n for row in of_stream.classes.rows] == [
            row.n for row in of_arrays.classes.rows
        ]
    assert "Is it calibrated?" in of_stream.to_html(tmp_path / "page.html").read_text()


def test_weights_count_rows(cal: hokical.Calibrator) -> None:
    logits, labels = TEST
    weight = np.random.default_rng(0).integers(0, 3, size=labels.size)
    weighted = hokical.evaluate(cal, logits, labels, sample_weight=weight)
    rows = np.repeat(np.arange(labels.size), weight)
    repeated = hokical.evaluate(cal, logits[rows], labels[rows])
    for name, estimate in repeated.summary.estimates.items():
        assert weighted[name].value == pytest.approx(estimate.value, rel=1e-9), name
    assert weighted.summary.bounds == {}
    assert weighted.n == (weight > 0).sum()


def test_classes_that_the_average_hides_are_named() -> None:
    """A model trained at equal shares, where few are positive."""
    rng = np.random.default_rng(0)
    positive = rng.uniform(size=10_000) < 0.05
    score = rng.normal(size=10_000) + 2 * positive - 1
    found = hokical.evaluate(
        None,
        hokical.from_binary_scores(2 * score),
        positive.astype(int),
        classes=("calm", "storm"),
        groups=np.where(score > 0, "high", "low"),
    )
    assert found["ece"].value < 0.01
    assert (
        "hides class storm: its 1,942 rows have confidence 73.9% and accuracy 21.9%"
        in str(found.class_warning)
    )
    assert "auto, structured, vecs" in str(found.class_warning)
    learned = dataclasses.replace(found, name="auto")  # which learns each class already
    assert "More calibration examples" in str(learned.class_warning)
    assert found.class_warning in " ".join(str(found).split())
    assert found.groups.asked == ("storm", "label")  # the event first
    assert {row.full_name for row in found.groups.flagged} >= {"high", "high (storm)"}


def test_sets_are_those_of_the_calibrator() -> None:
    half = slice(0, 500), slice(500, 1000)
    cal = hokical.make("temps").fit(*(array[half[0]] for array in VAL))
    cal.certify(*(array[half[1]] for array in VAL))
    sets = hokical.evaluate(cal, *TEST, coverage=0.9).sets
    members = np.asarray(cal.predict_set(TEST[0], coverage=0.9).members)
    assert sets.overall.coverage == members[np.arange(1000), TEST[1]].mean()
    assert sets.overall.mean_size == members.sum(axis=1).mean()
    assert hokical.evaluate(None, *TEST, coverage=0.9).sets.overall.n == 500


@pytest.mark.slow
def test_differences_print_plain_numbers(cal: hokical.Calibrator) -> None:
    found = hokical.evaluate(cal, *TEST)
    (difference,) = paired_differences(found.stages, found)
    assert "np." not in repr(difference)


def test_a_calibrator_of_kept_labels_is_evaluated_by_its_confidences() -> None:
    survived = np.random.default_rng(0).random((9, 400)) < 0.7
    right = survived.mean(axis=0) > 0.6
    cal = SurvivalCalibrator().fit(survived[:, ::2], right[::2])
    with pytest.raises(TypeError, match=r"evaluate\(None, cal.predict\(survived\)"):
        hokical.evaluate(cal, survived, right)
    found = hokical.evaluate(None, cal.predict(survived[:, 1::2]), right[1::2])
    assert found.data.n_rows == 200


def test_differences_of_labels_are_by_example() -> None:
    """Doubling every label must not make an interval narrower, as no example is
    added.
    """
    cal = hokical.MultilabelCalibrator().fit(*tags(400))
    scores, labels = tags(500, 1)
    twice = hokical.MultilabelCalibrator().fit(
        *(np.tile(each, (1, 2)) for each in tags(400))
    )
    ones = hokical.evaluate(cal, scores, labels)
    twos = hokical.evaluate(twice, np.tile(scores, 2), np.tile(labels, 2))
    (of_ones,), (two,) = (
        paired_differences(each.stages, each) for each in (ones, twos)
    )
    assert of_ones.verdict == "worse"  # before calibration
    assert two.high - two.low == pytest.approx(of_ones.high - of_ones.low, rel=0.1)
    assert ones.summary.bounds == {}
    assert len(ones.groups.rows) == 12


def test_confidences_before_and_after() -> None:
    stated, right, subject = answers(1000)
    cal = hokical.ConfidenceCalibrator().fit(
        stated[:500], right[:500], groups=subject[:500]
    )
    evaluation = hokical.evaluate(cal, stated[500:], right[500:], groups=subject[500:])
    assert evaluation.score("ece") < evaluation.before.score("ece")
    assert {row.name for row in evaluation.groups.rows} == set(subject)
    fresh = hokical.ConfidenceCalibrator(scale=100)
    before = hokical.evaluate(fresh, 100 * stated, right)
    assert before.before is None
    assert before.score("ece") == pytest.approx(hokical.metrics.ece(stated, right))
    share = f"{right.mean():.1%}"
    assert f" on average and was right {share} of the time." in before.headline


def test_a_plot_is_a_reliability_diagram(cal: hokical.Calibrator) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    evaluation = hokical.evaluate(cal, *TEST)
    ax = evaluation.plot(color="black")
    assert f"ECE {evaluation['ece'].value:.4f}" in ax.get_title()


def test_logits_of_jax_are_evaluated_as_those_of_numpy(cal: hokical.Calibrator) -> None:
    jnp = pytest.importorskip("jax.numpy")
    logits, labels = TEST[0].astype(np.float32), TEST[1]
    evaluation = hokical.evaluate(cal, jnp.asarray(logits), labels)
    expected = hokical.evaluate(cal, logits, labels)
    assert evaluation.score("log_loss") == pytest.approx(
        expected.score("log_loss"), rel=1e-5
    )
    val = (jnp.asarray(VAL[0]), VAL[1])
    comparison = hokical.compare(
        val, (jnp.asarray(logits), labels), ["temps"], coverage=0.9
    )
    assert comparison["temps"].score("ece") == pytest.approx(
        expected.score("ece"), abs=1e-4
    )


def test_rows_of_the_fit_are_noticed(cal: hokical.Calibrator) -> None:
    of_fit = pytest.warns(hokical.FitDataWarning, match="calibrator was fitted on")
    with of_fit:
        hokical.evaluate(cal, *VAL)
    with of_fit:
        hokical.evaluate(cal, [VAL])
    with of_fit:
        hokical.evaluate(cal, VAL[0][:500] + 1.0, VAL[1][:500])
    stated, right, _ = answers(600)
    with of_fit:
        hokical.evaluate(
            hokical.ConfidenceCalibrator().fit(stated, right), stated, right
        )
    scores, labels = tags(300)
    with of_fit:
        hokical.evaluate(
            hokical.MultilabelCalibrator().fit(scores, labels), scores, labels
        )
    maps = (VAL[0].reshape(100, 10, 4), VAL[1].reshape(100, 10))
    with of_fit:
        hokical.evaluate(hokical.Dense("temps").fit(*maps), *maps)
    hokical.evaluate(
        hokical.make("uncalibrated").fit(*VAL), *VAL
    )  # which learned nothing


@pytest.mark.slow
def test_columns_of_labels_may_be_in_another_order() -> None:
    pandas = pytest.importorskip("pandas")
    scores, labels = (pandas.DataFrame(table).add_prefix("tag") for table in tags(800))
    cal = hokical.MultilabelCalibrator().fit(scores[:400], labels[:400])
    evaluation = hokical.evaluate(cal, scores[400:], labels[400:])
    turned = hokical.evaluate(
        cal, scores[400:].iloc[:, ::-1], labels[400:].iloc[:, ::-1]
    )
    assert str(turned) == str(evaluation)
    assert "tag3" in {row.full_name for row in evaluation.groups.rows}


def test_the_best_logits_of_each_row_are_evaluated_as_compare_does() -> None:
    logits, labels = synthetic_logits(400, 6, seed=2)
    best = hokical.TopK.from_logits(logits, 3)
    fit, test = best.take(slice(200)), best.take(slice(200, 400))
    cal = hokical.TemperatureScaling().fit(fit, labels[:200])
    evaluation = hokical.evaluate(cal, test, labels[200:])
    compared = hokical.compare((fit, labels[:200]), (test, labels[200:]), [cal])
    for metric in ("ece", "log_loss", "accuracy"):
        assert evaluation.score(metric) == compared["temps"].score(metric)
    alone = hokical.evaluate(None, test, labels[200:])
    assert alone.score("accuracy") == evaluation.score("accuracy")


def test_bad_arguments_are_named(cal: hokical.Calibrator) -> None:
    with pytest.raises(ValueError, match="is not fitted yet"):
        hokical.evaluate(hokical.Hoki(), *TEST)
    scores, labels = tags(50)
    with pytest.raises(
        ValueError, match="`classes` must have a name for each of the 12"
    ):
        hokical.evaluate(
            hokical.MultilabelCalibrator(), scores, labels, classes=["a", "b"]
        )
    with pytest.raises(ValueError, match=r"`classes` must have a name .* got 'abc'"):
        hokical.evaluate(None, *synthetic_logits(90, 3, seed=0), classes="abc")
    with pytest.raises(
        TypeError,
        match=r"with `predict_proba` and `classes_`, or None; got int.*`evaluate\(None, ",
    ):
        hokical.evaluate(3, *TEST)
    with pytest.raises(TypeError, match="`groups` cannot be given for a stream"):
        hokical.evaluate(cal, [TEST], groups=["a"])
    with pytest.raises(
        TypeError, match="`coverage` cannot be given with `sample_weight`"
    ):
        hokical.evaluate(cal, *TEST, coverage=0.9, sample_weight=np.ones(1000))


def test_probabilities_without_a_calibrator_are_to_be_converted() -> None:
    """There was no fit that had others."""
    proba = np.random.default_rng(0).dirichlet(np.ones(3), 300)
    labels = proba.argmax(axis=1)
    with pytest.warns(UserWarning, match=r"sum to 1. Convert them with `hokical.from_"):
        hokical.evaluate(None, proba, labels)
