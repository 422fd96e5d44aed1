"""`hokical methods`: what there is to choose from."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from hokical.cli.options import Json
from hokical.cli.show import say, show_json, show_table


def methods(as_json: Json = False) -> None:
    """List the calibration methods."""
    from hokical.calibrators.registry import table

    if as_json:
        show_json([_as_dict(info) for info in table()])
        return
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("name", no_wrap=True, style="bold")
    shown.add_column("labels", no_wrap=True)
    shown.add_column("cost of a fit", ratio=2)
    shown.add_column("published in", ratio=3)
    for info in table():
        shown.add_row(info.name, _labels(info.changes_labels), info.cost, info.reference)
    show_table("Calibration methods", shown)
    say("With `--method auto`, fit chooses among temps, ets, profile and hoki on held-out folds.")


def _labels(may_change: bool) -> str:
    return "may change" if may_change else "kept"


def _as_dict(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "class": info.kind.__name__,
        "changes_labels": info.changes_labels,
        "needs_transformed": info.kind.needs_transformed,
        "cost": info.cost,
        "reference": info.reference,
        "parameters": info.parameters,
    }
