"""Do prediction sets still contain the true class as often as promised?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.storage import storable
from hokical.calibrators import Calibrator
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._plan import plan
from hokical.guarantees._sets import PredictionSets
from hokical.monitoring._e_process import Alarm, EProcess
from hokical.monitoring._rows import as_partial_labels


@dataclass(frozen=True)
class SetStatus:
    """Of `n` labels, the share `covered` by sets that promise a `coverage`; an alarm stays."""

    coverage: float
    n: int
    covered: float
    alarm: Alarm | None


@storable("set-monitor")
@dataclass(eq=False)
class CoverageMonitor:
    """A test of the coverage of prediction sets, which may be looked at after every label.

    `coverage` is what was promised; `delta` the probability of ever raising a false alarm, as long
    as each set misses its class with probability at most 1 - coverage + `tolerance`, whatever came
    before. Labels may come late and in any order: only sets whose label is known count.
    `CalibrationMonitor(cal, coverage=0.9)` has one.

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
    _covered: int = 0
    _test: EProcess = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        check_chance("delta", self.delta)
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"`tolerance` must lie in [0, 1); got {self.tolerance!r}.")
        if self._test is None:  # sets that contain the class too often raise no alarm
            self._test = EProcess.start(np.array([[self.tolerance], [1.0]]), self.delta)

    @classmethod
    def of(
        cls, calibrator: Calibrator, coverage: float, delta: float = 0.01, tolerance: float = 0.01
    ) -> Self:
        """A monitor of `calibrator.predict_set(logits, coverage=coverage)`.

        Few certified examples may leave the true coverage below what was asked for, by the Beta
        distribution: what they cannot exclude with 95 % is tolerated, if that is more.
        """
        calibrator.predict_set(np.zeros((1, calibrator.n_classes_)), coverage=coverage)  # or raise
        known = calibrator.kept_.held_out_conformity or calibrator.kept_.fit_conformity
        assert known is not None
        n = max(1, int(known.counts.sum() / known.unit))
        low = plan(coverage=coverage, examples=(n,)).low[0]
        return cls(coverage, delta, max(tolerance, coverage - low))

    def update(self, covered: Any) -> Self:
        """Add whether sets contained the true class, (n,) bool, in the order of the labels."""
        given = np.atleast_1d(to_host(covered))
        if given.ndim != 1 or not np.isin(given, (0, 1)).all():
            raise ValueError("`covered` must be 1-D with True or False for each set.")
        hits = given.astype(np.bool_)
        if hits.size:
            self._test.add(np.full(hits.size, self.coverage), hits)
            self._covered += int(hits.sum())
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
        return self._test.n

    @property
    def alarm(self) -> Alarm | None:
        """When coverage was found to be too low; None as long as it is not."""
        return self._test.alarm

    def status(self) -> SetStatus:
        """What is known now."""
        share = self._covered / self.n if self.n else math.nan
        return SetStatus(self.coverage, self.n, share, self.alarm)

    def __str__(self) -> str:
        if not self.n:
            return f"no labels of sets yet; {self.coverage:.4g} was promised"
        share = f"sets contain {self._covered / self.n:.1%} of {self.n:,} labels"
        if self.alarm is None:
            return f"{share}; {self.coverage:.4g} was promised, no alarm"
        since = f"since label {self.alarm.n:,} or before"
        return f"{share}; less than the promised {self.coverage:.4g} {since}"


def refuse_old_record(name: str) -> None:
    """Say why a record of a monitor's file cannot be read; for `read_document`."""
    if name.startswith(("monitor-", "coverage-monitor")):
        raise ValueError(
            "monitors of hokical 0.3 counted otherwise and cannot be continued. Make a new monitor"
        )
