"""Predictions that keep the shape of dense logits, computed a slab at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hokical._tensors import is_tensor
from hokical.dense.arrays import as_index, classes_last, filled
from hokical.dense.layout import Index
from hokical.dense.positions import DenseBatch
from hokical.guarantees.selective import SelectivePrediction


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


def answered(batch: DenseBatch, work: Callable[[Any], Any], fill: Any, **kind: bool) -> Any:
    """Predictions in the shape of a batch: `work` where a position counts, `fill` elsewhere."""
    answer = Answer(batch, fill, **kind)
    for index, keep, found in slab_results(batch, work):
        answer.put(index, keep, found)
    return answer.values


def selected(
    batch: DenseBatch, rule: Callable[[Any], SelectivePrediction], promise: SelectivePrediction
) -> SelectivePrediction:
    """`promise` for the positions of a batch; -1, NaN and False where they do not count."""
    labels, accepted = (Answer(batch, fill, whole=True) for fill in (-1, 0))
    confidence = Answer(batch, np.nan)
    for index, keep, found in slab_results(batch, rule):
        labels.put(index, keep, found.labels)
        confidence.put(index, keep, found.confidence)
        accepted.put(index, keep, found.accepted)
    return dataclasses.replace(
        promise,
        labels=labels.values,
        confidence=confidence.values,
        accepted=accepted.values != 0,
    )


def slab_results(batch: DenseBatch, work: Callable[[Any], Any]) -> Iterator[tuple[Index, Any, Any]]:
    """Slab by slab: index, which positions count, and `work` of their logits (rows, classes)."""
    for index, keep in batch.kept():
        rows = batch.rows(index, keep)
        if rows.shape[0]:
            yield index, keep, work(rows)


def _checked_fill(fill: Any, whole: bool) -> float:
    if isinstance(fill, bool) or not isinstance(fill, (int, float, np.integer, np.floating)):
        raise TypeError(f"`fill` must be a number; got {fill!r}.")
    if whole and (not -(2**63) <= fill < 2**63 or int(fill) != fill):
        raise ValueError(
            "`fill` must be a whole number of 64 bits in the place of labels, such as -1; got "
            f"{fill!r}."
        )
    return int(fill) if whole else float(fill)
