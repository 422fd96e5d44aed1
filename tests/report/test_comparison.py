"""Comparisons: the numbers, their provenance, and the words made of them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import (
    FitDataWarning,
    Hoki,
    TemperatureScaling,
    TopK,
    compare,
    evaluate,
    make,
)
from hokical.calibrators import MethodInfo, method_names
from hokical.demo import demo_logits
from hokical.metrics import brier, ece
from hokical.report.output import paired_differences
from tests.conftest import hold_often, repetitions, synthetic_logits


@pytest.fixture(scope="module")
def comparison() -> Any:
    logits, labels = synthetic_logits(1200, 4, seed=2)
    methods = ["uncalibrated", "temps", "vecs", "hoki"]
    halves = (logits[:600], labels[:600]), (logits[600:], labels[600:])
    return compare(*halves, methods, progress=False)


def test_results_are_those_of_the_calibrators(comparison: Any) -> None:
    assert [result.name for result in comparison.results] == [
        "uncalibrated",
        "temps",
        "vecs",
        "hoki",
    ]
    hoki = comparison["hoki"]
    logits, labels = (array[600:] for array in synthetic_logits(1200, 4, seed=2))
    right = hoki.calibrator.predict(logits) == labels
    assert hoki.score("accuracy") == pytest.approx(right.mean())
    confidence = hoki.calibrator.predict_confidence(logits)
    assert hoki.score("ece") == pytest.approx(ece(confidence, right))
    assert hoki.score("brier") == pytest.approx(
        brier(hoki.calibrator.predict_proba(logits), labels)
    )
    assert comparison.best("ece").score("ece") == min(
        r.score("ece") for r in comparison.results
    )
    with pytest.raises(KeyError, match="no method 'sms' here"):
        comparison["sms"]


def test_the_data_are_described(comparison: Any) -> None:
    facts = comparison["temps"].data
    assert (comparison.validation.n_rows, facts.n_rows, facts.n_classes) == (
        600,
        600,
        4,
    )
    assert not comparison.tested_on_validation
    data = synthetic_logits(60, 3, seed=0)
    with pytest.warns(FitDataWarning, match="fitted on"):
        same = compare(data, (data[0].copy(), data[1].copy()), ["temps"])
    assert same.tested_on_validation
    temps = make("temps").fit(*data)
    with pytest.warns(FitDataWarning, match="fitted on"):
        compare(synthetic_logits(60, 3, seed=1), data, ["uncalibrated", temps])
    stored = json.loads(json.dumps(comparison.to_dict()))
    assert stored["tested_on_validation"] is False
    assert stored["validation"]["n_rows"] == stored["data"]["n_rows"] == 600


def test_the_headline_says_what_happened(comparison: Any) -> None:
    temps, plain, vecs = (
        comparison[name] for name in ("temps", "uncalibrated", "vecs")
    )
    headline = temps.headline
    said, says = (f"{cal.score('mean_confidence'):.1%}" for cal in (plain, temps))
    right = f"{plain.score('accuracy'):.1%}"
    assert temps.verdict == (
        f"The model said {said} on average and was right {right} of the time; with "
        f"Temperature scaling (temps) it says {says}."
    )
    losses = [f"{cal.score('log_loss'):.4f}" for cal in (plain, temps)]
    errors = [f"{cal.score('ece'):.4f}" for cal in (plain, temps)]
    bound = temps.summary.bounds["bousquet"]
    assert temps.details == (
        f"Log loss fell from {losses[0]} to {losses[1]}; the calibration error (ECE) "
        f"fell from {errors[0]} to {errors[1]}. With 95% confidence the "
        f"calibration error is below {bound:.4f}."
    )
    assert headline == f"{temps.verdict} {temps.details}"
    assert plain.headline.startswith(
        f"The model said {said} on average and was right {right} of the time. "
        f"Log loss is {losses[0]}; the calibration error (ECE) is {errors[0]}."
    )
    assert f"below {plain.summary.bounds['bousquet']:.4f}" in plain.headline
    now = f"{vecs.score('accuracy'):.1%}"
    assert now != right
    assert f" and is right {now} of the time." in vecs.headline
    assert comparison.headline == comparison["hoki"].headline


def test_the_subject_is_settled_without_the_scores(comparison: Any) -> None:
    data = synthetic_logits(60, 3, seed=0)

    def subject(*methods: str, **options: str) -> str:
        return compare(data, data, methods, **options).subject

    assert comparison.subject == "hoki"
    assert subject("auto", "temps", "uncalibrated") == "auto"
    assert subject("uncalibrated", "vecs", "temps") == "temps"
    assert subject("uncalibrated") == "uncalibrated"
    assert subject("uncalibrated", "temps", subject="uncalibrated") == "uncalibrated"
    with pytest.raises(ValueError, match="`subject` must be one of the methods"):
        subject("uncalibrated", subject="temps")


def test_methods_that_cannot_be_compared_are_named() -> None:
    data = synthetic_logits(50, 3, seed=0)
    with pytest.raises(ValueError, match="name"):
        compare(data, data, ["sms"])
    with pytest.raises(TypeError, match="`methods` must hold names or calibrators"):
        compare(data, data, [3])
    with pytest.raises(TypeError, match="must be a list or dict"):
        compare(data, data, "temps")
    with pytest.raises(ValueError, match="different names; got 'temps' twice"):
        compare(data, data, ["temps", TemperatureScaling()])


class BinaryTemperature(TemperatureScaling.method.rule):  # type: ignore[misc]
    binary_only = True


class OnlyBinary(TemperatureScaling):
    """A method of one's own, for two classes."""

    method = MethodInfo(BinaryTemperature, "Two-class scaling", binary_only=True)


