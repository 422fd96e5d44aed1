"""Predictions that keep the shape of dense logits, computed a slab at a time."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hokical.core.arrays import Array, give_back
from hokical.dense.arrays import classes_last, fill_array, put_rows
from hokical.dense.layout import Index
from hokical.dense.positions import DenseBatch, DenseOptions, make_batch
from hokical.dense.sources import dense_batches, holds_batches
from hokical.guarantees.selective import SelectivePrediction


def map_batches(
    work: Callable[[DenseBatch], Any], logits: Any, mask: Any, options: DenseOptions, n_classes: int
) -> Any:
    """`work` of an array; of batches, an iterator of what it makes of each."""
    if not holds_batches(logits):
        return work(_check_classes(make_batch(logits, None, mask, None, options), n_classes))
    if mask is not None:
        raise TypeError("masks come with the batches, in a mapping; give none beside them.")
    batches = dense_batches(logits, options)
    unlabelled = (dataclasses.replace(batch, labels=None) for batch in batches)  # ignores none
    return (work(_check_classes(batch, n_classes)) for batch in unlabelled)


def _check_classes(batch: DenseBatch, known: int) -> DenseBatch:
    """The batch, if it has the classes of the fit."""
    if batch.layout.n_classes != known:
        raise ValueError(
            f"`logits` must have the {known} classes of the fit on axis {batch.layout.axis}; "
            f"got shape {batch.layout.shape}. `class_axis` says which axis is theirs."
        )
    return batch


class DenseAnswer:
    """An array of predictions, one per position or, with `of_classes`, one per class too."""

    def __init__(
        self, batch: DenseBatch, fill: Any, *, whole: bool = False, of_classes: bool = False
    ) -> None:
        self.batch, self.of_classes = batch, of_classes
        shape = batch.layout.shape if of_classes else batch.layout.positions
        self.values = fill_array(shape, _check_fill(fill, whole), batch.logits, whole=whole)

    def put(self, index: Index, keep: Any, found: Array) -> None:
        """Set the predictions (rows,) or (rows, classes) of a slab, or of those to keep."""
        layout = self.batch.layout
        if self.of_classes:
            target = classes_last(self.values[layout.with_classes(index)], layout.axis)
        else:
            target = self.values[index]
        put_rows(target, keep, found)

    def give_back(self) -> Array:
        """The predictions in the library of the logits."""
        return give_back(self.values, self.batch.logits)


def predict_batch(
    batch: DenseBatch, work: Callable[[Array], Array], fill: Any, **kind: bool
) -> Array:
    """Predictions in the shape of a batch: `work` where a position counts, `fill` elsewhere."""
    answer = DenseAnswer(batch, fill, **kind)
    for index, keep, found in _slab_results(batch, work):
        answer.put(index, keep, found)
    return answer.give_back()


def select_batch(
    batch: DenseBatch, rule: Callable[[Array], SelectivePrediction], promise: SelectivePrediction
) -> SelectivePrediction:
    """`promise` for the positions of a batch; -1, NaN and False where they do not count."""
    labels, accepted = (DenseAnswer(batch, fill, whole=True) for fill in (-1, 0))
    confidence = DenseAnswer(batch, np.nan)
    for index, keep, found in _slab_results(batch, rule):
        labels.put(index, keep, found.labels)
        confidence.put(index, keep, found.confidence)
        accepted.put(index, keep, found.accepted)
    return dataclasses.replace(
        promise,
        labels=labels.give_back(),
        confidence=confidence.give_back(),
        accepted=accepted.give_back() != 0,
    )


def _slab_results(
    batch: DenseBatch, work: Callable[[Array], Any]
) -> Iterator[tuple[Index, Any, Any]]:
    """Slab by slab: index, which positions count, and `work` of their logits (rows, classes)."""
    for index, keep in batch.slabs():
        rows = batch.rows(index, keep)
        if rows.shape[0]:
            yield index, keep, work(rows)


def _check_fill(fill: Any, whole: bool) -> float:
    if isinstance(fill, bool) or not isinstance(fill, (int, float, np.integer, np.floating)):
        raise TypeError(f"`fill` must be a number; got {fill!r}.")
    if whole and (not -(2**63) <= fill < 2**63 or int(fill) != fill):
        raise ValueError(
            f"`fill` must be a whole number of 64 bits where labels are, such as -1; got {fill!r}."
        )
    return int(fill) if whole else float(fill)
