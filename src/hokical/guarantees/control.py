"""One engine for every guarantee: thresholds whose loss on new examples is proven to be small.

A threshold on a score decides something about each example, and each decision has a loss in [0, 1]:
the true class is missing from the set, an accepted label is wrong, a positive is not found. Two
tools bound the mean loss of new examples (proofs: `docs/theory.md`):

- on average over the examples: conformal risk control, for losses that only grow along the
  thresholds. (sum of losses + 1) / (n + 1) must be at most the risk; for losses of 0 and 1 the
  threshold is an order statistic of the scores.
- with probability 1 - delta: tests of "the loss exceeds the risk" at each threshold, in an order
  fixed in advance, by exact binomial tails (0 and 1) or by Hoeffding and Bentkus (others).

Examples may also come in groups, and a new one be of a group that was never seen: then groups are
what is counted, with the loss "this group's own examples show too large a mean loss".

Risk control for losses of your own: the last threshold whose mean loss is proven to be small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.groups import row_names
from hokical.guarantees.bounds import binomial_tail, check_chance, scipy_special

Of = TypeVar("Of")
Asked = ParamSpec("Asked")
Found = TypeVar("Found")
#: What rounding may take from the number of examples that must be covered.
_ROUNDING = 1e-9
#: Integers up to here are exact in float64.
_EXACT = 2.0**53
#: Losses that a group may show before its mean loss counts, where some of its examples do not.
_SHOWN = 4.0
#: Answers that are remembered for one set of examples, and what stands for one that is not.
_MOST_REMEMBERED, _UNKNOWN = 64, object()


def remembered(
    work: Callable[Concatenate[Of, Asked], Found],
) -> Callable[Concatenate[Of, Asked], Found]:
    """Decorator: what is asked about immutable examples is worked out once, and kept with them."""

    @wraps(work)
    def ask(examples: Of, /, *asked: Asked.args, **named: Asked.kwargs) -> Found:
        known = examples.__dict__.setdefault("_remembered", {})
        question = (work.__qualname__, asked, *named.items())
        found: Any = known.get(question, _UNKNOWN)  # another thread may clear what is known
        if found is _UNKNOWN:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            found = known[question] = work(examples, *asked, **named)
        answer: Found = found
        return answer

    return ask


def fewest_examples(risk: float, delta: float | None = None) -> int:
    """The number of examples below which no threshold is proven, even with zero errors.

    >>> fewest_examples(0.1), fewest_examples(0.1, delta=0.1)
    (9, 22)
    """
    if delta is None:
        return math.ceil((1.0 - risk) / risk - _ROUNDING)
    return math.ceil(math.log(delta) / math.log1p(-risk) - _ROUNDING)


def examples_to_cover(n: Any, coverage: float, delta: float | None = None) -> IntArray:
    """How many of n examples (...) must have no loss; n + 1 if even all are not enough.

    (n + 1) coverage, rounded up: a further example is covered with that probability. With `delta`
    the least k for which Beta(k, n + 1 - k), the law of the true coverage, is above `coverage` with
    probability 1 - delta.

    >>> int(examples_to_cover(999, 0.9)), int(examples_to_cover(999, 0.9, delta=0.05))
    (900, 915)
    """
    n = np.asarray(n, np.int64)
    if delta is None:
        needed = np.ceil((n + 1) * coverage - _ROUNDING).astype(np.int64)
        return np.asarray(np.minimum(needed, n + 1))
    passes, fails = np.zeros_like(n), n + 1  # numbers of losses
    while (fails - passes > 1).any():
        middle = (passes + fails) // 2
        sure = binomial_tail(middle, n, 1.0 - coverage) <= delta
        passes, fails = np.where(sure, middle, passes), np.where(sure, fails, middle)
    return np.asarray(np.where(n < fewest_examples(1.0 - coverage, delta), n + 1, n - passes))


@dataclass(frozen=True, eq=False)
class Thresholds:
    """`values` (cells,), inf where everything is needed; which cells are `pooled` (cells,)."""

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
    """A threshold for each cell of examples (n,) that a share `coverage` of scores does not exceed.

    `unit` is the most that a new example may weigh beside the weights (n,) of these; with `delta`
    these must be counts. If `pool`, a cell with fewer examples than `fewest` gets the threshold of
    all examples of cells with at most that many: what the cells are is then the same whichever of
    the examples is the new one. A single cell is never pooled.
    """
    if delta is not None and not (unit == 1.0 and can_be_counts(weights)):
        raise ValueError(
            "`delta` needs examples that all count alike; got `sample_weight` in `certify`, or "
            "other class frequencies. Leave `delta` out, for a guarantee on average, pass "
            "`counts=True` if the weights are numbers of examples, or certify with new examples."
        )
    counts = np.ones(scores.size) if weights is None else weights
    fewest, sizes = fewest_examples(1.0 - coverage, delta), np.bincount(cells, counts, n_cells)
    pooled = (sizes < fewest * unit) & (pool and n_cells > 1)
    if pooled.any():  # one more cell has the examples of all that are small
        few = sizes[cells] <= fewest * unit
        scores, counts = np.append(scores, scores[few]), np.append(counts, counts[few])
        cells = np.append(cells, np.full(int(few.sum()), n_cells))
    order = np.lexsort((scores, cells))
    reached = np.cumsum(counts[order])
    ends = np.searchsorted(cells[order], np.arange(n_cells + 2))
    before = np.append(0.0, reached)[ends]
    sums = np.diff(before)
    goal = (sums + unit) * coverage - _ROUNDING * unit
    if delta is not None:
        goal = examples_to_cover(np.rint(sums), coverage, delta).astype(np.float64) - 0.5
    place = np.searchsorted(reached, before[:-1] + goal)
    known = np.append(scores[order], np.inf)
    found = np.where(place < ends[1:], known[np.minimum(place, scores.size)], np.inf)
    return Thresholds(np.where(pooled, found[-1], found[:-1]), pooled, fewest)


def new_group_threshold(
    scores: FloatArray,
    group: IntArray,
    coverage: float,
    delta: float | None,
    counts: FloatArray,
) -> Thresholds:
    """One threshold for a further group, drawn like those of examples (n,) at the places `group`.

    On average over groups, each of which counts as one example that its own examples share
    (hierarchical conformal prediction); or, with `delta`, with probability 1 - delta: of what the
    groups' own examples ask for, the order statistic that a further group's does not exceed.
    """
    place = np.unique(group, return_inverse=True)[1]
    sizes, together = np.bincount(place, counts), np.zeros(scores.size, np.int64)
    if delta is None:
        return find_thresholds(scores, together, 1, coverage, weights=counts / sizes[place])
    given: dict[str, Any] = {"weights": counts, "unit": 0.0, "pool": False}
    own = find_thresholds(scores, place, sizes.size, coverage, **given).values
    return find_thresholds(own, np.zeros(own.size, np.int64), 1, 1.0 - delta)


@dataclass(frozen=True, eq=False)
class GroupLosses:
    """Sums of losses and numbers of examples that count, (groups, thresholds) each.

    `sizes` (groups,) are all examples of each. A group shows a mean loss where 4 / risk of its
    examples count, or half of them if that is fewer: among fewer, one loss decides.
    """

    sums: AnyArray
    counts: AnyArray
    sizes: AnyArray

    def shown(self, risk: float) -> BoolArray:
        """Where a group's examples show a mean loss, (groups, thresholds)."""
        least = np.minimum(least_shown(risk), 0.5 * self.sizes)
        return (self.counts > 0.0) & (self.counts >= least[:, None] * (1.0 - _ROUNDING))

    def broken(self, risk: float) -> BoolArray:
        """Where the mean loss that it shows exceeds the risk, or did at a threshold before."""
        above = self.sums > risk * self.counts * (1.0 + _ROUNDING)
        return np.maximum.accumulate(self.shown(risk) & above, axis=1)


