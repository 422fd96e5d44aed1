"""A fitted calibrator on new examples, as a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical.report import before_and_after, write_report
from tests.calibrators.test_confidence import answers
from tests.calibrators.test_multilabel import tags
from tests.conftest import synthetic_logits


def test_logits_are_measured_as_compare_does(tmp_path: Path) -> None:
    val, test = (synthetic_logits(1000, 4, seed=seed) for seed in (1, 2))
    cal = hokical.make("temps").fit(*val)
    found = before_and_after(cal, *test, n_resamples=50)
    known = hokical.compare(
        val, test, {"uncalibrated": "uncalibrated", "temps": cal}, n_resamples=50
    )
    for name in ("uncalibrated", "temps"):
        assert found[name].summary == known[name].summary
    assert found.headline() == known.headline()
    page = write_report(found, tmp_path / "page.html").read_text()
    assert "Measured on 1,000 examples of 4 classes." in page
    assert "Validation data" not in page


def test_differences_of_labels_are_by_example() -> None:
    """Doubling every label must not make an interval narrower, as no example is added."""
    cal = hokical.MultilabelCalibrator().fit(*tags(400))
    scores, labels = tags(500, 1)
    twice = hokical.MultilabelCalibrator().fit(*(np.tile(each, (1, 2)) for each in tags(400)))
    one = before_and_after(cal, scores, labels).differences()[0]
    two = before_and_after(twice, np.tile(scores, 2), np.tile(labels, 2)).differences()[0]
    assert one.verdict == "worse"  # before calibration
    assert two.high - two.low == pytest.approx(one.high - one.low, rel=0.1)


def test_a_calibrator_that_is_not_fitted_has_no_after() -> None:
    stated, right, subject = answers(500)
    found = before_and_after(
        hokical.ConfidenceCalibrator(scale=100), 100 * stated, right, groups=subject, n_resamples=0
    )
    assert [result.name for result in found.results] == ["uncalibrated"]
    assert found["uncalibrated"].score("ece") == pytest.approx(hokical.metrics.ece(stated, right))
    assert found.headline().startswith("Your model says")


def test_bad_arguments_are_named() -> None:
    scores, labels = tags(50)
    cal = hokical.MultilabelCalibrator()
    with pytest.raises(ValueError, match="`label_names` must name each of the 12 labels; got 2"):
        before_and_after(cal, scores, labels, label_names=["a", "b"])
    with pytest.raises(TypeError, match="one of hokical; got int"):
        before_and_after(3, scores, labels)  # type: ignore[arg-type]
