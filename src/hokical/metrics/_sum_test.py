"""Is a number of right answers what their probabilities predict? Tests of sums of events.

Rows with weights are tested by a sum with whole weights near the given ones, whose distribution is
known exactly. So a test has at most its level of false alarms, whatever the sizes, weights and
probabilities are.
"""

import math

import numpy as np

from hokical._core.types import BoolArray, FloatArray, IntArray

#: More events than this are merged if their probabilities agree to 1/256.
_EVENTS, _PROBABILITIES = 1024, 256
#: The largest whole weight, and how many numbers a distribution may cost.
_LARGEST, _COST = 128, 1 << 24
#: Variance, in squares of the largest weight, from which the saddlepoint approximation is used.
_SADDLEPOINT = 900.0
#: p-values below this are rounding.
LEAST_P = 1e-10


def sum_distribution(probabilities: FloatArray, steps: IntArray) -> tuple[int, FloatArray]:
    """Of the sum of `steps` (n,) of independent events that happen: k, and P(sum = k + 0, 1, ...).

    Of up to 1024 events by adding one after the other. Of more, those of one step whose
    probabilities agree to 1/256 have their mean, which can only widen the distribution (Hoeffding,
    1956, doi:10.1214/aoms/1177728178), by about 1e-5; all sums that are left out are together as
    likely as rounding, 1e-10.

    >>> sum_distribution(np.array([0.5, 0.5]), np.array([1, 2]))
    (0, array([0.25, 0.25, 0.25, 0.25]))
    """
    if probabilities.size > _EVENTS:
        return _sum_many(*_merge(probabilities, steps))
    found, reached = np.zeros(int(steps.sum()) + 1), 0
    found[0] = 1.0
    for p, step in zip(probabilities.tolist(), steps.tolist(), strict=True):
        happened = p * found[: reached + 1]
        found[: reached + 1] *= 1.0 - p
        found[step : step + reached + 1] += happened
        reached += step
    return 0, found


def _merge(p: FloatArray, steps: IntArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Probabilities, steps and numbers of events, alike ones merged."""
    place = np.minimum((p * _PROBABILITIES).astype(np.int64), _PROBABILITIES - 1)
    cells, of = np.unique(steps * _PROBABILITIES + place, return_inverse=True)
    counts = np.bincount(of).astype(np.float64)
    return np.clip(np.bincount(of, p) / counts, 0.0, 1.0), cells // _PROBABILITIES, counts


def _width(p: FloatArray, step: IntArray, counts: FloatArray) -> int:
    """How many sums there are about the mean, beyond which nothing matters; a power of two."""
    spread = math.sqrt(float(counts @ (step**2 * p * (1.0 - p))))
    return 1 << math.ceil(math.log2(24.0 * spread + 64.0 * int(step.max())))


def _sum_many(p: FloatArray, step: IntArray, counts: FloatArray) -> tuple[int, FloatArray]:
    """The distribution of merged events, from its characteristic function."""
    width = _width(p, step, counts)
    first = math.floor(float(counts @ (step * p))) - width // 2
    angle = 2.0 * np.pi / width * np.arange(width // 2 + 1)
    log_size, turn = np.zeros(angle.size), first * angle
    for one in range(0, p.size, rows := max(1, (_COST >> 4) // angle.size)):
        some = slice(one, one + rows)
        turned = np.exp(-1j * np.multiply.outer(step[some], angle))
        factors = 1.0 + p[some, None] * (turned - 1.0)
        with np.errstate(divide="ignore"):  # a factor can be 0, and the product then is
            log_size += counts[some] @ np.log(np.abs(factors))
        turn += counts[some] @ np.angle(factors)
    return first, np.clip(np.fft.irfft(np.exp(log_size + 1j * turn), width), 0.0, 1.0)


def whole_weights(weight: FloatArray, p: FloatArray) -> IntArray:
    """Whole numbers near multiples of the weights, as large as the cost allows."""
    share, largest = weight / weight.max(), _LARGEST
    while True:
        steps = np.maximum(np.rint(largest * share), 1.0).astype(np.int64)
        if p.size <= _EVENTS:
            cost = p.size * int(steps.sum())
        else:
            merged = _merge(p, steps)
            cost = 16 * merged[0].size * _width(*merged)
        if largest <= 8 or cost <= _COST:
            return np.asarray(steps // np.gcd.reduce(steps))
        largest //= 2


def sum_p_value(p: FloatArray, correct: BoolArray, weight: FloatArray | None) -> float:
    """Two-sided p-value of the (weighted) number of events, if their probabilities are `p` (n,)."""
    if weight is None:
        steps = np.ones(p.size, np.int64)
    else:
        share = weight / weight.max()
        if float(share**2 @ (p * (1.0 - p))) >= _SADDLEPOINT:
            return _saddlepoint_p_value(p, float(share @ (correct - p)), share)
        steps = whole_weights(weight, p)
    first, found = sum_distribution(p, steps)
    place = min(max(int(steps[correct].sum()) - first, 0), found.size - 1)
    tail = min(float(found[: place + 1].sum()), float(found[place:].sum()))
    return min(max(2.0 * tail, LEAST_P), 1.0)


def _saddlepoint_p_value(p: FloatArray, gap: float, weight: FloatArray) -> float:
    """The same of a sum of large variance, by Lugannani and Rice (1980, doi:10.2307/1426607).

    The sum is moved half the largest weight, 1, towards its mean, as for a lattice.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    mean = float(weight @ p)
    sign, size = np.sign(gap), max(abs(gap) - 0.5, 0.0)
    spread = math.sqrt(float(weight**2 @ (p * (1.0 - p))))
    if size < 0.1 * spread:  # where the formula has no digits, and nothing is found
        return 1.0
    if size > 8.0 * spread:  # far below the least p-value
        return LEAST_P

    def tilted(t: float) -> FloatArray:
        return np.asarray(p / (p + (1.0 - p) * np.exp(-t * sign * weight)))

    def excess(t: float) -> float:
        return float(sign) * (float(weight @ tilted(t)) - mean) - size

    t = float(brentq(excess, 0.0, 64.0 * size / spread**2))
    log_mgf = float(np.log1p(p * np.expm1(t * sign * weight)).sum()) - t * sign * mean
    r = math.sqrt(max(2.0 * (t * size - log_mgf), 1e-12))
    q = tilted(t)
    u = t * math.sqrt(float(weight**2 @ (q * (1.0 - q))))
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
