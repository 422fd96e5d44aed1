"""Validation of the arguments of `TopK`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hokical._core.bins import check_count
from hokical._core.reading import first_true, to_floats, to_numpy
from hokical._core.types import AnyArray, FloatArray, IntArray

#: Marks an unused slot in `indices`, in rows with fewer seen classes than others.
EMPTY = -1
#: Tolerance for probabilities and their logs: rounding, storage as float16.
SLACK = 1e-2


def check_class_count(n_classes: Any, values: AnyArray) -> int:
    """The number of classes, at least as many as columns of `values` (n, k)."""
    count = check_count(n_classes, name="n_classes", least=2)
    if values.shape[1] == 0 or values.shape[1] > count:
        raise ValueError(
            f"`values` must have from 1 to n_classes = {count} columns; got shape {values.shape}."
        )
    return count


def check_indices(indices: ArrayLike, shape: tuple[int, ...], n_classes: int) -> IntArray:
    """The classes (n, k) of the values, each once per row, or EMPTY."""
    array = to_numpy(indices, "indices")
    if array.shape != shape:
        raise ValueError(
            f"`indices` must have the shape of `values`, {shape}; got shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"`indices` must be integers, the class of each value; got dtype {array.dtype}. "
            "Convert with `.astype(int)`."
        )
    if place := first_true((array < EMPTY) | (array >= n_classes)):
        raise ValueError(
            f"`indices` must lie in [0, {n_classes - 1}], or be -1 for an unused slot; got "
            f"{array[place]} in row {place[0]}, column {place[1]}. Check `n_classes`."
        )
    classes = array.astype(np.int64)
    ranked = np.sort(classes, axis=1)
    if place := first_true((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] != EMPTY)):
        raise ValueError(
            f"`indices` must name each class once per row; class {ranked[place]} is in row "
            f"{place[0]} twice. Keep the larger value, or combine them with `np.logaddexp`."
        )
    return classes


def best_first(values: AnyArray, classes: IntArray) -> IntArray:
    """The order (n, k) of each row: descending values, ties by class, unused slots last."""
    last = np.iinfo(np.int64).max
    return np.lexsort((np.where(classes == EMPTY, last, classes), -values), axis=1)


def check_ceiling(ceiling: ArrayLike | None, values: AnyArray, classes: IntArray) -> FloatArray:
    """The largest value of a hidden logit, (n,)."""
    seen = classes != EMPTY
    numbers = values.astype(np.float64)
    if ceiling is None:
        return np.asarray(np.min(numbers, axis=1, initial=np.inf, where=seen))
    limit = _one_per_row(ceiling, "ceiling", values.shape[0])
    possible = np.min(numbers, axis=1, initial=np.inf, where=numbers > -np.inf)
    if place := first_true(~(limit <= possible)):
        raise ValueError(
            "`ceiling` must be at most the smallest seen value of its row, as larger ones would "
            f"have been seen; got {limit[place]} above {possible[place]} in row {place[0]}."
        )
    return limit


def check_rest(rest: ArrayLike, hidden: IntArray, ceiling: FloatArray) -> FloatArray:
    """The log of the hidden sum, (n,), at most what the hidden classes can hold."""
    known = _one_per_row(rest, "rest", hidden.size)
    with np.errstate(divide="ignore"):
        most = np.log(hidden) + np.where(hidden > 0, ceiling, 0.0)
    if place := first_true((hidden > 0) & ~(known <= most + SLACK)):
        raise ValueError(
            "`rest` must be the log of the sum of the exponentials of the hidden logits, at most "
            f"log({hidden[place]}) + {ceiling[place]:g} = {most[place]:g} in row {place[0]}, as "
            f"none lies above the smallest seen; got {known[place]:g}."
        )
    return np.asarray(np.minimum(known, most))


def _one_per_row(numbers: ArrayLike, name: str, n_rows: int) -> FloatArray:
    array = to_floats(numbers, name)
    if array.shape not in ((), (n_rows,)):
        raise ValueError(
            f"`{name}` must be a number or (n,), one per row of {n_rows}; got shape {array.shape}."
        )
    return np.broadcast_to(array, (n_rows,)).copy()
