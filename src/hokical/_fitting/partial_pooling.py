"""Partial pooling: coefficients that differ by group, shrunk as much as the groups are alike.

The coefficients of group g are w + v_g, with v_g ~ N(0, 1/tau_f) for feature f. Newton's method on
all of (w, v) alternates with MacKay's rule for the marginal likelihood,
tau_f = sum_g (1 - tau_f V_gf) / sum_g v_gf^2, where V is the diagonal of the inverse Hessian. A
group with few examples gets the common coefficients, one with many its own. Blocks of common terms
can have a precision in the same way.

    terms = BinaryTerms(features, hits, offset, weights)        # or SoftmaxTerms(...)
    found = fit_pooled(terms, codes, sizes)                     # codes (n, columns), -1: no group
    found.common, found.groups[0]                               # w (c,) and v (groups, c)
    found.scores_left_out()                                     # of each example, as if left out

Several columns of groups add up; they are fitted jointly. Likelihoods are summed by *cells*, the
combinations of groups that occur: with their second derivatives C, the Hessian has, for two
groups, the sum of C over the cells of both. It is inverted by elimination. If the groups of the
last column are the cells, as those of one column or of a pair are, and T is their precision, the
cells act on the others as if C were C (C + T)^-1 T. Of what is left, the groups of the largest
column do not meet, and have a small block each, so that the cost is linear in their number; those
of the others, and the common terms, have a dense block, the Schur complement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.parallel import cut_rows
from hokical._fitting.newton import Solution, StopReason, minimize_newton
from hokical._fitting.pooled_terms import PooledTerms, take_examples

#: Precisions lie within these bounds; the lower is that of terms which are not shrunk, too.
LEAST_PRECISION, MOST_PRECISION = 1e-2, 1e6
#: Precisions of common terms start at the first, those of groups between the others.
_START, _STARTS = 10.0, (0.3, 1000.0)
#: Rounds of the precisions, which have converged where none moves by more than this factor, and
#: the steepest slope from which they are extrapolated, by no more than the last factor; ...
_ROUNDS, _STILL, _STEEPEST, _LONGEST = 30, 1.25, 0.9, 30.0
#: ... what is expected of the next round, and of Newton's last step, at most, per example.
_LOOSE, _TIGHT, _MAX_ITER = 1e-4, 1e-8, 100
#: What the data decide of a block about which they say nothing, but for rounding.
_NOTHING = 1e-9
#: Coefficients of the groups of all columns but the largest: their Hessian is made whole.
MOST_DENSE = 2000
#: Numbers of covariances of rows that are held at a time.
_HELD = 1 << 20
#: Matrices up to this size are inverted side by side, so many at a time that they stay in a cache:
#: calls of LAPACK would be mostly overhead.
_SMALL, _AT_A_TIME = 12, 512


class TooManyGroupsError(ValueError):
    """The dense block of the Hessian would be too large."""


@dataclass(frozen=True, eq=False)
class PooledFit:
    """The result of `fit_pooled`.

    `common` (c,); `groups`, a table (groups, c) for each column, to be added to it; and the
    `precisions` (1 + columns, c) of the common terms and of those of each column.
    """

    common: FloatArray
    groups: tuple[FloatArray, ...]
    precisions: FloatArray
    solution: Solution[FloatArray]

    def scores_left_out(self) -> FloatArray:
        """Scores (n, ...) of each example, approximately as if it had been left out of the fit.

        The precisions stay those of the whole. See `structured` for the formula.
        """
        found: FloatArray = self.solution.point.scores_left_out()
        return found

    def report(
        self, words: str, losses: dict[str, FloatArray], share: FloatArray, error: float
    ) -> dict[str, Any]:
        """What was fitted, in words, held-out losses (n,) of the candidates, and how it ended."""
        means = {name: float(share @ each) for name, each in losses.items()}
        text = ", ".join(f"{name} {loss:.5f}" for name, loss in means.items())
        return {
            "reason": f"{words} (held-out log loss: {text}; standard error of the gain "
            f"{error:.5f}).",
            "held_out_log_loss": means,
            "converged": self.solution.converged,
            "n_iter": self.solution.n_iter,
        }


def fit_pooled(
    terms: PooledTerms,
    codes: IntArray | None = None,
    sizes: Sequence[int] = (),
    *,
    own_blocks: Sequence[int] | None = None,
    common_blocks: Sequence[int] | None = None,
    start: PooledFit | None = None,
    alike: tuple[float, float] = (0.0, 0.0),
    most_dense: int = MOST_DENSE,
) -> PooledFit:
    """Fit common coefficients and those of groups, with precisions by marginal likelihood.

    Parameters
    ----------
    terms : the likelihood, with one row per example
        Everything is shrunk towards coefficients of 0: put what is known before the fit into the
        offset. Weights count examples; divide relative ones first.
    codes : (n, columns), optional
        The group of each example in each column, from 0; -1 where it is not known. Without them,
        the common terms alone are fitted.
    sizes : the number of groups of each column
    own_blocks : (features,), optional
        Features with the same number share a precision, in each column; by default each has its
        own.
    common_blocks : (features,), optional
        The same for the common terms; those with -1, by default all, keep the least precision.
    start : a fit with the first of the columns, optional
        Its coefficients and precisions are where the search starts.
    alike : (float, float)
        How many groups are known before the fit, and the sum of their squared coefficients, in each
        block: a gamma prior of the precisions.
    most_dense : the most numbers that the dense block may have
    """
    problem = _Problem.from_codes(terms, codes, sizes)
    width, columns = terms.n_features, len(sizes) + 1
    if problem.n_dense * width > most_dense:
        raise TooManyGroupsError(
            f"`groups` may have one column of very many groups; got columns of {list(sizes)}. "
            f"Merge the rare groups of all but one, to {most_dense // width} in all."
        )
    own = np.arange(width) if own_blocks is None else np.array(own_blocks)
    first = np.full(width, -1) if common_blocks is None else np.array(common_blocks)
    each = first.max() + 1 + np.arange(columns - 1)[:, None] * (own.max() + 1) + own
    blocks = np.vstack([first, each])
    free = int(blocks.max()) + 1
    blocks[blocks < 0] = free
    tau = np.append(np.full(free, _START), LEAST_PRECISION)
    tables = [np.zeros((size, width)) for size in (1, *sizes)]
    if start is not None:
        known = [start.common[None], *start.groups]
        tables[: len(known)], tau[blocks[: len(known)]] = known, start.precisions
    x = np.vstack([tables[k] for k in problem.order])
    by_row = np.repeat(blocks[problem.order], problem.sizes, axis=0)
    point = problem.evaluate(x.ravel())
    new = np.unique(blocks[1 if start is None else 1 + len(start.groups) :])
    tau[new] = np.clip(point.moments(by_row.ravel(), tau.size)[new], *_STARTS)
    prior = np.outer(alike, np.append(np.ones(free), 0.0))
    found, tau = _alternate(point, tau, by_row.ravel(), prior)
    parts = np.split(found.x.reshape(-1, width), np.cumsum(problem.sizes)[:-1])
    common, *groups = (parts[k] for k in np.argsort(problem.order))
    return PooledFit(common[0], tuple(groups), tau[blocks], found)


def _alternate(
    point: _Point, tau: FloatArray, blocks: IntArray, prior: FloatArray
) -> tuple[Solution[FloatArray], FloatArray]:
    """The minimum, and the precisions `tau` of the `blocks` (parameters,); the last is fixed."""
    still, tried = tau.size == 1, list[tuple[FloatArray, FloatArray]]()
    while not still and len(tried) < _ROUNDS:
        point = replace(point, precision=tau[blocks])
        found = point.minimize(tol=10.0 * _LOOSE, max_iter=1)
        updated, slope = _update(tau, blocks, found.x, point.inverse.diagonal(), prior)
        tried.append((tau, updated))
        tau, point = _extrapolate(*tried[-2:]), found.point
        expected = np.abs(slope * np.log(tau / tried[-1][0])).sum()
        still = bool((np.abs(np.log(updated / tried[-1][0])) <= np.log(_STILL)).all())
        still &= found.converged and bool(expected <= _LOOSE * point.problem.total)
    found = replace(point, precision=tau[blocks]).minimize(tol=_TIGHT, max_iter=_MAX_ITER)
    reason = found.reason if still or not found.converged else StopReason.MAX_ITER
    return replace(found, n_iter=len(tried) + found.n_iter, reason=reason), tau


def _update(
    tau: FloatArray, blocks: IntArray, x: FloatArray, variance: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """MacKay's rule: what the data decide of a block, over the sum of squares there.

    And the slope of the log marginal likelihood by that of each precision. The `prior` (2, blocks)
    is added to both.
    """
    decided = np.bincount(blocks, np.maximum(1.0 - tau[blocks] * variance, 0.0), tau.size)
    decided, squares = decided + prior[0], np.bincount(blocks, x * x, tau.size) + prior[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(decided > _NOTHING, decided / squares, np.inf)
    found = np.append(np.clip(found[:-1], LEAST_PRECISION, MOST_PRECISION), tau[-1])
    return found, 0.5 * (decided - tau * squares)


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
    """The likelihood as a function of a vector: a row of coefficients for each group.

    The rows are those of one column after the other, by ascending size, the common terms first, as
    those of a column of one group; `sizes` are their numbers, and `order` the columns. `rows`
    (cells, columns) are those of each cell's groups, one past the last for none, and `cell` (n,) is
    the cell of each example; examples are sorted by it, and `places` (n,) are theirs among those
    given.
    """

    terms: PooledTerms
    sizes: IntArray
    order: IntArray
    rows: IntArray
    cell: IntArray
    places: IntArray

    @classmethod
    def from_codes(
        cls, terms: PooledTerms, codes: IntArray | None, sizes: Sequence[int]
    ) -> _Problem:
        counts, common = np.array([1, *sizes]), np.zeros((terms.weights.size, 1), np.int64)
        order = np.argsort(counts, kind="stable")
        codes = (common if codes is None else np.hstack([common, codes]))[:, order]
        places, counts = np.lexsort(codes.T), counts[order]
        codes = codes[places]
        first = np.append(True, (codes[1:] != codes[:-1]).any(axis=1))
        rows = np.where(codes < 0, counts.sum(), np.cumsum(counts) - counts + codes)[first]
        return cls(take_examples(terms, places), counts, order, rows, np.cumsum(first) - 1, places)

    @cached_property
    def total(self) -> float:
        return float(self.terms.weights.sum())

    @cached_property
    def n_rows(self) -> int:
        return int(self.sizes.sum())

    @cached_property
    def own(self) -> IntArray:
        """The cells that have a row of the last column for themselves; none if some share one."""
        last = self.rows[:, -1]
        alone = np.bincount(last, minlength=self.n_rows)[: self.n_rows].max() <= 1
        return np.flatnonzero((last < self.n_rows) & alone & (self.sizes.size > 1))

    @cached_property
    def shared(self) -> IntArray:
        """The rows (cells, columns) of the other columns."""
        return self.rows[:, :-1] if self.own.size else self.rows

    @cached_property
    def n_dense(self) -> int:
        """How many rows the shared columns have but for the last of them."""
        return int(self.sizes[: self.shared.shape[1] - 1].sum())

    @cached_property
    def sums(self) -> Any:
        """The sparse matrix (cells, n) of 0 and 1 that sums examples by cell."""
        return _indicators(self.cell[:, None], len(self.rows))

    @cached_property
    def members(self) -> Any:
        """The same (rows, cells), by group."""
        return _indicators(self.rows, self.n_rows)

    @cached_property
    def meetings(self) -> tuple[Any, Any, Any]:
        """The same by rows of the last shared column, by these and dense ones, by two of them."""
        size, dense = self.n_dense, self.shared[:, :-1]
        last, n_last = self.shared[:, -1:] - size, int(self.sizes[self.shared.shape[1] - 1])
        borders, pairs = (
            np.where(dense[:, None] < size, left[:, :, None] * size + dense[:, None], n * size)
            for left, n in ((last, n_last), (dense, size))
        )
        return (
            _indicators(last, n_last),
            _indicators(borders.reshape(len(last), -1), n_last * size),
            _indicators(pairs.reshape(len(last), -1), size * size),
        )

    def evaluate(self, x: FloatArray, precision: FloatArray | float = 0.0) -> _Point:
        coef = _sum_rows(x.reshape(self.n_rows, -1), self.rows)
        coef = coef if len(coef) == 1 else np.take(coef, self.cell, axis=0)
        loss, slope, state = self.terms.evaluate(coef, self.sums)
        return _Point(self, x, loss, (self.members @ slope).ravel(), state, precision)


def _indicators(places: IntArray, size: int) -> Any:
    """A sparse matrix (size, n) with 1 at those of the places (n, k) that are below the size."""
    from scipy.sparse import csr_array

    column, k = np.nonzero(places < size)
    return csr_array((np.ones(column.size), (places[column, k], column)), (size, len(places)))


def _sum_rows(table: FloatArray, rows: IntArray) -> FloatArray:
    """Sums (cells, c) of rows (cells, k) of a table, but of those past its end."""
    padded = np.vstack([table, np.zeros(table.shape[1])])
    return np.asarray(np.take(padded, rows, axis=0, mode="clip").sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Point:
    """The likelihood at one place, and precisions; value and gradient are per example."""

    problem: _Problem
    x: FloatArray
    loss: float
    slope: FloatArray
    state: Any
    precision: FloatArray | float
    #: The second derivatives, once they are known, which do not depend on the precisions.
    known: list[FloatArray] = field(default_factory=list)

    @property
    def blocks(self) -> FloatArray:
        """The second derivatives (cells, c, c) of the loss of all examples."""
        if not self.known:
            self.known.append(self.problem.terms.curvature(self.state, self.problem.sums))
        return self.known[0]

    @cached_property
    def value(self) -> float:
        penalty = 0.5 * float(np.sum(self.precision * self.x**2))
        return (self.loss + penalty) / self.problem.total

    @cached_property
    def gradient(self) -> FloatArray:
        return (self.slope + self.precision * self.x) / self.problem.total

    @cached_property
    def inverse(self) -> _Inverse:
        """The inverse Hessian of the penalised loss of all examples."""
        precision = np.broadcast_to(self.precision, self.x.size)
        return _Inverse.of(self.problem, self.blocks, precision.reshape(self.problem.n_rows, -1))

    def moments(self, blocks: IntArray, size: int) -> FloatArray:
        """Precisions (size,) with which slopes at coefficients of 0 are as large as they are."""
        known = (self.problem.members @ np.diagonal(self.blocks, axis1=1, axis2=2)).ravel()
        excess = np.bincount(blocks, self.slope**2 - known, size)
        return np.asarray(np.bincount(blocks, known**2, size) / np.maximum(excess, 1e-100))

    def minimize(self, *, tol: float, max_iter: int) -> Solution[FloatArray]:
        """The minimum from here."""

        def evaluate(x: FloatArray) -> _Point:
            return self if x is self.x else self.problem.evaluate(x, self.precision)

        step = _Point.newton_step
        return minimize_newton(evaluate, self.x, step, tol=tol, max_iter=max_iter)

    def newton_step(self) -> tuple[FloatArray, bool]:
        return -self.inverse.solve(self.gradient * self.problem.total), True

    def scores_left_out(self) -> FloatArray:
        problem, terms = self.problem, self.problem.terms
        found, width = np.empty_like(terms.offset), terms.n_features
        held = width * width * max(1, problem.n_dense)
        for part in cut_rows(problem.cell.size, max(1, _HELD // held)):
            cell = problem.cell[part]
            covariances = self.inverse.covariances(np.arange(cell[0], cell[-1] + 1))
            found[problem.places[part]] = terms.scores_left_out(
                self.state, part, covariances, cell - cell[0]
            )
        return found


def _invert(blocks: FloatArray) -> FloatArray:
    """The inverses of positive definite matrices (m, c, c); many small ones side by side."""
    size, inverse = blocks.shape[1], np.empty_like(blocks)
    if size > _SMALL:
        return np.asarray(np.linalg.inv(blocks), np.float64)
    for part in cut_rows(len(blocks), _AT_A_TIME):
        found = np.moveaxis(blocks[part], 0, 2).copy()
        product = np.empty_like(found)
        for k in range(size):  # Gauss and Jordan, in place
            pivot, column = 1.0 / found[k, k], found[:, k].copy()
            row = found[k] * pivot
            row[k], column[k], found[:, k] = pivot, 0.0, 0.0
            found -= np.multiply(column[:, None], row, out=product)
            found[k] = row
        inverse[part] = np.moveaxis(found, 2, 0)
    return inverse


def _times(left: FloatArray, right: FloatArray) -> FloatArray:
    """Products (m, c, c) of matrices (m, c, c) and (m, c, c), or one for all of them."""
    return np.asarray(np.tensordot(left, right[0], 1) if len(right) == 1 else left @ right)


@dataclass(frozen=True, eq=False)
class _Inverse:
    """The inverse Hessian: cells' own rows are eliminated, then those of the last shared column.

    Given the coefficients w of a cell in the shared columns, those in all are `kept` w on average,
    with the covariance `own`, where it has a row for itself. Given those x of the dense rows, those
    of the last shared column are -`carried` x, with the covariance `last`; `dense` is that of x.
    """

    problem: _Problem
    precision: FloatArray
    own: FloatArray
    kept: FloatArray
    last: FloatArray
    carried: FloatArray
    dense: FloatArray

    @classmethod
    def of(cls, problem: _Problem, blocks: FloatArray, precision: FloatArray) -> _Inverse:
        """From the second derivatives (cells, c, c) and the precisions (rows, c)."""
        width, size = precision.shape[1], problem.n_dense
        eye, tau = np.eye(width), precision[problem.rows[problem.own, -1], None]
        every = problem.own.size == len(blocks)
        mine, meetings = blocks if every else blocks[problem.own], problem.meetings
        own = _invert(mine + eye * tau)
        kept = own * tau
        if every and not size and meetings[0].shape[0] == 1:  # the common terms are all they share
            blocks = np.tensordot(mine, kept, ([0, 1], [0, 1]))[None]
            meetings = (np.eye(1), np.zeros((0, 1)), np.zeros((0, 1)))
        elif problem.own.size:
            blocks = blocks.copy()
            blocks[problem.own] = mine @ kept
        flat, n_last = blocks.reshape(len(blocks), -1), meetings[0].shape[0]
        block, border, dense = (
            (each @ flat).reshape(m, n, width, width).swapaxes(1, 2).reshape(m, width, n * width)
            for each, m, n in zip(meetings, (n_last, n_last, size), (1, size, size), strict=True)
        )
        last = _invert(block + eye * precision[size : size + n_last, None])
        carried = last @ border
        complement = dense.reshape(size * width, size * width) + np.diag(precision[:size].ravel())
        flat, passed = (
            part.reshape(n_last * width, -1 if size else 0) for part in (border, carried)
        )
        complement -= flat.T @ passed
        inverse = np.linalg.inv(complement)
        return cls(problem, precision, own, kept, last, carried, np.asarray(inverse))

    def solve(self, vector: FloatArray) -> FloatArray:
        """The inverse times a vector (parameters,)."""
        problem, size, width = self.problem, self.problem.n_dense, self.precision.shape[1]
        table = vector.reshape(-1, width)
        rows = problem.rows[problem.own, -1]
        own = table[rows][:, :, None]
        if problem.own.size:
            moved = np.zeros((len(problem.rows), width))
            moved[problem.own] = (own - self.kept.swapaxes(1, 2) @ own)[:, :, 0]
            table = table - problem.members @ moved
        last = table[size : size + len(self.last)]
        first = self.dense @ (table[:size].ravel() - np.tensordot(last, self.carried, 2))
        last = (self.last @ last[..., None])[..., 0] - self.carried @ first
        found = np.zeros_like(table)
        found[: size + len(last)] = np.append(first, last).reshape(-1, width)
        if problem.own.size:
            shared = _sum_rows(found, problem.shared[problem.own])[:, :, None]
            found[rows] = (self.own @ own + self.kept @ shared - shared)[:, :, 0]
        return found.ravel()

    def diagonal(self) -> FloatArray:
        """Variances of the parameters."""
        problem, size = self.problem, self.problem.n_dense
        found = 1.0 / self.precision
        found[:size] = np.diagonal(self.dense).reshape(found[:size].shape)
        passed = np.einsum("gad,gad->ga", np.tensordot(self.carried, self.dense, 1), self.carried)
        found[size : size + len(passed)] = np.diagonal(self.last, axis1=1, axis2=2) + passed
        moved = self.kept - np.eye(self.precision.shape[1])
        passed = np.einsum("gab,gab->ga", _times(moved, self._shared(problem.own)), moved)
        rows = problem.rows[problem.own, -1]
        found[rows] = np.diagonal(self.own, axis1=1, axis2=2) + passed
        return found.ravel()

    def covariances(self, cells: IntArray) -> FloatArray:
        """The covariance (m, c, c) of the coefficients that act in cells (m,)."""
        shared, place = self._shared(cells), np.searchsorted(self.problem.own, cells)
        some = np.isin(cells, self.problem.own)
        kept, own = self.kept[place[some]], self.own[place[some]]
        known = shared if len(shared) == 1 else shared[some]
        found = np.repeat(shared, len(cells) // len(shared), axis=0)
        found[some] = _times(kept, known) @ kept.swapaxes(1, 2) + own
        return found

    def _shared(self, cells: IntArray) -> FloatArray:
        """The same for the shared columns; (1, c, c) where these are the common terms alone."""
        size, width = self.problem.n_dense, self.precision.shape[1]
        if not size and len(self.last) == 1:
            return self.last
        *dense, last = self.problem.shared[cells].T
        places = np.zeros((len(cells), size + 1, width, width))
        for rows in dense:
            places[np.arange(len(cells)), np.minimum(rows, size)] = np.eye(width)
        spread = places[:, :-1].swapaxes(1, 2).reshape(len(cells), width, size * width)
        known, group = last < self.problem.n_rows, last - size
        spread[known] -= self.carried[group[known]]
        found = np.tensordot(spread, self.dense, 1) @ spread.swapaxes(1, 2)
        found[known] += self.last[group[known]]
        return np.asarray(found)
