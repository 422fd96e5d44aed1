"""ONNX models: other people's are read, traced ones rewritten for a runtime, and all
written.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.runtime import import_optional
from hokical._core.storage import replace_file
from hokical._core.version import VERSION

onnx = import_optional("onnx", "onnx")
helper = onnx.helper

#: The opset that is written unless another is asked for, and the oldest that can be.
DEFAULT_OPSET = 17
OLDEST_OPSET = 13
#: Both names of the domain of ONNX's own operators.
_DEFAULT_DOMAIN = ("", "ai.onnx")
#: A protobuf file cannot be larger; some room is left for its head.
LARGEST_FILE = (1 << 31) - (1 << 20)
#: Numbers of types in ONNX.
FLOAT = 1
DOUBLE = 11
_FLOATS = {FLOAT: "float32", 10: "float16", DOUBLE: "float64", 16: "bfloat16"}
#: Numbers of float64 are cut to these sizes, so that products of two are numbers of
#: float32 too.
_LEAST = 1e-30
_MOST = 1e30

Shape = Sequence[int | str | None]


def read_model(model: Any) -> tuple[Any, int]:
    """A copy of a ModelProto, or what a file holds; and its opset, one for
    calibrators.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(load_model(model))
    if not copy.graph.output:
        raise ValueError("`model` must have outputs; got a graph without any.")
    try:
        fits = copy.ByteSize() <= LARGEST_FILE
    except import_optional(
        "google.protobuf.message", "onnx"
    ).EncodeError:  # it has no size at all
        fits = False
    if not fits:
        rule = "the model must be at most 2 GB to be one file; got a larger one"
        remedy = "Export the calibrator by itself and run it on the network's output"
        raise ValueError(f"{rule}. {remedy}, or store the network in float16.")
    versions = (
        int(x.version) for x in copy.opset_import if x.domain in _DEFAULT_DOMAIN
    )
    opset = next(versions, 0)
    if not opset:
        opset = DEFAULT_OPSET
        copy.opset_import.append(helper.make_opsetid("", opset))
    check_opset(opset, "the opset of `model`")
    return copy, opset


def load_model(model: Any) -> Any:
    """A ModelProto itself, or what a file holds, with all its weights."""
    if isinstance(model, (str, os.PathLike)):
        try:
            return onnx.load(os.fspath(model), format="protobuf")
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
    weights = model.graph.initializer
    absent = [
        tensor.name for tensor in weights if tensor.data_location == tensor.EXTERNAL
    ]
    if absent:
        raise ValueError(
            f"`model` must hold its weights; {len(absent)} tensors, {absent[0]!r} "
            "among them, are in files that were not loaded. Give the path, or load it "
            "with its external data."
        )
    return model


def check_opset(opset: Any, name: str = "`opset`") -> None:
    """Refuse what this `onnx` cannot write."""
    newest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {opset!r}.")
    if not OLDEST_OPSET <= opset <= newest:
        rule = (
            f"{name} must be from {OLDEST_OPSET} to {newest}, the newest this `onnx` "
            "knows"
        )
        remedy = f"`onnx.version_converter.convert_version(model, {DEFAULT_OPSET})`"
        raise ValueError(
            f"{rule}; got {opset}. Use {DEFAULT_OPSET}, or for a model {remedy}."
        )


