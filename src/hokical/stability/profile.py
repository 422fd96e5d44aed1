"""How surely does a label survive? Log-chances of survival and of loss, precise at both ends.

Most labels of a good classifier are so stable that 1 - gamma cannot be had from gamma: it must be
computed for itself. Under Gaussian noise, with margins d_i in units of its scale,

    1 - gamma = integral phi(u) (1 - prod_i Phi(u + d_i)) du,

where the integrand lives around u = -d/2, d the gap to the runner-up: farther right the true
value is less than the error of the series in `gaussian`, so those nodes are left out. Beyond a gap
of 7.5 scales the sum of the chances Phi(-d_i / sqrt 2) that each class overtakes the label takes
over, less what rivals do at once, as if they were equal ones. All in all log(1 - gamma) is off by
at most 4e-4 where 1 - gamma > 1e-3; and below that by 0.01 with ten classes, 0.25 with 1000 and
0.3 with 20,000, where many rivals lie just behind the first.

Under Gumbel noise both chances have closed forms, and their ratio is exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hokical.core.accelerate import accelerated
from hokical.core.arrays import Array, Namespace
from hokical.core.blocks import by_blocks, row_slices
from hokical.core.logits import FARTHEST, Logits
from hokical.core.special import constant, log_ndtr, log_or_never, ndtr, where_needed
from hokical.core.types import FloatArray
from hokical.stability.gaussian import contract, log_products, moments_of, traced_moments
from hokical.stability.tables import (
    DEGREE,
    REACH,
    Quadrature,
    tail_quadrature,
)

#: Gaps, in scales, from which nodes are left out, and from which rivals are counted one by one.
CUT_FROM, FAR_FROM = 4.0, 7.5
#: How far right of -gap/2 the integrand still matters: four of its standard deviations.
BUMP = 3.0
#: Nodes around -gap/2 for the rows beyond FAR_FROM, and the gap beyond which rivals never meet.
BUMP_STEP = 0.25
BUMP_NODES = np.arange(-5.0, 5.0 + BUMP_STEP / 2, BUMP_STEP)
CROWDED_UP_TO = 14.0
#: A class so many scales below has no chance in float64.
_NO_CHANCE = 1e3
_ROOT_HALF = math.sqrt(0.5)
_TINY = 1e-30


def log_odds_and_profile(logits: Logits, temperature: Array, scales: Any) -> tuple[Array, Array]:
    """The softmax's log-odds at a temperature, and log gamma and log(1 - gamma) at several scales.

    Parameters
    ----------
    logits : Logits
    temperature : float
        Scale of the Gumbel noise.
    scales : (W,), floats or an array in the library of the logits
        Scales of the Gaussian noise, one or more.

    Returns
    -------
    log_odds : (n,), log(gamma / (1 - gamma)) under Gumbel noise; inf if only one class is possible
    profile : (n, 2 W), under Gaussian noise: log gamma, log(1 - gamma) at the first scale, ...
    """
    given = hasattr(scales, "shape") and not isinstance(scales, np.ndarray)
    widths = scales if given else logits.beside(np.asarray(scales, np.float64))

    def work(block: Logits) -> tuple[Array, Array]:
        gaps = runner_up_gaps(block)
        kept, lost = gaussian_log_chances(block, gaps, widths)
        pairs = block.xp.stack([kept, lost], axis=2)
        profile = block.xp.reshape(pairs, (-1, 2 * widths.shape[0]))
        return gumbel_log_odds(block, gaps, temperature), profile

    nodes = tail_quadrature(logits.n_classes).nodes.size
    found: tuple[Array, Array] = by_blocks(work, logits, max(logits.n_columns, nodes))
    return found


def runner_up_gaps(logits: Logits) -> Array:
    """How far the best other class lies below the label, (n,); FARTHEST where there is none."""
    tail = logits.tail
    if tail is None:
        return logits.xp.clip(column_gaps(logits), None, FARTHEST)
    seen = column_gaps(logits) if logits.n_columns > 1 else FARTHEST
    return np.clip(np.minimum(seen, tail.margin), None, FARTHEST)


@accelerated
def column_gaps(logits: Logits) -> Array:
    """How far the second largest logit lies below the largest, (n,)."""
    return logits.gaps


def gumbel_log_odds(logits: Logits, gaps: Array, temperature: Array) -> Array:
    """-log sum over the other classes of exp(-d_i / temperature), (n,), taken from the gap."""
    xp, alone = logits.xp, gaps >= FARTHEST
    base = xp.where(alone, xp.zeros_like(gaps), gaps)
    total = rest_sums(logits, base, temperature)
    if logits.tail is not None:
        beyond = np.maximum(logits.tail.margin - base, 0.0)
        total = total + logits.tail.count * np.exp(beyond / -temperature)
    return xp.where(alone, xp.inf, base / temperature - log_or_never(total, xp))


@accelerated
def rest_sums(logits: Logits, gaps: Array, temperature: Array) -> Array:
    """sum of exp(-(d_i - gap)/temperature) over the columns but the label's, (n,).

    The label's own term is cut to exp(0) and taken off; the runner-up's is exp(0) too, so nothing
    cancels.
    """
    xp = logits.xp
    beyond = xp.clip(logits.margins - gaps[:, None], 0.0, None)
    return xp.sum(xp.exp(beyond / -temperature), axis=1) - 1.0


def gaussian_log_chances(logits: Logits, gaps: Array, scales: Array) -> tuple[Array, Array]:
    """log gamma and log(1 - gamma), (n, W) each, from gaps (n,) and scales (W,)."""
    xp = logits.xp
    gap = xp.clip(gaps[:, None] / scales, None, _NO_CHANCE)
    kept, lost = chances(logits, gap, scales)
    far = gap > FAR_FROM
    if not (logits.is_numpy and not far.any()):
        sums = _all_overtaking(logits, gap, scales)
        lost = where_needed(far, _overtaken_by_any, (sums, gap), lost, xp)
    safe = xp.clip(lost, None, 0.5)
    log_kept = xp.where(lost < 0.5, xp.log1p(-safe), log_or_never(kept, xp))
    return log_kept, log_or_never(lost, xp)


@accelerated
def chances(logits: Logits, gap: Array, scales: Array) -> tuple[Array, Array]:
    """integral of phi survival, and of phi (1 - survival) as far right as it is known, (n, W).

    Beyond FAR_FROM the two may be 1 and 0.
    """
    xp = logits.xp
    rule = tail_quadrature(logits.n_classes)
    if logits.is_numpy:
        return _near_chances(logits, gap, scales, rule)
    own, nodes, weights = (
        constant(table, logits.values) for table in (rule.own, rule.nodes, rule.weights)
    )
    logs = _log_products(logits, scales, rule) - own
    survival = xp.exp(xp.clip(logs, None, 0.0))
    lost = (1.0 - survival) * weights
    left_out = (gap[:, :, None] > CUT_FROM) & (nodes + 0.5 * gap[:, :, None] > BUMP)
    lost = xp.where(left_out, xp.zeros_like(lost), lost)
    return xp.sum(survival * weights, axis=2), xp.sum(lost, axis=2)


def _log_products(logits: Logits, scales: Array, rule: Quadrature) -> Array:
    """`gaussian.log_products` at several scales, (n, W, K)."""
    xp, n_scales = logits.xp, scales.shape[0]
    if logits.is_traced:  # one graph for all scales
        units = logits.margins[:, None, :] / scales[None, :, None]
        t = xp.clip(xp.reshape(units, (-1, logits.n_columns)) * (2.0 / REACH), None, 2.0) - 1.0
        found = contract(traced_moments(t, xp), constant(rule.series, t), xp)
        return xp.reshape(found, (-1, n_scales, rule.nodes.size))
    each = [log_products(logits, scales[k, ...], rule) for k in range(n_scales)]
    return xp.stack(each, axis=1)


def _near_chances(
    logits: Logits, gap: FloatArray, scales: FloatArray, rule: Quadrature
) -> tuple[FloatArray, FloatArray]:
    """The same for NumPy, where it is needed: all scales at once, for calls cost time too."""
    near = row, which = np.nonzero(gap <= FAR_FROM)
    kept, lost = np.ones_like(gap), np.zeros_like(gap)
    scale, gap, tail = scales[which], gap[near], logits.tail
    found = []
    for some in row_slices(row.size, DEGREE * logits.n_columns):
        part = row[some]
        t = np.minimum(logits.margins[part] * (2.0 / REACH / scale[some])[:, None], 2.0) - 1.0
        logs = contract(moments_of(t, np), rule.series, np) - rule.own
        if tail is not None:
            margin = np.where(tail.count > 0.0, tail.margin, 0.0)[part] / scale[some]
            logs += tail.count[part, None] * log_ndtr(rule.nodes + margin[:, None], np)
        found.append(_kept_and_lost(rule, logs, gap[some]))
    if found:
        kept[near], lost[near] = np.concatenate(found, axis=1)
    return kept, lost


def _kept_and_lost(rule: Quadrature, logs: FloatArray, gap: FloatArray) -> FloatArray:
    """Both integrals (2, n) from log survival (n, K), which is overwritten, and gaps (n,)."""
    survival = np.exp(np.minimum(logs, 0.0, out=logs), out=logs)
    last = np.where(gap > CUT_FROM, BUMP - 0.5 * gap, np.inf)[:, None]
    lost = (1.0 - survival) * rule.weights
    lost *= rule.nodes <= last
    survival *= rule.weights
    return np.stack([survival.sum(axis=1), lost.sum(axis=1)])


def _all_overtaking(logits: Logits, gap: Array, scales: Array) -> Array:
    """`overtaking_sums` with the classes that have no column."""
    sums, tail = overtaking_sums(logits, gap, scales), logits.tail
    if tail is None:
        return sums
    margin = np.minimum(tail.margin[:, None] / scales, _NO_CHANCE)
    return sums + tail.count[:, None] * ndtr(margin * -_ROOT_HALF, np)


@accelerated
def overtaking_sums(logits: Logits, gap: Array, scales: Array) -> Array:
    """sum of Phi(-d_i / sqrt 2) over all classes but the label, (n, W), where gap > FAR_FROM."""
    arrays = (logits.margins[:, None, :], scales[None, :], gap)
    return where_needed(gap > FAR_FROM, _overtaking, arrays, 0.0 * gap, logits.xp)


def _overtaking(xp: Namespace, margins: Array, scale: Array, gap: Array) -> Array:
    """Half the gap tells the label from the others."""
    units = xp.clip(margins / scale[..., None], None, _NO_CHANCE)
    chance = ndtr(units * -_ROOT_HALF, xp)
    rivals = units > 0.5 * gap[..., None]
    return xp.sum(xp.where(rivals, chance, xp.zeros_like(chance)), axis=-1)


def _overtaken_by_any(xp: Namespace, sums: Array, gap: Array) -> Array:
    """1 - gamma from the sum of the chances of the rivals, which counts twice what two do at once.

    The rivals are taken for `count` equal ones at the gap, with the same sum: exact where they are
    equal, and where there is one. Where the label's own noise is down they overtake it together,
    which matters only while the gap is not far beyond what `count` normal deviates reach.
    """
    one = ndtr(gap * -_ROOT_HALF, xp)
    crowded = (sums > 1.001 * one) & (gap < CROWDED_UP_TO)
    return where_needed(crowded, _overtaken_together, (sums, one, gap), sums, xp)


def _overtaken_together(xp: Namespace, sums: Array, one: Array, gap: Array) -> Array:
    count = (sums / xp.clip(one, _TINY, None))[..., None]
    nodes = gap[..., None] * -0.5 + constant(BUMP_NODES, gap)
    survival = count * log_ndtr(nodes + gap[..., None], xp)
    mass = xp.exp(-0.5 * nodes * nodes) * (BUMP_STEP / math.sqrt(2.0 * math.pi))
    return xp.sum(mass * -xp.expm1(survival), axis=-1)
