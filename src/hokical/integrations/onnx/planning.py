"""What `export` and `attach` were asked for, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hokical.calibrators.calibrator import Calibrator
from hokical.core.version import VERSION
from hokical.guarantees.support import Support
from hokical.integrations.onnx.backend import onnx_module
from hokical.rules.base import Rule

Precision = Literal["float64", "float32"]
InputType = Literal["float16", "float32", "float64"]
Shape = Sequence[int | str | None]

#: The opset that is written unless another is asked for, and the oldest that can be.
DEFAULT_OPSET, OLDEST_OPSET = 17, 13
#: Most numbers of noise (draws times classes) that are stored: 128 MB in float64.
MOST_NUMBERS = 1 << 24


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
        wanted = {"probabilities": self.probabilities, "support": self.support is not None}
        return ["labels", "confidence", *(name for name, asked in wanted.items() if asked)]

    @property
    def n_transforms(self) -> int:
        """How many transformed inputs the rule needs the logits of, 0 for most rules."""
        return int(getattr(self.rule, "n_transforms", 1)) if self.rule.needs_views else 0

    def dtype_of(self, output: str) -> np.dtype[Any]:
        """The type of an output."""
        if output in ("labels", "support"):
            return np.dtype(np.int64 if output == "labels" else np.bool_)
        return np.dtype(np.float64 if self.input_dtype.itemsize == 8 else np.float32)

    def value_info(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """The description of an input or output."""
        helper = onnx_module("onnx.helper")
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        return helper.make_tensor_value_info(name, kind, shape)

    def metadata(self) -> dict[str, str]:
        """What a reader of the file may want to know."""
        return {
            "hokical_version": VERSION,
            "hokical_method": self.rule.name,
            "hokical_n_classes": str(self.n_classes),
            "hokical_opset": str(self.opset),
            "hokical_precision": self.precision.name,
        }


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
            f"`calibrator` must be one of hokical's; got {type(calibrator).__name__}. "
            "`hokical.load` reads a saved one."
        )
    calibrator.check_fitted()
    rule = calibrator.rule_
    check_opset(opset)
    given = (("input_dtype", input_dtype, InputType), ("precision", precision, Precision))
    for name, value, kind in given:
        if value not in get_args(kind):
            raise ValueError(f"`{name}` must be one of {list(get_args(kind))}; got {value!r}.")
    if input_dtype == "float64" and precision == "float32":
        raise ValueError(
            '`precision` must be "float64" for inputs of float64; got "float32". A runtime that '
            'takes the inputs can do the work: leave it out, or use `input_dtype="float32"`.'
        )
    _check_size(rule)
    wanted = rule.cheap_proba if probabilities is None else bool(probabilities)
    classes, dtype = calibrator.n_classes_, np.dtype(input_dtype)
    known = calibrator.known_support if support else None
    return ExportPlan(rule, classes, int(opset), dtype, np.dtype(precision), wanted, known)


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


def _check_size(rule: Rule) -> None:
    """Refuse noise that would make the file huge."""
    draws: Any = getattr(rule, "draws", None)
    size = 0 if draws is None else draws.n_draws * draws.n_classes
    if size > MOST_NUMBERS:
        raise ValueError(
            f"`draws` times classes must be at most {MOST_NUMBERS:,} to be stored in a graph; got "
            f"{draws.n_draws:,} draws of {draws.n_classes:,} classes, {size:,} numbers. Fit with "
            "fewer draws, or with exact stability, `Hoki(draws=None)`, which stores none."
        )
