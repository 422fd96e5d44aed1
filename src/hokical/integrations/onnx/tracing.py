"""A rule as a graph: its answers, computed with arrays that record what is done to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical.core.arrays import Array, to_float64
from hokical.core.conversion import LOG_ZERO, Zeros
from hokical.core.logits import Logits
from hokical.core.views import Views
from hokical.integrations.onnx.backend import BACKEND, onnx_module
from hokical.integrations.onnx.graphs import Graph
from hokical.integrations.onnx.planning import ExportPlan
from hokical.integrations.onnx.rewriting import fold_constants, simplify, use_float32, use_opset
from hokical.rules.answering import What, answer_unchecked

#: The outputs of a graph, and what of a rule they are.
_ANSWERS: dict[str, What] = {
    "labels": "labels",
    "confidence": "confidence",
    "probabilities": "proba",
}


@dataclass(frozen=True)
class ScoresLayout:
    """The shape of the scores (lengths or names), the axis of the classes, and what they hold."""

    shape: tuple[int | str, ...]
    axis: int = 1
    are_probabilities: bool = False
    zeros: Zeros = "unlikely"

    @property
    def is_flat(self) -> bool:
        """Whether they are rows (n, classes)."""
        return len(self.shape) == 2 and self.axis == 1

    @property
    def order(self) -> list[int]:
        """The axes with the classes last."""
        return [k for k in range(len(self.shape)) if k != self.axis] + [self.axis]


def trace(plan: ExportPlan, layout: ScoresLayout) -> Graph:
    """A graph from `logits`, and `transformed` where the rule needs it, to the plan's outputs."""
    ndx = onnx_module("ndonnx")
    with _quick_constants():
        scores = ndx.argument(shape=layout.shape, dtype=plan.input_dtype.name)
        inputs = {"logits": scores}
        if plan.n_transforms:
            views = (plan.n_transforms, *layout.shape)
            inputs["transformed"] = ndx.argument(shape=views, dtype=plan.input_dtype.name)
        outputs = _answers(plan, layout, scores, inputs.get("transformed"))
        graph = Graph.from_model(ndx.build(inputs, outputs))
    fold_constants(graph)
    if plan.precision == np.float32:
        use_float32(graph)
    use_opset(graph, plan.opset)
    simplify(graph)
    return graph


@contextmanager
def _quick_constants() -> Iterator[None]:
    """Let constants be evaluated in Python: a session of onnxruntime for each takes far longer."""
    future = onnx_module("spox._future")
    with future.value_prop_backend(future.ValuePropBackend.REFERENCE):
        yield


def _answers(
    plan: ExportPlan, layout: ScoresLayout, scores: Array, transformed: Array | None
) -> dict[str, Any]:
    """The outputs, in the shape of the scores."""
    xp = BACKEND.namespace(scores)
    last = scores if layout.is_flat else xp.permute_dims(scores, layout.order)
    rows = last if layout.is_flat else xp.reshape(last, (-1, plan.n_classes))
    if layout.are_probabilities:
        is_zero = to_float64(rows, xp) == 0.0
        rows = xp.log(to_float64(rows, xp))
        if layout.zeros == "unlikely":
            rows = xp.where(is_zero, LOG_ZERO, rows)
    logits = _traced_logits(rows, transformed)
    found = {}
    for name in plan.outputs:
        if name == "support" and plan.support is not None:
            answer = plan.support.holds(logits)
        else:
            answer = answer_unchecked(plan.rule, _ANSWERS[name], logits)
            answer = xp.astype(answer, getattr(xp, plan.dtype_of(name).name))
        if not layout.is_flat:
            shape = last.dynamic_shape
            answer = xp.reshape(answer, shape if name == "probabilities" else shape[:-1])
        if not layout.is_flat and name == "probabilities":
            answer = xp.permute_dims(answer, np.argsort(layout.order).tolist())
        found[name] = answer
    return found


def _traced_logits(values: Array, transformed: Array | None) -> Logits:
    """Logits, or with those of transformed inputs `Views`, whose top is NaN in unusable rows."""
    xp, own = BACKEND.namespace(values), _widen(values)
    top = _sound_top(own)
    if transformed is None:
        return Logits(own, top, BACKEND)
    views = [_widen(transformed[k, ...]) for k in range(transformed.shape[0])]
    tops = [_sound_top(view) for view in views]
    for other in tops:
        top = xp.where(xp.isfinite(other), top, xp.nan)
    others = (Logits(view, other, BACKEND) for view, other in zip(views, tops, strict=True))
    return Views.of(Logits(own, top, BACKEND), tuple(others))


def _widen(values: Array) -> Array:
    """float16 as float32, which holds the same numbers and which runtimes compute with."""
    xp = BACKEND.namespace(values)
    return xp.astype(values, xp.float32) if values.dtype == xp.float16 else values


def _sound_top(values: Array) -> Array:
    """The largest along the last axis in float64, NaN where there is one among them."""
    xp = BACKEND.namespace(values)
    top = to_float64(xp.max(values, axis=-1), xp)
    return xp.where(xp.any(xp.isnan(values), axis=-1), xp.nan, top)
