"""Is a class or a group off while confidence as a whole looks fine? A test for each of them.

The rows with one predicted label, or of one group, are a stream of their own, with its own test by
betting and an equal share of the error probability: by Ville's inequality and a union bound, a
false alarm about any of them is ever raised with probability at most delta.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from hokical._core.storage import storable
from hokical._core.types import IntArray
from hokical.monitoring._e_process import Alarm, EProcess
from hokical.monitoring._rows import LabelledRows

#: Parts in a status.
_SHOWN = 20


@dataclass(frozen=True)
class PartStatus:
    """Rows of the window with one predicted label, or of one group, and their test.

    `mean_confidence` and `accuracy` are NaN if there are no rows. An alarm stays; its `since` and
    `n` count rows of this part. `name` is that of the class or group, or its number.
    """

    label: int
    n: int
    mean_confidence: float
    accuracy: float
    log_e: float
    alarm: Alarm | None
    name: str = ""


@storable("monitor-parts")
@dataclass(eq=False)
class PartTests:
    """The test of each part by its number; `tolerance` and `delta` are those of a single test."""

    tolerance: float
    delta: float
    tests: dict[int, EProcess] = field(default_factory=dict)

    def add(self, parts: IntArray, rows: LabelledRows) -> None:
        """Add labelled rows of the parts (n,), -1 where they are not known."""
        order = np.argsort(parts, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
            part = int(parts[own[0]]) if own.size else -1
            if part >= 0:
                test = self.tests.get(part)
                if test is None:
                    test = EProcess.start(np.full((2, 1), self.tolerance), self.delta)
                    self.tests[part] = test
                test.add(rows.confidence[own], rows.correct[own])

    def table(
        self, parts: IntArray, window: LabelledRows, names: Sequence[str]
    ) -> tuple[PartStatus, ...]:
        """The parts to show: alarms first, then by evidence; `parts` (n, columns) of the window."""
        known, row = parts.ravel() >= 0, np.repeat(np.arange(len(window)), parts.shape[1])
        numbers = (np.ones(len(window)), window.confidence, window.correct)
        sums = [np.bincount(parts.ravel()[known], each[row[known]]) for each in numbers]
        found = []
        for part, test in self.tests.items():
            n, *shares = (float(each[part]) if part < each.size else 0.0 for each in sums)
            says, right = (share / n if n else math.nan for share in shares)
            name = names[part] if part < len(names) else str(part)
            found.append(PartStatus(part, int(n), says, right, test.log_e, test.alarm, name))
        found.sort(key=lambda each: (each.alarm is None, -each.log_e, each.label))
        return tuple(found[:_SHOWN])

    def to_stored(self) -> dict[str, Any]:
        """For a monitor's file; JSON has no integer keys."""
        parts = sorted(self.tests)
        tests = [self.tests[part] for part in parts]
        return {"tolerance": self.tolerance, "delta": self.delta, "parts": parts, "tests": tests}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        tests = dict(zip(stored["parts"], stored["tests"], strict=True))
        return cls(stored["tolerance"], stored["delta"], tests)
