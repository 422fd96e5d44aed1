"""What a monitor is fed, checked, and the sliding windows it falls into.

A window is made of panes: short stretches of the stream, each with sums that add up. A pane's
number comes from the example's place in the stream (or from its time), never from the batch that
brought it, so a window does not depend on how the stream was cut. Panes of replicas add up by their
number if it means a time, by their age if it means a place.
"""

import math
from collections.abc import Callable, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Self, TypeVar

import numpy as np

from hokical._core.labels import as_labels
from hokical._core.reading import to_numpy
from hokical._core.storage import storable
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.io._names import has_label, tidy_labels
from hokical.metrics._examples import Examples, as_examples

Sums = TypeVar("Sums")

#: About how many panes a window has: it slides in steps of 2 %.
_PANES = 50
#: The range of datetimes. Milliseconds since 1970 have been beyond it since 1978.
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


@storable("monitor-window")
@dataclass(frozen=True)
class Window:
    """How a window is cut: `size` is a number of examples, or of seconds if `timed`."""

    size: float
    timed: bool

    @classmethod
    def from_option(cls, window: int | timedelta) -> Self:
        """A number of examples, or a time."""
        if isinstance(window, timedelta):
            if window <= timedelta(0):
                raise ValueError(f"`window` must be longer than no time; got {window!r}.")
            return cls(window.total_seconds(), timed=True)
        if isinstance(window, bool) or not isinstance(window, (int, np.integer)) or window < 1:
            raise ValueError(
                "`window` must be a number of examples of at least 1, or a `timedelta`; got "
                f"{window!r}."
            )
        return cls(int(window), timed=False)

    @property
    def pane(self) -> float:
        """Examples, or seconds, in a pane."""
        return self.size / _PANES if self.timed else math.ceil(self.size / _PANES)

    @property
    def n_panes(self) -> int:
        return _PANES if self.timed else math.ceil(self.size / self.pane)

    def panes_of(self, first: int, n: int, times: FloatArray | None) -> IntArray:
        """Pane of each of n examples (n,), the first of which is number `first` of the stream."""
        if not self.timed:
            return (first + np.arange(n)) // int(self.pane)
        assert times is not None, "`as_times` asks for timestamps"
        return np.floor(times / self.pane).astype(np.int64)

    def __str__(self) -> str:
        unit = timedelta(seconds=self.size) if self.timed else f"{self.size:,} examples"
        return f"the last {unit}"


@storable("monitor-panes")
@dataclass(eq=False)
class Panes(Generic[Sums]):
    """The panes of one window, by number; those that have left it are dropped."""

    window: Window
    held: dict[int, Sums] = field(default_factory=dict)
    newest: int | None = None

    def add(self, panes: IntArray, sum_rows: Callable[[BoolArray], Sums]) -> None:
        """Add examples: their panes (n,), and a function that sums those under a mask (n,)."""
        if panes.size == 0:
            return
        self._slide_to(int(panes.max()))
        for number in np.unique(panes[panes >= self._oldest()]).tolist():
            self._add_to(number, sum_rows(panes == number))

    def total(self, since: int | None = None) -> Sums | None:
        """The sums of all panes from number `since` on, or None if there are no examples."""
        found: Any = None
        for number in sorted(self.held):
            if since is None or number >= since:
                found = self.held[number] if found is None else found + self.held[number]
        return found  # type: ignore[no-any-return]

    def merge(self, other: Self) -> Self:
        """Both windows as one, with the panes of each replica that are in it."""
        both = type(self)(self.window)
        for source in (self, other):
            if source.newest is not None:
                shift = 0 if self.window.timed else source.newest
                both._slide_to(source.newest - shift)
                for number in sorted(source.held):
                    both._add_to(number - shift, source.held[number])
        if both.newest is not None:
            both._slide_to(both.newest)
        return both

    def to_stored(self) -> dict[str, Any]:
        """For a monitor's file; JSON has no integer keys."""
        numbers = sorted(self.held)
        sums = [self.held[number] for number in numbers]
        return {"window": self.window, "numbers": numbers, "sums": sums, "newest": self.newest}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        numbers = [*stored["numbers"], 0 if stored["newest"] is None else stored["newest"]]
        if any(type(number) is not int for number in numbers):
            raise TypeError(f"panes must be numbered by integers; got {numbers}")
        held = dict(zip(stored["numbers"], stored["sums"], strict=True))
        return cls(stored["window"], held, stored["newest"])

    def _add_to(self, number: int, sums: Any) -> None:
        known: Any = self.held.get(number)
        self.held[number] = sums if known is None else known + sums

    def _slide_to(self, number: int) -> None:
        self.newest = number if self.newest is None else max(number, self.newest)
        self.held = {key: sums for key, sums in self.held.items() if key >= self._oldest()}

    def _oldest(self) -> int:
        return -1 if self.newest is None else self.newest - self.window.n_panes + 1


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
