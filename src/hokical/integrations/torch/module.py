"""A fitted calibrator as an `nn.Module`: buffers that hold the numbers of its rule."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical.calibrators import load
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.calibrators.stored import check_plain_logits
from hokical.integrations.torch import rule_spec
from hokical.integrations.torch import rule_spec as _rule_spec
from hokical.integrations.torch.backend import BACKEND
from hokical.rules.confidence import MultilabelCurves, curve_proba
from hokical.rules.wrapped import SetRule


class Prediction(NamedTuple):
    """`labels` int64 and `confidence`, one of each per row of logits."""

    labels: Tensor
    confidence: Tensor


# `torch.export.save` writes down what a program returns, and knows only what was registered.
_register_namedtuple(Prediction, serialized_type_name="hokical.Prediction")


class _FittedModule(nn.Module, ABC):
    """A fitted calibrator, whose numbers are buffers that the `state_dict` does not list.

    The `state_dict` has the calibrator itself, as the bytes of its file: one that is loaded
    replaces the calibrator, whatever its method. Buffers follow to other devices, and never to
    another dtype.
    """

    fitted: Any

    def __init__(self, calibrator: Any) -> None:
        super().__init__()
        self._hold(calibrator)

    @abstractmethod
    def _numbers(self) -> dict[str, Any]:
        """The numbers of the calibrator, by the names of their buffers."""

    def _hold(self, calibrator: Any) -> None:
        self.fitted, self._rule = calibrator, calibrator.rule_
        self._buffers.clear()
        for name, value in self._numbers().items():
            self.register_buffer(name, torch.tensor(np.asarray(value)), persistent=False)

    def get_extra_state(self) -> Tensor:
        """The calibrator's file, with the rule that this was made with."""
        twin = copy(self.fitted)
        twin.rule_ = self._rule
        text, device = calibrator_text(twin), next(self.buffers()).device
        found = torch.tensor(bytearray(text.encode()), dtype=torch.uint8)
        return found if device.type == "meta" else found.to(device)

    def set_extra_state(self, state: Any) -> None:
        calibrator = parse_calibrator(bytes(state.cpu().numpy()).decode())
        if isinstance(calibrator, Calibrator) != isinstance(self.fitted, Calibrator):
            raise ValueError(
                f"the state dict must be of a module for {type(self.fitted).__name__}; got "
                f"{type(calibrator).__name__}. Make the module from that: `as_module(calibrator)`."
            )
        device = next(self.buffers()).device
        self._hold(calibrator)
        if device.type != "meta":
            self.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


def calibrator_text(calibrator: Any) -> str:
    """The text of a calibrator's file."""
    with tempfile.TemporaryDirectory() as folder:
        calibrator.save(Path(folder, "cal.json"))
        return Path(folder, "cal.json").read_text(encoding="utf-8")


