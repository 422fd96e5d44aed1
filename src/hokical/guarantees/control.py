"""One engine for every guarantee: thresholds whose loss on new examples is proven to be
small.

A threshold on a score decides something about each example, and each decision has a
loss in [0, 1]: the true class is missing from the set, an accepted label is wrong, a
positive is not found. Two tools bound the mean loss of new examples (proofs:
`docs/theory.md`):

- on average over the examples: conformal risk control, for losses that only grow along
  the thresholds. (sum of losses + 1) / (n + 1) must be at most the risk; for losses of
  0 and 1 the threshold is an order statistic of the scores.
- with probability 1 - delta: tests of "the loss exceeds the risk" at each threshold, in
  an order fixed in advance, by exact binomial tails (0 and 1) or by Hoeffding and
  Bentkus (others).

Examples may also come in groups, and a new one be of a group that was never seen: then
groups are what is counted, with the loss "this group's own examples show too large a
mean loss".

Risk control for losses of your own: the last threshold whose mean loss is proven to be
small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.checks import show
from hokical._core.groups import GroupNames
from hokical._core.reading import refuse
from hokical.guarantees.bounds import binomial_tail, check_chance, scipy_special

#: What rounding may take from the number of examples that must be covered.
_TOLERANCE = 1e-9
#: What rounding may take from a loss that only grows.
_LOSS_TOLERANCE = 1e-12


def fewest_examples(risk: float, delta: float | None = None) -> int:
    """The number of examples below which no threshold is proven, even with zero errors.

    >>> fewest_examples(0.1), fewest_examples(0.1, delta=0.1)
    (9, 22)
    """
    if delta is None:
        return math.ceil((1.0 - risk) / risk - _TOLERANCE)
    return math.ceil(math.log(delta) / math.log1p(-risk) - _TOLERANCE)


def examples_to_cover(n: Any, coverage: float, delta: float | None = None) -> IntArray:
    """How many of n examples (...) must have no loss; n + 1 if even all are not enough.

    (n + 1) coverage, rounded up: a further example is covered with that probability.
    With `delta` the least k for which Beta(k, n + 1 - k), the law of the true coverage,
    is above `coverage` with probability 1 - delta.

    >>> int(examples_to_cover(999, 0.9)), int(examples_to_cover(999, 0.9, delta=0.05))
    (900, 915)
    """
    n = np.asarray(n, np.int64)
    if delta is None:
        needed = np.ceil((n + 1) * coverage - _TOLERANCE).astype(np.int64)
        return np.asarray(np.minimum(needed, n + 1))
    # numbers of losses
    passes = np.zeros_like(n)
    fails = n + 1
    while (fails - passes > 1).any():
        middle = (passes + fails) // 2
        is_proven = binomial_tail(middle, n, 1.0 - coverage) <= delta
        passes = np.where(is_proven, middle, passes)
        fails = np.where(is_proven, fails, middle)
    return np.asarray(
        np.where(n < fewest_examples(1.0 - coverage, delta), n + 1, n - passes)
    )


@dataclass(frozen=True, eq=False)
class Thresholds:
    """`values` (cells,), inf where everything is needed; which cells are `pooled`
    (cells,).
    """

    values: FloatArray
    pooled: BoolArray
    fewest: int


def find_thresholds(
    scores: FloatArray,
    cells: IntArray,
    n_cells: int,
    coverage: float,
    delta: float | None = None,
    *,
    weights: FloatArray | None = None,
    unit: float = 1.0,
    pool: bool = True,
) -> Thresholds:
    """A threshold for each cell of examples (n,) that a share `coverage` of scores does
    not exceed.

    `unit` is the most that a new example may weigh beside the weights (n,) of these;
    with `delta` these must be counts. If `pool`, a cell with fewer examples than
    `fewest` gets the threshold of all examples of cells with at most that many: what
    the cells are is then the same whichever of the examples is the new one. A single
    cell is never pooled.
    """
    if delta is not None and not (unit == 1.0 and can_be_counts(weights)):
        raise ValueError(
            "`delta` needs examples that all count alike, without `sample_weight` in "
            "`certify` or other class frequencies. Leave `delta` out, for a guarantee "
            "on average, pass `counts=True` if the weights are numbers of examples, or "
            "certify with new examples."
        )
    counts = np.ones(scores.size) if weights is None else weights

    to_cover = partial(_weight_to_cover, coverage=coverage, delta=delta, unit=unit)
    values = _order_statistics(scores, counts, cells, n_cells, to_cover)
    fewest = fewest_examples(1.0 - coverage, delta)
    sizes = np.bincount(cells, counts, n_cells)
    pooled = (sizes < fewest * unit) & (pool and n_cells > 1)
    if pooled.any():
        in_small_cell = sizes[cells] <= fewest * unit
        scores = scores[in_small_cell]
        one_cell = np.zeros(scores.size, np.int64)
        shared = _order_statistics(scores, counts[in_small_cell], one_cell, 1, to_cover)
        values = np.where(pooled, shared, values)
    return Thresholds(values, pooled, fewest)


def _order_statistics(
    scores: FloatArray,
    counts: FloatArray,
    cells: IntArray,
    n_cells: int,
    to_cover: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """In each cell the least score below which enough of its examples lie, inf where
    there are too few.

    `to_cover` is the weight that must be reached in a cell, by the weight of all its
    examples.
    """
    order = np.lexsort((scores, cells))
    reached = np.cumsum(counts[order])
    cell_starts = np.searchsorted(cells[order], np.arange(n_cells + 1))
    before = np.append(0.0, reached)[cell_starts]
    position = np.searchsorted(reached, before[:-1] + to_cover(np.diff(before)))
    sorted_scores = np.append(scores[order], np.inf)
    return np.where(position < cell_starts[1:], sorted_scores[position], np.inf)


def _weight_to_cover(
    sums: FloatArray, *, coverage: float, delta: float | None, unit: float
) -> FloatArray:
    """The least weight of covered examples, of cells whose examples weigh `sums`.

    Half an example or a rounding error less, so that an exact sum reaches it.
    """
    if delta is None:
        return (sums + unit) * coverage - _TOLERANCE * unit
    return examples_to_cover(np.rint(sums), coverage, delta).astype(np.float64) - 0.5


def new_group_threshold(
    scores: FloatArray,
    group: IntArray,
    coverage: float,
    delta: float | None,
    counts: FloatArray,
) -> Thresholds:
    """One threshold for a further group, drawn like those of examples (n,) at the
    places `group`.

    On average over groups, each of which counts as one example that its own examples
    share (hierarchical conformal prediction); or, with `delta`, with probability 1 -
    delta: of what the groups' own examples ask for, the order statistic that a further
    group's does not exceed.
    """
    group_index = np.unique(group, return_inverse=True)[1]
    sizes = np.bincount(group_index, counts)
    one_cell = np.zeros(scores.size, np.int64)
    if delta is None:
        return find_thresholds(
            scores, one_cell, 1, coverage, weights=counts / sizes[group_index]
        )
    group_thresholds = find_thresholds(
        scores,
        group_index,
        sizes.size,
        coverage,
        weights=counts,
        unit=0.0,
        pool=False,
    ).values
    return find_thresholds(
        group_thresholds, np.zeros(group_thresholds.size, np.int64), 1, 1.0 - delta
    )


@dataclass(frozen=True, eq=False)
class Losses:
    """Sums of losses in [0, 1] and numbers of examples that count, (..., thresholds)
    each.

    `risk` is what their mean must not exceed, `binary` losses are 0 or 1. Of groups
    with the `sizes` (groups,) of each, all their examples. A group shows a mean loss
    where 4 / risk of its examples count, or half of them if that is fewer: among fewer,
    one loss decides.
    """

    sums: AnyArray
    counts: AnyArray
    risk: float
    sizes: Any = None
    binary: bool = True

    @classmethod
    def of(cls, table: FloatArray, weights: FloatArray, risk: float) -> Losses:
        """Of losses (n, m), NaN where an example does not count; weights (n,) on any
        scale.
        """
        counts_here = ~np.isnan(table)
        scaled_weights = weights / weights.max()
        binary = bool(np.isin(table[counts_here], (0.0, 1.0)).all())
        return cls(
            scaled_weights @ np.where(counts_here, table, 0.0),
            scaled_weights @ counts_here,
            risk,
            binary=binary,
        )

    @classmethod
    def by_group(cls, table: FloatArray, group_index: IntArray, risk: float) -> Losses:
        """The same of each group (groups, m), where examples have the index (n,) of
        theirs.
        """
        order = np.argsort(group_index, kind="stable")
        counts_here = ~np.isnan(table)
        starts = np.searchsorted(group_index[order], np.arange(group_index.max() + 1))
        tables = (np.where(counts_here, table, 0.0), counts_here.astype(np.float64))
        sums, counts = (
            np.add.reduceat(table_part[order], starts, axis=0) for table_part in tables
        )
        return cls(sums, counts, risk, np.bincount(group_index).astype(np.float64))

    def repeated(self, times: float) -> Losses:
        """Those of `times` as many examples, with half a loss more than these."""
        sums = np.ceil(times * (self.sums + 0.5))
        counts = np.floor(times * self.counts)
        return replace(self, sums=sums, counts=counts)

    def p_values(self) -> FloatArray:
        """p-values (m,) of "the mean loss exceeds the risk".

        Exact for losses of 0 and 1. For others the smaller one of Hoeffding's bound and
        Bentkus's (Bates et al. 2021, doi:10.1145/3478535).

        >>> few, losses = np.array([50.0, 50.0]), np.array([1.0, 1.5])
        >>> Losses(losses, few, 0.1, binary=False).p_values().round(3)
        array([0.077, 0.161])
        """
        sums = self.sums
        counts = self.counts
        risk = self.risk
        if self.binary:
            return binomial_tail(np.rint(sums), counts, risk)
        mean = np.minimum(
            np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0.0), risk
        )
        rel_entr = scipy_special().rel_entr
        divergence = rel_entr(mean, risk) + rel_entr(1.0 - mean, 1.0 - risk)
        bentkus = math.e * binomial_tail(np.ceil(sums - _TOLERANCE), counts, risk)
        hoeffding_bentkus = np.minimum(np.exp(-counts * divergence), bentkus)
        return np.where(
            (counts > 0.0) & (sums < risk * counts),
            np.minimum(hoeffding_bentkus, 1.0),
            1.0,
        )

    def shown(self) -> BoolArray:
        """Where a group's examples show a mean loss, (groups, thresholds)."""
        least = np.minimum(least_shown(self.risk), 0.5 * self.sizes)
        return np.asarray(self.counts >= least[:, None] * (1.0 - _TOLERANCE))


