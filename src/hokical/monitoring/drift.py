"""Has confidence stopped being honest? A bet against it that may be looked at at any time.

Somebody bets on `correct - confidence`, over all examples and in each bin, on either side, with
several stakes. While every gap stays within its allowance no bet gains on average, so the mean of
all fortunes (an e-process) has expectation at most 1, and by Ville's inequality the chance that it
*ever* reaches 1/alpha is at most alpha: looking often costs nothing. The alarm is raised by the
very example that brings it there, whether anybody looks or not, and stays. In detail:

- A fortune is the product of 1 + stake * payoff. Its logarithm is rounded down to a multiple of
  2^-30, which takes nothing from the guarantee and makes sums of integers: the same in any order.
- A change may come late, and a long calm would ruin whoever had bet from the beginning. So new
  players enter at the start of each block p of 100 examples with 1/((p + 1)(p + 2)) of the money.
- Fortunes of replicas multiply: their logarithms are added. Nobody saw how they came about
  together, so what they show is of the moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical.monitoring.reference import Reference

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Direction = Literal["over", "under"]
DIRECTIONS: tuple[Direction, Direction] = ("over", "under")

#: Labelled examples between two entries of new players.
BLOCK = 100

#: Rows that are worked on at once.
_ROWS = 1 << 14
_STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
_UNITS = float(1 << 30)
#: The share of the money that is bet on all examples; the bins have equal parts of the rest.
_SHARE_OF_ALL = 0.5


@dataclass(frozen=True)
class Alarm:
    """Confidence is off, to which side, in which bin (None: overall) and since when.

    `since` and `n` count labelled examples: where the change seems to have begun, and where it was
    found. They and the times are None where they are not known.
    """

    direction: Direction
    bin: int | None
    since: int | None
    n: int | None
    since_time: float | None
    time: float | None


@dataclass(frozen=True, eq=False)
class Reading:
    """Logarithms of the fortunes in units of 2^-30, (2, 1 + J, stakes); readings add."""

    units: IntArray
    alarm: Alarm | None

    def __add__(self, other: Reading) -> Reading:
        alarms = [alarm for alarm in (self.alarm, other.alarm) if alarm is not None]
        return Reading(self.units + other.units, min(alarms, key=_earliest, default=None))

    @property
    def log_e(self) -> float:
        """Logarithm of the mean fortune: the evidence against the allowances."""
        return float(np.logaddexp.reduce(self._weighed().ravel()))

    def strongest(self) -> tuple[Direction, int | None]:
        """Direction and bin (None: overall) with the most evidence."""
        by_group = np.logaddexp.reduce(self._weighed(), axis=2)
        side, group = divmod(int(np.argmax(by_group)), by_group.shape[1])
        return DIRECTIONS[side], group - 1 if group else None

    def found(self, alpha: float) -> Alarm | None:
        """The alarm that a replica raised, or that the evidence of this very moment raises."""
        if self.alarm is None and self.log_e >= -math.log(alpha):
            return Alarm(*self.strongest(), None, None, None, None)
        return self.alarm

    def _weighed(self) -> FloatArray:
        return self.units / _UNITS + _log_shares(self.units.shape[1])


class Evidence:
    """The fortunes of one stream of labelled examples.

    Parameters
    ----------
    allowance : (2, 1 + J) float64
        How far confidence may be above (first row) and below accuracy without being dishonest:
        over all examples, then in each bin.
    alpha : float
        Chance of ever raising a false alarm.
    """

    def __init__(self, allowance: FloatArray, alpha: float) -> None:
        shape = (2, allowance.shape[1], _STAKES.shape[0])
        self.allowance, self.alpha = allowance, alpha
        self.n = 0
        self.alarm: Alarm | None = None
        self._settled = np.full(shape, -np.inf)  # log of what earlier players have, per block
        self._open = np.zeros(shape)  # whole numbers: the block that is not full yet
        self._since = np.zeros(shape, dtype=np.int64)
        self._since_time = np.full(shape, np.nan)

    def add(
        self,
        confidence: FloatArray,
        correct: NDArray[np.bool_],
        bins: IntArray,
        times: FloatArray | None = None,
    ) -> None:
        """Bet on examples, (n,) each, in order of arrival."""
        gap = correct - confidence
        seconds = np.full(gap.shape, np.nan) if times is None else times
        for first in range(0, gap.shape[0], _ROWS):
            rows = slice(first, first + _ROWS)
            self._add_rows(self._gains(gap[rows], bins[rows]), bins[rows], seconds[rows])

    def reading(self) -> Reading:
        """The fortunes now, rounded down."""
        return self._reading(self._open)

    def to_dict(self) -> dict[str, Any]:
        """For storage."""
        return {
            "n": self.n,
            "alarm": None if self.alarm is None else vars(self.alarm),
            "settled": self._settled,
            "open": self._open,
            "since": self._since,
            "since_time": self._since_time,
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from what `to_dict` gave."""
        self.n = int(stored["n"])
        self.alarm = None if stored["alarm"] is None else Alarm(**stored["alarm"])
        self._settled, self._open = stored["settled"], stored["open"]
        self._since, self._since_time = stored["since"], stored["since_time"]

    def _add_rows(self, gains: FloatArray, bins: IntArray, times: FloatArray) -> None:
        """Bet block by block: players enter before the first example of each."""
        done = 0
        while done < bins.shape[0]:
            if self.n % BLOCK == 0:
                self._enter(float(times[done]))
            rows = slice(done, done + BLOCK - self.n % BLOCK)
            self._bet(gains[rows], bins[rows], times[rows])
            done = rows.stop

    def _gains(self, gap: FloatArray, bins: IntArray) -> FloatArray:
        """Log gains in units, whole numbers, (n, 2, 2, stakes): overall and in the own bin."""
        gains = np.empty((gap.shape[0], 2, 2, _STAKES.shape[0]))
        for side, payoff in enumerate((-gap, gap)):
            overall, by_bin = self.allowance[side, 0], self.allowance[side, 1:][bins]
            for place, stake in enumerate(_STAKES):
                gains[:, side, 0, place] = _log_gain(payoff, overall, stake)
                gains[:, side, 1, place] = _log_gain(payoff, by_bin, stake)
        return gains

    def _enter(self, time: float) -> None:
        """New players: where they have more than all before them, a change begins here."""
        newer = _log_entry(self.n // BLOCK) > self._settled
        self._since[newer], self._since_time[newer] = self.n, time

    def _bet(self, gains: FloatArray, bins: IntArray, times: FloatArray) -> None:
        """Bet on examples of one block, (m, 2, 2, stakes) and (m,), and look after each."""
        steps = np.zeros((bins.shape[0], *self._open.shape))
        steps[:, :, 0] = gains[:, :, 0]
        steps[np.arange(bins.shape[0]), :, 1 + bins] = gains[:, :, 1]
        steps[0] += self._open
        walk = np.cumsum(steps, axis=0, out=steps)  # whole numbers: exact however it is cut
        if self.alarm is None:
            self._look(walk, times)
        self._open = walk[-1].copy()
        if (self.n + bins.shape[0]) % BLOCK == 0:
            self._settled, self._open = self._now(self._open), np.zeros_like(self._open)
        self.n += bins.shape[0]

    def _look(self, walk: FloatArray, times: FloatArray) -> None:
        """Raise the alarm at the first gains, (m, 2, 1 + J, stakes), that make enough."""
        enough = 1.0 / self.alpha - 1.0 / (self.n // BLOCK + 2)  # less those who have yet to enter
        if self._money(walk.max(axis=0, keepdims=True))[0] < enough:
            return  # not even if all had been at their best at once
        called = self._money(walk) >= enough
        if called.any():
            row = int(np.argmax(called))
            self.alarm = self._alarm(self._reading(walk[row]), self.n + row + 1, float(times[row]))

    def _money(self, gains: FloatArray) -> FloatArray:
        """What all who have entered have together, (m,), at gains (m, 2, 1 + J, stakes)."""
        with np.errstate(over="ignore"):
            fortunes = np.exp(self._now(gains) + _log_shares(gains.shape[2]))
        return np.asarray(fortunes.reshape(gains.shape[0], -1).sum(axis=1))

    def _alarm(self, reading: Reading, n: int, time: float) -> Alarm:
        direction, bin_ = reading.strongest()
        group = (DIRECTIONS.index(direction), 0 if bin_ is None else 1 + bin_)
        stake = int(np.argmax(reading.units[group]))
        since, since_time = int(self._since[group][stake]), float(self._since_time[group][stake])
        return Alarm(direction, bin_, since, n, _known(since_time), _known(time))

    def _now(self, open_: FloatArray) -> FloatArray:
        """Log of what the players who have entered have, given the gains of the open block."""
        entered = np.logaddexp(self._settled, _log_entry(self.n // BLOCK))
        return np.asarray(entered + open_ / _UNITS)

    def _reading(self, open_: FloatArray) -> Reading:
        log_tail = -math.log(self.n // BLOCK + 2)  # those who have yet to enter
        units = np.floor(np.logaddexp(self._now(open_), log_tail) * _UNITS)
        return Reading(units.astype(np.int64), self.alarm)


def allowances(reference: Reference | None, n_bins: int, tolerance: float) -> FloatArray:
    """How far confidence may be off, (2, 1 + J): the tolerance, or what the fit cannot exclude."""
    if reference is None:
        return np.full((2, 1 + n_bins), tolerance)
    low, high = reference.gap_intervals()
    return np.asarray(np.clip([-low, high], tolerance, 1.0))


def _log_shares(n_groups: int) -> FloatArray:
    """Log of the share of the money with which each group starts at each stake, (groups, 1)."""
    shares = np.full(n_groups, (1.0 - _SHARE_OF_ALL) / max(n_groups - 1, 1))
    shares[0] = _SHARE_OF_ALL
    return np.asarray(np.log(shares / (2.0 * _STAKES.shape[0]))[:, None])


def _log_gain(payoff: FloatArray, allowed: FloatArray, stake: float) -> FloatArray:
    """Log of 1 + stake * payoff less the allowance, (n,) in units; never a loss of all."""
    log_gain = np.log1p(stake * (payoff - allowed) / (1.0 + allowed))
    return np.asarray(np.floor(log_gain * _UNITS))


def _log_entry(block: int) -> float:
    """Log of the share of the money that enters with a block."""
    return -math.log((block + 1) * (block + 2))


def _known(time: float) -> float | None:
    return None if math.isnan(time) else float(time)


def _earliest(alarm: Alarm) -> tuple[Any, ...]:
    """An order of alarms that does not depend on who is asked first."""
    parts = (alarm.since_time, alarm.since, alarm.time, alarm.n, alarm.bin)
    return (*(math.inf if part is None else part for part in parts), alarm.direction)
