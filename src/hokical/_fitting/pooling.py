"""The pool of several members: temperatures, weights, and what each member is worth.

The temperature of each member is fitted alone, with the prior of the default. The
scores of class k are

    z_k = sum_v a_v log p_vk + b log(sum_v a_v p_vk / A),    A = sum_v a_v,

with coefficients a >= 0 and b >= 0 of least log loss and a quadratic penalty. The
penalty is small on the overall scale A + b and on the balance of the geometric and the
arithmetic mean. Deviations of the coefficients a from each other, in units of their
prior mean, cost a ridge: near equal weights are given up as the examples show that
members differ. Three priors are fitted: for members that are nearly equal, for members
that differ, and for a nearly arithmetic mean, which is ahead with few examples. They
are averaged by exp(leave-one-out log-likelihood). The pool has the weights a / A and
the linear share b / (A + b); its scale is that of the members' own logits.

Leaving an example out needs no other fit: one Newton step without it leads there. With
S the Hessian of the objective, and g_i and H_i those of an example's loss with its
weight, the coefficients move by (S - H_i)^-1 g_i; a fold moves them by its sums of g
and H. The temperatures, one number of each member, stay.

Tables (members, classes, n) are made of a sample of the rows. If there are more, the
coefficients end with a Newton step on all of them, block by block.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import check_count
from hokical._core.logits import Logits
from hokical._core.runtime import cut_rows, one_blas_thread
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.searches import choose_base
from hokical.rules.pooled import FARTHEST_MARGIN, MemberLogits, Pool

#: Tables are in single precision, in half the memory and a third of the time: what is
#: fitted differs by 1e-6.
SingleArray = NDArray[np.float32]


class Prior(NamedTuple):
    """What coefficients are before the examples.

    `ridge` is the penalty, in nats, on their squared deviation from each other, and
    `linear` the share of the arithmetic mean.
    """

    ridge: float
    linear: float = 0.5


#: Members that are nearly equal, and members that differ; and a nearly arithmetic mean,
#: which most ensembles prefer up to some 200 examples.
PRIORS = (Prior(100.0), Prior(3.0), Prior(100.0, linear=0.9))
#: Penalties on the overall scale, and on the balance of the two means.
SCALE_RIDGE = 10.0
BALANCE_RIDGE = 10.0
#: Most numbers in a table (members, classes, n), and the fewest rows of it.
MAX_TABLE = 3 << 18
MIN_ROWS = 500
#: Numbers of a table (members, classes, rows) that the cache holds with others, and the
#: fewest rows of it, as it is worked on by runs of rows.
BLOCK_SIZE = 1 << 18
_MIN_BLOCK = 64
#: Most numbers that the last Newton step looks at.
MAX_LAST_STEP = 1 << 22
#: Most numbers of a member that its temperature is fitted on.
MAX_FOR_TEMPERATURE = 1 << 15
#: Most numbers that the greedy order looks at, over all its steps.
MAX_FOR_ORDER = 1 << 21
#: Members that are chosen one by one; the others follow by their weights.
MAX_GREEDY = 6
#: The search ends where it expects to gain less than this, in nats over all rows.
ENOUGH = 0.05
MAX_ITER = 30
_MAX_HALVINGS = 10
#: Relative change of the Hessian's diagonal that makes up for rounding.
_ROUNDING = 1e-6
#: Steps without a row are repeated until coefficients change by less than this share of
#: all.
_CLOSE = 1e-4
_MAX_REPEATS = 30
#: Least share of the coefficients that members have together: without any, their mean
#: probability would not be defined.
_LEAST_SHARE = 0.05
#: A left-out coefficient is at least this part of the fitted one.
_LEAST_LEFT = 1e-3
#: Members with less weight are not worth their evaluation: their weight becomes 0.
_LEAST_WEIGHT = 1e-3
#: Coefficients below this share of all are 0.
_NOTHING = 1e-6
#: Least sum of a row's odds in single precision.
_LEAST_ODDS = np.float32(1e-30)
#: Precision of the prior of log T, as in the temperatures' own fit.
_TEMPERATURE_RIDGE = 1.0


class MemberTable(NamedTuple):
    """Log-probabilities (members, classes, n) at the temperatures, in single precision.

    `labels` (n,) and `share` (n,), which sums to 1. `proba` is None where it is the
    exponential of `logs`. Members that were not evaluated on a row have the mean of the
    others there, of both. `votes_of` (n,) is that of `Examples`.
    """

    logs: SingleArray
    labels: IntArray
    share: FloatArray
    proba: SingleArray | None = None
    votes_of: IntArray | None = None

    @property
    def n_members(self) -> int:
        return int(self.logs.shape[0])

    def take(self, rows: IntArray | slice) -> MemberTable:
        """Some rows; their shares are those among all rows."""
        return MemberTable(
            np.ascontiguousarray(self.logs[:, :, rows]),
            self.labels[rows],
            self.share[rows],
            None if self.proba is None else self.proba[:, :, rows],
            None if self.votes_of is None else self.votes_of[rows],
        )

    def block(self, rows: IntArray | slice) -> TableBlock:
        """Some rows with their probabilities."""
        table = self.take(rows)
        proba = np.exp(table.logs) if table.proba is None else table.proba
        return TableBlock(table.logs, proba, table.labels, table.share, table.votes_of)


class Scores(NamedTuple):
    """Pooled scores (classes, n), and the arithmetic mean in them with its logarithm."""

    values: SingleArray
    mean: SingleArray
    log_mean: SingleArray


class TableBlock(NamedTuple):
    """Rows of a `MemberTable` that fit into the cache, with their probabilities."""

    logs: SingleArray
    proba: SingleArray
    labels: IntArray
    share: FloatArray
    votes_of: IntArray | None = None

    def scores(self, coefficients: FloatArray | SingleArray) -> Scores:
        """The pooled scores.

        The coefficients (members + 1, n) or (members + 1, 1) may differ by row.
        """
        a = coefficients[:-1]
        weights = (a / a.sum(axis=0)).astype(np.float32)
        a = a.astype(np.float32)
        if a.shape[1] == 1:
            scores = np.tensordot(a[:, 0], self.logs, 1)
            mean = np.tensordot(weights[:, 0], self.proba, 1)
        else:
            scores = np.einsum("vn,vkn->kn", a, self.logs)
            mean = np.einsum("vn,vkn->kn", weights, self.proba)
        log_mean = np.log(mean)
        scores += coefficients[-1].astype(np.float32) * log_mean
        return Scores(np.asarray(scores, np.float32), mean, log_mean)

    def losses(self, coefficients: FloatArray | SingleArray) -> FloatArray:
        """-log p of the true class, (n,)."""
        return _log_losses(self.scores(coefficients).values, self.labels)[0]

    def true(self, table: SingleArray) -> SingleArray:
        """The entries of a table (..., classes, n) at the labels, (..., n)."""
        rows = np.arange(self.labels.size)
        return np.asarray(table[..., self.labels, rows])

    def sum_votes(self, values: FloatArray) -> FloatArray:
        """Values (..., n), each the sum over the rows of its example.

        An example has several rows where labels were votes.
        """
        if self.votes_of is None:
            return values
        is_first = np.diff(self.votes_of, prepend=-1) != 0
        sums = np.add.reduceat(values, np.flatnonzero(is_first), axis=-1)
        return np.asarray(sums[..., np.cumsum(is_first) - 1])

    def slopes(self, coefficients: FloatArray, scores: Scores) -> SingleArray:
        """Derivatives (p, classes, n) of the scores by the coefficients, up to
        constants.
        """
        slopes = np.empty((coefficients.size, *scores.mean.shape), np.float32)
        unit = np.float32(coefficients[-1] / coefficients[:-1].sum()) / scores.mean
        np.multiply(self.proba, unit, out=slopes[:-1])
        slopes[:-1] += self.logs
        slopes[-1] = scores.log_mean
        return slopes


def _log_losses(
    scores: SingleArray, labels: IntArray
) -> tuple[FloatArray, SingleArray]:
    """-log p of the true class (n,), and the softmax (classes, n)."""
    top = scores.max(axis=0)
    odds = scores - top
    np.exp(odds, out=odds)
    total = odds.sum(axis=0)
    true = scores[labels, np.arange(labels.size)]
    odds *= 1.0 / total
    return (top + np.log(total) - true).astype(np.float64), odds


class RowMoments(NamedTuple):
    """Of each row: loss (n,), gradient (p, n), and what its Hessian is made of.

    That is of scores that are linear in the coefficients: their slopes (p, classes, n)
    with the mean (p, n) by the probabilities (classes, n).
    """

    losses: FloatArray
    gradients: SingleArray
    slopes: SingleArray
    means: SingleArray
    proba: SingleArray

    @classmethod
    def of(cls, block: TableBlock, coefficients: FloatArray) -> RowMoments:
        scores = block.scores(coefficients[:, None])
        losses, proba = _log_losses(scores.values, block.labels)
        slopes = block.slopes(coefficients, scores)
        means = np.einsum("pkn,kn->pn", slopes, proba)
        return cls(losses, means - block.true(slopes), slopes, means, proba)

    def hessians_times(self, vectors: FloatArray) -> FloatArray:
        """The product of each row's Hessian and its own vector, (p, n)."""
        change = np.einsum("pkn,pn->kn", self.slopes, vectors.astype(np.float32))
        change -= (self.means * vectors).sum(axis=0)
        change *= self.proba
        products = np.einsum("pkn,kn->pn", self.slopes, change)
        return np.asarray(products, np.float64)


