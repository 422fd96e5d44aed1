"""Comparisons: the numbers, their provenance, and the words made of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hokical import compare
from hokical.demo import demo_logits
from hokical.report.comparison import Comparison
from tests.conftest import synthetic_logits


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    logits, labels = synthetic_logits(1200, 4, seed=2)
    methods = ["uncalibrated", "temps", "vecs", "hoki"]
    halves = (logits[:600], labels[:600]), (logits[600:], labels[600:])
    return compare(*halves, methods, n_resamples=50, progress=False)


def test_results_are_those_of_the_calibrators(comparison: Comparison) -> None:
    assert [result.name for result in comparison.results] == [
        "uncalibrated",
        "temps",
        "vecs",
        "hoki",
    ]
    hoki = comparison["hoki"]
    assert hoki.score("accuracy") == pytest.approx(hoki.correct.mean())
    assert hoki.score("brier") == pytest.approx(((hoki.confidence - hoki.correct) ** 2).mean())
    assert comparison.best("ece").score("ece") == min(r.score("ece") for r in comparison.results)
    with pytest.raises(KeyError, match="no method 'platt' here"):
        comparison["platt"]


def test_provenance_identifies_the_data(comparison: Comparison) -> None:
    facts = comparison.provenance
    assert (facts.validation.n_rows, facts.test.n_rows, facts.test.n_classes) == (600, 600, 4)
    assert facts.validation.sha256 != facts.test.sha256
    assert {"python", "hokical", "numpy"} <= set(facts.versions)
    assert json.loads(json.dumps(comparison.to_dict()))["provenance"]["seed"] == 0


def test_the_headline_says_what_happened(comparison: Comparison) -> None:
    words = comparison.headline("temps")
    assert "fell from" in words
    assert "95% certainty" in words
    assert f"{comparison['temps'].summary.bounds['bousquet']:.4f}" in words
    assert words.count("is right") == 1
    assert "stayed, going from" in comparison.headline("uncalibrated")
    if comparison["vecs"].score("accuracy") != comparison["uncalibrated"].score("accuracy"):
        assert comparison.headline("vecs").count("is right") == 2


def test_the_subject_is_settled_without_the_scores(comparison: Comparison) -> None:
    assert comparison.subject() == "hoki"
    without = Comparison(comparison.results[:3], comparison.provenance)
    assert without.subject() == "vecs"
    assert Comparison(comparison.results[:1], comparison.provenance).subject() == "uncalibrated"
    assert not comparison.provenance.tested_on_validation


def test_methods_that_cannot_be_compared_are_named() -> None:
    data = synthetic_logits(50, 3, seed=0)
    with pytest.raises(ValueError, match="cannot hold 'recal': it also needs"):
        compare(data, data, ["temps", "recal"])
    with pytest.raises(ValueError, match="`name` must be one of"):
        compare(data, data, ["platt"])


def test_a_fit_that_does_not_converge_leaves_a_note() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    labels = logits.argmax(axis=1)
    result = compare((logits, labels), (logits, labels), ["temps"], n_resamples=10).results[0]
    assert any("did not converge" in note for note in result.notes)
    assert result.to_dict()["converged"] is False


def test_shipped_logits_are_what_they_should_be() -> None:
    (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    assert val_logits.shape == (5000, 10)
    assert test_logits.shape == (10_000, 10)
    assert (test_logits.argmax(axis=1) == test_labels).mean() == pytest.approx(0.915)
    assert (val_logits.argmax(axis=1) == val_labels).mean() == pytest.approx(0.920)
