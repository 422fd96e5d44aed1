"""Reads and checks what a monitor is fed: single predictions, batches, timestamps."""

from collections.abc import Sized
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hokical.core.labels import as_labels
from hokical.core.reading import to_numpy
from hokical.core.types import AnyArray, FloatArray, IntArray
from hokical.io.names import has_label
from hokical.io.reading import tidy_labels
from hokical.metrics.checks import Examples, as_examples
from hokical.monitoring.windows import Window

#: The range of datetimes. Milliseconds since 1970 have been beyond it since 1978.
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def as_examples_or_none(confidence: Any, correct: Any) -> Examples | None:
    """Checked examples; single numbers make one, and an empty batch makes None."""
    values, truth = to_numpy(confidence, "confidence"), to_numpy(correct, "correct")
    if values.shape == truth.shape == (0,):
        return None
    if values.ndim == truth.ndim == 0:
        values, truth = values[None], truth[None]
    return as_examples(values, truth)


def as_classes(predicted: Any, n_rows: int, n_classes: int | None) -> IntArray | None:
    """Checked predicted classes (n,), or None; a single number makes one."""
    if predicted is not None and n_classes is None:
        raise ValueError("`predicted` needs the number of classes: give the monitor `n_classes`.")
    if predicted is None or n_classes is None:
        return None
    return as_labels(np.atleast_1d(predicted), n_rows, n_classes, name="predicted")


def as_partial_labels(labels: Any, n_rows: int, n_classes: int) -> IntArray:
    """Checked labels (n,), -1 for none: where they are NaN or -1, or everywhere for None."""
    found = np.full(n_rows, -1)
    if labels is not None:
        array = to_numpy(labels, "labels")
        known = has_label(array) if array.shape == (n_rows,) else np.ones(n_rows, np.bool_)
        given = array if known.all() else tidy_labels(array[known])
        found[known] = as_labels(given, int(known.sum()), n_classes)
    return found


def has_no_rows(batch: Any) -> bool:
    """Whether an array, a `TopK` or a list holds nothing."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return tuple(shape[:1]) == (0,)
    return isinstance(batch, Sized) and len(batch) == 0


def as_times(timestamp: Any, n_rows: int, window: Window) -> FloatArray | None:
    """Seconds since 1970 of each example (n,), from numbers or datetimes, one or (n,)."""
    if timestamp is None:
        if window.timed:
            raise ValueError(
                "`timestamp` must be given when the window is a time. Pass one, or use a window of "
                "a number of examples."
            )
        return None
    array = _as_seconds(np.asarray(timestamp))
    if array.dtype.kind not in "fiu" or array.shape not in ((), (n_rows,)):
        raise ValueError(
            "`timestamp` must be seconds since 1970, datetimes or ISO dates, one for all or one "
            f"per example ({n_rows}); got {timestamp!r}."
        )
    times = np.broadcast_to(array.astype(np.float64), (n_rows,))
    _check_times(times)
    return times


def _as_seconds(array: AnyArray) -> AnyArray:
    """Datetimes, aware or datetime64, as seconds since 1970; anything else as it is.

    Text is numbers or ISO dates, which are UTC if they have no time zone.
    """
    if array.dtype.kind == "U":
        with suppress(ValueError):
            return array.astype(np.float64)
        with suppress(ValueError):
            dates = [datetime.fromisoformat(text.strip()) for text in array.ravel().tolist()]
            zoned = [date if date.tzinfo else date.replace(tzinfo=UTC) for date in dates]
            return np.array([date.timestamp() for date in zoned]).reshape(array.shape)
    if array.dtype.kind == "M":
        return np.asarray((array - np.datetime64(0, "s")) / np.timedelta64(1, "s"))
    if array.dtype != object or not all(isinstance(one, datetime) for one in array.flat):
        return array
    naive = next((one for one in array.flat if one.tzinfo is None), None)
    if naive is not None:
        raise ValueError(
            f"`timestamp` must have a time zone; got {naive!r}. Use "
            "`datetime.now(timezone.utc)`, or seconds since 1970."
        )
    return np.array([one.timestamp() for one in array.flat]).reshape(array.shape)


def _check_times(times: FloatArray) -> None:
    """Refuse timestamps in the far future: one would empty a window of time forever."""
    if not np.isfinite(times).all():
        row = int(np.argmin(np.isfinite(times)))
        raise ValueError(f"`timestamp` must be finite; got {times[row]} in row {row}.")
    wrong = (times < _EARLIEST) | (times > _LATEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            "`timestamp` must be seconds since 1970, in the years 1 to 9999; got "
            f"{times[row]:.6g} in row {row}. Divide milliseconds by 1e3, nanoseconds by 1e9."
        )
