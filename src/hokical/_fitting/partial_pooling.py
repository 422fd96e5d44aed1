"""Partial pooling: coefficients that differ by group, shrunk as much as the groups are
alike.

The coefficients of group g are w + v_g, with v_g ~ N(0, 1/tau_f) for feature f.
Newton's method on all of (w, v) alternates with MacKay's rule for the marginal
likelihood, tau_f = sum_g (1 - tau_f V_gf) / sum_g v_gf^2, where V is the diagonal of
the inverse Hessian. A group with few examples gets the common coefficients, one with
many its own. Blocks of common terms can have a precision in the same way.

    terms = BinaryTerms(features, hits, offset, weights)  # or SoftmaxTerms(...)
    fit = fit_pooled(terms, codes, sizes)  # codes (n, columns), -1: no group
    fit.common, fit.groups[0]              # w (c,) and v (groups, c)
    fit.scores_left_out()                  # of each example, as if left out

Several columns of groups add up; they are fitted jointly. Likelihoods are summed by
*cells*, the combinations of groups that occur: with their second derivatives C, the
Hessian has, for two groups, the sum of C over the cells of both. It is inverted by
elimination. If the groups of the last column are the cells, as those of one column or
of a pair are, and T is their precision, the cells act on the others as if C were C (C +
T)^-1 T. Of what is left, the groups of the largest column do not meet, and have a small
block each, so that the cost is linear in their number; those of the others, and the
common terms, have a dense block, the Schur complement.

`learn_groups` finds the columns that help: columns, and then pairs of columns, are
added one at a time, if that clearly lowers the held-out log loss.

Scores are linear in the coefficients of each example's cell. Each likelihood has

- `evaluate(coef, sums)`: the loss for coefficients (n, features) or (1, features), its
  gradient (cells, features), and a state that the others need; `sums` (cells, n) is a
  sparse matrix that sums examples, which are sorted by cell;
- `curvature(state, sums)`: the Hessian (cells, features, features);
- `leave_out(state, rows, spreads, cell)`: scores of some rows by one Newton step of the
  fit without each; `spreads` (cells, features, features) are the covariances of the
  coefficients in the cells (rows,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.groups import N_BINS, GroupCoding
from hokical._core.runtime import cut_rows
from hokical._core.special import expit
from hokical._fitting.examples import mean_and_error
from hokical._fitting.searches import Solution, StopReason, minimize_newton

#: Cells of fewer rows than this on average are summed all at once.
_FEW_ROWS = 20
#: Precisions lie within these bounds; the lower is that of terms which are not shrunk,
#: too.
LEAST_PRECISION = 1e-2
MOST_PRECISION = 1e6
#: Precisions of common terms start at the first, those of groups between the others.
_START = 10.0
_STARTS = (0.3, 1000.0)
#: The most rounds of the precisions.
_ROUNDS = 30
#: They have converged where none moves by more than this factor.
_STILL = 1.25
#: The steepest slope of the secant from which they are extrapolated.
_STEEPEST = 0.9
#: The largest factor of an extrapolation.
_LONGEST = 30.0
#: The rounds end where the next one is expected to gain less than this, in nats per
#: example.
_LOOSE = 1e-4
#: The tolerance of the last fit, which is also in nats per example.
_TIGHT = 1e-8
#: The most Newton steps of the last fit.
_MAX_ITER = 100
#: What the data decide of a block about which they say nothing, but for rounding.
_NOTHING = 1e-9
#: The most coefficients of groups of all columns but the largest: their part of the
#: Hessian is dense.
MOST_DENSE = 2000
#: The same with pairs of columns.
_MOST_WITH_PAIRS = 300
#: Examples for each combination of groups that a pair has on average at least.
_LEAST_EXAMPLES = 4
#: Numbers of covariances of rows that are held at a time.
_HELD = 1 << 20
#: Matrices up to this size are inverted side by side: calls of LAPACK would be mostly
#: overhead.
_SMALL = 12
#: Matrices that are inverted at a time, which stay in a cache.
_AT_A_TIME = 512


def binary_losses(eta: FloatArray, hits: BoolArray) -> FloatArray:
    """Log losses (n,) of log-odds."""
    return np.logaddexp(0.0, np.where(hits, -eta, eta))


def _sum_products(left: FloatArray, right: FloatArray, sums: Any) -> FloatArray:
    """Sums (cells, a, b) of the outer products of rows (n, a) and (n, b), sorted by
    cell.
    """
    # A product per cell would be mostly overhead.
    if len(left) < _FEW_ROWS * sums.shape[0]:
        outer = left[:, :, None] * right[:, None, :]
        products = sums @ outer.reshape(len(left), -1)
        return np.asarray(products.reshape(-1, *outer.shape[1:]))
    tables = (np.split(rows, sums.indptr[1:-1]) for rows in (left, right))
    return np.stack(
        [
            left_rows.T @ right_rows
            for left_rows, right_rows in zip(*tables, strict=True)
        ]
    )


@dataclass(frozen=True, eq=False)
class BinaryTerms:
    """Log-odds `offset` (n,) + `features` (n, c) @ coefficients of `hits` (n,)."""

    features: FloatArray
    hits: BoolArray
    offset: FloatArray
    weights: FloatArray

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    def losses(self, scores: FloatArray) -> FloatArray:
        """Log losses (n,)."""
        return binary_losses(scores, self.hits)

    def with_prior(self, rows: Any, offset: Any, weights: Any) -> BinaryTerms:
        """The same, with two more examples for each of the `rows` (m, c): a hit and a
        miss.

        They come last. A row of features whose scores are known to be near the offset
        is a prior.
        """
        prior_rows, prior_offset, prior_weights = (
            np.repeat(column, 2, axis=0) for column in (rows, offset, weights)
        )
        return BinaryTerms(
            np.vstack([self.features, prior_rows]),
            np.append(self.hits, np.arange(prior_offset.size) % 2 == 0),
            np.append(self.offset, prior_offset),
            np.append(self.weights, prior_weights),
        )

    def evaluate(self, coef: FloatArray, sums: Any) -> tuple[float, FloatArray, Any]:
        eta = self.offset + np.einsum("nf,nf->n", self.features, coef)
        residuals = self.weights * (expit(eta, np) - self.hits)
        slope = _sum_products(self.features, residuals[:, None], sums)[:, :, 0]
        return float(self.weights @ self.losses(eta)), slope, eta

    def curvature(self, state: Any, sums: Any) -> FloatArray:
        proba: FloatArray = expit(state, np)
        bent = self.features * (self.weights * proba * (1.0 - proba))[:, None]
        return _sum_products(bent, self.features, sums)

    def leave_out(
        self, state: Any, rows: Any, spreads: FloatArray, cell: IntArray
    ) -> FloatArray:
        eta = state[rows]
        proba = expit(state[rows], np)
        features = self.features[rows]
        if len(spreads) == 1:
            spread = features @ spreads[0]
        else:
            spread = (features[:, None, :] @ spreads[cell])[:, 0]
        lever = self.weights[rows] * np.einsum("nf,nf->n", spread, features)
        damping = np.maximum(1.0 - proba * (1.0 - proba) * lever, 1e-6)
        return np.asarray(eta + lever * (proba - self.hits[rows]) / damping)

    def ridge(
        self, coef: FloatArray, penalty: float
    ) -> tuple[float, FloatArray, FloatArray]:
        """Without groups: the loss with a penalty per unit of weight, gradient and
        Hessian.
        """
        sums = _indicators(np.zeros((self.hits.size, 1), np.int64), 1)
        loss, (slope,), state = self.evaluate(coef[None], sums)
        total = float(self.weights.sum())
        value = loss + 0.5 * penalty * float(coef @ coef)
        hessian = self.curvature(state, sums)[0] + penalty * np.eye(coef.size)
        return value / total, (slope + penalty * coef) / total, hessian / total


@dataclass(frozen=True, eq=False)
class SoftmaxTerms:
    """Scores `offset` (n, K) + scale * `log_proba` (n, K) + bias (K,) of the classes
    `labels` (n,).

    The coefficients are the scale and, if `biased`, the biases. A masked class has an
    offset of -inf, and 0 in `log_proba`.
    """

    log_proba: FloatArray
    labels: IntArray
    offset: FloatArray
    weights: FloatArray
    biased: bool = True

    @property
    def n_features(self) -> int:
        return 1 + int(self.log_proba.shape[1]) if self.biased else 1

    def losses(self, scores: FloatArray) -> FloatArray:
        """Log losses (n,)."""
        return self._softmax(scores)[1]

    def evaluate(self, coef: FloatArray, sums: Any) -> tuple[float, FloatArray, Any]:
        scores = self.offset + self.log_proba * coef[:, :1]
        if self.biased:
            scores += coef[:, 1:]
        proba, losses = self._softmax(scores)
        slope = self._sum_features(self._residuals(proba)) * self.weights[:, None]
        return float(self.weights @ losses), sums @ slope, (scores, proba)

    def curvature(self, state: Any, sums: Any) -> FloatArray:
        _, proba = state
        mean = self._sum_features(proba)
        drawn = proba * self.weights[:, None]
        hessian = -_sum_products(mean * self.weights[:, None], mean, sums)
        scaled = drawn * self.log_proba
        hessian[:, 0, 0] += sums @ (scaled * self.log_proba).sum(axis=1)
        if self.biased:
            k = np.arange(1, self.n_features)
            across = sums @ scaled
            hessian[:, 0, 1:] += across
            hessian[:, 1:, 0] += across
            hessian[:, k, k] += sums @ drawn
        return hessian

    def leave_out(
        self, state: Any, rows: Any, spreads: FloatArray, cell: IntArray
    ) -> FloatArray:
        # In terms of the scores: with their covariance M and the second derivatives W
        # of a row's loss by them, a step is M (I - W M)^-1 times its first derivatives.
        scores = state[0][rows]
        proba = state[1][rows]
        logs = self.log_proba[rows]
        spread = spreads[cell]
        weights = self.weights[rows, None, None]
        residual = self._residuals(proba, rows)
        if not self.biased:
            along = (weights * spread)[:, 0, 0]
            bent = (proba * logs**2).sum(axis=1) - (proba * logs).sum(axis=1) ** 2
            step = along * (residual * logs).sum(axis=1) / (1.0 - along * bent)
            return np.asarray(scores + logs * step[:, None])
        across = logs[:, :, None] * spread[:, :1, 1:]
        score_spread = spread[:, 1:, 1:] + across + across.swapaxes(1, 2)
        score_spread += spread[:, :1, :1] * logs[:, :, None] * logs[:, None, :]
        score_spread *= weights
        bent = (proba[:, None, :] @ score_spread - score_spread) * proba[:, :, None]
        bent[:, range(logs.shape[1]), range(logs.shape[1])] += 1.0
        step = score_spread @ np.linalg.solve(bent, residual[:, :, None])
        return np.asarray(scores + step[:, :, 0])

    def _softmax(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Probabilities (n, K) and log losses (n,)."""
        top = scores.max(axis=1, keepdims=True)
        proba = np.exp(scores - top)
        total = proba.sum(axis=1, keepdims=True)
        true_scores = np.take_along_axis(scores, self.labels[:, None], axis=1)
        return proba / total, (np.log(total) + top - true_scores)[:, 0]

    def _residuals(self, proba: FloatArray, rows: Any = slice(None)) -> FloatArray:
        """Probabilities (n, K) of some rows less their truth."""
        return np.asarray(
            proba - (np.arange(proba.shape[1]) == self.labels[rows, None])
        )

    def _sum_features(self, by_class: FloatArray) -> FloatArray:
        """Sums (n, features) of what multiplies the coefficients, times (n, K), over
        classes.
        """
        scale = (by_class * self.log_proba).sum(axis=1, keepdims=True)
        return np.hstack([scale, by_class]) if self.biased else scale


