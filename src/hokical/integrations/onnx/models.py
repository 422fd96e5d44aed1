"""ONNX models: other people's are read, traced ones rewritten for a runtime, and all
written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.runtime import import_optional
from hokical._core.storage import replace_file
from hokical._core.version import VERSION

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

onnx = import_optional("onnx", "onnx")
helper = onnx.helper

#: The opset that is written unless another is asked for, and the oldest that can be.
DEFAULT_OPSET = 17
OLDEST_OPSET = 13
#: Both names of the domain of ONNX's own operators.
_DEFAULT_DOMAIN = ("", "ai.onnx")
#: Bytes of the largest protobuf file, less some room for its head.
LARGEST_FILE = (1 << 31) - (1 << 20)
#: The numbers that ONNX gives to types.
FLOAT = 1
DOUBLE = 11
_FLOATS = {FLOAT: "float32", 10: "float16", DOUBLE: "float64", 16: "bfloat16"}
#: The smallest and the largest size of numbers that float64 becomes, so that products of
#: two are numbers of float32 too.
_MIN_SIZE = 1e-30
_MAX_SIZE = 1e30

Shape = Sequence[int | str | None]


def read_model(model: ModelProto | str | os.PathLike[str]) -> tuple[ModelProto, int]:
    """A copy of a ModelProto, or of the model in a file, and its opset.

    A model without an opset is given one for calibrators.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(load_model(model))
    if not copy.graph.output:
        raise ValueError("`model` must have outputs; got a graph without any.")
    if not _fits_into_a_file(copy):
        raise ValueError(
            "the model must be at most 2 GB to be one file; got a larger one. Export "
            "the calibrator by itself and run it on the network's output, or store the "
            "network in float16."
        )
    versions = (
        int(operators.version)
        for operators in copy.opset_import
        if operators.domain in _DEFAULT_DOMAIN
    )
    opset = next(versions, 0)
    if not opset:
        opset = DEFAULT_OPSET
        copy.opset_import.append(helper.make_opsetid("", opset))
    check_opset(opset, "the opset of `model`")
    return copy, opset


def _fits_into_a_file(model: ModelProto) -> bool:
    protobuf = import_optional("google.protobuf.message", "onnx")
    try:
        return bool(model.ByteSize() <= LARGEST_FILE)
    except protobuf.EncodeError:  # above 2 GB there is no size
        return False


def load_model(model: ModelProto | str | os.PathLike[str]) -> ModelProto:
    """A ModelProto itself, or the model in a file, with all its weights."""
    if isinstance(model, (str, os.PathLike)):
        try:
            loaded: ModelProto = onnx.load(os.fspath(model), format="protobuf")
            return loaded
        except (
            import_optional("google.protobuf.message", "onnx").DecodeError,
            TypeError,
        ) as error:
            raise ValueError(
                f"`model` must be an ONNX file; {model} is not: {error}"
            ) from error
        except onnx.checker.ValidationError as error:
            raise ValueError(
                f"`model` must lie beside its external data; {model} does not: {error}"
            ) from error
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(
            f"`model` must be a path or a ModelProto; got {type(model).__name__}."
        )
    proto: ModelProto = model
    weights = proto.graph.initializer
    absent = [
        tensor.name for tensor in weights if tensor.data_location == tensor.EXTERNAL
    ]
    if absent:
        raise ValueError(
            f"`model` must hold its weights; {len(absent)} tensors, {absent[0]!r} "
            "among them, are in files that were not loaded. Give the path, or load it "
            "with its external data."
        )
    return proto


def check_opset(opset: Any, name: str = "`opset`") -> None:
    """Raise for an opset that this `onnx` cannot write."""
    newest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {opset!r}.")
    if not OLDEST_OPSET <= opset <= newest:
        raise ValueError(
            f"{name} must be from {OLDEST_OPSET} to {newest}, the newest this `onnx` "
            f"knows; got {opset}. Use {DEFAULT_OPSET}, or for a model "
            f"`onnx.version_converter.convert_version(model, {DEFAULT_OPSET})`."
        )


@dataclass(frozen=True)
class ScoresTensor:
    """A tensor of a classifier's scores, with the axis of the classes from the front."""

    name: str
    dtype: str
    shape: Shape
    axis: int


