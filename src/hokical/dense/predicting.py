"""Predictions that keep the shape of dense logits, computed a slab at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hokical._tensors import is_tensor
from hokical.dense.arrays import as_index, class_rows, classes_last, filled, on_host, row_maxima
from hokical.dense.layout import Index
from hokical.dense.positions import DenseBatch


class Answer:
    """An array of predictions, one per position or, with `of_classes`, one per class too."""

    def __init__(
        self, batch: DenseBatch, fill: Any, *, whole: bool = False, of_classes: bool = False
    ) -> None:
        self.layout, self.of_classes = batch.layout, of_classes
        shape = batch.layout.shape if of_classes else batch.layout.positions
        self.values = filled(shape, _checked_fill(fill, whole), batch.logits, whole=whole)

    def put(self, index: Index, keep: Any, found: Any) -> None:
        """Set the predictions (rows,) or (rows, classes) of a slab, or of its kept positions."""
        if self.of_classes:
            target = classes_last(self.values[self.layout.with_classes(index)], self.layout.axis)
        else:
            target = self.values[index]
        if keep is None:
            target[...] = found.reshape(target.shape)
        else:
            target[as_index(keep, target)] = found.to(target.dtype) if is_tensor(found) else found


def slab_results(batch: DenseBatch, work: Callable[[Any], Any]) -> Iterator[tuple[Index, Any, Any]]:
    """Slab by slab: index, which positions count, and `work` of their logits (rows, classes)."""
    with bad_position_named(batch):
        for index, keep in batch.kept():
            rows = class_rows(batch.logits, index, keep, batch.layout)
            if rows.shape[0]:
                yield index, keep, work(rows)


@contextmanager
def bad_position_named(batch: DenseBatch | None) -> Iterator[None]:
    """Errors speak of rows; where it is the logits of a position, say which."""
    try:
        yield
    except ValueError:
        if batch is not None:
            check_finite(batch)
        raise


def check_finite(batch: DenseBatch) -> None:
    """Raise for the first position that counts and has NaN, +inf or nothing but -inf."""
    for index, keep in batch.kept():
        rows = class_rows(batch.logits, index, keep, batch.layout)
        bad = ~np.isfinite(row_maxima(rows))
        if bad.any():
            row = int(np.argmax(bad))
            flat = row if keep is None else int(np.flatnonzero(keep)[row])
            shape = [part.stop - part.start for part in index]
            place = batch.place(index, np.unravel_index(flat, shape))
            found = _what(on_host(rows[row], "logits"))
            raise ValueError(
                "`logits` must not hold NaN or +inf, nor -inf for every class; got "
                f"{found} at position {place}. If the position does not count, give `mask` with "
                "False there; -inf alone is allowed, for an impossible class."
            )


def _what(row: Any) -> str:
    for word, found in (("NaN", np.isnan(row)), ("+inf", np.isposinf(row))):
        if found.any():
            return f"{word} for class {int(np.argmax(found))}"
    return "-inf for every class"


def _checked_fill(fill: Any, whole: bool) -> float:
    if isinstance(fill, bool) or not isinstance(fill, (int, float, np.integer, np.floating)):
        raise TypeError(f"`fill` must be a number; got {fill!r}.")
    if whole and (not math.isfinite(fill) or int(fill) != fill):
        raise ValueError(f"`fill` must be a whole number in the place of labels; got {fill!r}.")
    return int(fill) if whole else float(fill)
