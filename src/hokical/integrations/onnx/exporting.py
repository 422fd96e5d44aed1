"""A calibrator as an ONNX graph of its own, or behind an exported classifier in one file.

Calibrators of confidences and of several labels have graphs of their own alone.
"""

import os
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.conversion import Zeros, check_zeros
from hokical._core.messages import warn_user
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import OutcomeCalibrator
from hokical.integrations.onnx import models, tracing
from hokical.integrations.onnx.backend import BACKEND, onnx_module
from hokical.integrations.onnx.models import Scores
from hokical.integrations.onnx.rewriting import rename
from hokical.integrations.onnx.tracing import ExportPlan, InputType, Precision, ScoresLayout

#: By method the input and the output of its graph.
NAMES = {"multilabel": ("scores", "probabilities"), "confidence": ("confidence", "probability")}


def trace_outcomes(
    calibrator: OutcomeCalibrator, opset: int, input_dtype: str, precision: str
) -> Any:
    """The model of a fitted calibrator; see `export`."""
    calibrator._check_fitted()
    tracing.check_types(opset, input_dtype, precision)
    given, put_out = NAMES[calibrator.name]
    several = calibrator.name == "multilabel"
    shape: tuple[Any, ...] = ("batch", calibrator.rule_.shift.size) if several else ("batch",)
    dtype = np.dtype("float64" if input_dtype == "float64" else "float32")

    def predict(inputs: dict[str, Array]) -> dict[str, Any]:
        found = _predict(calibrator, inputs[given], inputs.get("groups"))
        xp = BACKEND.namespace(found)
        return {put_out: xp.astype(found, getattr(xp, dtype.name))}

    coding = getattr(calibrator.rule_, "needed_groups", None)
    arguments = {given: (shape, input_dtype)}
    if coding is not None:
        arguments["groups"] = (("batch", len(coding.columns)), "int64")
    recorded = tracing.record_predictions(arguments, predict)
    outputs = [tracing.value_info(put_out, shape, dtype)]
    model = tracing.finish(recorded, opset, precision, outputs)
    model.doc_string = f"Calibrated probabilities by {calibrator.name}."
    facts = tracing.metadata(calibrator.name, opset, precision)
    onnx_module("onnx.helper").set_model_props(model, facts)
    return model


def _predict(calibrator: OutcomeCalibrator, values: Array, groups: Array | None) -> Array:
    """Probabilities of traced inputs; NaN for what Python would refuse."""
    xp, rule = BACKEND.namespace(values), calibrator.rule_
    if calibrator.name == "multilabel":
        return xp.where(xp.isnan(values), xp.nan, rule.proba(values, BACKEND))
    stated = to_float64(values, xp) / float(calibrator.get_params()["scale"])
    if rule.signals is not None:
        raise ValueError(
            "`calibrator` must have been fitted on one confidence per answer to become a graph; "
            f"got {rule.signals.rise.size} signals."
        )
    found = rule.proba(stated, groups, xp)
    return xp.where((stated >= 0.0) & (stated <= 1.0), found, xp.nan)


_FLOAT = 1


