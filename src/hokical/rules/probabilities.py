"""What several rules need: log-probabilities, a softmax and its first maximum, shares of the rest.

All for a block of rows, in the library of the logits.
"""

import numpy as np

from hokical._core.arrays import Array, FloatArray
from hokical._core.logits import (
    Logits,
    at_label,
    by_blocks,
    column_numbers,
    label_mask,
    put_at_label,
    put_masked,
    table_order,
)
from hokical._core.special import at_least, exponential, normalized_exponential, row_sums

#: No possible class gets less than this, in float64 and in float32; 0 is for masked ones.
LEAST, _LEAST_IN_FLOAT32 = 1e-300, 1e-37
#: Shares below this have lost their digits.
LEAST_SHARE = 1e-290
#: One rounding, relative, in float64 and in float32.
_ROUNDING, _ROUNDING_IN_FLOAT32 = 2.0**-52, 2.0**-23


def log_probabilities(logits: Logits) -> Array:
    """Log of the softmax, (n, columns); hugely negative where masked."""
    return -log_norms(logits.margins, logits) - logits.margins


def probabilities_and_logs(logits: Logits, temperature: Array) -> tuple[Array, Array]:
    """The softmax at a temperature and its log, (n, columns) each."""
    margins = logits.margins / temperature
    logs = -log_norms(margins, logits) - margins
    return logits.xp.exp(logs), logs


def log_norms(margins: Array, logits: Logits) -> Array:
    """Minus the log-probability of each row's label, (n, 1), from margins in temperatures.

    Precise for probabilities near 1.
    """
    odds = exponential(-margins, logits.xp)
    odds = put_at_label(odds, 0.0 * odds[:, :1], logits)
    return logits.xp.log1p(row_sums(odds, logits.xp))[:, None]


def floored_margins(logits: Logits, floor: Array, proba: Array | None = None) -> Array:
    """The distance of log(p + floor) below the label's, (n, columns), with the softmax p."""
    if logits.is_numpy and floor == 0.0:
        return logits.margins
    xp, proba = logits.xp, uncalibrated(logits) if proba is None else proba
    top = xp.max(proba, axis=1, keepdims=True)
    if logits.is_numpy:
        return np.log((top + floor) / (proba + floor))
    share = xp.ones_like(top) * floor  # not 0 + floor: onnxruntime takes 1e-50 for 0
    some = xp.where(share > 0.0, share, xp.ones_like(share))
    return xp.where(share > 0.0, xp.log((top + some) / (proba + some)), logits.margins)


def uncalibrated(logits: Logits) -> Array:
    """The softmax, (n, columns); 0 where masked."""
    return normalized_exponential(-logits.margins, logits.xp)


def add_floor(logits: Logits, floor: Array) -> Logits:
    """Logits log(p + floor) up to a constant in each row; masked classes and labels stay."""

    def work(block: Logits) -> Array:
        return put_masked(-floored_margins(block, floor), -block.xp.inf, block)

    values = by_blocks(work, logits)
    made = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    made.__dict__["labels"] = logits.labels  # also where classes that differed have become equal
    return made


def softmax(scores: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) from scores; 0 where masked, whatever the score.

    NumPy's scores are overwritten.
    """
    xp = logits.xp
    scores = put_masked(scores, -xp.inf, logits)
    highest = xp.max(scores, axis=1, keepdims=True)
    below = np.subtract(scores, highest, out=scores) if xp is np else scores - highest
    return normalized_exponential(below, xp)


def as_scores(scores: Array, logits: Logits) -> Logits:
    """Scores (n, classes) as logits; the same classes are possible. NumPy's are overwritten."""
    values = put_masked(scores, -logits.xp.inf, logits)
    return Logits(values, logits.xp.max(values, axis=1), logits.backend)


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes are possible."""
    return as_scores(logits.xp.log(at_least(proba, LEAST, logits.xp)), logits)


def first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) with the label as first maximum, by one rounding if needed.

    At a large temperature, classes with different logits can come out with the same number, the
    more so in float32, in which other libraries than NumPy get predictions for float32 logits.
    """
    xp = logits.xp
    if logits.is_numpy and _is_first_maximum(proba, logits):
        return proba
    wide = logits.is_numpy or logits.values.dtype == xp.float64
    caps = _caps(at_label(proba, logits)[:, None], logits.label_columns, logits, wide)
    if logits.is_numpy:  # in the memory order of other blocks, which decides how sums are rounded
        return np.minimum(proba, caps, out=np.empty_like(proba))
    return xp.minimum(proba, caps)


