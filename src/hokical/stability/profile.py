"""How surely does a label survive? Log-chances of survival and of loss, precise at both ends.

Most labels of a good classifier are so stable that 1 - gamma cannot be had from gamma: it must be
computed for itself. Under Gaussian noise, with margins d_i in units of its scale,

    1 - gamma = integral phi(u) (1 - prod_i Phi(u + d_i)) du,

where the integrand lives around u = -d/2, d the gap to the runner-up: farther right the true
value is less than the error of the series in `gaussian`, so those nodes are left out. Beyond a gap
of 7.5 scales the sum of the chances Phi(-d_i / sqrt 2) that each class overtakes the label takes
over, less what rivals do at once, as if they were equal ones. All in all log(1 - gamma) is off by
at most 4e-4 where 1 - gamma > 1e-3; and below that by 0.01 with ten classes, 0.1 with 1000 and 0.3
with 20,000, where many rivals lie just behind the first.

Under Gumbel noise both chances have closed forms, and their ratio is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks
from hokical.stability.gaussian import (
    COMPILE_FROM,
    PLAIN_UP_TO,
    REACH,
    TAIL_LIMIT,
    Rule,
    gaussian_rule,
    log_products,
)

FloatArray = NDArray[np.float64]

#: Gaps, in scales, from which nodes are left out, and from which rivals are counted one by one.
CUT_FROM, FAR_FROM = 4.0, 7.5
#: How far right of -gap/2 the integrand still matters: four of its standard deviations.
BUMP = 3.0
#: Nodes around -gap/2 for the rows beyond FAR_FROM, and the gap beyond which rivals never meet.
BUMP_STEP = 0.25
BUMP_NODES = np.arange(-5.0, 5.0 + BUMP_STEP / 2, BUMP_STEP)
CROWDED_UP_TO = 14.0
#: Rivals whose chance is exp(-40) of the runner-up's are not looked at: d^2 > gap^2 + 4 * 40.
NEGLIGIBLE = 160.0


@singledispatch
def log_odds_and_profile(
    logits: Logits, temperature: float, scales: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """The softmax's log-odds at a temperature, and log gamma and log(1 - gamma) at several scales.

    Parameters
    ----------
    logits : Logits
    temperature : float
        Scale of the Gumbel noise.
    scales : sequence of W floats
        Scales of the Gaussian noise.

    Returns
    -------
    log_odds : (n,), log(gamma / (1 - gamma)) under Gumbel noise; inf if only one class is possible
    profile : (n, 2 W), under Gaussian noise: log gamma, log(1 - gamma) at the first scale, ...
    """
    log_odds = np.empty(logits.n_rows)
    profile = np.empty((logits.n_rows, 2 * len(scales)))

    def work(rows: slice) -> None:
        gaps = runner_up_gaps(logits, rows)
        log_odds[rows] = gumbel_log_odds(logits, rows, gaps, temperature)
        for k, scale in enumerate(scales):
            kept, lost = gaussian_log_chances(logits, rows, gaps, scale)
            profile[rows, 2 * k], profile[rows, 2 * k + 1] = kept, lost

    nodes = gaussian_rule(-TAIL_LIMIT).nodes.size
    for_row_blocks(work, logits.n_rows, rows_per_block(max(logits.n_columns, 4 * nodes)))
    return log_odds, profile


def runner_up_gaps(logits: Logits, rows: slice) -> FloatArray:
    """How far the best other class lies below the label, (rows,); inf where there is none."""
    tail = logits.tail
    if tail is not None:
        seen = logits.runner_up_gaps(rows) if logits.n_columns > 1 else np.inf
        return np.minimum(seen, tail.margin[rows])
    if _plain(logits):
        with np.errstate(over="ignore"):  # 1e308 above -1e308: as good as impossible
            return logits.runner_up_gaps(rows)
    from hokical.stability.profile_kernels import runner_up

    out = np.empty(rows.stop - rows.start)
    runner_up(logits.block(rows), logits.top[rows], out)
    return out


def gumbel_log_odds(
    logits: Logits, rows: slice, gaps: FloatArray, temperature: float
) -> FloatArray:
    """-log sum over the other classes of exp(-d_i / temperature), (rows,), taken from the gap."""
    alone = gaps == np.inf
    base = np.where(alone, 0.0, gaps)
    others = _plain_rest if _plain(logits) else _compiled_rest
    total = others(logits, rows, base, temperature)
    if logits.tail is not None:
        beyond = logits.tail.margin[rows] - base
        total += logits.tail.count[rows] * np.exp(np.maximum(beyond, 0.0) / -temperature)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(alone, np.inf, base / temperature - np.log(total))


def _plain_rest(logits: Logits, rows: slice, gaps: FloatArray, temperature: float) -> FloatArray:
    """sum of exp(-(d_i - gap)/temperature) over the columns but the label's, (rows,)."""
    beyond = np.maximum(logits.margins(rows) - gaps[:, None], 0.0)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(beyond / -temperature).sum(axis=1) - 1.0)


