"""`hokical plan` and `hokical bound`: guarantees from numbers alone."""

from dataclasses import asdict
from typing import Annotated, Any

import hokical
from hokical.cli.options import Bins, Json, Seed, text
from hokical.cli.show import DASH, check_options, new_table, show_json, show_table

_REMARKS = {
    "bousquet": "proven; the tightest",
    "mcdiarmid": "proven",
    "union": "proven",
    "paper": "as published, not proven",
}


def plan(
    risk: Annotated[float, text("Largest error rate among accepted labels.")] = 0.05,
    accuracy: Annotated[float, text("Accuracy of the classifier, e.g. 0.8.")] = 0.8,
    auroc: Annotated[float, text("How well it ranks right above wrong; see evaluate.")] = 0.85,
    delta: Annotated[
        float | None, text("Probability that the promise fails.", show_default="0.1")
    ] = None,
    coverage: Annotated[
        float | None, text("Plan prediction sets with this coverage instead, e.g. 0.9.")
    ] = None,
    simulations: Annotated[int, text("Simulated sets per number of examples.", min=1)] = 100,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """How many labelled examples a guarantee needs, by simulation.

    The examples are those for `certify`, apart from those of the fit. Coverage
    is the share of new examples whose labels are accepted. With --coverage it
    is the share whose true class is in the prediction set, by Beta's law.
    """
    if coverage is not None:
        _plan_sets(coverage, delta, as_json)
        return
    delta = 0.1 if delta is None else delta
    with check_options():
        found = hokical.guarantees.plan(
            risk, accuracy, delta=delta, auroc=auroc, n_simulations=simulations, random_state=seed
        )
    if as_json:
        show_json(asdict(found) | {"needed": found.needed})
        return
    table = new_table(("examples", "coverage", "of the best", "nothing accepted"))
    for n, coverage, nothing in zip(found.examples, found.coverage, found.nothing, strict=True):
        share = f"{coverage / found.best:.0%}" if found.best else DASH
        style = "bold" if n == found.needed else None
        table.add_row(f"{n:,}", f"{coverage:.1%}", share, f"{nothing:.0%} of the time", style=style)
    show_table(
        f"Risk {risk:.4g}, delta {delta:.4g}, accuracy {accuracy:.4g}, AUROC {auroc:.4g}",
        table,
        f"The best threshold accepts {found.best:.1%}. Below {found.fewest} examples nothing can "
        "be accepted.",
        str(found),
    )


def _plan_sets(coverage: float, delta: float | None, as_json: bool) -> None:
    with check_options():
        found = hokical.guarantees.plan_coverage(coverage, delta=delta)
    if as_json:
        show_json(asdict(found))
        return
    table = new_table(("examples", "true coverage, 90 % of the time"))
    for n, low, high in zip(found.examples, found.low, found.high, strict=True):
        table.add_row(f"{n:,}", DASH if n < found.fewest else f"{low:.1%} to {high:.1%}")
    sure = "" if delta is None else f", delta {delta:.4g}"
    few = f"Below {found.fewest:,} examples every set holds every class."
    show_table(f"Prediction sets with coverage {coverage:.4g}{sure}", table, few)


def bound(
    ece: Annotated[float, text("Equal-width ECE, as measured.")],
    n: Annotated[int, text("Number of test examples it was measured on.")],
    bins: Bins = 15,
    delta: Annotated[float, text("Probability that the bound fails.")] = 0.05,
    brier: Annotated[float | None, text("Brier score of the confidence; tightens bounds.")] = None,
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
    level = f"{100.0 * (1.0 - delta):.6g} %"
    show_table(f"With {level} confidence the true calibration error is below", table)
