"""What the scores of a classifier's graph are: logits, or probabilities.

A graph says so by its operators. A softmax, and whatever keeps numbers probabilities
behind it (another shape, a mean of several), gives probabilities, whose logarithms a
calibrator takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from hokical._core.arrays import AnyArray
from hokical._core.runtime import warn_user
from hokical._core.schema import InputSchema
from hokical.integrations.onnx.models import onnx

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

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
    #: Computed from probabilities alone by other operators, such as a clipping.
    FROM_PROBABILITIES = auto()
    #: The logarithm of a mean, or of what else is computed from probabilities.
    LOG_OF_MEAN = auto()


_PROBABILITIES = (Content.PROBABILITIES, Content.MEAN_OF_PROBABILITIES)
_SHARES = (*_PROBABILITIES, Content.SIGMOIDS)
_OF_PROBABILITIES = (*_SHARES, Content.FROM_PROBABILITIES)
#: Operators whose first input, of another shape, order or type, is their output.
_RESHAPING = frozenset(
    [
        "ArrayFeatureExtractor",
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
#: Those of them whose rows can have entries of several tensors.
_MIXING = frozenset(["Max", "Min", "Where"])
#: Operators that add up numbers of one tensor.
_AVERAGING = frozenset(["AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"])
#: Operators that add up several tensors.
_ADDING = frozenset(["Add", "Mean", "Sum"])
#: Operators whose output is a number of the graph's shapes.
_OF_SHAPES = frozenset(["Constant", "ConstantOfShape", "Range", "Shape", "Size"])
#: Layers, which make anything of probabilities unless they have weights >= 0.
_LAYERS = frozenset(["Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"])
#: Layers whose weights are not looked at.
_OTHER_LAYERS = frozenset(
    [
        "ConvInteger",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GRU",
        "LSTM",
        "MatMulInteger",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "RNN",
    ]
)
#: Operators that a sum may go through before numbers are divided by it.
_AROUND_SUMS = frozenset(["Add", "Cast", "Clip", "Expand", "Identity", "Max"])
#: By how much float16 lets sums of probabilities differ from 1.
_SUM_SLACK = 1e-2
#: Post-transforms of `ai.onnx.ml` classifiers that give probabilities.
_TO_PROBABILITIES = (b"LOGISTIC", b"SOFTMAX", b"SOFTMAX_ZERO")


def content_of(model: ModelProto, name: str) -> Content | None:
    """What a tensor of a model holds; None where its operators do not show it."""
    if model.functions:
        inliner = import_module("onnx.inliner")
        model = inliner.inline_local_functions(model)
    tracing = _Tracing()
    tracing.follow(model.graph)
    return tracing.contents.get(name)


class _Tracing:
    """What the tensors of a graph hold, from its first operator to its last."""

    def __init__(self) -> None:
        self.contents: dict[str, Content | None] = {}
        self.producers: dict[str, NodeProto] = {}
        self.weights: dict[str, TensorProto] = {}

    def follow(self, graph: GraphProto) -> None:
        """Note the tensors of a graph, or of a branch of one."""
        for tensor in graph.initializer:
            self.contents[tensor.name] = Content.CONSTANT
            self.weights[tensor.name] = tensor
        for node in graph.node:
            content = self._content_of_node(node)
            for output in node.output:
                self.contents[output] = content
                self.producers[output] = node
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                self.weights[node.output[0]] = node.attribute[0].t

    def _content_of_node(self, node: NodeProto) -> Content | None:
        """What the outputs of a node hold, from what its inputs do."""
        branches = [
            attribute.g for attribute in node.attribute if attribute.HasField("g")
        ]
        if branches:
            return self._content_of_branches(node, branches)
        inputs = [self.contents.get(name) for name in node.input if name]
        operator = node.op_type
        if operator in _OF_SHAPES or (
            inputs and all(content is Content.CONSTANT for content in inputs)
        ):
            return Content.CONSTANT
        first = inputs[0] if inputs else None
        if self._normalizes(node):
            return first if first in _COMBINED else Content.PROBABILITIES
        if operator in ("Softmax", "Hardmax"):
            return Content.PROBABILITIES
        if _averages_votes(node):
            return Content.MEAN_OF_PROBABILITIES
        if operator == "LogSoftmax" or self._subtracts_log_sum(node):
            return Content.LOG_PROBABILITIES
        if operator == "Sigmoid":
            return Content.SIGMOIDS
        if operator in _RESHAPING:
            return first
        inputs = inputs[1:] if operator == "Where" else inputs
        varying = [content for content in inputs if content is not Content.CONSTANT]
        if operator in _JOINING:
            content = _common_content(varying)
            mixes = operator in _MIXING and len(varying) > 1 and content in _SHARES
            return Content.FROM_PROBABILITIES if mixes else content
        known = _content_of_arithmetic(operator, first, varying)
        if known is not None:
            return known
        is_unknown_layer = (
            operator in _OTHER_LAYERS
            or node.domain == "ai.onnx.ml"
            or (operator in _LAYERS and not self._has_positive_weights(node))
        )
        is_derived = bool(varying) and all(c in _OF_PROBABILITIES for c in varying)
        return (
            Content.FROM_PROBABILITIES if is_derived and not is_unknown_layer else None
        )

    def _content_of_branches(
        self, node: NodeProto, branches: Iterable[GraphProto]
    ) -> Content | None:
        """What both branches give, or the first turn of a loop."""
        first_input, first_output = {"Loop": (2, 1)}.get(node.op_type, (0, 0))
        contents = []
        for branch in branches:
            given = [self.contents.get(name) for name in node.input[first_input:]]
            names = [item.name for item in branch.input[first_input:]]
            self.contents.update(zip(names, given, strict=False))
            self.follow(branch)
            outputs = branch.output[first_output:]
            contents += [self.contents.get(output.name) for output in outputs]
        common = _common_content(contents)
        return None if common is Content.CONSTANT else common

    def _normalizes(self, node: NodeProto) -> bool:
        """Whether a node divides numbers by their sum, or is a classifier's own
        softmax.
        """
        if node.domain == "ai.onnx.ml":
            attributes = {attribute.name: attribute.s for attribute in node.attribute}
            transform = attributes.get("post_transform", b"NONE")
            is_l1 = node.op_type == "Normalizer" and attributes.get("norm") == b"L1"
            return is_l1 or transform in _TO_PROBABILITIES
        if node.op_type == "LpNormalization":
            return any(a.name == "p" and a.i == 1 for a in node.attribute)
        if node.op_type == "Div":
            return self._is_sum(node.input[1], of=node.input[0])
        if node.op_type != "Mul":
            return False
        for numbers, factor in (node.input, reversed(node.input)):
            inverse = self.producers.get(factor)
            if inverse is not None and inverse.op_type == "Reciprocal":
                return self._is_sum(inverse.input[0], of=numbers)
        return False

    def _is_sum(self, name: str, *, of: str) -> bool:
        """Whether a tensor is the sum of another one, perhaps kept away from 0."""
        node = self.producers.get(name)
        while node is not None and node.op_type in _AROUND_SUMS:
            node = self.producers.get(node.input[0])
        if node is None or node.op_type not in ("ReduceSum", "ReduceL1"):
            return False
        return bool(node.input[0] == of)

    def _subtracts_log_sum(self, node: NodeProto) -> bool:
        """Whether a node is a log-softmax that is written out."""
        if node.op_type != "Sub":
            return False
        subtracted = self.producers.get(node.input[1])
        if subtracted is None or subtracted.op_type != "ReduceLogSumExp":
            return False
        return bool(subtracted.input[0] == node.input[0])

    def _has_positive_weights(self, node: NodeProto) -> bool:
        """Whether the constants of a layer are >= 0, as those of a mean are."""
        return all(
            name in self.weights
            and (onnx.numpy_helper.to_array(self.weights[name]) >= 0.0).all()
            for name in node.input
            if self.contents.get(name) is Content.CONSTANT
        )


def _averages_votes(node: NodeProto) -> bool:
    """Whether trees vote with shares of classes; those of boosting add numbers of both
    signs.
    """
    weights = {attribute.name: attribute.floats for attribute in node.attribute}
    votes = weights.get("class_weights", ())
    is_trees = node.op_type == "TreeEnsembleClassifier"
    return is_trees and len(votes) > 0 and min(votes) >= 0.0


#: What stays what it is where it is divided by its sum.
_COMBINED = (Content.MEAN_OF_PROBABILITIES, Content.FROM_PROBABILITIES)


def _content_of_arithmetic(
    operator: str, first: Content | None, varying: Sequence[Content | None]
) -> Content | None:
    """What sums, products and logarithms hold, where that is known."""
    if operator in _AVERAGING:
        return Content.MEAN_OF_PROBABILITIES if first in _PROBABILITIES else first
    if operator == "Log" and first in _OF_PROBABILITIES:
        is_softmax = first is Content.PROBABILITIES
        return Content.LOG_PROBABILITIES if is_softmax else Content.LOG_OF_MEAN
    if operator == "Exp":
        exponentials: dict[Content | None, Content] = {
            Content.LOG_PROBABILITIES: Content.PROBABILITIES,
            Content.LOG_OF_MEAN: Content.FROM_PROBABILITIES,
        }
        return exponentials.get(first)
    if operator in _ADDING:
        is_mean = len(varying) > 1 and all(c in _PROBABILITIES for c in varying)
        return Content.MEAN_OF_PROBABILITIES if is_mean else None
    is_divisor = operator == "Div" and first is Content.CONSTANT
    if operator in ("Mul", "Div") and len(varying) == 1 and not is_divisor:
        # A logarithm to another base is that of no probability.
        return varying[0] if varying[0] in _OF_PROBABILITIES else None
    if operator == "Sub":  # one minus probabilities
        is_complement = first is Content.CONSTANT and varying[0] in _SHARES
        return varying[0] if is_complement else None
    return None


def _common_content(contents: Iterable[Content | None]) -> Content | None:
    """What joined tensors hold."""
    distinct = {*contents}
    if Content.SIGMOIDS in distinct and len(distinct) == 1:
        return Content.SIGMOIDS
    if distinct and distinct.issubset(_PROBABILITIES):
        is_mean = Content.MEAN_OF_PROBABILITIES in distinct
        return Content.MEAN_OF_PROBABILITIES if is_mean else Content.PROBABILITIES
    if distinct and distinct.issubset(_OF_PROBABILITIES):
        return Content.FROM_PROBABILITIES
    return distinct.pop() if len(distinct) == 1 else None


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
    if schema.like_probabilities > 0.5:  # taken for logits in the fit
        if stated is None:
            raise ValueError(
                f'`scores` must be "logits" or "probabilities" here: {tensor!r} may hold '
                "either, and the calibrator was fitted on probabilities that were taken "
                "for logits. Fit it on `hokical.from_probabilities`, or state how the "
                "tensor is read."
            )
        return stated
    if stated is None:
        return _read_as_shown(content, tensor, of_logits)
    shown = {
        Content.SIGMOIDS: "a sigmoid",
        Content.PROBABILITIES: "a softmax",
        Content.MEAN_OF_PROBABILITIES: "a mean of probabilities",
        Content.FROM_PROBABILITIES: "a computation on probabilities",
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
    if content is Content.LOG_OF_MEAN and not of_logits:
        return "logits"
    if content is Content.MEAN_OF_PROBABILITIES and not of_logits:
        return "probabilities"
    shown = {
        Content.MEAN_OF_PROBABILITIES: "is a mean of probabilities",
        Content.SIGMOIDS: "comes from a sigmoid",
        Content.FROM_PROBABILITIES: "is computed from probabilities",
        Content.LOG_OF_MEAN: "is the logarithm of a mean of probabilities",
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