def are_apart(logits: Logits, temperature: Array) -> bool:
    """Whether no class can come out of a softmax with the number of a label of larger logit.

    A float32 below another differs from it by 2^-24 of it or more, and a rounding is 2^-53.
    """
    short = logits.is_numpy and logits.values.dtype.itemsize < 8
    return short and bool(np.abs(logits.top).min() > 2.0**-26 * temperature)


def _is_first_maximum(proba: FloatArray, logits: Logits) -> bool:
    """Whether the label, which has a largest probability (n, columns), is the first of them."""
    if table_order(logits) == "F":  # `argmax` of short rows takes ten times as long
        return bool((proba == proba.max(axis=1, keepdims=True)).sum() == logits.n_rows)
    best = logits.values[np.arange(logits.n_rows), proba.argmax(axis=1)]
    return bool((best == logits.top).all())


def keep_first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) whose first maximum stays the first when they become float32.

    In float32, in which other libraries than NumPy get predictions for logits that are not
    float64, an earlier class that is a little less likely can come out with the same number.
    """
    xp = logits.xp
    if logits.values.dtype == xp.float64:
        return proba
    best, own = xp.argmax(proba, axis=1), xp.max(proba, axis=1, keepdims=True)
    return xp.minimum(proba, _caps(own, best, logits, wide=False))


def _caps(own: Array, label: Array, logits: Logits, wide: bool) -> Array:
    """What classes may have, (n, columns): `own` (n, 1), those before the label (n,) less."""
    earlier = column_numbers(logits)[None, :] < label[:, None]
    # Not times 1 - rounding: onnxruntime takes a float64 that near to 1 for 1, and drops it.
    below = own - own * (_ROUNDING if wide else _ROUNDING_IN_FLOAT32)
    return logits.xp.where(earlier, below, own)


def least_probability(logits: Logits) -> float:
    """What a possible class gets at least: predictions of others than NumPy may become float32."""
    wide = logits.is_numpy and logits.values.dtype == np.float64
    return LEAST if wide else _LEAST_IN_FLOAT32


def keep_above_zero(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) in which no possible class has rounded to 0."""
    xp, least = logits.xp, least_probability(logits)
    if logits.is_numpy and proba.min() >= least:
        return proba
    lost = logits.possible & (proba < least)
    return xp.where(lost, xp.full_like(proba, least), proba)


def distribute_remainder(logits: Logits, confidence: Array, shares: Array, width: Array) -> Array:
    """Probabilities (n, classes): the confidence (n,) for the label, the rest as in `shares`.

    `shares` (n, classes) are those of each class under noise of that `width`. A row in which
    one class alone is possible gives it 1, whatever the confidence. Where no other class is within
    reach of the noise, they share as a softmax of that width would.
    """
    xp, is_label = logits.xp, label_mask(logits)
    if logits.is_numpy:
        shares = np.asarray(shares, order=table_order(logits))  # sums then round alike
    alone = logits.possible_counts[:, None] == 1.0
    own = xp.where(alone, 1.0, confidence[:, None])
    shares = xp.where(is_label, 0.0, shares)
    # In units of the largest, which is no part of the gradient: 1 / 1e-290^2 would overflow.
    unit = logits.backend.without_gradient(xp.max(shares, axis=1, keepdims=True))
    lost = (unit < LEAST_SHARE) & ~alone
    shares = shares / xp.where(lost | alone, 1.0, unit)
    if not logits.is_numpy or lost.any():
        shares = xp.where(lost, _softmax_shares(logits, width), shares)
    total = xp.where(alone, 1.0, xp.sum(shares, axis=1, keepdims=True))
    return xp.where(is_label, own, shares * ((1.0 - own) / total))


def _softmax_shares(logits: Logits, width: Array) -> Array:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    xp = logits.xp
    others = logits.possible & ~label_mask(logits)
    margins = xp.where(others, logits.margins, xp.inf)
    least = xp.min(margins, axis=1, keepdims=True)
    least = xp.where(least < xp.inf, least, 0.0)
    beyond = xp.where(others, logits.margins - least, 0.0)
    weights = xp.where(others, xp.exp(beyond / -width), 0.0)
    total = xp.sum(weights, axis=1, keepdims=True)
    return weights / xp.where(total > 0.0, total, 1.0)
