"""Slabs of dense arrays as rows (positions, classes): on the host, or where they are.

Slabs of files, and of arrays that NumPy can view or must copy, are NumPy arrays. Slabs on another
device, or with a gradient to keep, stay what they are.
"""

from typing import Any

import numpy as np
from array_api_compat import device, is_writeable_array
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, Backend, backend_of, ignore_overflow, to_host
from hokical._core.reading import to_numpy
from hokical.dense._layout import DenseLayout, Index


def stays_in_place(logits: Any) -> bool:
    """Whether slabs of an array are worked on in its own library and on its device."""
    backend = backend_of(logits)
    if backend is None or backend is NUMPY or backend.is_lazy or not is_writeable_array(logits):
        return False
    return backend.host_view(logits[:0, ...]) is None


def class_rows(
    logits: Any, index: Index, keep: NDArray[np.bool_] | None, layout: DenseLayout
) -> Array:
    """The logits (rows, classes) of a slab's positions, or of those to keep.

    No copy where the classes are on the last axis of an array in C order and all are kept.
    """
    part = logits[layout.with_classes(index)]
    here = part if stays_in_place(part) else to_numpy(part, "logits")
    moved = classes_last(here, layout.axis)
    if keep is None:
        return _backend(moved).namespace(moved).reshape(moved, (-1, layout.n_classes))
    return moved[_as_index(keep, moved)]


def fit_rows(rows: Array) -> Array:
    """Rows without their gradients; on the host if they are in its memory."""
    backend = backend_of(rows)
    if backend is None or backend is NUMPY:
        return rows
    plain = backend.without_gradient(rows)
    host = backend.host_view(plain)
    return plain if host is None else host


def classes_last(array: Array, axis: int) -> Array:
    """A view with the axis of the classes at the end."""
    return _backend(array).namespace(array).moveaxis(array, axis, -1)


def put_rows(target: Array, keep: NDArray[np.bool_] | None, found: Array) -> None:
    """Write rows (rows, ...) to all positions of a slab, or to those to keep."""
    xp = _backend(target).namespace(target)
    same = xp.astype(found, target.dtype, copy=False)
    if keep is None:
        target[...] = xp.reshape(same, target.shape)
    else:
        target[_as_index(keep, target)] = same


def _as_index(keep: NDArray[np.bool_], array: Array) -> Any:
    """A mask that an array can be indexed with, on the array's device."""
    return _backend(array).from_host(keep, array)


def fill_array(shape: tuple[int, ...], fill: float, logits: Any, *, whole: bool) -> Array:
    """An array for predictions on `logits`, whole numbers or others; with them if they stay there.

    Whole numbers are int64, others float64; beside float32 or less on a device they are float32.
    What is filled with False is bool.
    """
    if not stays_in_place(logits):
        kind = np.bool_ if fill is False else np.int64 if whole else np.float64
        return np.full(shape, fill, kind)
    xp = _backend(logits).namespace(logits)
    wide = xp.float64 if logits.dtype == xp.float64 else xp.float32
    kind = xp.bool if fill is False else xp.int64 if whole else wide
    return xp.full(shape, fill, dtype=kind, device=device(logits))


def first_bad_row(rows: Array) -> tuple[int, str] | None:
    """The first of the rows (n, classes) that cannot be used, and what it has; None if all can."""
    backend = _backend(rows)
    if not rows.shape[0] or backend.kind(rows) != "float":
        return None  # whole numbers; or no logits at all, which the calibrator says
    xp, values = backend.namespace(rows), backend.without_gradient(rows)
    if backend is NUMPY and values.dtype.itemsize == 2:
        values = values.astype(np.float32)  # NumPy compares halves one by one
    with ignore_overflow():
        # The smallest and the largest number are found faster than those of each row.
        if np.isfinite(float(xp.min(values))) and np.isfinite(float(xp.max(values))):
            return None
        bad = ~np.isfinite(to_host(xp.max(values, axis=1)))
    row = int(np.argmax(bad))
    return (row, _describe(to_host(values[row, ...]))) if bad.any() else None


def _describe(row: NDArray[Any]) -> str:
    for word, found in (("NaN", np.isnan(row)), ("+inf", np.isposinf(row))):
        if found.any():
            return f"{word} for class {int(np.argmax(found))}"
    return "-inf for every class"


def _backend(array: Array) -> Backend:
    return backend_of(array) or NUMPY