class WeightedMoments(NamedTuple):
    """Sums over rows, with their shares: loss, gradient (p,) and Hessian (p, p)."""

    loss: float
    gradient: FloatArray
    hessian: FloatArray

    @classmethod
    def zero(cls, size: int) -> WeightedMoments:
        """Those of no row."""
        return cls(0.0, np.zeros(size), np.zeros((size, size)))

    def plus(self, other: WeightedMoments) -> WeightedMoments:
        """Those of both lots of rows."""
        return WeightedMoments(
            self.loss + other.loss,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
        )


def _moments(table: MemberTable, coefficients: FloatArray) -> WeightedMoments:
    """`RowMoments` added up, by blocks of rows."""
    sums = WeightedMoments.zero(coefficients.size)
    for rows in _row_blocks(table.logs.shape, table.votes_of):
        sums = sums.plus(_block_moments(table.block(rows), coefficients))
    return sums


def _block_moments(block: TableBlock, coefficients: FloatArray) -> WeightedMoments:
    rows = RowMoments.of(block, coefficients)
    share = block.share
    spread = rows.proba
    spread *= share
    np.sqrt(spread, out=spread)
    slopes = rows.slopes
    slopes *= spread
    flat = slopes.reshape(coefficients.size, -1)
    hessian = (flat @ flat.T).astype(np.float64)
    hessian -= (rows.means * share) @ rows.means.T
    return WeightedMoments(float(share @ rows.losses), rows.gradients @ share, hessian)


