"""What a module says of logits: a rule whose numbers are tensors, and rows that nobody checked.

`compiled_answers` is `answers` for `torch.compile`, which cannot follow the Python of the rules and
records the tensor operations alone, as `torch.export` does.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree

from hokical._core.arrays import Array, to_input_library
from hokical._core.blocks import by_blocks
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical.guarantees._support import is_within
from hokical.integrations.torch._backend import BACKEND
from hokical.integrations.torch.kernels._tracing import is_wrapped
from hokical.rules._base import Rule
from hokical.rules._predicting import OF_CLASSES, Output, predict_unchecked, to_float32

Answers = Callable[..., tuple[Tensor, ...]]
Wanted = Output | Literal["support"]


class RuleSpec:
    """A rule for so many classes. Graphs take it for a constant, so it is never changed.

    >>> from hokical.rules._scaling import TemperatureRule
    >>> RuleSpec(TemperatureRule(2.0), 5)
    temps, 5 classes
    """

    def __init__(self, rule: Rule, n_classes: int) -> None:
        self.rule, self.n_classes = rule, n_classes
        #: The buffers that hold the numbers to compute with, by what the rule calls them.
        self.numbers = {name: _legal(name) for name in rule.numbers()}
        self._kind = ", ".join([rule.name, f"{n_classes} classes", *_structure(rule)])

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return self._kind

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the buffers hold, by their names; `kind` is the text of this spec."""
        held = self.rule.numbers() | self.rule.indices()
        kind = np.frombuffer(self._kind.encode(), np.uint8)
        return {"kind": kind} | {_legal(name): np.asarray(value) for name, value in held.items()}

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> Self:
        """The same with other numbers; ValueError if they are of another kind, or of no fit."""
        kind = arrays["kind"].tobytes().decode(errors="replace")
        if kind != self._kind:
            raise ValueError(
                f"the module is for {self}; got the numbers of {kind}. Make it from a calibrator "
                'of that kind, for example from its file: `as_module(hokical.load("cal.json"))`.'
            )
        names = (*self.rule.numbers(), *self.rule.indices())
        numbers = {name: arrays[_legal(name)] for name in names}
        plain = {name: array if array.ndim else float(array) for name, array in numbers.items()}
        try:
            loaded = self.rule.with_numbers(plain, check=True)
        except ValueError as error:
            raise ValueError(f"the numbers are not those of a fit: {error}") from error
        if loaded.n_classes not in (None, self.n_classes):
            raise ValueError(
                f"the numbers must be for {self.n_classes} classes; got {loaded.n_classes}."
            )
        return type(self)(loaded, self.n_classes)


if hasattr(_pytree, "register_constant"):  # from torch 2.7 on
    _pytree.register_constant(RuleSpec)


def _legal(name: str) -> str:
    """What a buffer can be called."""
    return name.replace(".", "_")


def _structure(record: Any, prefix: str = "") -> Iterator[str]:
    """What of a rule is no number to load: kinds of records, names, counts, choices."""
    for field in dataclasses.fields(record):
        name, value = prefix + field.name, getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield f"{name}={type(value).__name__}"
            yield from _structure(value, f"{name}.")
        elif value is None or isinstance(value, (str, int, tuple)):
            yield f"{name}={value}"


