"""A fitted calibrator as an `nn.Module`: buffers that hold the numbers of its rule."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, Self, overload

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._checks import check_plain_logits
from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.integrations.torch import _rule_spec as _answers
from hokical.integrations.torch._backend import BACKEND
from hokical.integrations.torch._rule_spec import (
    RuleSpec,
    Wanted,
    answers,
    check_groups,
    check_shape,
)
from hokical.rules._multilabel import MultilabelCurves, curve_proba
from hokical.rules._sets import SetRule


class Prediction(NamedTuple):
    """`labels` int64 and `confidence`, one of each per row of logits."""

    labels: Tensor
    confidence: Tensor


# `torch.export.save` writes down what a program returns, and knows only what was registered.
_register_namedtuple(Prediction, serialized_type_name="hokical.Prediction")


class _Float64Module(nn.Module):
    """A module whose buffers follow to other devices, and never to another dtype."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


class CalibratorModule(_Float64Module):
    """A fitted calibrator as a module; `as_module` makes one.

    The numbers of the fitted rule are float64 buffers: they are part of the `state_dict`, follow
    `.to(device)`, and stay float64 under `.half()` and the like. All is computed in float64, so
    autocast changes nothing. There are no parameters: nothing here is trained.

    Only shapes are looked at, never values, so that a module can be exported and a GPU need not
    wait: a row with NaN or +inf, or with nothing but -inf, gets confidence NaN.

    Attributes
    ----------
    n_classes : number of logits per row
    fitted : the calibrator this was made from; None once other numbers have been loaded
    """

    #: Text, so that numbers of another kind are refused even where the sizes agree.
    kind: Tensor

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.fitted: Calibrator | None = calibrator
        self._spec = RuleSpec(calibrator.rule_, int(calibrator.n_classes_))
        for name, array in self._spec.arrays().items():
            self.register_buffer(name, torch.tensor(array))
        known = calibrator.kept_.support
        edges = [-torch.inf, torch.inf] * 2 if known is None else known.edges
        self.register_buffer("support_edges", torch.tensor(edges, dtype=torch.float64))

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
        self, wanted: tuple[Wanted, ...], logits: Tensor, groups: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        check_shape(self._spec, logits)
        if "support" not in wanted:
            check_groups(self._spec, logits, groups)
        numbers = [self._buffers[name] for name in (*self._spec.numbers.values(), "support_edges")]
        if torch.compiler.is_dynamo_compiling():
            given = (logits,) if groups is None else (logits, groups)  # not None, for the compiler
            return _answers.compiled_answers(self._spec, wanted, numbers, *given)
        return answers(self._spec, wanted, numbers, logits, groups)  # type: ignore[arg-type]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any
    ) -> None:
        errors: list[str] = args[-1] if args else options["error_msgs"]
        given = {  # in the buffers' own dtypes, also where they are assigned, not copied
            name: state_dict[prefix + name].to(buffer.dtype)
            for name, buffer in self.named_buffers()
            if isinstance(state_dict.get(prefix + name), Tensor)
        }
        try:
            spec = self._spec_with(given)
        except ValueError as error:
            errors.append(str(error))
            return
        for name, buffer in self.named_buffers():  # sizes of arrays are a matter of the fit
            if name in given and given[name].ndim == buffer.ndim:
                setattr(self, name, buffer.new_empty(given[name].shape))
        own = {prefix + name: value for name, value in given.items()}
        super()._load_from_state_dict({**state_dict, **own}, prefix, *args, **options)
        if given:  # and not the network's numbers alone
            self.fitted, self._spec = None, spec

    def _spec_with(self, given: dict[str, Tensor]) -> RuleSpec:
        """The same with other numbers; ValueError if these cannot be this module's."""
        found = dict(self.named_buffers()) | given
        if not given or any(tensor.is_meta for tensor in found.values()):
            return self._spec  # there is nothing to check
        return self._spec.with_arrays(
            {name: BACKEND.to_host(tensor).copy() for name, tensor in found.items()}
        )

    def extra_repr(self) -> str:
        return repr(self._spec)


class MultilabelModule(_Float64Module):
    """Scores (..., labels) in, probabilities of the same shape out; made by `as_module`.

    They are float32, and float64 where the scores are. `torch.onnx.export` takes it.
    """

    def __init__(self, calibrator: MultilabelCalibrator) -> None:
        super().__init__()
        self.fitted: MultilabelCalibrator | None = calibrator
        for field in fields(MultilabelCurves):
            self.register_buffer(field.name, torch.tensor(getattr(calibrator.rule_, field.name)))

    def forward(self, scores: Tensor) -> Tensor:
        """The probability of each label."""
        size = self.get_buffer("shift").shape[0]
        if scores.ndim < 1 or scores.shape[-1] != size:
            raise ValueError(
                f"`scores` must have {size} labels, along the last axis; got shape "
                f"{tuple(scores.shape)}."
            )
        found = curve_proba(scores, BACKEND, **dict(self.named_buffers()))
        return found if scores.dtype == torch.float64 else found.float()

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self.fitted = None
        super()._load_from_state_dict(*args, **options)


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
