"""The content of a report, as plain numbers, strings, lists and dicts; paired differences.

It holds sums of bins and points of curves, not confidences, so a report of a million examples is as
small as one of a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from hokical._core.storage import json_values
from hokical.guarantees.bounds import check_chance
from hokical.metrics.groups import GroupTable, holm
from hokical.metrics.intervals import unskewed, worst_score
from hokical.metrics.levels import Bins
from hokical.metrics.risk_models import EVENT_COLUMNS, EVENT_METRICS, BinarySummary
from hokical.metrics.summaries import METRICS
from hokical.plots import EventPicture, Reliability, RiskCoverage, axis_top

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Groups and classes that are shown; the worst, if there are more.
MOST_ROWS = 20
#: Six decimals: finer than a pixel, and than the numbers shown.
DIGITS = 6
#: The standard error of rounding: the difference between equal probabilities of float32.
_ROUNDING = 1e-7
#: With fewer errors, differences have the intervals of two means that are not paired.
_FEW_ERRORS = 10.0


def main_columns(results: Sequence[Any]) -> list[str]:
    """What small tables show, in order."""
    vectors = all(found.summary.vectors for found in results)
    last = ["classwise_ece"] if vectors else []
    return ["mean_confidence", "accuracy", "ece", *last, "brier", "log_loss"]


def method_cells(results: Sequence[Any], mark: str) -> tuple[list[str], list[Any]]:
    """Heads and rows of a small table of methods, the best of each score in `mark`.

    Of two classes the numbers are those of the event.
    """
    event = all(each.binary is not None for each in results)
    names = EVENT_COLUMNS if event else main_columns(results)
    metrics = [(EVENT_METRICS if event else METRICS)[name] for name in names]
    best = [best_of(results, name, event=event) for name in names]
    rows: list[Any] = []
    for each in results:
        found = each.binary if event else each.summary
        values = (metric.format(found[metric.name].value) for metric in metrics)
        marks = (mark if each.name in own else "{}" for own in best)
        rows.append([(each.label, "{}"), *zip(values, marks, strict=True)])
    return ["method", *(metric.full_title for metric in metrics)], rows


def method_record(result: Any) -> dict[str, Any]:
    """Every metric and its interval, not rounded; of two classes, those of the event first."""
    row: dict[str, Any] = {"method": result.name, "title": result.title}
    event = {} if result.binary is None else result.binary.estimates
    named = {f"event_{name}": each for name, each in event.items()} | result.summary.estimates
    for name, found in named.items():
        row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    row["true_ece_below"] = result.summary.bounds.get("bousquet", math.nan)
    return row


def best_of(results: Sequence[Any], name: str, *, event: bool = False) -> list[str]:
    """The names of the methods with the best score, as it is shown; none if it ranks none.

    Equal as shown is equal: readers cannot see which 0.0107 is lower. With `event`, the score is
    that of the event.
    """
    metric = (EVENT_METRICS if event else METRICS)[name]
    if not metric.ranking or (event and len(results) < 2):
        return []
    values = [(each.binary if event else each.summary)[name].value for each in results]
    best = metric.format(max(values) if metric.better == "higher" else min(values))
    return [r.name for r, v in zip(results, values, strict=True) if metric.format(v) == best]


def report_data(results: Sequence[Any], chosen: Any, **about: Any) -> dict[str, Any]:
    """All of a report about `chosen` among evaluations; non-finite numbers become None.

    `about` may have a title, methods that were skipped, the facts of the validation data, and
    whether they are the test data.
    """
    main = main_columns(results)
    more = [
        name for name, metric in METRICS.items()
        if metric.ranking and name not in main and all(name in r.summary.estimates for r in results)
    ]  # fmt: skip
    known = {found.method: asdict(found) for found in paired_differences(results, chosen)}
    title = "Calibration report" + (f": {chosen.data.name}" if chosen.data.name else "")
    found: dict[str, Any] = {
        "title": about.get("title") or title,
        "headline": [chosen.verdict, chosen.details],
        "label_headline": f"{chosen.label_verdict} {chosen.label_details}",
        "chosen": chosen.name,
        "chosen_label": chosen.label,
        "reference": "uncalibrated" if any(r.name == "uncalibrated" for r in results) else None,
        "vectors": all(result.summary.vectors for result in results),
        "bin_counts": BIN_COUNTS,
        "schemes": SCHEMES,
        "columns": [*main, "difference", *more],
        "best": {name: best_of(results, name) for name in [*main, *more]},
        "methods": [
            _method(each, chosen) | {"difference": known.get(each.name), "event": event}
            for each, event in zip(results, _events(results), strict=True)
        ],
        "skipped": about.get("skipped", {}),
        "options": asdict(chosen.summary.options),
        "data": asdict(chosen.data),
        "validation": about.get("validation"),
        "tested_on_validation": about.get("tested_on_validation", False),
    }
    return dict(json_values(found))


def _method(result: Any, chosen: Any) -> dict[str, Any]:
    """What the page shows of a method; a bound only of the chosen one, for which alone it holds."""
    bounded = result.name == chosen.name
    label_details = result.label_details if bounded else result.shares
    details = result.details if bounded or result.binary is not None else result.shares
    delta = result.summary.options.delta
    bins = ("count", "low", "high", "confidence", "accuracy", "accuracy_low", "accuracy_high")
    curve = RiskCoverage.from_levels(result.levels)
    return {
        "name": result.name,
        "label": result.label,
        "headline": [result.verdict, details],
        "label_headline": f"{result.label_verdict} {label_details}",
        "fit_seconds": result.fit_seconds,
        "converged": result.converged,
        "may_change_labels": result.may_change_labels,
        "notes": result.notes,
        "scores": {name: asdict(each) for name, each in result.summary.estimates.items()},
        "classes": _table(result.classes),
        "groups": _table(result.groups),
        "sets": None if result.sets is None else result.sets.to_dict(),
        "reliability": {
            scheme: {
                n: _fields(Reliability.from_levels(result.levels, n, scheme, delta), "ece", *bins)
                for n in BIN_COUNTS
            }
            for scheme in SCHEMES
        },
        "risk": _fields(curve, "area", "threshold", "coverage", "risk"),
    }


def _events(results: Sequence[Any]) -> list[Any]:
    """What diagrams of an event show, of each method, on common axes; None of more classes."""
    known = [result.binary for result in results]
    if any(each is None for each in known):
        return [None] * len(known)
    top = max(axis_top(each) for each in known)
    return [_event(each, EventPicture.from_summary(each, top=top)) for each in known]


def _event(found: BinarySummary, picture: EventPicture) -> dict[str, Any]:
    curve, net = picture.curve, picture.decision
    decision = _fields(net, "threshold", "net_benefit", "treat_all")
    shown = {name: m.show(found[name], "\u2013") for name, m in EVENT_METRICS.items()}
    shares = _fields(picture, "edges", "events", "others", "rug_events", "rug_others")
    return {
        "name": found.event,
        "n_events": found.n_events,
        "top": picture.top,
        "remark": found.remark,
        "estimates": {name: value for name, (value, _) in shown.items()},
        "ends": {name: ends for name, (_, ends) in shown.items()},
        "curve": None if curve is None else _fields(curve, *vars(curve)),
        "bands": picture.bands.to_dict(),
        "decision": decision | {"prevalence": found["prevalence"].value},
        **shares,
    }


def _fields(record: Any, *names: str) -> dict[str, Any]:
    return {name: np.round(getattr(record, name), DIGITS) for name in names}


def _table(table: GroupTable | None) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the verdict."""
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= MOST_ROWS else table.worst(MOST_ROWS)
    rows = [asdict(row) | {"full_name": row.full_name} for row in (*shown, *table.segments[:5])]
    return {"rows": rows, "n_left_out": len(table.rows) - len(shown), "verdict": table.verdict}


