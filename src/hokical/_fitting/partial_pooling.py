"""Partial pooling: coefficients that differ by group, shrunk as much as the groups are alike.

The coefficients of group g are w + v_g, with v_g ~ N(0, 1/tau_f) for feature f. Newton's method on
all of (w, v) alternates with MacKay's rule for the marginal likelihood,
tau_f = sum_g (1 - tau_f V_gf) / sum_g v_gf^2, where V is the diagonal of the inverse Hessian. A
group with few examples gets the common coefficients, one with many its own. Blocks of common terms
can have a precision in the same way.

    terms = BinaryTerms(features, hits, offset, weights)        # or SoftmaxTerms(...)
    found = fit_pooled(terms, 3, codes, sizes)                  # codes (n, columns), -1: no group
    found.common, found.groups[0]                               # w (c,) and v (groups, 3)
    found.scores_left_out()                                     # of each example, as if left out

Several columns of groups add up; they are fitted jointly. Likelihoods are summed by *cells*, the
combinations of groups that occur. The Hessian is an arrow: a dense block A of the common terms and
of all columns but the one of most groups; a small block C_g of each group of that column, and its
border B_g with the dense block. With the Schur complement S = A - sum_g B_g' C_g^-1 B_g, the cost
is linear in the number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hokical._core.parallel import cut_rows
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.newton import Solution, StopReason, minimize_newton
from hokical._fitting.pooled_terms import PooledTerms, take_examples

#: Precisions lie within these bounds; the lower is that of terms which are not shrunk, too.
LEAST_PRECISION, MOST_PRECISION = 1e-2, 1e6
#: Precisions that are fitted start here.
_START = 10.0
#: Rounds of the precisions, which have converged where none moves by more than this factor, and
#: the steepest slope from which they are extrapolated, by no more than the last factor; ...
_ROUNDS, _STILL, _STEEPEST, _LONGEST = 30, 1.25, 0.9, 30.0
#: ... what Newton's last step promises at most, per example, in a round and at the end.
_LOOSE, _TIGHT, _MAX_ITER = 1e-4, 1e-10, 100
#: What the data decide of a block about which they say nothing, but for rounding.
_NOTHING = 1e-9
#: Coefficients of the groups of all columns but the largest: their Hessian is made whole.
_MOST_DENSE = 2000
#: Numbers of covariances of rows that are held at a time.
_HELD = 1 << 18


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
    n_own: int,
    codes: IntArray | None = None,
    sizes: Sequence[int] = (0,),
    *,
    own_blocks: Sequence[int] | None = None,
    common_blocks: Sequence[int] | None = None,
    start: PooledFit | None = None,
) -> PooledFit:
    """Fit common coefficients and those of groups, with precisions by marginal likelihood.

    Parameters
    ----------
    terms : the likelihood, with one row per example
        Everything is shrunk towards coefficients of 0: put what is known before the fit into the
        offset. Weights count examples; divide relative ones first.
    n_own : how many features, the first ones, have coefficients by group
    codes : (n, columns), optional
        The group of each example in each column, from 0; -1 where it is not known. Without them,
        the common terms alone are fitted.
    sizes : the number of groups of each column
    own_blocks : (n_own,), optional
        Features with the same number share a precision, in each column; by default each has its
        own.
    common_blocks : (features,), optional
        The same for the common terms; those with -1, by default all, keep the least precision.
    start : a fit with other groups, optional
        Its common terms and their precisions are where the search starts.
    """
    if not fit_densely(sizes, n_own):
        raise ValueError(
            f"`groups` may have one column of very many groups; got columns of {list(sizes)}. "
            f"Merge the rare groups of all but one, to {_MOST_DENSE // n_own} in all."
        )
    order, n_common = np.argsort(sizes, kind="stable"), terms.n_features
    counts = np.array(sizes, np.int64)[order]
    codes = np.full((terms.weights.size, 1), -1) if codes is None else codes
    rows = np.lexsort(codes[:, order[::-1]].T)
    ordered = codes[rows][:, order]
    first = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    some, cell = take_examples(terms, rows), np.cumsum(first) - 1
    problem = _Problem(some, n_own, counts, ordered[first], cell, rows)
    each = np.arange(n_own) if own_blocks is None else np.array(own_blocks)
    blocks = np.full(n_common, -1) if common_blocks is None else np.array(common_blocks)
    used = blocks.max() + 1 + (each.max() + 1) * np.repeat(np.arange(len(order)), counts)
    blocks = np.append(blocks, used[:, None] + each)
    free = int(blocks.max()) + 1
    blocks[blocks < 0] = free
    x, tau = np.zeros(blocks.size), np.append(np.full(free, _START), LEAST_PRECISION)
    if start is not None:
        x[:n_common], tau[blocks[:n_common]] = start.common, start.precision[:n_common]
    found, tau = _alternate(problem.evaluate(x), tau, blocks)
    tables = np.split(problem.table(found.x), np.cumsum(counts)[:-1])
    groups = tuple(tables[k] for k in np.argsort(order))
    return PooledFit(found.x[:n_common], groups, tau[blocks], found)


def fit_densely(sizes: Sequence[int], n_own: int) -> bool:
    """Whether all columns but the largest have few enough groups."""
    return n_own * (sum(sizes) - max(sizes, default=0)) <= _MOST_DENSE


def _alternate(
    point: _Point, tau: FloatArray, blocks: IntArray
) -> tuple[Solution[FloatArray], FloatArray]:
    """The minimum, and the precisions `tau` of the `blocks` (parameters,); the last is fixed."""
    still, tried = tau.size == 1, list[tuple[FloatArray, FloatArray]]()
    while not still and len(tried) < _ROUNDS:
        point = replace(point, precision=tau[blocks])
        found = point.minimize(tol=_LOOSE, max_iter=1)
        tried.append((tau, _update(tau, blocks, found.x, point.inverse.diagonal())))
        still = bool((np.abs(np.log(tried[-1][1] / tau)) <= np.log(_STILL)).all())
        still = still and found.converged
        tau, point = tried[-1][1] if still else _extrapolate(*tried[-2:]), found.point
    found = replace(point, precision=tau[blocks]).minimize(tol=_TIGHT, max_iter=_MAX_ITER)
    reason = found.reason if still or not found.converged else StopReason.MAX_ITER
    return replace(found, n_iter=len(tried) + found.n_iter, reason=reason), tau


def _update(tau: FloatArray, blocks: IntArray, x: FloatArray, variance: FloatArray) -> FloatArray:
    """MacKay's rule: what the data decide of a block, over the sum of squares there."""
    decided = np.bincount(blocks, np.maximum(1.0 - tau[blocks] * variance, 0.0), tau.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = decided / np.bincount(blocks, x * x, tau.size)
    found = np.where(decided > _NOTHING, found, np.inf)
    return np.append(np.clip(found[:-1], LEAST_PRECISION, MOST_PRECISION), tau[-1])


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
    """The likelihood as a function of a vector: the common terms, then a row for each group.

    The rows of `n_own` are those of one column after the other, by ascending size, and `sizes`
    their numbers. `codes` (cells, columns) are the groups of each cell, -1 for none, and `cell`
    (n,) is the cell of each example; examples are sorted by it, which makes sums by cell quick, and
    `order` (n,) are their places among those given. The groups of the last column are eliminated,
    and `n_dense` parameters remain.
    """

    terms: PooledTerms
    n_own: int
    sizes: IntArray
    codes: IntArray
    cell: IntArray
    order: IntArray

    @cached_property
    def total(self) -> float:
        return float(self.terms.weights.sum())

    def evaluate(self, x: FloatArray, precision: FloatArray | float = 0.0) -> _Point:
        own = np.take(self.members.T @ self.table(x), self.cell, axis=0)
        loss, slope, by_row, state = self.terms.evaluate(x[: self.terms.n_features], own)
        slope = np.append(slope, self.members @ (self.cells @ by_row))
        return _Point(self, x, loss, slope, state, precision)

    def table(self, vector: FloatArray) -> FloatArray:
        """The rows (groups, own) of a vector."""
        return vector[self.terms.n_features :].reshape(-1, self.n_own)

    @cached_property
    def cells(self) -> Any:
        """The sparse matrix (cells, n) of 0 and 1 that sums examples by cell."""
        return _indicators(self.cell, np.arange(self.cell.size), (len(self.codes), self.cell.size))

    @cached_property
    def members(self) -> Any:
        """The same (groups, cells): which cells belong to a group."""
        cell, column = np.nonzero(self.codes >= 0)
        shape = (int(self.sizes.sum()), len(self.codes))
        return _indicators(self.rows[cell, column], cell, shape)

    @cached_property
    def n_dense(self) -> int:
        return int(self.terms.n_features + self.n_own * self.sizes[:-1].sum())

    @cached_property
    def rows(self) -> IntArray:
        """The rows (cells, columns) of each cell's groups; one past the last for none."""
        first = np.cumsum(self.sizes) - self.sizes
        return np.where(self.codes < 0, self.sizes.sum(), first + self.codes)

    @cached_property
    def places(self) -> IntArray:
        """Where the dense terms of cells lie in the vector, (cells, e); `n_dense` for none."""
        common = np.arange(self.terms.n_features)
        first = common.size + self.n_own * self.rows[:, :-1, None]
        own = np.where(first < self.n_dense, first + np.arange(self.n_own), self.n_dense)
        shared = np.broadcast_to(common, (len(own), common.size))
        return np.hstack([shared, own.reshape(len(own), -1)])

    @cached_property
    def features(self) -> IntArray:
        """The feature behind each of the places, (e,)."""
        own = np.tile(np.arange(self.n_own), self.sizes.size - 1)
        return np.append(np.arange(self.terms.n_features), own)

    @cached_property
    def _sum_by_group(self) -> Any:
        """The sparse matrix that sums the numbers of cells (cells * e) to those of `borders`."""
        target = self.rows[:, :, None] * (self.n_dense + 1) + self.places[:, None, :]
        source = np.arange(self.places.size).reshape(len(self.places), 1, -1)
        shape = ((int(self.sizes.sum()) + 1) * (self.n_dense + 1), self.places.size)
        return _indicators(target.ravel(), np.broadcast_to(source, target.shape).ravel(), shape)

    def borders(self, blocks: FloatArray) -> FloatArray:
        """Second derivatives (groups, dense, own), from those of cells (cells, features, own)."""
        found = self._sum_by_group @ blocks[:, self.features].reshape(-1, self.n_own)
        return np.asarray(found.reshape(-1, self.n_dense + 1, self.n_own)[:-1, :-1], np.float64)


def _indicators(row: IntArray, column: IntArray, shape: tuple[int, int]) -> Any:
    """A sparse matrix with 1 at these places."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(row.size), (row, column)), shape)


@dataclass(frozen=True, eq=False)
class _Point:
    """The likelihood at one place, and precisions; value and gradient are per example."""

    problem: _Problem
    x: FloatArray
    loss: float
    slope: FloatArray
    state: Any
    precision: FloatArray | float

    @cached_property
    def value(self) -> float:
        penalty = 0.5 * float(np.sum(self.precision * self.x**2))
        return (self.loss + penalty) / self.problem.total

    @cached_property
    def gradient(self) -> FloatArray:
        return (self.slope + self.precision * self.x) / self.problem.total

    @cached_property
    def inverse(self) -> _ArrowInverse:
        """The inverse Hessian of the penalised loss of all examples."""
        problem, own = self.problem, self.problem.n_own
        common, dense = problem.terms.n_features, problem.n_dense
        whole, blocks = problem.terms.curvature(self.state, problem.cells, own)
        borders, kept = problem.borders(blocks), (dense - common) // own
        precision = np.broadcast_to(self.precision, self.x.size)
        a = np.diag(precision[:dense])
        a[:common, :common] += whole
        a[:, common:] += np.swapaxes(borders[:kept], 0, 1).reshape(dense, -1)
        a[common:, :common] = a[:common, common:].T
        b = np.swapaxes(borders[kept:], 1, 2)
        c = (problem.members[kept:] @ blocks[:, :own].reshape(-1, own * own)).reshape(-1, own, own)
        inverse = np.linalg.inv(c + np.eye(own) * precision[dense:].reshape(-1, 1, own))
        carried = inverse @ b
        complement = a - b.reshape(-1, dense).T @ carried.reshape(-1, dense)
        dense_inverse = np.asarray(np.linalg.inv(complement), np.float64)
        return _ArrowInverse(problem, dense_inverse, inverse, carried)

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
        found, size = np.empty_like(terms.offset), problem.cell.size
        for part in cut_rows(size, max(1, _HELD // (terms.n_features * problem.n_dense))):
            cell = problem.cell[part]
            cells = np.arange(cell[0], cell[-1] + 1)
            covariance = np.take(self.inverse.covariances(cells), cell - cell[0], axis=0)
            found[problem.order[part]] = terms.scores_left_out(self.state, part, covariance)
        return found


@dataclass(frozen=True, eq=False)
class _ArrowInverse:
    """S^-1 (dense, dense), C_g^-1 (groups, own, own) and C_g^-1 B_g (groups, own, dense)."""

    problem: _Problem
    dense: FloatArray
    own: FloatArray
    carried: FloatArray

    def solve(self, vector: FloatArray) -> FloatArray:
        """The inverse times a vector (size,)."""
        cut = len(self.dense)
        own = vector[cut:].reshape(-1, self.problem.n_own, 1)
        first = self.dense @ (vector[:cut] - np.tensordot(own[:, :, 0], self.carried, 2))
        return np.append(first, (self.own @ own)[:, :, 0] - self.carried @ first)

    def diagonal(self) -> FloatArray:
        """Variances of the parameters."""
        own = np.diagonal(self.own, axis1=1, axis2=2)
        carried = self.carried.reshape(-1, len(self.dense))  # one product instead of many
        passed = np.einsum("pd,pd->p", carried @ self.dense, carried)
        return np.append(np.diagonal(self.dense), own.ravel() + passed)

    def covariances(self, cells: IntArray) -> FloatArray:
        """The covariance (cells, features, features) of the coefficients that act in cells."""
        problem, own = self.problem, self.problem.n_own
        places, group = problem.places[cells], problem.codes[cells, -1]
        spread = np.zeros((len(cells), problem.terms.n_features, len(self.dense) + 1))
        spread[np.arange(len(cells))[:, None], problem.features, places] = 1.0
        spread, named = spread[:, :, :-1], group >= 0
        spread[named, :own] -= self.carried[group[named]]
        found = spread @ self.dense @ np.swapaxes(spread, 1, 2)
        found[named, :own, :own] += self.own[group[named]]
        return np.asarray(found)
