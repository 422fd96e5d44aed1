"""Logits that cannot be used: NaN, +inf, or -inf for every class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._tensors import is_tensor
from hokical.dense.arrays import on_host


def first_bad_row(rows: Any) -> tuple[int, str] | None:
    """The first of the rows (n, classes) that cannot be used, and what it has; None if all can."""
    if not rows.shape[0] or _all_finite(rows):
        return None
    bad = ~np.isfinite(_row_maxima(rows))
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    return row, _what(on_host(rows[row], "logits"))


def _all_finite(rows: Any) -> bool:
    """The smallest and the largest number tell, and are found faster than those of each row."""
    values = rows.detach() if is_tensor(rows) else rows
    if not (values.is_floating_point() if is_tensor(values) else values.dtype.kind == "f"):
        return True  # whole numbers; or no logits at all, which the calibrator says
    if not is_tensor(values) and values.dtype.itemsize == 2:
        values = values.astype(np.float32)  # NumPy compares halves one by one
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(float(values.min())) and np.isfinite(float(values.max())))


def _row_maxima(rows: Any) -> NDArray[Any]:
    """The largest number of each row, (rows,), NaN where one is NaN."""
    if is_tensor(rows):
        return on_host(rows.detach().amax(dim=1), "logits")
    with np.errstate(invalid="ignore"):
        return np.asarray(rows.max(axis=1))


def _what(row: Any) -> str:
    for word, found in (("NaN", np.isnan(row)), ("+inf", np.isposinf(row))):
        if found.any():
            return f"{word} for class {int(np.argmax(found))}"
    return "-inf for every class"
