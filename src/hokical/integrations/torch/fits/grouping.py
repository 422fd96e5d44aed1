"""Sums by group whose result does not depend on the order in which a device adds.

Atomic additions of floats come in any order, and so do their roundings. Whole numbers have none, so
weights are counted in units: powers of 2 so small that 2^61 of them make up the sum of all.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FloatArray = NDArray[np.float64]

_BITS = 61


def unit_of(total: float) -> float:
    """The unit in which sums up to `total` are counted."""
    return math.ldexp(1.0, math.frexp(total)[1] - _BITS)


def in_units(weights: FloatArray, unit: float) -> FloatArray:
    """Weights (n,) > 0 rounded to whole units, at least one."""
    return np.asarray(np.maximum(np.rint(weights / unit), 1.0) * unit)


def sums_by(group: Tensor, weights: Tensor, n_groups: int, unit: float) -> Tensor:
    """Sum of the weights (n,), whole units, in each group, (n_groups,) float64."""
    out = torch.zeros(n_groups, dtype=torch.int64, device=group.device)
    return out.scatter_add_(0, group, (weights / unit).long()).double() * unit


def counts_by(group: Tensor, n_groups: int) -> Tensor:
    """How many there are in each group, (n_groups,) float64."""
    return torch.bincount(group, minlength=n_groups).double()


def largest_by(group: Tensor, values: Tensor, n_groups: int) -> Tensor:
    """The largest value in each group, (n_groups,), -inf where there is none."""
    out = torch.full((n_groups,), -torch.inf, dtype=values.dtype, device=values.device)
    return out.scatter_reduce_(0, group, values, "amax")
