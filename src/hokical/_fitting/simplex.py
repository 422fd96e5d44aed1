"""The best weights of a mixture of three parts: convex losses on the simplex."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hokical._core.types import FloatArray

#: A search is over when its next step promises less than this. Newton squares what is left.
GAIN = 1e-13
#: More solver steps than the convex problem in three weights ever takes.
WEIGHT_STEPS = 50


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """A convex loss around weights (3,)."""

    value: float
    gradient: FloatArray  # (3,)
    hessian: FloatArray  # (3, 3)


#: A convex loss of the weights of a mixture.
MixtureLoss = Callable[[FloatArray], QuadraticModel]


@dataclass(frozen=True, eq=False)
class AverageLoss:
    """Mean log loss of an average: each part's probability of the truth (n, 3), weights (n,)."""

    chances: FloatArray
    counts: FloatArray

    def __call__(self, weights: FloatArray) -> QuadraticModel:
        mixed = self.chances @ weights
        relative = self.chances / mixed[:, None]
        counted = relative * self.counts[:, None]
        value = -float(np.sum(self.counts * np.log(mixed)))
        return QuadraticModel(value, -counted.sum(axis=0), counted.T @ relative)


def best_weights(loss: MixtureLoss, start: FloatArray, *, gain: float = GAIN) -> FloatArray:
    """The weights of least loss at one temperature: Newton steps on the simplex.

    They start inside: where a weight is 0 and all else fails an example, the log loss is so steep
    that Newton's method only doubles the weight in a step.
    """
    weights = 0.9 * start + 0.1 / 3.0
    here = loss(weights)
    for _ in range(WEIGHT_STEPS):
        target = least_on_simplex(here.gradient - here.hessian @ weights, here.hessian)
        step = target - weights
        promise = -float(here.gradient @ step)
        if promise <= gain:
            return target
        length = 1.0
        trial = loss(target)
        while trial.value > here.value - 1e-4 * length * promise and length > 1e-9:
            length *= 0.5
            trial = loss(weights + length * step)
        weights, here = (target if length == 1.0 else weights + length * step), trial
    return weights


def least_on_simplex(linear: FloatArray, hessian: FloatArray) -> FloatArray:
    """The w >= 0 with sum 1 that minimises linear'w + w'hessian w/2, (3,): every face is tried.

    In plain floats, as arrays of three would take longer than a pass over the examples.
    """
    h: list[list[float]] = hessian.tolist()
    tilt: list[float] = linear.tolist()
    candidates = [_least_on_edge(tilt, h, i, j) for i, j in ((0, 1), (0, 2), (1, 2))]
    inside = _least_inside(tilt, h)
    if inside is not None:
        candidates.append(inside)

    def value(w: list[float]) -> float:
        half_slope = [tilt[i] + 0.5 * sum(h[i][j] * w[j] for j in range(3)) for i in range(3)]
        return sum(half_slope[i] * w[i] for i in range(3))

    return np.array(min(candidates, key=value))


def _least_on_edge(tilt: list[float], h: list[list[float]], i: int, j: int) -> list[float]:
    """The best mixture of two parts, either of which may get nothing."""
    bend = h[i][i] + h[j][j] - 2.0 * h[i][j]
    slope = tilt[i] - tilt[j] + h[i][j] - h[j][j]
    share = min(max(-slope / bend, 0.0), 1.0) if bend > 0.0 else float(slope < 0.0)
    weights = [0.0, 0.0, 0.0]
    weights[i], weights[j] = share, 1.0 - share
    return weights


def _least_inside(tilt: list[float], h: list[list[float]]) -> list[float] | None:
    """The best mixture of all three if each gets something. The third is 1 less the others."""
    a = h[0][0] + h[2][2] - 2.0 * h[0][2]
    b = h[1][1] + h[2][2] - 2.0 * h[1][2]
    c = h[0][1] + h[2][2] - h[0][2] - h[1][2]
    p = tilt[2] - tilt[0] + h[2][2] - h[0][2]
    q = tilt[2] - tilt[1] + h[2][2] - h[1][2]
    determinant = a * b - c * c
    if determinant <= 1e-14 * a * b:  # two parts are the same: an edge does as well
        return None
    first, second = (b * p - c * q) / determinant, (a * q - c * p) / determinant
    weights = [first, second, 1.0 - first - second]
    return weights if min(weights) > 0.0 else None