@dataclass(frozen=True)
class _FloatTensor:
    """A tensor of floats; one of unknown shape is taken for (batch, classes)."""

    name: str
    dtype: str
    shape: Shape

    def has_axis(self, class_axis: int | None) -> bool:
        """Whether the classes may be along an axis; by default the last of two."""
        n_axes = len(self.shape)
        if class_axis is None:
            return n_axes == 2
        return n_axes >= 2 and -n_axes <= class_axis < n_axes

    def fits(self, class_axis: int | None, n_classes: int) -> bool:
        """Whether the axis of the classes may have that length."""
        length = self.shape[1 if class_axis is None else class_axis]
        return not isinstance(length, int) or length == n_classes


def find_scores(
    model: ModelProto, output: str | None, class_axis: int | None, n_classes: int
) -> ScoresTensor:
    """The tensor called `output`, or the only output that can be the scores."""
    tensors = _float_tensors(model)
    if output is None:
        output = _choose_output(model, tensors, class_axis, n_classes)
    elif output not in names_in([model.graph]):
        outputs = [item.name for item in model.graph.output]
        raise ValueError(
            f"`output` must name a tensor of the model, say one of {outputs}; got "
            f"{output!r}."
        )
    elif output not in tensors:
        raise ValueError(
            f"`output` must be a tensor of floats; {output!r} is not known to be one."
        )
    tensor = tensors[output]
    axis = _check_axis(tensor, class_axis, n_classes)
    return ScoresTensor(output, tensor.dtype, tensor.shape, axis)


def _float_tensors(model: ModelProto) -> dict[str, _FloatTensor]:
    """The tensors of floats, by name."""
    tensors = {}
    graph = onnx.shape_inference.infer_shapes(model).graph
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        if item.type.HasField("tensor_type") and tensor.elem_type in _FLOATS:
            shape = shape_of(tensor)
            tensors[item.name] = _FloatTensor(
                item.name,
                _FLOATS[tensor.elem_type],
                (None, None) if shape is None else shape,
            )
    return tensors


def _choose_output(
    model: ModelProto,
    tensors: Mapping[str, _FloatTensor],
    class_axis: int | None,
    n_classes: int,
) -> str:
    """The only output that has the axis of the classes, if possible of their length."""
    outputs = [item.name for item in model.graph.output]
    with_axis = [
        tensors[name]
        for name in outputs
        if name in tensors and tensors[name].has_axis(class_axis)
    ]
    fitting = [tensor for tensor in with_axis if tensor.fits(class_axis, n_classes)]
    candidates = fitting or with_axis
    if len(candidates) != 1:
        if any(node.op_type == "ZipMap" for node in model.graph.node):
            raise ValueError(
                "`model` must put out scores as a tensor (batch, classes); got a list "
                "of mappings (ZipMap). Convert it with `options={id(classifier): "
                "{'zipmap': False}}` of `skl2onnx.to_onnx`."
            )
        raise ValueError(
            f"`output` must say which output has the scores of {n_classes} classes: "
            f"{len(fitting)} of {outputs} could. For other shapes than (batch, classes) "
            "give `class_axis` too."
        )
    return candidates[0].name


def _check_axis(tensor: _FloatTensor, class_axis: int | None, n_classes: int) -> int:
    """The axis of the classes from the front; raise if the tensor cannot have it."""
    n_axes = len(tensor.shape)
    if class_axis is None and n_axes != 2:
        raise ValueError(
            f"`class_axis` must say where the classes are in {tensor.name!r} of shape "
            f"{tensor.shape}: 1 for (batch, classes, height, width), -1 if they are "
            "last."
        )
    if not tensor.has_axis(class_axis):
        raise ValueError(
            f"`class_axis` must be an axis of {tensor.name!r}, which has {n_axes}; got "
            f"{class_axis}."
        )
    axis = (1 if class_axis is None else class_axis) % n_axes
    if not tensor.fits(class_axis, n_classes):
        raise ValueError(
            "`calibrator` must have as many classes as the model; it has "
            f"{n_classes}, and {tensor.name!r} of shape {shape_in_words(tensor.shape)} "
            f"has {tensor.shape[axis]} in axis {axis}. Fit it on this model's scores, "
            "or name another tensor as `output`."
        )
    return axis