def test_estimators_with_options_fitted_or_not_and_own_classes() -> None:
    logits, labels = synthetic_logits(300, 2, seed=3)
    fitted = make("temps").fit(2 * logits, labels)
    methods = {
        "plain": "uncalibrated",
        "hoki 20": Hoki(n_bins=20),
        "old": fitted,
        "mine": OnlyBinary,
    }
    comparison = compare((logits, labels), (logits, labels), methods)
    assert [result.label for result in comparison.results] == [
        "Uncalibrated softmax (plain)",
        "Hoki (hoki 20)",
        "Temperature scaling (old)",
        "Two-class scaling (mine)",
    ]
    assert comparison["hoki 20"].calibrator.n_bins == 20
    assert comparison["old"].calibrator is fitted
    assert comparison["old"].fit_seconds is None
    listed = compare((logits, labels), (logits, labels), [Hoki(n_bins=20), Hoki()])
    assert [result.name for result in listed.results] == ["Hoki(n_bins=20)", "hoki"]


def test_methods_that_the_data_do_not_allow_are_skipped_with_a_reason() -> None:
    three = synthetic_logits(100, 3, seed=0)
    comparison = compare(three, three, {"temps": "temps", "two": OnlyBinary()})
    assert list(comparison.skipped.values()) == ["for two classes, and there are 3"]
    top = (TopK.from_logits(three[0], 2), three[1])
    comparison = compare(top, top, ["temps", "vecs"])
    assert comparison.skipped == {"vecs": "needs the logits of all classes"}
    assert not comparison["temps"].summary.vectors
    assert "Brier" in comparison.to_markdown()
    with pytest.raises(ValueError, match="must have one that the data allow"):
        compare(three, three, [OnlyBinary])


def test_differences_are_paired(comparison: Any) -> None:
    for metric in ("log_loss", "brier"):
        for difference in comparison.differences(metric, against="temps"):
            result, reference = comparison[difference.method], comparison["temps"]
            assert difference.value == pytest.approx(
                result.score(metric) - reference.score(metric)
            )
            assert difference.low <= difference.value <= difference.high
    plain = comparison.differences(against="temps")[0]
    assert (plain.method, plain.metric, plain.verdict) == (
        "uncalibrated",
        "log_loss",
        "worse",
    )
    with pytest.raises(ValueError, match="`metric` must be one of"):
        comparison.differences("auroc")


def test_methods_that_are_the_same_do_not_differ() -> None:
    data = synthetic_logits(80, 3, seed=0)
    same = compare(data, data, {"a": "temps", "b": "temps"}).differences()[0]
    assert (same.value, same.p_value, same.verdict) == (0.0, 1.0, "no clear difference")


def test_the_same_probabilities_but_for_rounding_do_not_differ() -> None:
    logits, labels = synthetic_logits(2000, 5, seed=3)
    plain, shifted = (make("uncalibrated").fit(logits, labels) for _ in range(2))
    comparison = compare((logits, labels), (logits, labels), {"a": plain, "b": shifted})
    rows = comparison["b"].row_scores["log_loss"]
    for noise in (
        rows + 1e-17,
        rows * (1.0 + 1e-15),
        rows.astype(np.float32).astype(np.float64),
    ):
        odd = replace(comparison["b"], row_scores={"log_loss": noise})
        (same,) = replace(comparison, results=(comparison["a"], odd)).differences(
            against="a"
        )
        assert same.verdict == "no clear difference"
        assert same.low <= 0.0 <= same.high
    odd = replace(comparison["b"], row_scores={"log_loss": rows + 1e-4})
    (larger,) = replace(comparison, results=(comparison["a"], odd)).differences(
        against="a"
    )
    assert larger.verdict == "worse"


