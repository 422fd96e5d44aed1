"""Calibrators of something else than logits as ONNX graphs: confidences, and several labels."""

from typing import Any

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.version import VERSION
from hokical.calibrators._outcomes import OutcomeCalibrator
from hokical.integrations.onnx import _tracing as tracing
from hokical.integrations.onnx._backend import BACKEND, onnx_module

#: By method the input and the output of its graph.
NAMES = {"multilabel": ("scores", "probabilities"), "confidence": ("confidence", "probability")}


def export_beyond(
    calibrator: OutcomeCalibrator, opset: int, input_dtype: str, precision: str
) -> Any:
    """The model of a fitted calibrator; see `export`."""
    calibrator._check_fitted()
    tracing.check_types(opset, input_dtype, precision)
    given, put_out = NAMES[calibrator.name]
    several = calibrator.name == "multilabel"
    shape: tuple[Any, ...] = ("batch", calibrator.rule_.shift.size) if several else ("batch",)

    def answer(inputs: dict[str, Array]) -> dict[str, Any]:
        found = _answer(calibrator, inputs[given], inputs.get("groups"))
        xp = BACKEND.namespace(found)
        wide = input_dtype == "float64"
        return {put_out: xp.astype(found, xp.float64 if wide else xp.float32)}

    coding = getattr(calibrator.rule_, "coding", None)
    arguments = {given: (shape, input_dtype)}
    if coding is not None:
        arguments["groups"] = (("batch", len(coding.columns)), "int64")
    graph = tracing.finish(tracing.record_answers(arguments, answer), opset, precision)
    graph.number_names("t", {name: name for name in (*arguments, put_out)})
    dtype = np.dtype("float64" if input_dtype == "float64" else "float32")
    model = graph.model([tracing.value_info(put_out, shape, dtype)])
    model.doc_string = f"Calibrated probabilities by {calibrator.name}."
    facts = {
        "hokical_version": VERSION,
        "hokical_method": calibrator.name,
        "hokical_opset": str(opset),
        "hokical_precision": precision,
    }
    onnx_module("onnx.helper").set_model_props(model, facts)
    return model


def _answer(calibrator: OutcomeCalibrator, values: Array, groups: Array | None) -> Array:
    """What is said of traced inputs; NaN of what Python would refuse."""
    xp, rule = BACKEND.namespace(values), calibrator.rule_
    if calibrator.name == "multilabel":
        return xp.where(xp.isnan(values), xp.nan, rule.proba(values, BACKEND))
    stated = to_float64(values, xp) / float(calibrator.get_params()["scale"])
    found = rule.traced_proba(stated, groups, xp)
    return xp.where((stated >= 0.0) & (stated <= 1.0), found, xp.nan)
