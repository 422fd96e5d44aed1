"""Functions of the traced namespace, each against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
ndonnx = pytest.importorskip("ndonnx")

from hokical._core.arrays import backend_of  # noqa: E402
from hokical.calibrators import TemperatureScaling  # noqa: E402
from hokical.integrations.onnx.namespace import BACKEND  # noqa: E402
from tests.conftest import max_examples, synthetic_logits  # noqa: E402
from tests.integrations.onnx.helpers import run  # noqa: E402


def traced(
    function: Callable[[Any, Any], Any], x: np.ndarray
) -> tuple[np.ndarray, Any]:
    """What a graph of function(namespace, x) gives, with an open first length; and
    the graph.
    """
    given = ndonnx.argument(shape=("n", *x.shape[1:]), dtype=x.dtype.name)
    model = ndonnx.build({"x": given}, {"y": function(BACKEND.namespace(given), given)})
    return run(model, x=x)["y"], model


@given(
    size=st.sampled_from([0, 1, 2, 7, 63, 64, 65, 127, 128, 200, 1024]),
    side=st.sampled_from(["left", "right"]),
    seed=st.integers(0, 10**6),
)
@max_examples(30)
def test_searchsorted(size, side, seed):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(-50, 50, size=size).astype(np.float64))
    x = np.concatenate([edges, rng.normal(scale=30.0, size=100), [-1e9, 1e9]])
    found, _ = traced(lambda xp, x: xp.searchsorted(edges, x, side=side), x)
    np.testing.assert_array_equal(found, np.searchsorted(edges, x, side=side))


@pytest.mark.sample(16)
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["max", "min", "any", "all"])
def test_reductions(name, n, axis, keepdims):
    x = np.random.default_rng(n).normal(size=(n, 3))
    options = {"axis": axis, "keepdims": keepdims}

    def reduce(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(x > 0.5 if name in ("any", "all") else x, **options)

    found, model = traced(reduce, x)
    np.testing.assert_array_equal(found, reduce(np, x))
    assert "If" not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize("name", ["sort", "argsort", "flip"])
def test_orders(name, axis):
    x = np.random.default_rng(0).integers(9, size=(4, 3, 7)).astype(np.float32)
    options = {"stable": True} if name == "argsort" else {}
    found, _ = traced(lambda xp, x: getattr(xp, name)(x, axis=axis), x)
    np.testing.assert_array_equal(found, getattr(np, name)(x, axis=axis, **options))


@pytest.mark.parametrize("n", [0, 4])
def test_matmul_and_take(n):
    rng = np.random.default_rng(0)
    x, matrix = rng.normal(size=(n, 3)), rng.normal(size=(3, 5))
    found, model = traced(lambda xp, x: xp.matmul(x, matrix), x)
    # Products may be fused with sums, so what is left of a cancellation differs.
    np.testing.assert_allclose(found, x @ matrix, rtol=1e-14, atol=1e-14)
    assert "If" not in {node.op_type for node in model.graph.node}
    found, _ = traced(lambda xp, x: xp.take(matrix, xp.argmax(x, axis=1), axis=0), x)
    np.testing.assert_array_equal(found, matrix[x.argmax(axis=1)])


def test_isfinite():
    x = np.array([0.0, -1e308, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(
        traced(lambda xp, x: xp.isfinite(x), x)[0], np.isfinite(x)
    )


def test_constants_stay_numpy_arrays_until_they_meet_a_traced_one():
    table = np.arange(6.0).reshape(2, 3)

    def work(xp: Any, x: Any) -> Any:
        beside = BACKEND.from_host(table, x)
        assert beside is BACKEND.to_host(beside)
        return xp.concat([x, 2.0 * beside[1:, ...] - 1.0 + 0.0 * x], axis=0)

    x = np.ones((1, 3))
    np.testing.assert_array_equal(
        traced(work, x)[0], np.concatenate([x, 2 * table[1:] - 1])
    )


def test_a_calibrator_in_a_graph_of_ones_own():
    """Traced arrays are arrays like any others: float32 in, float32 out."""
    logits, labels = synthetic_logits(300, 4, seed=0)
    calibrator, rows = (
        TemperatureScaling().fit(logits, labels),
        logits[:9].astype(np.float32),
    )
    found, _ = traced(lambda xp, x: calibrator.predict_confidence(2.0 * x), rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, calibrator.predict_confidence(2.0 * rows), atol=1e-7
    )
    given = ndonnx.argument(shape=("n", 4), dtype="float32")
    assert backend_of(given) is BACKEND
