"""Soft labels: votes of several annotators, or a distribution, for each row.

A row with votes is as several weighted rows, one for each class that has any. Metrics
that are means over rows, fits and evaluations are linear in them; a guarantee needs one
label per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import Array, FloatArray, IntArray
from hokical._core.groups import read_columns, take_rows
from hokical._core.reading import (
    Rows,
    as_weights,
    frame_columns,
    match_columns,
    order_columns,
    refuse,
    shape_of,
    to_floats,
)

#: More scores than this, repeated for each class with votes, would not fit into memory.
_MAX_SCORES = 1 << 28


class Votes(NamedTuple):
    """Weighted rows: of each the number of the given row, a class, and its share.

    The shares of a given row sum to 1, whatever the number of its votes.
    """

    rows: IntArray
    labels: IntArray
    shares: FloatArray

    @property
    def are_hard(self) -> bool:
        """Whether each row has votes for one class alone."""
        return bool((self.shares == 1.0).all())

    def weigh(self, sample_weight: object, n_rows: int) -> FloatArray | None:
        """The weights of the weighted rows; None if all count alike."""
        weights = as_weights(sample_weight, n_rows)
        if self.are_hard:
            return weights
        return self.shares if weights is None else self.shares * weights[self.rows]

    def repeat_groups(self, groups: object, n_rows: int) -> Any:
        """Group columns of the weighted rows; None if there are none."""
        if groups is None or self.are_hard:
            return groups
        return take_rows(read_columns(groups, n_rows), self.rows)


def read_votes(
    labels: object,
    n_rows: int,
    n_classes: int,
    name: str = "labels",
    *,
    names: Sequence[Sequence[str]] = (),
) -> Votes | None:
    """Votes or shares (n, classes) as weighted rows; None if labels are of another
    shape.

    A frame is put in the order of the `names`, as `order_votes` does.

    >>> read_votes([[3, 1], [0, 2]], 2, 2)
    Votes(rows=array([0, 0, 1]), labels=array([0, 1, 1]), shares=array([0.75, 0.25, 1.  ]))
    """
    if getattr(labels, "shape", None) is None and not isinstance(labels, (list, tuple)):
        return None
    if shape_of(labels) != (n_rows, n_classes):
        return None
    votes = to_floats(order_votes(labels, names, name), name, "fiub")
    invalid = ~(np.isfinite(votes) & (votes >= 0.0))
    refuse(invalid, votes, f"`{name}` (n, classes) must be votes or shares, >= 0")
    totals = votes.sum(axis=1)
    if ((votes == 0.0) | (votes == 1.0)).all():
        remedy = (
            "Several labels of a row, or none, are a multilabel problem, for "
            "`hokical.MultilabelCalibrator`; of votes pass the shares, "
            f"`{name} / {name}.sum(axis=1, keepdims=True)`."
        )
        rule = f"`{name}` (n, classes) of 0 and 1 must have one 1 in each row"
        refuse(totals != 1.0, totals, rule, remedy)
    rule = f"`{name}` (n, classes) must have a vote in each row"
    refuse(totals <= 0.0, totals, rule, "Drop the rows without votes.")
    rows, voted = np.nonzero(votes)
    if rows.size > n_rows and rows.size * n_classes > _MAX_SCORES:
        raise ValueError(
            f"`{name}` (n, classes) must have fewer classes with votes; got "
            f"{rows.size / n_rows:,.0f} of {n_classes:,} in a row on average, for which "
            "scores do not fit into memory. Set small shares to 0."
        )
    return Votes(rows, voted, votes[rows, voted] / totals[rows])


def order_votes(
    labels: Array, names: Sequence[Sequence[str]], name: str = "labels"
) -> Array:
    """A frame of votes with its columns in the order of the first `names` that are
    theirs: those of the classes, or of the columns of scores.
    """
    columns = [*map(str, frame_columns(labels))]
    matching = (tuple(known) for known in names if match_columns(columns, known))
    return order_columns(labels, name, next(matching, ()), strict=False)


def join_votes(
    votes_of: IntArray, rows: Rows, n_classes: int
) -> tuple[IntArray, FloatArray]:
    """Weighted rows as one row for each example: its first row, and weights by class.

    Examples without a weight are left out.
    """
    _, first, example = np.unique(votes_of, return_index=True, return_inverse=True)
    cell = example.ravel() * n_classes + rows.labels
    size = first.size * n_classes
    table = np.bincount(cell, rows.weights, size).reshape(-1, n_classes)
    counting = table.sum(axis=1) > 0.0
    return first[counting], table[counting]
