"""A calibrator as an ONNX graph of its own, or behind an exported classifier in one
file.

Predictions are computed with arrays that record operations. Calibrators of confidences
and of several labels have graphs of their own alone.
"""

import os
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.checks import check_choice
from hokical._core.conversion import LOG_ZERO, Zeros
from hokical._core.logits import Logits
from hokical._core.runtime import import_optional, warn_user
from hokical._core.version import VERSION
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import OutcomeCalibrator
from hokical.calibrators.stored import check_plain_logits
from hokical.guarantees.scores import Support, is_within
from hokical.integrations.onnx import models
from hokical.integrations.onnx.namespace import BACKEND
from hokical.rules.base import (
    LEAST_IN_FLOAT32,
    Rule,
    keep_above_zero,
    predict_unchecked,
)
from hokical.rules.sets import SetRule

Precision = Literal["float64", "float32"]
InputType = Literal["float16", "float32", "float64"]
#: What the scores of a classifier are.
ScoresAre = Literal["logits", "probabilities"]
#: By name the shape and the type of an input or output.
Tensors = dict[str, tuple[Any, str]]

#: Most numbers of noise (draws times classes) that are stored: 128 MB in float64.
MOST_DRAWN = 1 << 24
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
        given = {
            n: ndx.argument(shape=shape, dtype=dtype)
            for n, (shape, dtype) in inputs.items()
        }
        model = ndx.build(given, predict(*given.values()))
    models.fold_constants(model)
    return model


