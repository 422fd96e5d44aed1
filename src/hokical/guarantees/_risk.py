"""Risk control for losses of your own: the last threshold whose mean loss is proven to be small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical.guarantees import _control as control

#: Thresholds where testing may start: at the first a loss may count few examples.
_STARTS = 10
#: What rounding may take from a loss that only grows.
_LOSS_ROUNDING = 1e-12

#: (probabilities, labels, threshold) -> losses (n,); or losses (n, thresholds).
Loss = Callable[[Any, Any, float], Any] | Any


@dataclass(frozen=True, eq=False)
class RiskControl(control.Guaranteed):
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
        control.check_promise(limit, delta)
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
        behind = f"of {n:,} held-out examples it is {_list(seen)}"
        words = control.state_promise(what, behind, delta=delta, weighted=weights is not None)
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
        return _LossSums(*control.more_examples(self.sums, self.counts, times), self.binary)

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
        fewest = max(control.fewest_examples(limit) for limit in limits.values())
        why += (
            f": {n_groups:,} groups do not prove a mean loss of at most {_list(limits)} on average "
            f"over groups; it takes at least {fewest:,}, even without a loss."
        )
    else:
        losses = [(each, limits[name]) for name, each in groups.items()]
        last = control.last_for_new_group(losses, delta)
        why = why if last >= 0 else control.why_no_new_group(losses, delta, why)
    if last < 0:
        return RiskControl(np.nan, tried, means, n, why)
    at, seen = float(tried[last]), {name: mean[last] for name, mean in means.items()}
    what = (
        f"The mean loss in a new group, drawn like the {n_groups:,} given, is at most "
        f"{_list(limits)} at the threshold {at:.6g}"
    )
    behind = f"of {n:,} held-out examples it is {_list(seen)}"
    words = control.state_promise(what, behind, delta=delta, by="new group")
    return RiskControl(at, tried, means, n, words + control.ABOUT_SHOWN * (delta is not None))


def _group_losses(table: FloatArray, place: IntArray) -> control.GroupLosses:
    """Losses (n, thresholds), NaN where an example does not count, summed by group."""
    order = np.argsort(place, kind="stable")
    starts, known = np.searchsorted(place[order], np.arange(place.max() + 1)), ~np.isnan(table)
    sums, counts = (
        np.add.reduceat(part[order].astype(np.float64), starts, axis=0)
        for part in (np.where(known, table, 0.0), known)
    )
    return control.GroupLosses(sums, counts, np.bincount(place).astype(np.float64))


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
            tail = control.loss_p_values(each.sums, each.counts, limits[name], binary=each.binary)
            p_values = np.maximum(p_values, tail)
    if delta is None:
        return last
    spread = np.linspace(0, m - 1, _STARTS).astype(np.int64)
    # Half of delta is for the first.
    return control.last_proven(p_values, np.append(np.zeros(_STARTS - 2, np.int64), spread), delta)


def _why_none(
    losses: Mapping[str, _LossSums], limits: Mapping[str, float], delta: float | None, n: int
) -> str:
    """What can be promised instead, and how many examples the wanted promise needs."""

    def relaxed(share: float) -> dict[str, float]:
        return {name: limit + share * (1.0 - limit) for name, limit in limits.items()}

    def proves(share: float) -> bool:
        return _last_safe(losses, relaxed(share), delta) >= 0

    def would_prove(times: float) -> bool:
        more = {name: each.repeated(times) for name, each in losses.items()}
        return _last_safe(more, limits, delta) >= 0

    best = relaxed(control.smallest_risk(proves, 0.0))
    fewest = max(control.fewest_examples(limit, delta) for limit in limits.values())
    words = control.state_limits(n, _list(best), _list(limits), fewest, would_prove)
    sure = "on average" if delta is None else f"with confidence {1.0 - delta:.4g}"
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
