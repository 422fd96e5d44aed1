"""Exact stability under uniform noise: a piecewise polynomial, integrated piece by
piece.

With margins d_i = (top - z_i)/width, gamma = integral over u in [0, 1] of prod_i min(u
+ d_i, 1). Classes with d_i >= 1 drop out; the others join the product one after the
other as u falls below 1 - d_i. Between two such points the integrand is a polynomial,
for which Gauss-Legendre with enough nodes is exact.

The number of operations per row is fixed. The NEAREST rivals are taken in rising order.
With j of them active the product falls by exp(-j x) at least over a way x, and the
piece is cut at exp(-21). Below the last of them all classes are multiplied, at the
nodes of a composite rule down to there.

Exact to rounding up to 21 classes, and to 1e-10 where no more than NEAREST rivals
matter. Where more do, off by 3e-8 on real logits, and by up to 5e-7 if hundreds of
classes all but tie: the rule sees no bend of the product between two of its nodes. The
compiled form is off by 2e-8. The entries of a distribution are off by 1e-6 at most.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hokical._core.arrays import Array, FloatArray, Namespace
from hokical._core.logits import Logits, by_blocks
from hokical._core.runtime import has_kernels, memoize
from hokical._core.special import constant, horner
from hokical.stability.families import (
    NARROWEST,
    WIDEST,
    Finite,
    Noise,
    register_family,
)
from hokical.stability.gaussian import Gaussian


class _Panels(NamedTuple):
    """A composite rule: Gauss-Legendre nodes of each panel, and panels."""

    order: int
    n_panels: int


#: Rivals that join the product one after the other: more would cost more than they tell.
NEAREST = 64
#: Logarithm of a product: exp(-21) is 8e-10, below what is claimed.
CUT_OFF = 21.0
#: Product of the nearest: below it, what all the others take is not looked at.
NEGLIGIBLE = 1e-9
#: Newton's steps to the end of the last piece. Any end beyond the true one is right.
_END_STEPS = 6
#: Nodes of a piece: exact for the polynomial of 31 rivals.
_ORDER = 16
#: Panels of the last piece for gamma: few and long, as it is smooth.
_LONG = _Panels(order=16, n_panels=16)
#: Panels of the last piece for the shares: short, as a class wins in a part of one.
_SHORT = _Panels(order=4, n_panels=64)
#: Added to nodes, in widths, so that nothing is divided by 0.
_TINY = 1e-30
#: Halvings of the distance from where a tail joins: 2^-26 is below what is claimed.
_HALVINGS = 26
#: Nodes between two halvings.
_HALF_ORDER = 8


def stability(logits: Logits, width: Array) -> Array:
    """gamma of every row, (n,) float64: that of the columns, less what the tail
    takes.
    """
    fused = Uniform.fused_stability(logits, width)
    if fused is not None:
        return fused
    n_rivals = min(logits.n_columns - 1, NEAREST)
    recomputed = logits.backend.kernels.recompute(
        portable_stability, logits, width, n_rivals * n_rivals
    )
    if recomputed is not None:
        return recomputed
    if has_kernels(logits):
        gamma = by_blocks(lambda block: _compiled_stability(block, width), logits)
    else:
        gamma = portable_stability(logits, width)
    tail: Any = logits.tail
    if tail is None:
        return gamma
    rows = np.flatnonzero((tail.scaled_margin(width) < 1.0) & (tail.count > 0.0))
    if rows.size:  # which the tail reaches
        per_row = 3 * _HALVINGS * _HALF_ORDER
        gamma[rows] -= by_blocks(
            lambda b: _taken_share(b, width), logits.take(rows), per_row
        )
    return np.clip(gamma, 0.0, 1.0)


def _compiled_stability(logits: Logits, width: float) -> FloatArray:
    from hokical.stability.kernels import uniform_rows

    margins = np.ascontiguousarray(np.minimum(logits.margins / width, 1.0))
    margins.sort(axis=1)
    out = np.zeros((logits.n_rows, 1))
    uniform_rows(margins, *_gauss_rules(), out)
    return np.clip(out[:, 0], 0.0, 1.0)


def portable_stability(logits: Logits, width: Array) -> Array:
    """`stability` over the columns alone, for arrays of any library."""
    if logits.n_columns == 1:  # the best class alone, of a `TopK`
        return logits.xp.ones_like(logits.top)

    def work(block: Logits) -> Array:
        xp = block.xp
        near, _, mass = _pieces(block, width)
        if block.is_numpy and mass.shape[1] == 1:
            # NumPy would add one column in another order than several.
            total = np.concatenate([mass, mass], axis=1).sum(axis=0)[:1]
        else:
            total = xp.sum(mass, axis=0)
        gamma = near[:, 0] + total
        if _is_crowded(block):
            gamma = gamma + _crowded_part(block, width, near)
        return xp.clip(gamma, 0.0, 1.0)

    per_class = min(_ORDER, logits.n_columns // 2 + 1)
    return by_blocks(work, logits, per_class * logits.n_columns)


def distribution(logits: Logits, width: Array) -> Array:
    """pi of every row and class, (n, classes), exactly 0 for classes that cannot win.

    pi_k = integral over [0, 1 - d_k] of P(u)/(u + d_k) du, P the product over all
    classes.
    """
    if not has_kernels(logits):
        return portable_distribution(logits, width)
    from hokical.stability.kernels import uniform_rows

    def work(block: Logits) -> FloatArray:
        margins = np.clip(block.margins / width, 0.0, 1.0)
        order = np.argsort(margins, axis=1)
        shares = np.zeros_like(margins, order="C")
        out = np.empty_like(margins, order="C")
        uniform_rows(
            np.take_along_axis(margins, order, axis=1), *_gauss_rules(), shares
        )
        np.put_along_axis(out, order, shares, axis=1)
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    return by_blocks(work, logits, 4 * logits.n_columns)


def portable_distribution(logits: Logits, width: Array) -> Array:
    """`distribution` for arrays of any library."""

    def work(block: Logits) -> Array:
        xp = block.xp
        margins = xp.clip(block.margins / width, None, 1.0)
        near, nodes, mass = _pieces(block, width)
        nodes = _turn(nodes, xp)
        mass = _turn(mass, xp)
        pi = xp.where(margins == 0.0, near[:, :1], xp.zeros_like(margins))
        for start in range(0, nodes.shape[1], _ORDER):
            chunk = slice(start, min(start + _ORDER, nodes.shape[1]))
            u = nodes[:, chunk][:, None, :] + _TINY
            reached = u + margins[:, :, None]
            share = mass[:, chunk][:, None, :] * u / reached
            pi = pi + xp.sum(xp.where(reached < 1.0, share, 0.0), axis=2)
        if _is_crowded(block):
            pi = pi + _crowded_shares(block, width, near, margins)
        return pi / xp.sum(pi, axis=1, keepdims=True)

    per_class = _SHORT.n_panels if _is_crowded(logits) else _ORDER
    return by_blocks(work, logits, per_class * logits.n_columns)


def _pieces(logits: Logits, width: Array) -> tuple[Array, Array, Array]:
    """The nearest margins (n, m), and nodes u and mass (Q, n) of the pieces between
    them.

    The mass is weight times the product over the rivals. Where all rivals are among the
    nearest, the pieces go down to 0; the one above the first rival, of length near[:,
    0], is left out.
    """
    xp = logits.xp
    count = min(logits.n_columns - 1, NEAREST)
    ordered = xp.sort(logits.margins / width, axis=1)
    near = xp.clip(ordered[:, 1 : count + 1], None, 1.0)
    across = _turn(near, xp)  # (m, n): rows innermost, for long loops
    high = 1.0 - across
    last = high[count - 1 :, :] if _is_crowded(logits) else xp.zeros_like(high[:1, :])
    active = logits.from_host(np.arange(1.0, count + 1.0))[:, None]
    low = xp.maximum(xp.concat([high[1:, :], last], axis=0), high - CUT_OFF / active)
    x, w = (
        constant(table, near) for table in unit_rule(min(_ORDER, count // 2 + 1), 1)
    )
    length = (high - low)[:, None, :]
    nodes = low[:, None, :] + length * x[None, :, None]
    mass = length * w[None, :, None]
    room = np.empty_like(mass) if logits.is_numpy else None
    for i in range(count):
        if room is not None:  # rival i is below 1 from its own piece on
            mass[i:] *= np.add(nodes[i:], across[i], out=room[i:])
        else:
            mass = mass * xp.clip(nodes + across[i : i + 1, None, :], None, 1.0)
    nodes = _join_pieces(nodes, count, logits)
    return near, nodes, _join_pieces(mass, count, logits)


def _join_pieces(table: Array, count: int, logits: Logits) -> Array:
    """The nodes of all pieces one after the other, (count * nodes, n), from (count,
    nodes, n).
    """
    xp = logits.xp
    if logits.is_traced:  # torch 2.11 exports no reshape of so many rows
        pieces = [table[i, :, :] for i in range(count)]
        return xp.concat(pieces, axis=0)
    return xp.reshape(table, (count * table.shape[1], -1))


def _turn(table: Array, xp: Namespace) -> Array:
    """Rows for columns; NumPy's in the usual order, as sums depend on it."""
    turned = xp.permute_dims(table, (1, 0))
    return np.ascontiguousarray(turned) if xp is np else turned


