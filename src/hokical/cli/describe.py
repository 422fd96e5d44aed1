"""`hokical show`: what is inside a file that `fit` saved."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import hokical
from hokical.cli.data import read_calibrator
from hokical.cli.options import CalibratorFile, Json
from hokical.cli.show import new_table, show_facts, show_json, show_table

if TYPE_CHECKING:
    from hokical.calibrators.fitted import FittedCalibrator
    from hokical.guarantees.score_table import ScoreTable

_GROUPS, _WIDTH = 8, 30


def show(calibrator: CalibratorFile, as_json: Json = False) -> None:
    """Show what is inside a calibrator: method, numbers, guarantee, curve."""
    fitted = read_calibrator(calibrator)
    counts = fitted.held_out_scores_ or fitted.fit_scores_
    curve = [] if counts is None else curve_rows(counts)
    facts = _facts(fitted)
    if as_json:
        names = ("score", "right", "examples")
        show_json(facts | {"curve": [dict(zip(names, row, strict=True)) for row in curve]})
        return
    lines: dict[str, str] = {}
    for name, value in facts.items():
        lines |= value if name == "learned" else {name: value} if value else {}
    show_facts(lines)
    if not curve:
        return
    source = "calibrated confidence" if fitted.held_out_scores_ else "softmax before calibration"
    table = new_table((source, "right", "", "examples"))
    table.columns[2].justify = "left"
    bar = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    for score, right, count in curve:
        table.add_row(f"{score:.2%}", f"{right:.1%}", bar * round(_WIDTH * right), f"{count:,}")
    show_table("", table)


def curve_rows(counts: ScoreTable) -> list[tuple[float, float, int]]:
    """Groups of about equally many examples by score: its median, the share right, how many."""
    level = np.flatnonzero(counts.count)
    reached = np.cumsum(counts.count[level])
    group = np.minimum((reached - 1) * _GROUPS // reached[-1], _GROUPS - 1)
    rows = []
    for one in np.unique(group):
        some = level[group == one]
        n, wrong = int(counts.count[some].sum()), int(counts.wrong[some].sum())
        half = some[np.searchsorted(np.cumsum(counts.count[some]), n / 2)]
        odds = hokical.guarantees.scores.level_log_odds(int(half) + 1)
        rows.append((float(1 / (1 + np.exp(-odds))), 1 - wrong / n, n))
    return rows


def _facts(fitted: FittedCalibrator) -> dict[str, Any]:
    info = hokical.calibrators.catalog.load_estimator_class(fitted.name)
    names = fitted.beside.get("classes", ())
    shown = f": {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}" if names else ""
    counts, known = fitted.fit_scores_, fitted.beside
    if counts is not None:
        known = {"examples": counts.total, "accuracy": counts.accuracy}
    return {
        "method": f"{info.title} ({fitted.name})",
        "classes": f"{fitted.n_classes_}{shown}",
        "fitted on": f"{known['examples']:,} examples, {known['accuracy']:.1%} right"
        if "examples" in known
        else None,
        "chosen": getattr(fitted, "reason_", None),
        "learned": _learned(fitted),
        "guarantee": _guarantee(fitted),
        "reference": info.reference,
        "saved with": f"hokical {fitted.library_version}",
    }


def _learned(fitted: FittedCalibrator) -> dict[str, str]:
    """The numbers of the rule; of long arrays the shape, of records in it the single numbers."""
    weights = getattr(fitted, "weights_", None)
    values = fitted.rule_.own_fields() | ({} if weights is None else {"weights": weights})
    words = {name: _in_words(value) for name, value in values.items() if value is not None}
    return {name: text for name, text in words.items() if text}


def _in_words(value: Any) -> str:
    if is_dataclass(value) and not hasattr(value, "family"):  # a noise says itself what it is
        value = {name: each for name, each in vars(value).items() if isinstance(each, float)}
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _guarantee(fitted: FittedCalibrator) -> str:
    try:
        return fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_))).guarantee
    except (TypeError, ValueError) as error:
        return str(error)