def find_scores(
    model: Any, output: str | None, class_axis: int | None, n_classes: int
) -> tuple[str, str, Shape, int]:
    """The name, type and shape of the scores, and the axis of the classes, from the
    front.

    They are the tensor called `output`, or the only output that could be meant. One of
    unknown shape is taken for (batch, classes).
    """
    known = {}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor = item.type.tensor_type
        if item.type.HasField("tensor_type") and tensor.elem_type in _FLOATS:
            shape = shape_of(tensor)
            shape = (None, None) if shape is None else shape
            known[item.name] = _FLOATS[tensor.elem_type], shape
    outputs = [item.name for item in model.graph.output]
    axis = 1 if class_axis is None else class_axis

    def has_axis(name: str) -> bool:
        """Whether it can be that of the classes; by default the last of two."""
        rank = len(known[name][1])
        return (
            (rank == 2 or class_axis is not None) and rank >= 2 and -rank <= axis < rank
        )

    def fits(name: str) -> bool:
        length = known[name][1][axis]
        return not isinstance(length, int) or length == n_classes

    if output is None:
        shaped = [name for name in outputs if name in known and has_axis(name)]
        fitting = [name for name in shaped if fits(name)]
        candidates = fitting or shaped
        if len(candidates) != 1:
            rule = (
                f"`output` must say which output has the scores of {n_classes} classes"
            )
            remedy = "For other shapes than (batch, classes) give `class_axis` too."
            raise ValueError(f"{rule}: {len(fitting)} of {outputs} could. {remedy}")
        output = candidates[0]
    elif output not in names_in([model.graph]):
        rule = f"`output` must name a tensor of the model, say one of {outputs}"
        raise ValueError(f"{rule}; got {output!r}.")
    elif output not in known:
        raise ValueError(
            f"`output` must be a tensor of floats; {output!r} is not known to be one."
        )
    (dtype, shape), rank = known[output], len(known[output][1])
    if class_axis is None and rank != 2:
        rule = (
            f"`class_axis` must say where the classes are in {output!r} of shape "
            f"{shape}"
        )
        raise ValueError(
            f"{rule}: 1 for (batch, classes, height, width), -1 if they are last."
        )
    if not has_axis(output):
        rule = f"`class_axis` must be an axis of {output!r}, which has {rank}"
        raise ValueError(f"{rule}; got {class_axis}.")
    if not fits(output):
        has = (
            f"{output!r} of shape {shape_in_words(shape)} has {shape[axis]} in axis "
            f"{axis % rank}"
        )
        rule = (
            f"`calibrator` must have as many classes as the model; it has {n_classes}, "
            f"and {has}"
        )
        remedy = "Fit it on this model's scores, or name another tensor as `output`."
        raise ValueError(f"{rule}. {remedy}")
    return output, dtype, shape, axis % rank


def shape_of(tensor: Any) -> tuple[int | str | None, ...] | None:
    """Lengths, names of lengths, or None for what is not known."""
    if not tensor.HasField("shape"):
        return None
    return tuple(
        int(dim.dim_value) if dim.HasField("dim_value") else (dim.dim_param or None)
        for dim in tensor.shape.dim
    )


def describe_tensor(item: Any) -> str:
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
    words = "" if shape is None else f" {shape_in_words(shape)}"
    return f"{item.name} {kind}{words}"


def shape_in_words(shape: Shape) -> str:
    """A shape without quotation marks: (batch, 10)."""
    return f"({', '.join('?' if length is None else str(length) for length in shape)})"


def names_in(graphs: Iterable[Any]) -> set[str]:
    """The names of the tensors of graphs."""
    found: set[str] = set()
    for graph in graphs:
        found.update(
            *(node.input for node in graph.node), *(node.output for node in graph.node)
        )
        found.update(
            item.name for item in (*graph.input, *graph.output, *graph.initializer)
        )
        found.update(item.values.name for item in graph.sparse_initializer)
    return found


def free_prefix(taken: set[str]) -> str:
    """A prefix that no name has yet."""
    prefixes = ("hokical/" * k for k in count(1))
    return next(p for p in prefixes if not any(name.startswith(p) for name in taken))


def cast_to_float(model: Any, name: str) -> str:
    """The name of a tensor's copy in float32, which a new node makes."""
    wide = f"{free_prefix(names_in(every_graph(model.graph)))}scores"
    model.graph.node.append(helper.make_node("Cast", [name], [wide], to=FLOAT))
    return wide


def write_model(model: Any, path: str | os.PathLike[str] | None) -> None:
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


def names_used(node: Any) -> set[str]:
    """The tensors that a node needs, and those that the graphs within it mention."""
    found = set(node.input)
    for graph in graphs_within(node):
        found.update(item.name for item in graph.output)
        found.update(*(inner.input for inner in graph.node))
    return found


