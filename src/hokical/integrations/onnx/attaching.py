"""A calibrator behind an exported classifier: one file gives its outputs, labels and confidence."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from hokical._warnings import warn_user
from hokical.calibrators import BaseCalibrator, ReCal
from hokical.integrations.onnx.builder import Graph, Value
from hokical.integrations.onnx.exporting import Plan, Precision, calibrated, make_plan
from hokical.integrations.onnx.methods import chosen_method
from hokical.integrations.onnx.models import (
    Scores,
    comes_from_softmax,
    find_scores,
    free_name,
    free_prefix,
    opset_of,
    read_model,
    shape_in_words,
)
from hokical.integrations.onnx.package import onnx_module
from hokical.integrations.onnx.rows import Rows
from hokical.integrations.onnx.writing import write_model


def attach(
    model: Any,
    calibrator: BaseCalibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    output: str | None = None,
    class_axis: int | None = None,
    scores: Literal["logits", "probabilities"] = "logits",
    precision: Precision = "float64",
    probabilities: bool | None = None,
) -> Any:
    """Append a fitted calibrator to a classifier, and return the model that does both.

    The classifier's outputs stay; `labels`, `confidence` and, as in `export`, `probabilities` are
    added, under `hokical_labels` and so on where the names are taken. The model keeps its opset;
    one older than 13 is converted.

    Parameters
    ----------
    model : path or onnx.ModelProto
        The classifier. A ModelProto is copied, not changed.
    calibrator : BaseCalibrator
        Fitted on this classifier's scores. `recal` adds an input `transformed` (transforms, batch,
        classes).
    path : path, optional
        Where to write the result; the file is whole or not there at all.
    output : str, optional
        Name of the tensor with the scores, an output or any other. Not needed where only one output
        of floats (batch, classes) could be meant.
    class_axis : int, optional
        Where the classes are, if not in the last of two axes: 1 for maps (batch, classes, height,
        width). Labels and confidence have the other axes, in their order.
    scores : {"logits", "probabilities"}
        What the tensor holds. Of probabilities the logarithm is calibrated, as by
        `hokical.from_probabilities`.
    precision, probabilities
        As of `export`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> from hokical.calibrators import TemperatureScaling
    >>> from hokical.integrations.onnx import attach
    >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    >>> y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])
    >>> graph = helper.make_graph([helper.make_node("Neg", ["x"], ["scores"])], "net", [x], [y])
    >>> network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> both = attach(network, TemperatureScaling().fit(logits, labels))
    >>> [item.name for item in both.graph.output]
    ['scores', 'labels', 'confidence', 'probabilities']
    """
    if scores not in ("logits", "probabilities"):
        raise ValueError(f'`scores` must be "logits" or "probabilities"; got {scores!r}.')
    whole = read_model(model)
    found = find_scores(whole, output, class_axis, getattr(calibrator, "n_classes_", 0))
    wide = "float64" if found.dtype == "float64" else "float32"
    opset = opset_of(whole)
    assert opset is not None
    plan = make_plan(calibrator, opset, wide, precision, probabilities)
    axis, rank = _checked_axis(found, class_axis, plan.n_classes)
    if scores == "logits" and comes_from_softmax(whole, found.name):
        warn_user(
            f"{found.name!r} comes from a softmax or sigmoid, so it holds probabilities, and is "
            'taken for logits. Pass `scores="probabilities"`, or the name of the logits as '
            "`output`.",
            UserWarning,
        )
    graph = Graph(opset=opset, precision=plan.precision, prefix=free_prefix(whole))
    _append(whole, calibrator, plan, graph, _Place(found, axis, rank, scores))
    props = {item.key: item.value for item in whole.metadata_props}
    props |= plan.metadata(calibrator)
    props |= {"hokical_scores": found.name, "hokical_scores_are": scores}
    props |= {"hokical_class_axis": str(axis)}
    onnx_module("onnx.helper").set_model_props(whole, props)
    write_model(whole, path)
    return whole


class _Place:
    """Where the scores are, and how they become rows (n, classes) and back."""

    def __init__(self, found: Scores, axis: int, rank: int, kind: str) -> None:
        self.found, self.axis, self.rank, self.kind = found, axis, rank, kind
        self.flat = rank == 2 and axis == 1
        self.order = [k for k in range(rank) if k != axis] + [axis]

    def rows(self, graph: Graph, plan: Plan) -> tuple[Rows, Value]:
        """The rows, and the scores with the classes last, from which they were cut."""
        values = graph.value(self.found.name)
        dtype = plan.input_dtype
        if self.found.dtype in ("float16", "bfloat16"):
            values = values.cast(dtype)
        if self.kind == "probabilities":
            values, dtype = values.as_float().log(), plan.precision
        last = values if self.flat else graph.op("Transpose", values, perm=self.order)
        table = last if self.flat else graph.op("Reshape", last, np.array([-1, plan.n_classes]))
        return Rows.of(graph, table.name, dtype, plan.n_classes), last

    def restored(self, graph: Graph, name: str, value: Value, last: Value) -> Value:
        """A result of the rows in the shape of the scores."""
        if self.flat:
            return value
        shape = graph.op("Shape", last)
        if name == "probabilities":
            back = np.argsort(self.order).tolist()
            return graph.op("Transpose", graph.op("Reshape", value, shape), perm=back)
        leading = graph.op("Slice", shape, np.array([0]), np.array([self.rank - 1]))
        return graph.op("Reshape", value, leading)

    def shape(self, name: str) -> list[int | str | None]:
        """The shape of a result, as far as it is known."""
        known = self.found.shape or (None,) * self.rank
        if name == "probabilities":
            return list(known)
        return [known[k] for k in range(self.rank) if k != self.axis]


def _append(
    whole: Any, calibrator: BaseCalibrator, plan: Plan, graph: Graph, place: _Place
) -> None:
    """Put the calibrator's nodes, constants and outputs into the model."""
    rows, last = place.rows(graph, plan)
    transformed = free_name(whole, "transformed")
    method = chosen_method(calibrator)
    if isinstance(method, ReCal):
        if not place.flat:
            raise ValueError("recal can only be attached to scores (batch, classes).")
        shape = [method.n_transforms_, place.shape("labels")[0], plan.n_classes]
        whole.graph.input.append(plan.value_info(transformed, shape, plan.input_dtype))
    for name, value in calibrated(calibrator, plan, rows, transformed).items():
        final = place.restored(graph, name, value, last)
        public = free_name(whole, name)
        graph.rename(final, public)
        whole.graph.output.append(plan.value_info(public, place.shape(name), plan.dtype_of(name)))
    whole.graph.node.extend(graph.nodes)
    whole.graph.initializer.extend(graph.initializers)


def _checked_axis(found: Scores, class_axis: int | None, n_classes: int) -> tuple[int, int]:
    """The axis of the classes, counted from the front, and the number of axes."""
    rank = 2 if found.shape is None else len(found.shape)
    if class_axis is None and rank != 2:
        raise ValueError(
            f"`class_axis` must say where the classes are in {found.name!r}, which has shape "
            f"{found.shape}: 1 for maps (batch, classes, height, width), -1 if they come last."
        )
    axis = 1 if class_axis is None else class_axis
    if rank < 2 or not -rank <= axis < rank:
        raise ValueError(
            f"`class_axis` must be an axis of {found.name!r}, which has {rank}; got {class_axis}."
        )
    axis %= rank
    if found.shape is None:
        return axis, rank
    length = found.shape[axis]
    if isinstance(length, int) and length != n_classes:
        raise ValueError(
            f"`calibrator` must have as many classes as the model; it has {n_classes}, and "
            f"{found.name!r} of shape {shape_in_words(found.shape)} has {length} in axis {axis}. "
            "Fit it on this model's scores, or name another tensor as `output`."
        )
    return axis, rank
