"""The pieces of the graphs, each against its obvious twin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hokical.integrations.onnx import gaussian, uniform  # noqa: E402
from hokical.integrations.onnx.builder import Graph, Value  # noqa: E402
from hokical.integrations.onnx.methods.hoki import runs_of_levels  # noqa: E402
from hokical.integrations.onnx.rows import Rows  # noqa: E402
from hokical.integrations.onnx.search import interpolate, place  # noqa: E402
from hokical.integrations.onnx.special import (  # noqa: E402
    NORMAL_RANGE,
    TAIL_FROM,
    erfc,
    log1p,
    log_erfc,
    log_loss_of_normal,
    one_minus_exp,
)
from hokical.logits import as_logits  # noqa: E402
from hokical.stability import gaussian as core_gaussian  # noqa: E402
from hokical.stability import uniform as core_uniform  # noqa: E402
from tests.onnx.helpers import fitted, run  # noqa: E402


def evaluated(function: Callable[[Graph, Value], Value], x: np.ndarray) -> np.ndarray:
    """What a graph of float64 makes of x."""
    graph = Graph(opset=17, precision=np.float64)
    graph.rename(function(graph, graph.value("x")), "y")
    kind = graph.type_of(np.float64)
    helper = onnx.helper
    body = helper.make_graph(
        graph.nodes,
        "part",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [onnx.ValueInfoProto(name="y")],
        graph.initializers,
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return run(onnx.shape_inference.infer_shapes(model), x=x)["y"]


def test_log1p():
    x = np.concatenate([-np.geomspace(1e-300, 0.999, 300), [0.0], np.geomspace(1e-300, 1e6, 300)])
    found = evaluated(lambda graph, value: log1p(value), x[:, None])[:, 0]
    np.testing.assert_allclose(found, np.log1p(x), rtol=1e-14)


def test_one_minus_exp():
    x = np.append(np.geomspace(1e-300, 800.0, 500), 0.0)
    found = evaluated(lambda graph, value: one_minus_exp(value), x[:, None])[:, 0]
    np.testing.assert_allclose(found, -np.expm1(-x), rtol=1e-12)


def test_log_erfc():
    x = np.linspace(TAIL_FROM, 26.0, 2000)
    found = evaluated(lambda graph, value: log_erfc(value), x[:, None])[:, 0]
    np.testing.assert_allclose(found, np.log(special.erfc(x)), atol=2e-11)
    found = evaluated(lambda graph, value: erfc(value), x[:, None])[:, 0]
    np.testing.assert_allclose(found, special.erfc(x), rtol=2e-11)


def test_log_loss_of_normal():
    x = np.linspace(*NORMAL_RANGE, 2000)
    found = evaluated(lambda graph, value: log_loss_of_normal(value), x[:, None])[:, 0]
    np.testing.assert_allclose(found, np.log(-special.log_ndtr(x)), atol=3e-7)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 63, 64, 65, 200, 1024])
def test_place(size):
    rng = np.random.default_rng(size)
    edges = np.sort(rng.integers(-50, 50, size=size).astype(np.float64))
    x = np.concatenate([edges, rng.normal(scale=30.0, size=100), [-1e9, 1e9]])
    found = evaluated(lambda graph, value: place(graph, edges, value), x[:, None])[:, 0]
    np.testing.assert_array_equal(found, np.searchsorted(edges, x, side="right"))


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 10**6))
@settings(max_examples=20)
def test_interpolate(sizes, seed):
    rng = np.random.default_rng(seed)
    knots = [np.sort(rng.choice(1000, size, replace=False)).astype(float) for size in sizes]
    values = [np.sort(rng.random(size)) for size in sizes]
    offsets = np.cumsum([0, *sizes])
    x = rng.uniform(-100, 1100, size=(30, len(sizes)))
    x[:5] = [[part[k % part.size] for part in knots] for k in range(5)]

    def graph_of(graph: Graph, value: Value) -> Value:
        return interpolate(graph, np.concatenate(knots), np.concatenate(values), offsets, value)

    found = evaluated(graph_of, x)
    for column, (at, heights) in enumerate(zip(knots, values, strict=True)):
        np.testing.assert_allclose(
            found[:, column], np.interp(x[:, column], at, heights), atol=1e-12
        )


def in_graph(stability: Callable[[Rows, float], Value], logits: np.ndarray, width: float):
    def graph_of(graph: Graph, value: Value) -> Value:
        rows = Rows(graph, value, logits.shape[1], np.dtype(np.float64))
        return stability(rows, width)

    return evaluated(graph_of, logits)[:, 0]


@pytest.mark.parametrize("n_classes", [2, 3, 10, 17, 65, 66, 300])
@pytest.mark.parametrize("width", [0.5, 4.0, 40.0])
def test_uniform_stability(n_classes, width):
    """To 1e-8, the core's own error, with few rivals, many, all equal, and all but equal."""
    rng = np.random.default_rng(n_classes)
    logits = 3.0 * rng.normal(size=(30, n_classes))
    logits[0] = 0.0
    logits[1] = np.linspace(0.0, 1e-3, n_classes)
    logits[2, : n_classes // 2] = logits[2].max()
    logits[3, 1:] = -np.inf
    logits[4] = -np.geomspace(1e-4, 100.0, n_classes)
    found = in_graph(uniform.stability, logits, width)
    expected = core_uniform.stability(as_logits(logits), width)
    np.testing.assert_allclose(found, expected, atol=3e-7 if n_classes > 65 else 2e-8)


@pytest.mark.parametrize("n_classes", [2, 10, 300])
@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
def test_gaussian_stability_and_distribution(n_classes, scale):
    rng = np.random.default_rng(n_classes)
    logits = 3.0 * rng.normal(size=(30, n_classes))
    logits[0], logits[1, 1:] = 0.0, -np.inf
    checked = as_logits(logits)
    found = in_graph(gaussian.stability, logits, scale)
    np.testing.assert_allclose(found, core_gaussian.stability(checked, scale), atol=1e-11)

    def graph_of(graph: Graph, value: Value) -> Value:
        rows = Rows(graph, value, n_classes, np.dtype(np.float64))
        return gaussian.distribution(rows, scale)

    pi = evaluated(graph_of, logits)
    np.testing.assert_allclose(pi, core_gaussian.distribution(checked, scale), atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("method", ["hoki", "hoki_gaussian", "hoki_sampled"])
def test_runs_of_levels_hold_the_whole_curve(method, n_classes):
    calibrator = fitted(method, n_classes)
    curve = calibrator._curve
    first, alpha, beta = runs_of_levels(curve.schedule, curve.levels, curve.start)
    levels = np.arange(curve.levels + 1)
    run_of = np.searchsorted(first, levels, side="right") - 1
    confidence = (alpha - beta)[run_of] * (levels / curve.levels) + beta[run_of]
    np.testing.assert_array_equal(np.clip(confidence, 0.0, 1.0), curve.confidence)
    assert first.size < 200
