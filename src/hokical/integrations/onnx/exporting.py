"""A calibrator as an ONNX graph of its own: logits in, labels and confidence out."""

import os
from typing import Any

from hokical.calibrators.calibrator import Calibrator
from hokical.core.version import VERSION
from hokical.integrations.onnx.package import onnx_module
from hokical.integrations.onnx.planning import DEFAULT_OPSET, InputType, Precision, Shape, make_plan
from hokical.integrations.onnx.tracing import ScoresLayout, trace
from hokical.integrations.onnx.writing import write_model


def export(
    calibrator: Calibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    input_dtype: InputType = "float32",
    precision: Precision = "float64",
    probabilities: bool | None = None,
    support: bool = False,
) -> Any:
    """Write a fitted calibrator as an ONNX model, and return the model.

    Its input is `logits` (batch, classes), and for `recal` also `transformed` (transforms, batch,
    classes). Its outputs are `labels` (batch,) int64, `confidence` (batch,) and `probabilities`
    (batch, classes), floats in float32, or in float64 where `input_dtype` is. Rows that Python
    would refuse (NaN, +inf, or -inf for every class) have NaN for confidence.

    The file is whole or not there at all. `opset` is the version of the operators, 13 or later;
    `input_dtype` that of the logits; `precision` what is computed with: float32 is for runtimes
    without float64, and the page on ONNX says what it costs. `probabilities=None` gives them where
    they are cheap: always, but for Hoki with Gaussian or uniform noise. `support=True` adds
    `support` (batch,) bool: which rows are like the examples of the fit
    (`Calibrator.predict_support`).

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
    plan = make_plan(calibrator, opset, input_dtype, precision, probabilities, support)
    graph = trace(plan, ScoresLayout(("batch", plan.n_classes)))
    graph.number_names("t", {name: name for name in ("logits", "transformed", *plan.outputs)})
    outputs = []
    for name in plan.outputs:
        shape: Shape = ("batch", plan.n_classes)[: 2 if name == "probabilities" else 1]
        outputs.append(plan.value_info(name, shape, plan.dtype_of(name)))
    model = graph.model(outputs)
    model.producer_name, model.producer_version = "hokical", VERSION
    model.doc_string = f"Calibrated confidence by {plan.rule.name}."
    onnx_module("onnx.helper").set_model_props(model, plan.metadata())
    write_model(model, path)
    return model
