"""A fitted calibrator as an `nn.Module`: buffers that hold the numbers of its rule.

`compiled_outputs` is `outputs` for `torch.compile`, which cannot follow the Python of
the rules and records the tensor operations alone, as `torch.export` does.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from hokical._core.arrays import NUMPY, Array, Backend, to_input_library
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits, by_blocks, row_maxima
from hokical.calibrators import load
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.calibrators.stored import check_plain_logits
from hokical.guarantees.scores import is_within
from hokical.integrations.torch.backend import BACKEND, is_wrapped
from hokical.rules.base import (
    OF_CLASSES,
    Output,
    Rule,
    predict_unchecked,
    to_float32,
)
from hokical.rules.confidence import curve_proba
from hokical.rules.members import PooledMembers, pooled_members_of
from hokical.rules.pooled import MemberLogits
from hokical.rules.sets import SetRule

#: Outputs of a module; "pooled" are the logits that pool the members of an ensemble.
ModuleOutput = Output | Literal["support", "pooled"]
#: Outputs with a number for every class.
_PER_CLASS = OF_CLASSES | {"pooled"}


class RuleSpec:
    """A rule and its number of classes. Graphs take it for a constant, so it never
    changes.
    """

    def __init__(
        self, rule: Rule, n_classes: int, members: PooledMembers | None = None
    ) -> None:
        self.rule = rule
        self.n_classes = n_classes
        #: The pool of an ensemble's members; None for single rows of logits.
        self.members = members
        #: Read here, because the compiler cannot follow properties of nested rules.
        self.needed_groups = rule.needed_groups
        #: The rule's names of its numbers, by the names of their buffers.
        self.numbers = {name.replace(".", "_"): name for name in rule.numbers()}
        #: Which numbers are scalars. Buffers have shape (1,) for them: the compiler
        #: would trace the rule twice for 0-d.
        self.are_scalars = [np.ndim(value) == 0 for value in rule.numbers().values()]

    def rule_with(self, numbers: Sequence[Tensor], *, on_host: bool) -> Rule:
        """The rule with the numbers of buffers, as NumPy arrays on the host."""
        values: list[Any] = []
        for tensor, is_scalar in zip(numbers, self.are_scalars, strict=True):
            if on_host:
                values.append(tensor.item() if is_scalar else tensor.numpy())
            else:
                values.append(tensor[0] if is_scalar else tensor)
        return self.rule.with_numbers(
            dict(zip(self.numbers.values(), values, strict=True))
        )

    def read(self, logits: Array, backend: Backend) -> Logits:
        """Unchecked logits (rows, classes), the members of an ensemble pooled."""
        if self.members is None:
            rows = logits.reshape(-1, self.n_classes)
            return Logits(rows, row_maxima(rows, backend), backend)
        n_members = logits.shape[0]
        chosen = self.members.choose(n_members)
        rows = logits
        if logits.ndim > 3:
            rows = logits.reshape(n_members, -1, self.n_classes)
        if len(chosen) < n_members:
            rows = rows[chosen]
        return self.members.pool_needed(MemberLogits.from_array(rows))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


if hasattr(_pytree, "register_constant"):  # from torch 2.7 on
    _pytree.register_constant(RuleSpec)


def outputs(
    spec: RuleSpec,
    names: Sequence[ModuleOutput],
    numbers: Sequence[Tensor],
    logits: Tensor,
    groups: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The named outputs, with the leading shape of the logits (..., classes).

    Floats are float32, and float64 where the logits are; NaN for rows that are no
    logits. `numbers` are those of the rule, then the edges of the support; `groups` the
    codes (..., columns), if any.
    """
    data = _on_host(spec, logits, numbers)
    on_host = data is not None
    if data is None:
        data = spec.read(_as_floats(logits), BACKEND)
    _attach_groups(data, spec, groups, on_host=on_host)
    *rule_numbers, edges = numbers
    rule = spec.rule_with(rule_numbers, on_host=on_host)
    support_edges = edges.numpy() if on_host else edges
    as_float32 = logits.is_floating_point() and logits.dtype != torch.float64

    def compute(name: ModuleOutput, block: Logits) -> Array:
        output = _output_of_block(name, block, rule, support_edges)
        if not on_host:
            return to_input_library(output, logits)
        narrows = as_float32 and output.dtype == np.float64
        return to_float32(output) if narrows else output

    # Rules divide rows into blocks themselves; but all probabilities in float64 would
    # take too much memory.
    per_row = 1 if _PER_CLASS.isdisjoint(names) else spec.n_classes
    arrays = by_blocks(
        lambda block: tuple(compute(name, block) for name in names), data, per_row
    )
    if on_host:
        arrays = tuple(BACKEND.from_host(array, logits) for array in arrays)
    shape = logits.shape if spec.members is None else logits.shape[1:]
    return tuple(
        array.reshape(shape if name in _PER_CLASS else shape[:-1])
        for name, array in zip(names, arrays, strict=True)
    )


