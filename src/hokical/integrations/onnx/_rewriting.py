"""Traced graphs rewritten: smaller, in older operators, or in float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx._backend import onnx_module
from hokical.integrations.onnx._graphs import (
    Graph,
    Nodes,
    every_node,
    infer_types,
    names_used,
    rename,
)

#: Farther from 1 than any number that is 1 in float32.
_NEAR_ONE = 1e-7
_FLOAT, _DOUBLE = 1, 11
#: Numbers of float64 are cut to these sizes, so that products of two are numbers of float32 too.
_LEAST, _MOST = 1e-30, 1e30


def simplify(graph: Graph) -> None:
    """Fewer nodes that compute the same."""
    fold_constants(graph)
    _merge_repetitions(graph)
    _guard_factors(graph)
    _drop_unused(graph)


def fold_constants(graph: Graph) -> None:
    """What depends on no input is computed now."""
    folded: Nodes = []
    rest: Nodes = []
    known = {"", *graph.constants}  # "" stands for an input left out
    for node in graph.nodes:
        constant = known.issuperset(names_used(node))
        (folded if constant else rest).append(node)
        known.update(node.output if constant else ())
    used = {name for node in rest for name in names_used(node)}
    wanted = sorted(known & (used | set(graph.outputs.values())) - {""})
    if folded:
        outputs = {name: name for name in wanted}
        part = Graph([], folded, graph.constants, outputs, graph.opset).untyped_model()
        values = onnx_module("onnx.reference").ReferenceEvaluator(part).run(None, {})
        graph.constants = {
            name: np.asarray(value) for name, value in zip(wanted, values, strict=True)
        }
    graph.nodes = rest


def _merge_repetitions(graph: Graph) -> None:
    """Equal constants, equal operators with equal operands, and identities become one."""
    names: dict[str, str] = {}
    first: dict[Any, list[str]] = {}
    for name, array in graph.constants.items():
        bits = array.dtype.str, array.shape, array.tobytes()
        names[name] = first.setdefault(bits, [name])[0]
    kept = []
    for node in graph.nodes:
        rename([node], names)
        outputs = list(node.output)
        settings = sorted(item.SerializeToString() for item in node.attribute)
        key = node.domain, node.op_type, tuple(node.input), tuple(settings)
        same = list(node.input) if node.op_type == "Identity" else first.setdefault(key, outputs)
        if same is outputs:
            kept.append(node)
        else:
            names.update(zip(outputs, same, strict=True))
    graph.nodes = kept
    graph.outputs = {public: names.get(name, name) for public, name in graph.outputs.items()}


def _guard_factors(graph: Graph) -> None:
    """Write x (1 + e) as x + x e where e is tiny, in float64.

    onnxruntime takes a factor that is 1 in float32 for 1, and leaves it out.
    """
    helper = onnx_module("onnx.helper")
    guarded = []
    for node in graph.nodes:
        factor = _factor(node, graph) if node.op_type in ("Mul", "Div") else 1.0
        if 0.0 < abs(factor - 1.0) < _NEAR_ONE:
            x = next(name for name in node.input if name not in graph.constants)
            excess, product = f"{node.output[0]}/excess", f"{node.output[0]}/product"
            graph.constants[excess] = np.array(factor - 1.0)
            guarded.append(helper.make_node("Mul", [x, excess], [product]))
            guarded.append(helper.make_node("Add", [x, product], node.output))
        else:
            guarded.append(node)
    graph.nodes = guarded


def _factor(node: Any, graph: Graph) -> float:
    """The float64 by which a node multiplies or divides a tensor; 1 if there is none."""
    tensor = graph.constants.get(node.input[-1])
    if tensor is None and node.op_type == "Mul":
        tensor = graph.constants.get(node.input[0])
    if tensor is None or tensor.dtype != np.float64 or tensor.size != 1:
        return 1.0
    return float(tensor.item() if node.op_type == "Mul" else 1.0 / tensor.item())


def _drop_unused(graph: Graph) -> None:
    """Nodes and constants that lead to no output."""
    needed, kept = set(graph.outputs.values()), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(names_used(node))
    graph.nodes = kept[::-1]
    graph.constants = {name: a for name, a in graph.constants.items() if name in needed}


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
    onnx = onnx_module("onnx")
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
