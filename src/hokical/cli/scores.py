"""The table of a comparison, for `compare` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

import hokical
from hokical.cli.show import interval, new_table, say, show_json, show_table, stdout
from hokical.cli.spinner import spinner
from hokical.core.progress import track

if TYPE_CHECKING:
    from hokical.report.comparison import Comparison

#: Score and title. The methods' best of each is shown in bold.
_SCORES = {"ece": "ECE", "ece_mass": "ECE mass", "brier": "Brier", "log_loss": "log loss"}
_CAPTION = "ECE: 15 bins of equal width, or mass. Lower is better, best in bold."
#: The width from which intervals and guarantees are shown.
_ROOMY = 110


def show_comparison(
    comparison: Comparison, title: str, report: Path | None, *, as_json: bool
) -> None:
    """Measure the methods, write the report, and show table and headline, or JSON."""
    for result in track(comparison.results, "Measuring", len(comparison.results), None):
        result.summary  # noqa: B018, computed now for the progress bar, then cached
    if report is not None:
        with spinner("Writing the report"):
            hokical.report.write_report(comparison, report)
    if as_json:
        where: dict[str, Any] = {"report": None if report is None else str(report)}
        show_json(comparison.to_dict() | where)
    else:
        table = results_table(comparison, roomy=stdout().width >= _ROOMY)
        show_table(title, table, _CAPTION, "", comparison.headline(comparison.subject()))
    for result in comparison.results:
        for note in result.notes:
            say(f"{result.name}: {note}")
    if report is not None:
        say(f"Report: {report.resolve()}")


def results_table(comparison: Comparison, *, roomy: bool) -> Table:
    """One row per method, the best of each score in bold."""
    extra = ("ECE interval", "surely below") if roomy else ()
    table = new_table(("method", "says", "right", *_SCORES.values(), *extra, "fit"))
    best = {score: f"{comparison.best(score).score(score):.4f}" for score in _SCORES}
    for result in comparison.results:
        cells = [f"{result.score(name):.1%}" for name in ("mean_confidence", "accuracy")]
        for score in _SCORES:
            # Equal as shown is equal: readers cannot see which 0.0107 is lower.
            shown = f"{result.score(score):.4f}"
            cells.append(f"[bold]{shown}[/bold]" if shown == best[score] else shown)
        if roomy:
            ece, bounds = result.summary["ece"], result.summary.bounds
            cells += [interval(ece.low, ece.high), f"{bounds['bousquet']:.4f}"]
        table.add_row(result.name, *cells, f"{result.fit_seconds:.2f} s")
    return table
