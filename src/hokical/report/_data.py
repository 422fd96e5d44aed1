"""The content of a report, as plain numbers, strings, lists and dicts.

It holds sums of bins and points of curves, not confidences, so a report of a million examples is as
small as one of a thousand.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hokical.metrics._groups import GroupTable
from hokical.metrics._levels import Bins
from hokical.metrics._metric import METRICS
from hokical.plots._reliability import Reliability
from hokical.plots._risk import RiskCoverage
from hokical.report._differences import Difference
from hokical.report._provenance import Provenance

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Classes that the table of classes shows; the worst, if there are more.
MOST_CLASSES = 12
#: Groups that are shown; the worst, if there are more.
MOST_GROUPS = 20


def main_columns(vectors: bool) -> tuple[str, ...]:
    """What small tables show, in order; with `vectors` of all classes."""
    last = ("classwise_ece", "brier", "log_loss") if vectors else ("brier", "log_loss")
    return ("mean_confidence", "accuracy", "ece", *last)


@dataclass(frozen=True)
class ReportFacts:
    """What a report needs beside evaluations; `subject` is the method of the headline."""

    title: str | None
    subject: str
    headline: str
    provenance: Provenance
    differences: tuple[Difference, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)


def report_data(results: Sequence[Any], facts: ReportFacts) -> dict[str, Any]:
    """All of a report of evaluations; non-finite numbers become None."""
    names = {result.name: result for result in results}
    chosen, reference = names[facts.subject], names.get("uncalibrated")
    differences = {found.method: found for found in facts.differences}
    vectors = all(result.summary.vectors for result in results)
    main = main_columns(vectors)
    scores = [
        name for name, metric in METRICS.items()
        if metric.ranking and all(name in result.summary.estimates for result in results)
    ]  # fmt: skip
    shown = [*dict.fromkeys((*main, *scores))]
    return {
        "title": facts.title or "Calibration report",
        "headline": facts.headline,
        "chosen": chosen.name,
        "chosen_label": chosen.label,
        "reference": reference.name if reference else None,
        "vectors": vectors,
        "bin_counts": list(BIN_COUNTS),
        "schemes": list(SCHEMES),
        "columns": [*main, "difference", *(name for name in scores if name not in main)],
        "best": {score: _best_names(results, score) for score in scores},
        "methods": [
            _method_data(result, reference, shown, differences.get(result.name))
            for result in results
        ],
        "skipped": facts.skipped,
        "options": asdict(chosen.summary.options),
        "provenance": asdict(facts.provenance),
    }


def _best_names(results: Sequence[Any], score: str) -> list[str]:
    """The methods with the lowest score; more than one only if they tie exactly."""
    lowest = min(result.score(score) for result in results)
    return [result.name for result in results if result.score(score) == lowest]


def _method_data(
    result: Any, reference: Any, shown: list[str], difference: Difference | None
) -> dict[str, Any]:
    return {
        "name": result.name,
        "label": result.label,
        "fit_seconds": result.fit_seconds,
        "converged": result.converged,
        "may_change_labels": result.may_change_labels,
        "notes": _notes(result, reference),
        "scores": {name: _plain(result.summary[name]) for name in shown},
        "difference": None if difference is None else _plain(difference),
        "classes": _table_data(result.classes, MOST_CLASSES),
        "sets": None if result.sets is None else result.sets.to_dict(),
        "groups": _table_data(result.groups, MOST_GROUPS),
        "bounds": {name: _round(bound) for name, bound in result.summary.bounds.items()},
        "reliability": {
            scheme: {str(n_bins): _bins(result, n_bins, scheme) for n_bins in BIN_COUNTS}
            for scheme in SCHEMES
        },
        "risk": _curve(result),
    }


def _notes(result: Any, reference: Any) -> list[str]:
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
    if result.class_warning is not None:
        notes.append(f"Warning: {result.class_warning}")
    return notes


def _table_data(table: GroupTable | None, most: int) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the verdict."""
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= most else table.worst(most)
    return {
        "rows": [_plain(row) | {"full_name": row.full_name} for row in shown],
        "n_groups": len(table.rows),
        "n_off": len(table.flagged),
        "asked": list(table.asked),
        "verdict": table.verdict,
        "worst": _plain(table.worst(1)[0]) | {"full_name": table.worst(1)[0].full_name},
        "largest": None if table.largest is None else _plain(table.largest),
    }


def _bins(result: Any, n_bins: int, scheme: Bins) -> dict[str, Any]:
    data = Reliability.from_levels(result.levels, n_bins, scheme, result.summary.options.delta)
    return {
        "ece": _round(data.ece),
        "count": data.count.tolist(),
        **_columns(data, "low", "high", "confidence", "accuracy", "accuracy_low", "accuracy_high"),
    }


def _curve(result: Any) -> dict[str, Any]:
    data = RiskCoverage.from_levels(result.levels)
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
