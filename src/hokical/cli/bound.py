"""`hokical bound`: what a measured calibration error says about the true one."""

from typing import Annotated, Any

import typer

import hokical
from hokical.cli.options import Bins, Json
from hokical.cli.show import check_options, new_table, show_json, show_table

_REMARKS = {
    "bousquet": "proven; the tightest",
    "mcdiarmid": "proven",
    "union": "proven",
    "paper": "as published, not proven",
}


def bound(
    ece: Annotated[float, typer.Option(help="Equal-width ECE, as measured.")],
    n: Annotated[int, typer.Option(help="Number of test examples it was measured on.")],
    bins: Bins = 15,
    delta: Annotated[float, typer.Option(help="Probability that the bound fails.")] = 0.05,
    brier: Annotated[
        float | None, typer.Option(help="Brier score of the confidence; tightens the bounds.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bound the true calibration error from above."""
    bounds: dict[str, float] = {}
    method: Any
    for method in _REMARKS:
        if method != "bousquet" or brier is not None:
            with_brier = brier if method in ("bousquet", "mcdiarmid") else None
            with check_options():
                bounds[method] = hokical.calibration_bound(
                    ece, n, bins, delta, method=method, brier=with_brier
                )
    if as_json:
        options = {"ece": ece, "n": n, "bins": bins, "delta": delta, "brier": brier}
        show_json(options | {"bounds": bounds})
        return
    table = new_table(("method", "bound", "remark"))
    table.columns[-1].justify = "left"
    best = min((name for name in bounds if name != "paper"), key=lambda name: bounds[name])
    for name, value in bounds.items():
        style = "bold" if name == best else None
        table.add_row(name, f"{value:.4f}", _REMARKS[name], style=style)
    certainty = f"{100.0 * (1.0 - delta):.6g} %"
    show_table(f"With {certainty} certainty the true calibration error is below", table)