@dataclass(frozen=True)
class Difference:
    """metric(method) - metric(against) on the same examples: below 0, the method is better.

    `p_value` is corrected by Holm for the number of methods, and so is the `verdict`; the interval
    is for this difference alone. NaN and "unknown" if both scores are infinite.
    """

    method: str
    against: str
    metric: str
    value: float
    low: float
    high: float
    p_value: float
    verdict: str


def paired_differences(
    results: Sequence[Any], base: Any, metric: str = "log_loss", delta: float = 0.05
) -> tuple[Difference, ...]:
    """Differences of every other evaluation to `base`; none of streams, whose rows are not kept."""
    check_chance("delta", delta)
    if not base.row_scores:
        return ()
    if metric not in base.row_scores:
        raise ValueError(f"`metric` must be one of {sorted(base.row_scores)}; got {metric!r}.")
    others = [result for result in results if result.name != base.name]
    found = [_pair_difference(result, base, metric, delta) for result in others]
    p_values = holm(np.array([p for *_, p in found])).tolist()
    return tuple(
        Difference(result.name, base.name, metric, v, low, high, p, _verdict(v, p, delta))
        for result, (v, low, high, _), p in zip(others, found, p_values, strict=True)
    )


def _pair_difference(
    result: Any, base: Any, metric: str, delta: float
) -> tuple[float, float, float, float]:
    """Mean difference, its interval and p-value, by Hall's transformed t statistic.

    One more error moves a difference of log losses by much: of samples with few errors the standard
    error in that direction is at least that of none seen, whose 95 % limit is 3.7 (1.9 standard
    errors). With fewer than `_FEW_ERRORS`, the interval is that of two means of their own.
    """
    rows, others, weight = result.row_scores[metric], base.row_scores[metric], base.weight
    share = np.full(rows.size, 1.0 / rows.size) if weight is None else weight / weight.sum()
    if not (np.isfinite(rows).all() and np.isfinite(others).all()):
        ends = float((share * rows).sum()), float((share * others).sum())
        value = math.nan if ends[0] == ends[1] else ends[0] - ends[1]
        return value, value, value, math.nan if math.isnan(value) else 0.0
    gap = rows - others
    mean, n = float((share * gap).sum()), 1.0 / float((share**2).sum())
    spread = math.hypot(math.sqrt(float((share * (gap - mean) ** 2).sum())), 1e-300)
    a = float((share * ((gap - mean) / spread) ** 3).sum()) / math.sqrt(n)
    error = math.hypot(spread / math.sqrt(max(n - 1.0, 1.0)), _ROUNDING)
    step = 1.9 * (_one_more(result, metric) - _one_more(base, metric))
    below, above = math.hypot(error, min(step, 0.0)), math.hypot(error, max(step, 0.0))
    t = mean / (below if mean > 0.0 else above)
    freedom = max(n - 1.0, 1.0)
    p = 2.0 * float(stdtr(freedom, -abs(t + a * (t**2 / 3.0 + a * t**3 / 27.0 + 1.0 / 6.0))))
    far, near = unskewed(a, -float(stdtrit(freedom, 0.5 * delta)))
    low, high = mean - below * max(far, 0.0), mean - above * min(near, 0.0)
    alone = [each.summary[metric] for each in (result, base)]
    few = float(base.levels.errors.sum()) * base.levels.rows_per_weight < _FEW_ERRORS
    if few and not (math.isnan(alone[0].low) or np.array_equal(rows, others)):
        low = min(low, alone[0].low - alone[1].high)
        high = max(high, alone[0].high - alone[1].low)
    return mean, low, high, p if low > 0.0 or high < 0.0 else max(p, math.nextafter(delta, 1.0))


def _one_more(result: Any, metric: str) -> float:
    """By how much one more error would raise the mean of a score."""
    levels, scores = result.levels, METRICS[metric].scores
    assert scores is not None
    worst: float = worst_score(levels, *scores(levels.confidence)) / (
        levels.total * levels.rows_per_weight
    )
    return 2.0 * worst if metric == "brier" and result.summary.vectors else worst


def _verdict(value: float, p_value: float, delta: float) -> str:
    if math.isnan(value):
        return "unknown"
    return "no clear difference" if p_value > delta else "better" if value < 0 else "worse"
