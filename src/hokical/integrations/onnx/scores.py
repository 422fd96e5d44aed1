"""What the scores of a classifier's graph are: logits, or probabilities.

A graph says so by its operators. A softmax, and whatever keeps numbers probabilities
behind it (another shape, a mean of several), gives probabilities, whose logarithms a
calibrator takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal

from hokical._core.arrays import AnyArray
from hokical._core.runtime import warn_user
from hokical._core.schema import InputSchema

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

#: What the scores of a classifier are.
ScoresAre = Literal["logits", "probabilities"]


class Content(Enum):
    """What a tensor holds, as far as the operators before it show."""

    CONSTANT = auto()
    LOG_PROBABILITIES = auto()
    PROBABILITIES = auto()
    #: A mean or a sum of probabilities: its logarithm is not that of a softmax.
    MEAN_OF_PROBABILITIES = auto()
    #: Sigmoids, which sum to anything.
    SIGMOIDS = auto()


_SHARES = (Content.PROBABILITIES, Content.MEAN_OF_PROBABILITIES, Content.SIGMOIDS)
_PROBABILITIES = (Content.PROBABILITIES, Content.MEAN_OF_PROBABILITIES)
#: Operators whose first input, of another shape, order or type, is their output.
_RESHAPING = frozenset(
    [
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    ]
)
#: Operators whose output has the entries of all their inputs, or of some of them.
_JOINING = frozenset(
    [
        "Concat",
        "ConcatFromSequence",
        "Max",
        "Min",
        "SequenceConstruct",
        "SequenceInsert",
        "Where",
    ]
)
#: Operators that add up numbers of one tensor.
_AVERAGING = frozenset(["AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"])
#: Operators that add up several tensors.
_ADDING = frozenset(["Add", "Mean", "Sum"])
#: Operators whose output is a number of the graph's shapes.
_OF_SHAPES = frozenset(["Constant", "ConstantOfShape", "Range", "Shape", "Size"])
#: By how much float16 lets sums of probabilities differ from 1.
_SUM_SLACK = 1e-2
#: Post-transforms of `ai.onnx.ml` classifiers that give probabilities.
_TO_PROBABILITIES = (b"LOGISTIC", b"SOFTMAX", b"SOFTMAX_ZERO")


def content_of(graph: GraphProto, name: str) -> Content | None:
    """What a tensor of a graph holds; None where its operators do not show it."""
    contents: dict[str, Content | None] = {
        tensor.name: Content.CONSTANT for tensor in graph.initializer
    }
    producers: dict[str, NodeProto] = {}
    for node in graph.node:
        content = _content_of_node(node, contents, producers)
        for output in node.output:
            contents[output] = content
            producers[output] = node
    return contents.get(name)


def _content_of_node(
    node: NodeProto,
    contents: dict[str, Content | None],
    producers: dict[str, NodeProto],
) -> Content | None:
    """What the outputs of a node hold, from what its inputs do."""
    if any(attribute.HasField("g") for attribute in node.attribute):
        return None  # a branch or a loop
    inputs = [contents.get(name) for name in node.input if name]
    operator = node.op_type
    if operator in _OF_SHAPES or (
        inputs and all(content is Content.CONSTANT for content in inputs)
    ):
        return Content.CONSTANT
    if operator in ("Softmax", "Hardmax") or _normalizes(node, producers):
        return Content.PROBABILITIES
    if operator in ("LogSoftmax", "Sigmoid"):
        is_sigmoid = operator == "Sigmoid"
        return Content.SIGMOIDS if is_sigmoid else Content.LOG_PROBABILITIES
    varying = [content for content in inputs if content is not Content.CONSTANT]
    first = inputs[0] if inputs else None
    if operator in _RESHAPING:
        return first
    if operator in _AVERAGING:
        return Content.MEAN_OF_PROBABILITIES if first in _PROBABILITIES else first
    if operator == "Log":
        return Content.LOG_PROBABILITIES if first in _PROBABILITIES else None
    if operator == "Exp":
        is_log = first is Content.LOG_PROBABILITIES
        return Content.PROBABILITIES if is_log else None
    if operator in _ADDING:
        is_mean = len(varying) > 1 and all(c in _PROBABILITIES for c in varying)
        return Content.MEAN_OF_PROBABILITIES if is_mean else None
    if operator in ("Mul", "Div"):
        return varying[0] if len(varying) == 1 else None
    if operator == "Sub":  # one minus probabilities
        is_complement = first is Content.CONSTANT and varying[0] in _SHARES
        return varying[0] if is_complement else None
    if operator in _JOINING:
        return _common_content(varying)
    return None


def _common_content(contents: Iterable[Content | None]) -> Content | None:
    """What joined tensors hold."""
    distinct = {*contents}
    if Content.SIGMOIDS in distinct and len(distinct) == 1:
        return Content.SIGMOIDS
    if distinct and distinct.issubset(_PROBABILITIES):
        is_mean = Content.MEAN_OF_PROBABILITIES in distinct
        return Content.MEAN_OF_PROBABILITIES if is_mean else Content.PROBABILITIES
    return distinct.pop() if len(distinct) == 1 else None


def _normalizes(node: NodeProto, producers: dict[str, NodeProto]) -> bool:
    """Whether a node divides numbers by their sum, or is a classifier's own softmax."""
    if node.domain == "ai.onnx.ml":
        attributes = {attribute.name: attribute.s for attribute in node.attribute}
        transform = attributes.get("post_transform", b"NONE")
        is_l1 = node.op_type == "Normalizer" and attributes.get("norm") == b"L1"
        return is_l1 or transform in _TO_PROBABILITIES
    if node.op_type == "LpNormalization":
        return any(a.name == "p" and a.i == 1 for a in node.attribute)
    if node.op_type != "Div":
        return False
    divisor = producers.get(node.input[1])
    if divisor is None or divisor.op_type not in ("ReduceSum", "ReduceL1"):
        return False
    return bool(divisor.input[0] == node.input[0])