def shape_of(tensor: Any) -> tuple[int | str | None, ...] | None:
    """Lengths, names of lengths, or None for unknown lengths; None without a shape."""
    if not tensor.HasField("shape"):
        return None
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") else (dim.dim_param or None)
        for dim in tensor.shape.dim
    )


def describe_tensor(item: ValueInfoProto) -> str:
    """Name, type and shape of an input or output of a graph, in words.

    >>> from onnx import TensorProto, helper
    >>> describe_tensor(
    ...     helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    ... )
    'logits float32 (batch, 10)'
    """
    if not item.type.HasField("tensor_type"):
        return str(item.name)
    tensor = item.type.tensor_type
    kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    shape = shape_of(tensor)
    text = "" if shape is None else f" {shape_in_words(shape)}"
    return f"{item.name} {kind}{text}"


def shape_in_words(shape: Shape) -> str:
    """A shape without quotation marks: (batch, 10)."""
    return f"({', '.join('?' if length is None else str(length) for length in shape)})"


def names_in(graphs: Iterable[GraphProto]) -> set[str]:
    """The names of the tensors of graphs."""
    names: set[str] = set()
    for graph in graphs:
        for node in graph.node:
            names.update(node.input, node.output)
        for item in (*graph.input, *graph.output, *graph.initializer):
            names.add(item.name)
        names.update(item.values.name for item in graph.sparse_initializer)
    return names


def free_prefix(taken: set[str]) -> str:
    """A prefix that none of the names has."""
    prefixes = ("hokical/" * k for k in count(1))
    return next(p for p in prefixes if not any(name.startswith(p) for name in taken))


def cast_to_float(model: ModelProto, name: str) -> str:
    """The name of a tensor's copy in float32, which a new node makes."""
    wide = f"{free_prefix(names_in(every_graph(model.graph)))}scores"
    model.graph.node.append(helper.make_node("Cast", [name], [wide], to=FLOAT))
    return wide


def write_model(model: ModelProto, path: str | os.PathLike[str] | None) -> None:
    """Check a model and, if there is a path, write it: a crash leaves the old file
    or the new.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(
            f"the model must be valid ONNX; onnx's checker says: {error}"
        ) from error
    if path is not None:
        with replace_file(path) as stream:
            stream.write(model.SerializeToString())


def every_graph(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and those that are attributes of its nodes, as of If, Loop and Scan."""
    yield graph
    for node in graph.node:
        yield from graphs_within(node)


def graphs_within(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that are attributes of a node, at any depth."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            if graph.node or graph.output:
                yield from every_graph(graph)


def names_used(node: NodeProto) -> set[str]:
    """The tensors that a node needs, and those that the graphs within it mention."""
    names = set(node.input)
    for graph in graphs_within(node):
        names.update(item.name for item in graph.output)
        for inner in graph.node:
            names.update(inner.input)
    return names


def fold_constants(model: ModelProto) -> None:
    """Compute nodes that depend on no input, and drop constants that nothing needs."""
    graph = model.graph
    folded, remaining = _divide_nodes(graph)
    constant_names = {"", *(tensor.name for tensor in graph.initializer)}
    for node in folded:
        constant_names.update(node.output)
    needed = set().union(*map(names_used, remaining))
    names = sorted((constant_names & needed) - {""})
    values = _compute_constants(model, folded, names)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(remaining)
    _set_constants(graph, dict(zip(names, values, strict=True)))


def _divide_nodes(graph: GraphProto) -> tuple[list[NodeProto], list[NodeProto]]:
    """Nodes that depend on constants alone and make no output, and the others."""
    # An input that is left out is called "".
    constant_names = {"", *(tensor.name for tensor in graph.initializer)}
    outputs = {item.name for item in graph.output}
    folded: list[NodeProto] = []
    remaining: list[NodeProto] = []
    for node in graph.node:
        depends = not constant_names.issuperset(names_used(node))
        if depends or not outputs.isdisjoint(node.output):
            remaining.append(node)
        else:
            folded.append(node)
            constant_names.update(node.output)
    return folded, remaining


def _compute_constants(
    model: ModelProto, nodes: Sequence[NodeProto], names: Sequence[str]
) -> list[NDArray[Any]]:
    """The values of tensors that nodes make of a model's constants."""
    if not names:
        return []
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph(nodes, "constants", [], outputs, model.graph.initializer)
    constants = helper.make_model(graph, opset_imports=model.opset_import)
    evaluator = import_optional("onnx.reference", "onnx").ReferenceEvaluator(constants)
    return [np.asarray(value) for value in evaluator.run(None, {})]


def _set_constants(graph: GraphProto, arrays: dict[str, NDArray[Any]]) -> None:
    del graph.initializer[:]
    make = onnx.numpy_helper.from_array
    graph.initializer.extend(make(array, name) for name, array in arrays.items())


def use_opset(
    model: ModelProto, opset: int, outputs: Sequence[ValueInfoProto], *, narrow: bool
) -> None:
    """Write a recorded model, its constants folded, in the operators of an opset.

    The operators of rules have the same meaning in all opsets from 13 on. If `narrow`,
    float64 is computed in float32.
    """
    graph = model.graph
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer
    }
    if narrow:
        constants = {name: _narrow(array) for name, array in constants.items()}
    for subgraph in every_graph(graph):
        for node in subgraph.node:
            if narrow:
                _narrow_attributes(node)
            _fit_attributes(node, opset, constants)
    used = set().union(*map(names_used, graph.node))
    _set_constants(graph, {name: a for name, a in constants.items() if name in used})
    _write_head(model, opset, outputs)


