"""The content of a report, as plain numbers, strings, lists and dicts.

It holds sums of bins and points of curves, not confidences, so a report of a million examples is as
small as one of a thousand.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hokical._core.storage import json_values
from hokical.metrics._groups import GroupTable
from hokical.metrics._levels import Bins
from hokical.metrics._metric import METRICS
from hokical.plots._reliability import Reliability
from hokical.plots._risk import RiskCoverage
from hokical.report._differences import paired_differences

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Groups and classes that are shown; the worst, if there are more.
MOST_ROWS = 20
#: Six decimals: finer than a pixel, and than the numbers shown.
DIGITS = 6


def main_columns(results: Sequence[Any]) -> list[str]:
    """What small tables show, in order."""
    vectors = all(found.summary.vectors for found in results)
    last = ["classwise_ece"] if vectors else []
    return ["mean_confidence", "accuracy", "ece", *last, "brier", "log_loss"]


def best_of(results: Sequence[Any], metric: str) -> list[str]:
    """The names of the methods with the lowest score, as it is shown; none if it ranks none.

    Equal as shown is equal: readers cannot see which 0.0107 is lower.
    """
    if not METRICS[metric].ranking:
        return []
    lowest = min(result.score(metric) for result in results)
    shown = METRICS[metric].format
    return [each.name for each in results if shown(each.score(metric)) == shown(lowest)]


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
        "chosen": chosen.name,
        "chosen_label": chosen.label,
        "reference": "uncalibrated" if any(r.name == "uncalibrated" for r in results) else None,
        "vectors": all(result.summary.vectors for result in results),
        "bin_counts": BIN_COUNTS,
        "schemes": SCHEMES,
        "columns": [*main, "difference", *more],
        "best": {name: best_of(results, name) for name in [*main, *more]},
        "methods": [_method(each) | {"difference": known.get(each.name)} for each in results],
        "skipped": about.get("skipped", {}),
        "options": asdict(chosen.summary.options),
        "data": asdict(chosen.data),
        "validation": about.get("validation"),
        "tested_on_validation": about.get("tested_on_validation", False),
    }
    return dict(json_values(found))


def _method(result: Any) -> dict[str, Any]:
    delta = result.summary.options.delta
    bins = ("count", "low", "high", "confidence", "accuracy", "accuracy_low", "accuracy_high")
    curve = RiskCoverage.from_levels(result.levels)
    return {
        "name": result.name,
        "label": result.label,
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


def _fields(record: Any, *names: str) -> dict[str, Any]:
    return {name: np.round(getattr(record, name), DIGITS) for name in names}


def _table(table: GroupTable | None) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the verdict."""
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= MOST_ROWS else table.worst(MOST_ROWS)
    rows = [asdict(row) | {"full_name": row.full_name} for row in (*shown, *table.segments[:5])]
    return {"rows": rows, "n_left_out": len(table.rows) - len(shown), "verdict": table.verdict}