def choose_reading(
    content: Content | None,
    schema: InputSchema,
    tensor: str,
    stated: ScoresAre | None,
) -> ScoresAre:
    """How a tensor is read by a calibrator: what is `stated`, or what the graph shows.

    Raises where neither says it; warns where they contradict each other.
    """
    of_logits = schema.scores == "logits"
    if stated is None:
        return _read_as_shown(content, tensor, of_logits)
    shown = {
        Content.SIGMOIDS: "a sigmoid",
        Content.PROBABILITIES: "a softmax",
        Content.MEAN_OF_PROBABILITIES: "a mean of probabilities",
    }
    if stated == "logits" and content in shown:
        warn_user(
            f"{tensor!r} comes from {shown[content]}, so it holds probabilities, and "
            'is taken for logits. Pass `scores="probabilities"`, or the name of the '
            "logits as `output`."
        )
    if content is Content.MEAN_OF_PROBABILITIES and stated != "logits" and of_logits:
        warn_user(
            f"{tensor!r} is a mean of probabilities, and the calibrator was fitted on "
            "logits that are not their logarithms. Fit it on `from_probabilities` of "
            "this output."
        )
    return stated


def _read_as_shown(content: Content | None, tensor: str, of_logits: bool) -> ScoresAre:
    """What the graph shows of a tensor, and no calibrator contradicts."""
    fitted_on = "logits" if of_logits else "log-probabilities"
    if content is Content.PROBABILITIES:
        return "probabilities"
    if content is Content.LOG_PROBABILITIES or (content is None and of_logits):
        return "logits"
    if content is Content.MEAN_OF_PROBABILITIES and not of_logits:
        return "probabilities"
    shown = {
        Content.MEAN_OF_PROBABILITIES: "is a mean of probabilities",
        Content.SIGMOIDS: "comes from a sigmoid",
        Content.CONSTANT: "is a constant",
    }
    reason = "does not show what it holds" if content is None else shown[content]
    raise ValueError(
        f'`scores` must be "logits" or "probabilities" here: {tensor!r} {reason}, and '
        f"the calibrator was fitted on {fitted_on}. State what the tensor holds, or "
        "name another one as `output`."
    )


def contradiction(rows: AnyArray, stated: str) -> str:
    """What scores (n, classes) say against being read as stated; "" if nothing."""
    sums_to_one = bool((abs(rows.sum(axis=1) - 1.0) < _SUM_SLACK).all())
    are_shares = bool((rows >= 0.0).all()) and sums_to_one
    if stated == "logits" and are_shares and len(rows) > 1:
        return "the scores are probabilities, and are read as logits"
    if stated == "probabilities" and not are_shares:
        return "the scores are read as probabilities, and are none"
    return ""
