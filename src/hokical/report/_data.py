"""The content of a report, as plain numbers, strings, lists and dicts.

It holds sums of bins and points of curves, not confidences, so a report of a million examples is as
small as one of a thousand.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from hokical.metrics._groups import GroupTable
from hokical.metrics._levels import Bins
from hokical.metrics._metric import METRICS
from hokical.plots._reliability import Reliability
from hokical.plots._risk import RiskCoverage
from hokical.report._provenance import Provenance

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Groups and classes that are shown; the worst, if there are more.
MOST_ROWS = 20
#: Six decimals: finer than a pixel, and than the numbers shown.
DIGITS = 6


def main_columns(results: Sequence[Any]) -> tuple[str, ...]:
    """What small tables show, in order."""
    vectors = all(found.summary.vectors for found in results)
    last = ("classwise_ece", "brier", "log_loss") if vectors else ("brier", "log_loss")
    return ("mean_confidence", "accuracy", "ece", *last)


def report_data(
    results: Sequence[Any],
    chosen: Any,
    provenance: Provenance,
    differences: Sequence[Any],
    *,
    title: str | None = None,
    skipped: dict[str, str] | None = None,
) -> dict[str, Any]:
    """All of a report about `chosen` among evaluations; non-finite numbers become None."""
    main, known = main_columns(results), {found.method: found for found in differences}
    scores = [
        name for name, metric in METRICS.items()
        if metric.ranking and all(name in result.summary.estimates for result in results)
    ]  # fmt: skip
    lowest = {name: min(result.score(name) for result in results) for name in scores}
    names = [result.name for result in results]
    found: dict[str, Any] = plain(
        {
            "title": title or "Calibration report",
            "headline": chosen.headline,
            "chosen": chosen.name,
            "chosen_label": chosen.label,
            "reference": "uncalibrated" if "uncalibrated" in names else None,
            "vectors": all(result.summary.vectors for result in results),
            "bin_counts": BIN_COUNTS,
            "schemes": SCHEMES,
            "columns": [*main, "difference", *(name for name in scores if name not in main)],
            "best": {
                name: [result.name for result in results if result.score(name) == low]
                for name, low in lowest.items()
            },
            "methods": [_method(each) | {"difference": known.get(each.name)} for each in results],
            "skipped": skipped or {},
            "options": chosen.summary.options,
            "provenance": provenance,
        }
    )
    return found


def _method(result: Any) -> dict[str, Any]:
    delta = result.summary.options.delta
    bins = ("count", "low", "high", "confidence", "accuracy", "accuracy_low", "accuracy_high")
    return {
        "name": result.name,
        "label": result.label,
        "fit_seconds": result.fit_seconds,
        "converged": result.converged,
        "may_change_labels": result.may_change_labels,
        "notes": result.all_notes,
        "scores": result.summary.estimates,
        "classes": _table(result.classes),
        "groups": _table(result.groups),
        "sets": result.sets,
        "bounds": result.summary.bounds,
        "reliability": {
            scheme: {
                n: _fields(Reliability.from_levels(result.levels, n, scheme, delta), "ece", *bins)
                for n in BIN_COUNTS
            }
            for scheme in SCHEMES
        },
        "risk": _fields(
            RiskCoverage.from_levels(result.levels), "area", "threshold", "coverage", "risk"
        ),
    }


def _fields(record: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _table(table: GroupTable | None) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the verdict."""
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= MOST_ROWS else table.worst(MOST_ROWS)
    rows = [asdict(row) | {"full_name": row.full_name} for row in (*shown, *table.segments[:5])]
    return {"rows": rows, "n_left_out": len(table.rows) - len(shown), "verdict": table.verdict}


def plain(value: Any) -> Any:
    """Values that JSON has: fields of dataclasses, lists of arrays, rounded numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return round(value, DIGITS) if math.isfinite(value) else None
    return value
