"""The recursion behind ReCal: four groups of examples, a temperature each, step after step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_index, sum_by
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Ending = Literal["converged", "exhausted", "limit"]

N_GROUPS = 4
#: Probabilities are taken to be at least 1e-16 before their logarithm is multiplied.
LOWEST_LOG = math.log(1e-16)
#: A group's temperature before shrinking: where the authors' search starts, and all of ours.
_BOUNDS = (0.1, 10.0)
#: Newton's method on log temperature: longest step, last step, most evaluations.
_LONGEST_STEP = 4.0
_STEP_TOLERANCE = 1e-8
_MOST_PASSES = 60
#: Differences that rounding can make: in a calibration error, and relative in a probability.
_ROUNDING = 1e-12
SAME = 1e-9
#: Margin of a masked class: its exponential is exactly 0, and products with it are not NaN.
FAR = 1e6


@dataclass(frozen=True, eq=False)
class ScaledLogits:
    """Logits after some steps: margins below the top are min(scale * margin, cap), row by row.

    A step raises tiny probabilities to 1e-16, which puts a cap on a row's margins, and multiplies
    log-probabilities, which multiplies margins and cap. So two numbers per row hold all of it.
    """

    logits: Logits
    scale: FloatArray
    cap: FloatArray

    @classmethod
    def start(cls, logits: Logits) -> ScaledLogits:
        return cls(logits, np.ones(logits.n_rows), np.full(logits.n_rows, np.inf))

    def times(self, temperature: FloatArray) -> ScaledLogits:
        """One step: clamp, then multiply the log-probabilities of each row by its temperature (n,).

        A row with temperature 1 stays as it is.
        """
        cap = np.where(temperature == 1.0, self.cap, self.clamped().cap)
        return ScaledLogits(self.logits, self.scale, cap).stretched(temperature)

    def clamped(self) -> ScaledLogits:
        """Probabilities below 1e-16 raised to it."""
        return replace(self, cap=np.minimum(self.cap, -LOWEST_LOG - self.log_norm))

    def stretched(self, factor: FloatArray) -> ScaledLogits:
        """Log-probabilities multiplied."""
        return ScaledLogits(self.logits, self.scale * factor, self.cap * factor)

    def margins(self, rows: slice) -> FloatArray:
        """(rows, classes), finite: a masked class is far away."""
        out = self.logits.margins(rows)
        possible = out < np.inf
        out *= self.scale[rows, None]
        np.minimum(out, self.cap[rows, None], out=out, where=possible)
        out[~possible] = FAR
        return out

    def margin_of(self, classes: IntArray) -> FloatArray:
        """The margin of one given class per row, (n,); inf where it is masked."""
        raw = self.logits.top - self.logits.of_class(classes)
        return np.where(raw < np.inf, np.minimum(raw * self.scale, self.cap), np.inf)

    @cached_property
    def log_norm(self) -> FloatArray:
        """Minus the log-probability of each row's label, (n,)."""
        return log_norms(self.logits, self)

    @property
    def confidence(self) -> FloatArray:
        """The probability of each row's label, (n,)."""
        return np.exp(-self.log_norm)

    def distribution(self) -> FloatArray:
        """All probabilities, (n, classes)."""
        return self.per_row(_softmax_of_margins, (self.logits.n_classes,))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the margins under the row's own probabilities, (n,) each."""
        out = margin_moments(self.logits, self)
        return out[:, 0], out[:, 1]

    def per_row(
        self, of_margins: Callable[[FloatArray], FloatArray], shape: tuple[int, ...] = ()
    ) -> FloatArray:
        """What a function makes of the margins of every row, (n, *shape)."""
        out = np.empty((self.logits.n_rows, *shape))

        def work(rows: slice) -> None:
            out[rows] = of_margins(self.margins(rows))

        for_row_blocks(work, self.logits.n_rows, rows_per_block(self.logits.n_classes))
        return out


@singledispatch
def log_norms(logits: Logits, scaled: ScaledLogits) -> FloatArray:
    """log sum_i exp(-margin_i) of scaled logits, (n,)."""
    return scaled.per_row(lambda margins: np.log(np.exp(-margins).sum(axis=1)))


@singledispatch
def margin_moments(logits: Logits, scaled: ScaledLogits) -> FloatArray:
    """Mean and variance of scaled margins under their own probabilities, (n, 2)."""
    return scaled.per_row(_moments_of_margins, (2,))