def _is_crowded(logits: Logits) -> bool:
    """Whether there are more rivals than the nearest."""
    return logits.n_columns - 1 > NEAREST


def _crowded_part(logits: Logits, width: Array, near: Array) -> Array:
    """The integral below the last of the nearest, (n,); only for rows in which it
    counts.
    """
    xp = logits.xp
    if logits.is_traced:
        return _last_integral(logits, width, near)
    left = xp.prod(1.0 - near[:, NEAREST - 1 :] + near, axis=1)
    left = xp.where(near[:, NEAREST - 1] < 1.0, left, xp.zeros_like(left))
    counts = logits.to_host(left > NEGLIGIBLE)
    if not counts.any():
        return xp.zeros_like(left)
    rows = logits.from_host(np.flatnonzero(counts))
    integrals = _last_integral(logits.take(counts), width, xp.take(near, rows, axis=0))
    padded = xp.concat([integrals, xp.zeros_like(integrals[:1])], axis=0)
    # Row i takes its number from among the rows that count, the others the zero behind.
    positions = np.where(counts, np.cumsum(counts) - 1, np.count_nonzero(counts))
    return xp.take(padded, logits.from_host(positions), axis=0)


def _last_integral(logits: Logits, width: Array, near: Array) -> Array:
    xp = logits.xp
    margins = xp.clip(logits.margins / width, None, 1.0)
    _, length, _, product = _last_piece(margins, near, _LONG, xp)
    weights = constant(unit_rule(*_LONG)[1], near)
    return xp.sum(length * weights * product, axis=1)


