"""What to do about an example: the action of least expected cost, and rows to report as a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY, Array, backend_of
from hokical._core.types import FloatArray
from hokical.guarantees._words import Guaranteed


@dataclass(frozen=True, eq=False)
class Decisions:
    """`actions` (n,), and the `costs` (n,) that are expected of them."""

    actions: Array
    costs: Array


@dataclass(frozen=True, eq=False)
class Detections(Guaranteed):
    """Rows that are `flagged` (n,), at which `threshold` (1,), and the promise in words."""

    flagged: Array
    threshold: FloatArray
    guarantee: str


def decide(proba: Array, costs: Any, n_classes: int) -> Decisions:
    """The action of least expected cost under probabilities (n, classes); the first of equals."""
    table = cost_table(costs, n_classes)
    backend = backend_of(proba) or NUMPY
    xp = backend.namespace(proba)
    expected = proba @ xp.astype(backend.from_host(table, proba), proba.dtype)
    return Decisions(xp.argmin(expected, axis=1), xp.min(expected, axis=1))


def cost_table(costs: Any, n_classes: int) -> FloatArray:
    """Costs (classes, actions), of two classes also from those of its two errors."""
    table = np.asarray(costs, np.float64)
    if table.shape == (2,) and n_classes == 2:
        table = np.array([[0.0, table[0]], [table[1], 0.0]])
    if table.ndim != 2 or table.shape[0] != n_classes or not np.isfinite(table).all():
        raise ValueError(
            f"`costs` must be finite numbers of shape ({n_classes}, actions), a row for each true "
            f"class; got shape {table.shape}. Of two classes (false_positive, false_negative) is "
            "enough."
        )
    return table