def _value_info(name: str, shape: Any, dtype: str) -> Any:
    """The description of an input or output."""
    return models.helper.make_tensor_value_info(
        name, models.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


def _trace(
    method: str,
    inputs: Tensors,
    predict: Callable[..., dict[str, Any]],
    outputs: Tensors,
    opset: Any,
    precision: str,
    **facts: str,
) -> Any:
    """What is recorded, in the operators and the precision that were asked for.

    `facts` are what a reader of the file may want to know, beside those of every file.
    """
    models.check_opset(opset)
    input_dtype = next(iter(inputs.values()))[1]
    check_choice("input_dtype", input_dtype, InputType)
    check_choice("precision", precision, Precision)
    if input_dtype == "float64" and precision == "float32":
        raise ValueError(
            '`precision` must be "float64" for inputs of float64; got "float32". A runtime that '
            'takes the inputs can do the work: leave it out, or use `input_dtype="float32"`.'
        )
    model = record(inputs, predict)
    described = [_value_info(name, *output) for name, output in outputs.items()]
    models.use_opset(model, int(opset), described, narrow=precision == "float32")
    about = {
        "version": VERSION,
        "method": method,
        "opset": str(opset),
        "precision": precision,
    }
    about = {f"hokical_{name}": fact for name, fact in (about | facts).items()}
    models.helper.set_model_props(model, about)
    return model


def _trace_outcomes(
    calibrator: OutcomeCalibrator, opset: int, input_dtype: str, precision: str
) -> Any:
    """The model of a fitted calibrator; see `export`."""
    calibrator.check_fitted()
    rule = calibrator.rule_
    several = calibrator.name == "multilabel"
    if not several and rule.signals is not None:
        raise ValueError(
            "`calibrator` must have been fitted on one confidence per answer to "
            f"become a graph; got {rule.signals.rise.size} signals."
        )
    given, put_out = (
        ("scores", "probabilities") if several else ("confidence", "probability")
    )
    shape = ("batch", rule.shift.size) if several else ("batch",)
    dtype = "float64" if input_dtype == "float64" else "float32"
    inputs: Tensors = {given: (shape, input_dtype)}
    coding = getattr(rule, "needed_groups", None)
    if coding is not None:
        inputs["groups"] = (("batch", len(coding.columns)), "int64")
    scale = None if several else float(calibrator.get_params()["scale"])
    predict = partial(_predict_outcomes, rule, scale, put_out, dtype)
    outputs = {put_out: (shape, dtype)}
    return _trace(calibrator.name, inputs, predict, outputs, opset, precision)


def _predict_outcomes(
    rule: Any,
    scale: float | None,
    name: str,
    dtype: str,
    values: Array,
    groups: Any = None,
) -> dict[str, Any]:
    """Probabilities of traced scores, or confidences of a scale; NaN where Python would
    refuse.

    A function of the module, as `_predict` is, so that it can be pickled.
    """
    xp = BACKEND.namespace(values)
    if scale is None:
        found = xp.where(xp.isnan(values), xp.nan, rule.proba(values, BACKEND))
    else:
        stated = to_float64(values, xp) / scale
        found = rule.proba(stated, groups, xp)
        found = xp.where((stated >= 0.0) & (stated <= 1.0), found, xp.nan)
    return {name: xp.astype(found, getattr(xp, dtype))}


def _count_classes(calibrator: Any) -> int:
    """Of a calibrator of logits, fitted, whose noise is not so much that the file
    would be huge.
    """
    if not isinstance(calibrator, Calibrator):
        rule = (
            "`calibrator` must be one of hokical's for logits; got "
            f"{type(calibrator).__name__}"
        )
        raise TypeError(f"{rule}. `hokical.load` reads a saved one.")
    calibrator.check_fitted()
    kind = calibrator.rule_.logits_kind
    check_plain_logits(calibrator.rule_.name, kind, "calibrator")
    draws: Any = getattr(calibrator.rule_.core, "draws", None)
    size = 0 if draws is None else draws.n_draws * draws.n_classes
    if size > MOST_DRAWN:
        rule = (
            f"`draws` times classes must be at most {MOST_DRAWN:,} to be stored in a "
            "graph"
        )
        found = (
            f"{draws.n_draws:,} draws of {draws.n_classes:,} classes, {size:,} numbers"
        )
        remedy = (
            "fewer draws, or with exact stability, `Hoki(draws=None)`, which stores "
            "none"
        )
        raise ValueError(f"{rule}; got {found}. Fit with {remedy}.")
    return calibrator.n_classes_


def _trace_logits(
    calibrator: Calibrator,
    opset: int,
    input_dtype: str,
    precision: str,
    wanted: bool | None,
    support: bool,
    shape: models.Shape,
    axis: int = 1,
    zeros: Zeros | None = None,
    lengths: models.Shape | None = None,
) -> Any:
    """The model from `logits` of this shape, or their probabilities with these `zeros`.

    A shape are lengths or names of lengths; `lengths` are what the outputs are told to
    have, if more is known.
    """
    rule = calibrator.rule_
    lengths = lengths or shape
    inputs: Tensors = {"logits": (tuple(shape), input_dtype)}
    if rule.needed_groups is not None:
        inputs["groups"] = (_of_groups(shape, axis, rule), "int64")
    rows = [length for k, length in enumerate(lengths) if k != axis]
    number = "float64" if input_dtype == "float64" else "float32"
    outputs: Tensors = {"labels": (rows, "int64"), "confidence": (rows, number)}
    has_proba = rule.cheap_proba if wanted is None else wanted
    if has_proba:
        outputs["probabilities"] = (lengths, number)
    if isinstance(rule, SetRule):
        outputs["members"] = (lengths, "bool")
    known = calibrator.predictor_.support if support else None
    if known is not None:
        outputs["support"] = (rows, "bool")
    types = {name: dtype for name, (_, dtype) in outputs.items()}
    predict = partial(_predict, rule, known, types, axis, zeros)
    n_classes = str(calibrator.n_classes_)
    return _trace(
        rule.name, inputs, predict, outputs, opset, precision, n_classes=n_classes
    )


def _of_groups(shape: models.Shape, axis: int, rule: Rule) -> tuple[Any, ...]:
    """The shape of the codes of groups beside scores of that shape."""
    coding: Any = rule.needed_groups
    return (*shape[:axis], *shape[axis + 1 :], len(coding.columns))


def _predict(
    rule: Rule,
    support: Support | None,
    types: dict[str, str],
    axis: int,
    zeros: Zeros | None,
    scores: Array,
    groups: Any = None,
) -> dict[str, Any]:
    """The outputs of these types, in the shape of the traced scores."""
    xp = BACKEND.namespace(scores)
    order = [*(k for k in range(scores.ndim) if k != axis), axis]  # classes last
    are_rows = order == [0, 1]
    n_classes = scores.shape[axis]
    last = scores if are_rows else xp.permute_dims(scores, order)
    rows = last if are_rows else xp.reshape(last, (-1, n_classes))
    if zeros is not None:
        is_zero = to_float64(rows, xp) == 0.0
        rows = xp.log(to_float64(rows, xp))
        if zeros == "unlikely":
            rows = xp.where(is_zero, LOG_ZERO, rows)
    if rows.dtype == xp.float16:  # float32 holds the same, and runtimes compute with it
        rows = xp.astype(rows, xp.float32)
    top = to_float64(xp.max(rows, axis=-1), xp)
    top = xp.where(xp.any(xp.isnan(rows), axis=-1), xp.nan, top)
    if groups is not None and not are_rows:
        groups = xp.reshape(groups, (-1, groups.shape[-1]))
    logits = Logits(rows, top, BACKEND, groups)
    found = {}
    for name, dtype in types.items():
        if name == "support" and support is not None:
            prediction = is_within(logits, support.edges)
        else:
            what: Any = "proba" if name == "probabilities" else name
            prediction = predict_unchecked(rule, what, logits)
            if what == "proba" and dtype == "float32" and rows.dtype == xp.float64:
                prediction = keep_above_zero(prediction, logits, LEAST_IN_FLOAT32)
            prediction = xp.astype(prediction, getattr(xp, dtype))
        if not are_rows and name in _PER_CLASS:
            prediction = xp.reshape(prediction, last.dynamic_shape)
            prediction = xp.permute_dims(prediction, np.argsort(order).tolist())
        elif not are_rows:
            prediction = xp.reshape(prediction, last.dynamic_shape[:-1])
        found[name] = prediction
    return found


def export(
    calibrator: Calibrator | OutcomeCalibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = models.DEFAULT_OPSET,
    input_dtype: InputType = "float32",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
) -> Any:
    """Write a fitted calibrator as an ONNX model, and return the model.

    Its input is `logits` (batch, classes), and of a calibrator that learned from groups
    `groups` (batch, columns) int64, made by `calibrator.group_codes`. Its outputs are
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
    if isinstance(calibrator, OutcomeCalibrator):
        if probabilities is not None or support:
            rule = "`probabilities` and `support` are for calibrators of logits"
            raise ValueError(f"{rule}; got one of {calibrator.name}. Leave them out.")
        model = _trace_outcomes(calibrator, opset, input_dtype, precision)
        model.doc_string = f"Calibrated probabilities by {calibrator.name}."
    else:
        shape = ("batch", _count_classes(calibrator))
        options = (opset, input_dtype, precision, probabilities, support, shape)
        model = _trace_logits(calibrator, *options)
        model.doc_string = f"Calibrated confidence by {calibrator.rule_.name}."
    models.write_model(model, path)
    return model


def attach(
    model: Any,
    calibrator: Calibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    output: str | None = None,
    class_axis: int | None = None,
    scores: ScoresAre = "logits",
    zeros: Zeros = "unlikely",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
) -> Any:
    """Append a fitted calibrator to a classifier, and return the model that does both.

    The classifier's outputs stay; `labels`, `confidence` and, as in `export`,
    `probabilities` are added, under `hokical_labels` and so on where the names are
    taken. A calibrator that learned from groups adds the input `groups` (batch,
    columns) int64, as in `export`; of maps, each pixel has them: (batch, height, width,
    columns). The model keeps its opset, which must be 13 or later.

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
    scores : {"logits", "probabilities"}
        What the tensor holds. Of probabilities the logarithm is calibrated, as by
        `hokical.from_probabilities`.
    zeros : {"unlikely", "impossible"}
        For probabilities: the `zeros` with which the calibrator was fitted.
    path, precision, probabilities, support
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
    >>> both = attach(network, Uncalibrated().fit(np.eye(3), [0, 1, 2]))
    >>> [item.name for item in both.graph.output]
    ['scores', 'labels', 'confidence', 'probabilities']
    """
    check_choice("zeros", zeros, Zeros)
    check_choice("scores", scores, ScoresAre)
    n_classes = _count_classes(calibrator)
    whole, opset = models.read_model(model)
    source, dtype, lengths, axis = models.find_scores(
        whole, output, class_axis, n_classes
    )
    if scores == "logits" and models.comes_from_softmax(whole, source):
        warn_user(
            f"{source!r} comes from a softmax or sigmoid, so it holds probabilities, "
            "and is "
            'taken for logits. Pass `scores="probabilities"`, or the name of the logits as '
            "`output`."
        )
    kind = "float32" if dtype == "bfloat16" else dtype  # which tracers do not know
    shape = [n_classes if k == axis else f"axis{k}" for k in range(len(lengths))]
    how = (shape, axis, zeros if scores == "probabilities" else None, lengths)
    part = _trace_logits(
        calibrator, opset, kind, precision, probabilities, support, *how
    )
    taken = models.names_in(models.every_graph(whole.graph))
    prefixes = ("hokical/" * k for k in count(1))
    prefix = next(p for p in prefixes if not any(name.startswith(p) for name in taken))

    def free(wanted: str) -> str:
        """The name itself, or one with a prefix where the model has it already."""
        numbered = (f"hokical_{wanted}_{k}" for k in count(2))
        candidates = chain([wanted, f"hokical_{wanted}"], numbered)
        return next(name for name in candidates if name not in taken)

    names = {item.name: free(item.name) for item in part.graph.output} | {
        "logits": source
    }
    props = {item.key: item.value for item in whole.metadata_props}
    if dtype == "bfloat16":
        names["logits"] = f"{prefix}scores"
        cast = models.helper.make_node(
            "Cast", [source], [names["logits"]], to=models.FLOAT
        )
        whole.graph.node.append(cast)
    if calibrator.rule_.needed_groups is not None:
        names["groups"] = props["hokical_groups"] = free("groups")
        codes = _of_groups(lengths, axis, calibrator.rule_)
        whole.graph.input.append(_value_info(names["groups"], codes, "int64"))
    models.rename(part.graph, names, prefix)
    for own in ("node", "initializer", "output"):
        getattr(whole.graph, own).extend(getattr(part.graph, own))
    props |= {item.key: item.value for item in part.metadata_props}
    props |= {"hokical_scores": source, "hokical_scores_are": scores}
    props |= {"hokical_class_axis": str(axis), "hokical_zeros": zeros}
    models.helper.set_model_props(whole, props)
    models.write_model(whole, path)
    return whole