def _row_blocks(
    shape: tuple[int, ...], votes_of: IntArray | None = None
) -> list[slice]:
    """Blocks of the rows of a table (members, classes, n); none cuts an example."""
    blocks = cut_rows(shape[2], max(_MIN_BLOCK, BLOCK_SIZE // (shape[0] * shape[1])))
    if votes_of is None:
        return blocks
    first_rows = votes_of[[block.start for block in blocks]]
    starts = np.unique(np.searchsorted(votes_of, first_rows)).tolist()
    return [slice(*ends) for ends in itertools.pairwise([*starts, shape[2]])]


@dataclass(frozen=True, eq=False)
class Penalty:
    """Half of d' `matrix` d, d being the distance of coefficients from the `centre`."""

    centre: FloatArray
    matrix: FloatArray

    @classmethod
    def of(cls, n_members: int, prior: Prior, n_examples: float) -> Penalty:
        """In nats per example, for `n_examples` examples."""
        size = n_members + 1
        geometric = 1.0 - prior.linear
        centre = np.full(size, geometric / n_members)
        centre[-1] = prior.linear
        scale = np.ones(size)
        balance = np.full(size, 2.0 * prior.linear)
        balance[-1] = -2.0 * geometric
        matrix = SCALE_RIDGE * np.outer(scale, scale)
        matrix += BALANCE_RIDGE * np.outer(balance, balance)
        deviation = np.eye(n_members) - 1.0 / n_members
        matrix[:-1, :-1] += n_members * prior.ridge / geometric**2 * deviation
        return cls(centre, matrix / n_examples)

    def value(self, coefficients: FloatArray) -> float:
        distance = coefficients - self.centre
        return float(0.5 * distance @ self.matrix @ distance)

    def gradient(self, coefficients: FloatArray) -> FloatArray:
        return self.matrix @ (coefficients - self.centre)


def _newton_target(
    moments: WeightedMoments, penalty: Penalty, coefficients: FloatArray
) -> FloatArray:
    """Where the quadratic model of the objective is least, none of them negative."""
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import nnls

    gradient = moments.gradient + penalty.gradient(coefficients)
    hessian = moments.hessian + penalty.matrix
    hessian.flat[:: coefficients.size + 1] *= 1.0 + _ROUNDING
    factor = cholesky(hessian)
    linear = hessian @ coefficients - gradient
    target, _ = nnls(factor, solve_triangular(factor, linear, trans="T"))
    least = max(_LEAST_SHARE * target.sum(), _NOTHING)
    target[:-1] += max(least - target[:-1].sum(), 0.0) / (target.size - 1)
    return np.asarray(target)


class _Point(NamedTuple):
    """Coefficients and the moments of all rows there."""

    coefficients: FloatArray
    moments: WeightedMoments


def _minimize(
    table: MemberTable, penalty: Penalty, start: _Point
) -> tuple[_Point, bool]:
    """The coefficients of least penalised log loss; and whether the search ended."""
    x, moments = start
    tolerance = ENOUGH / table.labels.size
    for _ in range(MAX_ITER):
        step = _newton_target(moments, penalty, x) - x
        slope = float(step @ (moments.gradient + penalty.gradient(x)))
        if slope > -tolerance:
            return _Point(x, moments), True
        value = moments.loss + penalty.value(x)
        for halvings in range(_MAX_HALVINGS):
            length = 0.5**halvings
            target = x + length * step
            following = _moments(table, target)
            drop = value - following.loss - penalty.value(target)
            if drop >= -1e-4 * length * slope:
                break
        else:
            return _Point(x, moments), False
        x = target
        moments = following
    return _Point(x, moments), False


def _left_out(
    moments: RowMoments, block: TableBlock, hessian: FloatArray, x: FloatArray
) -> FloatArray:
    """The coefficients (p, n) as if the example of each row had been left out.

    `hessian` (p, p) is that of the objective on all rows, S. With H of a row, the steps
    (S - H)^-1 g are repeated S^-1 (g + H step), as H is a small part of S.
    """
    free = np.flatnonzero(x > _NOTHING * x.sum())
    inverse = np.linalg.inv(hessian[free[:, None], free])
    gradients = block.sum_votes(block.share * moments.gradients)
    share = block.sum_votes(block.share)
    steps = np.zeros(gradients.shape)
    steps[free] = inverse @ gradients[free]
    for _ in range(_MAX_REPEATS):
        right = gradients + share * moments.hessians_times(steps)
        following = inverse @ right[free]
        change = np.abs(following - steps[free]).max()
        steps[free] = following
        if change < _CLOSE * x.sum():
            break
    return np.maximum(x[:, None] + steps, _LEAST_LEFT * x[:, None])


class _PriorFit(NamedTuple):
    """The minimum for a prior, and coefficients (p, n) with each row left out."""

    point: _Point
    left_out: SingleArray
    loss: float
    converged: bool


def _fit_prior(
    table: MemberTable, prior: Prior, n_examples: float, start: _Point
) -> _PriorFit:
    penalty = Penalty.of(table.n_members, prior, n_examples)
    point, converged = _minimize(table, penalty, start)
    hessian = point.moments.hessian + penalty.matrix
    x = point.coefficients
    left_out = np.empty((x.size, table.labels.size), np.float32)
    losses = np.empty(table.labels.size)
    for rows in _row_blocks(table.logs.shape, table.votes_of):
        block = table.block(rows)
        moments = RowMoments.of(block, x)
        left_out[:, rows] = _left_out(moments, block, hessian, x)
        losses[rows] = block.losses(left_out[:, rows])
    return _PriorFit(point, left_out, float(table.share @ losses), converged)


@dataclass(frozen=True, eq=False)
class PoolFit:
    """A fitted pool, and what the examples say about its members.

    `losses` (members,) are the held-out log losses of the members alone, at their
    temperatures. `order` has the members as a greedy search adds them, and `remaining`
    (members,) the held-out log loss of the first, the first two, ...; both are empty for
    exchangeable members. `message` has a remedy if the fit has not `converged`.
    """

    pool: Pool
    losses: FloatArray
    order: tuple[int, ...]
    remaining: FloatArray
    converged: bool
    coefficients: FloatArray
    hessian: FloatArray

    @property
    def message(self) -> str:
        if self.converged:
            return "converged"
        return (
            f"no weights of the members in {MAX_ITER} iterations. Check the logits of "
            "each member for outliers."
        )

    def cross_fit(self, examples: Examples) -> Logits:
        """Pooled logits (n, classes) of the examples of the fit, as if held out.

        Each row is pooled by the coefficients that the others lead to, to first order.
        """
        return _cross_fit(self, examples)


def fit_pool(
    examples: Examples,
    *,
    exchangeable: bool = False,
    most_members: int | None = None,
    names: Sequence[str] | None = None,
) -> PoolFit:
    """The pool of least penalised log loss of examples whose logits are `MemberLogits`.

    Exchangeable members have equal weights. With `most_members`, the first of the greedy
    order are fitted again alone, and the others get the weight 0. `names` (members,)
    are for errors.
    """
    n_members = _members_of(examples).n_members
    _check_members(examples, names)
    if most_members is not None:
        check_count("most_members", most_members, most=n_members)
        if exchangeable:
            raise ValueError(
                "`most_members` chooses among members that differ; these are "
                "exchangeable. Pass as many of them as you want."
            )
    examples = examples.without_weightless().learnable
    with one_blas_thread():
        fit = _fit(examples, exchangeable)
        if most_members is None or most_members >= n_members:
            return fit
        chosen = sorted(fit.order[:most_members])
        return _widen(_fit(_take_members(examples, chosen), False), chosen, fit)


def _members_of(examples: Examples) -> MemberLogits:
    """The logits (members, n, classes) of examples of an ensemble."""
    members = examples.logits
    if not isinstance(members, MemberLogits):
        raise TypeError(
            "`examples` must have logits of several members, `MemberLogits`; got "
            f"{type(members).__name__}."
        )
    return members


def _check_members(examples: Examples, names: Sequence[str] | None) -> None:
    """Refuse a member without a row and a row without a member."""
    evaluated = _members_of(examples).evaluated & examples.counting
    for v in np.flatnonzero(~evaluated.any(axis=1)).tolist():
        name = f"member {v}" if names is None else f"{names[v]!r}"
        raise ValueError(
            f"`members` must each be evaluated on some example; {name} is NaN in all "
            f"{examples.n_rows}. Leave it out."
        )
    empty = np.flatnonzero(~evaluated.any(axis=0) & examples.counting)
    if empty.size:
        raise ValueError(
            f"`members` must have one that was evaluated in every row; all are NaN in "
            f"row {empty[0]}. Drop the row."
        )


def _take_members(examples: Examples, chosen: list[int]) -> Examples:
    """Some members, on the rows that one of them was evaluated on."""
    members = _members_of(examples)
    few = replace(examples, logits=members.select(chosen))
    rows = _members_of(few).evaluated.any(axis=0) & ~few.masked_truth
    return few if rows.all() else few.take(np.flatnonzero(rows))


def _widen(fit: PoolFit, chosen: list[int], whole: PoolFit) -> PoolFit:
    """The fit of the chosen members as one of all; the others have the weight 0."""
    size = whole.pool.weights.size

    def widen(values: FloatArray, fill: FloatArray) -> FloatArray:
        wide = fill.copy()
        wide[chosen] = values
        return wide

    zeros = np.zeros(size)
    hessian = np.zeros((size + 1, size + 1))
    wide_rows = np.append(chosen, size)
    hessian[wide_rows[:, None], wide_rows] = fit.hessian
    floors = fit.pool.floors
    pool = replace(
        whole.pool,
        weights=widen(fit.pool.weights, zeros),
        temperatures=widen(fit.pool.temperatures, whole.pool.temperatures),
        linear_share=fit.pool.linear_share,
        floors=None if floors is None else widen(floors, zeros),
    )
    return replace(
        whole,
        pool=pool,
        converged=fit.converged,
        coefficients=np.append(
            widen(fit.coefficients[:-1], zeros), fit.coefficients[-1]
        ),
        hessian=hessian,
    )


def _fit(examples: Examples, exchangeable: bool) -> PoolFit:
    members = _members_of(examples)
    n_numbers = members.n_members * members.n_columns
    sample = _spaced(examples, max(MIN_ROWS, MAX_TABLE // n_numbers))
    start = _choose_temperatures(sample, exchangeable)
    weights = start.weights
    # Missing members have the mean of the others by their weights, which are sought.
    n_rounds = 1 if _members_of(sample).evaluated.all() or exchangeable else 2
    for _ in range(n_rounds):
        table = make_table(sample, replace(start, weights=weights))
        averaged = _average_priors(table, examples.effective_size)
        x = averaged.coefficients
        if not exchangeable:
            weights = x[:-1] / x[:-1].sum()
    penalty = Penalty.of(x.size - 1, averaged.prior, examples.effective_size)
    last = _spaced(examples, max(sample.n_rows, MAX_LAST_STEP // n_numbers))
    if last.n_rows > sample.n_rows:
        x = _last_step(last, replace(start, weights=weights), x, penalty)
    x[:-1][x[:-1] < _LEAST_WEIGHT * x[:-1].sum()] = 0.0
    total = float(x[:-1].sum())
    weights = x[:-1] / total
    hessian = _moments(table, x).hessian + penalty.matrix
    pool = replace(start, weights=weights, linear_share=float(x[-1]) / (total + x[-1]))
    order, remaining = ((), np.zeros(0)) if exchangeable else _order(table, averaged)
    losses = _losses_alone(sample, pool)
    return PoolFit(pool, losses, order, remaining, averaged.converged, x, hessian)


def _spaced(examples: Examples, max_rows: int) -> Examples:
    """About `max_rows` evenly spaced rows, with their weights."""
    step = examples.n_rows // max(1, max_rows)
    if step < 2:
        return examples
    return examples.take(spaced_rows(0, examples.n_rows, step))


def _choose_temperatures(sample: Examples, exchangeable: bool) -> Pool:
    """A pool of equal weights with the members' temperatures, and floors for zeros."""
    members = _members_of(sample)
    rows = _spaced(sample, max(MIN_ROWS, MAX_FOR_TEMPERATURE // members.n_columns))
    singles = [_member_examples(rows, v) for v in range(members.n_members)]
    if exchangeable:
        singles = [_stack(singles)]
    floors = np.zeros(len(singles))
    temperatures = np.ones(len(singles))
    for v, single in enumerate(singles):
        base = choose_base(single, for_noise=False, with_prior=True)
        floors[v] = base.floor
        temperatures[v] = base.temperature.x
    weights = np.full(len(singles), 1.0 / len(singles))
    has_floors = bool(floors.any())
    return Pool(
        weights, temperatures, 0.5, exchangeable, floors if has_floors else None
    )


def _member_examples(rows: Examples, v: int) -> Examples:
    """The rows that one member was evaluated on, with its logits, on the host."""
    members = _members_of(rows)
    values = members.to_host(members.tables[v])
    index = np.flatnonzero(members.evaluated[v])
    top = members.to_host(members.top[v, ...])[index]
    weights = None if rows.weights is None else rows.weights[index]
    logits = Logits(values[index], top.astype(np.float64))
    votes_of = None if rows.votes_of is None else rows.votes_of[index]
    single = Examples(logits, rows.labels[index], weights, votes_of=votes_of)
    masked = single.masked_truth
    return single.take(np.flatnonzero(~masked)) if masked.any() else single


def _stack(singles: list[Examples]) -> Examples:
    """One member's rows below another's."""
    logits = [single.logits for single in singles]
    values = np.concatenate([block.values for block in logits])
    top = np.concatenate([block.top for block in logits])
    labels = np.concatenate([single.labels for single in singles])
    weights = np.concatenate([single.counts for single in singles])
    votes_of = None
    ids = [single.votes_of for single in singles if single.votes_of is not None]
    if ids:
        n_examples = 1 + max(int(rows.max()) for rows in ids)
        votes_of = np.concatenate([rows + v * n_examples for v, rows in enumerate(ids)])
    return Examples(Logits(values, top), labels, weights, votes_of=votes_of)


def make_table(examples: Examples, pool: Pool) -> MemberTable:
    """A table of the members at the pool's temperatures; see `MemberTable`."""
    members = _members_of(examples)
    n_members = 1 if pool.exchangeable else members.n_members
    shape = (n_members, members.n_columns, members.n_rows)
    logs = np.empty(shape, np.float32)
    differs = pool.exchangeable or not members.evaluated.all()
    proba = np.empty(shape, np.float32) if differs else None
    for rows in _example_blocks(examples):
        block = make_block(examples, pool, rows)
        logs[:, :, rows] = block.logs
        if proba is None:
            logs[:, :, rows] -= np.log(np.exp(block.logs).sum(axis=1, keepdims=True))
        else:
            proba[:, :, rows] = block.proba
    return MemberTable(logs, examples.labels, examples.share, proba, examples.votes_of)


def make_block(examples: Examples, pool: Pool, rows: slice) -> TableBlock:
    """Some rows of the table of all, with logarithms up to a constant of each row."""
    members = _members_of(examples).take(rows)
    evaluated = members.evaluated
    logs = np.empty((members.n_members, members.n_columns, members.n_rows), np.float32)
    for v in range(members.n_members):
        _put_scores(logs[v], members.member(v)[0], pool, 0 if pool.exchangeable else v)
    proba = np.exp(logs)
    proba *= 1.0 / proba.sum(axis=1, keepdims=True)
    if pool.exchangeable:
        weights = (evaluated / evaluated.sum(axis=0)).astype(np.float32)
        logs = np.einsum("vn,vkn->kn", weights, logs)[None]
        proba = np.einsum("vn,vkn->kn", weights, proba)[None]
    elif not evaluated.all():
        _impute(logs, evaluated, pool.weights)
        _impute(proba, evaluated, pool.weights)
    votes_of = None if examples.votes_of is None else examples.votes_of[rows]
    return TableBlock(
        logs, proba, examples.labels[rows], examples.share[rows], votes_of
    )


def _put_scores(out: SingleArray, logits: Logits, pool: Pool, i: int) -> None:
    """Write a member's scores, at its temperature, to `out` (classes, n)."""
    values = logits.values
    if not logits.is_numpy or values.dtype != np.float32 or pool.floors is not None:
        out[...] = logits.to_host(pool.member_scores(logits, i)).T
        return
    with np.errstate(over="ignore"):
        np.subtract(values.T, logits.top.astype(np.float32), out=out)
        out *= np.float32(1.0 / pool.temperatures[i])
    if not out.min() >= -FARTHEST_MARGIN:
        np.maximum(out, -FARTHEST_MARGIN, out=out)


def _impute(table: SingleArray, evaluated: BoolArray, weights: FloatArray) -> None:
    """Put the weighted mean of the evaluated members in the place of missing ones."""
    rows = np.flatnonzero(~evaluated.all(axis=0))
    row_weights = np.maximum(weights, _NOTHING)[:, None] * evaluated[:, rows]
    shares = (row_weights / row_weights.sum(axis=0)).astype(np.float32)
    values = table[:, :, rows]
    mean = np.einsum("vn,vkn->kn", shares, values)
    table[:, :, rows] = np.where(evaluated[:, None, rows], values, mean)


class _Averaged(NamedTuple):
    """As `_PriorFit`, averaged over priors, and the `prior` in their middle."""

    coefficients: FloatArray
    left_out: SingleArray
    prior: Prior
    converged: bool


def _average_priors(table: MemberTable, n_examples: float) -> _Averaged:
    """The coefficients of all priors, by exp(leave-one-out log-likelihood)."""
    priors: tuple[Prior, ...] = PRIORS
    if table.n_members == 1:  # none differs
        priors = tuple(prior for prior in PRIORS if prior.ridge == PRIORS[0].ridge)
    centre = Penalty.of(table.n_members, priors[0], 1.0).centre
    start = _Point(centre, _moments(table, centre))
    fits: list[_PriorFit] = []
    for prior in priors:
        fits.append(_fit_prior(table, prior, n_examples, start))
        start = fits[-1].point
    losses = np.array([fit.loss for fit in fits])
    shares = np.exp(-n_examples * (losses - losses.min()))
    shares /= shares.sum()
    coefficients = np.tensordot(shares, [fit.point.coefficients for fit in fits], 1)
    left_out = np.zeros_like(fits[0].left_out)
    for weight, fit in zip(shares, fits, strict=True):
        left_out += np.float32(weight) * fit.left_out
    ridges, linear = np.transpose(priors)
    prior = Prior(float(np.exp(shares @ np.log(ridges))), float(shares @ linear))
    converged = all(fit.converged for fit in fits)
    return _Averaged(coefficients, left_out, prior, converged)


def _last_step(
    examples: Examples, pool: Pool, x: FloatArray, penalty: Penalty
) -> FloatArray:
    """The coefficients after one Newton step on all of these rows.

    The penalty is that of the fit, also where these are only some of its rows.
    """
    sums = WeightedMoments.zero(x.size)
    for rows in _example_blocks(examples):
        sums = sums.plus(_block_moments(make_block(examples, pool, rows), x))
    return _newton_target(sums, penalty, x)


def _example_blocks(examples: Examples) -> list[slice]:
    """Blocks of rows of the table that examples make."""
    members = _members_of(examples)
    shape = members.n_members, members.n_columns, members.n_rows
    return _row_blocks(shape, examples.votes_of)


def _losses_alone(sample: Examples, pool: Pool) -> FloatArray:
    """The log loss of each member at its temperature, each row left out of it."""
    losses = np.empty(_members_of(sample).n_members)
    for v in range(losses.size):
        single = _member_examples(sample, v)
        scores = np.empty((single.logits.n_columns, single.n_rows), np.float32)
        _put_scores(scores, single.logits, pool, 0 if pool.exchangeable else v)
        rows, proba = _log_losses(scores, single.labels)
        # Derivatives by the logarithm of 1 / temperature.
        true = scores[single.labels, np.arange(single.n_rows)]
        expected = np.einsum("kn,kn->n", proba, scores)
        slopes = expected - true
        curvatures = np.einsum("kn,kn,kn->n", proba, scores, scores) - expected**2
        weights = single.counts
        without_row = weights @ curvatures - weights * curvatures
        rows += weights * slopes**2 / (without_row + _TEMPERATURE_RIDGE)
        losses[v] = single.share @ rows
    return losses


def _order(table: MemberTable, fit: _Averaged) -> tuple[tuple[int, ...], FloatArray]:
    """Members in greedy order, and the held-out log loss of the first, the first two, ...

    The order comes from all rows. What its beginnings leave is estimated by searches on
    one half of the rows, whose choices are judged on the other half: the losses of
    members that were chosen for these losses would be too low.
    """
    per_row = table.n_members * (table.n_members + 1) // 2 * table.logs.shape[1]
    n_rows = table.labels.size
    step = n_rows // max(MIN_ROWS, MAX_FOR_ORDER // per_row)
    rows = spaced_rows(0, n_rows, step) if step > 1 else np.arange(n_rows)
    example = rows if table.votes_of is None else table.votes_of[rows]
    number = np.unique(example, return_inverse=True)[1].ravel()
    rows = np.concatenate([rows[number % 2 == 0], rows[number % 2 == 1]])
    pool = _GrowingPool(table.block(rows), fit.left_out[:, rows])
    n_first = int((number % 2 == 0).sum())
    first = pool.take(slice(None, n_first))
    second = pool.take(slice(n_first, None)) if n_first < rows.size else first
    after_first = second.losses_along(_greedy_order(first))
    after_second = first.losses_along(_greedy_order(second))
    return tuple(_greedy_order(pool)), 0.5 * (after_first + after_second)


def _greedy_order(pool: _GrowingPool) -> list[int]:
    """The members as they lower the log loss most; after a few by their weights."""
    remaining = list(pool.by_weight)
    order: list[int] = []
    pool.begin()
    while remaining:
        losses = [0.0]
        if len(order) < MAX_GREEDY:
            losses = pool.losses_with(remaining)
        order.append(remaining.pop(int(np.argmin(losses))))
        pool.add(order[-1])
    return order


class _GrowingPool:
    """The mean of some members, to which others are added one by one.

    Coefficients (p, n) are those with each row left out. Members that are not added yet
    leave their weight to the others. The scale is fitted again for each set. The tables
    of the block are overwritten.
    """

    def __init__(self, block: TableBlock, left_out: SingleArray) -> None:
        total = left_out.sum(axis=0)
        self.weights = np.maximum(left_out[:-1], np.float32(_NOTHING) * total)
        self.weights /= self.weights.sum(axis=0)
        self.linear: SingleArray = left_out[-1] / total
        #: Tables (members, classes, n), each times the weights.
        self.logs = block.logs
        self.logs *= self.weights[:, None, :]
        self.proba = block.proba
        self.proba *= self.weights[:, None, :]
        self.labels = block.labels
        self.share = block.share
        self.begin()

    def take(self, rows: slice) -> Self:
        """The same pool for some of the rows, without a member."""
        pool = copy.copy(self)
        pool.weights = self.weights[:, rows]
        pool.linear = self.linear[rows]
        pool.logs = self.logs[:, :, rows]
        pool.proba = self.proba[:, :, rows]
        pool.labels = self.labels[rows]
        pool.share = self.share[rows] / self.share[rows].sum()
        pool.begin()
        return pool

    def begin(self) -> None:
        """Begin with no member."""
        shape = self.logs.shape[1:]
        self.geometric = np.zeros(shape, np.float32)
        self.arithmetic = np.zeros(shape, np.float32)
        self.total = np.zeros(shape[1], np.float32)
        self.scale = np.float32(1.0)
        #: Two tables (classes, n) that are written again and again.
        self._scores = np.empty(shape, np.float32)
        self._odds = np.empty(shape, np.float32)

    @property
    def by_weight(self) -> list[int]:
        """The members by their weights, the largest first."""
        means = self.weights.sum(axis=1)
        order: list[int] = np.argsort(-means, kind="stable").tolist()
        return order

    def losses_along(self, order: list[int]) -> FloatArray:
        """The log loss (members,) of the first, the first two, ... of an order."""
        self.begin()
        return np.array([self.add(v) for v in order])

    def losses_with(self, members: list[int]) -> list[float]:
        """The log loss with one more member, for each of the `members`."""
        return [self._loss(self._scores_with(v)) for v in members]

    def add(self, v: int) -> float:
        """Add a member; returns the log loss with it."""
        scores = self._scores_with(v)
        self._fit_scale(scores)
        self.geometric += self.logs[v]
        self.arithmetic += self.proba[v]
        self.total += self.weights[v]
        return self._loss(scores)

    def _scores_with(self, v: int) -> SingleArray:
        """The pooled scores (classes, n) with one more member, up to constants."""
        scores = self._scores
        np.add(self.geometric, self.logs[v], out=scores)
        scores *= (1.0 - self.linear) / (self.total + self.weights[v])
        arithmetic = self._odds
        np.add(self.arithmetic, self.proba[v], out=arithmetic)
        np.log(arithmetic, out=arithmetic)
        arithmetic *= self.linear
        scores += arithmetic
        return scores

    def _loss(self, scores: SingleArray) -> float:
        losses = np.log(self._odds_of(scores)[1])
        losses -= self.scale * self._true(scores)
        return float(self.share @ losses)

    def _true(self, table: SingleArray) -> SingleArray:
        return np.asarray(table[self.labels, np.arange(self.labels.size)])

    def _odds_of(self, scores: SingleArray) -> tuple[SingleArray, SingleArray]:
        """exp(scale scores) (classes, n), and their sums (n,).

        The best score of a row lies between -`FARTHEST_MARGIN` and 0, so its top need
        not be found.
        """
        odds = np.multiply(scores, self.scale, out=self._odds)
        np.exp(odds, out=odds)
        return odds, np.maximum(odds.sum(axis=0), _LEAST_ODDS)

    def _fit_scale(self, scores: SingleArray) -> None:
        """Two Newton steps for the scale of the scores, held near 1."""
        true = self._true(scores)
        ridge = SCALE_RIDGE / true.size
        for _ in range(2):
            proba, total = self._odds_of(scores)
            proba *= 1.0 / total
            expected = np.einsum("kn,kn->n", proba, scores)
            squares = np.einsum("kn,kn,kn->n", proba, scores, scores)
            variance = squares - expected * expected
            slope = self.share @ (expected - true) + ridge * (self.scale - 1.0)
            step = slope / (self.share @ variance + ridge)
            self.scale = max(
                self.scale - np.float32(step), np.float32(0.5) * self.scale
            )


def _cross_fit(fit: PoolFit, examples: Examples) -> Logits:
    members = _members_of(examples)
    shape = (examples.n_rows, examples.n_classes)
    pooled = np.empty(shape, order=members.order)
    free = np.flatnonzero(fit.coefficients > _NOTHING * fit.coefficients.sum())
    inverse = np.linalg.inv(fit.hessian[free[:, None], free])
    for rows in _example_blocks(examples):
        block = make_block(examples, fit.pool, rows)
        gradients = _row_gradients(block, fit.coefficients)[free]
        left_out = np.repeat(fit.coefficients[:, None], block.labels.size, axis=1)
        left_out[free] += inverse @ block.sum_votes(gradients * block.share)
        left_out = np.maximum(left_out, _LEAST_LEFT * fit.coefficients[:, None])
        pooled[rows] = _own_scale(fit.pool, block, left_out).T
    pooled[~members.to_host(members.possible)] = -np.inf
    return Logits(pooled, pooled.max(axis=1), codes=members.codes)


def _row_gradients(block: TableBlock, coefficients: FloatArray) -> SingleArray:
    """The gradient (p, n) of each row's loss, without its weight."""
    scores = block.scores(coefficients[:, None])
    _, residual = _log_losses(scores.values, block.labels)
    residual[block.labels, np.arange(block.labels.size)] -= 1.0
    gradients = np.empty((coefficients.size, block.labels.size), np.float32)
    np.einsum("vkn,kn->vn", block.logs, residual, out=gradients[:-1])
    np.einsum("kn,kn->n", scores.log_mean, residual, out=gradients[-1])
    residual /= scores.mean
    unit = np.float32(coefficients[-1] / coefficients[:-1].sum())
    gradients[:-1] += unit * np.einsum("vkn,kn->vn", block.proba, residual)
    return gradients


def _own_scale(pool: Pool, block: TableBlock, coefficients: FloatArray) -> SingleArray:
    """Pooled scores (classes, n) at the scale of the members' own logits."""
    weights = coefficients[:-1] / coefficients[:-1].sum(axis=0)
    beta = (weights / pool.temperatures[:, None]).sum(axis=0)
    scores = block.scores(coefficients).values
    scores *= 1.0 / (coefficients.sum(axis=0) * beta)
    return scores