PooledTerms = BinaryTerms | SoftmaxTerms


class TooManyGroupsError(ValueError):
    """The dense block of the Hessian would be too large."""


class PooledFit(NamedTuple):
    """The result of `fit_pooled`.

    `common` (c,); `groups`, a table (groups, c) for each column, to be added to it; and
    the `precisions` (1 + columns, c) of the common terms and of those of each column.
    """

    common: FloatArray
    groups: tuple[FloatArray, ...]
    precisions: FloatArray
    solution: Solution[FloatArray]

    def scores_left_out(self) -> FloatArray:
        """Scores (n, ...) of each example, approximately as if it had been left out of
        the fit.

        The precisions stay those of the whole. See `structured` for the formula.
        """
        point: _Point = self.solution.point
        problem = point.problem
        width = self.common.size
        scores: FloatArray = np.empty_like(problem.terms.offset)
        held = width * width * max(1, problem.n_dense)
        for rows in cut_rows(problem.cell.size, max(1, _HELD // held)):
            cell = problem.cell[rows]
            covariances = point.inverse.covariances(np.arange(cell[0], cell[-1] + 1))
            row_scores = problem.terms.leave_out(
                point.state, rows, covariances, cell - cell[0]
            )
            scores[problem.places[rows]] = row_scores
        return scores

    def report(
        self, words: str, losses: dict[str, FloatArray], share: FloatArray, error: float
    ) -> dict[str, Any]:
        """What was fitted, in words, held-out losses (n,) of the candidates, and how
        it ended.
        """
        means = {name: float(share @ row_losses) for name, row_losses in losses.items()}
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
    """Fit common coefficients and those of groups, with precisions by marginal
    likelihood.

    Parameters
    ----------
    terms : the likelihood, with one row per example
        Everything is shrunk towards coefficients of 0: put what is known before the fit
        into the offset. Weights count examples; divide relative ones first.
    codes : (n, columns), optional
        The group of each example in each column, from 0; -1 where it is not known.
        Without them, the common terms alone are fitted.
    sizes : the number of groups of each column
    own_blocks : (features,), optional
        Features with the same number share a precision, in each column; by default each
        has its own.
    common_blocks : (features,), optional
        The same for the common terms; those with -1, by default all, keep the least
        precision.
    start : a fit with the first of the columns, optional
        Its coefficients and precisions are where the search starts.
    alike : (float, float)
        How many groups are known before the fit, and the sum of their squared
        coefficients, in each block: a gamma prior of the precisions.
    most_dense : the most numbers that the dense block may have
    """
    problem = _Problem(terms, codes, sizes)
    width = terms.n_features
    _refuse_too_many(problem, sizes, most_dense // width)
    group_blocks = np.arange(width) if own_blocks is None else np.array(own_blocks)
    common_of = np.full(width, -1) if common_blocks is None else np.array(common_blocks)
    column_blocks = (
        common_of.max()
        + 1
        + np.arange(len(sizes))[:, None] * (group_blocks.max() + 1)
        + group_blocks
    )
    blocks = np.vstack([common_of, column_blocks])
    free = int(blocks.max()) + 1
    blocks[blocks < 0] = free
    tau = np.append(np.full(free, _START), LEAST_PRECISION)
    tables = [np.zeros((size, width)) for size in (1, *sizes)]
    start_tables = [] if start is None else [start.common[None], *start.groups]
    if start is not None:
        tables[: len(start_tables)] = start_tables
        tau[blocks[: len(start_tables)]] = start.precisions
    x = np.vstack([tables[k] for k in problem.order]).ravel()
    point = problem.evaluate(x, np.zeros(x.size))
    by_row = np.repeat(blocks[problem.order], problem.sizes, axis=0).ravel()
    # The precisions of what is new are those with which slopes at 0 are as large as
    # they are.
    new = np.unique(blocks[max(1, len(start_tables)) :])
    bent = (problem.members @ np.diagonal(point.blocks, axis1=1, axis2=2)).ravel()
    excess = np.maximum(np.bincount(by_row, point.slope**2 - bent, tau.size), 1e-100)
    tau[new] = np.clip((np.bincount(by_row, bent**2, tau.size) / excess)[new], *_STARTS)
    solution, tau = _alternate(
        point, tau, by_row, np.outer(alike, np.arange(free + 1) < free)
    )
    coefficients = np.split(
        solution.x.reshape(-1, width), np.cumsum(problem.sizes)[:-1]
    )
    common, *groups = (coefficients[k] for k in np.argsort(problem.order))
    return PooledFit(common[0], tuple(groups), tau[blocks], solution)


def _refuse_too_many(problem: _Problem, sizes: Sequence[int], most: int) -> None:
    """Raise if more than `most` groups are in the dense block of the Hessian."""
    if problem.n_dense > most:
        raise TooManyGroupsError(
            "`groups` may have one column of very many groups; got columns of "
            f"{list(sizes)}. Merge the rare groups of all but one, to {most} in all."
        )


def _alternate(
    point: _Point, tau: FloatArray, blocks: IntArray, prior: FloatArray
) -> tuple[Solution[FloatArray], FloatArray]:
    """The minimum, and the precisions `tau` of the `blocks` (parameters,); the last is
    fixed.

    By MacKay's rule: what the data decide of a block, over the sum of squares there, to
    both of which the `prior` (2, blocks) is added. Where groups do not differ, that
    alone converges slowly to infinity; so the next precisions are where a secant through
    two rounds meets the fixed point.
    """
    is_still = tau.size == 1
    last_tau = np.log(tau)
    last_target = last_tau
    rounds = 0
    while not is_still and rounds < _ROUNDS:
        point = replace(point, precision=tau[blocks])
        solution = point.minimize(tol=10.0 * _LOOSE, max_iter=1)
        decided = np.maximum(1.0 - tau[blocks] * point.inverse.diagonal(), 0.0)
        decided = np.bincount(blocks, decided, tau.size) + prior[0]
        squares = np.bincount(blocks, solution.x**2, tau.size) + prior[1]
        log_tau = np.log(tau)
        target = np.log(_next_precisions(decided, squares, tau))
        factor = _extrapolate(log_tau, target, last_tau, last_target)
        # The derivative of the log marginal likelihood by log tau.
        slope = 0.5 * (decided - tau * squares)
        tau = np.clip(tau * factor, LEAST_PRECISION, MOST_PRECISION)
        is_still = (
            solution.converged
            and bool((np.abs(target - log_tau) <= np.log(_STILL)).all())
            and bool(
                np.abs(slope * (np.log(tau) - log_tau)).sum()
                <= _LOOSE * solution.point.problem.total
            )
        )
        last_tau = log_tau
        last_target = target
        point = solution.point
        rounds = rounds + 1
    solution = replace(point, precision=tau[blocks]).minimize(
        tol=_TIGHT, max_iter=_MAX_ITER
    )
    ended = is_still or not solution.converged
    reason = solution.reason if ended else StopReason.MAX_ITER
    return replace(solution, n_iter=rounds + solution.n_iter, reason=reason), tau


def _next_precisions(
    decided: FloatArray, squares: FloatArray, tau: FloatArray
) -> FloatArray:
    """MacKay's rule for the precisions of blocks; the last stays as it is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(decided > _NOTHING, decided / squares, np.inf)
    return np.append(np.clip(precisions[:-1], LEAST_PRECISION, MOST_PRECISION), tau[-1])


def _extrapolate(
    log_tau: FloatArray,
    target: FloatArray,
    last_tau: FloatArray,
    last_target: FloatArray,
) -> FloatArray:
    """What precisions are multiplied with, so that the secant through two rounds meets
    the fixed point.

    All are logarithms (blocks,); a round is a map of precisions to their target.
    """
    moves = log_tau != last_tau
    moved = np.where(moves, log_tau - last_tau, 1.0)
    secant = np.clip(
        np.where(moves, (target - last_target) / moved, 0.0), 0.0, _STEEPEST
    )
    longest = np.maximum(np.log(_LONGEST), np.abs(target - log_tau))
    return np.exp(np.clip((target - log_tau) / (1.0 - secant), -longest, longest))


class _Problem:
    """The likelihood as a function of a vector: a row of coefficients for each group.

    The rows are those of one column after the other, by ascending size, the common
    terms first, as those of a column of one group; `sizes` are their numbers, and
    `order` the columns. `rows` (cells, columns) are those of each cell's groups, one
    past the last for none, and `cell` (n,) is the cell of each example; examples are
    sorted by it, and `places` (n,) are theirs among those given.
    """

    def __init__(
        self, terms: PooledTerms, codes: IntArray | None, sizes: Sequence[int]
    ) -> None:
        counts = np.array([1, *sizes])
        common = np.zeros((terms.weights.size, 1), np.int64)
        self.order = np.argsort(counts, kind="stable")
        codes = (common if codes is None else np.hstack([common, codes]))[:, self.order]
        self.places = np.lexsort(codes.T)
        self.sizes = counts[self.order]
        codes = codes[self.places]
        first = np.append(True, (codes[1:] != codes[:-1]).any(axis=1))
        self.n_rows = int(counts.sum())
        self.cell = np.cumsum(first) - 1
        starts = np.cumsum(self.sizes) - self.sizes
        self.rows = np.where(codes < 0, self.n_rows, starts + codes)[first]
        sorted_fields = (
            field[self.places] if np.ndim(field) else field
            for field in vars(terms).values()
        )
        self.terms: PooledTerms = type(terms)(*sorted_fields)
        self.total = float(self.terms.weights.sum())
        # Cells that have a row of the last column for themselves; none if some share
        # one.
        last = self.rows[:, -1]
        alone = np.bincount(last, minlength=self.n_rows)[: self.n_rows].max() <= 1
        self.solo_cells = np.flatnonzero(
            (last < self.n_rows) & alone & (self.sizes.size > 1)
        )
        # The rows (cells, columns) of the other columns, and how many these have but
        # for the last.
        self.shared = self.rows[:, :-1] if self.solo_cells.size else self.rows
        self.n_dense = int(self.sizes[: self.shared.shape[1] - 1].sum())
        # Sparse matrices that sum examples by cell, and cells by group.
        self.sums = _indicators(self.cell[:, None], len(self.rows))
        self.members = _indicators(self.rows, self.n_rows)

    @cached_property
    def meetings(self) -> tuple[Any, Any, Any]:
        """The same by rows of the last shared column, by these and dense ones, by
        two of them.
        """
        size = self.n_dense
        dense = self.shared[:, :-1]
        last = self.shared[:, -1:] - size
        n_last = int(self.sizes[self.shared.shape[1] - 1])
        borders, pairs = (
            np.where(
                dense[:, None] < size,
                left[:, :, None] * size + dense[:, None],
                n * size,
            )
            for left, n in ((last, n_last), (dense, size))
        )
        return (
            _indicators(last, n_last),
            _indicators(borders.reshape(len(last), -1), n_last * size),
            _indicators(pairs.reshape(len(last), -1), size * size),
        )

    def evaluate(self, x: FloatArray, precision: FloatArray) -> _Point:
        coef = _sum_rows(x.reshape(self.n_rows, -1), self.rows)
        coef = coef if len(coef) == 1 else np.take(coef, self.cell, axis=0)
        loss, slope, state = self.terms.evaluate(coef, self.sums)
        blocks = self.terms.curvature(state, self.sums)
        return _Point(
            self, x, loss, (self.members @ slope).ravel(), state, blocks, precision
        )


def _indicators(row_numbers: IntArray, size: int) -> Any:
    """A sparse matrix (size, n) with 1 at those of the places (n, k) that are below
    the size.
    """
    from scipy.sparse import csr_array

    column, k = np.nonzero(row_numbers < size)
    return csr_array(
        (np.ones(column.size), (row_numbers[column, k], column)),
        (size, len(row_numbers)),
    )


def _sum_rows(table: FloatArray, rows: IntArray) -> FloatArray:
    """Sums (cells, c) of rows (cells, k) of a table, but of those past its end."""
    padded = np.vstack([table, np.zeros(table.shape[1])])
    return np.asarray(np.take(padded, rows, axis=0, mode="clip").sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Point:
    """The likelihood at one place, and precisions; value and gradient are per example.

    `blocks` (cells, c, c) are the second derivatives of the loss of all examples.
    """

    problem: _Problem
    x: FloatArray
    loss: float
    slope: FloatArray
    state: Any
    blocks: FloatArray
    precision: FloatArray

    @property
    def value(self) -> float:
        return (
            self.loss + 0.5 * float(self.precision @ self.x**2)
        ) / self.problem.total

    @property
    def gradient(self) -> FloatArray:
        return (self.slope + self.precision * self.x) / self.problem.total

    @cached_property
    def inverse(self) -> _Inverse:
        """The inverse Hessian of the penalised loss of all examples."""
        return _Inverse(
            self.problem, self.blocks, self.precision.reshape(self.problem.n_rows, -1)
        )

    def minimize(self, *, tol: float, max_iter: int) -> Solution[FloatArray]:
        """The minimum from here."""

        def evaluate(x: FloatArray) -> _Point:
            return self if x is self.x else self.problem.evaluate(x, self.precision)

        def step(point: _Point) -> tuple[FloatArray, bool]:
            return -point.inverse.solve(point.gradient * self.problem.total), True

        return minimize_newton(evaluate, self.x, step, tol=tol, max_iter=max_iter)


def _invert(blocks: FloatArray) -> FloatArray:
    """The inverses of positive definite matrices (m, c, c); many small ones side by
    side.
    """
    size = blocks.shape[1]
    inverse = np.empty_like(blocks)
    if size > _SMALL:
        return np.asarray(np.linalg.inv(blocks), np.float64)
    for block_rows in cut_rows(len(blocks), _AT_A_TIME):
        reduced = np.moveaxis(blocks[block_rows], 0, 2).copy()
        product = np.empty_like(reduced)
        for k in range(size):  # Gauss and Jordan, in place
            pivot = 1.0 / reduced[k, k]
            column = reduced[:, k].copy()
            row = reduced[k] * pivot
            row[k] = pivot
            column[k] = 0.0
            reduced[:, k] = 0.0
            reduced -= np.multiply(column[:, None], row, out=product)
            reduced[k] = row
        inverse[block_rows] = np.moveaxis(reduced, 2, 0)
    return inverse


class _Inverse:
    """The inverse Hessian: cells' own rows are eliminated, then those of the last
    shared column.

    It is made from the second derivatives (cells, c, c) and the precisions (rows, c).
    Given the coefficients w of a cell in the shared columns, those in all are
    `retained` w on average, with the covariance `solo_covariances`, where it has a row
    for itself. Given those x
    of the dense rows, those of the last shared column are -`carried` x, with the
    covariance `last`; `dense` is that of x.
    """

    def __init__(
        self, problem: _Problem, blocks: FloatArray, precision: FloatArray
    ) -> None:
        self.problem = problem
        self.precision = precision
        size = problem.n_dense
        width = precision.shape[1]
        self.solo_rows = problem.rows[problem.solo_cells, -1]
        eye = np.eye(width)
        tau = precision[self.solo_rows, None]
        cell_blocks = blocks[problem.solo_cells]
        self.solo_covariances = _invert(cell_blocks + eye * tau)
        self.retained = self.solo_covariances * tau
        if problem.solo_cells.size:
            blocks = blocks.copy()
            blocks[problem.solo_cells] = cell_blocks @ self.retained
        flat = blocks.reshape(len(blocks), -1)
        n_last = problem.meetings[0].shape[0]
        block, border, dense = (
            (sums @ flat)
            .reshape(m, n, width, width)
            .swapaxes(1, 2)
            .reshape(m, width, n * width)
            for sums, m, n in zip(
                problem.meetings, (n_last, n_last, size), (1, size, size), strict=True
            )
        )
        self.last = _invert(block + eye * precision[size : size + n_last, None])
        self.carried = self.last @ border
        complement = dense.reshape(size * width, size * width) + np.diag(
            precision[:size].ravel()
        )
        complement -= np.tensordot(border, self.carried, ([0, 1], [0, 1]))
        self.dense = np.asarray(np.linalg.inv(complement))

    def solve(self, vector: FloatArray) -> FloatArray:
        """The inverse times a vector (parameters,)."""
        problem = self.problem
        size = self.problem.n_dense
        width = self.precision.shape[1]
        table = vector.reshape(-1, width)
        cell_part = table[self.solo_rows][:, :, None]
        moved = np.zeros((len(problem.rows), width))
        moved[problem.solo_cells] = (
            cell_part - self.retained.swapaxes(1, 2) @ cell_part
        )[:, :, 0]
        table = table - problem.members @ moved
        last = table[size : size + len(self.last)]
        first = self.dense @ (
            table[:size].ravel() - np.tensordot(last, self.carried, 2)
        )
        last = (self.last @ last[..., None])[..., 0] - self.carried @ first
        solved = np.zeros(self.precision.shape)
        solved[: size + len(last)] = np.append(first, last).reshape(-1, width)
        shared = _sum_rows(solved, problem.shared[problem.solo_cells])[:, :, None]
        solved[self.solo_rows] = (
            self.solo_covariances @ cell_part + self.retained @ shared - shared
        )[:, :, 0]
        return np.asarray(solved.ravel())

    def diagonal(self) -> FloatArray:
        """Variances of the parameters."""
        size = self.problem.n_dense
        variances = 1.0 / self.precision
        variances[:size] = np.diagonal(self.dense).reshape(variances[:size].shape)
        passed = np.einsum(
            "gad,gad->ga", np.tensordot(self.carried, self.dense, 1), self.carried
        )
        variances[size : size + len(passed)] = (
            np.diagonal(self.last, axis1=1, axis2=2) + passed
        )
        moved = self.retained - np.eye(self.precision.shape[1])
        passed = np.einsum(
            "gab,gab->ga", moved @ self._shared(self.problem.solo_cells), moved
        )
        variances[self.solo_rows] = (
            np.diagonal(self.solo_covariances, axis1=1, axis2=2) + passed
        )
        return variances.ravel()

    def covariances(self, cells: IntArray) -> FloatArray:
        """The covariance (m, c, c) of the coefficients that act in cells (m,)."""
        covariances = self._shared(cells)
        has_row = np.isin(cells, self.problem.solo_cells)
        row = np.searchsorted(self.problem.solo_cells, cells[has_row])
        retained = self.retained[row]
        covariances[has_row] = (
            retained @ covariances[has_row] @ retained.swapaxes(1, 2)
            + self.solo_covariances[row]
        )
        return covariances

    def _shared(self, cells: IntArray) -> FloatArray:
        """The same for the shared columns."""
        size = self.problem.n_dense
        width = self.precision.shape[1]
        *dense, last = self.problem.shared[cells].T
        selection = np.zeros((len(cells), size + 1, width, width))
        for rows in dense:
            selection[np.arange(len(cells)), np.minimum(rows, size)] = np.eye(width)
        spread = (
            selection[:, :-1].swapaxes(1, 2).reshape(len(cells), width, size * width)
        )
        has_group = last < self.problem.n_rows
        group = last - size
        spread[has_group] -= self.carried[group[has_group]]
        covariances = np.tensordot(spread, self.dense, 1) @ spread.swapaxes(1, 2)
        covariances[has_group] += self.last[group[has_group]]
        return np.asarray(covariances)


#: Columns whose groups, or combinations of groups, have corrections.
Term = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """The terms that are used, their fit, its held-out losses (n,), and why, in words.

    `shift` is what held-out scores without groups are above the offset of the fit.
    """

    coding: GroupCoding
    losses: FloatArray
    fit: PooledFit | None = None
    shift: FloatArray | float = 0.0
    terms: tuple[Term, ...] = ()
    notes: tuple[str, ...] = ()

    def tables(self) -> dict[Term, FloatArray]:
        """Corrections (groups, features), with a row for unknown groups in each
        column.
        """
        tables = {}
        for term, table in zip(
            self.terms, self.fit.groups if self.fit else (), strict=True
        ):
            by_column = table.reshape(*self.sizes(term), -1)
            padded = np.pad(by_column, [*[(0, 1) for _ in term], (0, 0)])
            tables[term] = padded.reshape(-1, table.shape[1])
        return tables

    def sizes(self, term: Term) -> list[int]:
        """How many known groups each column of a term has."""
        return [self.coding.sizes[k] - 1 for k in term]

    def named(self, term: Term) -> str:
        """The names of the columns, and where a single one is cut."""
        names = " x ".join(f"{self.coding.columns[k]!r}" for k in term)
        if len(term) > 1 or not self.coding.cut[term[0]]:
            return names
        points = [f"{point:.6g}" for point in self.coding.levels[term[0]]]
        shown = points if len(points) < N_BINS else [*points[:2], "...", *points[-2:]]
        return f"{names}, cut at {', '.join(shown)},"


def learn_groups(
    terms: PooledTerms,
    codes: IntArray,
    without: GroupEffects,
    *,
    level: float,
    jointly: bool = False,
    **options: Any,
) -> GroupEffects:
    """Add columns, the most helpful first, as long as one clearly helps; then pairs of
    columns.

    `codes` (n, columns) are of groups by the coding of what is known `without` groups:
    held-out losses, and a fit if there is one. A column without effect would reach the
    gain that is needed with the probability `level`, shared by the candidates. Columns
    are used one by one, or `jointly`. The `options` are those of `fit_pooled`.
    """
    share = terms.weights / terms.weights.sum()
    notes = [
        f"{name!r} has {'one' if size == 2 else 'no'} group"
        for name, size in zip(without.coding.columns, without.coding.sizes, strict=True)
        if size <= 2
    ]
    columns = [(k,) for k, size in enumerate(without.coding.sizes) if size > 2]
    singles = [tuple(columns)] if jointly and columns else [(term,) for term in columns]
    pairs = [((*a, *b),) for a, b in combinations(columns, 2)]

    def attempt(effects: GroupEffects, added: tuple[Term, ...]) -> _Trial | None:
        wanted = replace(effects, terms=(*effects.terms, *added))
        extended = _fit(wanted, terms, codes, options)
        if extended is None:
            return None
        gain, error = mean_and_error(effects.losses - extended.losses, share)
        return _Trial(added, extended, gain, error)

    effects = without
    for candidates in (singles, pairs):
        caution = NormalDist().inv_cdf(1.0 - level / max(len(candidates), 1))
        effects, candidate_notes = _add_helpful(effects, candidates, attempt, caution)
        notes += candidate_notes
    return replace(effects, notes=tuple(notes))


@dataclass(frozen=True, eq=False)
class _Trial:
    """Effects with the terms that are `added`, and the gain in held-out log loss."""

    added: tuple[Term, ...]
    effects: GroupEffects
    gain: float
    error: float

    def describe(self, name: str, used: bool) -> str:
        """What became of the terms of this name, and why."""
        return (
            f"{name} was {'used' if used else 'left out'} "
            f"(held-out log loss {'lower' if self.gain > 0.0 else 'higher'} by "
            f"{abs(self.gain):.4f}, standard error {self.error:.4f})"
        )


def _add_helpful(
    effects: GroupEffects,
    candidates: Sequence[tuple[Term, ...]],
    attempt: Callable[[GroupEffects, tuple[Term, ...]], _Trial | None],
    caution: float,
) -> tuple[GroupEffects, list[str]]:
    """Add candidates, the most helpful first, as long as one clearly helps; and notes.

    A gain is clear above `caution` standard errors. `attempt` returns None where there
    are too many groups.
    """
    notes = []
    waiting = {added: ", ".join(map(effects.named, added)) for added in candidates}
    while waiting:
        trials = []
        for added in list(waiting):
            trial = attempt(effects, added)
            if trial is None:
                notes.append(f"{waiting.pop(added)} has too many combinations")
            else:
                trials.append(trial)
        trials.sort(key=lambda trial: -trial.gain)
        for trial in trials:
            used = trial.gain > caution * trial.error
            notes.append(trial.describe(waiting.pop(trial.added), used))
            if used:  # the others are tried again, beside it
                effects = trial.effects
                break
    return effects, notes


def _fit(
    wanted: GroupEffects, terms: PooledTerms, codes: IntArray, options: dict[str, Any]
) -> GroupEffects | None:
    """The terms that are wanted with their fit; None if the last is a pair of too
    many groups.
    """
    several = [wanted.sizes(term) for term in wanted.terms]
    sizes = [math.prod(column_sizes) for column_sizes in several]
    is_pair = len(wanted.terms[-1]) > 1
    if is_pair and sizes[-1] * _LEAST_EXAMPLES > len(codes):
        return None
    columns = []
    # -1 where a group is not known.
    for term, column_sizes in zip(wanted.terms, several, strict=True):
        all_present = (codes[:, term] < np.array(column_sizes)).all(axis=1)
        combined = np.ravel_multi_index(codes[:, term].T, column_sizes, mode="clip")
        columns.append(np.where(all_present, combined, -1))
    most = _MOST_WITH_PAIRS if is_pair else MOST_DENSE
    try:
        groups = np.stack(columns, axis=1)
        fit = fit_pooled(
            terms, groups, sizes, start=wanted.fit, most_dense=most, **options
        )
    except TooManyGroupsError:
        if is_pair:
            return None
        raise
    return replace(
        wanted, fit=fit, losses=terms.losses(fit.scores_left_out() + wanted.shift)
    )
