"""Is a number of right predictions what their probabilities predict? Tests of sums of events.

Without weights the distribution of the sum is exact. A weighted sum is tested by Lugannani and
Rice's saddlepoint approximation with a correction for its steps, which is conservative for few
rows: in simulations of 3 to 3000 rows a test had at most its level of false alarms.
"""

import math

import numpy as np

from hokical._core.types import BoolArray, FloatArray

#: More events than this are merged if their probabilities agree to 1/256.
_EVENTS, _PROBABILITIES = 1024, 256
#: p-values below this are rounding.
LEAST_P = 1e-10


def sum_distribution(probabilities: FloatArray) -> tuple[int, FloatArray]:
    """Of the number of independent events that happen: k, and P(number = k + 0, 1, ...).

    Of up to 1024 events by adding one after the other. Of more, those whose probabilities agree to
    1/256 have their mean, which can only widen the distribution (Hoeffding, 1956,
    doi:10.1214/aoms/1177728178), by about 1e-5; all numbers that are left out are together as
    likely as rounding, 1e-10.

    >>> sum_distribution(np.array([0.5, 0.5]))
    (0, array([0.25, 0.5 , 0.25]))
    """
    if probabilities.size > _EVENTS:
        return _sum_many(probabilities)
    found = np.zeros(probabilities.size + 1)
    found[0] = 1.0
    for k, p in enumerate(probabilities.tolist()):
        happened = p * found[: k + 1]
        found[: k + 1] *= 1.0 - p
        found[1 : k + 2] += happened
    return 0, found


def _sum_many(probabilities: FloatArray) -> tuple[int, FloatArray]:
    """The distribution of merged events, from its characteristic function."""
    place = np.minimum((probabilities * _PROBABILITIES).astype(np.int64), _PROBABILITIES - 1)
    counts = np.bincount(place, minlength=_PROBABILITIES).astype(np.float64)
    sums, kept = np.bincount(place, probabilities, _PROBABILITIES), counts > 0
    p, counts = np.clip(sums[kept] / counts[kept], 0.0, 1.0), counts[kept]
    spread = math.sqrt(float(counts @ (p * (1.0 - p))))
    width = 1 << math.ceil(math.log2(24.0 * spread + 64.0))  # beyond which nothing matters
    first = math.floor(float(counts @ p)) - width // 2
    angle = 2.0 * np.pi / width * np.arange(width // 2 + 1)
    log_size, turn = np.zeros(angle.size), first * angle
    for one, count in zip(p.tolist(), counts.tolist(), strict=True):
        factor = 1.0 + one * (np.exp(-1j * angle) - 1.0)
        with np.errstate(divide="ignore"):  # a factor can be 0, and the product then is
            log_size += count * np.log(np.abs(factor))
        turn += count * np.angle(factor)
    return first, np.clip(np.fft.irfft(np.exp(log_size + 1j * turn), width), 0.0, 1.0)


def sum_p_value(p: FloatArray, correct: BoolArray, weight: FloatArray | None) -> float:
    """Two-sided p-value of the (weighted) number of events, if their probabilities are `p` (n,)."""
    if weight is not None:
        return _weighted_p_value(p, correct, weight / weight.max())
    first, found = sum_distribution(p)
    place = min(max(int(correct.sum()) - first, 0), found.size - 1)
    tail = min(float(found[: place + 1].sum()), float(found[place:].sum()))
    return min(max(2.0 * tail, LEAST_P), 1.0)


def _weighted_p_value(p: FloatArray, correct: BoolArray, weight: FloatArray) -> float:
    """The same with weights, by Lugannani and Rice (1980, doi:10.2307/1426607).

    The sum is moved towards its mean by half the weight of a typical event, as for a lattice.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import ndtr

    unsure, sign = p * (1.0 - p), math.copysign(1.0, float(weight @ (correct - p)))
    if (correct != p)[unsure == 0.0].any():  # a certainty was wrong
        return LEAST_P
    variance, turned = float(weight**2 @ unsure), sign * weight
    half = 0.5 * variance / float(weight @ unsure) if variance > 0.0 else 0.0
    size = float(turned @ (correct - p)) - half
    if size <= 0.1 * math.sqrt(variance):  # where the formula has no digits, and nothing is found
        return 1.0
    with np.errstate(divide="ignore"):  # of a certainty
        log_p, log_q = np.log(p), np.log1p(-p)

    def exponent(t: float) -> float:
        return float(np.logaddexp(log_q, log_p + t * turned).sum() - t * (turned @ p)) - t * size

    found = minimize_scalar(exponent, bounds=(0.0, 64.0), options={"xatol": 1e-9})
    t, r = float(found.x), math.sqrt(max(-2.0 * found.fun, 1e-12))
    tilted = p / (p + (1.0 - p) * np.exp(-t * turned))
    u = t * math.sqrt(float(weight**2 @ (tilted * (1.0 - tilted))))
    density = math.exp(-0.5 * r * r) / math.sqrt(2.0 * math.pi)
    return min(max(2.0 * (float(ndtr(-r)) + density * (1.0 / u - 1.0 / r)), LEAST_P), 1.0)


def mean_p_values(n: FloatArray, predicted: FloatArray, observed: FloatArray) -> FloatArray:
    """Upper bounds of p-values from means alone: Chernoff's bound, for rows of any probabilities.

    (Hoeffding, 1963, doi:10.1080/01621459.1963.10500830.)
    """
    from scipy.special import rel_entr

    distance = rel_entr(observed, predicted) + rel_entr(1.0 - observed, 1.0 - predicted)
    return np.asarray(np.minimum(1.0, 2.0 * np.exp(-n * distance)))


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values, in the given order; NaN stays and does not count.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    adjusted = np.full(p_values.shape, np.nan)
    order = np.argsort(p_values)[: int((~np.isnan(p_values)).sum())]
    factors = np.arange(order.shape[0], 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted
