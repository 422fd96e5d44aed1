"""Do prediction sets still hold the true class as often as promised?"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.storage import CalibratorFileError, read_document, storable, write_document
from hokical._core.version import VERSION
from hokical.calibrators import Calibrator
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._plan import plan_coverage
from hokical.guarantees._sets import PredictionSets
from hokical.monitoring._arrivals import as_partial_labels
from hokical.monitoring._drift import Alarm, Evidence, Reading

_KIND = "CoverageMonitor"


@dataclass(frozen=True)
class SetStatus:
    """Of `n` labels, the share `covered` by sets that promise a `coverage`; an alarm stays."""

    coverage: float
    n: int
    covered: float
    alarm: Alarm | None


@storable("coverage-monitor")
@dataclass(eq=False)
class CoverageMonitor:
    """A bet against the coverage of sets, which may be looked at after every label.

    `coverage` is what was promised; `delta` the probability of ever raising a false alarm, as long
    as each set misses its class with probability at most 1 - coverage + `tolerance`, whatever came
    before (see `hokical.monitoring.drift`). Labels may come late and in any order: only sets whose
    label is known count. `CalibrationMonitor(cal, coverage=0.9)` has one.

    >>> rng = np.random.default_rng(0)
    >>> monitor = CoverageMonitor(0.9)
    >>> monitor.update(rng.random(2000) < 0.9).alarm is None
    True
    >>> alarm = monitor.update(rng.random(2000) < 0.8).alarm
    >>> alarm is not None and 2000 < alarm.n < 2600
    True
    """

    coverage: float
    delta: float = 0.01
    tolerance: float = 0.01
    covered: int = 0
    evidence: Evidence | None = None
    #: What several monitors show together, which cannot be fed.
    merged: Reading | None = None

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        check_chance("delta", self.delta)
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"`tolerance` must lie in [0, 1); got {self.tolerance!r}.")
        if self.evidence is None:  # that sets hold the class too often is no alarm
            allowed = np.array([[self.tolerance], [1.0]])
            self.evidence = Evidence.start(allowed, self.delta)

    @classmethod
    def of(
        cls, calibrator: Calibrator, coverage: float, delta: float = 0.01, tolerance: float = 0.01
    ) -> Self:
        """A monitor of `calibrator.predict_set(logits, coverage=coverage)`.

        Few certified examples may leave the true coverage below what was asked for, by Beta's law:
        what they cannot exclude with 95 % certainty is tolerated, if that is more.
        """
        calibrator.predict_set(np.zeros((1, calibrator.n_classes_)), coverage=coverage)  # or raise
        known = calibrator.held_out_conformity_ or calibrator.fit_conformity_
        assert known is not None
        n = max(1, int(known.counts.sum() / known.unit))
        low = plan_coverage(coverage, examples=(n,)).low[0]
        return cls(coverage, delta, max(tolerance, coverage - low))

    @classmethod
    def merge(cls, monitors: Sequence[Self]) -> Self | None:
        """One reading of several streams, as `CalibrationMonitor.merge`; None of none."""
        if not monitors:
            return None
        found = [each.merged or each.evidence.reading() for each in monitors if each.evidence]
        first = monitors[0]
        whole = replace(first, evidence=None, covered=sum(each.covered for each in monitors))
        assert whole.evidence is not None
        whole.evidence.n, whole.merged = sum(each.n for each in monitors), reduce(add, found)
        return whole

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
        """When coverage was found to be too low; None as long as it is not."""
        if self.merged is not None:
            return self.merged.alarm_now(self.delta)
        return None if self.evidence is None else self.evidence.alarm

    def status(self) -> SetStatus:
        """What is known now."""
        share = self.covered / self.n if self.n else math.nan
        return SetStatus(self.coverage, self.n, share, self.alarm)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a JSON file, atomically; `load` continues from it."""
        write_document(path, {"kind": _KIND, "library_version": VERSION, "monitor": self})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A monitor as `save` left it."""
        document = read_document(path)
        if document.get("kind") != _KIND or not isinstance(document.get("monitor"), cls):
            raise CalibratorFileError(f"{path} does not hold a {_KIND}.")
        found: Self = document["monitor"]
        return found

    def __str__(self) -> str:
        share = f"sets hold {self.covered / self.n:.1%} of {self.n:,} labels"
        share = share if self.n else "no labels of sets yet"
        if self.alarm is None:
            return f"{share}; {self.coverage:.4g} was promised, no alarm"
        n = self.alarm.n
        since = "" if n is None else f" since label {n:,} or before"
        return f"{share}; less than the promised {self.coverage:.4g}{since}"