def parse_calibrator(text: str) -> Any:
    """The calibrator of a file with that text."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cal.json").write_text(text, encoding="utf-8")
        return load(Path(folder, "cal.json"))


class CalibratorModule(_FittedModule):
    """A fitted calibrator as a module; `as_module` makes one.

    The numbers of the fitted rule are float64 buffers: they follow `.to(device)`, and stay float64
    under `.half()` and the like. All is computed in float64, so autocast changes nothing. There are
    no parameters: nothing here is trained. A `state_dict` holds the calibrator itself.

    Only shapes are looked at, never values, so that a module can be exported and a GPU need not
    wait: a row with NaN or +inf, or with nothing but -inf, gets confidence NaN.

    Attributes
    ----------
    n_classes : number of logits per row
    fitted : the calibrator this was made from, or that of a state dict that was loaded
    """

    fitted: Calibrator

    def _hold(self, calibrator: Calibrator) -> None:
        self._spec = rule_spec.RuleSpec(calibrator.rule_, int(calibrator.n_classes_))
        super()._hold(calibrator)

    def _numbers(self) -> dict[str, Any]:
        held, support = self._rule.numbers(), self.fitted.kept_.support
        edges = [-np.inf, np.inf] * 2 if support is None else support.edges
        found = {buffer: np.atleast_1d(held[name]) for buffer, name in self._spec.numbers.items()}
        return found | {"support_edges": np.asarray(edges, np.float64)}

    @property
    def n_classes(self) -> int:
        return self._spec.n_classes

    def forward(self, logits: Tensor, groups: Tensor | None = None) -> Prediction:
        """Labels and confidence of logits (..., classes), both of the leading shape.

        Confidence is float32, and float64 where the logits are. `groups` (..., columns) are the
        integers of `calibrator.group_codes(groups)`, where it learned from groups.
        """
        return Prediction(*self._evaluate(("labels", "confidence"), logits, groups))

    def proba(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Probabilities of logits (..., classes), of the same shape."""
        return self._evaluate(("proba",), logits, groups)[0]

    def labels(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Labels of logits (..., classes): the likeliest, or the classifier's if those are kept."""
        return self._evaluate(("labels",), logits, groups)[0]

    def members(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Which classes are in the prediction set of logits (..., classes), bool, of that shape.

        Of a module that was made from `with_sets(calibrator, coverage=0.9)`.
        """
        if not isinstance(self._spec.rule, SetRule):
            raise ValueError(
                "this module has no sets: make it from `with_sets(calibrator, coverage=0.9)`."
            )
        return self._evaluate(("members",), logits, groups)[0]

    def support(self, logits: Tensor) -> Tensor:
        """Which rows of logits (..., classes) are like the calibration examples, bool."""
        return self._evaluate(("support",), logits)[0]

    def _evaluate(
        self, wanted: tuple[rule_spec.Wanted, ...], logits: Tensor, groups: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        rule_spec.check_shape(self._spec, logits)
        if "support" not in wanted:
            rule_spec.check_groups(self._spec, logits, groups)
        numbers: Any = [*self._buffers.values()]
        if torch.compiler.is_dynamo_compiling():
            given = (logits,) if groups is None else (logits, groups)  # not None, for the compiler
            return _rule_spec.compiled_outputs(self._spec, wanted, numbers, *given)
        return rule_spec.outputs(self._spec, wanted, numbers, logits, groups)

    def extra_repr(self) -> str:
        return repr(self._spec)


class MultilabelModule(_FittedModule):
    """Scores (..., labels) in, probabilities of the same shape out; made by `as_module`.

    They are float32, and float64 where the scores are.
    """

    fitted: MultilabelCalibrator

    def _numbers(self) -> dict[str, Any]:
        return {field.name: getattr(self._rule, field.name) for field in fields(MultilabelCurves)}

    def forward(self, scores: Tensor) -> Tensor:
        """The probability of each label."""
        return self.proba(scores)

    def proba(self, scores: Tensor) -> Tensor:
        """The probability of each label."""
        size = self.get_buffer("shift").shape[0]
        if scores.ndim < 1 or scores.shape[-1] != size:
            raise ValueError(
                f"`scores` must have {size} labels, along the last axis; got shape "
                f"{tuple(scores.shape)}."
            )
        found = curve_proba(scores, BACKEND, self)
        return found if scores.dtype == torch.float64 else found.float()


@overload
def as_module(calibrator: Calibrator) -> CalibratorModule: ...
@overload
def as_module(calibrator: MultilabelCalibrator) -> MultilabelModule: ...
def as_module(calibrator: Any) -> Any:
    """A fitted calibrator as an `nn.Module`: logits in, labels and confidence out.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted, of any method, or loaded from a file. A `MultilabelCalibrator` gives a module from
        scores to probabilities, both (..., labels).

    Returns
    -------
    CalibratorModule
        Its results are those of the calibrator's `predict`, `predict_confidence` and
        `predict_proba`. It holds a copy: fitting the calibrator again does not change it.

    Examples
    --------
    >>> import torch
    >>> from hokical import make
    >>> from hokical.integrations.torch import as_module
    >>> cal = make("temps").fit([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> module = as_module(cal)
    >>> labels, confidence = module(torch.tensor([[1.0, 3.0]], dtype=torch.float64))
    >>> labels, bool(confidence == cal.predict_confidence([[1.0, 3.0]])[0])
    (tensor([1]), True)
    >>> module.proba(torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    """
    if isinstance(calibrator, MultilabelCalibrator):
        return MultilabelModule(calibrator)
    if not isinstance(calibrator, Calibrator):
        raise TypeError(
            f"`calibrator` must be a fitted calibrator; got {type(calibrator).__name__}. Make one "
            'with `hokical.make("hoki").fit(logits, labels)`.'
        )
    calibrator._check_fitted()
    check_plain_logits(calibrator.rule_, "calibrator")
    return CalibratorModule(calibrator)
