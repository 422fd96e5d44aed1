"""Is a class or a group off while confidence as a whole looks fine? A test for each of them.

The rows with one predicted label, or of one group, are a stream of their own, with its own test by
betting and an equal share of the error probability: by Ville's inequality and a union bound, a
false alarm about any of them is ever raised with probability at most delta.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """The test of each part by its number, as text; `tolerance` and `delta` are those of each."""

    tolerance: float
    delta: float
    tests: dict[str, EProcess] = field(default_factory=dict)

    def add(self, parts: IntArray, rows: LabelledRows) -> None:
        """Add labelled rows of the parts (n,), -1 where they are not known."""
        order = np.argsort(parts, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
            if own.size and parts[own[0]] >= 0:
                part = str(parts[own[0]])
                if part not in self.tests:
                    allowance = np.full((2, 1), self.tolerance)
                    self.tests[part] = EProcess.start(allowance, self.delta)
                self.tests[part].add(rows.confidence[own], rows.correct[own])

    def table(
        self, parts: IntArray, window: LabelledRows, names: Sequence[str]
    ) -> tuple[PartStatus, ...]:
        """The parts to show: alarms first, then by evidence; `parts` (n, columns) of the window."""
        found = []
        for part, test in ((int(number), test) for number, test in self.tests.items()):
            own = window.take((parts == part).any(axis=1))
            name = names[part] if part < len(names) else str(part)
            found.append(PartStatus(part, len(own), *own.shares(), test.log_e, test.alarm, name))
        found.sort(key=lambda each: (each.alarm is None, -each.log_e, each.label))
        return tuple(found[:_SHOWN])