def _crowded_shares(logits: Logits, width: Array, near: Array, margins: Array) -> Array:
    """What every class (n, classes) wins below the last of the nearest.

    Class k wins only up to 1 - d_k, which lies within a panel: of the cubic through the
    four nodes of the panel that part is integrated.
    """
    xp = logits.xp
    order, panels = _SHORT
    low, length, nodes, product = _last_piece(margins, near, _SHORT, xp)
    size = length[:, :, None] / float(panels)
    starts = low[:, :, None] + size * constant(np.arange(float(panels)), near)
    covered = xp.clip((1.0 - margins[:, :, None] - starts) / (size + _TINY), 0.0, 1.0)
    total = xp.zeros_like(margins)
    for q, powers in enumerate(_partial_weights().tolist()):
        u = nodes[:, q::order][:, None, :] + _TINY
        rivals = product[:, q::order][:, None, :] * u
        rivals = rivals / xp.clip(u + margins[:, :, None], None, 1.0)
        weight = horner(powers[::-1], covered) * covered
        total = total + xp.sum(size * weight * rivals, axis=2)
    return total


def _last_piece(
    margins: Array, near: Array, panels: _Panels, xp: Namespace
) -> tuple[Array, Array, Array, Array]:
    """[0, 1 - d], d the last of the nearest, as far down as it counts, with all classes
    in it.

    Where it begins and its length (n, 1); nodes u, and there the product over the
    rivals, (n, Q).
    """
    last = near[:, NEAREST - 1 :]
    # How far below u = 1 the product has surely fallen by exp(-CUT_OFF): at 1 - x it is
    # at most exp(-sum_i (x - d_i)+), whose exponent is convex in x, so that Newton's
    # steps from the right stay on the right.
    x = xp.clip(last + CUT_OFF / NEAREST, None, 1.0)
    for _ in range(_END_STEPS):
        reach = xp.clip(x - margins, 0.0, None)
        excess = xp.sum(reach, axis=1, keepdims=True) - x - CUT_OFF
        active = xp.astype(reach > 0.0, xp.float64)
        count = xp.sum(active, axis=1, keepdims=True) - 1.0
        x = xp.where(excess > 0.0, x - excess / xp.clip(count, 1.0, None), x)
    length = xp.maximum(x, last) - last
    low = 1.0 - last - length
    nodes = low + length * constant(unit_rule(*panels)[0], near)
    products = []
    for start in range(0, panels.order * panels.n_panels, _ORDER):
        u = nodes[:, start : start + _ORDER]
        product = xp.prod(
            xp.clip(u[:, :, None] + margins[:, None, :], None, 1.0), axis=2
        )
        # The label's own factor, u, is among them.
        products.append(product / xp.clip(u, _TINY, None))
    return low, length, nodes, xp.concat(products, axis=1)


