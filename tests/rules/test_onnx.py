"""Every rule as an ONNX graph, traced through the same code and run by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from hokical.core.arrays import backend_of, to_float64
from hokical.core.logits import Logits, as_logits
from hokical.rules import Rule
from hokical.rules.answering import answer, answer_unchecked
from tests.rules.making import NAMES, make_case, seeds

ndonnx = pytest.importorskip("ndonnx")
onnxruntime = pytest.importorskip("onnxruntime")
ANSWERS = ("labels", "confidence", "proba")


def run_traced(rule: Rule, rows: np.ndarray) -> list[np.ndarray]:
    """The answers of a graph with a free number of rows."""
    dtype, n_classes = ndonnx.from_numpy_dtype(rows.dtype), rows.shape[1]
    values = ndonnx.argument(shape=("n", n_classes), dtype=dtype)
    outputs = {what: answer_unchecked(rule, what, unchecked(values)) for what in ANSWERS}
    model = ndonnx.build({"logits": values}, outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(list(ANSWERS), {"logits": rows})


def unchecked(values: object) -> Logits:
    """Logits of which nothing is known; the top is NaN in rows with NaN."""
    backend = backend_of(values)
    xp = backend.namespace(values)
    top = to_float64(xp.max(values, axis=1), xp)
    return Logits(values, xp.where(xp.any(xp.isnan(values), axis=1), xp.nan, top), backend)


@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@settings(max_examples=5)
def test_the_graph_answers_alike(name: str, seed: int) -> None:
    n_classes = 2 + seed % 7
    rule, rows = make_case(name, seed, n_classes)
    labels, confidence, proba = run_traced(rule, rows)
    logits = as_logits(rows)
    np.testing.assert_array_equal(labels, answer(rule, "labels", logits))
    np.testing.assert_allclose(confidence, answer(rule, "confidence", logits), atol=1e-7)
    np.testing.assert_allclose(proba, answer(rule, "proba", logits), atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_no_logits_are_marked(name: str) -> None:
    """NaN, +inf or nothing but -inf: confidence NaN, and the other rows as ever."""
    rule, rows = make_case(name, 3, 4)
    expected = run_traced(rule, rows)
    bad = rows.copy()
    bad[9, 1], bad[10, -1], bad[11] = np.nan, np.inf, -np.inf
    _, confidence, proba = run_traced(rule, bad)
    assert np.isnan(confidence[9:]).all()
    assert np.isnan(proba[9:]).all()
    np.testing.assert_array_equal(confidence[:9], expected[1][:9])
    np.testing.assert_array_equal(proba[:9], expected[2][:9])
