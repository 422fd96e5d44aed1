"""How surely does a label survive? Log-probabilities of survival and of loss, precise
at both ends.

Most labels of a good classifier are so stable that 1 - gamma cannot be had from gamma:
it must be computed for itself. Under Gaussian noise, with margins d_i in units of its
scale,

    1 - gamma = integral phi(u) (1 - prod_i Phi(u + d_i)) du,

where the integrand lives around u = -d/2, d the gap to the runner-up: farther right the
true value is less than the error of the series in `gaussian`, so those nodes are left
out. Beyond a gap of 7.5 scales the sum of the probabilities Phi(-d_i / sqrt 2) that a
class overtakes the label takes over, less what rivals do at once, as if they were equal
ones. All in all log(1 - gamma) is off by at most 4e-4 where 1 - gamma > 1e-3; and below
that by 0.01 with ten classes, 0.25 with 1000 and 0.3 with 20,000, where many rivals lie
just behind the first.

Under Gumbel noise both probabilities have closed forms, and their ratio is exact.
"""

import math
from typing import Any

import numpy as np

from hokical.rules import Logits
from hokical_paper.core import (
    MAX_MARGIN,
    Tail,
    by_blocks,
    clip,
    constant,
    contract,
    erfcx,
    log_ndtr,
    safe_log,
)
from hokical_paper.core.stability import (
    REACH,
    TAIL_LIMIT,
    Quadrature,
    gaussian_quadrature,
    log_products,
    moments_of,
    node_step,
)
from hokical_paper.types import Array, Namespace

#: Gaps, in scales, from which nodes are left out, and from which rivals are counted one
#: by one.
CUT_FROM = 4.0
FAR_FROM = 7.5
#: How far right of -gap/2 the integrand still matters: four of its standard deviations.
BUMP = 3.0
#: Nodes around -gap/2 for the rows beyond FAR_FROM, and the gap beyond which rivals
#: never meet.
BUMP_STEP = 0.5
BUMP_NODES = np.arange(-5.0, 5.0 + BUMP_STEP / 2, BUMP_STEP)
CROWDED_UP_TO = 14.0
#: Rivals meet if the sum of their probabilities is so many times that of the first.
CROWDED = 1.001
#: A class so many scales below has no chance in float64.
NO_CHANCE = 1e3
ROOT_HALF = math.sqrt(0.5)
#: Largest distance of the quadrature's nodes.
_LONGEST_STEP = 0.3
_TINY = 1e-30


def _quadrature(n_classes: int) -> Quadrature:
    """The tables down to where far classes overtake, close enough for log(1 -
    gamma).
    """
    return gaussian_quadrature(-TAIL_LIMIT, min(node_step(n_classes), _LONGEST_STEP))


def log_odds_and_profile(
    logits: Logits, temperature: Array, scales: Any
) -> tuple[Array, Array]:
    """The softmax's log-odds at a temperature, and log gamma and log(1 - gamma) at
    several scales.

    `temperature` is the scale of the Gumbel noise, `scales` (W,) are those of the
    Gaussian noise, one or more: floats or an array in the library of the logits. The
    log-odds (n,), log(gamma / (1 - gamma)) under Gumbel noise, are inf if only one
    class is possible; the profile (n, 2 W) is log gamma, log(1 - gamma) at the first
    scale, ...
    """
    is_on_device = hasattr(scales, "shape") and not isinstance(scales, np.ndarray)
    widths = (
        scales if is_on_device else logits.from_host(np.asarray(scales, np.float64))
    )
    nodes = _quadrature(logits.n_classes).nodes.size
    per_row = widths.shape[0] * max(logits.n_columns, nodes)
    log_odds_and_profiles: tuple[Array, Array] = by_blocks(
        lambda block: _rows_profile(block, temperature, widths), logits, per_row
    )
    return log_odds_and_profiles


def _rows_profile(
    logits: Logits, temperature: Array, scales: Array
) -> tuple[Array, Array]:
    """The two results of `log_odds_and_profile` for a block of rows and scales (W,)."""
    xp = logits.xp
    gaps = xp.clip(logits.gaps, None, MAX_MARGIN)
    if logits.tail is not None:
        seen = gaps if logits.n_columns > 1 else MAX_MARGIN
        gaps = np.minimum(seen, logits.tail.margin)
    gap = xp.clip(gaps[:, None] / scales, None, NO_CHANCE)
    sums = _sum_rival_chances(logits, scales, gap)
    far = _overtaken_by_any(sums, gap, xp)
    near = _near_losses(logits, gap, scales)
    lost = xp.where(gap > FAR_FROM, far, near)
    return _as_logs(logits, temperature, gaps, gap, lost)


def _as_logs(
    logits: Logits, temperature: Array, gaps: Array, gap: Array, lost: Array
) -> tuple[Array, Array]:
    """The two results from gaps (n,), and gaps in scales and 1 - gamma, (n, W) each.

    What the nodes leave out of the normal mass matters where little is kept; the label
    of k classes keeps at least 1 / k.
    """
    xp = logits.xp
    k = logits.n_classes
    outside = 1.0 - float(_quadrature(k).weights.sum())
    missing = xp.where((lost >= 0.5) & (gap <= CUT_FROM), lost + outside, lost)
    kept = xp.log1p(-clip(missing, 0.0, 1.0 - 1.0 / k, xp))
    pairs = xp.concat([kept[:, :, None], safe_log(lost, xp)[:, :, None]], axis=2)
    profile = xp.reshape(pairs, (-1, 2 * gap.shape[1]))
    return _gumbel_log_odds(logits, gaps, temperature), profile


