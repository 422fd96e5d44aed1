"""Has confidence drifted? A bet against calibration that may be checked at any time.

Players bet on `correct - confidence`, over all examples and in each bin, in both directions, with
several stakes. As long as every gap stays within its allowance no bet gains on average, so the mean
wealth of all players (an e-process) has expectation at most 1, and by Ville's inequality the
probability that it *ever* reaches 1/delta is at most delta: checking often costs nothing. The alarm
is raised by the very example that brings it there, and stays. In detail:

- Wealth is a product of 1 + stake * payoff. Its logarithm is rounded down to a multiple of 2^-30,
  which keeps the guarantee and makes sums of integers: the same in any order.
- A change may come late, after players from the start have lost their wealth. So new players enter
  at the start of each block p of 100 examples, with 1/((p + 1)(p + 2)) of the total stake.
- The wealth of replicas multiplies: logarithms are added. Their examples have no common order, so
  what they show together is of the moment.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from hokical._core.storage import storable
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.monitoring._reference import Reference

Direction = Literal["over", "under"]
DIRECTIONS: tuple[Direction, Direction] = ("over", "under")

#: Labelled examples between two entries of new players.
BLOCK = 100
#: Shares of their wealth that players bet.
STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.8])

#: Rows per temporary.
_ROWS = 1 << 14
_UNITS = float(1 << 30)
#: The share of the total stake that is bet on all examples; the bins share the rest equally.
_OVERALL_SHARE = 0.5


@storable("monitor-alarm")
@dataclass(frozen=True)
class Alarm:
    """Confidence is off: in which direction and bin (None: overall), and since when.

    `n` and `time` say where it was found: labelled examples so far, and seconds. The change came at
    or before that, however long before. `since` and `since_time` are where the winning bet began,
    which is no more than a hint. All are None if unknown; numbers of labels are, after a merge.
    """

    direction: Direction
    bin: int | None
    since: int | None = None
    n: int | None = None
    since_time: float | None = None
    time: float | None = None

    @property
    def group(self) -> tuple[int, int]:
        """Place in arrays (2, 1 + J) by direction, and overall or bin."""
        return DIRECTIONS.index(self.direction), 0 if self.bin is None else 1 + self.bin


@storable("monitor-reading")
@dataclass(frozen=True, eq=False)
class Reading:
    """Log wealth in units of 2^-30, (2, 1 + J, stakes), and the alarm; readings add."""

    units: IntArray
    alarm: Alarm | None

    def __add__(self, other: Self) -> Self:
        alarms = [alarm for alarm in (self.alarm, other.alarm) if alarm is not None]
        return type(self)(self.units + other.units, min(alarms, key=_alarm_order, default=None))

    @property
    def log_e(self) -> float:
        """Logarithm of the mean wealth: the evidence against the allowances."""
        return float(np.logaddexp.reduce(self._log_wealth().ravel()))

    def strongest_alarm(self) -> Alarm:
        """An alarm for the direction and bin with the most evidence."""
        by_group = np.logaddexp.reduce(self._log_wealth(), axis=2)
        side, group = divmod(int(np.argmax(by_group)), by_group.shape[1])
        return Alarm(DIRECTIONS[side], group - 1 if group else None)

    def alarm_now(self, delta: float) -> Alarm | None:
        """The alarm that a replica raised, or that the evidence of this moment raises."""
        if self.alarm is None and self.log_e >= -math.log(delta):
            return self.strongest_alarm()
        # A replica counts its own labels, which are no places in all of them.
        return None if self.alarm is None else replace(self.alarm, since=None, n=None)

    def _log_wealth(self) -> FloatArray:
        return self.units / _UNITS + _log_shares(self.units.shape[1])


@storable("monitor-evidence")
@dataclass(eq=False)
class Evidence:
    """The wealth of the players on one stream of labelled examples; `start` makes a new one.

    `allowance` (2, 1 + J) is how far confidence may be above (first row) and below accuracy without
    an alarm: overall, then in each bin; `delta` the probability of ever raising a false one. Of
    shape (2, 1 + J, stakes) are `settled`, the log wealth of the players who entered before the
    current block, `open`, log gains of this block in units, integers, and `since`, `since_time`,
    the labelled examples and the time at which the wealthiest players entered. `n` counts labelled
    examples.
    """

    allowance: FloatArray
    delta: float
    settled: FloatArray
    open: FloatArray
    since: IntArray
    since_time: FloatArray
    n: int = 0
    alarm: Alarm | None = None

    def __post_init__(self) -> None:
        shape = (*self.allowance.shape, STAKES.shape[0])
        for name in ("settled", "open", "since", "since_time"):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"`{name}` must have shape {shape}; got {getattr(self, name).shape}."
                )

    @classmethod
    def start(cls, allowance: FloatArray, delta: float) -> Self:
        """The evidence of no examples."""
        shape = (*allowance.shape, STAKES.shape[0])
        no_one, since = np.full(shape, -np.inf), np.zeros(shape, np.int64)
        return cls(allowance, delta, no_one, np.zeros(shape), since, np.full(shape, np.nan))

    def add(
        self,
        confidence: FloatArray,
        correct: BoolArray,
        bins: IntArray,
        times: FloatArray | None = None,
    ) -> None:
        """Bet on examples, (n,) each, in order of arrival; bin -1 where there are no bins."""
        gap = correct - confidence
        seconds = np.full(gap.shape, np.nan) if times is None else times
        for first in range(0, gap.shape[0], _ROWS):
            rows = slice(first, first + _ROWS)
            self._add_rows(self._gains(gap[rows], bins[rows]), bins[rows], seconds[rows])

    def _add_rows(self, gains: FloatArray, bins: IntArray, times: FloatArray) -> None:
        """Bet block by block: players enter before the first example of each."""
        done = 0
        while done < bins.shape[0]:
            if self.n % BLOCK == 0:
                # Where new players have more than all before them, a change may begin here.
                newer = _log_entry(self.n // BLOCK) > self.settled
                self.since[newer], self.since_time[newer] = self.n, float(times[done])
            rows = slice(done, done + BLOCK - self.n % BLOCK)
            self._bet(gains[rows], bins[rows], times[rows])
            done = rows.stop

    def _gains(self, gap: FloatArray, bins: IntArray) -> FloatArray:
        """Log gains in units, integers, (n, 2, 2, stakes): overall and in the own bin."""
        gains = np.empty((gap.shape[0], 2, 2, STAKES.shape[0]))
        for side, payoff in enumerate((-gap, gap)):
            overall, by_bin = self.allowance[side, 0], self.allowance[side][1 + bins]
            for place, stake in enumerate(STAKES):
                gains[:, side, 0, place] = _log_gain(payoff, overall, stake)
                gains[:, side, 1, place] = _log_gain(payoff, by_bin, stake)
        return gains

    def _bet(self, gains: FloatArray, bins: IntArray, times: FloatArray) -> None:
        """Bet on examples of one block, (m, 2, 2, stakes) and (m,), and check after each."""
        steps = np.zeros((bins.shape[0], *self.open.shape))
        steps[:, :, 0] = gains[:, :, 0]
        steps[np.arange(bins.shape[0]), :, 1 + bins] = gains[:, :, 1]
        steps[0] += self.open
        walk = np.cumsum(steps, axis=0, out=steps)  # integers: exact however batches are cut
        if self.alarm is None:
            self._raise_alarm(walk, times)
        self.open = walk[-1].copy()
        if (self.n + bins.shape[0]) % BLOCK == 0:
            self.settled, self.open = self._log_wealth(self.open), np.zeros_like(self.open)
        self.n += bins.shape[0]

    def _raise_alarm(self, walk: FloatArray, times: FloatArray) -> None:
        """Raise the alarm at the first of the gains, (m, 2, 1 + J, stakes), that suffice."""
        enough = 1.0 / self.delta - 1.0 / (self.n // BLOCK + 2)  # less those who have yet to enter
        if self._total_wealth(walk.max(axis=0, keepdims=True))[0] < enough:
            return  # not even if all players had been at their best at once
        reached = self._total_wealth(walk) >= enough
        if not reached.any():
            return
        row = int(np.argmax(reached))
        reading = self.reading(walk[row])
        alarm = reading.strongest_alarm()
        place = (*alarm.group, int(np.argmax(reading.units[alarm.group])))
        self.alarm = replace(
            alarm,
            since=int(self.since[place]) + 1,
            n=self.n + row + 1,
            since_time=_none_if_nan(self.since_time[place]),
            time=_none_if_nan(times[row]),
        )

    def _total_wealth(self, gains: FloatArray) -> FloatArray:
        """Wealth of all who have entered, (m,), at gains (m, 2, 1 + J, stakes)."""
        with np.errstate(over="ignore"):
            wealth = np.exp(self._log_wealth(gains) + _log_shares(gains.shape[2]))
        return np.asarray(wealth.reshape(gains.shape[0], -1).sum(axis=1))

    def _log_wealth(self, gains: FloatArray) -> FloatArray:
        """Log wealth of the players who have entered, given the gains of the open block."""
        entered = np.logaddexp(self.settled, _log_entry(self.n // BLOCK))
        return np.asarray(entered + gains / _UNITS)

    def reading(self, gains: FloatArray | None = None) -> Reading:
        """The log wealth, rounded down, at other gains of the open block than those so far."""
        log_tail = -math.log(self.n // BLOCK + 2)  # those who have yet to enter
        wealth = self._log_wealth(self.open if gains is None else gains)
        units = np.floor(np.logaddexp(wealth, log_tail) * _UNITS)
        return Reading(units.astype(np.int64), self.alarm)


def allowances(reference: Reference | None, n_bins: int, tolerance: float) -> FloatArray:
    """How far confidence may be off, (2, 1 + J): the tolerance, or what the fit cannot exclude."""
    if reference is None:
        return np.full((2, 1 + n_bins), tolerance)
    low, high = reference.gap_intervals()
    return np.asarray(np.clip([-low, high], tolerance, 1.0))


def _log_shares(n_groups: int) -> FloatArray:
    """Log of the share of the total stake of each group at each stake, (groups, 1)."""
    shares = np.full(n_groups, (1.0 - _OVERALL_SHARE) / max(n_groups - 1, 1))
    shares[0] = _OVERALL_SHARE if n_groups > 1 else 1.0
    return np.asarray(np.log(shares / (2.0 * STAKES.shape[0]))[:, None])


def _log_gain(payoff: FloatArray, allowed: FloatArray, stake: float) -> FloatArray:
    """Log of 1 + stake * (payoff less the allowance), (n,) in units; never a loss of all."""
    log_gain = np.log1p(stake * (payoff - allowed) / (1.0 + allowed))
    return np.asarray(np.floor(log_gain * _UNITS))


def _log_entry(block: int) -> float:
    """Log of the share of the total stake that enters with a block."""
    return -math.log((block + 1) * (block + 2))


def _none_if_nan(time: float) -> float | None:
    return None if math.isnan(time) else float(time)


def _alarm_order(alarm: Alarm) -> tuple[Any, ...]:
    """The earliest first, in an order that does not depend on which replica is asked first."""
    parts = (alarm.since_time, alarm.since, alarm.time, alarm.n, alarm.bin)
    return (*(math.inf if part is None else part for part in parts), alarm.direction)
