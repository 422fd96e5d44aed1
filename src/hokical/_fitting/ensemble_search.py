"""The search for the temperature and the weights of ensemble temperature scaling.

The loss has several valleys in the temperature: a few hopeless examples, say, draw it up when it
stands alone, though the uniform part would deal with them better. They are looked for on some of
the examples, and the best are followed to the bottom on all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hokical._core.types import FloatArray
from hokical._fitting.descent import Point, descend
from hokical._fitting.ensemble import JointModel, Loss, mixture_loss
from hokical._fitting.likelihood import WeightedExamples, typical_spread
from hokical._fitting.simplex import GAIN, WEIGHT_STEPS, best_weights
from hokical._fitting.solution import Solution
from hokical._fitting.temperature import best_temperature

#: A search for where the search proper starts is over when its next step promises less than this.
_ROUGH_GAIN = 1e-8
_LONGEST_STEP = 1.0
#: Where valleys are looked for: log of the typical margin divided by the temperature, from where
#: the softmax is all but uniform to where it is all but one-hot, in so many steps.
_FLAT, _SHARP, _GRID = math.log(0.02), math.log(200.0), 11
#: And at these log(1/T), around the plain softmax.
_NEAR_PLAIN = (-0.4, -0.15, 0.15, 0.4)
#: How many valleys are tried at most, and how much worse than the best on some of the examples
#: they may be.
_VALLEYS, _DOUBT = 3, 5e-3
#: A start this close to an answer, in log temperature, leads to it.
_SAME_VALLEY = 0.1
#: Weights of temperature scaling alone.
_ALONE = np.array([1.0, 0.0, 0.0])


def fit_ensemble(
    examples: WeightedExamples, loss: Loss, bounds: tuple[float, float], max_iter: int
) -> Solution[float]:
    """The best temperature, with the weights (3,) as its `point`.

    Downhill from the best temperature alone, as the authors have it, and from every valley.
    """
    coarse = examples.coarse()
    if coarse is not None and coarse.mean_true_margin == 0.0:
        coarse = None
    some = examples if coarse is None else coarse
    plain = best_temperature(some, bounds=bounds)
    profile = _Profile(examples, loss, bounds, max_iter)
    if examples.mean_true_margin == 0.0:  # plain temperature scaling at its bound is best
        value = mixture_loss(examples, loss, 1.0 / plain.x)(_ALONE).value
        return replace(plain, value=value, point=_ALONE.copy())
    rough = _Profile(some, loss, bounds, WEIGHT_STEPS, gain=_ROUGH_GAIN)
    start = descend(rough.point_alone, plain.x, bounds, WEIGHT_STEPS).x
    found = profile.fit(descend(profile.point_alone, start, bounds, max_iter).x)
    grid = _grid(examples, bounds)
    if coarse is None:
        found = profile.best_of(found, _valleys(rough, grid, math.inf))
    else:
        scan = _Profile(coarse.every(2), loss, bounds, WEIGHT_STEPS, gain=_ROUGH_GAIN)
        found = profile.best_of(found, _valleys(scan, grid, _DOUBT))
        if found.point[0] == 0.0:
            # No temperature gained anything; that no other would is only known for some examples.
            found = profile.best_of(found, _valleys(profile, grid, math.inf))
    return replace(found, n_iter=profile.n_passes)


def _grid(examples: WeightedExamples, bounds: tuple[float, float]) -> list[float]:
    """Values of log(1/temperature), ascending, from softmaxes that are flat to ones that are sharp.

    Some lie around the plain softmax, where a mixture of both acts like a temperature in between.
    """
    spread = math.log(typical_spread(examples))
    steps = np.linspace(_FLAT - spread, _SHARP - spread, _GRID).tolist()
    low, high = -math.log(bounds[1]), -math.log(bounds[0])
    return sorted({min(max(at, low), high) for at in [*steps, *_NEAR_PLAIN]})


def _valleys(profile: _Profile, grid: list[float], doubt: float) -> list[float]:
    """Temperatures of the grid to start at: next to each minimum, the best few, the best first.

    The slopes tell where a minimum lies between two points; they are 0 where no temperature has a
    weight.
    """
    points = [profile.point(at) for at in grid]
    low = [points[0]] if points[0].slope > 0.0 else []
    high = [points[-1]] if points[-1].slope < 0.0 else []
    between = [
        min(left, right, key=lambda point: point.value)
        for left, right in pairwise(points)
        if left.slope <= 0.0 <= right.slope and left.slope < right.slope
    ]
    ranked = sorted([*low, *between, *high], key=lambda point: point.value)
    best = [point for point in ranked[:_VALLEYS] if point.value <= ranked[0].value + doubt]
    return [math.exp(-point.at) for point in best]


class _Profile:
    """The loss at the best weights as a function of s = log(1/temperature).

    By the envelope theorem its slope is the loss's own partial derivative by s; its curvature
    takes into account how the weights follow, within the face of the simplex they lie on.
    """

    def __init__(
        self,
        examples: WeightedExamples,
        loss: Loss,
        bounds: tuple[float, float],
        max_iter: int,
        *,
        gain: float = GAIN,
    ) -> None:
        self.examples, self.loss, self.gain = examples, loss, gain
        self.bounds, self.max_iter = bounds, max_iter
        self.weights = _ALONE  # the latest best ones, and how they go on with s
        self.drift = np.zeros(3)
        self.n_passes = 0
        self._latest: tuple[float, Callable[[FloatArray], JointModel]] | None = None

    def point(self, log_beta: float) -> Point:
        """The loss at the best weights."""
        loss = self._loss_at(log_beta)
        self.weights = best_weights(loss, self.weights, gain=self.gain)
        here = loss(self.weights)
        self.drift = _weights_drift(here, self.weights)
        curvature = here.curvature + float(here.mixed @ self.drift)
        return _newton_point(log_beta, here, curvature, self.gain)

    def point_alone(self, log_beta: float) -> Point:
        """The loss without a mixture: all weight on the scaled softmax."""
        here = self._loss_at(log_beta)(_ALONE)
        return _newton_point(log_beta, here, here.curvature, _ROUGH_GAIN)

    def fit(self, start: float) -> Solution[float]:
        """Downhill from a temperature, with the weights following."""
        found = descend(self.point, start, self.bounds, self.max_iter)
        if not found.converged:
            self.point(found.point.at)  # the weights there, as other points may have followed
        # The last step is too short to need another look, so the weights go with it unseen.
        last = found.point.step if found.converged else 0.0
        weights = np.maximum(self.weights + last * self.drift, 0.0)
        temperature = min(max(math.exp(-found.point.at - last), self.bounds[0]), self.bounds[1])
        return replace(found, x=temperature, point=weights / weights.sum())

    def best_of(self, found: Solution[float], starts: list[float]) -> Solution[float]:
        """The best of a fit and those from other temperatures."""
        for start in starts:
            if abs(math.log(start / found.x)) > _SAME_VALLEY or found.point[0] == 0.0:
                other = self.fit(start)
                found = other if other.value < found.value else found
        return found

    def _loss_at(self, log_beta: float) -> Callable[[FloatArray], JointModel]:
        """The loss at a temperature; the last one is kept, as the second search starts there."""
        if self._latest is None or self._latest[0] != log_beta:
            self.n_passes += 1
            beta = math.exp(log_beta)
            self._latest = (log_beta, mixture_loss(self.examples, self.loss, beta))
        return self._latest[1]


def _newton_point(log_beta: float, here: JointModel, curvature: float, gain: float) -> Point:
    if here.slope == 0.0:  # as where the temperature has no weight
        return Point(log_beta, here.value, 0.0, curvature, 0.0, True)
    step = -here.slope / curvature if curvature > 0.0 else -math.copysign(1.0, here.slope)
    step = min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
    done = abs(here.slope * step) <= gain
    return Point(log_beta, here.value, here.slope, curvature, step, done)


def _weights_drift(here: JointModel, weights: FloatArray) -> FloatArray:
    """dw/ds of the best weights, (3,), as long as they stay on the face they lie on."""
    active = np.flatnonzero(weights > 0.0)
    # Directions within the face: every other active weight against the first one.
    along = np.zeros((3, active.size - 1))
    along[active[0]] = -1.0
    along[active[1:], np.arange(active.size - 1)] = 1.0
    hessian = along.T @ here.hessian @ along
    return np.asarray(-along @ np.linalg.lstsq(hessian, along.T @ here.mixed, rcond=1e-12)[0])
