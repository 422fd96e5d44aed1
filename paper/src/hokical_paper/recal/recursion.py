"""The recursion behind ReCal: four groups of examples, a temperature each, step after
step.

What sums over classes is computed where the logits are (`ScaledLogits`); of every row a
few numbers come to the host, where the groups are summed up.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators import Examples
from hokical_paper.core import MAX_MARGIN, bin_index, sum_by
from hokical_paper.recal.rule import (
    N_GROUPS,
    TEMPERATURES,
    ScaledLogits,
    reaction_groups,
)
from hokical_paper.recal.views import Views
from hokical_paper.types import FloatArray, IntArray

RecalEnding = Literal["converged", "exhausted", "limit"]

#: Newton's method on log temperature: longest step, last step, most evaluations.
_LONGEST_STEP = 4.0
_STEP_TOLERANCE = 1e-8
_MOST_PASSES = 60
#: Differences of calibration errors that rounding can make.
_ROUNDING = 1e-12
_LOG_BOUNDS = np.log(TEMPERATURES)


class Recursion:
    """The steps on a validation set, and what they recorded."""

    def __init__(self, views: Views, examples: Examples, n_bins: int) -> None:
        self.current = ScaledLogits.start(views.original)
        self.others = [ScaledLogits.start(view) for view in views.views]
        self.labels = examples.labels
        self.weights = examples.counts
        self.n_bins = n_bins
        self.correct = examples.correct
        self.transformations: list[int] = []
        self.temperatures: list[FloatArray] = []
        self.ece = [float(self._ece_of(self.current)[0])]

    def run(self, picks: IntArray, tol: float, stop_when_worse: bool) -> RecalEnding:
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
            if abs(self.ece[-1] - self.ece[-2]) < tol and (
                stop_when_worse or not worse
            ):
                return "converged"
        return "limit"

    def _step(self, chosen: int) -> bool:
        """One step with a transformation; False, and nothing done, if it made the
        ECE worse.
        """
        before = self.current
        other = self.others[chosen]
        group = _to_host(before, reaction_groups(before, other))
        fitted = _fit_groups(before, group, self.labels, self.weights)
        share = sum_by(group, self.weights, N_GROUPS) / self.weights.sum()
        temperatures = np.asarray(
            1.0 - share + share * fitted
        )  # a small group is hardly known
        after = _apply(before, temperatures, group)
        whole, by_group = self._ece_of(before, group)
        new_whole, new_by_group = self._ece_of(after, group)
        if new_whole > whole + _ROUNDING:
            return False
        worse = new_by_group > by_group + _ROUNDING
        temperatures[worse] = 1.0
        self.current = _apply(before, temperatures, group) if worse.any() else after
        self.others[chosen] = _apply(other, temperatures, group)
        self._record(chosen, temperatures)
        return True

    def _record(self, chosen: int, temperatures: FloatArray) -> None:
        self.transformations.append(chosen)
        self.temperatures.append(temperatures)
        self.ece.append(float(self._ece_of(self.current)[0]))

    def _ece_of(
        self, scaled: ScaledLogits, group: IntArray | None = None
    ) -> tuple[np.float64, FloatArray]:
        """Expected calibration error of all rows, and of each group by itself,
        (groups,).
        """
        group = np.zeros(self.labels.size, np.int64) if group is None else group
        confidence = _to_host(scaled, scaled.confidence)
        cell = group * self.n_bins + bin_index(confidence, self.n_bins)
        gap = sum_by(
            cell, self.weights * (confidence - self.correct), N_GROUPS * self.n_bins
        )
        gap = gap.reshape(N_GROUPS, self.n_bins)
        weight = np.maximum(
            sum_by(group, self.weights, N_GROUPS), np.finfo(np.float64).tiny
        )
        whole = np.abs(gap.sum(axis=0)).sum() / self.weights.sum()
        return whole, np.abs(gap).sum(axis=1) / weight


def _apply(
    scaled: ScaledLogits, temperatures: FloatArray, group: IntArray
) -> ScaledLogits:
    """The logits after a step with these temperatures (4,)."""
    return scaled.times(scaled.logits.from_host(temperatures[group]))


def _to_host(scaled: ScaledLogits, array: Any) -> NDArray[Any]:
    return scaled.logits.to_host(array)


def _fit_groups(
    scaled: ScaledLogits, group: IntArray, labels: IntArray, weights: FloatArray
) -> FloatArray:
    """The temperature of least log loss for each group, (4,); 1 where there is nothing
    to learn.

    At the solution the mean margin of the true class equals the mean margin that the
    probabilities expect, and the expected one falls as the temperature rises. Newton's
    method runs on the log of both against log temperature, for all groups at once,
    inside a bracket that every evaluation narrows.
    """
    clamped = scaled.clamp()
    margin = _to_host(scaled, clamped.margin_of(scaled.logits.from_host(labels)))
    counts = np.where(
        margin < MAX_MARGIN, weights, 0.0
    )  # an impossible truth teaches nothing
    observed = sum_by(group, counts * margin, N_GROUPS)
    at = np.zeros(N_GROUPS)
    done = np.zeros(N_GROUPS, np.bool_)
    low = np.full(N_GROUPS, -np.inf)
    high = np.full(N_GROUPS, np.inf)
    for _ in range(_MOST_PASSES):
        stretched = clamped.stretch(scaled.logits.from_host(np.exp(at)[group]))
        mean, variance = (_to_host(scaled, part) for part in stretched.moments())
        expected = sum_by(group, counts * mean, N_GROUPS)
        step = _newton_steps(
            observed * np.exp(at), expected, sum_by(group, counts * variance, N_GROUPS)
        )
        done |= (np.abs(step) <= _STEP_TOLERANCE) | (
            at == _LOG_BOUNDS[(step > 0.0) * 1]
        )
        if done.all():
            break
        low = np.where(step > 0.0, at, low)
        high = np.where(step > 0.0, high, at)
        at = np.where(done, at, _inside(at + step, low, high))
    return np.exp(at)


def _newton_steps(
    observed: FloatArray, expected: FloatArray, spread: FloatArray
) -> FloatArray:
    """Steps in log temperature, (groups,), up to `_LONGEST_STEP`; 0 where nothing is
    uncertain.
    """
    step = np.where(
        observed > 0.0, -_LONGEST_STEP, 0.0
    )  # all on the top class: too sharp
    step[(observed == 0.0) & (expected > 0.0)] = _LONGEST_STEP  # no mistakes
    sound = (observed > 0.0) & (expected > 0.0) & (spread > 0.0)
    step[sound] = np.log(expected[sound] / observed[sound]) * (
        expected[sound] / spread[sound]
    )
    return np.asarray(np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))


def _inside(target: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The target within the bounds on temperatures, or the bracket's middle if it
    left that.
    """
    target = np.clip(target, *_LOG_BOUNDS)
    left = ~((low < target) & (target < high))
    target[left] = 0.5 * (low[left] + high[left])
    return target
