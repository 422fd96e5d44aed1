"""Calibrators of confidences and of several labels as ONNX models."""

from typing import Any

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical.calibrators._stored import OutcomeCalibrator
from hokical.integrations.onnx import _tracing as tracing
from hokical.integrations.onnx._backend import BACKEND, onnx_module

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