@pytest.mark.slow
def test_no_verdict_without_errors() -> None:
    """More confident is better on right rows: how much worse on errors, ten of them
    must show.
    """
    rng, false, held = np.random.default_rng(0), 0, 0
    margin = rng.normal(0.0, 40.0, 100_000)

    def losses(more: float) -> float:
        right = 1.0 / (1.0 + np.exp(-np.abs(margin)))
        sure = more * np.abs(margin)
        return float(
            (
                right * np.log1p(np.exp(-sure)) + (1 - right) * np.logaddexp(0.0, sure)
            ).mean()
        )

    truth = losses(3.0) - losses(1.0)
    assert truth > 0.01
    for _ in range(repetitions(400, 20)):
        log_odds = rng.choice(margin, 150)
        labels = (rng.uniform(size=150) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
        logits = np.stack([np.zeros(150), log_odds], axis=1)
        plain = evaluate(None, logits, labels)
        more = replace(evaluate(None, 3.0 * logits, labels), name="more")
        (difference,) = paired_differences([plain, more], plain)
        false += difference.verdict == "better"
        held += difference.low <= truth <= difference.high
    assert false <= 1
    assert hold_often(held, repetitions(400, 20))


def test_an_infinite_loss_is_certainly_worse() -> None:
    logits, labels = np.array([[0.0, -np.inf], [1.0, 0.0]] * 20), np.array([1, 0] * 20)
    finite = synthetic_logits(40, 2, seed=1)
    sure, plain = (make("uncalibrated").fit(*finite) for _ in range(2))
    comparison = compare(finite, (logits, labels), {"a": sure, "b": plain})
    assert comparison.differences()[0].verdict == "undefined"
    odd = replace(
        comparison["b"],
        row_scores=comparison["b"].row_scores | {"log_loss": np.ones(40)},
    )
    worse = replace(comparison, results=(comparison["a"], odd)).differences(
        against="b"
    )[0]
    assert (worse.value, worse.p_value, worse.verdict) == (math.inf, 0.0, "worse")
    assert (
        comparison.to_dict()["methods"][0]["estimates"]["log_loss"]["value"] == np.inf
    )
    assert "infinite" in comparison.to_markdown()


def test_tables_hold_the_numbers(comparison: Any, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv(tmp_path / "table.csv"))))
    assert (tmp_path / "table.csv").read_text(encoding="utf-8") == comparison.to_csv()
    frame = comparison.to_pandas()
    for row, result in zip(rows, comparison.results, strict=True):
        assert float(row["ece"]) == frame.loc[result.name, "ece"] == result.score("ece")
        assert float(row["brier_low"]) == result.summary["brier"].low
        for text in (comparison.to_markdown(), comparison.to_latex()):
            assert f"{result.score('log_loss'):.4f}" in text
            assert result.label in text
    assert "\\%" in comparison.to_latex()
    assert "\\textbf{" in comparison.to_latex()
    assert comparison.to_markdown().count("**") % 2 == 0


def test_latex_is_written_like_csv(comparison: Any, tmp_path: Path) -> None:
    text = comparison.to_latex(tmp_path / "table.tex")
    assert (tmp_path / "table.tex").read_text() == text == comparison.to_latex()
    assert comparison.to_markdown(tmp_path / "a.md") == (tmp_path / "a.md").read_text(
        "utf-8"
    )
    with pytest.raises(ValueError, match=r"must end in .tex.*got table.pdf"):
        comparison.to_latex(tmp_path / "table.pdf")


def test_latex_takes_no_name_for_markup() -> None:
    logits, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])
    named = {r"a_{b}\input{c}^~": "uncalibrated"}
    text = compare((logits, labels), (logits, labels), named).to_latex()
    name = r"a\_\{b\}\textbackslash{}input\{c\}\textasciicircum{}\textasciitilde{}"
    assert f"({name}) & " in text


def test_a_fit_that_does_not_converge_is_noted() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    labels = logits.argmax(axis=1)
    with pytest.warns(Warning, match="TemperatureScaling did not converge"):
        result = compare((logits, labels), (logits, labels), ["temps"]).results[0]
    assert "The fit did not converge." in result.notes
    assert result.method_dict()["converged"] is False