def relax(losses: Sequence[Losses], share: float) -> list[Losses]:
    """The same, with each risk moved towards 1 by `share` of its distance."""
    return [
        replace(loss, risk=loss.risk + share * (1.0 - loss.risk)) for loss in losses
    ]


def least_shown(risk: float) -> int:
    """How many examples must count for a group to show a mean loss.

    >>> least_shown(0.05)
    80
    """
    return math.ceil(4.0 / risk - _TOLERANCE)


def last_for_new_group(losses: Sequence[Losses], delta: float) -> int:
    """The last of ordered thresholds at which a further group is broken with
    probability <= delta.

    A group is broken where the mean loss that it shows exceeds the risk, or did at a
    threshold before. So broken groups stay broken along the thresholds, and one more
    group than those of the examples is the only cost of being new (conformal risk
    control over groups). Two conditions can only make the choice stricter: as many
    groups show a mean loss as the proof needs, and that of all examples together is
    within the risk. -1 if there is none.
    """
    broken = np.zeros((), np.bool_)
    fits = np.ones((), np.bool_)
    for loss in losses:
        shown = loss.shown()
        limit = loss.risk * loss.counts
        above = shown & (loss.sums > limit * (1.0 + _TOLERANCE))
        broken = broken | np.maximum.accumulate(above, axis=1)
        fits = fits & (shown.sum(axis=0) >= fewest_examples(delta))
        fits = fits & (
            loss.sums.sum(axis=0) <= loss.risk * loss.counts.sum(axis=0) + _TOLERANCE
        )
    allowed = delta * (len(broken) + 1) + _TOLERANCE
    return int(
        np.flatnonzero(fits & (broken.sum(axis=0) + 1 <= allowed)).max(initial=-1)
    )


