"""What is fed to a monitor is read and checked here: single predictions, batches, timestamps."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import to_numpy
from hokical.metrics.checks import Examples, as_examples
from hokical.monitoring.windows import Layout

FloatArray = NDArray[np.float64]


def as_examples_or_none(confidence: Any, correct: Any) -> Examples | None:
    """Checked examples; single numbers make one, and an empty batch makes None."""
    values, truth = to_numpy(confidence, "confidence"), to_numpy(correct, "correct")
    if values.shape == truth.shape == (0,):
        return None
    if values.ndim == truth.ndim == 0:
        values, truth = values[None], truth[None]
    return as_examples(values, truth)


def as_times(timestamp: Any, n_rows: int, layout: Layout) -> FloatArray | None:
    """Seconds since 1970 of each example (n,), from a number, a datetime or (n,) numbers."""
    if timestamp is None:
        if layout.timed:
            raise ValueError(
                "`timestamp` must be given when the window is a time. Pass one, or make the "
                "window a number of examples."
            )
        return None
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise ValueError(
                f"`timestamp` must have a time zone; got {timestamp!r}. Use "
                "`datetime.now(timezone.utc)`, or seconds since 1970."
            )
        timestamp = timestamp.timestamp()
    array = np.asarray(timestamp)
    if array.dtype.kind not in "fiu" or array.shape not in ((), (n_rows,)):
        raise ValueError(
            "`timestamp` must be seconds since 1970 or a datetime, one for all or one per example "
            f"({n_rows}); got {timestamp!r}."
        )
    times = np.broadcast_to(array.astype(np.float64), (n_rows,))
    if not np.isfinite(times).all():
        raise ValueError(f"`timestamp` must be finite; got {timestamp!r}.")
    return times
