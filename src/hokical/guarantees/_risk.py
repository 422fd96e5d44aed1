"""Risk control for losses of your own: the last threshold whose mean loss is proven to be small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hokical._core.types import FloatArray
from hokical.guarantees._control import check_promise, fewest_examples, last_proven, loss_p_values
from hokical.guarantees._words import Guaranteed, state_promise

#: Thresholds where testing may start: at the first a loss may count few examples.
_STARTS = 10
#: What rounding may take from a loss that only grows.
_ROUNDING = 1e-12

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


def control_risk(
    proba: Any,
    labels: Any,
    *,
    loss: Loss | Mapping[str, Loss],
    risk: float | Mapping[str, float],
    delta: float | None,
    thresholds: Any = None,
    groups: Sequence[Any] | None = None,
    weights: FloatArray | None = None,
) -> RiskControl:
    """See `Calibrator.control_risk`; `groups` are those of the examples, one for each."""
    tried = np.linspace(0.0, 1.0, 101) if thresholds is None else np.asarray(thresholds, np.float64)
    if tried.ndim != 1 or not tried.size:
        raise ValueError(f"`thresholds` must be (m,) numbers; got shape {tried.shape}.")
    wanted = loss if isinstance(loss, Mapping) else {"loss": loss}
    limits = risk if isinstance(risk, Mapping) else dict.fromkeys(wanted, risk)
    if {*wanted} != {*limits}:
        raise ValueError(f"`risk` must have a number for each loss, {[*wanted]}; got {[*limits]}.")
    for limit in limits.values():
        check_promise(limit, delta)
    if weights is not None and delta is not None:
        raise ValueError("`sample_weight` cannot be given with `delta`; leave one of them out.")
    tables = {name: _losses(each, proba, labels, tried) for name, each in wanted.items()}
    n = len(next(iter(tables.values())))
    if any(len(table) != n for table in tables.values()):
        raise ValueError("`loss` must give as many losses for each threshold; got other numbers.")
    counts = np.ones(n) if weights is None else weights

    def control(rows: Any = slice(None)) -> RiskControl:
        own, weighed = {name: table[rows] for name, table in tables.items()}, counts[rows]
        last, means = _last_safe(own, limits, delta, weighed)
        if last < 0:
            words = _why_none(limits, delta, weighed.size)
            return RiskControl(np.nan, tried, means, weighed.size, words)
        at, seen = float(tried[last]), {name: mean[last] for name, mean in means.items()}
        what = f"The mean loss of new examples is at most {_list(limits)} at the threshold {at:.6g}"
        behind = f"of {weighed.size:,} held-out examples it is {_list(seen)}"
        words = state_promise(what, behind, delta=delta, weighted=weights is not None)
        return RiskControl(at, tried, means, weighed.size, words)

    if groups is None:
        return control()
    places: dict[Any, int] = {}
    place = np.array([places.setdefault(name, len(places)) for name in groups])
    by_group = {name: control(place == k) for name, k in places.items()}
    return replace(control(), by_group=by_group)


def _last_safe(
    tables: dict[str, FloatArray],
    limits: Mapping[str, float],
    delta: float | None,
    weights: FloatArray,
) -> tuple[int, dict[str, FloatArray]]:
    """The last threshold that is proven for all losses (n, m), -1 if none is; and mean losses."""
    counts, m = weights / weights.max(), next(iter(tables.values())).shape[1]
    last, p_values, means = m - 1, np.zeros(m), {}
    for name, table in tables.items():
        known, limit = ~np.isnan(table), limits[name]
        total, sums = counts @ known, counts @ np.where(known, table, 0.0)
        means[name] = np.divide(sums, total, out=np.full(m, np.nan), where=total > 0.0)
        if delta is None:
            _check_monotone(name, table)
            passed = sums + 1.0 <= limit * (total + 1.0) * (1.0 + _ROUNDING)
            last = min(last, int(np.flatnonzero(passed).max(initial=-1)))
        else:
            binary = bool(np.isin(table[known], (0.0, 1.0)).all())
            tail = loss_p_values(sums, total, limit, binary=binary)
            p_values = np.maximum(p_values, tail)  # all risks at once: the worst of them
    if delta is not None:
        spread = np.linspace(0, m - 1, _STARTS).astype(np.int64)
        # Half of delta is for the first.
        last = last_proven(p_values, np.append(np.zeros(_STARTS - 2, np.int64), spread), delta)
    return last, means


def _why_none(limits: Mapping[str, float], delta: float | None, n: int) -> str:
    fewest = max(fewest_examples(limit, delta) for limit in limits.values())
    return (
        f"No threshold is proven to have a mean loss of at most {_list(limits)}: it takes at least "
        f"{fewest:,} examples, even without a loss, and these are {n:,}. Allow a larger `risk` or "
        "`delta`, or use more examples."
    )


def _list(numbers: Mapping[str, float]) -> str:
    """Numbers in words, with their names where there are several."""
    several = len(numbers) > 1
    return " and ".join(f"{value:.4g}" + f" ({name})" * several for name, value in numbers.items())


def _check_monotone(name: str, table: FloatArray) -> None:
    if np.isnan(table).any() or (np.diff(table, axis=1) < -_ROUNDING).any():
        raise ValueError(
            f"`delta` must be given for the loss {name!r}: on average only losses that never fall "
            "along the `thresholds`, and count every example, can be bounded. Pass `delta=0.1`, or "
            "order the thresholds from the safest on."
        )


def _losses(loss: Loss, proba: Any, labels: Any, tried: FloatArray) -> FloatArray:
    """Checked losses (n, thresholds)."""
    if callable(loss):
        loss = np.array([loss(proba, labels, float(t)) for t in tried], np.float64).T
    table = np.asarray(loss, np.float64)
    if table.ndim != 2 or table.shape[1] != tried.size or not len(table):
        raise ValueError(
            f"`loss` must have shape (n, {tried.size}), a column for each of the `thresholds`, or "
            f"give one number per example, (n,), at each; got {table.shape}."
        )
    if ((table < 0.0) | (table > 1.0)).any():
        raise ValueError(
            "`loss` must lie in [0, 1], or be NaN where an example does not count; divide it by "
            "the largest possible loss."
        )
    return table
