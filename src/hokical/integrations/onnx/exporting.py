"""A calibrator as an ONNX graph of its own, or behind an exported classifier in one
file.

Predictions are computed with arrays that record operations. Calibrators of confidences
and of several labels have graphs of their own alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.checks import check_choice
from hokical._core.conversion import LOG_ZERO, Zeros
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.runtime import import_optional
from hokical._core.version import VERSION
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import (
    ConfidenceCalibrator,
    MultilabelCalibrator,
    OutcomeCalibrator,
)
from hokical.calibrators.predictor import Predictor
from hokical.calibrators.stored import check_plain_logits
from hokical.guarantees.scores import (
    AbstentionOptions,
    is_within,
    label_log_odds,
)
from hokical.integrations.onnx import ensembles, models
from hokical.integrations.onnx.namespace import BACKEND
from hokical.integrations.onnx.scores import ScoresAre, choose_reading, content_of
from hokical.rules.base import (
    LEAST_IN_FLOAT32,
    Rule,
    keep_above_zero,
    predict_unchecked,
)
from hokical.rules.confidence import ConfidenceCurve, MultilabelCurves
from hokical.rules.hoki import HokiRule
from hokical.rules.members import PooledMembers, pooled_members_of
from hokical.rules.sets import SetRule

Precision = Literal["float64", "float32"]
InputType = Literal["float16", "float32", "float64"]
#: By name the shape and the type of an input or output.
Tensors = dict[str, tuple[Any, str]]

#: Most numbers of noise (draws times classes) that are stored: 128 MB in float64.
MOST_DRAWN = 1 << 24
#: The chance that a guarantee of abstention fails, as in `predict_or_abstain`.
DEFAULT_DELTA = 0.1
#: Outputs with a number for every class.
_PER_CLASS = ("probabilities", "members")


def record(inputs: Tensors, predict: Callable[..., dict[str, Any]]) -> Any:
    """The model of a function of inputs as it was recorded, in float64 and the
    tracer's opset.
    """
    ndx = import_optional("ndonnx", "onnx")
    future = import_optional("spox._future", "onnx")
    # Constants are evaluated in Python: a session of onnxruntime for each takes far
    # longer.
    with future.value_prop_backend(future.ValuePropBackend.REFERENCE):
        arguments = {
            name: ndx.argument(shape=shape, dtype=dtype)
            for name, (shape, dtype) in inputs.items()
        }
        model = ndx.build(arguments, predict(*arguments.values()))
    models.fold_constants(model)
    return model


def _value_info(name: str, shape: Any, dtype: str) -> Any:
    """The description of an input or output."""
    return models.helper.make_tensor_value_info(
        name, models.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


@dataclass(frozen=True)
class GraphOptions:
    """How a graph is written, and which outputs it has; see `export`."""

    opset: int
    precision: Precision
    probabilities: bool | None = None
    support: bool = False
    abstention: AbstentionOptions | None = None

    def with_risk(self, risk: float | None, delta: float | None) -> GraphOptions:
        """The options with abstention, if there is a risk."""
        if risk is None:
            if delta is not None:
                raise ValueError(
                    "`delta` goes with `risk`; got no risk. Give both, or none."
                )
            return self
        if self.precision == "float32":
            raise ValueError(
                '`precision` must be "float64" with `risk`: confidences near 1 differ by '
                'roundings of float32. Got "float32".'
            )
        delta = DEFAULT_DELTA if delta is None else delta
        return replace(self, abstention=AbstentionOptions(risk, delta, "all"))


@dataclass(frozen=True)
class AcceptedRows:
    """Which rows a graph accepts: those whose log-odds reach a threshold.

    The log-odds are those of the calibrated confidence if it was certified, else those
    of the classifier's own label, which other labels do not share.
    """

    lowest: float
    certified: bool
    tests_own_labels: bool

    @classmethod
    def of(cls, predictor: Predictor, log_odds: float) -> AcceptedRows:
        """The rows that reach a threshold of a predictor."""
        return cls(
            log_odds,
            predictor.held_out is not None,
            not predictor.predicts_tested_labels,
        )

    def accepts(self, rule: Rule, logits: Logits) -> Array:
        """Whether each traced row (n,) is accepted."""
        xp = logits.xp
        if self.certified:
            confidence = predict_unchecked(rule, "confidence", logits)
            log_odds = xp.log(confidence) - xp.log1p(-confidence)
        else:
            log_odds = label_log_odds(logits)
        accepted = xp.isfinite(logits.top) & (log_odds >= self.lowest)
        if math.isinf(self.lowest):  # nothing is, not even certain labels
            accepted = accepted & (log_odds < -self.lowest)
        if self.tests_own_labels:
            labels = predict_unchecked(rule, "labels", logits)
            accepted = accepted & (labels == logits.labels)
        return accepted


@dataclass(frozen=True)
class ScoresLayout:
    """The scores that a graph reads.

    `shape` are lengths or names of lengths, with the classes along `axis`; `lengths` are
    those that outputs are declared with, if more is known. The scores are probabilities
    if there are `zeros`. If there are `members`, the first axis is that of the members of
    an ensemble, which are pooled.
    """

    shape: models.Shape
    dtype: str
    axis: int = 1
    zeros: Zeros | None = None
    lengths: models.Shape | None = None
    members: PooledMembers | None = None

    @property
    def output_shape(self) -> models.Shape:
        return self._pooled(self.lengths or self.shape)

    @property
    def row_shape(self) -> models.Shape:
        """The shape of what there is one of for each row."""
        return self._rows_of(self.lengths or self.shape)

    def _pooled(self, shape: models.Shape) -> models.Shape:
        return shape if self.members is None else shape[1:]

    def _rows_of(self, shape: models.Shape) -> models.Shape:
        return self._pooled([size for k, size in enumerate(shape) if k != self.axis])

    def groups_shape(self, coding: GroupCoding, *, declared: bool = False) -> Any:
        """The shape of the codes of groups beside the scores."""
        rows = self.row_shape if declared else self._rows_of(self.shape)
        return (*rows, len(coding.columns))


def _trace(
    inputs: Tensors,
    predict: Callable[..., dict[str, Any]],
    outputs: Tensors,
    options: GraphOptions,
    **facts: str,
) -> Any:
    """The recorded model in the operators and the precision of the options.

    `facts` are stored in the file, beside those of every file.
    """
    models.check_opset(options.opset)
    input_dtype = next(iter(inputs.values()))[1]
    check_choice("input_dtype", input_dtype, InputType)
    check_choice("precision", options.precision, Precision)
    if input_dtype == "float64" and options.precision == "float32":
        raise ValueError(
            '`precision` must be "float64" for inputs of float64; got "float32". A '
            "runtime that takes the inputs can do the work: leave it out, or use "
            '`input_dtype="float32"`.'
        )
    model = record(inputs, predict)
    described = [_value_info(name, *output) for name, output in outputs.items()]
    models.use_opset(
        model, int(options.opset), described, narrow=options.precision == "float32"
    )
    facts |= {
        "version": VERSION,
        "opset": str(options.opset),
        "precision": options.precision,
    }
    properties = {f"hokical_{name}": fact for name, fact in facts.items()}
    models.helper.set_model_props(model, properties)
    return model


def _trace_confidences(
    calibrator: ConfidenceCalibrator, input_dtype: str, options: GraphOptions
) -> Any:
    """The model of a fitted calibrator of confidences; see `export`."""
    rule = calibrator.rule_
    if rule.signals is not None:
        raise ValueError(
            "`calibrator` must have been fitted on one confidence per answer to "
            f"become a graph; got {rule.signals.rise.size} signals."
        )
    dtype = "float64" if input_dtype == "float64" else "float32"
    inputs: Tensors = {"confidence": (("batch",), input_dtype)}
    coding = calibrator.needed_groups
    if coding is not None:
        inputs["groups"] = (("batch", len(coding.columns)), "int64")
    predict = partial(_predict_confidences, rule, float(calibrator.scale), dtype)
    outputs: Tensors = {"probability": (("batch",), dtype)}
    return _trace(inputs, predict, outputs, options, method=calibrator.name)


def _trace_labels(
    calibrator: MultilabelCalibrator, input_dtype: str, options: GraphOptions
) -> Any:
    """The model of a fitted calibrator of several labels; see `export`."""
    shape = ("batch", calibrator.n_labels_)
    dtype = "float64" if input_dtype == "float64" else "float32"
    predict = partial(_predict_labels, calibrator.rule_, dtype)
    outputs: Tensors = {"probabilities": (shape, dtype)}
    inputs: Tensors = {"scores": (shape, input_dtype)}
    return _trace(inputs, predict, outputs, options, method=calibrator.name)


# Functions of the module, so that they can be pickled.


def _predict_labels(
    rule: MultilabelCurves, dtype: str, scores: Array
) -> dict[str, Any]:
    """Probabilities of traced scores; NaN where Python would refuse."""
    xp = BACKEND.namespace(scores)
    proba = xp.where(xp.isnan(scores), xp.nan, rule.proba(scores, BACKEND))
    return {"probabilities": xp.astype(proba, getattr(xp, dtype))}


def _predict_confidences(
    rule: ConfidenceCurve, scale: float, dtype: str, values: Array, groups: Any = None
) -> dict[str, Any]:
    """Probabilities of traced confidences of a scale; NaN where Python would refuse."""
    xp = BACKEND.namespace(values)
    stated = to_float64(values, xp) / scale
    proba = rule.proba(stated, groups, xp)
    proba = xp.where((stated >= 0.0) & (stated <= 1.0), proba, xp.nan)
    return {"probability": xp.astype(proba, getattr(xp, dtype))}


def _predictor_of(calibrator: Any) -> Predictor:
    """The predictor of a fitted calibrator of logits, if it fits into a graph."""
    if not isinstance(calibrator, Calibrator):
        raise TypeError(
            "`calibrator` must be one of hokical's for logits; got "
            f"{type(calibrator).__name__}. That of a network is `model.fitted`, that of "
            "a classifier `model.calibrator_`; `hokical.load` reads a saved one."
        )
    predictor = calibrator.fitted
    rule = predictor.rule
    check_plain_logits(rule.name, rule.logits_kind, "calibrator")
    core = rule.core
    draws = core.draws if isinstance(core, HokiRule) else None
    size = 0 if draws is None else draws.n_draws * draws.n_classes
    if draws is not None and size > MOST_DRAWN:
        raise ValueError(
            f"`draws` times classes must be at most {MOST_DRAWN:,} to be stored in a "
            f"graph; got {draws.n_draws:,} draws of {draws.n_classes:,} classes, "
            f"{size:,} numbers. Fit with fewer draws, or with exact stability, "
            "`Hoki(draws=None)`, which stores none."
        )
    return predictor


def _trace_logits(
    predictor: Predictor, layout: ScoresLayout, options: GraphOptions
) -> Any:
    """The model of a predictor, from `logits` or probabilities of a layout."""
    rule = predictor.rule
    inputs: Tensors = {"logits": (tuple(layout.shape), layout.dtype)}
    if rule.needed_groups is not None:
        coding = rule.needed_groups
        inputs["groups"] = (layout.groups_shape(coding), coding.input_dtype)
    outputs = _outputs_of(predictor, layout, options)
    facts = {"method": rule.name, "n_classes": str(predictor.n_classes)}
    if layout.members is not None:
        facts["members"] = ensembles.names_as_text(layout.members, layout.shape[0])
    if options.abstention is not None:
        thresholds = predictor.abstention_thresholds(options.abstention)
        accepted = AcceptedRows.of(predictor, thresholds.log_odds)
        outputs.append(
            GraphOutput(
                "accepted", layout.row_shape, "bool", partial(accepted.accepts, rule)
            )
        )
        facts["guarantee"] = thresholds.guarantee
    predict = partial(_predict, outputs, layout)
    declared: Tensors = {
        output.name: (output.shape, output.dtype) for output in outputs
    }
    return _trace(inputs, predict, declared, options, **facts)


@dataclass(frozen=True)
class GraphOutput:
    """An output of a graph: how it is declared, and computed from traced rows."""

    name: str
    shape: models.Shape
    dtype: str
    compute: Callable[[Logits], Array]


def _outputs_of(
    predictor: Predictor, layout: ScoresLayout, options: GraphOptions
) -> list[GraphOutput]:
    """The outputs that do not depend on a guarantee."""
    rule = predictor.rule
    predict = partial(predict_unchecked, rule)
    number = "float64" if layout.dtype == "float64" else "float32"
    rows = layout.row_shape
    outputs = [
        GraphOutput("labels", rows, "int64", partial(predict, "labels")),
        GraphOutput("confidence", rows, number, partial(predict, "confidence")),
    ]
    has_proba = options.probabilities
    if has_proba is None:
        has_proba = rule.cheap_proba
    if has_proba:
        shape = layout.output_shape
        compute = partial(predict, "proba")
        outputs.append(GraphOutput("probabilities", shape, number, compute))
    if isinstance(rule, SetRule):
        shape = layout.output_shape
        outputs.append(
            GraphOutput("members", shape, "bool", partial(predict, "members"))
        )
    if options.support and predictor.support is not None:
        compute = partial(is_within, edges=predictor.support.edges)
        outputs.append(GraphOutput("support", rows, "bool", compute))
    return outputs


def _predict(
    outputs: Sequence[GraphOutput],
    layout: ScoresLayout,
    scores: Array,
    groups: Any = None,
) -> dict[str, Any]:
    """The traced outputs by name, in the shape of the traced scores."""
    xp = BACKEND.namespace(scores)
    order = [*(k for k in range(scores.ndim) if k != layout.axis), layout.axis]
    is_matrix = order == [0, 1]
    classes_last = scores if is_matrix else xp.permute_dims(scores, order)
    if layout.members is None:
        logits = _as_rows(classes_last, layout.zeros, groups)
    else:
        is_matrix = True  # once the members are pooled
        values = _as_logits(classes_last, layout.zeros)
        logits = replace(ensembles.pool_scores(layout.members, values), codes=groups)
    traced = {}
    for output in outputs:
        values = _compute(output, logits)
        if not is_matrix and output.name in _PER_CLASS:
            values = xp.reshape(values, classes_last.dynamic_shape)
            values = xp.permute_dims(values, np.argsort(order).tolist())
        elif not is_matrix:
            values = xp.reshape(values, classes_last.dynamic_shape[:-1])
        traced[output.name] = values
    return traced


def _compute(output: GraphOutput, logits: Logits) -> Array:
    """An output for traced rows, in its type."""
    xp = logits.xp
    values = output.compute(logits)
    narrows = output.dtype == "float32" and logits.values.dtype == xp.float64
    if output.name == "probabilities" and narrows:
        values = keep_above_zero(values, logits, LEAST_IN_FLOAT32)
    return (
        values
        if output.dtype == "bool"
        else xp.astype(values, getattr(xp, output.dtype))
    )


def _as_rows(scores: Array, zeros: Zeros | None, groups: Any) -> Logits:
    """Logits (rows, classes) of traced scores with the classes last."""
    xp = BACKEND.namespace(scores)
    rows = scores if scores.ndim == 2 else xp.reshape(scores, (-1, scores.shape[-1]))
    rows = _as_logits(rows, zeros)
    top = to_float64(xp.max(rows, axis=-1), xp)
    top = xp.where(xp.any(xp.isnan(rows), axis=-1), xp.nan, top)
    if groups is not None and groups.ndim > 2:
        groups = xp.reshape(groups, (-1, groups.shape[-1]))
    return Logits(rows, top, BACKEND, groups)


def _as_logits(rows: Array, zeros: Zeros | None) -> Array:
    """Traced logits, or the logarithms of probabilities."""
    xp = BACKEND.namespace(rows)
    if zeros is not None:
        is_zero = to_float64(rows, xp) == 0.0
        rows = xp.log(to_float64(rows, xp))
        if zeros == "unlikely":
            rows = xp.where(is_zero, LOG_ZERO, rows)
    if rows.dtype == xp.float16:  # float32 holds the same, and runtimes compute with it
        rows = xp.astype(rows, xp.float32)
    return rows


def _layout_of(predictor: Predictor, input_dtype: InputType) -> ScoresLayout:
    """The logits of a graph that stands alone."""
    shape = ("batch", predictor.n_classes)
    members = pooled_members_of(predictor.schema)
    if members is None:
        return ScoresLayout(shape, input_dtype)
    by_member = (len(members.needed), *shape)
    return ScoresLayout(by_member, input_dtype, axis=2, members=members)


def _attached_layout(
    tensor: models.ScoresTensor, predictor: Predictor, zeros: Zeros | None
) -> ScoresLayout:
    """The scores that a network gives a graph behind it."""
    members = pooled_members_of(predictor.schema)
    shape: list[int | str | None] = [f"axis{k}" for k in range(len(tensor.shape))]
    shape[tensor.axis] = predictor.n_classes
    if members is not None:
        shape[0] = tensor.shape[0]
    # Tracers do not know bfloat16.
    dtype = "float32" if tensor.dtype == "bfloat16" else tensor.dtype
    return ScoresLayout(shape, dtype, tensor.axis, zeros, tensor.shape, members)


def export(
    calibrator: Calibrator | OutcomeCalibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = models.DEFAULT_OPSET,
    input_dtype: InputType = "float32",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
    risk: float | None = None,
    delta: float | None = None,
) -> Any:
    """Write a fitted calibrator as an ONNX model, and return the model.

    Its input is `logits` (batch, classes), and of a calibrator that learned from groups
    `groups` (batch, columns), made by `calibrator.group_codes`. Its outputs are
    `labels` (batch,) int64, `confidence` (batch,) and `probabilities` (batch, classes),
    floats in float32, or in float64 where `input_dtype` is. Rows that Python would
    refuse (NaN, +inf, or -inf for every class) have NaN for confidence.

    The file is whole or not there at all. `opset` is the version of the operators, 13
    or later; `input_dtype` that of the logits; `precision` what is computed with:
    float32 is for runtimes without float64, and the page on ONNX says what it costs.
    `probabilities=None` gives them where they are cheap: always, but for Hoki with
    Gaussian or uniform noise. `support=True` adds `support` (batch,) bool: which rows
    are like the calibration examples (`Calibrator.predict_support`). A calibrator
    `with_sets(coverage=0.9)` adds `members` (batch, classes) bool: its prediction sets.
    `risk`, with `delta` (0.1 by default), adds `accepted` (batch,) bool: which labels to
    accept so that at most a fraction `risk` is wrong (`Calibrator.predict_or_abstain`);
    the guarantee in words is in the metadata, `hokical_guarantee`.

    The input of a calibrator of an ensemble is `logits` (members, batch, classes): those
    of `calibrator.needed_members_` in that order, whose names are in the metadata,
    `hokical_members`; of exchangeable members, as many as in the fit. A row of NaN says
    that a member was not evaluated.

    A `MultilabelCalibrator` has the input `scores` (batch, labels) and the output
    `probabilities` (batch, labels); a `ConfidenceCalibrator` `confidence` (batch,),
    `groups` where it learned from them, and `probability` (batch,).

    >>> import numpy as np
    >>> from hokical.calibrators import TemperatureScaling
    >>> from hokical.integrations.onnx import export
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> model = export(TemperatureScaling().fit(logits, labels))
    >>> [output.name for output in model.graph.output]
    ['labels', 'confidence', 'probabilities']
    """
    options = GraphOptions(opset, precision, probabilities, support)
    options = options.with_risk(risk, delta)
    if isinstance(calibrator, OutcomeCalibrator):
        if probabilities is not None or support or risk is not None:
            raise ValueError(
                "`probabilities`, `support` and `risk` are for calibrators of logits; "
                f"got one of {calibrator.name}. Leave them out."
            )
        calibrator.check_fitted()
        if isinstance(calibrator, MultilabelCalibrator):
            model = _trace_labels(calibrator, input_dtype, options)
        else:
            assert isinstance(calibrator, ConfidenceCalibrator)
            model = _trace_confidences(calibrator, input_dtype, options)
        model.doc_string = f"Calibrated probabilities by {calibrator.name}."
    else:
        predictor = _predictor_of(calibrator)
        layout = _layout_of(predictor, input_dtype)
        model = _trace_logits(predictor, layout, options)
        model.doc_string = f"Calibrated confidence by {predictor.rule.name}."
    models.write_model(model, path)
    return model


def attach(
    model: Any,
    calibrator: Calibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    output: str | None = None,
    class_axis: int | None = None,
    scores: ScoresAre | None = None,
    zeros: Zeros = "unlikely",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
    risk: float | None = None,
    delta: float | None = None,
) -> Any:
    """Append a fitted calibrator to a classifier, and return the model that does both.

    The classifier's outputs stay; `labels`, `confidence` and, as in `export`,
    `probabilities` are added, under `hokical_labels` and so on where the names are
    taken. A calibrator that learned from groups adds the input `groups` (batch,
    columns) int64, as in `export`; of maps, each pixel has them: (batch, height, width,
    columns). The model keeps its opset, which must be 13 or later. A calibrator of an
    ensemble needs a model with scores (members, batch, classes) of the members of the
    fit, or of those that are needed, in that order.

    Parameters
    ----------
    model : path or onnx.ModelProto
        The classifier. A ModelProto is copied, not changed.
    calibrator : Calibrator
        Fitted on this classifier's scores.
    output : str, optional
        Name of the tensor with the scores, an output or any other. Not needed where
        only one output of floats (batch, classes) could be meant.
    class_axis : int, optional
        Where the classes are, if not in the last of two axes: 1 for maps (batch,
        classes, height, width). Labels and confidence have the other axes, in their
        order.
    scores : {"logits", "probabilities"}, optional
        What the tensor holds. By default what the graph shows: probabilities behind a
        softmax, or a mean of softmaxes, and otherwise logits. Where the graph does not
        show it and the calibrator was fitted on log-probabilities, it must be stated.
        Of probabilities the logarithm is calibrated, as by
        `hokical.from_probabilities`.
    zeros : {"unlikely", "impossible"}
        For probabilities: the `zeros` with which the calibrator was fitted.
    path, precision, probabilities, support, risk, delta
        As in `export`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> from hokical.calibrators import Uncalibrated
    >>> from hokical.integrations.onnx import attach
    >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    >>> y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])
    >>> graph = helper.make_graph(
    ...     [helper.make_node("Neg", ["x"], ["scores"])], "net", [x], [y]
    ... )
    >>> network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> both = attach(network, Uncalibrated().fit(4.0 * np.eye(3), [0, 1, 2]))
    >>> [item.name for item in both.graph.output]
    ['scores', 'labels', 'confidence', 'probabilities']
    """
    check_choice("zeros", zeros, Zeros)
    if scores is not None:
        check_choice("scores", scores, ScoresAre)
    predictor = _predictor_of(calibrator)
    members = pooled_members_of(predictor.schema)
    if members is not None and class_axis is None:
        class_axis = -1
    network, opset = models.read_model(model)
    tensor = models.find_scores(network, output, class_axis, predictor.n_classes)
    ensembles.check_members_of(tensor.shape, tensor.axis, tensor.name, predictor)
    content = content_of(network, tensor.name)
    scores = choose_reading(content, predictor.schema, tensor.name, scores)
    layout = _attached_layout(
        tensor, predictor, zeros if scores == "probabilities" else None
    )
    options = GraphOptions(opset, precision, probabilities, support)
    options = options.with_risk(risk, delta)
    tail = _trace_logits(predictor, layout, options)
    properties = {item.key: item.value for item in network.metadata_props}
    properties |= {item.key: item.value for item in tail.metadata_props}
    properties |= {"hokical_scores": tensor.name, "hokical_scores_are": scores}
    properties |= {"hokical_class_axis": str(tensor.axis), "hokical_zeros": zeros}
    source = tensor.name
    if tensor.dtype == "bfloat16":
        source = models.cast_to_float(network, source)
    properties |= _append(network, tail, source, layout, predictor.schema.groups)
    models.helper.set_model_props(network, properties)
    models.write_model(network, path)
    return network


def _append(
    network: Any,
    tail: Any,
    source: str,
    layout: ScoresLayout,
    coding: GroupCoding | None,
) -> dict[str, str]:
    """Put the nodes of a calibrator behind a network; properties name its inputs."""
    taken = models.names_in(models.every_graph(network.graph))
    prefix = models.free_prefix(taken)
    names = {item.name: _free_name(item.name, taken) for item in tail.graph.output}
    names["logits"] = source
    properties = {}
    if coding is not None:
        names["groups"] = _free_name("groups", taken)
        properties["hokical_groups"] = names["groups"]
        codes = layout.groups_shape(coding, declared=True)
        info = _value_info(names["groups"], codes, coding.input_dtype)
        network.graph.input.append(info)
    models.rename(tail.graph, names, prefix)
    network.graph.node.extend(tail.graph.node)
    network.graph.initializer.extend(tail.graph.initializer)
    network.graph.output.extend(tail.graph.output)
    return properties


def _free_name(name: str, taken: set[str]) -> str:
    """The name itself, or one with a prefix where the model has it already."""
    numbered = (f"hokical_{name}_{k}" for k in count(2))
    candidates = chain([name, f"hokical_{name}"], numbered)
    return next(candidate for candidate in candidates if candidate not in taken)
