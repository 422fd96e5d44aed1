"""The stability profile of NumPy arrays: what is needed alone, in few calls.

Pairs of a row and a scale stand side by side in lanes, always a multiple of LANES, and products
with the quadrature tables are taken LANES at a time: BLAS then sums every lane in the same order,
whatever the batch.
"""

import numpy as np
from numpy.typing import NDArray

from hokical._core.blocks import row_slices
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.special import log_ndtr, ndtr
from hokical._core.types import FloatArray
from hokical.stability import _profile as profile
from hokical.stability._gaussian import LANES, moments_by_class
from hokical.stability._profile import BUMP, CUT_FROM, FAR_FROM, NO_CHANCE, ROOT_HALF
from hokical.stability._tables import DEGREE, REACH, Quadrature, tail_quadrature

Rows = NDArray[np.intp]


def rows_profile(
    logits: Logits, temperature: float, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`profile.rows_profile` for NumPy, with classes that have no column."""
    gaps = _runner_up_gaps(logits)
    gap = np.minimum(gaps[:, None] / scales, NO_CHANCE)
    near = gap <= FAR_FROM
    lost = np.zeros(gap.shape)
    for pairs, losses in ((near, _near_losses), (~near, _far_losses)):
        row, which = pairs.nonzero()
        if row.size:
            lost[pairs] = losses(logits, row, scales[which], gap[pairs])
    return profile.as_logs(logits, temperature, gaps, gap, lost)


def _runner_up_gaps(logits: Logits) -> FloatArray:
    """How far the best other class lies below the label, (n,); FARTHEST where there is none."""
    if logits.n_columns > 1:
        gaps = np.partition(logits.margins, 1, axis=1)[:, 1]
    else:
        gaps = np.full(logits.n_rows, MAX_MARGIN)
    return gaps if logits.tail is None else np.minimum(gaps, logits.tail.margin)


def _near_losses(logits: Logits, row: Rows, scale: FloatArray, gap: FloatArray) -> FloatArray:
    """1 - gamma of pairs (m,) of a row and a scale with gaps up to FAR_FROM."""
    rule = tail_quadrature(logits.n_classes)
    parts = [
        _near_part(logits, row[some], scale[some], gap[some], rule)
        for some in row_slices(row.size, DEGREE * logits.n_columns)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _near_part(
    logits: Logits, row: Rows, scale: FloatArray, gap: FloatArray, rule: Quadrature
) -> FloatArray:
    m = row.size
    t = np.zeros((logits.n_columns, m + -m % LANES))
    np.multiply(logits.margins[row].T, (2.0 / REACH) / scale, out=t[:, :m])
    np.minimum(t, 2.0, out=t)
    t -= 1.0
    logs = _in_lanes(moments_by_class(t), rule)
    if logits.tail is not None:
        logs += _tail_logs(logits, row, scale, rule, logs.shape)
    np.minimum(logs, 0.0, out=logs)
    lost = np.subtract(1.0, np.exp(logs, out=logs), out=logs)
    lost *= rule.weights[:, None]
    if gap.max() > CUT_FROM:
        last = np.full(t.shape[1], np.inf)
        np.subtract(BUMP, 0.5 * gap, out=last[:m], where=gap > CUT_FROM)
        lost *= rule.nodes[:, None] <= last.reshape(-1, 1, LANES)
    return np.asarray(np.add.reduce(lost, axis=1).reshape(-1)[:m])


def _in_lanes(moments: FloatArray, rule: Quadrature) -> FloatArray:
    """Log survival (blocks, K, LANES) at the nodes."""
    blocks = moments.reshape(DEGREE + 1, -1, LANES).transpose(1, 0, 2)
    logs = np.matmul(rule.series.T, blocks)
    logs -= rule.own[:, None]
    return np.asarray(logs)


def _tail_logs(
    logits: Logits, row: Rows, scale: FloatArray, rule: Quadrature, shape: tuple[int, ...]
) -> FloatArray:
    """What classes without a column add to the log survival."""
    assert logits.tail is not None
    count, margin = logits.tail.count[row], logits.tail.margin[row] / scale
    found = np.zeros((shape[0] * LANES, rule.nodes.size))
    some = count > 0.0
    found[: row.size][some] = count[some, None] * log_ndtr(rule.nodes + margin[some, None], np)
    return found.reshape(shape[0], LANES, -1).transpose(0, 2, 1)


def _far_losses(logits: Logits, row: Rows, scale: FloatArray, gap: FloatArray) -> FloatArray:
    """1 - gamma of pairs (m,) with gaps beyond FAR_FROM: rivals one by one, then those who meet."""
    sums, one = np.empty((2, row.size))
    for some in row_slices(row.size, 4 * logits.n_columns):
        units = np.minimum(logits.margins[row[some]] / scale[some, None], NO_CHANCE)
        chance = ndtr(units * -ROOT_HALF, np)
        chance *= units > 0.5 * gap[some, None]
        np.add.reduce(chance, axis=1, out=sums[some])
        np.maximum.reduce(chance, axis=1, out=one[some])  # the runner-up's
    if logits.tail is not None:
        margin = np.minimum(logits.tail.margin[row] / scale, NO_CHANCE)
        chance = ndtr(margin * -ROOT_HALF, np)
        sums += logits.tail.count[row] * chance
        np.maximum(one, chance, out=one)
    crowded = (sums > profile.CROWDED * one) & (gap < profile.CROWDED_UP_TO)
    if crowded.any():
        few = (sums[crowded], one[crowded], gap[crowded])
        sums[crowded] = profile.overtaken_together(*few, np)
    return np.asarray(sums)
