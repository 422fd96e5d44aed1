"""Splits of examples for cross-validation: folds that keep copies together, or the
user's own.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from hokical.rules import Logits
from hokical_paper.core import draw_seed, per_row
from hokical_paper.types import Array, BoolArray, IntArray

#: Rows (n,) to learn from and rows to test on.
FoldSplit = tuple[BoolArray, BoolArray]

#: What `cv` may be.
_FORMS = (
    "an integer of at least 2 or a list of (train, test) row indices or a scikit-learn "
    "splitter"
)
#: How many random projections tell examples apart, and how far copies may differ in one
#: of them.
_PROJECTIONS = 3
_SLACK = 1e-8
#: The logarithm of smaller margins is that of this one.
_LEAST_MARGIN = 1e-300


def check_cv(cv: Any) -> None:
    """A number of folds, splits or a splitter."""
    if isinstance(cv, Integral):
        sound = int(cv) >= 2 and not isinstance(cv, bool)
    elif is_list(cv):
        sound = len(cv) > 0
    else:
        sound = hasattr(cv, "split") and not isinstance(cv, str)
    if not sound:
        raise ValueError(f"`cv` must be {_FORMS}; got {cv!r}.")


def is_list(value: Any) -> bool:
    """A sequence that is no string."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def number_examples(logits: Logits, labels: IntArray) -> IntArray:
    """A number (n,) per example, the same for copies, counted by first appearance.

    Rows are compared relative to their top, by random projections of the logs of their
    margins: neither a shift of the row nor the order of a device's sums tells copies
    apart.
    """
    vectors = np.random.default_rng(0).normal(size=(logits.n_columns, _PROJECTIONS))

    def project(block: Logits) -> Array:
        xp = block.xp
        return xp.log(xp.clip(block.margins, _LEAST_MARGIN, None)) @ block.from_host(
            vectors
        )

    group = np.asarray(labels)
    for column in per_row(project, logits).T:
        order = np.lexsort((column, group))
        starts = (np.diff(group[order]) != 0) | (np.diff(column[order]) > _SLACK)
        number = np.empty_like(group)
        number[order] = np.append(0, np.cumsum(starts))
        group = number
    _, first, which = np.unique(group, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[which])


def fold_numbers(
    logits: Logits, labels: IntArray, n_folds: int, random_state: Any
) -> IntArray:
    """The fold (n,) of every example: each class spread evenly, copies together.

    Weight 2 and a repeated row give the same folds, and so does renumbering the
    classes: these are taken in the order in which a shuffle meets them.
    """
    group = number_examples(logits, labels)
    n_groups = int(group.max()) + 1
    group_label = np.empty(n_groups, np.int64)
    group_label[group] = labels
    known = isinstance(random_state, np.random.RandomState)
    rng = random_state if known else np.random.RandomState(draw_seed(random_state))
    shuffled = rng.permutation(n_groups)
    _, met, which = np.unique(
        group_label[shuffled], return_index=True, return_inverse=True
    )
    by_class = shuffled[np.argsort(met[which], kind="stable")]
    fold = np.empty(n_groups, np.int64)
    fold[by_class] = np.arange(n_groups) % n_folds
    return np.asarray(fold[group])


def split_by_folds(folds: IntArray) -> list[FoldSplit]:
    """One split per fold, which is tested on what the others learned; none with a
    single fold.
    """
    numbers = np.unique(folds)
    return (
        [(folds != fold, folds == fold) for fold in numbers] if numbers.size > 1 else []
    )


def split_by_indices(
    pairs: Sequence[Any], n_rows: int, keep: IntArray
) -> list[FoldSplit]:
    """The user's (train, test) row indices, checked, for the rows in `keep`.

    Pairs with nothing left on one side are dropped.
    """
    splits = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"`cv` must hold pairs (train, test) of row indices; got {pair!r} as "
                f"item {number}."
            )
        train, test = (_row_mask(indices, n_rows, number) for indices in pair)
        if (train & test).any():
            raise ValueError(
                "`cv` must keep the rows it tests on apart from those it learns from; "
                f"got {int((train & test).sum())} rows in both parts of item {number}, "
                f"the first {int(np.argmax(train & test))}."
            )
        splits.append((train[keep], test[keep]))
    usable = [(train, test) for train, test in splits if train.any() and test.any()]
    if not usable:
        raise ValueError(
            "`cv` must hold at least one pair (train, test) with examples that count "
            f"on both sides; got {len(splits)} pairs, none of them such."
        )
    return usable


def _row_mask(indices: Any, n_rows: int, number: int) -> BoolArray:
    """True (n_rows,) at the user's row indices, part of item `number` of `cv`."""
    rows = np.asarray(indices)
    if rows.ndim == 1 and rows.dtype == np.bool_ and rows.size == n_rows:
        return rows
    if rows.ndim != 1 or not (rows.size == 0 or np.issubdtype(rows.dtype, np.integer)):
        raise ValueError(
            f"`cv` must hold pairs of 1-D arrays of row indices; got {indices!r} in "
            f"item {number}."
        )
    outside = rows[(rows < 0) | (rows >= n_rows)]
    if outside.size:
        raise ValueError(
            f"`cv` must index rows from 0 to {n_rows - 1}; got {outside[0]} in item "
            f"{number}."
        )
    mask = np.zeros(n_rows, np.bool_)
    mask[rows.astype(np.int64)] = True
    return mask
