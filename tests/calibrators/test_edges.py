"""Inputs at the edge: numbers that are barely numbers, and outcomes of every type."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import hokical
from hokical import make
from hokical.calibrators import method_names
from hokical.metrics import ece, prediction_powered_accuracy
from tests.conftest import QUICK, synthetic_logits

RIGHT = np.random.default_rng(0).random(60) < 0.7
OUTCOMES = {
    "bool": RIGHT,
    "int": RIGHT.astype(int),
    "uint8": RIGHT.astype(np.uint8),
    "float": RIGHT.astype(float),
    "float16": RIGHT.astype(np.float16),
    "objects": RIGHT.astype(object),
    "objects of floats": RIGHT.astype(float).astype(object),
    "list": RIGHT.tolist(),
    "series": pd.Series(RIGHT),
    "boolean": pd.array(RIGHT, dtype="boolean"),
    "Int64": pd.array(RIGHT.astype(int), dtype="Int64"),
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_outcomes_of_every_type(kind: str) -> None:
    confidence = np.random.default_rng(1).random(60)
    new = np.random.default_rng(2).random(500)
    outcomes = OUTCOMES[kind]
    assert ece(confidence, outcomes) == ece(confidence, RIGHT)
    found = prediction_powered_accuracy(confidence, outcomes, new)
    assert found == prediction_powered_accuracy(confidence, RIGHT, new)


@pytest.mark.parametrize(
    "bad",
    [
        0.5 * RIGHT,
        np.where(RIGHT, 1.0, np.nan),
        RIGHT.astype(str),
        [None] * 60,
        2 * RIGHT,
    ],
)
def test_what_is_no_outcome_is_named(bad: object) -> None:
    confidence = np.full(60, 0.7)
    with pytest.raises((TypeError, ValueError), match="`correct` must be") as error:
        prediction_powered_accuracy(confidence, bad, confidence)
    assert "hokical.auto" not in str(error.value)
    with pytest.raises((TypeError, ValueError), match="`correct` must be"):
        ece(confidence, bad)


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-200])
@pytest.mark.parametrize("name", [*method_names(4), "auto"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tiny_logits_are_logits(name: str, unit: float) -> None:
    logits, labels = synthetic_logits(120, 4, seed=1, stretch=1.0)
    tiny = np.round(8.0 * logits) * unit
    proba = make(name, **QUICK.get(name, {})).fit(tiny, labels).predict_proba(tiny)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_log_probabilities_are_no_confidences() -> None:
    with pytest.raises(ValueError, match=r"`numpy.exp\(confidence\)`"):
        hokical.calibrate_confidence(np.log(np.linspace(0.1, 1.0, 60)), RIGHT)
    with pytest.raises(ValueError, match="apply a sigmoid"):
        hokical.calibrate_confidence(np.linspace(-0.5, 0.9, 60), RIGHT)


@pytest.mark.parametrize("name", ["isotonic_ovrr", "temprature", "strutured", "vec"])
def test_suggestions_are_in_the_list(name: str) -> None:
    with pytest.raises(ValueError, match="Did you mean") as error:
        make(name)
    choices, suggestion = str(error.value).split("Did you mean ")
    for method in suggestion.rstrip("?").split(" or "):
        assert repr(method) in choices