def export(
    calibrator: Calibrator | OutcomeCalibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = tracing.DEFAULT_OPSET,
    input_dtype: InputType = "float32",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
) -> Any:
    """Write a fitted calibrator as an ONNX model, and return the model.

    Its input is `logits` (batch, classes), and of a calibrator that learned from groups `groups`
    (batch, columns) int64, made by `calibrator.group_codes`. Its outputs are `labels` (batch,)
    int64, `confidence` (batch,) and `probabilities` (batch, classes), floats in float32, or in
    float64 where `input_dtype` is. Rows that Python would refuse (NaN, +inf, or -inf for every
    class) have NaN for confidence.

    The file is whole or not there at all. `opset` is the version of the operators, 13 or later;
    `input_dtype` that of the logits; `precision` what is computed with: float32 is for runtimes
    without float64, and the page on ONNX says what it costs. `probabilities=None` gives them where
    they are cheap: always, but for Hoki with Gaussian or uniform noise. `support=True` adds
    `support` (batch,) bool: which rows are like the calibration examples
    (`Calibrator.predict_support`). A calibrator `with_sets(coverage=0.9)` adds `members` (batch,
    classes) bool: its prediction sets.

    A `MultilabelCalibrator` has the input `scores` (batch, labels) and the output `probabilities`
    (batch, labels); a `ConfidenceCalibrator` `confidence` (batch,), `groups` where it learned from
    them, and `probability` (batch,).

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
            raise ValueError(
                "`probabilities` and `support` are for calibrators of logits; got one of "
                f"{calibrator.name}. Leave them out."
            )
        model = trace_outcomes(calibrator, opset, input_dtype, precision)
    else:
        given = (input_dtype, precision, probabilities, support)
        plan = tracing.make_plan(calibrator, opset, *given)
        model = tracing.trace(plan, ScoresLayout(("batch", plan.n_classes)))
        model.doc_string = f"Calibrated confidence by {plan.rule.name}."
        onnx_module("onnx.helper").set_model_props(model, plan.metadata())
    models.write_model(model, path)
    return model


def attach(
    model: Any,
    calibrator: Calibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    output: str | None = None,
    class_axis: int | None = None,
    scores: Literal["logits", "probabilities"] = "logits",
    zeros: Zeros = "unlikely",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
) -> Any:
    """Append a fitted calibrator to a classifier, and return the model that does both.

    The classifier's outputs stay; `labels`, `confidence` and, as in `export`, `probabilities` are
    added, under `hokical_labels` and so on where the names are taken. A calibrator that learned
    from groups adds the input `groups` (batch, columns) int64, as in `export`; of maps, each pixel
    has them: (batch, height, width, columns). The model keeps its opset, which must
    be 13 or later.

    Parameters
    ----------
    model : path or onnx.ModelProto
        The classifier. A ModelProto is copied, not changed.
    calibrator : Calibrator
        Fitted on this classifier's scores.
    output : str, optional
        Name of the tensor with the scores, an output or any other. Not needed where only one output
        of floats (batch, classes) could be meant.
    class_axis : int, optional
        Where the classes are, if not in the last of two axes: 1 for maps (batch, classes, height,
        width). Labels and confidence have the other axes, in their order.
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
    >>> graph = helper.make_graph([helper.make_node("Neg", ["x"], ["scores"])], "net", [x], [y])
    >>> network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> both = attach(network, Uncalibrated().fit(np.eye(3), [0, 1, 2]))
    >>> [item.name for item in both.graph.output]
    ['scores', 'labels', 'confidence', 'probabilities']
    """
    check_zeros(zeros)
    if scores not in ("logits", "probabilities"):
        raise ValueError(f'`scores` must be "logits" or "probabilities"; got {scores!r}.')
    whole = models.read_model(model)
    found = models.find_scores(whole, output, class_axis, getattr(calibrator, "n_classes_", 0))
    kind = "float32" if found.dtype == "bfloat16" else found.dtype
    given = (kind, precision, probabilities, support)
    plan = tracing.make_plan(calibrator, models.opset_of(whole), *given)
    axis, rank = _check_axis(found, class_axis, plan.n_classes)
    if scores == "logits" and models.comes_from_softmax(whole, found.name):
        warn_user(
            f"{found.name!r} comes from a softmax or sigmoid, so it holds probabilities, and is "
            'taken for logits. Pass `scores="probabilities"`, or the name of the logits as '
            "`output`.",
            UserWarning,
        )
    names = [f"axis{k}" for k in range(rank)]
    shape = tuple(plan.n_classes if k == axis else name for k, name in enumerate(names))
    _append(whole, plan, found, ScoresLayout(shape, axis, scores == "probabilities", zeros))
    props = {item.key: item.value for item in whole.metadata_props}
    props |= plan.metadata()
    props |= {"hokical_scores": found.name, "hokical_scores_are": scores}
    props |= {"hokical_class_axis": str(axis), "hokical_zeros": zeros}
    onnx_module("onnx.helper").set_model_props(whole, props)
    models.write_model(whole, path)
    return whole


def _append(whole: Any, plan: ExportPlan, found: Scores, layout: ScoresLayout) -> None:
    """Put the calibrator's nodes, constants and outputs into the model."""
    prefix, lengths = models.free_prefix(whole), found.shape or (None,) * len(layout.shape)
    part = tracing.trace(plan, layout, lengths).graph
    names = {name: models.free_name(whole, name) for name in plan.outputs}
    names["logits"] = found.name
    if found.dtype == "bfloat16":  # which tracers do not know
        names["logits"] = f"{prefix}scores"
        make = onnx_module("onnx.helper").make_node
        whole.graph.node.append(make("Cast", [found.name], [names["logits"]], to=_FLOAT))
    if plan.rule.needed_groups is not None:
        names["groups"] = models.free_name(whole, "groups")
        shape = layout.of_groups(lengths, len(plan.rule.needed_groups.columns))
        codes = tracing.value_info(names["groups"], shape, np.dtype(np.int64))
        whole.graph.input.append(codes)
        whole.metadata_props.add(key="hokical_groups", value=names["groups"])
    rename(part, names, prefix)
    whole.graph.node.extend(part.node)
    whole.graph.initializer.extend(part.initializer)
    whole.graph.output.extend(part.output)


def _check_axis(found: Scores, class_axis: int | None, n_classes: int) -> tuple[int, int]:
    """The axis of the classes, counted from the front, and the number of axes."""
    rank = 2 if found.shape is None else len(found.shape)
    if class_axis is None and rank != 2:
        raise ValueError(
            f"`class_axis` must say where the classes are in {found.name!r}, which has shape "
            f"{found.shape}: 1 for maps (batch, classes, height, width), -1 if they come last."
        )
    axis = 1 if class_axis is None else class_axis
    if rank < 2 or not -rank <= axis < rank:
        raise ValueError(
            f"`class_axis` must be an axis of {found.name!r}, which has {rank}; got {class_axis}."
        )
    axis %= rank
    if found.shape is None:
        return axis, rank
    length = found.shape[axis]
    if isinstance(length, int) and length != n_classes:
        raise ValueError(
            f"`calibrator` must have as many classes as the model; it has {n_classes}, and "
            f"{found.name!r} of shape {models.shape_in_words(found.shape)} has {length} in axis "
            f"{axis}. Fit it on this model's scores, or name another tensor as `output`."
        )
    return axis, rank
