"""Partial pooling: coefficients that differ by group, shrunk as much as the groups are alike.

The coefficients of group g are w + v_g, with v_g ~ N(0, 1/tau_f) for feature f. Newton's method on
all of (w, v) alternates with MacKay's rule for the marginal likelihood,
tau_f = sum_g (1 - tau_f V_gf) / sum_g v_gf^2, where V is the diagonal of the inverse Hessian. A
group with few examples gets the common answer, one with many its own. Blocks of common terms can
have a precision in the same way. Several columns of groups add up; they are fitted jointly.

    terms = BinaryTerms(features, hits, offset, weights)        # or SoftmaxTerms(...)
    found = fit_pooled(terms, codes, sizes, n_own=3)            # codes (n, columns), -1: no group
    found.common, found.groups[0]                               # w (c,) and v (groups, 3)
    found.losses_left_out()                                     # (n,) log loss, as if left out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hokical._core.parallel import cut_rows
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.newton import Solution, StopReason, minimize_newton
from hokical._fitting.pooled_arrow import Arrow, ArrowInverse, PooledLayout
from hokical._fitting.pooled_terms import PooledTerms

#: Precisions lie within these bounds; the lower is that of terms which are not shrunk, too.
LEAST_PRECISION, MOST_PRECISION = 1e-2, 1e6
#: Precisions that are fitted start here.
_START = 10.0
#: Rounds of the precisions, which have converged where none moves by more than this factor, and
#: the steepest slope from which they are extrapolated, by no more than the last factor; ...
_ROUNDS, _STILL, _STEEPEST, _LONGEST = 20, 1.1, 0.9, 30.0
#: ... what Newton's last step promises at most, per example, in a round and at the end.
_LOOSE, _TIGHT, _MAX_ITER = 1e-8, 5e-13, 100
#: What the data decide of a block about which they say nothing, but for rounding.
_NOTHING = 1e-9
#: Coefficients of the groups of all columns but the largest: their Hessian is made whole.
_MOST_DENSE = 2000
#: Numbers of Hessian blocks that are held at a time.
_HELD = 1 << 22


@dataclass(frozen=True, eq=False)
class PooledFit:
    """The result of `fit_pooled`.

    `common` (c,); `groups`, a table (groups, own features) for each column, to be added to the
    first of `common`; and the `precision` (parameters,) of everything, in the order of
    `solution.x`: the common terms, then the columns from the one of fewest groups to that of most.
    """

    common: FloatArray
    groups: tuple[FloatArray, ...]
    precision: FloatArray
    solution: Solution[FloatArray]
    _problem: _Problem
    _rows: IntArray

    def losses_left_out(self) -> FloatArray:
        """The log loss (n,) of each example, approximately as if it had been left out of the fit.

        The precisions stay those of the whole. See `leave_one_out` for the formula.
        """
        with one_blas_thread():
            sorted_losses = self._problem.losses_left_out(self.solution.point)
        found = np.empty(self._rows.size)
        found[self._rows] = sorted_losses
        return found


def fit_pooled(
    terms: PooledTerms,
    codes: IntArray,
    sizes: Sequence[int],
    n_own: int,
    *,
    own_blocks: Sequence[int] | None = None,
    common_blocks: Sequence[int] | None = None,
) -> PooledFit:
    """Fit common coefficients and those of groups, with precisions by marginal likelihood.

    Parameters
    ----------
    terms : the likelihood, with one row per example
        Coefficients of 0 are the answer towards which everything is shrunk: put what is known
        before the fit into the offset. Weights count examples; divide relative ones first.
    codes : (n, columns)
        The group of each example in each column, from 0; -1 where it is not known. No columns,
        shape (n, 0), fit the common terms alone.
    sizes : the number of groups of each column
    n_own : how many features, the first ones, have coefficients by group
    own_blocks : (n_own,), optional
        Features with the same number share a precision, in each column; by default each has its
        own.
    common_blocks : (features,), optional
        The same for the common terms; those with -1, by default all, keep the least precision.
    """
    if not fit_densely(sizes, n_own):
        raise ValueError(
            f"`groups` may have one column of very many groups; got columns of {list(sizes)}. "
            f"Merge the rare groups of all but one, to {_MOST_DENSE // n_own} in all."
        )
    cells, starts, rows = _sort_cells(codes)
    layout = PooledLayout(terms.n_features, n_own, cells, tuple(sizes))
    blocks = _number_blocks(layout, own_blocks, common_blocks)
    problem = _Problem(terms.take(rows), layout, starts, np.empty(0))
    fitted = blocks >= 0
    precision = np.where(fitted, _START, LEAST_PRECISION)
    x, n_iter, still = np.zeros(layout.size), 0, not fitted.any()
    tried: list[tuple[FloatArray, FloatArray]] = []
    with one_blas_thread():
        while not still and len(tried) < _ROUNDS:
            found = replace(problem, precision=precision).solve(x, _LOOSE)
            x, n_iter = found.x, n_iter + found.n_iter
            tried.append((precision, _update(found.point.inverse(), x, precision, blocks)))
            still = bool((np.abs(np.log(tried[-1][1] / precision)) <= np.log(_STILL)).all())
            precision = tried[-1][1] if still else _extrapolate(*tried[-2:])
        problem = replace(problem, precision=precision)
        found = problem.solve(x, _TIGHT)
    reason = found.reason if still or not found.converged else StopReason.MAX_ITER
    found = replace(found, n_iter=n_iter + found.n_iter, reason=reason)
    tables = tuple(layout.tables(found.x))
    return PooledFit(found.x[: layout.n_common], tables, precision, found, problem, rows)


def fit_densely(sizes: Sequence[int], n_own: int) -> bool:
    """Whether all columns but the largest have few enough groups."""
    return n_own * (sum(sizes) - max(sizes, default=0)) <= _MOST_DENSE


def _sort_cells(codes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Combinations of groups (cells, columns), where their rows start, and the rows in order."""
    if codes.shape[1]:
        cells, cell = np.unique(codes, axis=0, return_inverse=True)
        cell = cell.reshape(-1)
    else:
        cells, cell = np.zeros((1, 0), np.int64), np.zeros(len(codes), np.int64)
    rows = np.argsort(cell, kind="stable")
    return cells, np.append(0, np.cumsum(np.bincount(cell, minlength=len(cells)))), rows


