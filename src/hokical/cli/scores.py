"""The table of a comparison, for `compare` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hokical.cli.show import interval, new_table, say, show_json, show_table, stdout
from hokical.cli.waiting import waiting
from hokical.progress import track

if TYPE_CHECKING:
    from hokical.comparison import Comparison, MethodResult

#: Score and title. The methods' best of each is shown in bold.
_SCORES = {"ece": "ECE", "ece_mass": "ECE mass", "brier": "Brier", "log_loss": "log loss"}
_CAPTION = "ECE: 15 bins of equal width, or mass. Lower is better, best in bold."
#: From this many columns of text on there is room for intervals and guarantees.
_ROOMY = 110


def measure(comparison: Comparison) -> None:
    """Compute every summary now, with a progress bar; they are remembered."""
    for result in track(comparison.results, "Measuring", len(comparison.results), None):
        result.summary  # noqa: B018


def show_comparison(
    comparison: Comparison, title: str, report: Path | None, *, as_json: bool
) -> None:
    """Table and headline, or JSON; remarks on stderr."""
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


def write_html(comparison: Comparison, report: Path | None) -> None:
    """The report, where one is wanted."""
    if report is None:
        return
    from hokical.report import write_report

    with waiting("Writing the report"):
        write_report(comparison, report)


def results_table(comparison: Comparison, *, roomy: bool) -> Table:
    """One row per method, the best of each score in bold."""
    extra = ("ECE interval", "surely below") if roomy else ()
    columns = ("method", "says", "right", *_SCORES.values(), *extra, "fit")
    table = new_table(columns)
    best = {score: comparison.best(score).score(score) for score in _SCORES}
    for result in comparison.results:
        scores = [_marked(result.score(score), best[score]) for score in _SCORES]
        more = _more(result) if roomy else []
        table.add_row(result.name, *_said(result), *scores, *more, f"{result.fit_seconds:.2f} s")
    return table


def _said(result: MethodResult) -> list[str]:
    return [f"{result.score(name):.1%}" for name in ("mean_confidence", "accuracy")]


def _more(result: MethodResult) -> list[str]:
    found = result.summary
    ece = found["ece"]
    return [interval(ece.low, ece.high), f"{found.bounds['bousquet']:.4f}"]


def _marked(value: float, best: float) -> str:
    # Equal as shown is equal: a reader cannot see why one 0.0107 should be better than another.
    shown = f"{value:.4f}"
    return f"[bold]{shown}[/bold]" if shown == f"{best:.4f}" else shown
