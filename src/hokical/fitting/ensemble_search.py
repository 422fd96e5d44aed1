"""The search for the temperature and the weights of ensemble temperature scaling.

The loss has several valleys in the temperature: a few hopeless examples, say, draw it up when it
stands alone, though the uniform part would deal with them better. They are looked for on some of
the examples, and the best are followed to the bottom on all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hokical.core.types import FloatArray
from hokical.fitting.ensemble import Mixture, Quadratic, Slice
from hokical.fitting.likelihood import ExampleSet, typical_spread
from hokical.fitting.newton import Point, descend
from hokical.fitting.simplex import GAIN, WEIGHT_STEPS, best_weights
from hokical.fitting.temperature import best_temperature, ending_message

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


@dataclass(frozen=True, eq=False)
class EnsembleFit:
    """A fitted temperature, the weights (3,), their loss, and how the search ended."""

    temperature: float
    weights: FloatArray
    loss: float
    n_iter: int
    converged: bool
    message: str


def fit_ensemble(
    examples: ExampleSet, loss: str, bounds: tuple[float, float], max_iter: int
) -> EnsembleFit:
    """Downhill from the best temperature alone, as the authors have it, and from every valley."""
    if examples.mean_true_margin == 0.0:
        return _fit_without_mistakes(examples, loss, bounds)
    ends = (-math.log(bounds[1]), -math.log(bounds[0]))
    grid = _grid(examples, ends)
    coarse = examples.coarse()
    if coarse is not None and coarse.mean_true_margin == 0.0:
        coarse = None
    some = examples if coarse is None else coarse
    rough = _Profile(Mixture(some), loss, gain=_ROUGH_GAIN)
    plain = best_temperature(some, bounds=bounds)
    start = descend(rough.point_alone, -math.log(plain.temperature), ends, WEIGHT_STEPS).point.at

    profile = _Profile(Mixture(examples), loss)
    alone = descend(profile.point_alone, start, ends, max_iter)
    found = profile.fit(alone.point.at, bounds, max_iter)
    doubt = math.inf if coarse is None else _DOUBT
    scan = rough if coarse is None else _Profile(Mixture(coarse.every(2)), loss, gain=_ROUGH_GAIN)
    found = _best_of(profile, found, _valleys(scan, grid, doubt), bounds, max_iter)
    if found.weights[0] == 0.0 and coarse is not None:
        # No temperature gained anything; that no other would is only known for some examples.
        found = _best_of(profile, found, _valleys(profile, grid, math.inf), bounds, max_iter)
    return replace(found, n_iter=profile.n_passes)


def _best_of(
    profile: _Profile,
    found: EnsembleFit,
    starts: list[float],
    bounds: tuple[float, float],
    max_iter: int,
) -> EnsembleFit:
    """The best of a fit and those from other starts, as log(1/temperature)."""
    for start in starts:
        if abs(start + math.log(found.temperature)) > _SAME_VALLEY or found.weights[0] == 0.0:
            other = profile.fit(start, bounds, max_iter)
            found = other if other.loss < found.loss else found
    return found


def _grid(examples: ExampleSet, ends: tuple[float, float]) -> list[float]:
    """Values of log(1/temperature), ascending, from softmaxes that are flat to ones that are sharp.

    Some lie around the plain softmax, where a mixture of both acts like a temperature in between.
    """
    spread = math.log(typical_spread(examples))
    steps = np.linspace(_FLAT - spread, _SHARP - spread, _GRID).tolist()
    return sorted({min(max(at, ends[0]), ends[1]) for at in [*steps, *_NEAR_PLAIN]})


def _valleys(profile: _Profile, grid: list[float], doubt: float) -> list[float]:
    """Where on the grid to start: next to each local minimum, the best few, the best first.

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
    return [point.at for point in ranked[:_VALLEYS] if point.value <= ranked[0].value + doubt]