def last_safe(
    losses: Sequence[Losses], delta: float | None, starts: IntArray | None = None
) -> int:
    """The last of ordered thresholds that is proven for all losses, -1 if none is.

    On average for losses that only grow. Or with `delta`, of which the `starts`, where
    testing begins, have equal shares; half of it is for the first threshold, unless
    they are given. A threshold may use its share, plus what the one before it used if
    that passed (the fallback procedure, Wiens 2003). With probability 1 - delta none
    passes whose loss exceeds the risk, so any that passed may be used.
    """
    if delta is None:
        room = 1.0 + _LOSS_TOLERANCE
        passed = [
            loss.sums + 1.0 <= loss.risk * (loss.counts + 1.0) * room for loss in losses
        ]
        return int(np.flatnonzero(np.all(passed, axis=0)).max(initial=-1))
    # All risks at once: the worst of them.
    worst = np.max([loss.p_values() for loss in losses], axis=0)
    if starts is None:
        # Ten thresholds, as a loss may count few examples at the first.
        starts = np.append(
            np.zeros(8, np.int64), np.linspace(0, worst.size - 1, 10).astype(int)
        )
    budget = np.bincount(starts, minlength=worst.size) * (delta / starts.size)
    last = -1
    carried = 0.0
    for k, (p_value, start_share) in enumerate(
        zip(worst.tolist(), budget.tolist(), strict=True)
    ):
        allowed = carried + start_share
        passes = allowed > 0.0 and p_value <= allowed
        carried = allowed if passes else 0.0
        last = k if passes else last
    return last


