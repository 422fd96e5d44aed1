"""The content of a report, as plain numbers, strings, lists and dicts.

It holds sums of bins and points of curves, not confidences, so a report of a million examples is as
small as one of a thousand.
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from hokical.metrics._binned_sums import Bins
from hokical.metrics._by_group import GroupTable
from hokical.plots._methods import risk_coverage
from hokical.plots._reliability import reliability
from hokical.report._comparison import Comparison
from hokical.report._results import MethodResult
from hokical.report._tables import Difference

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
CURVE_POINTS = 200
#: Classes that the table of classes shows; the worst, if there are more.
MOST_CLASSES = 12
#: Groups that are shown; the worst, if there are more.
MOST_GROUPS = 20


def report_data(comparison: Comparison, method: str | None = None) -> dict[str, Any]:
    """All of a report; `method` as in `write_report`. Non-finite numbers become None."""
    if not comparison.results:
        raise ValueError("`comparison` must hold at least one method; it holds none.")
    chosen = comparison[method or comparison.subject]
    names = [result.name for result in comparison.results]
    reference = comparison["uncalibrated"] if "uncalibrated" in names else None
    main = comparison.main_columns  # the most important come first
    differences = {found.method: found for found in comparison.differences(against=chosen.name)}
    return {
        "title": comparison.title or "Calibration report",
        "headline": comparison.headline(chosen.name),
        "chosen": chosen.name,
        "chosen_label": chosen.label,
        "reference": reference.name if reference else None,
        "bin_counts": list(BIN_COUNTS),
        "schemes": list(SCHEMES),
        "columns": [*main, "difference", *(name for name in comparison.scores if name not in main)],
        "best": {score: _best_names(comparison, score) for score in comparison.scores},
        "methods": [
            _method_data(result, reference, comparison, differences.get(result.name))
            for result in comparison.results
        ],
        "skipped": comparison.skipped,
        "options": asdict(chosen.summary.options),
        "provenance": asdict(comparison.provenance),
    }


def _best_names(comparison: Comparison, score: str) -> list[str]:
    """The methods with the lowest score; more than one only if they tie exactly."""
    lowest = comparison.best(score).score(score)
    return [result.name for result in comparison.results if result.score(score) == lowest]


def _method_data(
    result: MethodResult,
    reference: MethodResult | None,
    comparison: Comparison,
    difference: Difference | None,
) -> dict[str, Any]:
    shown = dict.fromkeys((*comparison.main_columns, *comparison.scores))
    return {
        "name": result.name,
        "label": result.label,
        "fit_seconds": result.fit_seconds,
        "converged": result.converged,
        "may_change_labels": result.may_change_labels,
        "notes": _notes(result, reference, comparison.class_names),
        "scores": {name: _plain(result.summary[name]) for name in shown},
        "difference": None if difference is None else _plain(difference),
        "classes": _classes(result, comparison.class_names),
        "sets": None if result.sets is None else result.sets.to_dict(),
        "groups": None if result.groups is None else _groups(result.groups),
        "bounds": {name: _round(bound) for name, bound in result.summary.bounds.items()},
        "reliability": {
            scheme: {str(n_bins): _bins(result, n_bins, scheme) for n_bins in BIN_COUNTS}
            for scheme in SCHEMES
        },
        "risk": _curve(result),
    }


def _notes(
    result: MethodResult, reference: MethodResult | None, names: tuple[str, ...]
) -> list[str]:
    """Warnings about a method: it may change labels, or did not converge."""
    notes = list(result.notes)
    if result.may_change_labels:
        now = result.score("accuracy")
        before = "" if reference is None else f" instead of {reference.score('accuracy'):.2%}"
        notes.append(
            f"May change labels: with this method {now:.2%} of the test labels are right{before}."
        )
    if not result.converged and not result.notes:
        notes.append("The fit did not converge.")
    warning = result.summary.warn_of_class(names)
    if warning is not None:
        notes.append(f"Warning: {warning}")
    return notes


def _classes(result: MethodResult, names: tuple[str, ...]) -> dict[str, Any]:
    """The rows by predicted label, the worst first if there are many, and how many are left out."""
    table = result.summary.classes
    rows = () if table is None else table.rows
    shown = rows if table is None or len(rows) <= MOST_CLASSES else table.worst(MOST_CLASSES)
    named = [_plain(row) | {"name": names[row.label] if names else str(row.label)} for row in shown]
    return {"rows": named, "n_more": len(rows) - len(shown)}


def _groups(table: GroupTable) -> dict[str, Any]:
    """The groups, the most certain to be off first if there are many, and the verdict."""
    shown = table.rows if len(table.rows) <= MOST_GROUPS else table.worst(MOST_GROUPS)
    return {
        "rows": [_plain(row) for row in shown],
        "n_groups": len(table.rows),
        "n_off": len(table.flagged),
        "verdict": table.verdict,
        "worst": _plain(table.worst(1)[0]),
        "largest": _plain(table.largest),
    }


def _bins(result: MethodResult, n_bins: int, scheme: Bins) -> dict[str, Any]:
    data = reliability(result.confidence, result.correct, n_bins=n_bins, bins=scheme)
    return {
        "ece": _round(data.ece),
        "count": data.count.tolist(),
        "correct": data.correct.astype(np.int64).tolist(),
        **_columns(data, "low", "high", "confidence", "accuracy_low", "accuracy_high"),
    }


def _curve(result: MethodResult) -> dict[str, Any]:
    data = risk_coverage(result.confidence, result.correct, max_points=CURVE_POINTS)
    return {"area": _round(data.area), **_columns(data, "threshold", "coverage", "risk")}


def _columns(record: Any, *names: str) -> dict[str, list[float | None]]:
    """Arrays of a record, with five decimals: finer than a pixel, and than the numbers shown."""
    return {name: [_round(value, 5) for value in getattr(record, name).tolist()] for name in names}


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, rounded."""
    return {
        name: _round(value) if isinstance(value, float) else value
        for name, value in asdict(record).items()
    }


def _round(value: float, digits: int = 7) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
