"""`hokical shift`: class frequencies and accuracy of logits without labels."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

import hokical
from hokical.cli import options as opt
from hokical.cli.console import ALARM, check_options, show_json, spinner, stdout
from hokical.cli.reading import Source, read_calibrator
from hokical.cli.tables import event_index, event_name


def shift(
    calibrator: opt.CalibratorFile,
    data: opt.NewData,
    delta: Annotated[float, opt.Delta] = 0.05,
    score_columns: opt.ScoreColumns = None,
    probabilities: opt.Probabilities = None,
    positive: opt.Positive = None,
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
    ).read(fitted._without_groups(), "none")  # fmt: skip
    with spinner("Estimating class frequencies"), check_options():
        found = fitted.estimate_shift(rows.scores, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    event = event_index(positive, rows.classes, fitted.n_classes_)
    if as_json:
        show_json(_values(found, names) | ({} if event is None else {"event": names[event]}))
    else:
        said = "" if event is None else f"{_event_frequency(found, event, rows.classes)}\n"
        stdout().print(Text(f"{said}{data.name}: {found}"))
    if not found.holds:
        raise typer.Exit(ALARM)


def _event_frequency(found: hokical.guarantees.ShiftEstimate, event: int, names: tuple[str, ...]) -> str:
    """The share of events, of two classes, in words."""
    old, new = (each[event] for each in (found.old_class_frequencies, found.class_frequencies))
    low, high = found.class_frequencies_interval[event]
    before = f"{old:.1%} among the calibration examples"
    now = f"{new:.1%} estimated here ({low:.1%} to {high:.1%})" if found.holds else "unknown here"
    return f"Events ({event_name(event, names)}): {before}, {now}."


def _values(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]) -> dict[str, Any]:
    """The estimate for JSON; null is what cannot be estimated."""
    known = ("n", "verdict", "guarantee", "holds", "p_value", "change_p_value", "label_shares",
             "old_class_frequencies")  # fmt: skip
    rest = ("accuracy", "adapted_accuracy", "log_loss", "brier", "accuracy_interval",
            "class_frequencies", "class_frequencies_interval", "label_accuracy")  # fmt: skip
    values = {name: getattr(found, name) for name in known} | {"classes": list(names)}
    values |= {name: getattr(found, name) if found.holds else None for name in rest}
    return values | {"by_group": {k: _values(part, names) for k, part in found.by_group.items()}}
