"""Corrections that are linear in numbers beside the logits: age, distance,
agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hokical._core.arrays import Array, FloatArray, Namespace
from hokical._core.checks import ArrayOf, Checked, check_array
from hokical._core.storage import storable

#: Standardised numbers are clipped to plus and minus this.
LARGEST_NUMBER = 4.0

PerNumber = Annotated[FloatArray, ArrayOf(("numbers",))]


@storable("number-effects")
@dataclass(frozen=True, eq=False)
class NumberEffects(Checked):
    """What standardised numbers add to the scale, to the score of the label and to the
    biases of classes.

    `columns` are those of the groups, which hold the numbers. A number is clipped to
    [`low`, `high`], then `centre` and `spread` standardise it; a missing one, NaN,
    counts as the centre, which changes nothing. `scale` and `shift` (numbers,) and
    `bias` (numbers, classes), or (numbers, 1) of zeros, are for each unit of it.
    """

    columns: tuple[int, ...]
    low: PerNumber
    high: PerNumber
    centre: PerNumber
    spread: Annotated[FloatArray, ArrayOf(("numbers",), 1e-100)]
    scale: PerNumber
    shift: PerNumber
    bias: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.low.size
        are_columns = isinstance(self.columns, tuple) and all(
            type(column) is int and column >= 0 for column in self.columns
        )
        if not are_columns or not len(set(self.columns)) == len(self.columns) == size:
            raise ValueError(
                f"`columns` must be {size} different columns; got {self.columns!r}."
            )
        check_array("bias", self.bias, (size, None))
        if (self.low > self.high).any():
            raise ValueError("`low` must not be above `high`.")

    @property
    def n_classes(self) -> int | None:
        """How many classes the biases are for; None where there are none."""
        return int(self.bias.shape[1]) if self.bias.shape[1] > 1 else None

    def standardise(self, inputs: Array, number: int, xp: Namespace) -> Array:
        """A standardised number (n,) from all columns (n, columns) of groups."""
        values = inputs[:, self.columns[number]]
        missing = xp.isnan(values)
        values = xp.where(missing, self.centre[number], values)
        values = xp.where(values < self.low[number], self.low[number], values)
        values = xp.where(values > self.high[number], self.high[number], values)
        unit = (values - self.centre[number]) / self.spread[number]
        clipped = xp.clip(unit, -LARGEST_NUMBER, LARGEST_NUMBER)
        return xp.where(missing, xp.zeros_like(clipped), clipped)

    def corrections(self, inputs: Array, xp: Namespace) -> tuple[Array, Array, Array]:
        """What is added to the scale and to the score of the label, (n,) each, and to
        those of the classes, (n, classes) or (n, 1).
        """
        scale = 0.0
        shift = 0.0
        bias = 0.0
        # Number by number, as a matrix product rounds by the number of rows.
        for number in range(len(self.columns)):
            unit = self.standardise(inputs, number, xp)
            scale = scale + unit * self.scale[number]
            shift = shift + unit * self.shift[number]
            bias = bias + unit[:, None] * self.bias[number, :]
        return scale, shift, bias


def limits(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """The range of the central 98 % of finite numbers (n,), by weight."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    ranks = np.searchsorted(total, np.array([0.01, 0.99]) * total[-1])
    low, high = values[order[np.minimum(ranks, values.size - 1)]]
    return float(low), float(high)
