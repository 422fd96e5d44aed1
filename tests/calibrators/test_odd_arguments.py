"""Calibrators refuse arguments of another type by name, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hokical import Calibrator, calibration_bound, load, make
from hokical.calibrators import SurvivalCalibrator, method_names, with_sets
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(120, 3, seed=1)
FRAME = pd.DataFrame({"x": [1.0, 2.0]})


@cache
def calibrator() -> Calibrator:
    return make("temps").fit(LOGITS, LABELS)


REFUSED: dict[str, tuple[Callable[[Calibrator], Any], str]] = {
    "dtype": (lambda cal: cal.predict_proba(LOGITS, dtype="auto"), "`dtype` must be"),
    "frame for a dtype": (
        lambda cal: cal.predict_proba(LOGITS, dtype=FRAME),  # type: ignore[arg-type]
        "`dtype` must be",
    ),
    "huge logits": (lambda cal: cal.predict([[10**400, 0, 0]]), "`logits` must be num"),
    "label": (
        lambda cal: cal.predict_interval(LOGITS, label=[[1.0], [2, 3]]),  # type: ignore[arg-type]
        "`label` must be a class",
    ),
    "label of a frame": (
        lambda cal: cal.detect(LOGITS, FRAME),  # type: ignore[arg-type]
        "`label` must be a class",
    ),
    "risk": (lambda cal: cal.predict_or_abstain(LOGITS, risk=10**400), "`risk` must"),
    "penalty": (
        lambda cal: cal.predict_set(LOGITS, penalty=np.zeros(2)),  # type: ignore[arg-type]
        "`penalty` must be a number",
    ),
    "pooled": (
        lambda cal: cal.predict_set(LOGITS, pooled=FRAME),  # type: ignore[arg-type]
        "`pooled` must be one of",
    ),
    "empty sets": (
        lambda cal: cal.predict_set(LOGITS, allow_empty=[1]),  # type: ignore[arg-type]
        "`allow_empty` must be one of",
    ),
    "for whom": (
        lambda cal: cal.control_risk(
            LOGITS,
            LABELS,
            loss="miscoverage",
            risk=0.2,
            by=FRAME,  # type: ignore[arg-type]
        ),
        "`by` must be one of",
    ),
    "column in an array": (lambda cal: make("temps").fit(LOGITS, "label"), "`labels`"),
    "one text of classes": (
        lambda cal: make("temps").fit(LOGITS, LABELS, classes="abc"),
        "`classes` must be a sequence of names",
    ),
    "number of classes": (lambda cal: method_names(FRAME), "`n_classes` must be"),  # type: ignore[arg-type]
    "row": (
        lambda cal: cal.predict_set(LOGITS, coverage=0.8).labels([1]),  # type: ignore[arg-type]
        "`row` must be the number",
    ),
    "abstained": (
        lambda cal: cal.predict_or_abstain(LOGITS, risk=0.4).labels_or(-(10**30)),
        "`abstained` must be one label",
    ),
    "many for abstained": (
        lambda cal: cal.predict_or_abstain(LOGITS, risk=0.4).labels_or([1, 2, 3]),
        "`abstained` must be one label",
    ),
    "for whom sets are": (
        lambda cal: with_sets(cal, coverage=0.8, by=FRAME),  # type: ignore[arg-type]
        "`by` must be one of",
    ),
    "brier score": (
        lambda cal: calibration_bound(0.1, 99, brier=np.timedelta64(1, "s")),  # type: ignore[arg-type]
        "`brier` must lie in",
    ),
    "counts": (
        lambda cal: cal.certify(LOGITS, LABELS, counts=FRAME),  # type: ignore[arg-type]
        "`counts` must be one of",
    ),
    "survived": (
        lambda cal: SurvivalCalibrator().fit([["a", "b"]], [True, False]),
        "`survived` must be True or False",
    ),
    "texts for binary scores": (
        lambda cal: make("platt").fit(np.array(["a", "b"], object), [0, 1]),
        "1-D `logits` must be scores",
    ),
    "nothing for binary scores": (
        lambda cal: make("beta").fit(np.array([1.0, None], object), [0, 1]),
        "1-D `logits` must be scores",
    ),
}


def test_objects_of_numbers_are_binary_scores() -> None:
    scores = LOGITS[:, 0]
    right = LABELS == 0
    plain = make("platt").fit(scores, right).predict_proba(scores)
    objects = scores.astype(object)
    of_objects = make("platt").fit(objects, right).predict_proba(objects)
    np.testing.assert_array_equal(of_objects, plain)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(case: str) -> None:
    work, words = REFUSED[case]
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        work(calibrator())


def test_a_group_per_row() -> None:
    groups = np.array(["a", "b"] * 60)
    cal = make("auto").fit(LOGITS, np.where(groups == "a", LABELS, 0), groups=groups)
    for odd in (3, None, True):
        with pytest.raises(TypeError, match="`groups` must be one group per row"):
            cal.group_codes(odd)


def test_shares_may_be_fractions_and_groups_huge() -> None:
    cal = make("temps").fit(LOGITS, LABELS)
    third = cal.predict_or_abstain(LOGITS, risk=Fraction(1, 3))  # type: ignore[arg-type]
    expected = cal.predict_or_abstain(LOGITS, risk=1 / 3)
    np.testing.assert_array_equal(third.accepted, expected.accepted)
    sets = cal.predict_set(LOGITS, coverage=Fraction(2, 3))  # type: ignore[arg-type]
    assert sets.coverage == 2 / 3
    ages = np.linspace(20, 60, 120)
    learned = make("auto").fit(LOGITS, np.where(ages < 40, LABELS, 0), groups=ages)
    learned.group_codes([10**400])


def test_metadata_that_no_file_can_hold_is_refused(tmp_path) -> None:
    """It was written, and the file refused by `load`."""
    with pytest.raises(TypeError, match="`metadata` must be a dict"):
        calibrator().save(tmp_path / "c.json", metadata=["a"])  # type: ignore[arg-type]
    calibrator().save(tmp_path / "c.json", metadata={"a": 1})
    assert load(tmp_path / "c.json").metadata_ == {"a": 1}