def _narrow_attributes(node: NodeProto) -> None:
    """Use float32 in the place of float64 in constants and conversions."""
    for attribute in node.attribute:
        if attribute.t.data_type == DOUBLE:
            value = _narrow(onnx.numpy_helper.to_array(attribute.t))
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(value))
        if attribute.name == "to" and attribute.i == DOUBLE:
            attribute.i = FLOAT


def _fit_attributes(
    node: NodeProto, opset: int, constants: Mapping[str, NDArray[Any]]
) -> None:
    """Leave only attributes that the operator has in an opset.

    A tracer sets the others to their defaults, or to values that only matter without
    elements. The axes of a reduction may be an attribute instead of an input.
    """
    defs = onnx.defs
    try:
        names = defs.get_schema(node.op_type, opset, node.domain).attributes
    except defs.SchemaError as error:
        raise ValueError(
            f"`opset` must be one that has {node.op_type}, which the rule uses; got "
            f"{opset}."
        ) from error
    if "axes" in names and len(node.input) == 2:
        axes = constants.get(node.input.pop())
        if axes is None:  # in a branch, or computed
            raise ValueError(
                f"`opset` must be 18 or later for {node.op_type} as the rule uses it; "
                f"got {opset}."
            )
        node.attribute.append(helper.make_attribute("axes", axes.tolist()))
    attributes = [attribute for attribute in node.attribute if attribute.name in names]
    del node.attribute[:]
    node.attribute.extend(attributes)


def _write_head(
    model: ModelProto, opset: int, outputs: Sequence[ValueInfoProto]
) -> None:
    """Declare the outputs, the opset and the producer."""
    del model.graph.output[:], model.opset_import[:]
    model.graph.output.extend(outputs)
    model.graph.name = "calibrator"
    model.opset_import.append(helper.make_opsetid("", opset))
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    model.producer_name = "hokical"
    model.producer_version = VERSION


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32; numbers stay finite, different from 0, and below 1."""
    if array.dtype != np.float64:
        return array
    size = np.clip(np.abs(array), _MIN_SIZE, _MAX_SIZE)
    is_clipped = np.isfinite(array) & (array != 0.0)
    narrow = np.where(is_clipped, np.copysign(size, array), array).astype(np.float32)
    below_one = np.nextafter(np.float32(1), 0)
    return np.where((array < 1.0) & (narrow == 1.0), below_one, narrow)


def rename(graph: GraphProto, names: dict[str, str], prefix: str) -> None:
    """Rename tensors, by default to their names after a prefix; nodes lose theirs."""

    def new_name(name: str) -> str:
        return names.get(name, name and prefix + name)

    for subgraph in every_graph(graph):
        for item in (*subgraph.input, *subgraph.output, *subgraph.initializer):
            item.name = new_name(item.name)
        for node in subgraph.node:
            node.name = ""
            node.input[:] = map(new_name, node.input)
            node.output[:] = map(new_name, node.output)