def _number_blocks(
    layout: PooledLayout, own: Sequence[int] | None, common: Sequence[int] | None
) -> IntArray:
    """The number of the precision of each parameter (size,); -1 where that is not fitted."""
    first = np.full(layout.n_common, -1) if common is None else np.array(common, np.int64)
    each = np.arange(layout.n_own) if own is None else np.array(own, np.int64)
    parts, used = [first], int(first.max(initial=-1)) + 1
    for column in layout.order:
        parts.append(np.tile(used + each, layout.sizes[column]))
        used += int(each.max()) + 1
    return np.concatenate(parts)


def _update(
    inverse: ArrowInverse, x: FloatArray, precision: FloatArray, blocks: IntArray
) -> FloatArray:
    """MacKay's rule: what the data decide of a block, over the sum of squares there."""
    fitted = blocks >= 0
    where, count = blocks[fitted], int(blocks.max()) + 1
    free = 1.0 - precision[fitted] * inverse.diagonal()[fitted]
    decided = np.bincount(where, np.maximum(free, 0.0), count)
    squares = np.bincount(where, x[fitted] ** 2, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(decided > _NOTHING, decided / squares, np.inf)
    found = np.clip(found, LEAST_PRECISION, MOST_PRECISION)
    updated = precision.copy()
    updated[fitted] = found[where]
    return updated


def _extrapolate(*tried: tuple[FloatArray, FloatArray]) -> FloatArray:
    """The next precisions: where a secant through the last two rounds meets the fixed point.

    Where groups do not differ, the rule alone creeps towards infinity.
    """
    (before, then), (now, updated) = np.log(tried[0]), np.log(tried[-1])
    moved = np.where(now == before, 1.0, now - before)
    slope = np.clip(np.where(now == before, 0.0, (updated - then) / moved), 0.0, _STEEPEST)
    longest = np.maximum(np.log(_LONGEST), np.abs(updated - now))
    found = tried[-1][0] * np.exp(np.clip((updated - now) / (1.0 - slope), -longest, longest))
    return np.asarray(np.clip(found, LEAST_PRECISION, MOST_PRECISION))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The penalised loss per example of sorted rows."""

    terms: PooledTerms
    layout: PooledLayout
    starts: IntArray
    precision: FloatArray

    def solve(self, start: FloatArray, tol: float) -> Solution[FloatArray]:
        return minimize_newton(
            self.evaluate, start, _Point.newton_step, tol=tol, max_iter=_MAX_ITER
        )

    @property
    def total(self) -> float:
        return float(self.terms.weights.sum())

    def evaluate(self, x: FloatArray) -> _Point:
        loss, by_cell, state = self.terms.evaluate(self.layout.coefficients(x), self.starts)
        gradient = self.layout.gradient(by_cell) + self.precision * x
        value = loss + 0.5 * float(self.precision @ (x * x))
        return _Point(value / self.total, gradient / self.total, state, self)

    def cell_parts(self) -> list[slice]:
        """Parts of the cells whose blocks fit into memory."""
        held = max(self.layout.n_common, self.layout.n_dense) * self.layout.n_common
        return cut_rows(len(self.starts) - 1, max(1, _HELD // held))

    def losses_left_out(self, point: _Point) -> FloatArray:
        inverse, parts = point.inverse(), []
        for cells in self.cell_parts():
            starts = self.starts[cells.start : cells.stop + 1]
            covariance = inverse.covariance(cells)
            parts.append(self.terms.losses_left_out(point.state, starts, covariance))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class _Point:
    """The problem at one place."""

    value: float
    gradient: FloatArray
    state: Any
    problem: _Problem

    def inverse(self) -> ArrowInverse:
        """The inverse Hessian of the penalised loss of all examples."""
        problem, arrow = self.problem, Arrow(self.problem.layout)
        for cells in problem.cell_parts():
            starts = problem.starts[cells.start : cells.stop + 1]
            arrow.add(cells, problem.terms.curvature(self.state, starts))
        return arrow.factor(problem.precision)

    def newton_step(self) -> tuple[FloatArray, bool]:
        return -self.inverse().solve(self.gradient * self.problem.total), True