def least_shown(risk: float) -> int:
    """How many examples must count for a group to show a mean loss.

    >>> least_shown(0.05)
    80
    """
    return math.ceil(_SHOWN / risk - _ROUNDING)


def last_for_new_group(losses: Sequence[tuple[GroupLosses, float]], delta: float) -> int:
    """The last of ordered thresholds at which a further group is broken with probability <= delta.

    Of each loss there is the largest risk. Broken groups stay broken along the thresholds, so that
    one more group than those of the examples is the only cost of being new (conformal risk control
    over groups). Two conditions can only make the choice stricter: as many groups show a mean loss
    as the proof needs, and that of all examples together is within the risk. -1 if there is none.
    """
    broken, fits = np.zeros((), np.bool_), np.ones((), np.bool_)
    for each, risk in losses:
        broken = broken | each.broken(risk)
        fits = fits & (each.shown(risk).sum(axis=0) >= fewest_examples(delta))
        fits = fits & (each.sums.sum(axis=0) <= risk * each.counts.sum(axis=0) + _ROUNDING)
    allowed = delta * (len(broken) + 1) + _ROUNDING
    return int(np.flatnonzero(fits & (broken.sum(axis=0) + 1 <= allowed)).max(initial=-1))


def prevalence_thresholds(
    scores: FloatArray,
    labels: IntArray,
    n_classes: int,
    coverage: float,
    *,
    weights: FloatArray,
    unit: float = 1.0,
) -> Thresholds:
    """Thresholds by class in proportion to its frequency, with coverage on average over all.

    Scores (n,) are negative probabilities: a class is inside if its probability is large beside its
    frequency among the examples, which makes rare classes as easy to reach as others. Frequencies
    include the examples themselves, and not the new one, which can only add coverage
    (`docs/theory.md`).
    """
    frequency = np.bincount(labels, weights, n_classes) + unit  # no class is impossible
    together = np.zeros(scores.size, np.int64)
    given: dict[str, Any] = {"weights": weights, "unit": unit}
    found = find_thresholds(scores / frequency[labels], together, 1, coverage, **given)
    return Thresholds(found.values * frequency, np.zeros(n_classes, np.bool_), found.fewest)


