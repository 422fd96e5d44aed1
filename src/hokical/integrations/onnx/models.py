"""Other people's models read (opset, names, the tensor with the scores), and models written."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from hokical._core.storage import replace_file
from hokical.integrations.onnx.backend import onnx_module
from hokical.integrations.onnx.rewriting import every_graph
from hokical.integrations.onnx.tracing import DEFAULT_OPSET, check_opset

#: Both names of the domain of ONNX's own operators.
_DEFAULT_DOMAIN = ("", "ai.onnx")
#: Nodes through which a softmax is still a softmax.
_PASSING_ON = ("Identity", "Cast", "Reshape", "Squeeze", "Flatten")
#: A protobuf file cannot be larger; some room is left for its head.
LARGEST_FILE = (1 << 31) - (1 << 20)
_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}


def read_model(model: Any) -> Any:
    """A copy of a ModelProto, or what a file holds, at an opset that calibrators can be put in."""
    copy = onnx_module("onnx").ModelProto()
    copy.CopyFrom(load_model(model))
    if not copy.graph.output:
        raise ValueError("`model` must have outputs; got a graph without any.")
    _check_size(copy)
    if not opset_of(copy):
        copy.opset_import.append(onnx_module("onnx.helper").make_opsetid("", DEFAULT_OPSET))
    check_opset(opset_of(copy), "the opset of `model`")
    return copy


def load_model(model: Any) -> Any:
    """A ModelProto itself, or what a file holds, with all its weights."""
    onnx = onnx_module("onnx")
    if isinstance(model, (str, os.PathLike)):
        try:
            return onnx.load(os.fspath(model), format="protobuf")
        except (onnx_module("google.protobuf.message").DecodeError, TypeError) as error:
            raise ValueError(f"`model` must be an ONNX file; {model} is not: {error}") from error
        except onnx.checker.ValidationError as error:
            raise ValueError(
                f"`model` must lie beside its external data; {model} does not: {error}"
            ) from error
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"`model` must be a path or a ModelProto; got {type(model).__name__}.")
    weights = model.graph.initializer
    absent = [tensor.name for tensor in weights if tensor.data_location == tensor.EXTERNAL]
    if absent:
        raise ValueError(
            f"`model` must hold its weights; {len(absent)} tensors, {absent[0]!r} among them, are "
            "in files that were not loaded. Give the path, or load it with its external data."
        )
    return model


def opset_of(model: Any) -> int:
    """The version of the default domain, 0 if the model does not use it."""
    versions = (int(x.version) for x in model.opset_import if x.domain in _DEFAULT_DOMAIN)
    return next(versions, 0)


@dataclass(frozen=True)
class Scores:
    """The tensor to calibrate: its name, element type, and shape, None where it is not known."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


def find_scores(model: Any, output: str | None, class_axis: int | None, n_classes: int) -> Scores:
    """The tensor called `output`, or the only output that could be the scores."""
    known = _float_tensors(model)
    outputs = [item.name for item in model.graph.output]
    if output is not None:
        if output not in _names([model.graph]):
            raise ValueError(
                f"`output` must name a tensor of the model, say one of {outputs}; got {output!r}."
            )
        if output not in known:
            raise ValueError(
                f"`output` must be a tensor of floats; the type of {output!r} is not one, or not "
                "known."
            )
        return known[output]
    axis = 1 if class_axis is None else class_axis
    rank = 2 if class_axis is None else None
    candidates = [known[name] for name in outputs if name in known]
    shaped = [item for item in candidates if _has_axis(item, rank, axis)]
    lengths = [None if item.shape is None else item.shape[axis] for item in shaped]
    fitting = [
        item
        for item, length in zip(shaped, lengths, strict=True)
        if not isinstance(length, int) or length == n_classes
    ]
    if not fitting and len(shaped) == 1:
        return shaped[0]  # whoever asked compares the classes, and says what is wrong
    if len(fitting) != 1:
        raise ValueError(
            f"`output` must say which output has the scores of {n_classes} classes: "
            f"{len(fitting)} of {outputs} could. For other shapes than (batch, classes) give "
            "`class_axis` too."
        )
    return fitting[0]


