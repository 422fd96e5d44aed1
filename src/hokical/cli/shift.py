"""`hokical shift`: class frequencies and accuracy of logits without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import hokical
from hokical.cli import options as opt
from hokical.cli.console import ALARM, check_options, new_table, show_json, show_table, spinner
from hokical.cli.reading import Source, read_calibrator

#: Classes in the table.
_SHOWN = 10


def shift(
    calibrator: opt.CalibratorFile,
    data: opt.NewData,
    delta: Annotated[float, opt.Delta] = 0.05,
    score_columns: opt.ScoreColumns = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    as_json: opt.Json = False,
) -> None:
    """Estimate class frequencies and accuracy without labels.

    Exits with 3 if new class frequencies do not explain the rows: then
    nothing can be estimated without labels.
    """
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        raise typer.BadParameter("`shift` needs a calibrator of logits, not of confidences.")
    rows = Source(
        data, split, score_columns=score_columns, probabilities=probabilities, groups=groups,
        missing=missing,
    ).read(fitted, "none")  # fmt: skip
    with spinner("Estimating class frequencies"), check_options("CALIBRATOR"):
        found = fitted.estimate_shift(rows.scores, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    if as_json:
        show_json(_values(found, names))
    else:
        _show(found, names, data)
    if not found.holds:
        raise typer.Exit(ALARM)


def _values(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]) -> dict[str, Any]:
    """The estimate for JSON; null is what cannot be estimated."""
    known = ("n", "verdict", "guarantee", "holds", "p_value", "change_p_value", "label_shares",
             "old_class_frequencies")  # fmt: skip
    rest = ("accuracy", "adapted_accuracy", "log_loss", "brier", "accuracy_interval",
            "class_frequencies", "class_frequencies_interval", "label_accuracy")  # fmt: skip
    values = {name: getattr(found, name) for name in known} | {"classes": list(names)}
    values |= {name: getattr(found, name) if found.holds else None for name in rest}
    return values | {"by_group": {k: _values(part, names) for k, part in found.by_group.items()}}


def _show(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...], path: Path) -> None:
    words = str(found).split("\n")
    lines = [line for line in words[1:] if not line.startswith("Class frequencies")]
    now = found.class_frequencies if found.holds else found.label_shares
    heads = ["share now", "interval"] if found.holds else ["rows with this label"]
    table = new_table(["class", *heads, "in the fit"])
    order = np.argsort(-np.abs(now - found.old_class_frequencies), kind="stable")[:_SHOWN]
    for k in order:
        low, high = found.class_frequencies_interval[k]
        ends = [f"{low:.1%} to {high:.1%}"] if found.holds else []
        table.add_row(names[k], f"{now[k]:.1%}", *ends, f"{found.old_class_frequencies[k]:.1%}")
    if not found.holds:
        lines.insert(0, "The table counts predicted labels, which is all that is known.")
    if len(names) > _SHOWN:
        lines.append("The classes that changed most; all of them: --json")
    show_table(f"{path.name}: {words[0]}", table, *lines)