def answers(
    spec: RuleSpec,
    wanted: Sequence[Wanted],
    numbers: Sequence[Tensor],
    logits: Tensor,
    groups: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Each answer that is wanted, with the leading shape of the logits (..., classes).

    Floats are float32, and float64 where the logits are; NaN for rows that are no logits. `numbers`
    are those of the rule, and the edges of the support; `groups` the codes (..., columns), if any.
    """
    host = _as_host(spec, logits, numbers)
    data, given = host if host is not None else (_as_logits(spec, logits), [*numbers])
    if groups is not None and spec.rule.needed_groups is not None:
        codes: Any = groups.reshape(-1, len(spec.rule.needed_groups.columns))
        codes = codes.long() if host is None else BACKEND.to_host(codes.long())
        data = GroupedLogits(data.values, data.top, data.backend, codes)
    edges = given.pop()
    rule = spec.rule.with_numbers(dict(zip(spec.numbers, given, strict=True)))
    narrow = logits.is_floating_point() and logits.dtype != torch.float64

    def one(what: Wanted, block: Logits) -> Array:
        within = what == "support"
        found = is_within(block, edges) if within else predict_unchecked(rule, what, block)  # type: ignore[arg-type]
        if host is None:
            return to_input_library(found, logits)
        return to_float32(found) if narrow and found.dtype == np.float64 else found

    def work(block: Logits) -> tuple[Array, ...]:
        return tuple(one(what, block) for what in wanted)

    # Rules have blocks of their own; but all probabilities in float64 would be too many.
    per_row = 1 if OF_CLASSES.isdisjoint(wanted) else spec.n_classes
    parts = by_blocks(work, data, per_row)
    if host is not None:
        parts = [BACKEND.from_host(part, logits) for part in parts]
    shape = logits.shape
    return tuple(
        part.reshape(shape if what in OF_CLASSES else shape[:-1])
        for what, part in zip(wanted, parts, strict=True)
    )


def _as_host(
    spec: RuleSpec, logits: Tensor, numbers: Sequence[Tensor]
) -> tuple[Logits, list[Any]] | None:
    """Logits and numbers for NumPy, whose kernels are the fastest; None if torch must do it.

    That is on other devices, in gradients and graphs, and for rows that nobody could answer.
    """
    if (
        torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or not logits.numel()
    ):
        return None
    if not all(x.is_cpu and not x.requires_grad and not is_wrapped(x) for x in numbers):
        return None
    rows = BACKEND.host_view(logits)
    if rows is None:
        return None
    rows = rows.reshape(-1, spec.n_classes)
    rows = rows if logits.is_floating_point() else rows.astype(np.float64)
    top = np.max(rows, axis=1).astype(np.float64)
    if not np.isfinite(top).all():
        return None
    return Logits(rows, top), [x.numpy() if x.ndim else x.item() for x in numbers]


def __getattr__(name: str) -> Answers:
    """Importing the compiler takes seconds: it is left to those who use it."""
    if name != "compiled_answers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    compiler = import_module("torch._dynamo")
    # From torch 2.7 on. Before, a compiled graph ends here, and goes on behind.
    trace = getattr(compiler, "nonstrict_trace", lambda function: function)
    found: Answers = globals().setdefault(name, trace(answers))
    return found


def _as_logits(spec: RuleSpec, logits: Tensor) -> Logits:
    """Rows (n, classes) of which the shape alone is known."""
    values = logits.reshape(-1, spec.n_classes)
    wide = values if values.is_floating_point() else values.double()
    return Logits(wide, wide.amax(dim=1).double(), BACKEND)


def check_groups(spec: RuleSpec, logits: Tensor, groups: Any) -> None:
    """Raise where codes of groups are needed, and are not given for every row."""
    coding = spec.rule.needed_groups
    if coding is None:
        return
    shape = (*logits.shape[:-1], len(coding.columns))
    if not isinstance(groups, Tensor) or tuple(groups.shape) != shape:
        raise ValueError(
            f"`groups` must be integers of shape {shape}, for {', '.join(coding.columns)}; got "
            f"{tuple(groups.shape) if isinstance(groups, Tensor) else groups!r}. Make them with "
            "`torch.as_tensor(calibrator.group_codes(groups))`."
        )


def check_shape(spec: RuleSpec, logits: Any) -> None:
    """Raise where a tensor of another shape is wanted."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"`logits` must be a tensor; got {type(logits).__name__}. The calibrator itself takes "
            "arrays."
        )
    if logits.ndim < 1 or logits.shape[-1] != spec.n_classes:
        raise ValueError(
            f"`logits` must have {spec.n_classes} classes, along the last axis; got shape "
            f"{tuple(logits.shape)}. Move the axis there with `.movedim(1, -1)`."
        )
