"""Has confidence drifted? A test by betting that may be checked at any time.

Bets are placed on `correct - confidence`, over all examples and in each bin, in both
directions, with several stakes. While every gap stays within its allowance no bet gains
on average, so the mean wealth of all bets (an e-process) has expectation at most 1, and
by Ville's inequality the probability that it *ever* reaches 1/delta is at most delta:
checking often costs nothing. The alarm is raised by the very example that brings it
there, and stays. In detail:

- Wealth is a product of 1 + stake * payoff. Its logarithm is rounded down to a multiple
  of 2^-30, which keeps the guarantee and makes sums of integers: batches of any size
  give the same bits.
- A change may come late, after bets from the start have lost their wealth. So new bets
  start with each block p of 100 examples, with 1/((p + 1)(p + 2)) of the total stake.

A class or a group can be off while confidence as a whole looks fine. The rows with one
predicted label, or of one group, are a stream of their own, with its own test and an
equal share of the error probability: by a union bound, a false alarm about any of them
is ever raised with probability at most delta. The coverage of prediction sets is tested
by the same bets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray, to_host
from hokical._core.checks import (
    ArrayOf,
    Count,
    Share,
    as_number,
    check_choice,
    check_count,
    show,
)
from hokical._core.reading import as_partial_labels, to_numpy
from hokical._core.storage import storable
from hokical.calibrators import Calibrator
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.planning import plan
from hokical.guarantees.sets import PredictionSets, SetOptions

Direction = Literal["over", "under"]
DIRECTIONS: tuple[Direction, Direction] = ("over", "under")

#: Labelled examples between two starts of new bets.
BLOCK = 100
#: Shares of the wealth that are bet.
STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.8])

#: Rows per temporary.
_ROWS = 1 << 14
_UNITS = float(1 << 30)
#: The share of the total stake that is bet on all examples; the bins share the rest
#: equally.
_OVERALL_SHARE = 0.5


@storable("alarm")
@dataclass(frozen=True)
class Alarm:
    """Confidence is off: in which direction and bin (None: overall), and since when.

    `n` is the labelled example at which it was found: the change came then or earlier.
    `since` is where the winning bet began, which is no more than a hint.
    """

    direction: Direction
    bin: int | None
    since: Count
    n: Count

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, Direction)
        if self.bin is not None:
            check_count("bin", self.bin, least=0)


#: A number for each direction, bin (and all bins) and stake.
Bets = Annotated[FloatArray, ArrayOf((2, "bins", STAKES.size), -np.inf, np.inf)]


@storable("e-process")
@dataclass(eq=False)
class EProcess:
    """The wealth of the bets on one stream of labelled examples; `start` makes a new
    one.

    `allowance` (2, 1 + J) is how far confidence may be above (first row) and below
    accuracy without an alarm: overall, then in each bin; `delta` the probability of
    ever raising a false one. Of shape (2, 1 + J, stakes) are `settled`, the log wealth
    of the bets before the current block, `open`, log gains of this block in units,
    integers, and `since`, the labelled examples before the wealthiest bet began. `n`
    counts labelled examples.
    """

    allowance: Annotated[FloatArray, ArrayOf((2, "bins"), 0.0, 1.0)]
    delta: Share
    settled: Bets
    open: Bets
    since: Annotated[IntArray, ArrayOf((2, "bins", STAKES.size), 0, dtype=np.int64)]
    n: Count = 0
    alarm: Alarm | None = None

    @classmethod
    def start(cls, allowance: FloatArray, delta: float) -> Self:
        """The e-process of no examples."""
        shape = (*allowance.shape, STAKES.shape[0])
        return cls(
            allowance=allowance,
            delta=delta,
            settled=np.full(shape, -np.inf),
            open=np.zeros(shape),
            since=np.zeros(shape, int),
        )

    def add(
        self, confidence: FloatArray, correct: BoolArray, bins: IntArray | None = None
    ) -> None:
        """Bet on examples, (n,) each, in order of arrival; without `bins` on all of
        them alone.
        """
        gap = correct - confidence
        row_bins = np.full(confidence.size, -1) if bins is None else bins
        for first in range(0, gap.size, _ROWS):
            gaps = gap[first : first + _ROWS]
            bin_of_row = row_bins[first : first + _ROWS]
            payoff = np.stack([-gaps, gaps], axis=1)[:, :, None]
            overall = np.broadcast_to(self.allowance[:, :1], (gaps.size, 2, 1))
            by_bin = self.allowance[:, 1 + bin_of_row].T[:, :, None]
            allowed = np.concatenate([overall, by_bin], axis=2)
            # Never a loss of all: the share of the stake is below 1.
            ratio = STAKES * (payoff - allowed)[..., None] / (1.0 + allowed)[..., None]
            # Log gains in units, integers, (n, 2, 2, stakes): overall and in the row's
            # bin.
            gains = np.asarray(np.floor(np.log1p(ratio) * _UNITS))
            done = 0
            while done < gaps.size:
                block = slice(done, done + BLOCK - self.n % BLOCK)
                self._bet(gains[block], bin_of_row[block])
                done = block.stop

    @property
    def log_e(self) -> float:
        """Logarithm of the mean wealth, with the stakes that have not been bet yet."""
        log_unbet = -math.log(self.n // BLOCK + 2)
        wealth = np.logaddexp(self._log_wealth(self.open), log_unbet) + self._log_shares
        return float(np.logaddexp.reduce(wealth.ravel()))

    def _bet(self, gains: FloatArray, bins: IntArray) -> None:
        """Bet on examples of one block, (m, 2, 2, stakes) and (m,), and check after
        each.
        """
        if self.n % BLOCK == 0:
            # Where new bets have more than all before them, a change may begin here.
            self.since[_log_entry(self.n // BLOCK) > self.settled] = self.n
        steps = np.zeros((bins.shape[0], *self.open.shape))
        steps[:, :, 0] = gains[:, :, 0]
        steps[np.arange(bins.shape[0]), :, 1 + bins] = gains[:, :, 1]
        steps[0] += self.open
        # Sums of integers are exact, however batches are cut.
        sums = np.cumsum(steps, axis=0, out=steps)
        if self.alarm is None:
            self._raise_alarm(sums)
        self.open = sums[-1].copy()
        if (self.n + bins.shape[0]) % BLOCK == 0:
            self.settled = self._log_wealth(self.open)
            self.open = np.zeros_like(self.open)
        self.n += bins.shape[0]

    def _raise_alarm(self, sums: FloatArray) -> None:
        """Raise the alarm at the first of the gains, (m, 2, 1 + J, stakes), that
        suffice.
        """
        unbet = 1.0 / (self.n // BLOCK + 2)
        needed_wealth = 1.0 / self.delta - unbet
        with np.errstate(over="ignore"):
            best = np.exp(self._log_wealth(sums.max(axis=0)) + self._log_shares)
            if best.sum() < needed_wealth:
                return  # not even if all bets had been at their best at once
            wealth = np.exp(self._log_wealth(sums) + self._log_shares)
        reached = wealth.sum(axis=(1, 2, 3)) >= needed_wealth
        if not reached.any():
            return
        row = int(np.argmax(reached))
        wealth = self._log_wealth(sums[row]) + self._log_shares
        by_bin = np.logaddexp.reduce(wealth, axis=2)
        side, column = divmod(int(np.argmax(by_bin)), by_bin.shape[1])
        since = self.since[side, column, np.argmax(wealth[side, column])]
        self.alarm = Alarm(
            direction=DIRECTIONS[side],
            bin=column - 1 if column else None,
            since=int(since) + 1,
            n=self.n + row + 1,
        )

    def _log_wealth(self, gains: FloatArray) -> FloatArray:
        """Log wealth of the bets that have started, given the gains of the open
        block.
        """
        entered = np.logaddexp(self.settled, _log_entry(self.n // BLOCK))
        return np.asarray(entered + gains / _UNITS)

    @property
    def _log_shares(self) -> FloatArray:
        """Log of the share of the total stake, overall and in each bin, (1 + J, 1)."""
        n_bins = self.allowance.shape[1] - 1
        by_bin = np.full(n_bins, (1.0 - _OVERALL_SHARE) / max(n_bins, 1))
        shares = np.append(_OVERALL_SHARE if n_bins else 1.0, by_bin)
        return np.asarray(np.log(shares / (2.0 * STAKES.shape[0]))[:, None])


def _log_entry(block: int) -> float:
    """Log of the share of the total stake that enters with a block."""
    return -math.log((block + 1) * (block + 2))


@dataclass(frozen=True)
class SetStatus:
    """Of `n` labels, the share `covered` by sets that guarantee a `coverage`; an
    alarm stays.
    """

    coverage: float
    n: int
    covered: float
    alarm: Alarm | None


@storable("set-monitor")
@dataclass(eq=False)
class CoverageMonitor:
    """A test of the coverage of prediction sets, which may be looked at after every
    label.

    `coverage` is what was guaranteed; `delta` the probability of ever raising a false
    alarm, as long as each set misses its class with probability at most 1 - coverage +
    `tolerance`, whatever came before. Labels may come late and in any order: only sets
    whose label is known count. `CalibrationMonitor(cal, coverage=0.9)` has one.

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
    _covered: Count = 0
    _test: EProcess = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        check_chance("delta", self.delta)
        if not 0.0 <= as_number(self.tolerance) < 1.0:
            raise ValueError(
                f"`tolerance` must lie in [0, 1); got {show(self.tolerance)}."
            )
        if self._test is None:  # sets that contain the class too often raise no alarm
            self._test = EProcess.start(np.array([[self.tolerance], [1.0]]), self.delta)

    @classmethod
    def of(
        cls,
        calibrator: Calibrator,
        coverage: float,
        delta: float = 0.01,
        tolerance: float = 0.01,
    ) -> Self:
        """A monitor of `calibrator.predict_set(logits, coverage=coverage)`.

        Few certified examples may leave the true coverage below what was asked for, by
        the Beta distribution: what they cannot exclude with 95 % is tolerated, if that
        is more.
        """
        examples = calibrator.fitted.certified_sets(
            SetOptions(coverage=coverage)
        ).examples
        n = max(1, int(examples.counts.sum() / examples.unit))
        low = plan(coverage=coverage, examples=(n,)).low[0]
        return cls(coverage, delta, max(tolerance, coverage - low))

    def update(self, covered: Any) -> Self:
        """Add whether sets contained the true class, (n,) bool, in the order of the
        labels.
        """
        values = np.atleast_1d(to_numpy(covered, "covered"))
        is_flat = values.ndim == 1 and values.dtype.kind in "biuf"
        if not is_flat or not np.isin(values, (0, 1)).all():
            raise ValueError(
                "`covered` must be 1-D with True or False for each set; got "
                f"{show(values)}. Pass `members[rows, labels]`."
            )
        hits = values.astype(np.bool_)
        self._test.add(np.full(hits.size, self.coverage), hits)
        self._covered += int(hits.sum())
        return self

    def update_sets(self, sets: PredictionSets, labels: Any) -> Self:
        """Add sets and their true classes (n,); -1 or NaN where a label is not known
        yet.
        """
        if not isinstance(sets, PredictionSets):
            raise TypeError(f"`sets` must be those of `predict_set`; got {show(sets)}.")
        members = to_host(sets.members)
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
            return f"no labels of sets yet; {self.coverage:.4g} was guaranteed"
        share = f"sets contain {self._covered / self.n:.1%} of {self.n:,} labels"
        if self.alarm is None:
            return f"{share}; {self.coverage:.4g} was guaranteed, no alarm"
        since = f"started no later than label {self.alarm.n:,}"
        return f"{share}; less than the guaranteed {self.coverage:.4g}, {since}"
