"""Traced models rewritten: constants computed, in older operators, in float32, with other names."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx.backend import onnx_module

_FLOAT, _DOUBLE = 1, 11
#: Numbers of float64 are cut to these sizes, so that products of two are numbers of float32 too.
_LEAST, _MOST = 1e-30, 1e30


def every_graph(graph: Any) -> Iterator[Any]:
    """A graph, and those that are attributes of its nodes, as of If, Loop and Scan."""
    yield graph
    for node in graph.node:
        yield from graphs_within(node)


def graphs_within(node: Any) -> Iterator[Any]:
    """The graphs that are attributes of a node, at any depth."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            if graph.node or graph.output:
                yield from every_graph(graph)


def every_node(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and of the graphs within."""
    return (node for part in every_graph(graph) for node in part.node)


def names_used(node: Any) -> set[str]:
    """The tensors that a node needs, and those that the graphs within it mention."""
    found = set(node.input)
    for graph in graphs_within(node):
        found.update(item.name for item in graph.output)
        found.update(*(inner.input for inner in graph.node))
    return found


def fold_constants(model: Any) -> None:
    """Compute what depends on no input, and drop constants that nothing needs."""
    helper, graph = onnx_module("onnx.helper"), model.graph
    known = {"", *(tensor.name for tensor in graph.initializer)}  # "" is an input left out
    outputs = {item.name for item in graph.output}
    folded: list[Any] = []
    rest: list[Any] = []
    for node in graph.node:
        constant = known.issuperset(names_used(node)) and outputs.isdisjoint(node.output)
        (folded if constant else rest).append(node)
        known.update(node.output if constant else ())
    wanted = sorted(known & set().union(*map(names_used, rest)) - {""})
    info = [onnx_module("onnx").ValueInfoProto(name=name) for name in wanted]
    part = helper.make_graph(folded, "constants", [], info, graph.initializer)
    evaluator = onnx_module("onnx.reference").ReferenceEvaluator(
        helper.make_model(part, opset_imports=model.opset_import)
    )
    values = evaluator.run(None, {}) if wanted else []
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(rest)
    _set_constants(graph, dict(zip(wanted, map(np.asarray, values), strict=True)))


def _constants(graph: Any) -> dict[str, NDArray[Any]]:
    to_array = onnx_module("onnx.numpy_helper").to_array
    return {tensor.name: to_array(tensor) for tensor in graph.initializer}


def _set_constants(graph: Any, arrays: dict[str, NDArray[Any]]) -> None:
    from_array = onnx_module("onnx.numpy_helper").from_array
    del graph.initializer[:]
    graph.initializer.extend(from_array(array, name) for name, array in arrays.items())


def use_opset(model: Any, opset: int) -> None:
    """Write a model, its constants folded, in the operators of an opset, 13 or later.

    What rules use has the same meaning in all of them. Attributes that an opset does not know are
    left out: a tracer sets them to their defaults, or to what only matters without elements. Axes
    of reductions may be an attribute.
    """
    defs, helper = onnx_module("onnx.defs"), onnx_module("onnx.helper")
    constants = _constants(model.graph)
    for node in every_node(model.graph):
        try:
            known = defs.get_schema(node.op_type, opset, node.domain).attributes
        except defs.SchemaError as error:
            raise ValueError(
                f"`opset` must be one that has {node.op_type}, which the rule uses; got {opset}."
            ) from error
        if "axes" in known and len(node.input) == 2:
            axes = constants.get(node.input.pop())
            if axes is None:  # in a branch, or computed
                raise ValueError(
                    f"`opset` must be 18 or later for {node.op_type} as the rule uses it; got "
                    f"{opset}."
                )
            node.attribute.append(helper.make_attribute("axes", axes.tolist()))
        kept = [attribute for attribute in node.attribute if attribute.name in known]
        del node.attribute[:]
        node.attribute.extend(kept)
    used = set().union(*map(names_used, model.graph.node))
    _set_constants(model.graph, {name: a for name, a in constants.items() if name in used})
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", opset))
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)


def use_float32(model: Any) -> None:
    """Compute in float32 what is computed in float64."""
    numpy_helper = onnx_module("onnx.numpy_helper")
    constants = _constants(model.graph)
    _set_constants(model.graph, {name: _narrow(array) for name, array in constants.items()})
    for node in every_node(model.graph):
        for attribute in node.attribute:
            if attribute.t.data_type == _DOUBLE:
                narrow = _narrow(numpy_helper.to_array(attribute.t))
                attribute.t.CopyFrom(numpy_helper.from_array(narrow))
            if attribute.name == "to" and attribute.i == _DOUBLE:
                attribute.i = _FLOAT


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32, finite where it was, 0 where it was, and below 1 where it was."""
    if array.dtype != np.float64:
        return array
    size = np.clip(np.abs(array), _LEAST, _MOST)
    cut = np.where(np.isfinite(array) & (array != 0.0), np.copysign(size, array), array)
    narrow = cut.astype(np.float32)
    return np.where((array < 1.0) & (narrow == 1.0), np.nextafter(np.float32(1), 0), narrow)


def rename(graph: Any, names: dict[str, str], prefix: str) -> None:
    """Give tensors other names, by default their own after a prefix; nodes need none."""

    def new(name: str) -> str:
        return names.get(name, name and prefix + name)

    for part in every_graph(graph):
        for item in (*part.input, *part.output, *part.initializer):
            item.name = new(item.name)
        for node in part.node:
            node.name = ""
            node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