class Recursion:
    """The steps on a validation set, and what they recorded."""

    def __init__(
        self,
        logits: Logits,
        views: list[Logits],
        labels: IntArray,
        weights: FloatArray,
        n_bins: int,
    ) -> None:
        self.current = ScaledLogits.start(logits)
        self.others = [ScaledLogits.start(view) for view in views]
        self.labels, self.weights, self.n_bins = labels, weights, n_bins
        self.correct = logits.labels == labels
        self.transformations: list[int] = []
        self.temperatures: list[FloatArray] = []
        self.ece = [float(self._ece_of(self.current)[0])]

    def run(self, picks: IntArray, tolerance: float, stop_when_worse: bool) -> Ending:
        """Take steps until one of the endings."""
        failed: set[int] = set()  # on the present confidences
        for chosen in picks.tolist():
            worse = chosen in failed or not self._step(chosen)
            if worse:
                failed.add(chosen)
                self._record(chosen, np.ones(N_GROUPS))
                if len(failed) == len(self.others):
                    return "exhausted"
            else:
                failed.clear()
            if abs(self.ece[-1] - self.ece[-2]) < tolerance and (stop_when_worse or not worse):
                return "converged"
        return "limit"

    def _step(self, chosen: int) -> bool:
        """One step with a transformation; False, and nothing done, if it made the ECE worse."""
        before, other = self.current, self.others[chosen]
        group = reaction_groups(before, other)
        temperatures = self._shrunk(_fit_groups(before, group, self.labels, self.weights), group)
        after = before.times(temperatures[group])
        whole, by_group = self._ece_of(before, group)
        new_whole, new_by_group = self._ece_of(after, group)
        if new_whole > whole + _ROUNDING:
            return False
        worse = new_by_group > by_group + _ROUNDING
        temperatures[worse] = 1.0
        self.current = before.times(temperatures[group]) if worse.any() else after
        self.others[chosen] = other.times(temperatures[group])
        self._record(chosen, temperatures)
        return True

    def _record(self, chosen: int, temperatures: FloatArray) -> None:
        self.transformations.append(chosen)
        self.temperatures.append(temperatures)
        self.ece.append(float(self._ece_of(self.current)[0]))

    def _shrunk(self, temperatures: FloatArray, group: IntArray) -> FloatArray:
        """Towards 1 by the groups' shares of the weight."""
        share = sum_by(group, self.weights, N_GROUPS) / self.weights.sum()
        return np.asarray(1.0 - share + share * temperatures)

    def _ece_of(
        self, scaled: ScaledLogits, group: IntArray | None = None
    ) -> tuple[np.float64, FloatArray]:
        """Expected calibration error of all rows, and of each group by itself, (groups,)."""
        group = np.zeros(self.labels.size, np.int64) if group is None else group
        confidence = scaled.confidence
        cell = group * self.n_bins + bin_index(confidence, self.n_bins)
        gap = sum_by(cell, self.weights * (confidence - self.correct), N_GROUPS * self.n_bins)
        gap = gap.reshape(N_GROUPS, self.n_bins)
        weight = np.maximum(sum_by(group, self.weights, N_GROUPS), np.finfo(np.float64).tiny)
        whole = np.abs(gap.sum(axis=0)).sum() / self.weights.sum()
        return whole, np.abs(gap).sum(axis=1) / weight


def reaction_groups(current: ScaledLogits, other: ScaledLogits) -> IntArray:
    """0: another label, risen; 1: another, not risen; 2: the same, risen; 3: the same, not."""
    labels = current.logits.labels
    kept = other.logits.labels == labels
    after = np.exp(-other.margin_of(labels) - other.log_norm)
    risen = after > current.confidence * (1.0 + SAME)
    return np.asarray(2 * kept + ~risen, np.int64)


def _fit_groups(
    scaled: ScaledLogits, group: IntArray, labels: IntArray, weights: FloatArray
) -> FloatArray:
    """The temperature of least log loss for each group, (4,); 1 where there is nothing to learn.

    At the solution the mean margin of the true class equals the mean margin that the
    probabilities expect, and the expected one falls as the temperature rises. Newton's method
    runs on the log of both against log temperature, for all groups at once, inside a bracket that
    every evaluation narrows.
    """
    clamped = scaled.clamped()
    margin = clamped.margin_of(labels)
    counts = np.where(margin < np.inf, weights, 0.0)
    observed = sum_by(group, counts * np.minimum(margin, FAR), N_GROUPS)
    at, done = np.zeros(N_GROUPS), np.zeros(N_GROUPS, np.bool_)
    low, high = np.full(N_GROUPS, -np.inf), np.full(N_GROUPS, np.inf)
    for _ in range(_MOST_PASSES):
        mean, variance = clamped.stretched(np.exp(at)[group]).moments()
        expected = sum_by(group, counts * mean, N_GROUPS)
        step = _newton_steps(
            observed * np.exp(at), expected, sum_by(group, counts * variance, N_GROUPS)
        )
        done |= (np.abs(step) <= _STEP_TOLERANCE) | (at == np.log(_BOUNDS)[(step > 0.0) * 1])
        if done.all():
            break
        low, high = np.where(step > 0.0, at, low), np.where(step > 0.0, high, at)
        at = np.where(done, at, _inside(at + step, low, high))
    return np.exp(at)


def _newton_steps(observed: FloatArray, expected: FloatArray, spread: FloatArray) -> FloatArray:
    """Steps in log temperature, (groups,), up to `_LONGEST_STEP`; 0 where nothing is uncertain."""
    step = np.where(observed > 0.0, -_LONGEST_STEP, 0.0)  # all on the top class: too sharp
    step[(observed == 0.0) & (expected > 0.0)] = _LONGEST_STEP  # no mistakes
    sound = (observed > 0.0) & (expected > 0.0) & (spread > 0.0)
    step[sound] = np.log(expected[sound] / observed[sound]) * (expected[sound] / spread[sound])
    return np.asarray(np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))


def _inside(target: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The target within the bounds on temperatures, or the bracket's middle if it left that."""
    target = np.clip(target, *np.log(_BOUNDS))
    left = ~((low < target) & (target < high))
    target[left] = 0.5 * (low[left] + high[left])
    return target


def _softmax_of_margins(margins: FloatArray) -> FloatArray:
    weights = np.exp(-margins)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _moments_of_margins(margins: FloatArray) -> FloatArray:
    """Mean and variance of the margins of each row, (rows, 2)."""
    proba = _softmax_of_margins(margins)
    mean = np.sum(proba * margins, axis=1)
    margins -= mean[:, None]
    return np.stack([mean, np.sum(proba * margins**2, axis=1)], axis=1)