def fold_constants(model: Any) -> None:
    """Compute what depends on no input, and drop constants that nothing needs."""
    graph = model.graph
    known = {
        "",
        *(tensor.name for tensor in graph.initializer),
    }  # "" is an input left out
    outputs = {item.name for item in graph.output}
    folded: list[Any] = []
    rest: list[Any] = []
    for node in graph.node:
        constant = known.issuperset(names_used(node)) and outputs.isdisjoint(
            node.output
        )
        (folded if constant else rest).append(node)
        known.update(node.output if constant else ())
    wanted = sorted(known & set().union(*map(names_used, rest)) - {""})
    info = [onnx.ValueInfoProto(name=name) for name in wanted]
    part = helper.make_graph(folded, "constants", [], info, graph.initializer)
    constants = helper.make_model(part, opset_imports=model.opset_import)
    evaluator = import_optional("onnx.reference", "onnx").ReferenceEvaluator(constants)
    values = evaluator.run(None, {}) if wanted else []
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(rest)
    _set_constants(graph, dict(zip(wanted, map(np.asarray, values), strict=True)))


def _set_constants(graph: Any, arrays: dict[str, NDArray[Any]]) -> None:
    del graph.initializer[:]
    make = onnx.numpy_helper.from_array
    graph.initializer.extend(make(array, name) for name, array in arrays.items())


def use_opset(model: Any, opset: int, outputs: Sequence[Any], *, narrow: bool) -> None:
    """Write a recorded model, its constants folded, in the operators of an opset, 13 or
    later.

    What rules use has the same meaning in all of them. Attributes that an opset does
    not know are left out: a tracer sets them to their defaults, or to what only matters
    without elements. Axes of reductions may be an attribute. If `narrow`, what is
    computed in float64 is in float32.
    """
    defs = onnx.defs
    numpy_helper = onnx.numpy_helper
    graph = model.graph
    constants = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer
    }
    if narrow:
        constants = {name: _narrow(array) for name, array in constants.items()}
    for node in (node for part in every_graph(graph) for node in part.node):
        for attribute in node.attribute if narrow else ():
            if attribute.t.data_type == DOUBLE:
                value = _narrow(numpy_helper.to_array(attribute.t))
                attribute.t.CopyFrom(numpy_helper.from_array(value))
            if attribute.name == "to" and attribute.i == DOUBLE:
                attribute.i = FLOAT
        try:
            known = defs.get_schema(node.op_type, opset, node.domain).attributes
        except defs.SchemaError as error:
            raise ValueError(
                f"`opset` must be one that has {node.op_type}, which the rule uses; "
                f"got {opset}."
            ) from error
        if "axes" in known and len(node.input) == 2:
            axes = constants.get(node.input.pop())
            if axes is None:  # in a branch, or computed
                rule = (
                    f"`opset` must be 18 or later for {node.op_type} as the rule uses "
                    "it"
                )
                raise ValueError(f"{rule}; got {opset}.")
            node.attribute.append(helper.make_attribute("axes", axes.tolist()))
        kept = [attribute for attribute in node.attribute if attribute.name in known]
        del node.attribute[:]
        node.attribute.extend(kept)
    used = set().union(*map(names_used, graph.node))
    _set_constants(graph, {name: a for name, a in constants.items() if name in used})
    del graph.output[:], model.opset_import[:]
    graph.output.extend(outputs)
    graph.name = "calibrator"
    model.opset_import.append(helper.make_opsetid("", opset))
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    model.producer_name = "hokical"
    model.producer_version = VERSION


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """float64 as float32, finite where it was, 0 where it was, and below 1 where it
    was.
    """
    if array.dtype != np.float64:
        return array
    size = np.clip(np.abs(array), _LEAST, _MOST)
    cut = np.where(np.isfinite(array) & (array != 0.0), np.copysign(size, array), array)
    narrow = cut.astype(np.float32)
    return np.where(
        (array < 1.0) & (narrow == 1.0), np.nextafter(np.float32(1), 0), narrow
    )


def rename(graph: Any, names: dict[str, str], prefix: str) -> None:
    """Give tensors other names, by default their own after a prefix; nodes need
    none.
    """

    def new(name: str) -> str:
        return names.get(name, name and prefix + name)

    for part in every_graph(graph):
        for item in (*part.input, *part.output, *part.initializer):
            item.name = new(item.name)
        for node in part.node:
            node.name = ""
            node.input[:] = map(new, node.input)
            node.output[:] = map(new, node.output)
