"""Predictions of a rule for checked logits: in blocks of rows, in their library and type."""

from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array
from hokical._core.blocks import block_rows, by_blocks, work_on_rows
from hokical._core.logits import Logits, lend_room
from hokical._core.parallel import map_slices
from hokical._core.topk import TopK, mark_seen
from hokical._core.types import AnyArray, FloatArray
from hokical.rules._base import Rule
from hokical.rules._probabilities import distribute_remainder, keep_above_zero, keep_first_maximum

Output = Literal["labels", "confidence", "proba", "members"]
#: Those with a number for every class.
OF_CLASSES = frozenset({"proba", "members"})
#: Elements of NumPy's buffers: operations on tables and columns take twice as long with its 8192,
#: into which it copies the columns.
_BUFFER = 512


def predict_blocks(rule: Rule, what: Output, logits: Logits, *, narrow: bool = False) -> Array:
    """Labels (n,), confidence (n,) or probabilities (n, classes), float64 where they are floats.

    "members" (n, classes), bool, are the output of a `SetRule`. NumPy's probabilities are float32
    if `narrow`.
    """
    if what == "labels" and rule.preserves_labels:
        return logits.labels
    here = rule.on_device_of(logits)
    if what == "proba":
        if logits.is_numpy:
            return _fill_blocks(here, logits, np.float32 if narrow else np.float64)
        return by_blocks(partial(_shown_probabilities, here), logits, logits.n_classes)
    per_row = logits.n_classes if what in OF_CLASSES else None
    return by_blocks(getattr(here, what), logits, per_row)


def predict_on_host(rule: Rule, what: Output, logits: Logits) -> NDArray[Any]:
    """`predict_blocks` in full precision, as an array of NumPy."""
    with logits.backend.in_float64():
        return logits.to_host(predict_blocks(rule, what, logits))


def labels_and_confidence(rule: Rule, logits: Logits) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both (n,) in full precision, as arrays of NumPy, from one pass over the rows."""
    here = rule.on_device_of(logits)

    def work(block: Logits) -> tuple[Array, Array]:
        if rule.preserves_labels:
            return block.labels, here.confidence(block)
        xp, proba = logits.xp, here.proba(block)
        return xp.argmax(proba, axis=1), xp.max(proba, axis=1)

    with logits.backend.in_float64():
        labels, confidence = by_blocks(work, logits)
        return logits.to_host(labels), logits.to_host(confidence)


def predict_all(rule: Rule, logits: Logits) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Labels and confidence (n,) and probabilities (n, classes) on the host, from one prediction.

    A `TopK` does not determine probabilities: None.
    """
    if isinstance(logits, TopK):
        whats: tuple[Output, Output] = ("labels", "confidence")
        labels, confidence = (predict_on_host(rule, what, logits) for what in whats)
        return labels, confidence, None
    proba = predict_on_host(rule, "proba", logits)
    labels = logits.to_host(logits.labels) if rule.preserves_labels else proba.argmax(axis=1)
    return labels, np.take_along_axis(proba, labels[:, None], axis=1)[:, 0], proba


def _fill_blocks(rule: Rule, logits: Logits, dtype: type[np.floating[Any]]) -> AnyArray:
    """NumPy's probabilities (n, classes), written into their place."""
    out = np.empty((logits.n_rows, logits.n_classes), dtype)

    def fill(rows: slice) -> None:
        block, into = logits.take(rows), out[rows]
        if dtype is np.float64:
            lend_room(block, into)
        default = np.setbufsize(_BUFFER)
        try:
            found = work_on_rows(partial(probabilities, rule), block)
        finally:
            np.setbufsize(default)
        if found is not into:
            into[...] = to_float32(found) if dtype is np.float32 else found

    map_slices(fill, logits.n_rows, block_rows(logits, logits.n_classes))
    return out


def _shown_probabilities(rule: Rule, block: Logits) -> Array:
    """Probabilities (n, classes) in which a label that is the likeliest class stays the first."""
    found = probabilities(rule, block)
    return found if rule.preserves_labels else keep_first_maximum(found, block)


def probabilities(rule: Rule, block: Logits) -> Array:
    """Probabilities (n, classes) of a block; the hidden classes of a `TopK` share evenly."""
    if isinstance(block, TopK):
        return _proba_of_best(rule, block)
    return keep_above_zero(rule.proba(block), block)


def set_probabilities(rule: Rule, logits: Logits) -> Array:
    """Probabilities (n, classes) for sets; of hidden classes the most that each may have.

    That is the probability of the least likely class seen, or all that the seen ones leave.
    """
    proba = probabilities(rule, logits)
    if not isinstance(logits, TopK):
        return proba
    seen = mark_seen(logits)
    least = np.min(proba, axis=1, where=seen & (proba > 0.0), initial=1.0)
    left = np.maximum(1.0 - np.sum(proba, axis=1, where=seen), 0.0)
    most = np.nextafter(np.minimum(least, left), 0.0)  # behind the seen ones
    return np.where(seen, proba, most[:, None])


def to_float32(found: FloatArray) -> NDArray[np.float32]:
    """As float32, in which the first maximum of a row (n, classes) stays the first."""
    small = found.astype(np.float32)
    if small.ndim == 2:
        best = found.argmax(axis=1)
        for row in np.flatnonzero(small.argmax(axis=1) != best):
            earlier, own = small[row, : best[row]], small[row, best[row]]
            np.minimum(earlier, np.nextafter(own, np.float32(0.0)), out=earlier)
    return small


def predict_unchecked(rule: Rule, what: Output, logits: Logits) -> Array:
    """`predict_blocks` for unchecked logits: NaN for rows that `as_logits` would refuse."""
    found = predict_blocks(rule, what, logits)
    if what == "labels":
        return found
    xp = logits.xp
    sound = xp.isfinite(logits.top)
    if what == "members":
        return found & sound[:, None]
    return xp.where(sound if what == "confidence" else sound[:, None], found, xp.nan)


def _proba_of_best(rule: Rule, logits: TopK) -> Array:
    """The confidence for the label, the rest as if hidden classes were equals.

    The label's share among these need not be its confidence, the midpoint of two bounds for some.
    """
    dense = logits.fill()
    shared = distribute_remainder(dense, rule.confidence(logits), rule.proba(dense), 1.0)
    return keep_above_zero(shared, dense)
