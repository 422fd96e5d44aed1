"""The pool of several members: temperatures, weights, and what each member is worth.

The temperature of each member is fitted alone, with the prior of the default. The
scores of class k are

    z_k = sum_v a_v log p_vk + b log(sum_v a_v p_vk / A),    A = sum_v a_v,

with coefficients a >= 0 and b >= 0 of least log loss and a quadratic penalty. The
penalty is small on the overall scale A + b and on the balance A - b of the geometric
and the arithmetic mean. Deviations of the coefficients a from each other, in units of
their prior mean, cost a ridge: near equal weights are given up as the examples show
that members differ. Two ridges are fitted, the larger for members that are as good as
each other, and averaged by exp(leave-one-out log-likelihood). The pool has the weights
a / A and the linear share b / (A + b); its scale is that of the members' own logits.

Leaving an example out needs no other fit: one Newton step without it leads there. With
S the Hessian of the objective, and g_i and H_i those of an example's loss with its
weight, the coefficients move by (S - H_i)^-1 g_i; a fold moves them by its sums of g
and H. The temperatures, one number of each member, stay.

Tables (members, n, classes) are made of a sample of the rows. If there are more, the
coefficients end with a Newton step on all of them, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import check_count
from hokical._core.logits import Logits
from hokical._core.runtime import cut_rows, one_blas_thread
from hokical._core.special import row_sums
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.searches import choose_base
from hokical.rules.pooled import MemberLogits, Pool

#: Penalties, in nats, on the squared deviation of the coefficients from each other: for
#: members that are nearly equal, and for members that differ.
RIDGES = (100.0, 3.0)
#: The same on the overall scale, and on the balance of the two means.
SCALE_RIDGE = 10.0
BALANCE_RIDGE = 10.0
#: Most numbers in a table (members, n, classes), and the fewest rows of it.
MAX_TABLE = 3 << 18
MIN_ROWS = 500
#: Numbers of a table (members, rows, classes) that the cache holds with others.
BLOCK_SIZE = 1 << 17
#: Most numbers that the last Newton step looks at.
MAX_LAST_STEP = 1 << 22
#: Most numbers of a member that its temperature is fitted on.
MAX_FOR_TEMPERATURE = 1 << 16
#: Most numbers that the greedy order looks at, over all its steps.
MAX_FOR_ORDER = 1 << 22
#: Members that are chosen one by one; the others follow by their weights.
MAX_GREEDY = 8
#: The search ends where it expects to gain less than this, in nats over all rows.
ENOUGH = 0.05
MAX_ITER = 30
_MAX_HALVINGS = 10
#: Least share of the coefficients that members have together: without any, their mean
#: probability would not be defined.
_LEAST_SHARE = 0.05
#: A left-out coefficient is at least this part of the fitted one.
_LEAST_LEFT = 1e-3
#: Members with less weight are not worth their evaluation: their weight becomes 0.
_LEAST_WEIGHT = 1e-3
#: Coefficients below this share of all are 0.
_NOTHING = 1e-6
#: Precision of the prior of log T, as in the temperatures' own fit.
_TEMPERATURE_RIDGE = 1.0


class MemberTable(NamedTuple):
    """Log-probabilities and probabilities (members, n, classes) at the temperatures.

    `labels` (n,) and `share` (n,), which sums to 1. Members that were not evaluated on
    a row have the mean of the others there.
    """

    logs: FloatArray
    proba: FloatArray
    labels: IntArray
    share: FloatArray

    @property
    def n_members(self) -> int:
        return int(self.logs.shape[0])

    def take(self, rows: IntArray | slice) -> MemberTable:
        """Some rows; their shares are those among all rows."""
        return MemberTable(
            self.logs[:, rows],
            self.proba[:, rows],
            self.labels[rows],
            self.share[rows],
        )

    def scores(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The pooled scores (n, classes) and the arithmetic mean in them.

        The coefficients (members + 1, n) or (members + 1, 1) may differ by row.
        """
        a = coefficients[:-1]
        weights = a / a.sum(axis=0)
        if a.shape[1] == 1:
            scores = np.tensordot(a[:, 0], self.logs, 1)
            arithmetic = np.tensordot(weights[:, 0], self.proba, 1)
        else:
            scores = np.einsum("vn,vnk->nk", a, self.logs)
            arithmetic = np.einsum("vn,vnk->nk", weights, self.proba)
        scores += coefficients[-1][:, None] * np.log(arithmetic)
        return scores, arithmetic

    def losses(self, coefficients: FloatArray) -> FloatArray:
        """-log p of the true class, (n,)."""
        return _log_losses(self.scores(coefficients)[0], self.labels)[0]


