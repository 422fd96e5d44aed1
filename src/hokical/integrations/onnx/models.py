"""Reading other people's models: their opset, their names, the tensor that holds the scores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hokical.integrations.onnx.exporting import DEFAULT_OPSET, OLDEST_OPSET
from hokical.integrations.onnx.library import library

#: Nodes through which a softmax is still a softmax.
_PASSING_ON = ("Identity", "Cast", "Reshape", "Squeeze", "Flatten")
_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}


def read_model(model: Any) -> Any:
    """A copy of a ModelProto, or what a file holds, at an opset that calibrators can be put in."""
    onnx = library()
    if isinstance(model, (str, os.PathLike)):
        try:
            copy = onnx.load(os.fspath(model), format="protobuf")
        except (library("google.protobuf.message").DecodeError, TypeError) as error:
            raise ValueError(f"`model` must be an ONNX file; {model} is not: {error}") from error
    elif isinstance(model, onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
    else:
        raise TypeError(f"`model` must be a path or a ModelProto; got {type(model).__name__}.")
    if not copy.graph.output:
        raise ValueError("`model` must have outputs; got a graph without any.")
    return _modernised(copy)


def opset_of(model: Any) -> int | None:
    """The version of the default domain, if the model uses it."""
    return next((int(item.version) for item in model.opset_import if item.domain == ""), None)


def _modernised(model: Any) -> Any:
    """At least the oldest opset that a calibrator can be written in."""
    found = opset_of(model)
    if found is None:
        model.opset_import.append(library("onnx.helper").make_opsetid("", DEFAULT_OPSET))
    elif found < OLDEST_OPSET:
        try:
            model = library("onnx.version_converter").convert_version(model, DEFAULT_OPSET)
        except RuntimeError as error:
            raise ValueError(
                f"`model` must have opset {OLDEST_OPSET} or later; it has {found} and cannot be "
                f"converted: {error}. Export it again with a newer opset."
            ) from error
    needed = library("onnx.helper").find_min_ir_version_for(
        [item for item in model.opset_import if item.domain == ""]
    )
    model.ir_version = max(model.ir_version, needed)
    return model


@dataclass(frozen=True)
class Scores:
    """The tensor to calibrate: its name, element type, and shape, None where it is not known."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


def find_scores(model: Any, output: str | None, class_axis: int | None, n_classes: int) -> Scores:
    """The tensor called `output`, or the only output that could be the scores."""
    described = _describe(model)
    outputs = [item.name for item in model.graph.output]
    if output is not None:
        if output not in _all_names(model):
            raise ValueError(
                f"`output` must name a tensor of the model, say one of {outputs}; got {output!r}."
            )
        if output not in described:
            raise ValueError(
                f"`output` must be a tensor of floats; the type of {output!r} is not one, or not "
                "known."
            )
        return described[output]
    axis = 1 if class_axis is None else class_axis
    rank = 2 if class_axis is None else None
    fitting = [
        described[name]
        for name in outputs
        if name in described and _may_hold(described[name], rank, axis, n_classes)
    ]
    if len(fitting) != 1:
        raise ValueError(
            f"`output` must say which output has the scores of {n_classes} classes: "
            f"{len(fitting)} of {outputs} could. For other shapes than (batch, classes) give "
            "`class_axis` too."
        )
    return fitting[0]


def _describe(model: Any) -> dict[str, Scores]:
    """Every tensor of floats whose type is known."""
    inferred = library("onnx.shape_inference").infer_shapes(model).graph
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


def described(item: Any) -> str:
    """Name, type and shape of an input or output of a graph, in words.

    >>> from onnx import TensorProto, helper
    >>> described(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10]))
    'logits float32 (batch, 10)'
    """
    if not item.type.HasField("tensor_type"):
        return str(item.name)
    tensor = item.type.tensor_type
    kind = library("onnx.helper").tensor_dtype_to_np_dtype(tensor.elem_type).name
    shape = shape_of(tensor)
    if shape is None:
        return f"{item.name} {kind}"
    return f"{item.name} {kind} ({', '.join('?' if d is None else str(d) for d in shape)})"


def _may_hold(scores: Scores, rank: int | None, axis: int, n_classes: int) -> bool:
    if scores.shape is None:
        return True
    length = len(scores.shape)
    fits = length == rank if rank is not None else -length <= axis < length and length >= 2
    return fits and (not isinstance(scores.shape[axis], int) or scores.shape[axis] == n_classes)


def _all_names(model: Any) -> set[str]:
    graph = model.graph
    names = {name for node in graph.node for name in (*node.output, *node.input)}
    return names | {item.name for item in (*graph.input, *graph.output, *graph.initializer)}


def free_name(model: Any, wanted: str) -> str:
    """The name itself, or one with a prefix where the model has it already."""
    taken = _all_names(model)
    candidates = [wanted, f"hokical_{wanted}"]
    candidates += [f"hokical_{wanted}_{k}" for k in range(2, len(taken) + 3)]
    return next(name for name in candidates if name not in taken)


def free_prefix(model: Any) -> str:
    """What no name of the model begins with."""
    taken = _all_names(model) | {node.name for node in model.graph.node}
    prefix = "hokical/"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"hokical/{prefix}"
    return prefix


def comes_from_softmax(model: Any, name: str) -> bool:
    """Whether a tensor is the output of a softmax or sigmoid, as far as can be seen."""
    producers = {output: node for node in model.graph.node for output in node.output}
    while name in producers and producers[name].op_type in _PASSING_ON:
        name = producers[name].input[0]
    return name in producers and producers[name].op_type in ("Softmax", "Sigmoid")