def _gumbel_log_odds(logits: Logits, gaps: Array, temperature: Array) -> Array:
    """-log sum over the other classes of exp(-d_i / temperature), (n,), taken from the
    gap.

    The label's own term is cut to exp(0) and taken off; the runner-up's is exp(0) too,
    so nothing cancels.
    """
    xp = logits.xp
    alone = gaps >= MAX_MARGIN
    tail = logits.tail
    base = xp.where(alone, 0.0, gaps)
    beyond = clip(logits.margins - base[:, None], 0.0, MAX_MARGIN, xp)
    total = xp.sum(xp.exp(beyond / -temperature), axis=1) - 1.0
    if tail is not None:
        total = total + tail.count * np.exp(
            np.maximum(tail.margin - base, 0.0) / -temperature
        )
    return xp.where(alone, xp.inf, base / temperature - safe_log(total, xp))


def _near_losses(logits: Logits, gap: Array, scales: Array) -> Array:
    """integral of phi (1 - survival) as far right as it is known, (n, W).

    Beyond FAR_FROM it may be anything.
    """
    xp = logits.xp
    rule = _quadrature(logits.n_classes)
    log_of_top, nodes, weights = (
        constant(table, logits.values)
        for table in (rule.log_of_top, rule.nodes, rule.weights)
    )
    logs = _log_products(logits, scales, rule) - log_of_top
    if logits.tail is not None:
        margin = _tail_margins(logits.tail, scales)[:, :, None]
        logs = logs + logits.tail.count[:, None, None] * log_ndtr(nodes + margin, np)
    lost = (1.0 - xp.exp(xp.clip(logs, None, 0.0))) * weights
    left_out = (gap[:, :, None] > CUT_FROM) & (nodes + 0.5 * gap[:, :, None] > BUMP)
    return xp.sum(xp.where(left_out, xp.zeros_like(lost), lost), axis=2)


def _log_products(logits: Logits, scales: Array, rule: Quadrature) -> Array:
    """`gaussian.log_products` at several scales, (n, W, K)."""
    xp = logits.xp
    n_scales = scales.shape[0]
    if logits.is_traced:  # one graph for all scales
        units = logits.margins[:, None, :] / scales[None, :, None]
        t = (
            xp.clip(
                xp.reshape(units, (-1, logits.n_columns)) * (2.0 / REACH), None, 2.0
            )
            - 1.0
        )
        products = contract(moments_of(t, xp), constant(rule.series, t), xp)
        return xp.reshape(products, (-1, n_scales, rule.nodes.size))
    by_scale = [log_products(logits, scales[k, ...], rule) for k in range(n_scales)]
    return xp.stack(by_scale, axis=1)


def _sum_rival_chances(logits: Logits, scales: Array, gap: Array) -> Array:
    """sum of Phi(-d_i / sqrt 2) over all classes but the label, (n, W).

    The label is the class that lies less than half of the gap below the top.
    """
    xp = logits.xp
    units = xp.clip(logits.margins[:, None, :] / scales[None, :, None], None, NO_CHANCE)
    chance = ndtr(units * -ROOT_HALF, xp)
    rivals = units > 0.5 * gap[..., None]
    total = xp.sum(xp.where(rivals, chance, xp.zeros_like(chance)), axis=-1)
    if logits.tail is None:
        return total
    hidden = ndtr(_tail_margins(logits.tail, scales) * -ROOT_HALF, np)
    return total + logits.tail.count[:, None] * hidden


def _tail_margins(tail: Tail, scales: Array) -> Array:
    """How far the classes without a column lie below the label, in scales, (n, W)."""
    return np.minimum(tail.margin[:, None] / scales, NO_CHANCE)


def _overtaken_by_any(sums: Array, gap: Array, xp: Namespace) -> Array:
    """1 - gamma from the sum of the rivals' probabilities, which counts twice what two
    do at once.

    The rivals are taken for `count` equal ones at the gap, with the same sum: exact
    where they are equal, and where there is one. Where the label's own noise is down
    they overtake it together, which matters only while the gap is not far beyond what
    `count` normal deviates reach.
    """
    one = ndtr(gap * -ROOT_HALF, xp)
    crowded = (sums > CROWDED * one) & (gap < CROWDED_UP_TO)
    return xp.where(crowded, _overtaken_together(sums, one, gap, xp), sums)


def _overtaken_together(sums: Array, one: Array, gap: Array, xp: Namespace) -> Array:
    """1 - gamma (...,) from the sum of the rivals' probabilities, one of them, and
    the gap.
    """
    count = (sums / xp.clip(one, _TINY, None))[..., None]
    nodes = gap[..., None] * -0.5 + constant(BUMP_NODES, gap)
    survival = count * log_ndtr(nodes + gap[..., None], xp)
    mass = xp.exp(-0.5 * nodes * nodes) * (BUMP_STEP / math.sqrt(2.0 * math.pi))
    return xp.sum(mass * -xp.expm1(survival), axis=-1)


def ndtr(x: Array, xp: Namespace) -> Array:
    """The normal distribution function, with high relative precision in the lower tail.

    >>> float(ndtr(np.array(0.0), np))
    0.5
    """
    y = xp.abs(x) * ROOT_HALF
    tail = 0.5 * erfcx(y) * xp.exp(-y * y)
    return xp.where(x < 0.0, tail, 1.0 - tail)