def smallest_risk(proves: Callable[[float], bool], risk: float) -> float:
    """The smallest risk above `risk` that is proven, to three digits."""
    low = risk
    high = 1.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def can_be_counts(weights: FloatArray | None) -> bool:
    """Whether weights are whole numbers, so that what they count can be binomial."""
    # Up to 2^53 sums are exact.
    return weights is None or bool(
        (weights == np.rint(weights)).all() and weights.sum() < 2.0**53
    )


def check_guarantee(
    risk: Any, delta: Any, name: str = "risk"
) -> tuple[float, float | None]:
    """A risk, and a delta if there is one, each strictly between 0 and 1."""
    return check_chance(name, risk), None if delta is None else check_chance(
        "delta", delta
    )


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.95), percent(0.0944)
    ('95%', '9.44%')
    """
    return f"{100.0 * share:.4g}%"


def state_guarantee(
    claim: str,
    evidence: str,
    *,
    delta: float | None,
    by: str = "all",
    weighted: bool = False,
) -> str:
    """The `claim` that is guaranteed, how surely, and the `evidence`.

    >>> state_guarantee(
    ...     "At most 10% errors", "observed 8% on 50 examples", delta=0.1, by="group"
    ... )
    'At most 10% errors, with 90% confidence for each group: observed 8% on 50 examples.'
    """
    unseen = by == "new group"
    if delta is None:
        certainty = "on average " + (
            "over such groups" if unseen else "(exchangeable data)"
        )
    elif unseen:
        certainty = f"with probability {1.0 - delta:.4g} over such groups"
        evidence += (
            ". It is about the share that the group's own examples show, which differs "
            "from "
        )
        evidence += "its true rate where they are few"
    else:
        certainty = f"with {percent(1.0 - delta)} confidence" + f" for each {by}" * (
            by != "all"
        )
    return (
        f"{claim}, {certainty}{', if the weights of the examples are right' * weighted}: "
        f"{evidence}."
    )


#: What is counted where rows belong to clusters.
ONE_OF_EACH = " (one of each cluster)"


def why_no_new_group(losses: Sequence[Losses], delta: float, first: str) -> str:
    """What the groups prove instead of the wanted risks, or how many groups it
    takes.
    """
    n = len(losses[0].sizes)
    fewest = fewest_examples(delta)
    message = (
        f"{first}: {n:,} groups do not prove it with probability {1.0 - delta:.4g}."
    )
    if n < fewest:
        best = math.ceil(1e4 / (n + 1)) / 1e4
        message += (
            f" It takes at least {fewest:,} groups; with these `delta` must be at "
            f"least {best}."
        )
        return message
    share = smallest_risk(
        lambda s: last_for_new_group(relax(losses, s), delta) >= 0, 0.0
    )
    least = " and ".join(f"{loss.risk:.3g}" for loss in relax(losses, share))
    shown = min(int(loss.shown().sum(axis=0).max()) for loss in losses)
    if shown < fewest:
        most = least_shown(min(loss.risk for loss in losses))
        message += (
            f" Only {shown:,} groups have enough examples for it, {most:,} that count "
            "or half "
        )
        message += f"of theirs; it takes {fewest:,}."
    return f"{message} The smallest risk that they prove is {least}."


@dataclass(frozen=True, eq=False)
class Shortfall:
    """Why examples, or other `unit`s, do not prove a `target`.

    `smallest` are the risks that they prove, in words; below `fewest` units even no
    error would prove the target. `would_prove` says whether this many times as many of
    the same kind would.
    """

    n: int
    target: str
    delta: float | None
    smallest: str
    fewest: int
    would_prove: Callable[[float], bool]
    unit: str = "examples"

    def describe(self, consequence: str) -> str:
        """The consequence, the reason, and how many would prove the target."""
        confidence = "on average"
        if self.delta is not None:
            confidence = f"with {percent(1.0 - self.delta)} confidence"
        return (
            f"{consequence}: {self.n:,} {self.unit} do not prove {self.target} "
            f"{confidence}. The smallest risk that they prove is {self.smallest}. "
            f"{self.remedy}"
        )

    @property
    def remedy(self) -> str:
        """How many would prove the target, if more of them can."""
        if self.n < self.fewest:
            return (
                f"It takes at least {self.fewest:,} {self.unit}, even with zero errors."
            )
        factors = np.geomspace(1.1, 1000.0, 60).tolist()
        factor = next(filter(self.would_prove, factors), None)
        if factor is None:
            return (
                f"More {self.unit} will hardly help: no score has so small an error "
                "rate."
            )
        return (
            f"About {math.ceil(factor * self.n):,} {self.unit} of this kind would prove "
            f"{self.target}."
        )


#: (probabilities, labels, threshold) -> losses (n,); or losses (n, thresholds).
Loss = Callable[[Any, Any, float], Any] | Any


@dataclass(frozen=True, eq=False)
class RiskControl:
    """The `threshold` up to which the mean loss is proven to be at most the risk; NaN
    if none is.

    `thresholds` (m,) were tried in this order; `losses` has the mean losses (m,) of the
    n examples, by name. `by_group` has the same for each group or class, with
    thresholds of their own.
    """

    threshold: float
    thresholds: FloatArray
    losses: dict[str, FloatArray]
    n: int
    guarantee: str
    by_group: dict[Any, RiskControl] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        lines = [
            f"{name}: {control.guarantee}" for name, control in self.by_group.items()
        ]
        return "\n".join([self.guarantee, *lines])


def known_groups(names: GroupNames | None, by: str, *, alike: bool) -> GroupNames:
    """The groups of `certify`, which `by` goes by.

    For a new one they must be known of every row, and rows must count `alike`.
    """
    if names is None:
        raise ValueError(
            f'`by="{by}"` has no groups to go by. Call `certify(..., groups=groups)` '
            "first."
        )
    if by == "new group" and not alike:
        raise ValueError(
            '`by="new group"` needs examples that count alike: certify without '
            "`sample_weight`, or with `counts=True`."
        )
    if by == "new group" and any(None in name for name in names.names):
        raise ValueError(
            '`by="new group"` needs the group of every row; some rows of `certify` '
            "have none: drop them."
        )
    return names


@dataclass(frozen=True, eq=False)
class RiskOptions:
    """What is asked of `control_risk`; see `Calibrator.control_risk`."""

    loss: Loss | Mapping[str, Loss]
    risk: float | Mapping[str, float]
    delta: float | None = None
    thresholds: Any = None

    @property
    def losses(self) -> Mapping[str, Loss]:
        """The losses by name."""
        return self.loss if isinstance(self.loss, Mapping) else {"loss": self.loss}

    @property
    def limits(self) -> Mapping[str, float]:
        """The risk of each loss, checked."""
        names = self.losses
        limits = self.risk
        if not isinstance(limits, Mapping):
            limits = dict.fromkeys(names, limits)
        if {*names} != {*limits}:
            raise ValueError(
                f"`risk` must have a number for each loss, {[*names]}; got {[*limits]}."
            )
        for limit in limits.values():
            check_guarantee(limit, self.delta)
        return limits

    def read_thresholds(self) -> FloatArray:
        """The thresholds (m,), in the order in which they are tested."""
        if self.thresholds is None:
            return np.linspace(0.0, 1.0, 101)
        thresholds = np.asarray(self.thresholds, np.float64)
        if thresholds.ndim != 1 or not thresholds.size:
            raise ValueError(
                f"`thresholds` must be (m,) numbers; got shape {thresholds.shape}."
            )
        return thresholds


def control_risk(
    proba: Any,
    labels: Any,
    options: RiskOptions,
    *,
    by: str = "all",
    groups: object = None,
    weights: FloatArray | None = None,
    kinds: str = '"all"',
) -> RiskControl:
    """See `Calibrator.control_risk`; `kinds` are those of `by` that go without
    groups.
    """
    grouped = isinstance(by, str) and by in ("group", "new group")
    is_known = grouped or (isinstance(by, str) and by == "all")
    if not is_known or grouped != (groups is not None):
        raise ValueError(
            f'`by` must be {kinds}, or "group" or "new group" with `groups`; got {show(by)} '
            f"{'without' if groups is None else 'with'} them."
        )
    thresholds = options.read_thresholds()
    limits = options.limits
    if weights is not None and (by == "new group" or options.delta is not None):
        argument = '`by="new group"`' if options.delta is None else "`delta`"
        raise ValueError(
            f"`sample_weight` cannot be given with {argument}; leave one of them out."
        )
    tables = {
        name: _losses(loss, proba, labels, thresholds)
        for name, loss in options.losses.items()
    }
    if options.delta is None:
        _check_rising(tables)
    examples = _LossExamples(tables, limits, options.delta, thresholds, weights)
    if not grouped:
        return examples.control(slice(None))
    names, index = GroupNames.from_rows(groups, len(labels))
    if by == "new group":
        return examples.control_new_group(index)
    titles = [name[0] if len(name) == 1 else name for name in names.names]
    by_group = {title: examples.control(index == k) for k, title in enumerate(titles)}
    return replace(examples.control(slice(None)), by_group=by_group)


def _check_rising(tables: Mapping[str, FloatArray]) -> None:
    """Raise for losses (n, thresholds) that cannot be bounded on average."""
    for name, table in tables.items():
        if np.isnan(table).any() or (np.diff(table, axis=1) < -_LOSS_TOLERANCE).any():
            raise ValueError(
                f"`delta` must be given for the loss {name!r}: on average only losses "
                "that never fall along the `thresholds`, and count every example, can "
                "be bounded. Pass `delta=0.1`, or order the thresholds from the "
                "safest on."
            )


@dataclass(frozen=True, eq=False)
class _LossExamples:
    """Losses of examples, from which thresholds are proven.

    Attributes
    ----------
    tables : losses (n, thresholds) by name
    limits : the risk of each
    delta : as of `control_risk`
    thresholds : what was tried (m,)
    weights : how much each example counts, (n,), or None for 1
    """

    tables: Mapping[str, FloatArray]
    limits: Mapping[str, float]
    delta: float | None
    thresholds: FloatArray
    weights: FloatArray | None

    def control(self, rows: BoolArray | slice) -> RiskControl:
        """The threshold that some examples prove for others like them."""
        return self._state(rows, self._losses_of(rows), "of new examples", "all")

    def control_new_group(self, index: IntArray) -> RiskControl:
        """The threshold for a further group, of the groups (n,) of all examples."""
        losses = {
            name: Losses.by_group(table, index, self.limits[name])
            for name, table in self.tables.items()
        }
        scope = f"in a new group, drawn like the {index.max() + 1:,} given,"
        return self._state(slice(None), losses, scope, "new group")

    def _losses_of(self, rows: BoolArray | slice) -> dict[str, Losses]:
        n_rows = len(next(iter(self.tables.values())))
        counts = np.ones(n_rows) if self.weights is None else self.weights
        return {
            name: Losses.of(table[rows], counts[rows], self.limits[name])
            for name, table in self.tables.items()
        }

    def _state(
        self,
        rows: BoolArray | slice,
        losses: Mapping[str, Losses],
        scope: str,
        by: str,
    ) -> RiskControl:
        """The last threshold that is proven by the losses, and the guarantee."""
        n = len(next(iter(self.tables.values()))[rows])
        with np.errstate(invalid="ignore"):  # NaN where no example counts
            means = {
                name: loss.sums / loss.counts
                for name, loss in self._losses_of(rows).items()
            }
        last, message = _last_or_why(losses, self.delta, n)
        if last < 0:
            return RiskControl(np.nan, self.thresholds, means, n, message)
        threshold = float(self.thresholds[last])
        observed = {name: mean[last] for name, mean in means.items()}
        claim = (
            f"The mean loss {scope} is at most {_list(self.limits)} at the threshold "
            f"{threshold:.6g}"
        )
        message = state_guarantee(
            claim,
            f"observed {_list(observed)} on {n:,} held-out examples",
            delta=self.delta,
            by=by,
            weighted=self.weights is not None,
        )
        return RiskControl(threshold, self.thresholds, means, n, message)


def _last_or_why(
    losses_by_name: Mapping[str, Losses], delta: float | None, n: int
) -> tuple[int, str]:
    """The last threshold; or -1, what can be guaranteed instead, and how many
    examples it takes.
    """
    first = "No threshold is proven"
    losses = [*losses_by_name.values()]
    unit = "examples"
    sizes = losses[0].sizes
    if sizes is not None and delta is not None:
        last = last_for_new_group(losses, delta)
        return last, "" if last >= 0 else why_no_new_group(losses, delta, first)
    if sizes is not None:  # each group counts as one example, which has its mean loss
        n = len(sizes)
        unit = "groups"
        losses = [
            Losses((loss.sums / sizes[:, None]).sum(axis=0), np.array(n), loss.risk)
            for loss in losses
        ]
    last = last_safe(losses, delta)
    if last >= 0:
        return last, ""

    def would_prove(times: float) -> bool:
        return last_safe([loss.repeated(times) for loss in losses], delta) >= 0

    def proves(share: float) -> bool:
        return last_safe(relax(losses, share), delta) >= 0

    risks = {name: loss.risk for name, loss in losses_by_name.items()}
    relaxed = relax(losses, smallest_risk(proves, 0.0))
    proven = {
        name: loss.risk for name, loss in zip(losses_by_name, relaxed, strict=True)
    }
    shortfall = Shortfall(
        n,
        f"a mean loss of at most {_list(risks)}",
        delta,
        smallest=_list(proven),
        fewest=max(fewest_examples(loss.risk, delta) for loss in losses),
        would_prove=would_prove,
        unit=unit,
    )
    return -1, shortfall.describe(first)


def _list(numbers: Mapping[str, float]) -> str:
    """Numbers in words, with their names where there are several."""
    several = len(numbers) > 1
    return " and ".join(
        f"{value:.4g}" + f" ({name})" * several for name, value in numbers.items()
    )


def _losses(loss: Loss, proba: Any, labels: Any, tried: FloatArray) -> FloatArray:
    """Checked losses (n, thresholds)."""
    if callable(loss):
        loss = np.array([loss(proba, labels, float(t)) for t in tried], np.float64).T
    table = np.asarray(loss)
    shape = (len(labels), tried.size)
    if table.shape != shape or not table.size or table.dtype.kind not in "fiub":
        raise ValueError(
            f"`loss` must be numbers of shape {shape}, a row for each example and a "
            "column for each of the `thresholds`, or a function that gives one number "
            f"per example, (n,), at each; got {table.dtype} of shape {table.shape}."
        )
    table = table.astype(np.float64)
    rule = "`loss` must lie in [0, 1], or be NaN where an example does not count"
    refuse(
        (table < 0.0) | (table > 1.0),
        table,
        rule,
        "Divide it by the largest possible loss.",
    )
    return table
