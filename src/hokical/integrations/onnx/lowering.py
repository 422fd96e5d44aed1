"""Traced graphs in older operators, and in float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx.graphs import Graph, every_node, infer_types
from hokical.integrations.onnx.package import onnx_module

_FLOAT, _DOUBLE = 1, 11
#: Numbers of float64 are cut to these sizes, so that products of two are numbers of float32 too.
_LEAST, _MOST = 1e-30, 1e30


def use_opset(graph: Graph, opset: int) -> None:
    """Write a graph, its constants folded, in the operators of an opset, 13 or later.

    What rules use has the same meaning in all of them. Attributes that an opset does not know are
    left out: a tracer sets them to their defaults, or to what only matters without elements. Axes
    of reductions may be an attribute.
    """
    defs = onnx_module("onnx.defs")
    for node in every_node(graph.nodes):
        try:
            known = defs.get_schema(node.op_type, opset, node.domain).attributes
        except defs.SchemaError as error:
            raise ValueError(
                f"`opset` must be one that has {node.op_type}, which the rule uses; got {opset}."
            ) from error
        if "axes" in known and len(node.input) == 2:
            _move_axes(node, graph, opset)
        kept = [attribute for attribute in node.attribute if attribute.name in known]
        del node.attribute[:]
        node.attribute.extend(kept)
    graph.opset = opset


def _move_axes(node: Any, graph: Graph, opset: int) -> None:
    """From the second input of a reduction to its attribute."""
    axes = graph.constants.get(node.input.pop())
    if axes is None:  # in a branch, or computed
        raise ValueError(
            f"`opset` must be 18 or later for {node.op_type} as the rule uses it; got {opset}."
        )
    attribute = onnx_module("onnx.helper").make_attribute("axes", axes.tolist())
    node.attribute.append(attribute)


def use_float32(graph: Graph) -> None:
    """Compute in float32 what is computed in float64."""
    onnx = onnx_module()
    graph.constants = {name: _narrow(array) for name, array in graph.constants.items()}
    for node in every_node(graph.nodes):
        for attribute in node.attribute:
            if attribute.t.data_type == _DOUBLE:
                narrow = _narrow(onnx.numpy_helper.to_array(attribute.t))
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(narrow))
            if attribute.name == "to" and attribute.i == _DOUBLE:
                attribute.i = _FLOAT
    kinds = {name: tensor.elem_type for name, tensor in infer_types(graph).items()}
    for node in graph.nodes:
        if node.op_type == "Cast" and kinds.get(node.input[0]) == kinds.get(node.output[0]):
            node.op_type = "Identity"
            del node.attribute[:]


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32, finite where it was, 0 where it was, and below 1 where it was."""
    if array.dtype != np.float64:
        return array
    size = np.clip(np.abs(array), _LEAST, _MOST)
    cut = np.where(np.isfinite(array) & (array != 0.0), np.copysign(size, array), array)
    narrow = cut.astype(np.float32)
    return np.where((array < 1.0) & (narrow == 1.0), np.nextafter(np.float32(1), 0), narrow)
