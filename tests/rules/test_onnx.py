"""Every rule as an ONNX graph, traced through the same code and run by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hokical._core.arrays import backend_of, to_float64
from hokical.rules import Logits, Rule, as_logits
from hokical.rules.base import predict_blocks, predict_unchecked
from tests.conftest import max_examples
from tests.rules.making import NAMES, make_case, seeds

ndonnx = pytest.importorskip("ndonnx")
onnxruntime = pytest.importorskip("onnxruntime")
future = pytest.importorskip("spox._future")
ANSWERS = ("labels", "confidence", "proba")


class Traced:
    """A rule as a graph with a free number of rows, built once and run on any."""

    def __init__(self, rule: Rule, dtype: np.dtype, n_classes: int) -> None:
        # Constants are evaluated in Python: a session of onnxruntime for each takes far
        # longer.
        with future.value_prop_backend(future.ValuePropBackend.REFERENCE):
            kind = ndonnx.from_numpy_dtype(dtype)
            values = ndonnx.argument(shape=("n", n_classes), dtype=kind)
            outputs = {
                what: predict_unchecked(rule, what, unchecked(values))
                for what in ANSWERS
            }
            model = ndonnx.build({"logits": values}, outputs)
        self.session = onnxruntime.InferenceSession(model.SerializeToString())

    def run(self, rows: np.ndarray) -> list[np.ndarray]:
        """Labels, confidence and probabilities of the rows."""
        return self.session.run(list(ANSWERS), {"logits": rows})


def unchecked(values: object) -> Logits:
    """Logits of which nothing is known; the top is NaN in rows with NaN."""
    backend = backend_of(values)
    xp = backend.namespace(values)
    top = to_float64(xp.max(values, axis=1), xp)
    return Logits(
        values, xp.where(xp.any(xp.isnan(values), axis=1), xp.nan, top), backend
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", NAMES)
def test_the_graph_answers_alike(name: str) -> None:
    for seed in (1, 5):
        check_graph(name, seed)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", NAMES)
@given(seed=seeds)
@max_examples(4)
def test_graphs_of_many_rules_answer_alike(name: str, seed: int) -> None:
    check_graph(name, seed)


def check_graph(name: str, seed: int) -> None:
    """Answers as the rule's; rows that are no logits (NaN, inf, only -inf) change no
    others.
    """
    n_classes = 2 + seed % 7
    rule, rows = make_case(name, seed, n_classes)
    graph = Traced(rule, rows.dtype, rows.shape[1])
    labels, confidence, proba = graph.run(rows)
    logits = as_logits(rows)
    np.testing.assert_array_equal(labels, predict_blocks(rule, "labels", logits))
    np.testing.assert_allclose(
        confidence, predict_blocks(rule, "confidence", logits), atol=1e-7
    )
    np.testing.assert_allclose(proba, predict_blocks(rule, "proba", logits), atol=1e-7)
    bad = rows.copy()
    bad[9, 1], bad[10, -1], bad[11] = np.nan, np.inf, -np.inf
    _, marked, vectors = graph.run(bad)
    assert np.isnan(marked[9:]).all()
    assert np.isnan(vectors[9:]).all()
    np.testing.assert_array_equal(marked[:9], confidence[:9])
    np.testing.assert_array_equal(vectors[:9], proba[:9])
