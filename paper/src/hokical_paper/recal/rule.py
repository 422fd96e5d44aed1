"""ReCal as a rule: the recorded steps, replayed on logits and those of transformed
inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from hokical.rules import Logits, Rule
from hokical_paper.core import (
    MAX_MARGIN,
    MOST_STEPS,
    by_blocks,
    check_array,
    check_count,
    first_maximum,
    to_float64,
)
from hokical_paper.recal.views import Views
from hokical_paper.types import Array, FloatArray, IntArray, Namespace

N_GROUPS = 4
#: Temperatures before they are shrunk towards 1, and what rounding may add.
TEMPERATURES = (0.1, 10.0)
_ROUNDING = 1e-9
#: Probabilities are taken to be at least 1e-16 before their logarithm is multiplied.
LOWEST_LOG = math.log(1e-16)
#: Relative differences of probabilities that rounding can make.
SAME = 1e-9
#: Margin of an impossible class: its exponential is exactly 0, and products with it are
#: not NaN.
FAR = 1e6
#: More transformations than anyone has.
_MOST_TRANSFORMS = 1 << 20


@dataclass(frozen=True, eq=False)
class ScaledLogits:
    """Logits after some steps: margins below the top are min(scale * margin, cap), row
    by row.

    A step raises tiny probabilities to 1e-16, which puts a cap on a row's margins, and
    multiplies log-probabilities, which multiplies margins and cap. So two numbers per
    row hold all of it, `scale` and `cap` (n,), beside the logits.
    """

    logits: Logits
    scale: Array
    cap: Array

    @classmethod
    def start(cls, logits: Logits) -> ScaledLogits:
        one = logits.xp.ones_like(logits.top)
        return cls(logits, one, one * MAX_MARGIN)

    def times(self, temperature: Array) -> ScaledLogits:
        """One step: clamp, then multiply the log-probabilities of each row by its
        temperature (n,).

        A row with temperature 1 stays as it is.
        """
        cap = self.xp.where(temperature == 1.0, self.cap, self.clamp().cap)
        return replace(self, cap=cap).stretch(temperature)

    def clamp(self) -> ScaledLogits:
        """Probabilities below 1e-16 raised to it."""
        return replace(self, cap=self.xp.minimum(self.cap, -LOWEST_LOG - self.log_norm))

    def stretch(self, factor: Array) -> ScaledLogits:
        """Log-probabilities multiplied."""
        scale = self.xp.clip(self.scale * factor, None, MAX_MARGIN)
        return ScaledLogits(self.logits, scale, self.cap * factor)

    @property
    def margins(self) -> Array:
        """(n, classes), finite: an impossible class is far away. Ask it of blocks of
        rows.
        """
        scaled = self.xp.minimum(
            self.logits.margins * self.scale[:, None], self.cap[:, None]
        )
        return self.xp.where(self.logits.possible, scaled, FAR)

    def margin_of(self, classes: Array) -> Array:
        """The margin of one class per row, (n,); `classes` (n,) beside the logits.

        MAX_MARGIN where it is impossible.
        """
        xp = self.xp
        logits = self.logits
        value = to_float64(
            xp.take_along_axis(logits.values, classes[:, None], axis=1)[:, 0], xp
        )
        possible = value > -xp.inf
        raw = xp.clip(
            logits.top - xp.where(possible, value, logits.top), None, MAX_MARGIN
        )
        return xp.where(possible, xp.minimum(raw * self.scale, self.cap), MAX_MARGIN)

    @cached_property
    def log_norm(self) -> Array:
        """Minus the log-probability of each row's label, (n,)."""
        xp = self.xp
        return by_blocks(
            lambda part: xp.log(xp.sum(xp.exp(-part.margins), axis=1)), self
        )

    @property
    def confidence(self) -> Array:
        """The probability of each row's label, (n,)."""
        return self.xp.exp(-self.log_norm)

    def distribution(self) -> Array:
        """All probabilities, (n, classes)."""
        return by_blocks(lambda part: _probabilities(part.margins, part.xp), self)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of the margins under the row's own probabilities, (n,)
        each.
        """
        moments: tuple[Array, Array] = by_blocks(_moments, self)
        return moments

    def __getattr__(self, name: str) -> Any:
        """What `by_blocks` asks for is that of the logits."""
        if name in (
            "xp",
            "backend",
            "size",
            "is_numpy",
            "is_traced",
            "n_rows",
            "n_columns",
        ):
            return getattr(self.logits, name)
        raise AttributeError(f"ScaledLogits has no attribute {name!r}")

    def take(self, rows: slice) -> ScaledLogits:
        return ScaledLogits(self.logits.take(rows), self.scale[rows], self.cap[rows])


@dataclass(frozen=True, eq=False)
class ReCalRule(Rule):
    """`temperatures` (steps, 4) of the groups in each step, and its `transformations`
    (steps,).

    The groups: label changed and probability risen, changed and not risen, label kept
    and risen, kept and not risen.
    """

    name: ClassVar[str] = "recal"
    logits_kind: ClassVar[type[Logits]] = Views

    transformations: IntArray
    temperatures: FloatArray
    n_transforms: int

    def __post_init__(self) -> None:
        check_count("n_transforms", self.n_transforms, most=_MOST_TRANSFORMS)
        last = self.n_transforms - 1
        check_array(
            "transformations", self.transformations, (None,), 0, last, dtype=np.int64
        )
        steps = self.transformations.size
        low, high = TEMPERATURES
        bounds = (low - _ROUNDING, high + _ROUNDING)
        check_array("temperatures", self.temperatures, (steps, N_GROUPS), *bounds)
        if steps > MOST_STEPS:
            raise ValueError(
                f"`temperatures` must have at most {MOST_STEPS} steps; got {steps}."
            )

    def confidence(self, logits: Logits) -> Array:
        return self.replay(logits).confidence

    def proba(self, logits: Logits) -> Array:
        return first_maximum(self.replay(logits).distribution(), logits)

    def replay(self, logits: Logits) -> ScaledLogits:
        """The logits after all recorded steps."""
        if not isinstance(logits, Views) or logits.n_transforms != self.n_transforms:
            n_given = logits.n_transforms if isinstance(logits, Views) else "none"
            raise ValueError(
                f"`transformed` must hold the logits of the {self.n_transforms} "
                f"transformations of the fit, in their order; got {n_given}."
            )
        current = ScaledLogits.start(logits.original)
        others = dict[int, ScaledLogits]()
        for step, chosen in enumerate(self.transformations.tolist()):
            other = others.get(chosen) or ScaledLogits.start(logits.views[chosen])
            group = reaction_groups(current, other)
            per_row = logits.xp.take(self.temperatures[step, :], group)
            current = current.times(per_row)
            others[chosen] = other.times(per_row)
        return current

    def on_device_of(self, logits: Logits) -> Self:
        """The same, without steps that were undone in the fit, if the numbers are on
        the host.
        """
        rule = self
        if isinstance(self.temperatures, np.ndarray):
            moving = (self.temperatures != 1.0).any(axis=1)
            arrays = {
                name: getattr(self, name)
                for name in ("transformations", "temperatures")
            }
            rule = self.with_numbers(
                {name: array[moving] for name, array in arrays.items()}
            )
        return super(ReCalRule, rule).on_device_of(logits)


def reaction_groups(current: ScaledLogits, other: ScaledLogits) -> Array:
    """0: another label, risen; 1: another, not risen; 2: the same, risen; 3: the
    same, not.
    """
    xp = current.xp
    labels = current.logits.labels
    kept = other.logits.labels == labels
    after = xp.exp(-other.margin_of(labels) - other.log_norm)
    # Not times 1 + SAME: onnxruntime takes a float64 that near to 1 for 1, and drops
    # it.
    before = current.confidence
    risen = after - before > SAME * before
    return 2 * xp.astype(kept, xp.int64) + xp.astype(~risen, xp.int64)


def _probabilities(margins: Array, xp: Namespace) -> Array:
    weights = xp.exp(-margins)
    return weights / xp.sum(weights, axis=1, keepdims=True)


def _moments(part: ScaledLogits) -> tuple[Array, Array]:
    """Mean and variance of the margins of each row, (rows,) each."""
    xp = part.xp
    margins = part.margins
    proba = _probabilities(margins, xp)
    mean = xp.sum(proba * margins, axis=1, keepdims=True)
    return mean[:, 0], xp.sum(proba * (margins - mean) ** 2, axis=1)
