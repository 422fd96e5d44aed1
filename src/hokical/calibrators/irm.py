"""Isotonic regression on all classes pooled, order-preserving (Zhang, Kailkhura, Han, 2020)."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators._isotonic import (
    IDENTITY_SHARE,
    Curve,
    KeyArray,
    Tally,
    as_key,
    checked_curve,
    count_rows,
    fit_curve,
    log_norm_of,
    log_norms,
    own_keys,
    sum_hits,
    tally,
)
from hokical.calibrators.base import BaseCalibrator, warn_about_impossible_truths
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Classes below the label end at least this share below it: a gap that survives float32.
GAP = 2.0**-20
#: Entries sorted at a time. Sorted or nearly sorted keys are looked up several times faster.
_CHUNK_ENTRIES = 1 << 20


class IsotonicMulticlass(BaseCalibrator):
    """One rising function for the probabilities of all classes, fitted to all of them pooled.

    Every probability of every row, n x classes in all, is paired with 1 if its class is the true
    one and 0 otherwise; isotonic regression on these pairs is applied to each entry of a row, and
    the row is scaled to sum 1. The regression is exact (no subsampling, no grid). Log-probabilities
    are compared as float32, so values that agree to 6e-8 of their size count as one. Between two
    steps the function is linear in the log-probability; outside the validation data it is constant.

    The order of the classes is never reversed. Classes can share a step of the function; there the
    authors tell them apart by 1e-9 times the probability, which is lost in float32 and lets labels
    flip. Here that share is mixed in too, and besides every class whose logit lies below the top
    one is held at least one part in a million below it. The most likely class is the classifier's
    label, in float32 too.

    Parameters
    ----------
    normalize : bool
        False gives the authors' variant, in which rows are not scaled: each entry is the fitted
        chance of its class by itself, in [0, 1], and `predict_proba` rows do not sum to 1.

    Attributes
    ----------
    knots_, values_ : (k,), the fitted function: log-probabilities, rising, and the values there

    Notes
    -----
    Memory: one sorted chunk at a time, about 50 bytes per example beside it. A class that a row
    masks (-inf) takes no part in the fit and gets 0.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.irm import IsotonicMulticlass
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicMulticlass().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03)
    True
    """

    name = "irm"
    reference = "Zhang, Kailkhura, Han: Mix-n-Match, 2020"
    cost = "one softmax pass and one sort of all probabilities"

    def __init__(self, *, normalize: bool = True) -> None:
        self.normalize = normalize

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        if not isinstance(self.normalize, (bool, np.bool_)):
            raise ValueError(f"`normalize` must be True or False; got {self.normalize!r}.")
        self.normalize_ = bool(self.normalize)
        warn_about_impossible_truths(logits, labels, weights)
        logits, labels, weights = count_rows(logits, labels, weights)
        log_norm = log_norms(logits, 1.0)
        edges, hits = sum_hits(own_keys(logits, log_norm, labels, 1.0), weights)
        curve = fit_curve(edges, hits, tally_all(logits, log_norm, weights, edges))
        self.knots_, self.values_ = curve.knots, curve.values

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)

        def work(rows: slice) -> None:
            out[rows] = self._block(logits, rows)

        for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
        return out

    def _confidence(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.n_rows)

        def work(rows: slice) -> None:
            block = self._block(logits, rows)
            out[rows] = block[np.arange(block.shape[0]), logits.labels[rows]]

        for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
        return out

    def _block(self, logits: Logits, rows: slice) -> FloatArray:
        """Calibrated rows, (rows, classes)."""
        margins, labels = logits.margins(rows), logits.labels[rows]
        log_proba = -(margins + log_norm_of(margins, labels)[:, None])
        values = Curve(self.knots_, self.values_)(as_key(log_proba))
        values *= 1.0 - IDENTITY_SHARE
        values += IDENTITY_SHARE * np.exp(log_proba)
        values[margins == np.inf] = 0.0
        top = values[np.arange(labels.size), labels][:, None]
        np.minimum(values, top * (1.0 - GAP), out=values, where=margins > 0.0)
        return values / values.sum(axis=1, keepdims=True) if self.normalize_ else values

    def _state(self) -> dict[str, Any]:
        return {"knots": self.knots_, "values": self.values_, "normalize": self.normalize_}

    def _restore(self, state: dict[str, Any]) -> None:
        curve = checked_curve(state["knots"], state["values"])
        self.knots_, self.values_ = curve.knots, curve.values
        self.normalize_ = bool(state["normalize"])


@singledispatch
def tally_all(
    logits: Logits, log_norm: FloatArray, weights: FloatArray | None, edges: KeyArray
) -> Tally:
    """The tally of all classes of all rows, a chunk of rows at a time."""
    step = max(1, _CHUNK_ENTRIES // logits.n_classes)
    total = Tally(np.zeros(edges.size + 1), np.full(edges.size + 1, -np.inf, np.float32))
    for start in range(0, logits.n_rows, step):
        rows = slice(start, min(start + step, logits.n_rows))
        keys = _keys(logits, log_norm, rows)
        if weights is None:
            total += tally(np.sort(keys, axis=None), None, edges)
        else:  # a row's classes have one weight, so they can trade places
            keys.sort(axis=1)
            total += tally(keys.ravel(), np.repeat(weights[rows], logits.n_classes), edges)
    return total


def _keys(logits: Logits, log_norm: FloatArray, rows: slice) -> KeyArray:
    """Keys of all classes of some rows, (rows, classes)."""
    part, norm = logits.take(rows), log_norm[rows, None]
    out = np.empty(part.values.shape, np.float32)

    def work(block: slice) -> None:
        out[block] = as_key(-(part.margins(block) + norm[block]))

    for_row_blocks(work, part.n_rows, rows_per_block(part.n_classes))
    return out