def _fit_without_mistakes(
    examples: ExampleSet, loss: str, bounds: tuple[float, float]
) -> EnsembleFit:
    """Every label has the top logit: plain temperature scaling at its bound is best."""
    plain = best_temperature(examples, bounds=bounds)
    value = _slice(Mixture(examples), loss, 1.0 / plain.temperature).around(_ALONE).value
    return EnsembleFit(plain.temperature, _ALONE.copy(), value, 2, False, plain.message)


class _Profile:
    """The loss at the best weights as a function of s = log(1/temperature).

    By the envelope theorem its slope is the loss's own partial derivative by s; its curvature
    takes into account how the weights follow, within the face of the simplex they lie on.
    """

    def __init__(self, mixture: Mixture, loss: str, *, gain: float = GAIN) -> None:
        self.mixture = mixture
        self.gain = gain
        self.loss = loss
        self.weights = _ALONE  # the latest best ones, and how they go on with s
        self.drift = np.zeros(3)
        self.n_passes = 0
        self._latest: tuple[float, Slice] | None = None

    def point(self, log_beta: float) -> Point:
        """The loss at the best weights."""
        at = self._slice(log_beta)
        self.weights = best_weights(at, self.weights, gain=self.gain)
        here = at.around(self.weights)
        self.drift = _weights_drift(here, self.weights)
        curvature = here.curvature + float(here.mixed @ self.drift)
        return _newton_point(log_beta, here, curvature, self.gain)

    def fit(self, start: float, bounds: tuple[float, float], max_iter: int) -> EnsembleFit:
        """Downhill from a temperature, with the weights following."""
        ends = (-math.log(bounds[1]), -math.log(bounds[0]))
        found = descend(self.point, start, ends, max_iter)
        converged = found.ending == "converged"
        message = "converged" if converged else ending_message(found.ending, bounds, max_iter)
        if not converged:
            self.point(found.point.at)  # the weights there, as other points may have followed
        # The last step is too short to need another look, so the weights go with it unseen.
        last = found.point.step if converged else 0.0
        weights = np.maximum(self.weights + last * self.drift, 0.0)
        return EnsembleFit(
            min(max(math.exp(-found.point.at - last), bounds[0]), bounds[1]),
            weights / weights.sum(),
            found.point.value,
            found.n_iter,
            converged,
            message,
        )

    def point_alone(self, log_beta: float) -> Point:
        """The loss without a mixture: all weight on the scaled softmax."""
        here = self._slice(log_beta).around(_ALONE)
        return _newton_point(log_beta, here, here.curvature, _ROUGH_GAIN)

    def _slice(self, log_beta: float) -> Slice:
        """The loss at a temperature; the last one is kept, as the second search starts there."""
        if self._latest is None or self._latest[0] != log_beta:
            self.n_passes += 1
            self._latest = (log_beta, _slice(self.mixture, self.loss, math.exp(log_beta)))
        return self._latest[1]


def _newton_point(log_beta: float, here: Quadratic, curvature: float, gain: float) -> Point:
    if here.slope == 0.0:  # as where the temperature has no weight
        return Point(log_beta, here.value, 0.0, curvature, 0.0, True)
    step = -here.slope / curvature if curvature > 0.0 else -math.copysign(1.0, here.slope)
    step = min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
    done = abs(here.slope * step) <= gain
    return Point(log_beta, here.value, here.slope, curvature, step, done)


def _slice(mixture: Mixture, loss: str, beta: float) -> Slice:
    return mixture.log_slice(beta) if loss == "log" else mixture.square_slice(beta)


def _weights_drift(here: Quadratic, weights: FloatArray) -> FloatArray:
    """dw/ds of the best weights, (3,), as long as they stay on the face they lie on."""
    active = np.flatnonzero(weights > 0.0)
    # Directions within the face: every other active weight against the first one.
    along = np.zeros((3, active.size - 1))
    along[active[0]] = -1.0
    along[active[1:], np.arange(active.size - 1)] = 1.0
    hessian = along.T @ here.hessian @ along
    return np.asarray(-along @ np.linalg.lstsq(hessian, along.T @ here.mixed, rcond=1e-12)[0])
