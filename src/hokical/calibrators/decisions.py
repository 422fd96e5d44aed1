"""Actions of least expected cost, which follow from calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hokical._core import reading
from hokical._core.arrays import NUMPY, AnyArray, Array, FloatArray, backend_of, to_host
from hokical.guarantees.shift import in_order

#: Actions whose shares are listed one by one.
_MAX_LISTED = 10


@dataclass(frozen=True, eq=False)
class Decisions:
    """`actions` (n,), and the `costs` (n,) that are expected of them.

    Actions are numbers; with `names`, where the costs had some, `named` (n,) are their
    names.
    """

    actions: Array
    costs: Array
    names: tuple[str, ...] = ()

    @property
    def named(self) -> AnyArray:
        """The names of the actions, or their numbers where they have none."""
        actions = to_host(self.actions)
        return np.array(self.names)[actions] if self.names else actions

    def __str__(self) -> str:
        kinds, counts = np.unique(self.named, return_counts=True)
        listed = f"{kinds.size} different actions" if kinds.size > 1 else "one action"
        are_texts = all(isinstance(kind, str) for kind in kinds.tolist())
        if are_texts and kinds.size <= _MAX_LISTED:
            shares = zip(kinds.tolist(), counts / counts.sum(), strict=True)
            listed = ", ".join(f"{name} {share:.1%}" for name, share in shares)
        cost = float(self.costs.mean())
        return f"{counts.sum():,} rows, {listed}; mean expected cost {cost:.4g}."


def decide(
    proba: Array,
    costs: object,
    n_classes: int,
    event: int | None = None,
    classes: Sequence[object] = (),
) -> Decisions:
    """The actions of least expected cost under probabilities (n, classes).

    Of actions with equal costs, the first is chosen. `event` is as in `cost_table`.
    """
    table, names = cost_table(costs, n_classes, event, classes)
    backend = backend_of(proba) or NUMPY
    xp = backend.namespace(proba)
    expected = proba @ xp.astype(backend.from_host(table, proba), proba.dtype)
    return Decisions(xp.argmin(expected, axis=1), xp.min(expected, axis=1), names)


def cost_table(
    costs: object,
    n_classes: int,
    event: int | None = None,
    classes: Sequence[object] = (),
) -> tuple[FloatArray, tuple[str, ...]]:
    """Costs (classes, actions) and the names of the actions, () if they have none.

    `costs` are such a table, those of the two errors of two classes, or a mapping of
    actions to costs (classes,), to mappings of `classes` to costs, or to one number for
    all classes; classes without names go by their numbers. Of the two errors, `event` is
    the class whose false alarms and misses they are, by default the second.
    """
    names: tuple[str, ...] = ()
    of_errors = are_of_errors(costs, n_classes)
    if isinstance(costs, Mapping) and of_errors:
        costs = (costs["fp"], costs["fn"])
    elif isinstance(costs, Mapping):
        names = tuple(map(str, costs))
        classes = classes or range(n_classes)
        columns = [_read_costs(cost, classes) for cost in costs.values()]
        shapes = {column.shape for column in columns}
        if (n_classes,) not in shapes or not shapes <= {(), (n_classes,)}:
            raise ValueError(
                "`costs` by name must be those of the errors of two classes, {'fp': "
                f"1, 'fn': 10}}, or of each action: {n_classes} numbers, by true "
                "class, or one number where it does not matter, but not for all; got "
                f"{dict(costs)!r}."
            )
        costs = np.stack(
            [np.broadcast_to(column, n_classes) for column in columns], axis=1
        )
    table = reading.to_floats(costs, "costs")
    reading.refuse(~np.isfinite(table), table, "`costs` must be finite")
    if of_errors:
        table = np.array([[0.0, table[0]], [table[1], 0.0]])
        table = table[::-1, ::-1] if event == 0 else table
    elif event is not None:
        raise ValueError(
            f"`positive` must be None for costs of shape {table.shape}, by true class; "
            "it says of which class `{'fp': 1, 'fn': 10}` are false positives. Leave "
            "it out."
        )
    if table.ndim != 2 or table.shape[0] != n_classes:
        raise ValueError(
            f"`costs` must be finite numbers of shape ({n_classes}, actions), a row "
            f"for each true class; got shape {table.shape}. Of two classes "
            "(false_positive, false_negative) is enough, or {'fp': 1, 'fn': 10}."
        )
    return table, names


def are_of_errors(costs: object, n_classes: int) -> bool:
    """Whether costs are those of false positives and false negatives."""
    if n_classes != 2:
        return False
    if isinstance(costs, Mapping):
        return {*costs} == {"fp", "fn"}
    return np.shape(reading.to_floats(costs, "costs")) == (2,)


def _read_costs(costs: object, classes: Sequence[object]) -> FloatArray:
    """The costs of an action, (classes,), or one number ()."""
    if isinstance(costs, Mapping):
        costs = in_order(costs, classes, "costs")
    return reading.to_floats(costs, "costs")
