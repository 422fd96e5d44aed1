"""A rule as an ONNX model: options checked, and predictions of arrays that record operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import Array, to_float64
from hokical._core.checks import check_choice
from hokical._core.conversion import LOG_ZERO, Zeros
from hokical._core.logits import Logits
from hokical._core.version import VERSION
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import check_plain_logits
from hokical.guarantees.scores import Support
from hokical.integrations.onnx.backend import BACKEND, onnx_module
from hokical.integrations.onnx.rewriting import fold_constants, use_float32, use_opset
from hokical.rules.base import Output, Rule, predict_unchecked
from hokical.rules.wrapped import SetRule

Precision = Literal["float64", "float32"]
InputType = Literal["float16", "float32", "float64"]
Shape = Sequence[int | str | None]

#: The opset that is written unless another is asked for, and the oldest that can be.
DEFAULT_OPSET, OLDEST_OPSET = 17, 13
#: Most numbers of noise (draws times classes) that are stored: 128 MB in float64.
MOST_DRAWN = 1 << 24
#: The outputs of a graph, and what of a rule they are.
_OUTPUTS: dict[str, Output] = {
    "labels": "labels",
    "confidence": "confidence",
    "probabilities": "proba",
    "members": "members",
}
#: Outputs with a number for every class.
PER_CLASS = ("probabilities", "members")


@dataclass(frozen=True)
class ExportPlan:
    """A rule, and how it is to be written."""

    rule: Rule
    n_classes: int
    opset: int
    input_dtype: np.dtype[np.floating]
    precision: np.dtype[np.floating]
    probabilities: bool
    support: Support | None

    @property
    def outputs(self) -> list[str]:
        """The names of what is put out."""
        sets = isinstance(self.rule, SetRule)
        known = self.support is not None
        wanted = {"probabilities": self.probabilities, "members": sets, "support": known}
        return ["labels", "confidence", *(name for name, asked in wanted.items() if asked)]

    def dtype_of(self, output: str) -> np.dtype[Any]:
        """The type of an output."""
        if output in ("labels", "support", "members"):
            return np.dtype(np.int64 if output == "labels" else np.bool_)
        return np.dtype(np.float64 if self.input_dtype.itemsize == 8 else np.float32)

    def metadata(self) -> dict[str, str]:
        """What a reader of the file may want to know."""
        facts = metadata(self.rule.name, self.opset, self.precision.name)
        return facts | {"hokical_n_classes": str(self.n_classes)}


def metadata(method: str, opset: int, precision: str) -> dict[str, str]:
    """What a file of any calibrator says about itself."""
    return {
        "hokical_version": VERSION,
        "hokical_method": method,
        "hokical_opset": str(opset),
        "hokical_precision": precision,
    }


def value_info(name: str, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """The description of an input or output."""
    helper = onnx_module("onnx.helper")
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def make_plan(
    calibrator: Calibrator,
    opset: int,
    input_dtype: str,
    precision: str,
    probabilities: bool | None,
    support: bool,
) -> ExportPlan:
    """Check the options of `export` and `attach`."""
    if not isinstance(calibrator, Calibrator):
        raise TypeError(
            "`calibrator` must be one of hokical's for logits; got "
            f"{type(calibrator).__name__}. `hokical.load` reads a saved one."
        )
    calibrator._check_fitted()
    rule = calibrator.rule_
    check_plain_logits(rule, "calibrator")
    check_types(opset, input_dtype, precision)
    _check_size(rule)
    wanted = rule.cheap_proba if probabilities is None else bool(probabilities)
    classes, dtype = calibrator.n_classes_, np.dtype(input_dtype)
    known = calibrator._kept("support") if support else None
    return ExportPlan(rule, classes, int(opset), dtype, np.dtype(precision), wanted, known)


def check_types(opset: Any, input_dtype: str, precision: str) -> None:
    """Refuse what a graph cannot be written in."""
    check_opset(opset)
    check_choice("input_dtype", input_dtype, InputType)
    check_choice("precision", precision, Precision)
    if input_dtype == "float64" and precision == "float32":
        raise ValueError(
            '`precision` must be "float64" for inputs of float64; got "float32". A runtime that '
            'takes the inputs can do the work: leave it out, or use `input_dtype="float32"`.'
        )


def check_opset(opset: Any, name: str = "`opset`") -> None:
    """Refuse what this `onnx` cannot write."""
    newest = onnx_module("onnx.defs").onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {opset!r}.")
    if not OLDEST_OPSET <= opset <= newest:
        raise ValueError(
            f"{name} must be from {OLDEST_OPSET} to {newest}, the newest this `onnx` knows; got "
            f"{opset}. Use {DEFAULT_OPSET}, or for a model "
            f"`onnx.version_converter.convert_version(model, {DEFAULT_OPSET})`."
        )


def _check_size(rule: Rule) -> None:
    """Refuse noise that would make the file huge."""
    draws: Any = getattr(rule, "draws", None)
    size = 0 if draws is None else draws.n_draws * draws.n_classes
    if size > MOST_DRAWN:
        raise ValueError(
            f"`draws` times classes must be at most {MOST_DRAWN:,} to be stored in a graph; got "
            f"{draws.n_draws:,} draws of {draws.n_classes:,} classes, {size:,} numbers. Fit with "
            "fewer draws, or with exact stability, `Hoki(draws=None)`, which stores none."
        )


@dataclass(frozen=True)
class ScoresLayout:
    """The shape of the scores (lengths or names), the axis of the classes, and what they hold."""

    shape: tuple[int | str, ...]
    axis: int = 1
    are_probabilities: bool = False
    zeros: Zeros = "unlikely"

    @property
    def is_flat(self) -> bool:
        """Whether they are rows (n, classes)."""
        return len(self.shape) == 2 and self.axis == 1

    @property
    def order(self) -> list[int]:
        """The axes with the classes last."""
        return [k for k in range(len(self.shape)) if k != self.axis] + [self.axis]

    def of_groups(self, lengths: Sequence[Any], n_columns: int) -> list[Any]:
        """The shape of the codes of groups beside scores of these lengths."""
        return [*(lengths[k] for k in self.order[:-1]), n_columns]


def trace(plan: ExportPlan, layout: ScoresLayout, lengths: Shape | None = None) -> Any:
    """A model from `logits` to the plan's outputs; `lengths` are those of the scores, if known."""
    shape = layout.shape if lengths is None else lengths
    rows = [shape[k] for k in layout.order[:-1]]
    outputs = [
        value_info(name, shape if name in PER_CLASS else rows, plan.dtype_of(name))
        for name in plan.outputs
    ]
    return finish(record(plan, layout), plan.opset, plan.precision.name, outputs)


