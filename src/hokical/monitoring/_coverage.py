"""Do prediction sets still hold the true class as often as promised?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.storage import storable
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._sets import PredictionSets
from hokical.monitoring._arrivals import as_partial_labels
from hokical.monitoring._drift import Alarm, Evidence


@storable("coverage-monitor")
@dataclass(eq=False)
class CoverageMonitor:
    """A bet against the coverage of sets, which may be looked at after every label.

    `coverage` is what was promised; `delta` the probability of ever raising a false alarm, as long
    as each set misses its class with probability at most 1 - coverage + `tolerance`, whatever came
    before (see `hokical.monitoring.drift`). Labels may come late and in any order: only sets whose
    label is known count.

    >>> rng = np.random.default_rng(0)
    >>> monitor = CoverageMonitor(0.9)
    >>> monitor.update(rng.random(2000) < 0.9).alarm is None
    True
    >>> alarm = monitor.update(rng.random(2000) < 0.8).alarm
    >>> alarm is not None and 1800 < alarm.since < alarm.n < 2600
    True
    """

    coverage: float
    delta: float = 0.01
    tolerance: float = 0.01
    covered: int = 0
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        check_chance("delta", self.delta)
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"`tolerance` must lie in [0, 1); got {self.tolerance!r}.")
        if self.evidence is None:  # that sets hold the class too often is no alarm
            allowed = np.array([[self.tolerance], [1.0]])
            self.evidence = Evidence.start(allowed, self.delta)

    def update(self, covered: Any) -> Self:
        """Add whether sets held the true class, (n,) bool, in the order in which it was learned."""
        given = np.atleast_1d(to_host(covered))
        if given.ndim != 1 or not np.isin(given, (0, 1)).all():
            raise ValueError("`covered` must be 1-D with True or False for each set.")
        hits = given.astype(np.bool_)
        assert self.evidence is not None
        if hits.size:
            said, none = np.full(hits.size, self.coverage), np.full(hits.size, -1)
            self.evidence.add(said, hits, none)
            self.covered += int(hits.sum())
        return self

    def update_sets(self, found: PredictionSets, labels: Any) -> Self:
        """Add sets and their true classes (n,); -1 or NaN where a label is not known yet."""
        members = to_host(found.members)
        truth = as_partial_labels(labels, *members.shape)
        rows = np.flatnonzero(truth >= 0)
        return self.update(members[rows, truth[rows]])

    @property
    def n(self) -> int:
        """Sets with a known label so far."""
        return 0 if self.evidence is None else self.evidence.n

    @property
    def alarm(self) -> Alarm | None:
        """Since when coverage is too low, and when it was found; None as long as it is not."""
        return None if self.evidence is None else self.evidence.alarm

    def __str__(self) -> str:
        share = f"{self.covered / self.n:.1%} of {self.n:,} covered" if self.n else "no labels yet"
        if self.alarm is None:
            return f"{share}; {self.coverage:.4g} was promised, no alarm"
        return f"{share}; less than {self.coverage:.4g} since label {self.alarm.since:,}"
