"""The row correction of NumPy's rows of many classes, by a compiled loop over scaled margins."""

import numpy as np

from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import AnyArray, FloatArray
from hokical.rules._predicting import to_float32
from hokical.rules._row_correction import RowCorrection

#: Logits that are worked on at a time, as float64: a copy that stays in the cache costs little,
#: and the kernel is compiled for one type.
_AT_ONCE = 1 << 15


def fill_corrected(
    logits: Logits,
    scale: FloatArray,
    bias: FloatArray | None,
    correction: RowCorrection | None,
    least: float,
    out: AnyArray,
    *,
    keeps_labels: bool,
) -> None:
    """Write corrected probabilities of scores bias - scale * margins into `out` (n, classes).

    `scale` and `bias` are (classes,). Possible classes
    get `least` or more. Without a `correction` they are the softmax of the scores. The label is the
    first maximum of the scores; or, if labels are kept, that of the logits.
    """
    from hokical.rules._kernels import correct_rows

    block = logits.block()
    weights, spread = np.zeros((2, 0)), np.zeros((2, 0))
    if correction is not None:
        weights = np.stack([correction.log_scale, correction.shift])
        spread = np.stack([correction.centre, 1.0 / correction.spread])
    room = np.empty((max(1, _AT_ONCE // logits.n_columns), logits.n_columns))
    for rows in cut_rows(logits.n_rows, len(room)):
        part = room[: rows.stop - rows.start] if out.dtype == np.float32 else out[rows]
        with np.errstate(over="ignore"):  # 1e308 above -1e308: far, but not masked
            np.subtract(logits.top[rows, None], block[rows], out=part, dtype=np.float64)
            _scale_margins(part, scale, bias)
        masked = None if logits.all_possible else block[rows] == -np.inf
        labels = logits.labels[rows] if keeps_labels else part.argmin(axis=1)
        part[np.arange(len(part)), labels] = np.inf  # left out of all sums
        left_out = np.ones(len(part)) if masked is None else 1.0 + masked.sum(axis=1)
        lowest = part.min(axis=1) if keeps_labels else np.empty(0)
        correct_rows(part, labels, left_out, lowest, spread, weights, least)
        if masked is not None:
            part[masked] = 0.0
        if out.dtype == np.float32:
            out[rows] = to_float32(part)


def _scale_margins(margins: FloatArray, scale: FloatArray, bias: FloatArray | None) -> None:
    """Margins (n, classes) become margins below the largest score, in place."""
    if bias is None:
        margins *= scale
        return
    margins *= -scale
    margins += bias
    np.subtract(margins.max(axis=1, keepdims=True), margins, out=margins)