def finish(model: Any, opset: int, precision: str, outputs: Sequence[Any]) -> Any:
    """A recorded model in the operators and the precision that were asked for."""
    if precision == "float32":
        use_float32(model)
    use_opset(model, opset)
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    model.graph.name = "calibrator"
    model.producer_name, model.producer_version = "hokical", VERSION
    return model


def record(plan: ExportPlan, layout: ScoresLayout) -> Any:
    """The model as it was recorded, in float64 and the tracer's opset."""
    arguments: dict[str, Any] = {"logits": (layout.shape, plan.input_dtype.name)}
    if plan.rule.needed_groups is not None:
        shape = layout.of_groups(layout.shape, len(plan.rule.needed_groups.columns))
        arguments["groups"] = (tuple(shape), "int64")
    return record_predictions(
        arguments, lambda given: _predict(plan, layout, given["logits"], given.get("groups"))
    )


def record_predictions(
    arguments: dict[str, tuple[Any, str]], predict: Callable[[dict[str, Any]], dict[str, Any]]
) -> Any:
    """The model of a function of inputs, given by name with shape and type."""
    ndx = onnx_module("ndonnx")
    future = onnx_module("spox._future")
    # Constants are evaluated in Python: a session of onnxruntime for each takes far longer.
    with future.value_prop_backend(future.ValuePropBackend.REFERENCE):
        inputs = {
            name: ndx.argument(shape=shape, dtype=dtype)
            for name, (shape, dtype) in arguments.items()
        }
        model = ndx.build(inputs, predict(inputs))
    fold_constants(model)
    return model


def _predict(
    plan: ExportPlan, layout: ScoresLayout, scores: Array, groups: Array | None
) -> dict[str, Any]:
    """The outputs, in the shape of the scores."""
    xp = BACKEND.namespace(scores)
    last = scores if layout.is_flat else xp.permute_dims(scores, layout.order)
    rows = last if layout.is_flat else xp.reshape(last, (-1, plan.n_classes))
    if layout.are_probabilities:
        is_zero = to_float64(rows, xp) == 0.0
        rows = xp.log(to_float64(rows, xp))
        if layout.zeros == "unlikely":
            rows = xp.where(is_zero, LOG_ZERO, rows)
    wide = _widen(rows)
    logits = Logits(wide, _sound_top(wide), BACKEND)
    if groups is not None:
        codes = groups if layout.is_flat else xp.reshape(groups, (-1, groups.shape[-1]))
        logits = Logits(wide, logits.top, BACKEND, codes)
    found = {}
    for name in plan.outputs:
        if name == "support" and plan.support is not None:
            prediction = plan.support.holds(logits)
        else:
            prediction = predict_unchecked(plan.rule, _OUTPUTS[name], logits)
            prediction = xp.astype(prediction, getattr(xp, plan.dtype_of(name).name))
        if not layout.is_flat:
            shape = last.dynamic_shape
            prediction = xp.reshape(prediction, shape if name in PER_CLASS else shape[:-1])
        if not layout.is_flat and name in PER_CLASS:
            prediction = xp.permute_dims(prediction, np.argsort(layout.order).tolist())
        found[name] = prediction
    return found


def _widen(values: Array) -> Array:
    """float16 as float32, which holds the same numbers and which runtimes compute with."""
    xp = BACKEND.namespace(values)
    return xp.astype(values, xp.float32) if values.dtype == xp.float16 else values


def _sound_top(values: Array) -> Array:
    """The largest along the last axis in float64, NaN where there is one among them."""
    xp = BACKEND.namespace(values)
    top = to_float64(xp.max(values, axis=-1), xp)
    return xp.where(xp.any(xp.isnan(values), axis=-1), xp.nan, top)