def last_proven(p_values: FloatArray, starts: IntArray, delta: float) -> int:
    """The last of ordered thresholds that passes its test, -1 if none does.

    `delta` is divided equally among the `starts`, where testing begins. A threshold may use its
    share, plus what the one before it used if that passed (the fallback procedure, Wiens 2003).
    With probability 1 - delta none passes whose loss exceeds the risk, so any that passed may be
    used.
    """
    budget = np.bincount(starts, minlength=p_values.size) * (delta / starts.size)
    last, carried = -1, 0.0
    for k, (p_value, own) in enumerate(zip(p_values.tolist(), budget.tolist(), strict=True)):
        allowed = carried + own
        passed = allowed > 0.0 and p_value <= allowed
        carried, last = (allowed, k) if passed else (0.0, last)
    return last


def smallest_risk(proves: Callable[[float], bool], risk: float) -> float:
    """The smallest risk above `risk` that is proven, to three digits."""
    low, high = risk, 1.0
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def more_examples(sums: Any, counts: Any, times: float) -> tuple[FloatArray, FloatArray]:
    """Sums of losses and counts as of so many times the examples, half a loss more than these."""
    return np.ceil(times * (sums + 0.5)), np.floor(times * counts)


def loss_p_values(sums: FloatArray, counts: FloatArray, risk: float, *, binary: bool) -> FloatArray:
    """p-values (thresholds,) of "the mean loss exceeds the risk", from sums of losses in [0, 1].

    Exact for losses of 0 and 1. For others the smaller one of Hoeffding's bound and Bentkus's
    (Bates et al. 2021, doi:10.1145/3478535).

    >>> loss_p_values(np.array([1.0, 1.5]), np.array([50.0, 50.0]), 0.1, binary=False).round(3)
    array([0.077, 0.161])
    """
    if binary:
        return binomial_tail(np.rint(sums), counts, risk)
    special = scipy_special()
    mean = np.minimum(np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0.0), risk)
    divergence = special.rel_entr(mean, risk) + special.rel_entr(1.0 - mean, 1.0 - risk)
    bentkus = math.e * binomial_tail(np.ceil(sums - _ROUNDING), counts, risk)
    found = np.minimum(np.exp(-counts * divergence), bentkus)
    return np.where((counts > 0.0) & (sums < risk * counts), np.minimum(found, 1.0), 1.0)