def test_shipped_logits_are_what_they_should_be() -> None:
    (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    assert val_logits.shape == (5000, 10)
    assert test_logits.shape == (10_000, 10)
    assert (test_logits.argmax(axis=1) == test_labels).mean() == pytest.approx(0.9196)
    assert (val_logits.argmax(axis=1) == val_labels).mean() == pytest.approx(0.9238)


def test_references_can_be_found() -> None:
    without_source = {"uncalibrated", "adaptive", "profile"}
    for info in (make(name).method for name in method_names()):
        source = re.search(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,}/\S", info.reference)
        assert source or info.name in without_source, info.name
        assert info.title, info.name


def test_other_models_are_refused_with_a_remedy() -> None:
    data = synthetic_logits(400, 4, seed=0)
    with pytest.raises(
        TypeError, match=r"names or calibrators; got object.*metrics.summary"
    ):
        compare(data, data, {"odd": object()})


def test_data_must_be_a_pair() -> None:
    data = synthetic_logits(400, 4, seed=0)
    with pytest.raises(TypeError, match=r"must be a pair \(logits, labels\); got dict"):
        compare({"one": data}, {"one": data})
    with pytest.raises(
        TypeError, match=r"`test` must be a pair .*; got tuple of 3\. Use `hokical"
    ):
        compare(data, (*data, data[1]))


@pytest.mark.parametrize("groups", [{"g": np.zeros(40)}, np.zeros(40), None])
def test_groups_of_a_comparison_are_a_pair(groups: Any) -> None:
    data = synthetic_logits(40, 3, seed=1)
    with pytest.raises(
        TypeError, match=r"`groups` must be a pair.*Pass `groups=\(first, second\)`"
    ):
        compare(data, data, ["temps"], groups=groups)


def test_folds_of_confidences_without_a_name_tell_how_to_name_them() -> None:
    stated = np.linspace(0.1, 0.9, 40)
    with pytest.raises(TypeError, match="'stated': confidence"):
        compare((stated, stated > 0.5), folds=5)


def alternating(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Even rows of an easy class, odd rows of a hard one."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    signal = np.where(labels == 0, 4.0, -0.5)
    logits = rng.normal(size=(n, 2))
    logits[:, 0] += signal
    return logits, labels


@pytest.mark.parametrize("size", [1, 4])
def test_coverage_of_sets_does_not_go_by_the_order_of_rows(size: int) -> None:
    """Rows, or clusters of `size` rows, whose labels alternate."""
    logits, labels = alternating(4000 // size, seed=1)
    logits = np.repeat(logits, size, axis=0)
    logits += 0.01 * np.random.default_rng(2).normal(size=logits.shape)
    labels = np.repeat(labels, size)
    cluster = None if size == 1 else np.repeat(np.arange(4000 // size), size)
    found = compare(
        alternating(1000, seed=0),
        (logits, labels),
        ["uncalibrated", "temps"],
        coverage=0.9,
        cluster=cluster,
    )
    for result in found.results:
        assert result.sets.overall.coverage == pytest.approx(0.9, abs=0.03)
        assert result.sets.overall.n == 2000


def test_what_is_before_calibration_is_a_matter_of_the_method() -> None:
    data = synthetic_logits(200, 3, seed=0)
    new = synthetic_logits(300, 3, seed=1)
    found = compare(data, new, {"temperature": "temps", "baseline": "uncalibrated"})
    assert found.subject == "temperature"
    assert found["temperature"].before is found["baseline"]
    assert found["baseline"].before is None
    assert found["baseline"].headline.startswith("The model said ")
    found = compare(data, new, {"uncalibrated": "temps", "second": "vecs"})
    assert found["second"].before is None
    assert found["uncalibrated"].before is None
    assert found["uncalibrated"].headline.startswith("With ")
    assert found.subject == "second"


def test_what_votes_do_not_allow_is_said_in_one_sentence() -> None:
    logits, labels = synthetic_logits(100, 3, seed=0)
    votes = np.full((100, 3), 0.2) + 0.4 * np.eye(3)[labels]
    with pytest.raises(TypeError, match="need one label per row; leave it out"):
        compare((logits, labels), (logits, votes), ["temps"], coverage=0.9)
    with pytest.raises(TypeError, match="need one label per row; leave it out"):
        evaluate(None, logits, votes, coverage=0.9)
    with pytest.raises(TypeError, match="may have weights; leave it out"):
        evaluate(None, iter([(logits, labels)]), coverage=0.9)


def test_a_seed_that_nothing_would_use_is_refused() -> None:
    right = np.arange(40) % 2 == 0
    with pytest.raises(TypeError, match="`random_state` is for methods given by name"):
        compare(({"stated": right * 0.4 + 0.3}, right), folds=2, random_state=1)
