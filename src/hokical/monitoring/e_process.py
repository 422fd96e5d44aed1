"""Has confidence drifted? A test by betting that may be checked at any time.

Bets are placed on `correct - confidence`, over all examples and in each bin, in both directions,
with several stakes. While every gap stays within its allowance no bet gains on average, so the mean
wealth of all bets (an e-process) has expectation at most 1, and by Ville's inequality the
probability that it *ever* reaches 1/delta is at most delta: checking often costs nothing. The alarm
is raised by the very example that brings it there, and stays. In detail:

- Wealth is a product of 1 + stake * payoff. Its logarithm is rounded down to a multiple of 2^-30,
  which keeps the guarantee and makes sums of integers: batches of any size give the same bits.
- A change may come late, after bets from the start have lost their wealth. So new bets start with
  each block p of 100 examples, with 1/((p + 1)(p + 2)) of the total stake.

A class or a group can be off while confidence as a whole looks fine. The rows with one predicted
label, or of one group, are a stream of their own, with its own test and an equal share of the error
probability: by a union bound, a false alarm about any of them is ever raised with probability at
most delta.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import ArrayOf
from hokical._core.storage import storable
from hokical.monitoring.rows import LabelledRows

Direction = Literal["over", "under"]
DIRECTIONS: tuple[Direction, Direction] = ("over", "under")

#: Labelled examples between two starts of new bets.
BLOCK = 100
#: Shares of the wealth that are bet.
STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.8])

#: Rows per temporary.
_ROWS = 1 << 14
_UNITS = float(1 << 30)
#: The share of the total stake that is bet on all examples; the bins share the rest equally.
_OVERALL_SHARE = 0.5
#: Classes or groups in a status.
_SHOWN = 20


@storable("alarm")
@dataclass(frozen=True)
class Alarm:
    """Confidence is off: in which direction and bin (None: overall), and since when.

    `n` is the labelled example at which it was found: the change came then or earlier. `since` is
    where the winning bet began, which is no more than a hint.
    """

    direction: Direction
    bin: int | None
    since: int
    n: int

    @property
    def place(self) -> tuple[int, int]:
        """Place in arrays (2, 1 + J) by direction, and overall or bin."""
        return DIRECTIONS.index(self.direction), 0 if self.bin is None else 1 + self.bin


#: A number for each direction, place and stake.
Bets = Annotated[FloatArray, ArrayOf((2, "places", STAKES.size), -np.inf, np.inf)]


@storable("e-process")
@dataclass(eq=False)
class EProcess:
    """The wealth of the bets on one stream of labelled examples; `start` makes a new one.

    `allowance` (2, 1 + J) is how far confidence may be above (first row) and below accuracy without
    an alarm: overall, then in each bin; `delta` the probability of ever raising a false one. Of
    shape (2, 1 + J, stakes) are `settled`, the log wealth of the bets before the current block,
    `open`, log gains of this block in units, integers, and `since`, the labelled examples before
    the wealthiest bet began. `n` counts labelled examples.
    """

    allowance: Annotated[FloatArray, ArrayOf((2, "places"), 0.0, 1.0)]
    delta: float
    settled: Bets
    open: Bets
    since: Annotated[IntArray, ArrayOf((2, "places", STAKES.size), 0, dtype=np.int64)]
    n: int = 0
    alarm: Alarm | None = None

    @classmethod
    def start(cls, allowance: FloatArray, delta: float) -> Self:
        """The e-process of no examples."""
        shape = (*allowance.shape, STAKES.shape[0])
        return cls(allowance, delta, np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape, int))

    def add(self, confidence: FloatArray, correct: BoolArray, bins: IntArray | None = None) -> None:
        """Bet on examples, (n,) each, in order of arrival; without `bins` on all of them alone."""
        gap, places = correct - confidence, np.full(confidence.size, -1) if bins is None else bins
        for first in range(0, gap.size, _ROWS):
            rows = slice(first, first + _ROWS)
            gains, done = self._gains(gap[rows], places[rows]), 0
            while done < gains.shape[0]:
                block = slice(done, done + BLOCK - self.n % BLOCK)
                self._bet(gains[block], places[rows][block])
                done = block.stop

    @property
    def log_e(self) -> float:
        """Logarithm of the mean wealth, with the stakes that have not been bet yet."""
        rest = -math.log(self.n // BLOCK + 2)
        wealth = np.logaddexp(self._log_wealth(self.open), rest) + self._log_shares
        return float(np.logaddexp.reduce(wealth.ravel()))

    def _gains(self, gap: FloatArray, bins: IntArray) -> FloatArray:
        """Log gains in units, integers, (n, 2, 2, stakes): overall and in the row's bin."""
        payoff = np.stack([-gap, gap], axis=1)[:, :, None]
        overall = np.broadcast_to(self.allowance[:, :1], (gap.size, 2, 1))
        by_bin = self.allowance[:, 1 + bins].T[:, :, None]
        allowed = np.concatenate([overall, by_bin], axis=2)
        # Never a loss of all: the share of the stake is below 1.
        ratio = STAKES * (payoff - allowed)[..., None] / (1.0 + allowed)[..., None]
        return np.asarray(np.floor(np.log1p(ratio) * _UNITS))

    def _bet(self, gains: FloatArray, bins: IntArray) -> None:
        """Bet on examples of one block, (m, 2, 2, stakes) and (m,), and check after each."""
        if self.n % BLOCK == 0:
            # Where new bets have more than all before them, a change may begin here.
            self.since[_log_entry(self.n // BLOCK) > self.settled] = self.n
        steps = np.zeros((bins.shape[0], *self.open.shape))
        steps[:, :, 0] = gains[:, :, 0]
        steps[np.arange(bins.shape[0]), :, 1 + bins] = gains[:, :, 1]
        steps[0] += self.open
        sums = np.cumsum(steps, axis=0, out=steps)  # integers: exact however batches are cut
        if self.alarm is None:
            self._raise_alarm(sums)
        self.open = sums[-1].copy()
        if (self.n + bins.shape[0]) % BLOCK == 0:
            self.settled, self.open = self._log_wealth(self.open), np.zeros_like(self.open)
        self.n += bins.shape[0]

    def _raise_alarm(self, sums: FloatArray) -> None:
        """Raise the alarm at the first of the gains, (m, 2, 1 + J, stakes), that suffice."""
        enough = 1.0 / self.delta - 1.0 / (self.n // BLOCK + 2)  # less stakes that are not bet yet
        if self._wealth(sums.max(axis=0)).sum() < enough:
            return  # not even if all bets had been at their best at once
        reached = self._wealth(sums).sum(axis=(1, 2, 3)) >= enough
        if not reached.any():
            return
        row = int(np.argmax(reached))
        wealth = self._log_wealth(sums[row]) + self._log_shares
        by_place = np.logaddexp.reduce(wealth, axis=2)
        side, place = divmod(int(np.argmax(by_place)), by_place.shape[1])
        since = self.since[side, place, np.argmax(wealth[side, place])]
        bin_ = place - 1 if place else None
        self.alarm = Alarm(DIRECTIONS[side], bin_, int(since) + 1, self.n + row + 1)

    def _wealth(self, gains: FloatArray) -> FloatArray:
        """Wealth of the bets that have started, (..., 2, 1 + J, stakes), at such gains."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self._log_wealth(gains) + self._log_shares))

    def _log_wealth(self, gains: FloatArray) -> FloatArray:
        """Log wealth of the bets that have started, given the gains of the open block."""
        entered = np.logaddexp(self.settled, _log_entry(self.n // BLOCK))
        return np.asarray(entered + gains / _UNITS)

    @property
    def _log_shares(self) -> FloatArray:
        """Log of the share of the total stake, overall and in each bin, (1 + J, 1)."""
        n_bins = self.allowance.shape[1] - 1
        shares = np.full(1 + n_bins, (1.0 - _OVERALL_SHARE) / max(n_bins, 1))
        shares[0] = _OVERALL_SHARE if n_bins else 1.0
        return np.asarray(np.log(shares / (2.0 * STAKES.shape[0]))[:, None])


def _log_entry(block: int) -> float:
    """Log of the share of the total stake that enters with a block."""
    return -math.log((block + 1) * (block + 2))


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