def can_be_counts(weights: FloatArray | None) -> bool:
    """Whether weights are whole numbers, so that what they count can be binomial."""
    if weights is None:
        return True
    return bool((weights == np.rint(weights)).all() and weights.sum() < _EXACT)


def check_guarantee(risk: Any, delta: Any, name: str = "risk") -> tuple[float, float | None]:
    """A risk, and a delta if there is one, each strictly between 0 and 1."""
    return check_chance(name, risk), None if delta is None else check_chance("delta", delta)


class Guaranteed:
    """Base of results that come with a guarantee: `guarantee` states it in plain English."""

    guarantee: str


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.95), percent(0.0944)
    ('95%', '9.44%')
    """
    return f"{100.0 * share:.4g}%"


def state_guarantee(
    what: str, behind: str, *, delta: float | None, by: str = "all", weighted: bool = False
) -> str:
    """`what` is guaranteed, how surely, and the examples `behind` it.

    >>> state_guarantee("At most 10% errors", "observed 8% on 50 examples", delta=0.1, by="group")
    'At most 10% errors, with 90% confidence for each group: observed 8% on 50 examples.'
    """
    sure = "on average " + ("over such groups" if by == "new group" else "(exchangeable data)")
    if delta is not None and by == "new group":
        sure = f"with probability {1.0 - delta:.4g} over such groups"
    elif delta is not None:
        sure = f"with {percent(1.0 - delta)} confidence" + f" for each {by}" * (by != "all")
    if weighted:
        sure += ", if the weights of the examples are right"
    return f"{what}, {sure}: {behind}."


#: What is counted where rows belong to clusters.
ONE_OF_EACH = " (one of each cluster)"
#: What a guarantee for a new group is about.
ABOUT_SHOWN = (
    " It is about the share that the group's own examples show, which differs from its true rate "
    "where they are few."
)


def why_no_new_group(losses: Sequence[tuple[GroupLosses, float]], delta: float, first: str) -> str:
    """What the groups prove instead of the wanted risks, or how many groups it takes."""
    n, fewest = len(losses[0][0].sizes), fewest_examples(delta)
    wanted = f"{first}: {n:,} groups do not prove it with probability {1.0 - delta:.4g}."
    if n < fewest:
        best = math.ceil(1e4 / (n + 1)) / 1e4
        return (
            f"{wanted} It takes at least {fewest:,} groups; with these `delta` must be at least "
            f"{best:.4g}."
        )

    def relaxed(share: float) -> list[tuple[GroupLosses, float]]:
        return [(each, risk + share * (1.0 - risk)) for each, risk in losses]

    share = smallest_risk(lambda share: last_for_new_group(relaxed(share), delta) >= 0, 0.0)
    least = " and ".join(f"{risk:.3g}" for _, risk in relaxed(share))
    shown = min(int(each.shown(risk).sum(axis=0).max()) for each, risk in losses)
    if shown < fewest:
        most = least_shown(min(risk for _, risk in losses))
        return (
            f"{wanted} Only {shown:,} groups have enough examples for it, {most:,} that count or "
            f"half of theirs; it takes {fewest:,}. The smallest risk that they prove is {least}."
        )
    return f"{wanted} The smallest risk that they prove is {least}."


def state_limits(
    n: int, best: str, wanted: str, fewest: int, would_prove: Callable[[float], bool]
) -> str:
    """What n examples prove instead of the `wanted` risk, and how many more would prove it."""
    end = "More examples will hardly help: no score has so small an error rate."
    if n < fewest:
        end = f"It takes at least {fewest:,} examples, even with zero errors."
    elif enough := next(filter(would_prove, np.geomspace(1.1, 1000.0, 60).tolist()), None):
        end = f"About {math.ceil(enough * n):,} examples of this kind would prove {wanted}."
    return f"The smallest risk that they prove is {best}. {end}"


#: Thresholds where testing may start: at the first a loss may count few examples.
_STARTS = 10
#: What rounding may take from a loss that only grows.
_LOSS_ROUNDING = 1e-12

#: (probabilities, labels, threshold) -> losses (n,); or losses (n, thresholds).
Loss = Callable[[Any, Any, float], Any] | Any


@dataclass(frozen=True, eq=False)
class RiskControl(Guaranteed):
    """The `threshold` up to which the mean loss is proven to be at most the risk; NaN if none is.

    `thresholds` (m,) were tried in this order; `losses` has the mean losses (m,) of the n examples,
    by name. `by_group` has the same for each group or class, with thresholds of their own.
    """

    threshold: float
    thresholds: FloatArray
    losses: dict[str, FloatArray]
    n: int
    guarantee: str
    by_group: dict[Any, RiskControl] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        parts = [f"{name}: {found.guarantee}" for name, found in self.by_group.items()]
        return "\n".join([self.guarantee, *parts])


def group_cells(
    by: str,
    groups: Any,
    n_rows: int,
    also: tuple[str, ...] = ("all",),
    *,
    learned: bool = False,
) -> list[Any] | None:
    """The group of each row (n,), where `by` asks for groups; None for what is `also` allowed.

    Then there may be groups only if predictions have `learned` from them.
    """
    if by in also and (groups is None or learned):
        return None
    if by not in ("group", "new group") or groups is None:
        words = ", ".join(f'"{each}"' for each in also)
        raise ValueError(
            f'`by` must be {words}, or "group" or "new group" with `groups`; got {by!r} '
            f"{'without' if groups is None else 'with'} them."
        )
    return row_names(groups, n_rows)


def control_risk(
    proba: Any,
    labels: Any,
    *,
    loss: Loss | Mapping[str, Loss],
    risk: float | Mapping[str, float],
    delta: float | None = None,
    thresholds: Any = None,
    groups: Sequence[Any] | None = None,
    weights: FloatArray | None = None,
    unseen: bool = False,
) -> RiskControl:
    """See `Calibrator.control_risk`; `groups` are those of the examples, one for each.

    If `unseen`, the guarantee is for a further group, drawn like these.
    """
    tried = np.linspace(0.0, 1.0, 101) if thresholds is None else np.asarray(thresholds, np.float64)
    if tried.ndim != 1 or not tried.size:
        raise ValueError(f"`thresholds` must be (m,) numbers; got shape {tried.shape}.")
    wanted = loss if isinstance(loss, Mapping) else {"loss": loss}
    limits = risk if isinstance(risk, Mapping) else dict.fromkeys(wanted, risk)
    if {*wanted} != {*limits}:
        raise ValueError(f"`risk` must have a number for each loss, {[*wanted]}; got {[*limits]}.")
    for limit in limits.values():
        check_guarantee(limit, delta)
    if weights is not None and delta is not None:
        raise ValueError("`sample_weight` cannot be given with `delta`; leave one of them out.")
    tables = {name: _losses(each, proba, labels, tried) for name, each in wanted.items()}
    if delta is None:
        _check_monotone(tables)
    counts = np.ones(len(labels)) if weights is None else weights

    def prove(rows: Any = slice(None)) -> RiskControl:
        sums = {name: _LossSums.of(table[rows], counts[rows]) for name, table in tables.items()}
        means, n = {name: each.means for name, each in sums.items()}, counts[rows].size
        last = _last_safe(sums, limits, delta)
        if last < 0:
            return RiskControl(np.nan, tried, means, n, _why_none(sums, limits, delta, n))
        at, seen = float(tried[last]), {name: mean[last] for name, mean in means.items()}
        what = f"The mean loss of new examples is at most {_list(limits)} at the threshold {at:.6g}"
        behind = f"observed {_list(seen)} on {n:,} held-out examples"
        words = state_guarantee(what, behind, delta=delta, weighted=weights is not None)
        return RiskControl(at, tried, means, n, words)

    if groups is None:
        return prove()
    places: dict[Any, int] = {}
    place = np.array([places.setdefault(name, len(places)) for name in groups])
    if unseen:
        if weights is not None:
            raise ValueError('`sample_weight` cannot be given with `by="new group"`; leave it out.')
        return _for_new_group(tables, limits, delta, tried, place)
    by_group = {name: prove(place == k) for name, k in places.items()}
    return replace(prove(), by_group=by_group)


@dataclass(frozen=True, eq=False)
class _LossSums:
    """Sums of losses and of the examples that count, (m,) each; whether losses are 0 or 1."""

    sums: FloatArray
    counts: FloatArray
    binary: bool

    @classmethod
    def of(cls, table: FloatArray, weights: FloatArray) -> _LossSums:
        """Of losses (n, m), NaN where an example does not count; weights (n,) on any scale."""
        known, own = ~np.isnan(table), weights / weights.max()
        binary = bool(np.isin(table[known], (0.0, 1.0)).all())
        return cls(own @ np.where(known, table, 0.0), own @ known, binary)

    def repeated(self, times: float) -> _LossSums:
        """As of so many times the examples."""
        return _LossSums(*more_examples(self.sums, self.counts, times), self.binary)

    @property
    def means(self) -> FloatArray:
        """The mean losses (m,), NaN where no example counts."""
        nothing = np.full(self.sums.size, np.nan)
        found = np.divide(self.sums, self.counts, out=nothing, where=self.counts > 0.0)
        return np.asarray(found)


def _for_new_group(
    tables: Mapping[str, FloatArray],
    limits: Mapping[str, float],
    delta: float | None,
    tried: FloatArray,
    place: IntArray,
) -> RiskControl:
    """The last threshold for a group drawn like those at the places (n,) of the examples."""
    everyone = {name: _LossSums.of(table, np.ones(len(table))) for name, table in tables.items()}
    means, n = {name: each.means for name, each in everyone.items()}, len(place)
    groups = {name: _group_losses(table, place) for name, table in tables.items()}
    n_groups, why = int(place.max()) + 1, "No threshold is proven"
    if delta is None:  # each group counts as one example, which has its mean loss
        shares = {
            name: (each.sums / each.sizes[:, None]).sum(axis=0) for name, each in groups.items()
        }
        whole = np.full(tried.size, float(n_groups))
        last = _last_safe({k: _LossSums(v, whole, False) for k, v in shares.items()}, limits, None)
        fewest = max(fewest_examples(limit) for limit in limits.values())
        why += (
            f": {n_groups:,} groups do not prove a mean loss of at most {_list(limits)} on average "
            f"over groups; it takes at least {fewest:,}, even with zero errors."
        )
    else:
        losses = [(each, limits[name]) for name, each in groups.items()]
        last = last_for_new_group(losses, delta)
        why = why if last >= 0 else why_no_new_group(losses, delta, why)
    if last < 0:
        return RiskControl(np.nan, tried, means, n, why)
    at, seen = float(tried[last]), {name: mean[last] for name, mean in means.items()}
    what = (
        f"The mean loss in a new group, drawn like the {n_groups:,} given, is at most "
        f"{_list(limits)} at the threshold {at:.6g}"
    )
    behind = f"observed {_list(seen)} on {n:,} held-out examples"
    words = state_guarantee(what, behind, delta=delta, by="new group")
    return RiskControl(at, tried, means, n, words + ABOUT_SHOWN * (delta is not None))


def _group_losses(table: FloatArray, place: IntArray) -> GroupLosses:
    """Losses (n, thresholds), NaN where an example does not count, summed by group."""
    order = np.argsort(place, kind="stable")
    starts, known = np.searchsorted(place[order], np.arange(place.max() + 1)), ~np.isnan(table)
    sums, counts = (
        np.add.reduceat(part[order].astype(np.float64), starts, axis=0)
        for part in (np.where(known, table, 0.0), known)
    )
    return GroupLosses(sums, counts, np.bincount(place).astype(np.float64))


def _last_safe(
    losses: Mapping[str, _LossSums], limits: Mapping[str, float], delta: float | None
) -> int:
    """The last threshold that is proven for all losses, -1 if none is."""
    m = next(iter(losses.values())).sums.size
    last, p_values = m - 1, np.zeros(m)
    for name, each in losses.items():
        if delta is None:
            passed = each.sums + 1.0 <= limits[name] * (each.counts + 1.0) * (1.0 + _LOSS_ROUNDING)
            last = min(last, int(np.flatnonzero(passed).max(initial=-1)))
        else:  # all risks at once: the worst of them
            tail = loss_p_values(each.sums, each.counts, limits[name], binary=each.binary)
            p_values = np.maximum(p_values, tail)
    if delta is None:
        return last
    spread = np.linspace(0, m - 1, _STARTS).astype(np.int64)
    # Half of delta is for the first.
    return last_proven(p_values, np.append(np.zeros(_STARTS - 2, np.int64), spread), delta)


def _why_none(
    losses: Mapping[str, _LossSums], limits: Mapping[str, float], delta: float | None, n: int
) -> str:
    """What can be guaranteed instead, and how many examples the wanted guarantee needs."""

    def relaxed(share: float) -> dict[str, float]:
        return {name: limit + share * (1.0 - limit) for name, limit in limits.items()}

    def proves(share: float) -> bool:
        return _last_safe(losses, relaxed(share), delta) >= 0

    def would_prove(times: float) -> bool:
        more = {name: each.repeated(times) for name, each in losses.items()}
        return _last_safe(more, limits, delta) >= 0

    best = relaxed(smallest_risk(proves, 0.0))
    fewest = max(fewest_examples(limit, delta) for limit in limits.values())
    words = state_limits(n, _list(best), _list(limits), fewest, would_prove)
    sure = "on average" if delta is None else f"with {percent(1.0 - delta)} confidence"
    return (
        f"No threshold is proven: {n:,} examples do not prove a mean loss of at most "
        f"{_list(limits)} {sure}. {words}"
    )


def _list(numbers: Mapping[str, float]) -> str:
    """Numbers in words, with their names where there are several."""
    several = len(numbers) > 1
    return " and ".join(f"{value:.4g}" + f" ({name})" * several for name, value in numbers.items())


def _check_monotone(tables: Mapping[str, FloatArray]) -> None:
    for name, table in tables.items():
        if np.isnan(table).any() or (np.diff(table, axis=1) < -_LOSS_ROUNDING).any():
            raise ValueError(
                f"`delta` must be given for the loss {name!r}: on average only losses that never "
                "fall along the `thresholds`, and count every example, can be bounded. Pass "
                "`delta=0.1`, or order the thresholds from the safest on."
            )


def _losses(loss: Loss, proba: Any, labels: Any, tried: FloatArray) -> FloatArray:
    """Checked losses (n, thresholds)."""
    if callable(loss):
        loss = np.array([loss(proba, labels, float(t)) for t in tried], np.float64).T
    table, shape = np.asarray(loss), (len(labels), tried.size)
    if table.shape != shape or not table.size or table.dtype.kind not in "fiub":
        raise ValueError(
            f"`loss` must be numbers of shape {shape}, a row for each example and a column for "
            "each of the `thresholds`, or a function that gives one number per example, (n,), at "
            f"each; got {table.dtype} of shape {table.shape}."
        )
    table = table.astype(np.float64)
    if ((table < 0.0) | (table > 1.0)).any():
        raise ValueError(
            "`loss` must lie in [0, 1], or be NaN where an example does not count; divide it by "
            "the largest possible loss."
        )
    return table
