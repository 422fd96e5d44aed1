"""What a module predicts: a rule whose numbers are tensors, and rows that nobody checked.

`compiled_outputs` is `outputs` for `torch.compile`, which cannot follow the Python of the rules and
records the tensor operations alone, as `torch.export` does.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from hokical._core.arrays import Array, to_input_library
from hokical._core.logits import Logits, by_blocks
from hokical.guarantees.scores import is_within
from hokical.integrations.torch.backend import BACKEND
from hokical.integrations.torch.kernels.fused import is_wrapped
from hokical.rules.base import OF_CLASSES, Output, Rule, predict_unchecked, to_float32

OutputFunction = Callable[..., tuple[Tensor, ...]]
Wanted = Output | Literal["support"]


class RuleSpec:
    """A rule for so many classes. Graphs take it for a constant, so it is never changed.

    >>> from hokical.rules.scaling import TemperatureRule
    >>> RuleSpec(TemperatureRule(2.0), 5)
    temps, 5 classes
    """

    def __init__(self, rule: Rule, n_classes: int) -> None:
        self.rule, self.n_classes = rule, n_classes
        #: What the rule computes with, by the name of its buffer, and the rule's own name for it.
        self.numbers = {name.replace(".", "_"): name for name in rule.numbers()}
        #: Which of them are scalars, held as (1,): the compiler would trace the rule twice for 0-d.
        self.are_scalars = [np.ndim(value) == 0 for value in rule.numbers().values()]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"{self.rule.name}, {self.n_classes} classes"


if hasattr(_pytree, "register_constant"):  # from torch 2.7 on
    _pytree.register_constant(RuleSpec)


def outputs(
    spec: RuleSpec,
    wanted: Sequence[Wanted],
    numbers: Sequence[Tensor],
    logits: Tensor,
    groups: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Each output that is wanted, with the leading shape of the logits (..., classes).

    Floats are float32, and float64 where the logits are; NaN for rows that are no logits. `numbers`
    are those of the rule, and the edges of the support; `groups` the codes (..., columns), if any.
    """
    host = _as_host(spec, logits, numbers)
    data = _as_logits(spec, logits) if host is None else host
    if groups is not None and spec.rule.needed_groups is not None:
        codes: Any = groups.reshape(-1, len(spec.rule.needed_groups.columns))
        codes = codes.long() if host is None else BACKEND.to_host(codes.long())
        data = Logits(data.values, data.top, data.backend, codes)
    given: list[Any] = [*numbers] if host is None else [x.numpy() for x in numbers]
    *own, edges = given
    for i in np.flatnonzero(spec.are_scalars).tolist():
        own[i] = own[i][0] if host is None else own[i].item()
    rule = spec.rule.with_numbers(dict(zip(spec.numbers.values(), own, strict=True)))
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


def _as_host(spec: RuleSpec, logits: Tensor, numbers: Sequence[Tensor]) -> Logits | None:
    """Logits for NumPy, whose kernels are the fastest; None if torch must do it.

    That is on other devices, in gradients and graphs, and for rows that nobody could predict.
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
    return Logits(rows, top)


def __getattr__(name: str) -> OutputFunction:
    """Importing the compiler takes seconds: it is left to those who use it."""
    if name != "compiled_outputs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    compiler = import_module("torch._dynamo")
    # From torch 2.7 on. Before, a compiled graph ends here, and goes on behind.
    trace = getattr(compiler, "nonstrict_trace", lambda function: function)
    found: OutputFunction = globals().setdefault(name, trace(outputs))
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
