"""Is a class off while confidence as a whole looks fine? A test and a small table per class.

The rows with one predicted label are a stream of their own, with its own bet against calibration
(`drift.py`) and the share delta / classes of the error probability: by Ville's inequality and a
union over the classes, a false alarm about any class is ever raised with probability at most delta.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self

import numpy as np

from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._examples import Examples
from hokical.monitoring._arrivals import Panes, Window
from hokical.monitoring._drift import Alarm, Evidence, Reading

#: Confidence is summed in units of 2^-30: sums of integers are the same in any order.
_UNITS = float(1 << 30)
#: Classes in a status.
_SHOWN = 20


@dataclass(frozen=True)
class ClassStatus:
    """Rows of the window with one predicted label: how many, confidence, accuracy; and the test.

    `says` and `right` are NaN if there are none. An alarm stays; its `since` and `n` count rows of
    this label. `name` is that of the class, or its number.
    """

    label: int
    n: int
    says: float
    right: float
    log_e: float
    alarm: Alarm | None
    name: str = ""


@storable("monitor-label-tally")
@dataclass(frozen=True, eq=False)
class LabelTally:
    """Predicted `labels` (m,), and their rows, right rows and confidence in units, (m, 3) int64."""

    labels: IntArray
    sums: IntArray

    @classmethod
    def group(cls, labels: IntArray, rows: IntArray) -> Self:
        """The sums of rows (n, 3) by label (n,)."""
        own, place = np.unique(labels, return_inverse=True)
        sums = np.zeros((own.size, 3), np.int64)
        np.add.at(sums, place, rows)
        return cls(own, sums)

    def __add__(self, other: Self) -> Self:
        labels, rows = zip((self.labels, self.sums), (other.labels, other.sums), strict=True)
        return self.group(np.concatenate(labels), np.concatenate(rows))


@storable("monitor-classes")
@dataclass(eq=False)
class ClassWatch:
    """The window's sums by class, and the evidence of each class; of merged streams, readings."""

    window: Panes[LabelTally]
    tests: dict[int, Evidence | Reading] = field(default_factory=dict)

    def add(
        self,
        predicted: IntArray,
        examples: Examples,
        times: FloatArray | None,
        panes: IntArray,
        new: Callable[[], Evidence],
    ) -> None:
        """Add labelled examples with their predicted classes, times and panes, (n,) each."""
        units = np.rint(examples.confidence * _UNITS)
        rows = np.stack([np.ones(units.size), examples.correct, units], axis=1).astype(np.int64)
        self.window.add(panes, lambda some: LabelTally.group(predicted[some], rows[some]))
        order = np.argsort(predicted, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(predicted[order])) + 1):
            test = self.tests.get(int(predicted[own[0]])) or new()
            assert isinstance(test, Evidence), "merged monitors are not fed"
            data = examples.confidence[own], examples.correct[own], np.full(own.size, -1)
            test.add(*data, None if times is None else times[own])
            self.tests[int(predicted[own[0]])] = test

    @classmethod
    def merge(cls, watches: list[Self], window: Window) -> Self:
        """A reading of several streams."""
        both = cls(reduce(Panes.merge, (watch.window for watch in watches), Panes(window)))
        for label, test in (pair for watch in watches for pair in watch.tests.items()):
            known = both.tests.get(label)
            both.tests[label] = _read(test) if known is None else _read(known) + _read(test)
        return both

    def table(self, delta: float, names: Sequence[str] = ()) -> tuple[ClassStatus, ...]:
        """The classes to show, with their names; `delta` is that of a single class."""
        total = self.window.total()
        known = {} if total is None else dict(zip(total.labels.tolist(), total.sums, strict=True))
        found = []
        for label, test in self.tests.items():
            n, right, units = map(int, known.get(label, (0, 0, 0)))
            says, share = (units / _UNITS / n, right / n) if n else (math.nan, math.nan)
            alarm = test.alarm if isinstance(test, Evidence) else test.alarm_now(delta)
            name = names[label] if label < len(names) else str(label)
            found.append(ClassStatus(label, n, says, share, _read(test).log_e, alarm, name))
        found.sort(key=lambda each: (each.alarm is None, -each.log_e, each.label))
        return tuple(found[:_SHOWN])

    def to_stored(self) -> dict[str, Any]:
        """For a monitor's file; JSON has no integer keys."""
        labels = sorted(self.tests)
        tests = [self.tests[label] for label in labels]
        return {"window": self.window, "labels": labels, "tests": tests}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        return cls(stored["window"], dict(zip(stored["labels"], stored["tests"], strict=True)))


def _read(test: Evidence | Reading) -> Reading:
    return test if isinstance(test, Reading) else test.reading()