def _log_losses(scores: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """-log p of the true class (n,), and the softmax (n, classes)."""
    top = scores.max(axis=1, keepdims=True)
    odds = scores - top
    np.exp(odds, out=odds)
    total = row_sums(odds, np)[:, None]
    true = scores[np.arange(labels.size), labels]
    odds *= 1.0 / total
    return top[:, 0] + np.log(total[:, 0]) - true, odds


class RowMoments(NamedTuple):
    """Each row's loss (n,), gradient (n, p) and Hessian (n, p, p), without its weight.

    The Hessian is that of scores that are linear in the coefficients.
    """

    losses: FloatArray
    gradients: FloatArray
    hessians: FloatArray


def _row_moments(table: MemberTable, coefficients: FloatArray) -> RowMoments:
    scores, arithmetic = table.scores(coefficients[:, None])
    losses, proba = _log_losses(scores, table.labels)
    slopes = _slopes(table, coefficients, arithmetic).transpose(1, 0, 2)
    means = (slopes @ proba[:, :, None])[:, :, 0]
    true = slopes[np.arange(table.labels.size), :, table.labels]
    hessians = (slopes * proba[:, None, :]) @ slopes.transpose(0, 2, 1)
    hessians -= means[:, :, None] * means[:, None, :]
    return RowMoments(losses, means - true, hessians)


def _slopes(
    table: MemberTable, coefficients: FloatArray, arithmetic: FloatArray
) -> FloatArray:
    """Derivatives (p, n, classes) of the scores by the coefficients, up to constants."""
    slopes = np.empty((coefficients.size, *arithmetic.shape))
    unit = coefficients[-1] / coefficients[:-1].sum() / arithmetic
    np.multiply(table.proba, unit, out=slopes[:-1])
    slopes[:-1] += table.logs
    np.log(arithmetic, out=slopes[-1])
    return slopes


class WeightedMoments(NamedTuple):
    """Sums over rows, with their shares: loss, gradient (p,) and Hessian (p, p)."""

    loss: float
    gradient: FloatArray
    hessian: FloatArray


def _moments(table: MemberTable, coefficients: FloatArray) -> WeightedMoments:
    """`_row_moments` added up, by blocks of rows that fit into the cache."""
    size = coefficients.size
    loss = 0.0
    gradient = np.zeros(size)
    hessian = np.zeros((size, size))
    for rows in _row_blocks(table):
        block = table.take(rows)
        scores, arithmetic = block.scores(coefficients[:, None])
        losses, proba = _log_losses(scores, block.labels)
        slopes = _slopes(block, coefficients, arithmetic)
        means = np.einsum("pnk,nk->pn", slopes, proba)
        true = slopes[:, np.arange(block.labels.size), block.labels]
        loss += float(block.share @ losses)
        gradient += (means - true) @ block.share
        proba *= block.share[:, None]
        slopes *= np.sqrt(proba)
        flat = slopes.reshape(size, -1)
        hessian += flat @ flat.T
        hessian -= (means * block.share) @ means.T
    return WeightedMoments(loss, gradient, hessian)


def _row_blocks(table: MemberTable) -> list[slice]:
    per_row = table.n_members * table.logs.shape[2]
    return cut_rows(table.labels.size, max(1, BLOCK_SIZE // per_row))


@dataclass(frozen=True, eq=False)
class Penalty:
    """Half of d' `matrix` d, d being the distance of coefficients from the `centre`."""

    centre: FloatArray
    matrix: FloatArray

    @classmethod
    def of(cls, n_members: int, ridge: float, n_examples: float) -> Penalty:
        """In nats per example, of so many examples."""
        size = n_members + 1
        centre = np.full(size, 0.5 / n_members)
        centre[-1] = 0.5
        scale = np.ones(size)
        balance = np.ones(size)
        balance[-1] = -1.0
        matrix = SCALE_RIDGE * np.outer(scale, scale)
        matrix += BALANCE_RIDGE * np.outer(balance, balance)
        deviation = np.eye(n_members) - 1.0 / n_members
        matrix[:-1, :-1] += 4.0 * n_members * ridge * deviation
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
    hessian.flat[:: coefficients.size + 1] *= 1.0 + 1e-12
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
    moments: RowMoments, share: FloatArray, hessian: FloatArray, x: FloatArray
) -> FloatArray:
    """The coefficients (p, n) as if each row, or each fold of rows, had been left out.

    `hessian` (p, p) is that of the objective on all rows.
    """
    free = np.flatnonzero(x > _NOTHING * x.sum())
    gradients = share[:, None] * moments.gradients[:, free]
    own = share[:, None, None] * moments.hessians[:, free[:, None], free]
    rest = hessian[free[:, None], free] - own
    steps = np.linalg.solve(rest, gradients[:, :, None])[:, :, 0]
    moved = np.repeat(x[:, None], share.size, axis=1)
    moved[free] += steps.T
    return np.maximum(moved, _LEAST_LEFT * x[:, None])


class _Ridged(NamedTuple):
    """The minimum of a ridge, and coefficients (p, n) with each row left out."""

    point: _Point
    left_out: FloatArray
    loss: float
    converged: bool


def _fit_ridge(
    table: MemberTable, ridge: float, n_examples: float, start: _Point
) -> _Ridged:
    penalty = Penalty.of(table.n_members, ridge, n_examples)
    point, converged = _minimize(table, penalty, start)
    hessian = point.moments.hessian + penalty.matrix
    x = point.coefficients
    left_out = np.empty((x.size, table.labels.size))
    losses = np.empty(table.labels.size)
    for rows in _row_blocks(table):
        block = table.take(rows)
        moments = _row_moments(block, x)
        left_out[:, rows] = _left_out(moments, block.share, hessian, x)
        losses[rows] = block.losses(left_out[:, rows])
    return _Ridged(point, left_out, float(table.share @ losses), converged)


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
    index = members.from_host(np.array(chosen))
    values = members.xp.take(members.values, index, axis=0)
    top = members.xp.take(members.top, index, axis=0)
    few = replace(examples, logits=replace(members, values=values, top=top))
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
        ridged = _average_ridges(table, examples.effective_size)
        x = ridged.coefficients
        if not exchangeable:
            weights = x[:-1] / x[:-1].sum()
    penalty = Penalty.of(x.size - 1, ridged.ridge, examples.effective_size)
    last = _spaced(examples, max(sample.n_rows, MAX_LAST_STEP // n_numbers))
    if last.n_rows > sample.n_rows:
        x = _last_step(last, replace(start, weights=weights), x, penalty)
    x[:-1][x[:-1] < _LEAST_WEIGHT * x[:-1].sum()] = 0.0
    total = float(x[:-1].sum())
    weights = x[:-1] / total
    hessian = _moments(table, x).hessian + penalty.matrix
    pool = replace(start, weights=weights, linear_share=float(x[-1]) / (total + x[-1]))
    order, remaining = ((), np.zeros(0)) if exchangeable else _order(table, ridged)
    losses = _losses_alone(sample, pool)
    return PoolFit(pool, losses, order, remaining, ridged.converged, x, hessian)


def _spaced(examples: Examples, max_rows: int) -> Examples:
    """Evenly spaced rows, about so many, with the weights that they have."""
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
    some = floors if floors.any() else None
    return Pool(weights, temperatures, 0.5, exchangeable, some)


def _member_examples(rows: Examples, v: int) -> Examples:
    """The rows that one member was evaluated on, with its logits, on the host."""
    members = _members_of(rows)
    values = members.to_host(members.values[v, ...])
    index = np.flatnonzero(members.evaluated[v])
    top = members.to_host(members.top[v, ...])[index]
    weights = None if rows.weights is None else rows.weights[index]
    logits = Logits(values[index], top.astype(np.float64))
    single = Examples(logits, rows.labels[index], weights)
    masked = single.masked_truth
    return single.take(np.flatnonzero(~masked)) if masked.any() else single


def _stack(singles: list[Examples]) -> Examples:
    """One member's rows below another's."""
    logits = [single.logits for single in singles]
    values = np.concatenate([block.values for block in logits])
    top = np.concatenate([block.top for block in logits])
    labels = np.concatenate([single.labels for single in singles])
    weights = np.concatenate([single.counts for single in singles])
    return Examples(Logits(values, top), labels, weights)


def make_table(examples: Examples, pool: Pool) -> MemberTable:
    """Tables of the members at the pool's temperatures; see `MemberTable`."""
    members = _members_of(examples)
    evaluated = members.evaluated
    logs = np.empty((members.n_members, members.n_rows, members.n_columns))
    proba = np.empty_like(logs)
    for v in range(members.n_members):
        single, _ = members.member(v)
        i = 0 if pool.exchangeable else v
        logs[v] = members.to_host(pool.member_scores(single, i))
        odds = np.exp(logs[v], out=proba[v])
        total = row_sums(odds, np)[:, None]
        odds *= 1.0 / total
        logs[v] -= np.log(total)
    if pool.exchangeable:
        weights = evaluated / evaluated.sum(axis=0)
        logs = np.einsum("vn,vnk->nk", weights, logs)[None]
        proba = np.einsum("vn,vnk->nk", weights, proba)[None]
    elif not evaluated.all():
        _impute(logs, evaluated, pool.weights)
        _impute(proba, evaluated, pool.weights)
    return MemberTable(logs, proba, examples.labels, examples.share)


def _impute(table: FloatArray, evaluated: BoolArray, weights: FloatArray) -> None:
    """Put the weighted mean of the evaluated members in the place of missing ones."""
    rows = np.flatnonzero(~evaluated.all(axis=0))
    own = np.maximum(weights, _NOTHING)[:, None] * evaluated[:, rows]
    mean = np.einsum("vn,vnk->nk", own / own.sum(axis=0), table[:, rows])
    table[:, rows] = np.where(evaluated[:, rows, None], table[:, rows], mean)


class _Averaged(NamedTuple):
    """As `_Ridged`, averaged over ridges; `ridge` is their geometric mean."""

    coefficients: FloatArray
    left_out: FloatArray
    ridge: float
    converged: bool


def _average_ridges(table: MemberTable, n_examples: float) -> _Averaged:
    """Both ridges' coefficients, by exp(leave-one-out log-likelihood)."""
    centre = Penalty.of(table.n_members, 0.0, 1.0).centre
    start = _Point(centre, _moments(table, centre))
    ridges = RIDGES if table.n_members > 1 else RIDGES[:1]
    fits: list[_Ridged] = []
    for ridge in ridges:
        fits.append(_fit_ridge(table, ridge, n_examples, start))
        start = fits[-1].point
    losses = np.array([fit.loss for fit in fits])
    shares = np.exp(-n_examples * (losses - losses.min()))
    shares /= shares.sum()
    coefficients = np.tensordot(shares, [fit.point.coefficients for fit in fits], 1)
    left_out = np.tensordot(shares, [fit.left_out for fit in fits], 1)
    ridge = float(np.exp(shares @ np.log(ridges)))
    converged = all(fit.converged for fit in fits)
    return _Averaged(coefficients, left_out, ridge, converged)


def _last_step(
    examples: Examples, pool: Pool, x: FloatArray, penalty: Penalty
) -> FloatArray:
    """The coefficients after one Newton step on all of these rows.

    The penalty is that of the fit, also where these are only some of its rows.
    """
    gradient = np.zeros(x.size)
    hessian = np.zeros((x.size, x.size))
    for rows in _example_blocks(examples):
        block = examples.take(rows)
        table = make_table(block, pool)._replace(share=examples.share[rows])
        moments = _moments(table, x)
        gradient += moments.gradient
        hessian += moments.hessian
    return _newton_target(WeightedMoments(0.0, gradient, hessian), penalty, x)


def _example_blocks(examples: Examples) -> list[slice]:
    """Rows whose tables have at most `BLOCK_SIZE` numbers each."""
    members = _members_of(examples)
    per_row = members.n_members * members.n_columns
    return cut_rows(examples.n_rows, max(1, BLOCK_SIZE // per_row))


def _losses_alone(sample: Examples, pool: Pool) -> FloatArray:
    """The log loss of each member at its temperature, each row left out of it."""
    losses = np.empty(_members_of(sample).n_members)
    for v in range(losses.size):
        single = _member_examples(sample, v)
        scores = pool.member_scores(single.logits, 0 if pool.exchangeable else v)
        rows, proba = _log_losses(scores, single.labels)
        # Derivatives by the logarithm of 1 / temperature.
        true = scores[np.arange(single.n_rows), single.labels]
        expected = np.einsum("nk,nk->n", proba, scores)
        slopes = expected - true
        curvatures = np.einsum("nk,nk->n", proba, scores**2) - expected**2
        weights = single.counts
        rest = weights @ curvatures - weights * curvatures + _TEMPERATURE_RIDGE
        rows += weights * slopes**2 / rest
        losses[v] = single.share @ rows
    return losses


def _order(table: MemberTable, fit: _Averaged) -> tuple[tuple[int, ...], FloatArray]:
    """Members in greedy order, and the held-out log loss of the first, the first two, ...

    The order comes from all rows. What its beginnings leave is estimated by searches on
    one half of the rows, whose choices are judged on the other half: the losses of
    members that were chosen for these losses would be too low.
    """
    size = table.n_members
    numbers = size * (size + 1) // 2 * table.logs.shape[2]
    n_rows = table.labels.size
    step = max(1, min(n_rows // 100, n_rows * numbers // MAX_FOR_ORDER))
    rows = spaced_rows(0, n_rows, step) if step > 1 else np.arange(n_rows)
    sample = table.take(rows)
    left_out = fit.left_out[:, rows]
    halves = [np.arange(side, rows.size, 2) for side in (0, 1)]
    first, second = (_GrowingPool(sample.take(r), left_out[:, r]) for r in halves)
    after_first = second.losses_along(_greedy_order(first))
    after_second = first.losses_along(_greedy_order(second))
    order = _greedy_order(_GrowingPool(sample, left_out))
    return tuple(order), 0.5 * (after_first + after_second)


def _greedy_order(pool: _GrowingPool) -> list[int]:
    """The members as they lower the log loss most; after a few by their weights."""
    remaining = list(pool.by_weight)
    order: list[int] = []
    pool.clear()
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
    leave their weight to the others. The scale is fitted again for each set.

    Tables are (members, classes, n) here, as numbers of rows multiply them, and in
    single precision, in which exponentials take a quarter of the time: losses are
    compared, and reported to four digits.
    """

    def __init__(self, table: MemberTable, left_out: FloatArray) -> None:
        share = table.share / table.share.sum()
        weights = np.maximum(left_out[:-1], _NOTHING * left_out.sum(axis=0))
        weights = weights / weights.sum(axis=0)
        #: The members by their weights, the largest first.
        self.by_weight = np.argsort(-weights.sum(axis=1), kind="stable").tolist()
        self.weights = weights.astype(np.float32)
        self.linear = (left_out[-1] / left_out.sum(axis=0)).astype(np.float32)
        by_row = self.weights[:, None, :]
        self.logs = by_row * table.logs.transpose(0, 2, 1).astype(np.float32, order="C")
        self.proba = by_row * table.proba.transpose(0, 2, 1).astype(
            np.float32, order="C"
        )
        self.share = share
        self.true = (table.labels, np.arange(table.labels.size))
        self.clear()

    def clear(self) -> None:
        """Begin with no member."""
        self.geometric = np.zeros(self.logs.shape[1:], np.float32)
        self.arithmetic = np.zeros(self.logs.shape[1:], np.float32)
        self.total = np.zeros(self.share.size, np.float32)
        self.scale = 1.0

    def losses_along(self, order: list[int]) -> FloatArray:
        """The log loss (members,) of the first, the first two, ... of an order."""
        self.clear()
        return np.array([self.add(v) for v in order])

    def losses_with(self, members: list[int]) -> list[float]:
        """The log loss with one more member, for each of some."""
        return [self.loss(self.scores_with(v)) for v in members]

    def add(self, v: int) -> float:
        """Add a member; returns the log loss with it."""
        scores = self.scores_with(v)
        self._fit_scale(scores)
        self.geometric += self.logs[v]
        self.arithmetic += self.proba[v]
        self.total += self.weights[v]
        return self.loss(scores)

    def scores_with(self, v: int) -> NDArray[np.float32]:
        """The pooled scores (classes, n) with one more member."""
        total = self.total + self.weights[v]
        scores: NDArray[np.float32] = self.geometric + self.logs[v]
        scores *= (1.0 - self.linear) / total
        arithmetic = self.arithmetic + self.proba[v]
        arithmetic *= 1.0 / total
        np.log(arithmetic, out=arithmetic)
        arithmetic *= self.linear
        scores += arithmetic
        return scores

    def loss(self, scores: NDArray[np.float32]) -> float:
        odds, top = self._odds(scores)
        losses = np.log(odds.sum(axis=0)) + np.float32(self.scale) * top
        losses -= np.float32(self.scale) * scores[self.true]
        return float(self.share @ losses)

    def _odds(
        self, scores: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """exp(scale (scores - top)) (classes, n), and the top score of each row (n,)."""
        top = scores.max(axis=0)
        odds = scores - top
        odds *= np.float32(self.scale)
        return np.exp(odds, out=odds), top

    def _fit_scale(self, scores: NDArray[np.float32]) -> None:
        """Two Newton steps for the scale of the scores, held near 1."""
        true = scores[self.true]
        ridge = SCALE_RIDGE / true.size
        for _ in range(2):
            proba, _ = self._odds(scores)
            proba /= proba.sum(axis=0)
            expected = np.einsum("kn,kn->n", proba, scores)
            squares = np.einsum("kn,kn,kn->n", proba, scores, scores)
            variance = squares - expected * expected
            slope = self.share @ (expected - true) + ridge * (self.scale - 1.0)
            step = slope / (self.share @ variance + ridge)
            self.scale = max(self.scale - float(step), 0.5 * self.scale)


def _cross_fit(fit: PoolFit, examples: Examples) -> Logits:
    pooled = np.empty((examples.n_rows, examples.n_classes))
    free = np.flatnonzero(fit.coefficients > _NOTHING * fit.coefficients.sum())
    inverse = np.linalg.inv(fit.hessian[free[:, None], free])
    for rows in _example_blocks(examples):
        table = make_table(examples.take(rows), fit.pool)
        gradients = _row_gradients(table, fit.coefficients)[free]
        left_out = np.repeat(fit.coefficients[:, None], table.labels.size, axis=1)
        left_out[free] += inverse @ (gradients * examples.share[rows])
        left_out = np.maximum(left_out, _LEAST_LEFT * fit.coefficients[:, None])
        pooled[rows] = _own_scale(fit.pool, table, left_out)
    members = _members_of(examples)
    pooled[~members.to_host(members.possible)] = -np.inf
    return Logits(pooled, pooled.max(axis=1), codes=members.codes)


def _row_gradients(table: MemberTable, coefficients: FloatArray) -> FloatArray:
    """The gradient (p, n) of each row's loss, without its weight."""
    scores, arithmetic = table.scores(coefficients[:, None])
    _, residual = _log_losses(scores, table.labels)
    residual[np.arange(table.labels.size), table.labels] -= 1.0
    unit = coefficients[-1] / coefficients[:-1].sum() / arithmetic
    gradients = np.empty((coefficients.size, table.labels.size))
    np.einsum("vnk,nk->vn", table.logs, residual, out=gradients[:-1])
    gradients[:-1] += np.einsum("vnk,nk->vn", table.proba, residual * unit)
    np.einsum("nk,nk->n", np.log(arithmetic), residual, out=gradients[-1])
    return gradients


def _own_scale(pool: Pool, table: MemberTable, coefficients: FloatArray) -> FloatArray:
    """Pooled scores (n, classes) at the scale of the members' own logits."""
    weights = coefficients[:-1] / coefficients[:-1].sum(axis=0)
    beta = (weights / pool.temperatures[:, None]).sum(axis=0)
    scores, _ = table.scores(coefficients)
    return np.asarray(scores / (coefficients.sum(axis=0) * beta)[:, None])
