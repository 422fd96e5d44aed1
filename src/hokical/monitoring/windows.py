"""Sliding windows made of panes: short stretches of the stream, each with sums that add up.

A pane's number comes from the example's place in the stream (or from its time), never from the
batch that brought it, so a window does not depend on how the stream was cut. Panes of replicas add
up by their number if it means a time, by their age if it means a place.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

import numpy as np

from hokical.core.storage import storable
from hokical.core.types import BoolArray, FloatArray, IntArray

Sums = TypeVar("Sums")

#: About how many panes a window has: it slides in steps of 2 %.
_PANES = 50


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
