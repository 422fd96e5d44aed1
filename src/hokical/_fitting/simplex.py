"""The best weights of an average of a few predictions: convex losses on the simplex."""

from itertools import combinations

import numpy as np

from hokical._core.types import FloatArray

#: A search is over when its next step promises less than this. Newton squares what is left.
_GAIN = 1e-13
#: More steps than the convex problem ever takes.
_MAX_STEPS = 50


def least_log_loss(proba: FloatArray, share: FloatArray) -> FloatArray:
    """The weights (k,) of the average of least log loss, by Newton steps on the simplex.

    `proba` (n, k) are the probabilities of the true classes by each part; `share` (n,) sums to 1.
    The steps start inside: where a weight is 0 and all else fails an example, the log loss is so
    steep that Newton's method only doubles the weight in a step.
    """
    weights = np.full(proba.shape[1], 1.0 / proba.shape[1])

    def loss(weights: FloatArray) -> float:
        return -float(share @ np.log(proba @ weights))

    value = loss(weights)
    for _ in range(_MAX_STEPS):
        relative = proba / (proba @ weights)[:, None]
        weighted = relative * share[:, None]
        gradient, hessian = -weighted.sum(axis=0), weighted.T @ relative
        target = least_quadratic(gradient - hessian @ weights, hessian)
        step = target - weights
        promise = -float(gradient @ step)
        if promise <= _GAIN:
            return target
        length = 1.0
        with np.errstate(divide="ignore"):
            while loss(weights + length * step) > value - 1e-4 * length * promise:
                length *= 0.5
                if length < 1e-9:
                    break
        weights = target if length == 1.0 else weights + length * step
        value = loss(weights)
    return weights


def least_quadratic(linear: FloatArray, hessian: FloatArray) -> FloatArray:
    """The w >= 0 (k,) with sum 1 that minimises linear'w + w'hessian w/2: every face is tried."""
    size = linear.size
    best, least = np.zeros(size), np.inf
    for n_parts in range(1, size + 1):
        for face in map(list, combinations(range(size), n_parts)):
            system = np.ones((n_parts + 1, n_parts + 1))
            system[:-1, :-1], system[-1, -1] = hessian[np.ix_(face, face)], 0.0
            found = np.linalg.lstsq(system, np.append(-linear[face], 1.0), rcond=1e-14)[0][:-1]
            if (found < 0.0).any():
                continue
            weights = np.zeros(size)
            weights[face] = found / found.sum()
            value = float(linear @ weights + 0.5 * weights @ hessian @ weights)
            if value < least:
                best, least = weights, value
    return best
