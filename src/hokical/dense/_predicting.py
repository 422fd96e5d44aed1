"""Predictions that keep the shape of dense logits, computed a slab at a time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import Array, to_input_library
from hokical.dense._arrays import classes_last, fill_array, put_rows
from hokical.dense._batches import dense_batches, holds_batches
from hokical.dense._positions import DenseBatch, DenseOptions, make_batch
from hokical.guarantees._selective import SelectivePrediction


def map_batches(
    work: Callable[[DenseBatch], Any], logits: Any, mask: Any, options: DenseOptions, n_classes: int
) -> Any:
    """`work` of an array; of batches, an iterator of what it makes of each."""
    if mask is not None and holds_batches(logits):
        raise TypeError("masks come with the batches, in a mapping; give none beside them.")

    def check_and_work(batch: DenseBatch) -> Any:
        if batch.layout.n_classes != n_classes:
            raise ValueError(
                f"`logits` must have the {n_classes} classes of the fit on axis "
                f"{batch.layout.axis}; got shape {batch.layout.shape}. Give `class_axis`, the axis "
                "of the classes."
            )
        return work(replace(batch, labels=None))  # so that none is ignored

    if holds_batches(logits):
        return map(check_and_work, dense_batches(logits, options))
    return check_and_work(make_batch(logits, None, mask, None, options))


class AnswerKind(NamedTuple):
    """What stands where no position counts; whole numbers or not; one per position or class."""

    fill: Any
    whole: bool = False
    of_classes: bool = False


def predict_batch(
    batch: DenseBatch, work: Callable[[Array], Sequence[Array]], *kinds: AnswerKind
) -> list[Array]:
    """An array per kind, in the shape of a batch and in the library of its logits.

    `work` makes them of logits (rows, classes), (rows,) or (rows, classes) each.
    """
    layout, logits = batch.layout, batch.logits
    answers = []
    for fill, whole, of_classes in kinds:
        shape = layout.shape if of_classes else layout.positions
        filled = fill if fill is False else _check_fill(fill, whole)
        answers.append(fill_array(shape, filled, logits, whole=whole))
    for index, keep in batch.slabs():
        rows = batch.rows(index, keep)
        if not rows.shape[0]:
            continue
        for kind, answer, found in zip(kinds, answers, work(rows), strict=True):
            part = answer[layout.with_classes(index) if kind.of_classes else index]
            put_rows(classes_last(part, layout.axis) if kind.of_classes else part, keep, found)
    return [to_input_library(answer, logits) for answer in answers]


def select_batch(
    batch: DenseBatch, rule: Callable[[Array], SelectivePrediction], promise: SelectivePrediction
) -> SelectivePrediction:
    """`promise` for the positions of a batch; -1, NaN and False where they do not count."""

    def work(rows: Array) -> Sequence[Array]:
        found = rule(rows)
        return found.labels, found.confidence, found.accepted

    kinds = (AnswerKind(-1, whole=True), AnswerKind(np.nan), AnswerKind(0, whole=True))
    labels, confidence, accepted = predict_batch(batch, work, *kinds)
    return replace(promise, labels=labels, confidence=confidence, accepted=accepted != 0)


def _check_fill(fill: Any, whole: bool) -> float:
    if isinstance(fill, bool) or not isinstance(fill, (int, float, np.integer, np.floating)):
        raise TypeError(f"`fill` must be a number; got {fill!r}.")
    if whole and (not -(2**63) <= fill < 2**63 or int(fill) != fill):
        raise ValueError(
            f"`fill` must be a whole number of 64 bits where labels are, such as -1; got {fill!r}."
        )
    return int(fill) if whole else float(fill)
