"""Risk control for losses of your own: the last threshold whose mean loss is proven to be small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._control import check_promise, fewest_examples, last_proven, loss_p_values
from hokical.guarantees._words import Guaranteed, state_promise

#: Thresholds where testing may start, beside the first: a loss may count few examples there.
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
        own = {name: table[rows] for name, table in tables.items()}
        last, means = _last_safe(own, limits, delta, counts[rows])
        at = float(tried[last]) if last >= 0 else np.nan
        words = _in_words(last, at, means, limits, delta, counts[rows].size, weights is not None)
        return RiskControl(at, tried, means, counts[rows].size, words)

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
        found = last_proven(p_values, _budget(m, delta))
        last = -1 if found is None else found
    return last, means


def _in_words(
    last: int,
    threshold: float,
    means: dict[str, FloatArray],
    limits: Mapping[str, float],
    delta: float | None,
    n: int,
    weighted: bool,
) -> str:
    of = {name: f" of {name}" if len(means) > 1 else "" for name in means}
    wanted = " and".join(f"{of[name]} {limits[name]:.4g} at most" for name in means)
    if last < 0:
        fewest = max(fewest_examples(limit, delta) for limit in limits.values())
        return (
            f"No threshold is proven to have a mean loss{wanted}: it takes at least {fewest:,} "
            f"examples, even without a loss, and these are {n:,}. Allow a larger `risk` or "
            "`delta`, or use more examples."
        )
    seen = " and".join(f"{of[name]} {mean[last]:.4g}" for name, mean in means.items())
    what = f"The mean loss of new examples is{wanted} at the threshold {threshold:.6g}"
    behind = f"of {n:,} held-out examples it is{seen}"
    return state_promise(what, behind, delta=delta, weighted=weighted)


def _check_monotone(name: str, table: FloatArray) -> None:
    if np.isnan(table).any() or (np.diff(table, axis=1) < -_ROUNDING).any():
        raise ValueError(
            f"`delta` must be given for the loss {name!r}: on average only losses that never fall "
            "along the `thresholds`, and count every example, can be bounded. Pass `delta=0.1`, or "
            "order the thresholds from the safest on."
        )


def _budget(m: int, delta: float) -> FloatArray:
    """Half of delta for the first threshold, the rest for starts at equal distances."""
    budget = np.zeros(m)
    starts: IntArray = np.unique(np.linspace(0, m - 1, _STARTS).astype(np.int64))[1:]
    budget[starts] = 0.5 * delta / max(starts.size, 1)
    budget[0] += delta - budget.sum()
    return budget


def _losses(loss: Loss, proba: Any, labels: Any, tried: FloatArray) -> FloatArray:
    """Checked losses (n, thresholds)."""
    if callable(loss):
        columns = [np.asarray(loss(proba, labels, float(t)), np.float64) for t in tried]
        if any(column.ndim != 1 or column.shape != columns[0].shape for column in columns):
            raise ValueError(
                "`loss` must give one number per example, (n,), at each threshold; got shape "
                f"{columns[0].shape}."
            )
        table = np.stack(columns, axis=1)
    else:
        table = np.asarray(loss, np.float64)
    if table.ndim != 2 or table.shape[1] != tried.size or not len(table):
        raise ValueError(
            f"`loss` must have shape (n, {tried.size}), a column for each of the `thresholds`; got "
            f"{table.shape}."
        )
    if ((table < 0.0) | (table > 1.0)).any():
        raise ValueError(
            "`loss` must lie in [0, 1], or be NaN where an example does not count; divide it by "
            "the largest possible loss."
        )
    return table
