"""`hokical shift`: the class balance and the accuracy of logits without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import hokical
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.inputs import load_examples
from hokical.cli.monitor import ALARM
from hokical.cli.show import check_options, new_table, show_json, show_table, spinner

#: Classes in the table.
_SHOWN = 10


@opt.reads(opt.Part.test, without=("labels", "label_column", *opt.BEYOND))
def shift(
    logits: Annotated[Path, opt.argument("LOGITS", "New logits; labels are not read.")],
    given: opt.Input,
    calibrator: Annotated[Path, opt.text("File of `fit`.")],
    delta: Annotated[float, opt.text("Probability that an interval misses.")] = 0.05,
    as_json: opt.Json = False,
) -> None:
    """Estimate class balance and accuracy without labels.

    Exits with 3 if a new balance does not explain the rows: then nothing can
    be said without labels.
    """
    fitted = data.read_calibrator(calibrator, of_logits=True)
    wanted = data.choose_scores(given, fitted=fitted)
    rows = load_examples(logits, given, wanted, need_labels=False, fitted_by=fitted)
    data.warn_of_probabilities(rows.logits, logits, wanted)
    with spinner("Looking for a new balance"), check_options("CALIBRATOR"):
        found = fitted.estimate_shift(rows.logits, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    if as_json:
        show_json(as_values(found, names))
    else:
        _show(found, names, logits)
    if not found.holds:
        raise typer.Exit(ALARM)


def as_values(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]) -> dict[str, Any]:
    """What was found, for JSON; null is what cannot be told."""
    told = ("n", "verdict", "guarantee", "holds", "p_value", "change_p_value")
    rest = ("accuracy", "adapted_accuracy", "log_loss", "brier", "f1", "accuracy_interval",
            "balance", "balance_interval", "label_accuracy")  # fmt: skip
    values = {name: getattr(found, name) for name in told} | {"classes": list(names)}
    values |= {name: getattr(found, name).tolist() for name in ("label_shares", "old_balance")}
    known = {name: np.asarray(getattr(found, name)).tolist() for name in rest}
    parts = {name: as_values(part, names) for name, part in found.by_group.items()}
    return values | (known if found.holds else dict.fromkeys(rest)) | {"by_group": parts}


def _show(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...], path: Path) -> None:
    words = str(found).split("\n")
    lines = [line for line in words[1:] if not line.startswith("Balance")]
    now = found.balance if found.holds else found.label_shares
    heads = ["share now", "interval"] if found.holds else ["rows labelled so"]
    table = new_table(["class", *heads, "in the fit"])
    order = np.argsort(-np.abs(now - found.old_balance), kind="stable")[:_SHOWN]
    for k in order:
        low, high = found.balance_interval[k]
        ends = [f"{low:.1%} to {high:.1%}"] if found.holds else []
        table.add_row(names[k], f"{now[k]:.1%}", *ends, f"{found.old_balance[k]:.1%}")
    if not found.holds:
        lines.insert(0, "What holds: the labels that these rows get, counted above.")
    if len(names) > _SHOWN:
        lines.append("The classes that changed most; all of them: --json")
    title = words[0].replace(": these numbers do not apply", "")  # those of the table do
    show_table(f"{path.name}: {title}", table, *lines)
