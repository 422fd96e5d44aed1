"""`hokical bound`: what a measured calibration error says about the true one."""

from __future__ import annotations

from typing import Annotated

import typer

from hokical.cli.options import Bins, Json
from hokical.cli.show import new_table, options_checked, show_json, show_table

_REMARKS = {
    "mcdiarmid": "proven",
    "bousquet": "proven; the tightest",
    "union": "proven",
    "paper": "as published, not proven",
}


def bound(
    ece: Annotated[float, typer.Option(help="Equal-width ECE, as measured.")],
    n: Annotated[int, typer.Option(help="Number of test examples it was measured on.")],
    bins: Bins = 15,
    delta: Annotated[float, typer.Option(help="Chance that the bound may fail.")] = 0.05,
    brier: Annotated[
        float | None, typer.Option(help="Brier score of the confidence; tightens the bounds.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bound the true calibration error from above."""
    with options_checked():
        bounds = _bounds(ece, n, bins, delta, brier)
    if as_json:
        options = {"ece": ece, "n": n, "bins": bins, "delta": delta, "brier": brier}
        show_json(options | {"bounds": bounds})
        return
    title = f"With {100.0 * (1.0 - delta):.6g} % certainty the true calibration error is below"
    table = new_table(("method", "bound", "remark"))
    table.columns[-1].justify = "left"
    proven = {name: value for name, value in bounds.items() if name != "paper"}
    for name, value in bounds.items():
        best = name == min(proven, key=lambda method: proven[method])
        table.add_row(name, f"{value:.4f}", _REMARKS[name], style="bold" if best else None)
    show_table(title, table)


def _bounds(ece: float, n: int, bins: int, delta: float, brier: float | None) -> dict[str, float]:
    from hokical.bounds import calibration_bound

    bounds = {
        "mcdiarmid": calibration_bound(ece, n, bins, delta, method="mcdiarmid", brier=brier),
        "union": calibration_bound(ece, n, bins, delta, method="union"),
        "paper": calibration_bound(ece, n, bins, delta, method="paper"),
    }
    if brier is not None:
        tight = calibration_bound(ece, n, bins, delta, method="bousquet", brier=brier)
        bounds = {"bousquet": tight} | bounds
    return bounds
