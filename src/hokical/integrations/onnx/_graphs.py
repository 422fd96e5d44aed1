"""A traced graph in parts that can be worked on: nodes, constants, and what it puts out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from hokical._core.version import VERSION
from hokical.integrations.onnx._backend import onnx_module

Nodes = list[Any]


@dataclass
class Graph:
    """Nodes in order, constants by name, and the tensor behind each output, by its public name."""

    inputs: list[Any]
    nodes: Nodes
    constants: dict[str, NDArray[Any]]
    outputs: dict[str, str]
    opset: int

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """The parts of a model of the default domain."""
        graph = model.graph
        to_array = onnx_module("onnx.numpy_helper").to_array
        return cls(
            inputs=list(graph.input),
            nodes=list(graph.node),
            constants={tensor.name: to_array(tensor) for tensor in graph.initializer},
            outputs={item.name: item.name for item in graph.output},
            opset=next(item.version for item in model.opset_import if item.domain == ""),
        )

    def tensors(self) -> list[Any]:
        """The constants as tensors."""
        from_array = onnx_module("onnx.numpy_helper").from_array
        return [from_array(array, name) for name, array in self.constants.items()]

    def model(self, outputs: Iterable[Any], name: str = "calibrator") -> Any:
        """A model with these outputs, each a name with a type or without."""
        helper = onnx_module("onnx.helper")
        body = helper.make_graph(self.nodes, name, self.inputs, list(outputs), self.tensors())
        imports = [helper.make_opsetid("", self.opset)]
        oldest = helper.find_min_ir_version_for(imports)
        made = helper.make_model(body, opset_imports=imports, ir_version=oldest)
        made.producer_name, made.producer_version = "hokical", VERSION
        return made

    def untyped_model(self) -> Any:
        """A model whose outputs have names alone."""
        info = onnx_module("onnx").ValueInfoProto
        return self.model(info(name=name) for name in dict.fromkeys(self.outputs.values()))

    def number_names(self, prefix: str, public: dict[str, str]) -> None:
        """Number the tensors within, after a prefix; `public` has the names of inputs and outputs.

        An output that is an input, a constant or another output gets a node of its own.
        """
        names = {item.name: public[item.name] for item in self.inputs}
        for output, tensor in self.outputs.items():
            if tensor in names or tensor in self.constants:
                copy = f"{output}/copy"
                node = onnx_module("onnx.helper").make_node("Identity", [tensor], [copy])
                self.nodes.append(node)
                tensor = copy
            names[tensor] = public[output]
        inner = dict.fromkeys([*self.constants, *names_made(self.nodes)])
        names |= {name: f"{prefix}{k}" for k, name in enumerate(inner) if name not in names}
        rename(self.nodes, names)
        self.constants = {names[name]: array for name, array in self.constants.items()}
        self.outputs = {output: public[output] for output in self.outputs}


def infer_types(graph: Graph) -> dict[str, Any]:
    """Element type and shape of every tensor that is not a constant, as far as they are known."""
    found = onnx_module("onnx.shape_inference").infer_shapes(graph.untyped_model(), data_prop=True)
    items = (*found.graph.input, *found.graph.value_info, *found.graph.output)
    return {item.name: item.type.tensor_type for item in items}


def graphs_within(node: Any) -> Iterator[Any]:
    """The graphs that are a node's attributes, as of If, Loop and Scan."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            if graph.node or graph.output:
                yield graph


def every_node(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes, and those of the graphs within them."""
    for node in nodes:
        yield node
        for graph in graphs_within(node):
            yield from every_node(graph.node)


def names_used(node: Any) -> Iterator[str]:
    """The tensors that a node needs, and those that the graphs within it mention."""
    yield from node.input
    for graph in graphs_within(node):
        yield from (item.name for item in graph.output)
        for inner in graph.node:
            yield from names_used(inner)


def names_made(nodes: Iterable[Any]) -> Iterator[str]:
    """The tensors that nodes give, and the graphs within them."""
    for node in nodes:
        yield from node.output
        for graph in graphs_within(node):
            yield from (item.name for item in (*graph.input, *graph.initializer))
            yield from names_made(graph.node)


def rename(nodes: Iterable[Any], names: dict[str, str]) -> None:
    """Give tensors other names, in nodes and in the graphs within them; nodes need none."""
    for node in nodes:
        node.name = ""
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for graph in graphs_within(node):
            for item in (*graph.input, *graph.output, *graph.initializer):
                item.name = names.get(item.name, item.name)
            rename(graph.node, names)