def _float_tensors(model: Any) -> dict[str, Scores]:
    """Every tensor of floats whose type is known."""
    inferred = onnx_module("onnx.shape_inference").infer_shapes(model).graph
    found = {}
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor = item.type.tensor_type
        if item.type.HasField("tensor_type") and tensor.elem_type in _FLOATS:
            found[item.name] = Scores(item.name, _FLOATS[tensor.elem_type], shape_of(tensor))
    return found


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
    >>> describe_tensor(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10]))
    'logits float32 (batch, 10)'
    """
    if not item.type.HasField("tensor_type"):
        return str(item.name)
    tensor = item.type.tensor_type
    kind = onnx_module("onnx.helper").tensor_dtype_to_np_dtype(tensor.elem_type).name
    shape = shape_of(tensor)
    if shape is None:
        return f"{item.name} {kind}"
    return f"{item.name} {kind} {shape_in_words(shape)}"


def shape_in_words(shape: tuple[int | str | None, ...]) -> str:
    """A shape without quotation marks: (batch, 10)."""
    return f"({', '.join('?' if length is None else str(length) for length in shape)})"


def _has_axis(scores: Scores, rank: int | None, axis: int) -> bool:
    if scores.shape is None:
        return True
    length = len(scores.shape)
    return length == rank if rank is not None else -length <= axis < length and length >= 2


def _names(graphs: Iterable[Any]) -> set[str]:
    """The tensors of graphs."""
    found: set[str] = set()
    for graph in graphs:
        found.update(*(node.input for node in graph.node), *(node.output for node in graph.node))
        found.update(item.name for item in (*graph.input, *graph.output, *graph.initializer))
        found.update(item.values.name for item in graph.sparse_initializer)
    return found


def free_name(model: Any, wanted: str) -> str:
    """The name itself, or one with a prefix where the model has it already."""
    taken = _names(every_graph(model.graph))
    numbered = (f"hokical_{wanted}_{k}" for k in count(2))
    candidates = chain([wanted, f"hokical_{wanted}"], numbered)
    return next(name for name in candidates if name not in taken)


def free_prefix(model: Any) -> str:
    """What no tensor of the model begins with."""
    taken = _names(every_graph(model.graph))
    prefixes = ("hokical/" * k for k in count(1))
    return next(p for p in prefixes if not any(name.startswith(p) for name in taken))


def comes_from_softmax(model: Any, name: str) -> bool:
    """Whether a tensor is the output of a softmax or sigmoid, as far as can be seen."""
    producers = {output: node for node in model.graph.node for output in node.output}
    while name in producers and producers[name].op_type in _PASSING_ON:
        name = producers[name].input[0]
    return name in producers and producers[name].op_type in ("Softmax", "Sigmoid")


def write_model(model: Any, path: str | os.PathLike[str] | None) -> None:
    """Check a model and, if there is a path, write it: a crash leaves the old file or the new."""
    checker = onnx_module("onnx.checker")
    errors = checker.ValidationError, onnx_module("onnx.shape_inference").InferenceError
    try:
        checker.check_model(model, full_check=True)
    except errors as error:
        raise ValueError(f"the model must be valid ONNX; onnx's checker says: {error}") from error
    if path is not None:
        with replace_file(path) as stream:
            stream.write(model.SerializeToString())


def _check_size(model: Any) -> None:
    """Refuse what does not fit into one file."""
    try:
        fits = model.ByteSize() <= LARGEST_FILE
    except onnx_module("google.protobuf.message").EncodeError:  # it cannot even be measured
        fits = False
    if not fits:
        raise ValueError(
            "the model must be at most 2 GB to be one file; got a larger one. Export the "
            "calibrator by itself and run it on the network's output, or store the network in "
            "float16."
        )
