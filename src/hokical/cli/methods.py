"""`hokical methods`: the calibration methods."""

from __future__ import annotations

from typing import Any

import hokical
from hokical.cli.console import new_table, say, show_json, show_table
from hokical.cli.options import Json


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
    shown = new_table(("name", "labels", "method"))
    shown.columns[1].justify = shown.columns[2].justify = "left"
    for name, cal in known.items():
        labels = "change" if cal.method.changes_labels else "kept"
        shown.add_row(name, labels, cal.method.title.split(" (")[0])
    show_table("Calibration methods; --json shows where each was published", shown)
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
