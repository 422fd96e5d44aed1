"""Ensemble temperature scaling: a mixture of three softmaxes (Zhang et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._ensemble import Mixture, Quadratic, Slice, uniform_part
from hokical.calibrators._log_loss import LogLossCalibrator
from hokical.calibrators._newton import Point, descend
from hokical.calibrators._simplex import GAIN, WEIGHT_STEPS, best_weights
from hokical.calibrators.temps import (
    BOUNDS,
    best_temperature,
    check_bounds,
    ending_message,
    settle_ties,
)
from hokical.likelihood import ExampleSet, typical_spread
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks
from hokical.stability import gumbel
from hokical.stability.bounds import gumbel_bounds
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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


class EnsembleTemperatureScaling(LogLossCalibrator):
    """Mix the softmax at a temperature, the softmax as it is, and the uniform distribution.

    p = w_1 softmax(z/T) + w_2 softmax(z) + w_3 uniform, with weights that are not negative and
    sum to 1. The order of the classes stays what it was. The uniform part goes to the possible
    classes alone (logit above -inf).

    Zhang et al. fit T first, as if it stood alone, and then the weights; here all are fitted
    together, so the loss on the validation set is at most theirs.

    Parameters
    ----------
    loss : {"mse", "log"}
        What to minimise: the squared distance to the one-hot truth, which the authors use, or the
        log loss.
    bounds : (float, float)
        Smallest and largest temperature allowed, as in `TemperatureScaling`.
    max_iterations : int
        Most steps of a search for the temperature, of which there are up to eight: one for the
        temperature alone, and one from each start.

    Attributes
    ----------
    temperature_ : T; without meaning where its weight is 0
    weights_ : (3,), of the scaled softmax, the plain softmax and the uniform distribution
    loss_ : the mean loss on the validation set: log loss in nats, or the Brier score summed over
        classes
    n_iterations_ : passes over the validation set, in all searches
    converged_, message_ : how the search that found the answer ended

    Notes
    -----
    The loss has several valleys in T. They are looked for at about 34 temperatures, from where the
    softmax is all but uniform to where it is all but one-hot, on 500 or more evenly spaced
    examples (on all if there are few, or if no temperature gets a weight), and the best three are
    followed to the bottom on all examples. A valley narrower than that grid, or seen only on
    examples left out, can still be missed.

    Memory beyond the input: blocks of 2 MB float64, about 8 MB per thread, and for less than a
    million logits all margins and exponentials in float64 (up to 16 MB); and some 20 float64 per
    example. That is several copies of an input of a few MB, and a small part of a large one.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.ets import EnsembleTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(20000, 4))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> guess = rng.random(20000) < 0.2
    >>> labels[guess] = rng.integers(4, size=guess.sum())
    >>> cal = EnsembleTemperatureScaling().fit(2 * logits, labels)
    >>> round(cal.temperature_), round(float(cal.weights_[2]), 1)
    (2, 0.2)
    """

    name = "ets"
    reference = (
        "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
        "Calibration in Deep Learning, 2020"
    )
    cost = "about twelve softmax passes, or forty where the temperature gets no weight"
    accepts_top_k = True

    def __init__(
        self,
        *,
        loss: Literal["mse", "log"] = "mse",
        bounds: tuple[float, float] = BOUNDS,
        max_iterations: int = 100,
    ) -> None:
        self.loss = loss
        self.bounds = bounds
        self.max_iterations = max_iterations

    def _check_parameters(self) -> None:
        if self.loss not in ("mse", "log"):
            raise ValueError(f'`loss` must be "mse" or "log"; got {self.loss!r}.')
        check_bounds(self.bounds)
        check_count(self.max_iterations, name="max_iterations")

    def _fit_examples(self, examples: ExampleSet) -> None:
        bounds = check_bounds(self.bounds)
        self._keep(_fit_ensemble(examples, self.loss, bounds, self.max_iterations))
        if not self.converged_:
            warn_user(
                f"EnsembleTemperatureScaling did not converge: {self.message_}",
                ConvergenceWarning,
            )

    def _keep(self, found: EnsembleFit) -> None:
        self.temperature_ = found.temperature
        self.weights_ = found.weights
        self.loss_ = found.loss
        self.n_iterations_ = found.n_iterations
        self.converged_ = found.converged
        self.message_ = found.message

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)
        uniform = uniform_part(logits)

        def work(rows: slice) -> None:
            out[rows] = self._mix(logits.margins(rows), uniform[rows, None])

        for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
        return settle_ties(out, logits.labels)

    def _confidence(self, logits: Logits) -> FloatArray:
        scaled, plain, uniform = self.weights_
        return np.asarray(
            scaled * gumbel.stability(logits, self.temperature_)
            + plain * gumbel.stability(logits, 1.0)
            + uniform * uniform_part(logits)
        )

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        scaled, plain, uniform = self.weights_
        at_temperature = gumbel_bounds(logits, self.temperature_)
        flat = uniform * uniform_part(logits)
        lower, upper = (
            scaled * one + plain * other + flat
            for one, other in zip(at_temperature, gumbel_bounds(logits, 1.0), strict=True)
        )
        return lower, upper

    def _mix(self, margins: FloatArray, uniform: FloatArray) -> FloatArray:
        """Probabilities (rows, classes) from margins."""
        scaled = np.exp(margins / -self.temperature_)
        scaled *= self.weights_[0] / scaled.sum(axis=1, keepdims=True)
        plain = np.exp(-margins)
        plain *= self.weights_[1] / plain.sum(axis=1, keepdims=True)
        scaled += plain
        scaled += np.where(margins < np.inf, self.weights_[2] * uniform, 0.0)
        return scaled

    def _state(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature_,
            "weights": self.weights_,
            "loss": self.loss_,
            "n_iterations": self.n_iterations_,
            "converged": self.converged_,
            "message": self.message_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        found = EnsembleFit(**state)
        weights = np.asarray(found.weights)
        usable = weights.shape == (3,) and weights.min() >= 0.0 and abs(weights.sum() - 1) < 1e-9
        if not (usable and 0.0 < found.temperature < math.inf):
            raise ValueError("temperature and three weights that sum to 1 are needed")
        self._keep(found)


@dataclass(frozen=True, eq=False)
class EnsembleFit:
    """A fitted temperature, the weights (3,), their loss, and how the search ended."""

    temperature: float
    weights: FloatArray
    loss: float
    n_iterations: int
    converged: bool
    message: str


def _fit_ensemble(
    examples: ExampleSet, loss: str, bounds: tuple[float, float], max_iterations: int
) -> EnsembleFit:
    """Downhill from the best temperature alone, as the authors have it, and from every valley.

    The loss has several valleys: a few hopeless examples, say, draw the temperature up when it
    stands alone, though the uniform part would deal with them better. They are looked for on some
    of the examples.
    """
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
    alone = descend(profile.point_alone, start, ends, max_iterations)
    found = profile.fit(alone.point.at, bounds, max_iterations)
    doubt = math.inf if coarse is None else _DOUBT
    scan = rough if coarse is None else _Profile(Mixture(coarse.every(2)), loss, gain=_ROUGH_GAIN)
    found = _best_of(profile, found, _valleys(scan, grid, doubt), bounds, max_iterations)
    if found.weights[0] == 0.0 and coarse is not None:
        # No temperature gained anything; that no other would is only known for some examples.
        found = _best_of(profile, found, _valleys(profile, grid, math.inf), bounds, max_iterations)
    return replace(found, n_iterations=profile.n_passes)


def _best_of(
    profile: _Profile,
    found: EnsembleFit,
    starts: list[float],
    bounds: tuple[float, float],
    max_iterations: int,
) -> EnsembleFit:
    """The best of a fit and those from other starts, as log(1/temperature)."""
    for start in starts:
        if abs(start + math.log(found.temperature)) > _SAME_VALLEY or found.weights[0] == 0.0:
            other = profile.fit(start, bounds, max_iterations)
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

    def fit(self, start: float, bounds: tuple[float, float], max_iterations: int) -> EnsembleFit:
        """Downhill from a temperature, with the weights following."""
        ends = (-math.log(bounds[1]), -math.log(bounds[0]))
        found = descend(self.point, start, ends, max_iterations)
        converged = found.ending == "converged"
        message = "converged" if converged else ending_message(found.ending, bounds, max_iterations)
        if not converged:
            self.point(found.point.at)  # the weights there, as other points may have followed
        # The last step is too short to need another look, so the weights go with it unseen.
        last = found.point.step if converged else 0.0
        weights = np.maximum(self.weights + last * self.drift, 0.0)
        return EnsembleFit(
            min(max(math.exp(-found.point.at - last), bounds[0]), bounds[1]),
            weights / weights.sum(),
            found.point.value,
            found.n_iterations,
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
