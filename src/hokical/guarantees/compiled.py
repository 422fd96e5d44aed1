"""The compiled form of the classifier's own scores; the portable one is its reference."""

import numpy as np

from hokical.core.fast_exp import exp_minus
from hokical.core.jit import kernel
from hokical.core.logits import Logits
from hokical.core.types import AnyArray, FloatArray
from hokical.guarantees.scores import rest_sums

#: Terms beyond this margin are left out; sums for which they may matter are recomputed.
_FAR, _LOST = 700.0, 1e-290


@kernel
def sum_rest(block: AnyArray, top: FloatArray, far: float, out: FloatArray) -> None:
    """out[n] = sum of exp(-d) over the row, less one of the terms that are 1."""
    for n in range(block.shape[0]):
        row = block[n]
        highest = top[n]
        total, tied = 0.0, -1.0
        for i in range(row.shape[0]):
            margin = highest - row[i]
            term = exp_minus(min(margin, far))
            total += term if 0.0 < margin < far else 0.0
            tied += 1.0 if margin == 0.0 else 0.0
        out[n] = total + tied


@rest_sums.register(lambda logits: logits.is_numpy and sum_rest.worthwhile(logits.work))
def _rest_sums(logits: Logits) -> FloatArray:
    out = np.empty(logits.n_rows)
    sum_rest(logits.block(), logits.top, _FAR, out)
    lost = np.flatnonzero(out < _LOST)
    if lost.size:
        out[lost] = rest_sums.portable(logits.take(lost))
    return out
