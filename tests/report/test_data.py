"""What a report says, before it is a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import compare
from hokical.metrics import ece, selective_risk
from hokical.report.output import best_of
from hokical.report.page import BIN_COUNTS, SCHEMES
from tests.conftest import synthetic_logits

Data = Callable[..., dict[str, Any]]
TEST = synthetic_logits(2000, 5, seed=2)


def predictions(found: Any) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness of a method on the test set of `comparison`."""
    cal = found.calibrator
    return cal.predict_confidence(TEST[0]), cal.predict(TEST[0]) == TEST[1]


def test_scores_and_the_best_are_those_of_the_comparison(
    comparison: Any, report_data: Data
) -> None:
    data = report_data(comparison)
    assert [method["name"] for method in data["methods"]] == [
        r.name for r in comparison.results
    ]
    for method in data["methods"]:
        found = comparison[method["name"]].summary["brier"]
        assert method["scores"]["brier"]["value"] == pytest.approx(
            found.value, abs=1e-6
        )
        assert method["scores"]["brier"]["low"] == pytest.approx(found.low, abs=1e-6)
        for name, found in method["scores"].items():
            assert (
                found["low"] is None or found["low"] <= found["value"] <= found["high"]
            ), name
    for score in ("accuracy", "mean_confidence"):
        assert best_of(comparison.results, score) == []
    for score in (
        "ece",
        "brier",
        "log_loss",
        "classwise_ece",
        "smooth_ece",
        "ece_mass",
    ):
        assert comparison.best(score).name in best_of(comparison.results, score)


def test_many_classes_leave_the_worst_and_a_count(report_data: Data) -> None:
    examples = synthetic_logits(600, 30, seed=0)
    data = report_data(compare(examples, examples, ["uncalibrated"]))
    classes = data["methods"][0]["classes"]
    assert len(classes["rows"]) >= 20
    assert classes["n_left_out"] > 0


def test_classes_have_their_names_or_their_numbers(report_data: Data) -> None:
    examples = synthetic_logits(300, 3, seed=0)
    for given, shown in ((("a", "<b>", "c"), ["a", "<b>", "c"]), ((), ["0", "1", "2"])):
        found = compare(examples, examples, ["temps"], classes=given)
        rows = report_data(found)["methods"][0]["classes"]["rows"]
        assert [row["name"] for row in rows] == shown
    for wrong in (("a", "b"), "abc"):
        with pytest.raises(
            ValueError, match=r"`classes` must have a name for each of the 3"
        ):
            compare(examples, examples, ["temps"], classes=wrong)


def test_bins_add_up_to_the_ece_at_every_choice(
    comparison: Any, report_data: Data
) -> None:
    data = report_data(comparison)
    for method in data["methods"]:
        result = comparison[method["name"]]
        for scheme in SCHEMES:
            for n_bins in BIN_COUNTS:
                bins = method["reliability"][scheme][str(n_bins)]
                known = ece(*predictions(result), n_bins=n_bins, bins=scheme)
                count = np.array(bins["count"])
                gaps = np.array(bins["accuracy"]) - np.array(bins["confidence"])
                gaps = (count * np.abs(gaps)).sum() / count.sum()
                assert bins["ece"] == pytest.approx(known, abs=1e-6)
                assert gaps == pytest.approx(
                    known, abs=2e-5
                )  # means are rounded to 1e-5
                assert count.sum() == 2000


def test_curves_are_thin_and_true(comparison: Any, report_data: Data) -> None:
    for method in report_data(comparison)["methods"]:
        curve, result = method["risk"], comparison[method["name"]]
        assert len(curve["risk"]) <= 200
        confidence, right = predictions(result)
        assert curve["risk"][-1] == pytest.approx(1 - right.mean(), abs=1e-5)
        place = len(curve["risk"]) // 2
        risk = selective_risk(confidence, right, coverage=curve["coverage"][place])
        assert curve["risk"][place] == pytest.approx(risk, abs=1e-3)


def test_notes_tell_of_changed_labels(comparison: Any) -> None:
    plain, temps, vecs, _ = comparison.results
    assert plain.notes == temps.notes == []
    assert vecs.may_change_labels
    assert "May change labels" in vecs.notes[0]
    assert f"instead of {plain.score('accuracy'):.2%}" in vecs.notes[0]


def test_a_fit_that_failed_in_silence_is_noted(
    comparison: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrator = comparison["temps"].calibrator
    monkeypatch.setitem(calibrator._report, "converged", False)
    assert not comparison["temps"].converged
    page = comparison.to_html(tmp_path / "page.html").read_text("utf-8")
    assert '<span class="badge">not converged</span>' in page
    assert (
        "<strong>Temperature scaling (temps)</strong>: The fit did not converge."
        in page
    )


def test_the_subject_is_shown_first(comparison: Any, report_data: Data) -> None:
    data = report_data(comparison)
    assert data["chosen"] == "hoki"
    shown = next(method for method in data["methods"] if method["name"] == "hoki")
    assert " ".join(shown["headline"]) == comparison.headline
    assert report_data(replace(comparison, subject="vecs"))["chosen"] == "vecs"


def test_without_the_uncalibrated_model(comparison: Any, report_data: Data) -> None:
    temps = replace(comparison["temps"], before=None)
    alone = replace(comparison, results=(temps,), subject="temps")
    data = report_data(alone)
    assert data["reference"] is None
    says, right = (
        f"{temps.score(name):.1%}" for name in ("mean_confidence", "accuracy")
    )
    assert data["methods"][0]["headline"][0] == (
        f"With Temperature scaling (temps) the model said {says} on average and was "
        f"right {right} of the time."
    )


def test_numbers_that_are_not_finite_become_none(report_data: Data) -> None:
    logits, labels = synthetic_logits(200, 3, seed=0)
    logits[:5] = -np.inf
    logits[:5, 0] = 0.0  # certain of class 0, and sometimes wrong
    labels[:5] = 1
    labels[5] = 0
    examples = (logits, labels)
    data = report_data(compare(examples, examples, ["uncalibrated"]))
    assert data["methods"][0]["scores"]["log_loss"]["value"] is None
    json.dumps(data, allow_nan=False)


def test_its_size_does_not_grow_with_the_test_set(report_data: Data) -> None:
    sizes = []
    for n in (2000, 20_000):
        examples = synthetic_logits(n, 3, seed=0)
        data = report_data(compare(examples, examples, ["uncalibrated"]))
        sizes.append(len(json.dumps(data)))
    assert sizes[1] < 1.5 * sizes[0] < 60_000
