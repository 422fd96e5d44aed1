"""What several rules make of logits: log-probabilities, a softmax of scores, and its first maximum.

All for a block of rows, in the library of the logits.
"""

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.logits import Logits

#: No possible class gets less than this, in float64 and in float32; 0 is for impossible ones.
LEAST, _LEAST_IN_FLOAT32 = 1e-300, 1e-37
#: One rounding, relative, in float64 and in float32.
_ROUNDING, _ROUNDING_IN_FLOAT32 = 2.0**-52, 2.0**-23


def log_probabilities(logits: Logits) -> Array:
    """Log of the softmax, (n, columns); hugely negative where impossible."""
    return -log_norms(logits.margins, logits) - logits.margins


def probabilities_and_logs(logits: Logits, temperature: Array) -> tuple[Array, Array]:
    """The softmax at a temperature and its log, (n, columns) each."""
    margins = logits.margins / temperature
    odds, norms = _odds(margins, logits)
    if not logits.is_numpy:
        logs = -norms - margins
        return logits.xp.exp(logs), logs
    odds[logits.label_index] = 1.0
    odds *= np.exp(-norms)
    return odds, np.subtract(-norms, margins, out=margins)


def log_norms(margins: Array, logits: Logits) -> Array:
    """Minus the log-probability of each row's label, (n, 1), from margins in temperatures.

    Precise for probabilities near 1.
    """
    return _odds(margins, logits)[1]


def _odds(margins: Array, logits: Logits) -> tuple[Array, Array]:
    """Odds (n, columns) of every class to the label, 0 at the label, and `log_norms`."""
    xp = logits.xp
    if logits.is_numpy:
        odds = np.negative(margins)
        np.exp(odds, out=odds)[logits.label_index] = 0.0
    else:
        odds = xp.where(logits.is_label, xp.zeros_like(margins), xp.exp(-margins))
    return odds, xp.log1p(xp.sum(odds, axis=1, keepdims=True))


def smooth(log_p: Array, floor: Array, xp: Namespace) -> Array:
    """log(p + floor), (n, classes), from log p; the same where `floor` is 0."""
    if xp is np and not np.any(floor):
        return log_p
    share = xp.ones_like(log_p[:, :1]) * floor  # not 0 + floor: onnxruntime takes 1e-50 for 0
    some = share > 0.0
    least = xp.log(xp.where(some, share, xp.ones_like(share)))
    high, low = xp.maximum(log_p, least), xp.minimum(log_p, least)
    return xp.where(some, high + xp.log1p(xp.exp(low - high)), log_p)


def put_at_label(table: Array, own: Array, logits: Logits) -> Array:
    """A table (n, columns) with `own` (n, 1) at the labels; NumPy's is overwritten."""
    if logits.is_numpy:
        table[logits.label_index] = own[:, 0]
        return table
    return logits.xp.where(logits.is_label, own, table)


def softmax(scores: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) from scores; 0 where impossible, whatever the score."""
    xp = logits.xp
    if not logits.all_possible:
        scores = xp.where(logits.possible, scores, -xp.inf)
    weights = scores - xp.max(scores, axis=1, keepdims=True)
    if logits.is_numpy:
        np.exp(weights, out=weights)
        weights /= np.sum(weights, axis=1, keepdims=True)
        return weights
    weights = xp.exp(weights)
    return weights / xp.sum(weights, axis=1, keepdims=True)


def first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) with the label as first maximum, by one rounding if needed.

    At a large temperature, classes with different logits can come out with the same number, the
    more so in float32, in which other libraries than NumPy get their answers to float32 logits.
    """
    xp = logits.xp
    if logits.is_numpy and (np.argmax(proba, axis=1) == logits.label_columns).all():
        return proba
    wide = logits.is_numpy or logits.values.dtype == xp.float64
    caps = _caps(logits.at_label(proba)[:, None], logits.label_columns, logits, wide)
    if logits.is_numpy:  # in the memory order of other blocks, which decides how sums are rounded
        return np.minimum(proba, caps, out=np.empty_like(proba))
    return xp.minimum(proba, caps)


def keep_first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) whose first maximum stays the first when they become float32.

    In float32, in which other libraries than NumPy get their answers to logits that are not
    float64, an earlier class that is a little less likely can come out with the same number.
    """
    xp = logits.xp
    if logits.values.dtype == xp.float64:
        return proba
    best, own = xp.argmax(proba, axis=1), xp.max(proba, axis=1, keepdims=True)
    return xp.minimum(proba, _caps(own, best, logits, wide=False))


def _caps(own: Array, label: Array, logits: Logits, wide: bool) -> Array:
    """What classes may have, (n, columns): `own` (n, 1), those before the label (n,) less."""
    earlier = logits.columns[None, :] < label[:, None]
    # Not times 1 - rounding: onnxruntime takes a float64 that near to 1 for 1, and drops it.
    below = own - own * (_ROUNDING if wide else _ROUNDING_IN_FLOAT32)
    return logits.xp.where(earlier, below, own)


def least_probability(logits: Logits) -> float:
    """What a possible class gets at least: answers of others than NumPy may become float32."""
    wide = logits.is_numpy and logits.values.dtype == np.float64
    return LEAST if wide else _LEAST_IN_FLOAT32


def keep_above_zero(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) in which no possible class has rounded to 0."""
    xp, least = logits.xp, least_probability(logits)
    if logits.is_numpy and proba.min() >= least:
        return proba
    lost = logits.possible & (proba < least)
    return xp.where(lost, xp.full_like(proba, least), proba)
