"""`hokical show`: what is inside a file that `fit` saved; `hokical methods`: the methods."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import hokical
from hokical.cli.console import new_table, say, show_json, show_result, show_table
from hokical.cli.options import CalibratorFile, Json
from hokical.cli.reading import read_calibrator

_GROUPS, _WIDTH = 8, 30
#: Arrays with more numbers are not listed.
_LONGEST = 1000


def show(calibrator: CalibratorFile, as_json: Json = False) -> None:
    """Show what is inside a calibrator: method, numbers, guarantee, curve."""
    fitted = read_calibrator(calibrator, for_rows=False)
    if not isinstance(fitted, hokical.Calibrator):
        certified = "no" if fitted.held_out_ is None else "yes"
        told = {"method": fitted.name, "chosen": fitted.reason_, "certified": certified}
        show_result(told | {"metadata": fitted.metadata}, told, as_json)
        return
    counts = fitted.kept_.held_out_scores or fitted.kept_.fit_scores
    curve = [] if counts is None else curve_rows(counts)
    facts, names = _facts(fitted), ("score", "right", "examples")
    values = facts | {"curve": [dict(zip(names, row, strict=True)) for row in curve]}
    show_result(values, _lines(facts, _learned_values(fitted)), as_json)
    if as_json or not curve:
        return
    source = (
        "calibrated confidence" if fitted.kept_.held_out_scores else "softmax before calibration"
    )
    table = new_table((source, "right", "", "examples"))
    table.columns[2].justify = "left"
    bar = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    for score, right, count in curve:
        table.add_row(f"{score:.2%}", f"{right:.1%}", bar * round(_WIDTH * right), f"{count:,}")
    show_table("", table)


def curve_rows(
    counts: hokical.guarantees._score_table.ScoreTable,
) -> list[tuple[float, float, int]]:
    """Groups of about equally many examples by score: its median, the share right, how many."""
    level = np.flatnonzero(counts.count)
    reached = np.cumsum(counts.count[level])
    group = np.minimum((reached - 1) * _GROUPS // reached[-1], _GROUPS - 1)
    rows = []
    for one in np.unique(group):
        some = level[group == one]
        n, wrong = int(counts.count[some].sum()), int(counts.wrong[some].sum())
        half = some[np.searchsorted(np.cumsum(counts.count[some]), n / 2)]
        odds = hokical.guarantees._scores.level_log_odds(int(half) + 1)
        rows.append((float(1 / (1 + np.exp(-odds))), 1 - wrong / n, n))
    return rows


def _facts(fitted: hokical.Calibrator) -> dict[str, Any]:
    """What is inside as values, None where it is not known."""
    counts, known = fitted.kept_.fit_scores, dict(fitted.metadata)
    if counts is not None:
        known |= {"examples": counts.total, "accuracy": counts.accuracy}
    stored = ("classes", "scores", "binary_score", "zeros", "examples", "accuracy")
    return {
        "method": fitted.name,
        "title": fitted.method.title,
        "n_classes": fitted.n_classes_,
        **{name: known.get(name) for name in stored},
        "reason": getattr(fitted, "reason_", None),
        "label": describe_label(fitted),
        "learned": {name: _values(value) for name, value in _learned_values(fitted).items()},
        "guarantee": _guarantee(fitted),
        "reference": fitted.method.reference,
        "library_version": fitted._library_version,
    }


def _lines(facts: dict[str, Any], learned: dict[str, Any]) -> dict[str, str | None]:
    """The same in words."""
    names, scores, n = facts["classes"] or (), facts["scores"], facts["examples"]
    shown = f": {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}" if names else ""
    if facts["binary_score"]:
        scores = f"{scores}, of class 1 in `{facts['binary_score']}`"
    if facts["zeros"] == "impossible":
        scores = f"{scores}; classes with 0 are impossible"
    title = facts["title"].split(" (")[0]  # without the explanation
    return {
        "method": f"{title} ({facts['method']})",
        "classes": f"{facts['n_classes']}{shown}",
        "scores": scores,
        "fitted on": f"{n:,} examples, {facts['accuracy']:.1%} right before calibration"
        if n
        else None,
        "chosen": facts["reason"],
        "label": facts["label"],
        **{name: _in_words(value) for name, value in learned.items() if name != "keep_labels"},
        "guarantee": facts["guarantee"]["text"],
        "reference": facts["reference"],
        "saved with": f"hokical {facts['library_version']}",
    }


def _learned_values(fitted: hokical.Calibrator) -> dict[str, Any]:
    """The numbers of the rule."""
    found = fitted.rule_.own_fields() | {"weights": getattr(fitted, "weights_", None)}
    return {name: value for name, value in found.items() if value is not None}


def _values(value: Any) -> Any:
    """Plain numbers, strings, lists and dicts; of long arrays the shape."""
    if hasattr(value, "family"):  # a noise
        return value.to_dict()
    value = vars(value) if is_dataclass(value) else value
    if isinstance(value, dict):
        return {name: _values(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.size > _LONGEST:
        return {"shape": list(value.shape)}
    return [_values(each) for each in value] if isinstance(value, (list, tuple)) else value


def _in_words(value: Any) -> str:
    """Numbers; of long arrays the shape, of records without a text the single numbers."""
    if is_dataclass(value) and not hasattr(value, "family") and not _has_text(value):
        value = {name: each for name, each in vars(value).items() if isinstance(each, float)}
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _has_text(value: Any) -> bool:
    """Whether a record has a text of its own, which is not that of all dataclasses."""
    return "__str__" in vars(type(value))


def _groups(fitted: hokical.Calibrator) -> dict[str, list[Any]] | None:
    """Groups of one row, if the calibrator needs them."""
    needed = fitted.rule_.needed_groups
    if needed is None:
        return None
    return {name: [own[0]] for name, own in zip(needed.columns, needed.levels, strict=True)}


def _guarantee(fitted: hokical.Calibrator) -> dict[str, Any]:
    """The promise of `apply --risk` at its usual numbers, or why there is none."""
    try:
        found = fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_)), groups=_groups(fitted))
    except (TypeError, ValueError) as error:
        return {"text": str(error)}
    names = ("risk", "delta", "threshold", "coverage", "certified_on")
    return {name: getattr(found, name) for name in names} | {"text": found.guarantee}


def describe_label(calibrator: Any) -> str | None:
    """Which label a fitted calibrator predicts, in words; None where there are no labels."""
    kept = getattr(getattr(calibrator, "rule_", None), "preserves_labels", None)
    if kept is None:
        return None
    return "the classifier's own" if kept else "the most likely class after calibration"


def _describe_method(cal: hokical.Calibrator) -> dict[str, Any]:
    info = cal.method
    names = ("name", "title", "reference", "changes_labels", "accepts_top_k", "binary_only", "cost")
    about = {name: getattr(info, name) for name in names}
    return about | {"kind": type(cal).__name__, "parameters": cal.get_params(deep=False)}


def methods(as_json: Json = False) -> None:
    """List the calibration methods."""
    made = map(hokical.make, hokical.calibrators.method_names())
    known = {cal.method.name: cal for cal in made}
    if as_json:
        show_json([_describe_method(cal) for cal in known.values()])
        return
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("name", no_wrap=True, style="bold")
    shown.add_column("labels", no_wrap=True)
    shown.add_column("cost of a fit", ratio=2)
    shown.add_column("published in", ratio=3)
    for name, cal in known.items():
        info = cal.method
        labels = "may change" if info.changes_labels else "kept"
        shown.add_row(name, labels, info.cost, info.reference)
    show_table("Calibration methods", shown)
    binary = [name for name, cal in known.items() if cal.method.binary_only]
    say(f"For two classes only: {', '.join(binary)}.")
    missing = {"recal", "ms_odir", "dir_odir", "profile"} - known.keys()
    if missing:
        say(f"With `pip install hokical-paper` also: {', '.join(sorted(missing))}.")
    say(
        "Without `--method`, fit uses auto: an average of uncalibrated, temps and structured, or "
        "with more than 30 classes temps with a scale and a bias for each class; then a correction "
        "of each row as in adaptive, if it helps. It predicts the most likely class, or with "
        "--keep-labels the classifier's own label."
    )
