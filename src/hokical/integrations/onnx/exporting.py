"""A calibrator as an ONNX graph of its own: logits in, labels and confidence out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

import hokical
from hokical.calibrators import BaseCalibrator, ReCal
from hokical.integrations.onnx.builder import Graph, Value
from hokical.integrations.onnx.methods import (
    chosen_method,
    has_cheap_probabilities,
    write_method,
)
from hokical.integrations.onnx.package import onnx_module
from hokical.integrations.onnx.rows import Outcome, Rows
from hokical.integrations.onnx.writing import write_model

Precision = Literal["float64", "float32"]
InputType = Literal["float16", "float32", "float64"]
Shape = Sequence[int | str | None]

#: The opset that is written unless another is asked for, and the oldest that can be.
DEFAULT_OPSET, OLDEST_OPSET = 17, 13


def export(
    calibrator: BaseCalibrator,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    input_dtype: InputType = "float32",
    precision: Precision = "float64",
    probabilities: bool | None = None,
) -> Any:
    """Write a fitted calibrator as an ONNX model, and return the model.

    Its input is `logits` (batch, classes), and for `recal` also `transformed` (transforms, batch,
    classes). Its outputs are `labels` (batch,) int64, `confidence` (batch,) and `probabilities`
    (batch, classes), floats in float32, or in float64 where `input_dtype` is. Rows that Python
    would refuse (NaN, +inf, or -inf for every class) have NaN for confidence.

    Parameters
    ----------
    calibrator : BaseCalibrator
        Any fitted calibrator of the registry.
    path : path, optional
        Where to write it; the file is whole or not there at all.
    opset : int
        Version of the operators, 13 or later.
    input_dtype : {"float32", "float16", "float64"}
        Of the logits.
    precision : {"float64", "float32"}
        What is computed with. float32 is for runtimes without float64; see the page on ONNX for
        what it costs.
    probabilities : bool, optional
        Whether to give all probabilities too. None does where they are cheap: always, but for Hoki
        with Gaussian or uniform noise.

    Examples
    --------
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
    plan = make_plan(calibrator, opset, input_dtype, precision, probabilities)
    helper = onnx_module("onnx.helper")
    graph = Graph(opset=plan.opset, precision=plan.precision)
    inputs = [plan.value_info("logits", ["batch", plan.n_classes], plan.input_dtype)]
    method = chosen_method(calibrator)
    if isinstance(method, ReCal):
        views: Shape = (method.n_transforms_, "batch", plan.n_classes)
        inputs.append(plan.value_info("transformed", views, plan.input_dtype))
    rows = Rows.of(graph, "logits", plan.input_dtype, plan.n_classes)
    outcome = calibrated(calibrator, plan, rows)
    outputs = []
    for name, value in outcome.items():
        graph.rename(value, name)
        shape: Shape = ("batch", plan.n_classes)[: 2 if name == "probabilities" else 1]
        outputs.append(plan.value_info(name, shape, plan.dtype_of(name)))
    body = helper.make_graph(graph.nodes, "calibrator", inputs, outputs, graph.initializers)
    imports = [helper.make_opsetid("", plan.opset)]
    model = helper.make_model(
        body, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports)
    )
    model.producer_name, model.producer_version = "hokical", hokical.__version__
    model.doc_string = f"Calibrated confidence by {calibrator.name}."
    helper.set_model_props(model, plan.metadata(calibrator))
    write_model(model, path)
    return model


@dataclass(frozen=True)
class Plan:
    """What was asked for, checked."""

    n_classes: int
    opset: int
    input_dtype: np.dtype[np.floating]
    precision: np.dtype[np.floating]
    probabilities: bool

    def dtype_of(self, output: str) -> np.dtype[Any]:
        """The type of an output."""
        if output == "labels":
            return np.dtype(np.int64)
        return np.dtype(np.float64 if self.input_dtype.itemsize == 8 else np.float32)

    def value_info(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """The description of an input or output."""
        helper = onnx_module("onnx.helper")
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        return helper.make_tensor_value_info(name, kind, shape)

    def metadata(self, calibrator: BaseCalibrator) -> dict[str, str]:
        """What a reader of the file may want to know."""
        return {
            "hokical_version": hokical.__version__,
            "hokical_method": chosen_method(calibrator).name,
            "hokical_n_classes": str(self.n_classes),
            "hokical_opset": str(self.opset),
            "hokical_precision": self.precision.name,
        }


def make_plan(
    calibrator: BaseCalibrator,
    opset: int,
    input_dtype: str,
    precision: str,
    probabilities: bool | None,
) -> Plan:
    """Check the options of `export` and `attach`."""
    if not isinstance(calibrator, BaseCalibrator):
        raise TypeError(
            f"`calibrator` must be one of hokical's; got {type(calibrator).__name__}. "
            "`hokical.load` reads a saved one."
        )
    check_is_fitted(calibrator, "n_classes_")
    check_opset(opset)
    _check_choice("input_dtype", input_dtype, ("float16", "float32", "float64"))
    _check_choice("precision", precision, ("float64", "float32"))
    if input_dtype == "float64" and precision == "float32":
        raise ValueError(
            '`precision` must be "float64" for inputs of float64; got "float32". A runtime that '
            'takes the inputs can do the work: leave it out, or use `input_dtype="float32"`.'
        )
    wanted = has_cheap_probabilities(calibrator) if probabilities is None else bool(probabilities)
    return Plan(
        calibrator.n_classes_, int(opset), np.dtype(input_dtype), np.dtype(precision), wanted
    )


def check_opset(opset: Any) -> None:
    """Refuse what this `onnx` cannot write."""
    newest = onnx_module("onnx.defs").onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)):
        raise TypeError(f"`opset` must be an integer; got {opset!r}.")
    if not OLDEST_OPSET <= opset <= newest:
        raise ValueError(
            f"`opset` must be from {OLDEST_OPSET} to {newest}, the newest this `onnx` knows; got "
            f"{opset}. The default is {DEFAULT_OPSET}."
        )


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {list(choices)}; got {value!r}.")


def calibrated(
    calibrator: BaseCalibrator, plan: Plan, rows: Rows, transformed: str = "transformed"
) -> dict[str, Value]:
    """Labels, confidence (n,) and, if planned, probabilities (n, classes), as they are put out."""
    outcome = write_method(
        calibrator, rows, _views(calibrator, plan, rows, transformed), plan.probabilities
    )
    return _finished(outcome, plan, rows)


def _views(calibrator: BaseCalibrator, plan: Plan, rows: Rows, name: str) -> list[Rows]:
    """ReCal's transformed logits, one `Rows` per transformation; none for others."""
    method = chosen_method(calibrator)
    if not isinstance(method, ReCal):
        return []
    stack = rows.graph.value(name)
    parts = [
        rows.graph.op("Gather", stack, np.array(k), axis=0) for k in range(method.n_transforms_)
    ]
    return [Rows.of(rows.graph, part.name, plan.input_dtype, plan.n_classes) for part in parts]


def _finished(outcome: Outcome, plan: Plan, rows: Rows) -> dict[str, Value]:
    confidence = rows.unusable.where(np.nan, outcome.confidence)
    dtype = plan.dtype_of("confidence")
    out = {"labels": outcome.labels.squeezed(), "confidence": confidence.squeezed().cast(dtype)}
    if outcome.probabilities is not None:
        proba = rows.unusable.where(np.nan, outcome.probabilities)
        out["probabilities"] = proba.cast(dtype)
    return out
