"""What is done to traced graphs: they get smaller, older or narrower, and say the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
ndonnx = pytest.importorskip("ndonnx")

from hokical.integrations.onnx._backend import BACKEND  # noqa: E402
from hokical.integrations.onnx._graphs import Graph  # noqa: E402
from hokical.integrations.onnx._rewriting import fold_constants, simplify, use_float32, use_opset  # noqa: E402
from tests.conftest import max_examples  # noqa: E402
from tests.integrations.onnx.helpers import run  # noqa: E402
from tests.rules.making import seeds  # noqa: E402


def graph_of(function, dtype: str = "float64", xp=None) -> Graph:
    """y = function(xp, x) for x (n, 3)."""
    x = ndonnx.argument(shape=("n", 3), dtype=dtype)
    y = function(xp or BACKEND.namespace(x), x)
    return Graph.from_model(ndonnx.build({"x": x}, {"y": y}))


def evaluate(graph: Graph, x: np.ndarray) -> np.ndarray:
    graph.number_names("t", {"x": "x", "y": "y"})
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    model = graph.model([onnx.helper.make_tensor_value_info("y", kind, [None, None])])
    onnx.checker.check_model(model)
    return run(model, x=x)["y"]


def kinds_of(graph: Graph) -> list[str]:
    return sorted(node.op_type for node in graph.nodes)


OPERATIONS = (
    lambda xp, a, b: a + b,
    lambda xp, a, b: a * b - 0.5,
    lambda xp, a, b: xp.where(a > b, a, xp.zeros_like(b)),
    lambda xp, a, b: xp.sum(a, axis=1, keepdims=True) * b,
    lambda xp, a, b: xp.max(a, axis=1, keepdims=True) - b,
    lambda xp, a, b: xp.concat([a - b, b - a], axis=1)[:, 1:4] * np.array([1.0, 2.0, 3.0]),
    lambda xp, a, b: xp.ones_like(a) * 3.0 - xp.ones_like(b),
    lambda xp, a, b: a * (1.0 + 1e-9) + b / (1.0 - 1e-12),
)


@pytest.mark.slow
@given(seed=seeds)
@max_examples(25)
def test_a_simplified_graph_says_the_same(seed):
    """Random programs, each result used again."""

    def program(xp, x):
        rng = np.random.default_rng(seed)
        known = [x, xp.asarray(np.array([[0.25, -0.5, 1.5]]))]
        for _ in range(8):
            a, b = (known[k] for k in rng.integers(len(known), size=2))
            known.append(OPERATIONS[rng.integers(len(OPERATIONS))](xp, a, b))
        return known[-1] + 0.0 * x

    x = np.random.default_rng(seed).normal(size=(5, 3))
    graph = graph_of(program)
    nodes = len(graph.nodes)
    fold_constants(graph)
    use_opset(graph, 13 if seed % 2 else 21)
    simplify(graph)
    assert len(graph.nodes) <= nodes
    np.testing.assert_allclose(evaluate(graph, x), program(np, x), rtol=1e-13)


def test_constants_and_repetitions_leave_no_nodes():
    def work(xp, x):
        table = xp.sum(xp.asarray(np.eye(3)) * 2.0, axis=0)
        once, again = x * table, x * xp.asarray(np.full(3, 2.0))
        return xp.where(x > 0.0, once + again, x)

    graph = graph_of(work)
    simplify(graph)
    assert kinds_of(graph) == ["Add", "Greater", "Mul", "Where"]
    x = np.array([[1.0, -1.0, 2.0]])
    np.testing.assert_array_equal(evaluate(graph, x), [[4.0, -1.0, 8.0]])


@pytest.mark.parametrize("factor", [1.0 - 2.0**-52, 1.0 + 1e-9, 1.0 - 2e-8])
def test_factors_that_a_runtime_would_drop(factor):
    x = np.array([[1.0, 0.3, -3.0]])
    for scaled in (lambda x: x * factor, lambda x: factor * x, lambda x: x / factor):

        def excess(xp, x, scaled=scaled):
            y = xp.exp(x)
            return scaled(y) - y

        assert not evaluate(graph_of(excess), x).any(), "the guard is not needed any more"
        graph = graph_of(excess)
        simplify(graph)
        np.testing.assert_allclose(evaluate(graph, x), excess(np, x), rtol=1e-6, atol=1e-15)


def test_an_output_that_is_an_input_or_a_constant_has_a_node():
    for work in (lambda xp, x: x, lambda xp, x: xp.asarray(np.ones((1, 3)))):
        graph = graph_of(work)
        simplify(graph)
        np.testing.assert_array_equal(evaluate(graph, np.ones((1, 3))), np.ones((1, 3)))


@pytest.mark.slow
def test_branches_of_other_rules_are_kept():
    """ndonnx's own `max` and `@` branch; their inner tensors are renamed with the others."""
    matrix = np.arange(6.0).reshape(3, 2)

    def work(xp, x):
        return xp.max(x, axis=1, keepdims=True) + (x * 2.0) @ xp.asarray(matrix)

    graph = graph_of(work, xp=ndonnx)
    with pytest.raises(ValueError, match="`opset` must be 18 or later for Reduce"):
        use_opset(graph, 17)
    graph = graph_of(work, xp=ndonnx)
    use_opset(graph, 20)
    simplify(graph)
    assert "If" in kinds_of(graph)
    x = np.random.default_rng(0).normal(size=(4, 3))
    expected = x.max(axis=1, keepdims=True) + 2.0 * x @ matrix
    # Products may be fused with sums, so what is left of a cancellation differs.
    np.testing.assert_allclose(evaluate(graph, x), expected, rtol=1e-14, atol=1e-14)


def test_an_operator_that_an_opset_lacks():
    graph = graph_of(lambda xp, x: xp.astype(~xp.astype(x, xp.int64), xp.float64))
    with pytest.raises(ValueError, match="`opset` must be one that has BitwiseNot"):
        use_opset(graph, 17)


def test_float32():
    """Huge and tiny numbers stay finite and positive, and what is below 1 stays below."""

    def work(xp, x):
        wide = xp.astype(x, xp.float64)
        return xp.astype(xp.clip(wide, 1e-290, 1e150) * (1.0 - 2.0**-52), xp.float32)

    graph = graph_of(work, "float32")
    use_float32(graph)
    simplify(graph)
    assert "Cast" not in kinds_of(graph)
    assert {array.dtype for array in graph.constants.values()} == {np.dtype(np.float32)}
    found = evaluate(graph, np.array([[0.0, 1.0, np.inf]], np.float32))
    assert 0.0 < found[0, 0] < 1e-20
    assert found[0, 1] == np.nextafter(np.float32(1), np.float32(0))
    assert 1e20 < found[0, 2] < np.inf