@memoize
def unit_rule(order: int, panels: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [0, 1], cut into equal panels."""
    x, w = np.polynomial.legendre.leggauss(order)
    nodes = (np.arange(panels)[:, None] + 0.5 * (x + 1.0)) / panels
    return nodes.ravel(), np.tile(0.5 * w / panels, panels)


@memoize
def _partial_weights() -> FloatArray:
    """Weights (4, 4) of the nodes of a short panel for its part [0, c], by powers c,
    c^2, ...
    """
    x, _ = unit_rule(_SHORT.order, 1)
    lagrange = np.linalg.inv(np.vander(x, increasing=True))
    return np.asarray((lagrange / np.arange(1.0, x.size + 1.0)[:, None]).T)


@memoize
def _gauss_rules() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights (3, 10) of the rules of 2, 4 and 10 nodes on [0, 1], padded
    with zeros.
    """
    nodes = np.zeros((3, 10))
    weights = np.zeros((3, 10))
    for k, order in enumerate((2, 4, 10)):
        nodes[k, :order], weights[k, :order] = unit_rule(order, 1)
    return nodes, weights


def _taken_share(logits: Logits, width: float) -> FloatArray:
    """integral over u in [0, joined] of P(u) (1 - (1 - y)^count), y = joined - u, (n,).

    P is the product over the seen classes, and the tail joins at `joined`. The other
    factor changes on the scale of 1/count at the upper end, so the pieces get shorter
    towards it.
    """
    tail: Any = logits.tail
    joined = 1.0 - tail.scaled_margin(width)[:, None]
    y, weights = _graded_rule()
    y = y * joined
    weights = weights * joined
    product = -np.expm1(tail.count[:, None] * np.log1p(-np.minimum(y, 1.0 - 1e-16)))
    for column in logits.margins.T[1:]:
        product *= np.minimum(joined - y + column[:, None] / width, 1.0)
    return np.asarray((product * weights).sum(axis=1))


@memoize
def _graded_rule() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1], with pieces that halve towards 0."""
    x, w = unit_rule(_HALF_ORDER, 1)
    borders = np.concatenate([[0.0], 0.5 ** np.arange(_HALVINGS, -1, -1)])
    length = np.diff(borders)[:, None]
    return (borders[:-1, None] + length * x).ravel(), (length * w).ravel()


@register_family
@dataclass(frozen=True)
class Uniform(Noise):
    """Noise spread evenly over [`low`, `high`]; only `high - low` changes a result.

    >>> from hokical import label_stability
    >>> label_stability([[2.0, 0.0]], Uniform(0.0, 4.0)).round(4).tolist()
    [0.875]
    """

    family: ClassVar[str] = "uniform"
    unit_deviation: ClassVar[float] = 1.0 / math.sqrt(12.0)
    is_default: ClassVar[bool] = True
    kernel: ClassVar[str | None] = "uniform_stability"
    low: Finite
    high: Finite

    exact_stability = staticmethod(stability)
    exact_distribution = staticmethod(distribution)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not NARROWEST <= self.high - self.low <= WIDEST:
            raise ValueError(
                f"`high` must lie above `low`, by {NARROWEST:g} to {WIDEST:g}; got "
                f"low={self.low!r}, high={self.high!r}."
            )

    @property
    def width(self) -> float:
        return self.high - self.low

    @classmethod
    def of_width(cls, width: float) -> Self:
        return cls(-0.5 * width, 0.5 * width)

    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        return self.low + (self.high - self.low) * uniform

    def unbounded(self) -> Noise:
        return Gaussian.make_unchecked(self.width * self.unit_deviation)