def _as_floats(logits: Tensor) -> Tensor:
    return logits if logits.is_floating_point() else logits.double()


def _attach_groups(
    data: Logits, spec: RuleSpec, groups: Tensor | None, *, on_host: bool
) -> None:
    """Give logits the group codes that the rule needs."""
    if groups is None or spec.needed_groups is None:
        return
    coding = spec.needed_groups
    codes = groups.reshape(-1, len(coding.columns))
    codes = codes.double() if coding.has_numbers else codes.long()
    data.codes = BACKEND.to_host(codes) if on_host else codes


def _output_of_block(
    name: ModuleOutput, block: Logits, rule: Rule, support_edges: Array
) -> Array:
    if name == "pooled":
        return block.values
    if name == "support":
        return is_within(block, support_edges)
    return predict_unchecked(rule, name, block)


def __getattr__(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """`compiled_outputs`, made at first use: importing the compiler takes seconds."""
    if name != "compiled_outputs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    dynamo = import_module("torch._dynamo")
    # Before torch 2.7 a compiled graph is interrupted here, and goes on behind.
    trace = getattr(dynamo, "nonstrict_trace", lambda function: function)
    return globals().setdefault(name, trace(outputs))


#: This module: the attribute `compiled_outputs` is not a global name before its use.
_this_module: Any = sys.modules[__name__]


def _on_host(
    spec: RuleSpec, logits: Tensor, numbers: Sequence[Tensor]
) -> Logits | None:
    """Logits for NumPy, whose kernels are the fastest; None if torch must compute.

    PyTorch computes on other devices, in gradients and graphs, and where a row has no
    finite maximum.
    """
    # While traced, the number of rows may be symbolic: it is not to be asked for.
    if _is_traced() or not all(map(_has_host_values, numbers)) or not logits.numel():
        return None
    rows = BACKEND.host_view(logits)
    if rows is None:
        return None
    if not logits.is_floating_point():
        rows = rows.astype(np.float64)
    with np.errstate(invalid="ignore"):  # of +inf among the logits of a member
        data = spec.read(rows, NUMPY)
    return data if np.isfinite(data.top).all() else None


def _is_traced() -> bool:
    """Whether tensor operations are recorded or dispatched to a mode."""
    tracing = torch._C._get_tracing_state() is not None
    return tracing or bool(torch._C._len_torch_dispatch_stack())


def _has_host_values(tensor: Tensor) -> bool:
    return tensor.is_cpu and not tensor.requires_grad and not is_wrapped(tensor)


class Prediction(NamedTuple):
    """`labels` int64 and `confidence`, one of each per row of logits."""

    labels: Tensor
    confidence: Tensor


# `torch.export.save` stores only types of results that are registered.
_pytree._register_namedtuple(Prediction, serialized_type_name="hokical.Prediction")


class _FittedModule(nn.Module):
    """A fitted calibrator, whose numbers are buffers outside the `state_dict`.

    The `state_dict` holds the bytes of the calibrator's file; loading one replaces the
    calibrator, whatever its method. Buffers move to other devices, and keep their dtype.
    """

    fitted: Any

    def __init__(self, calibrator: Any) -> None:
        super().__init__()
        self._hold(calibrator)

    def _numbers(self) -> dict[str, Any]:
        """The numbers of the calibrator's rule, by the names of their buffers."""
        return {
            field.name: getattr(self._rule, field.name) for field in fields(self._rule)
        }

    def _hold(self, calibrator: Any) -> None:
        self.fitted = calibrator
        self._rule = calibrator.rule_
        self._buffers.clear()
        for name, value in self._numbers().items():
            self.register_buffer(
                name, torch.tensor(np.asarray(value)), persistent=False
            )

    def get_extra_state(self) -> Tensor:
        """The calibrator's file, with the rule that this was made with."""
        text = calibrator_text(self.fitted)
        device = next(self.buffers()).device
        file_bytes = torch.tensor(bytearray(text.encode()), dtype=torch.uint8)
        return file_bytes if device.type == "meta" else file_bytes.to(device)

    def set_extra_state(self, state: Any) -> None:
        calibrator = parse_calibrator(bytes(state.cpu().numpy()).decode())
        if isinstance(calibrator, Calibrator) != isinstance(self.fitted, Calibrator):
            raise ValueError(
                "the state dict must be of a module for "
                f"{type(self.fitted).__name__}; got one for "
                f"{type(calibrator).__name__}. Make the module from that: "
                "`as_module(calibrator)`."
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

    The numbers of the fitted rule are float64 buffers: they follow `.to(device)`, and
    stay float64 under `.half()` and the like. All is computed in float64, so autocast
    changes nothing. There are no parameters: nothing here is trained. A `state_dict`
    holds the calibrator itself.

    Only shapes are looked at, never values, so that a module can be exported and a GPU
    need not wait: a row with NaN or +inf, or with nothing but -inf, gets confidence
    NaN.

    Attributes
    ----------
    n_classes : number of logits per row
    fitted : the calibrator this was made from, or that of a state dict that was loaded
    """

    fitted: Calibrator

    def _hold(self, calibrator: Calibrator) -> None:
        members = pooled_members_of(calibrator.schema_)
        self._spec = RuleSpec(calibrator.rule_, int(calibrator.n_classes_), members)
        super()._hold(calibrator)

    def _numbers(self) -> dict[str, Any]:
        values = self._rule.numbers()
        numbers = {
            buffer: np.atleast_1d(values[name])
            for buffer, name in self._spec.numbers.items()
        }
        support = self.fitted.predictor_.fit_record.support
        edges = [-np.inf, np.inf] * 2 if support is None else support.edges
        # The last buffer, as `outputs` takes them.
        return numbers | {"support_edges": np.asarray(edges, np.float64)}

    @property
    def n_classes(self) -> int:
        return self._spec.n_classes

    def forward(self, logits: Tensor, groups: Tensor | None = None) -> Prediction:
        """Labels and confidence of logits (..., classes), both of the leading shape.

        Confidence is float32, and float64 where the logits are. `groups` (..., columns)
        are those of `calibrator.group_codes(groups)`, where it learned from groups. Of
        an ensemble, logits are (members, ..., classes): all members of the fit, or
        those in `fitted.needed_members_`, in that order. A row of NaN says that a
        member was not evaluated. Results have the shape without the members.
        """
        return Prediction(*self._evaluate(("labels", "confidence"), logits, groups))

    def proba(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Probabilities of logits (..., classes), of the same shape."""
        return self._evaluate(("proba",), logits, groups)[0]

    def labels(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Labels of logits (..., classes): the likeliest, or the classifier's if
        those are kept.
        """
        return self._evaluate(("labels",), logits, groups)[0]

    def members(self, logits: Tensor, groups: Tensor | None = None) -> Tensor:
        """Which classes are in the prediction set of logits (..., classes), bool, of
        that shape.

        Of a module that was made from `with_sets(calibrator, coverage=0.9)`.
        """
        if not isinstance(self._spec.rule, SetRule):
            remedy = "make it from `with_sets(calibrator, coverage=0.9)`"
            raise ValueError(f"this module has no sets: {remedy}.")
        return self._evaluate(("members",), logits, groups)[0]

    def pool(self, logits: Tensor) -> Tensor:
        """The pooled logits (..., classes) of members (members, ..., classes)."""
        self._check_pools()
        return self._evaluate(("pooled",), logits)[0]

    def pool_and_predict(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The pooled logits of members, labels and confidence."""
        self._check_pools()
        pooled, labels, confidence = self._evaluate(
            ("pooled", "labels", "confidence"), logits
        )
        return pooled, labels, confidence

    @property
    def pools(self) -> bool:
        """Whether logits are those (members, ..., classes) of an ensemble."""
        return self._spec.members is not None

    def _check_pools(self) -> None:
        if not self.pools:
            raise ValueError(
                "this module takes one row of logits for each example, so there is "
                "nothing to pool. Fit the calibrator on a `hokical.Ensemble`."
            )

    def support(self, logits: Tensor) -> Tensor:
        """Which rows of logits (..., classes) are like the calibration examples,
        bool.
        """
        return self._evaluate(("support",), logits)[0]

    def _evaluate(
        self,
        names: tuple[ModuleOutput, ...],
        logits: Tensor,
        groups: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The named outputs, by the compiler's version of `outputs` in its graphs."""
        spec = self._spec
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"`logits` must be a tensor; got {type(logits).__name__}. The calibrator "
                "itself takes arrays."
            )
        _check_last_axis("logits", logits, spec.n_classes, "classes")
        shape = logits.shape[:-1]
        if spec.members is not None:
            _check_members(logits, spec.members)
            shape = shape[1:]
        if spec.needed_groups is not None and "support" not in names:
            _check_groups(groups, shape, spec.needed_groups)
        numbers: Any = [*self._buffers.values()]
        if not torch.compiler.is_dynamo_compiling():
            return outputs(spec, names, numbers, logits, groups)
        # The compiler's version takes tensors only, so no None.
        tensors = (logits,) if groups is None else (logits, groups)
        return _this_module.compiled_outputs(spec, names, numbers, *tensors)

    def extra_repr(self) -> str:
        members = self._spec.members
        pooled = "" if members is None else f", {members.describe()}"
        return f"{self._spec.rule.name}, {self.n_classes} classes{pooled}"


def _check_last_axis(name: str, tensor: Tensor, size: int, noun: str) -> None:
    """Raise unless the last axis has one entry for each class or label."""
    if tensor.ndim < 1 or tensor.shape[-1] != size:
        raise ValueError(
            f"`{name}` must have {size} {noun}, along the last axis; got shape "
            f"{tuple(tensor.shape)}. Move the axis there with `.movedim(1, -1)`."
        )


def _check_groups(
    groups: Tensor | None, leading_shape: torch.Size, coding: GroupCoding
) -> None:
    """Raise unless groups have a code or a number for each row and column."""
    needed = (*leading_shape, len(coding.columns))
    shape = tuple(groups.shape) if isinstance(groups, Tensor) else groups
    if shape != needed:
        kind = "numbers" if coding.has_numbers else "integers"
        names = ", ".join(coding.columns)
        raise ValueError(
            f"`groups` must be {kind} of shape {needed}, for {names}; got {shape!r}. "
            "Make them with "
            "`torch.as_tensor(calibrator.group_codes(groups))`."
        )


def _check_members(logits: Tensor, members: PooledMembers) -> None:
    if logits.ndim < 3:
        raise ValueError(
            "`logits` must be (members, n, classes) for a calibrator of an ensemble, "
            f"{members.describe()}; got shape {tuple(logits.shape)}. Stack its members: "
            f"`torch.stack([...])`, of {', '.join(members.needed)}."
        )


class MultilabelModule(_FittedModule):
    """Scores (..., labels) in, probabilities of the same shape out; made by
    `as_module`.

    They are float32, and float64 where the scores are.
    """

    fitted: MultilabelCalibrator

    def forward(self, scores: Tensor) -> Tensor:
        """The probability of each label."""
        _check_last_axis("scores", scores, self.get_buffer("shift").shape[0], "labels")
        proba = curve_proba(scores, BACKEND, self)
        return proba if scores.dtype == torch.float64 else proba.float()

    proba = forward


@overload
def as_module(calibrator: Calibrator) -> CalibratorModule: ...
@overload
def as_module(calibrator: MultilabelCalibrator) -> MultilabelModule: ...
def as_module(calibrator: Any) -> Any:
    """A fitted calibrator as an `nn.Module`: logits in, labels and confidence out.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted, of any method, or loaded from a file. A `MultilabelCalibrator` gives a
        module from scores to probabilities, both (..., labels).

    Returns
    -------
    CalibratorModule
        Its results are those of the calibrator's `predict`, `predict_confidence` and
        `predict_proba`. It holds a copy: fitting the calibrator again does not change
        it. That of a calibrator of a `hokical.Ensemble` takes logits (members, n,
        classes).

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
            "`calibrator` must be a fitted calibrator; got "
            f"{type(calibrator).__name__}. Make one with "
            '`hokical.make("hoki").fit(logits, labels)`.'
        )
    calibrator.check_fitted()
    fitted_rule = calibrator.rule_
    check_plain_logits(fitted_rule.name, fitted_rule.logits_kind, "calibrator")
    return CalibratorModule(calibrator)