def _compiled_rest(logits: Logits, rows: slice, gaps: FloatArray, temperature: float) -> FloatArray:
    """The same through the compiled kernel."""
    from hokical.stability.profile_kernels import rest_sums

    out = np.empty(gaps.size)
    rest_sums(logits.block(rows), logits.top[rows], gaps, 1.0 / temperature, out)
    return out


def gaussian_log_chances(
    logits: Logits, rows: slice, gaps: FloatArray, scale: float
) -> tuple[FloatArray, FloatArray]:
    """log gamma and log(1 - gamma) of the rows, (rows,) each."""
    with np.errstate(over="ignore"):
        gap = gaps / scale
    last = np.where(gap > CUT_FROM, BUMP - 0.5 * gap, np.inf)
    plain = _plain(logits) or logits.tail is not None
    kept, lost = (_plain_chances if plain else _compiled_chances)(logits, rows, last, scale)
    far = np.flatnonzero(gap > FAR_FROM)
    if far.size:
        sums = overtaking_sums(logits, rows, far, gap[far], scale)
        lost[far] = overtaken_by_any(sums, gap[far])
    safe = np.minimum(lost, 0.5)
    with np.errstate(divide="ignore"):  # no rival within 50 scales: -inf
        return np.where(lost < 0.5, np.log1p(-safe), np.log(kept)), np.log(lost)


def _plain_chances(logits: Logits, rows: slice, last: FloatArray, scale: float) -> FloatArray:
    """integral of phi survival, and of phi (1 - survival) up to the node `last`, (2, rows)."""
    rule = gaussian_rule(-TAIL_LIMIT)
    survival = np.exp(np.minimum(_log_survival(logits, rows, scale, rule), 0.0))
    lost = (1.0 - survival) * rule.weights
    lost[rule.nodes > last[:, None]] = 0.0
    return np.stack([(survival * rule.weights).sum(axis=1), lost.sum(axis=1)])


def _compiled_chances(logits: Logits, rows: slice, last: FloatArray, scale: float) -> FloatArray:
    """The same through the compiled kernel."""
    from hokical.stability.profile_kernels import gaussian_chances

    rule = gaussian_rule(-TAIL_LIMIT)
    tables = (rule.nodes, rule.weights, rule.series, rule.own)
    out = np.empty((2, last.size))
    step = 2.0 / (REACH * scale)
    gaussian_chances(logits.block(rows), logits.top[rows], last, step, tables, out)
    return out


def _log_survival(logits: Logits, rows: slice, scale: float, rule: Rule) -> FloatArray:
    """sum of log Phi(u + d_i) over all classes but the label at every node, (rows, K)."""
    total = log_products(logits, rows, scale, rule) - rule.own
    tail = logits.tail
    if tail is not None:
        count, margin = tail.count[rows, None], tail.margin[rows, None]
        total += count * log_ndtr(rule.nodes + np.where(count > 0.0, margin, 0.0) / scale)
    return total


def overtaking_sums(
    logits: Logits, rows: slice, far: NDArray[np.intp], gap: FloatArray, scale: float
) -> FloatArray:
    """sum of Phi(-d_i / sqrt 2) over all classes but the label, for some of the rows, (far,)."""
    if _plain(logits):
        out = _plain_overtaking(logits.margins(rows)[far] / scale, gap)
    else:
        from hokical.stability.profile_kernels import overtaking

        out = np.empty(gap.size)
        overtaking(logits.block(rows), logits.top[rows], far, gap, 1.0 / scale, NEGLIGIBLE, out)
    if logits.tail is not None:
        margin = logits.tail.margin[rows][far] / scale
        out += logits.tail.count[rows][far] * ndtr(-margin / np.sqrt(2.0))
    return out


def overtaken_by_any(sums: FloatArray, gap: FloatArray) -> FloatArray:
    """1 - gamma from the sum of the chances of the rivals, which counts twice what two do at once.

    The rivals are taken for `count` equal ones at the gap, with the same sum: exact where they are
    equal, and where there is one. Where the label's own noise is down they overtake it together,
    which matters only while the gap is not far beyond what `count` normal deviates reach.
    """
    one = ndtr(gap / -np.sqrt(2.0))
    out = sums.copy()
    crowded = np.flatnonzero((sums > 1.001 * one) & (gap < CROWDED_UP_TO))
    if crowded.size:
        count = (sums[crowded] / one[crowded])[:, None]
        nodes = gap[crowded, None] * -0.5 + BUMP_NODES
        survival = count * log_ndtr(nodes + gap[crowded, None])
        mass = np.exp(-0.5 * nodes * nodes) * (BUMP_STEP / np.sqrt(2.0 * np.pi))
        out[crowded] = (mass * -np.expm1(survival)).sum(axis=1)
    return out


def _plain_overtaking(margins: FloatArray, gap: FloatArray) -> FloatArray:
    """The NumPy twin of the compiled kernel. Half the gap tells the label from the others."""
    rivals = margins > 0.5 * gap[:, None]
    return np.asarray(np.where(rivals, ndtr(-margins / np.sqrt(2.0)), 0.0).sum(axis=1))


def _plain(logits: Logits) -> bool:
    """Whether NumPy does the work, by the rule of `gaussian.log_products`."""
    return logits.size < COMPILE_FROM and logits.n_columns <= PLAIN_UP_TO
