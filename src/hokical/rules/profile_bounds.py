"""Between which values can the features of the stability profile lie when classes are hidden?

Every feature rises or falls with each hidden logit, so it lies between its values with all hidden
classes at the ceiling and with none. Where the rest is known in sum, the bounds on the stability
itself narrow that further.
"""

from collections.abc import Callable

import numpy as np

from hokical.core.logits import Logits, Tail
from hokical.core.topk import TopK
from hokical.core.types import FloatArray
from hokical.stability.bounds import gaussian_bounds, gumbel_bounds

Ranges = tuple[FloatArray, FloatArray]

#: What the chances behind the bounds may be off by.
_ERROR = 1e-6


def feature_ranges(
    logits: TopK, features: Callable[[Logits], FloatArray], temperature: float, scales: FloatArray
) -> Ranges:
    """Least and greatest of every feature, (n, 1 + 2 W) each.

    The features are the log-odds of the softmax at the temperature, then log gamma and
    log(1 - gamma) at each of the W scales.
    """
    gap, count = logits.ceiling_margin, logits.tail.count
    ends = [features(logits.with_tail(Tail(gap, share * count))) for share in (1.0, 0.0)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    if logits.rest is None:
        return low, high
    tight_low, tight_high = _ranges_by_rest(logits, temperature, scales)
    return np.clip(tight_low, low, high), np.clip(tight_high, low, high)


def _ranges_by_rest(logits: TopK, temperature: float, scales: FloatArray) -> Ranges:
    lower, upper = gumbel_bounds(logits, temperature)
    low = [_log(lower - _ERROR) - _log(1.0 - lower + _ERROR)]
    high = [_log(upper + _ERROR) - _log(1.0 - upper - _ERROR)]
    for scale in scales.tolist():
        lower, upper = gaussian_bounds(logits, scale)
        low += [_log(lower - _ERROR), _log(1.0 - upper - _ERROR)]
        high += [_log(upper + _ERROR), _log(1.0 - lower + _ERROR)]
    return np.column_stack(low), np.column_stack(high)


def _log(chance: FloatArray) -> FloatArray:
    """log, -inf for what rounding has made negative."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(chance, 0.0))
