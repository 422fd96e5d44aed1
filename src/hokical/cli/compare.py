"""`hokical compare` and `hokical demo`: methods side by side."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import hokical
from hokical.cli import options as opt
from hokical.cli.console import (
    bad_option,
    check_options,
    interval,
    new_table,
    refuse,
    say,
    show_json,
    show_table,
    spinner,
    stdout,
    warn,
)
from hokical.cli.reading import Rows, Source
from hokical.cli.settings import check_method
from hokical.cli.tables import show_classes, show_groups, show_sets
from hokical.demo import DEMO_CLASSES, demo_logits

#: How the result is printed.
Format = StrEnum("Format", ["table", "csv", "markdown", "latex"])
#: The width from which intervals, differences and times are shown, what the numbers
#: need in narrower tables, and in this one.
_ROOMY, _NARROW_NUMBERS, _NUMBERS = 116, 60, 98
_SIGNS = {"better": "<", "worse": ">", "no clear difference": "=", "unknown": "?"}


def compare(
    val: opt.Validation,
    test: Annotated[
        Path | None, opt.argument("[TEST]", "Test data; if omitted, VAL must hold both parts.")
    ] = None,
    more: Annotated[
        list[Path] | None, opt.argument("[MORE]", "More data sets; then each holds both parts.")
    ] = None,
    methods: Annotated[str, opt.text("all, or names of `hokical methods`: hoki,temps.")] = "all",
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    form: Annotated[Format, opt.text("How to print the result.", "--format")] = Format.table,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    classes: opt.Classes = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    as_json: opt.Json = False,
) -> None:
    """Fit methods on VAL and compare them on TEST.

    With three files or more, every file is a data set with a validation and
    a test part: methods are ranked over all of them.
    """
    if coverage is not None:
        with check_options("--coverage"):
            hokical.guarantees.plan(coverage=coverage)
    if report is not None:
        hokical.io.check_output(report, suffix=(".html", ".htm"))
    entrants = _choose_methods(methods)
    given = Source(
        val, opt.Part.val, label_column=label_column, score_columns=score_columns, classes=classes,
        probabilities=probabilities, groups=groups, missing=missing,
    )  # fmt: skip
    sampling: dict[str, Any] = {"n_resamples": resamples, "random_state": seed}
    if more:
        others = {"report": report, "coverage": coverage, "groups": groups}
        shown = form if form in (Format.csv, Format.latex) else None
        refuse("is for one data set.", **others, format=shown)
        _show_standings([val, test or val, *more], given, entrants, sampling, as_json)
        return
    fitted_on, tested_on = _open_pair(given, test)
    found = hokical.compare(
        (fitted_on.scores, fitted_on.labels),
        (tested_on.scores, tested_on.labels),
        entrants,
        data_names=(val.name, (test or val).name),
        class_names=tested_on.classes,
        coverage=coverage,
        groups=(fitted_on.groups, tested_on.groups),
        **sampling,
    )
    if found.provenance.tested_on_validation:
        warn("VAL and TEST hold the same examples, so all results look too good.")
    heading = f"{(test or val).name}: {tested_on.n_rows:,} examples"
    show_comparison(found, heading, report, form, as_json)


def _choose_methods(methods: str) -> list[str] | None:
    """The methods by name; None for all that the data allow."""
    if methods == "all":
        return None
    asked = [check_method(name) for name in opt.split_names(methods)]
    if not asked:
        raise bad_option("--methods", "name at least one method, or `all`.")
    return list(dict.fromkeys(["uncalibrated", *asked]))


def _show_standings(
    files: list[Path], given: Source, entrants: Any, sampling: dict[str, Any], as_json: bool
) -> None:
    """Rank methods over data sets, of which each file is one."""
    if len(set(files)) < len(files):
        raise bad_option("MORE", f"{max(files, key=files.count)} is given twice; leave one out.")
    stems = [file.stem for file in files]
    known, new = {}, {}
    for file in files:
        first, last = _open_pair(replace(given, path=file), None)
        name = file.stem if stems.count(file.stem) == 1 else str(file)
        known[name], new[name] = (first.scores, first.labels), (last.scores, last.labels)
    standings = hokical.compare(known, new, entrants, **sampling)
    if as_json:
        show_json(standings.to_dict())
    else:
        typer.echo(standings.to_markdown())


def _open_pair(given: Source, test: Path | None) -> tuple[Rows, Rows]:
    """The examples to fit on and to test on, of two files or of one with both parts."""
    fitted_on = given.read()
    if test is None and fitted_on.found.part is None:
        raise typer.BadParameter(
            f"{given.path} holds one set; pass TEST, data that nothing was fitted on."
        )
    tested_on = replace(given, path=test or given.path, split=opt.Part.test).read()
    for rows in (fitted_on, tested_on):
        if rows.weights is not None:
            say(f"The weights in {rows.path} are not used here.")
    widths = [rows.found.logits.n_classes for rows in (fitted_on, tested_on)]
    if widths[0] != widths[1]:
        raise typer.BadParameter(
            f"VAL and TEST must have the same classes; got {widths[0]} and {widths[1]} columns."
        )
    return fitted_on, tested_on


def demo(
    report: Annotated[Path, opt.text("Where to write the HTML report.")] = Path("report.html"),
    as_json: opt.Json = False,
) -> None:
    """Compare all methods on the shipped data, and write a report."""
    hokical.io.check_output(report, suffix=(".html", ".htm"))
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), title=title, class_names=DEMO_CLASSES)
    show_comparison(comparison, title, report, Format.table, as_json)


def show_comparison(
    comparison: hokical.report._comparison.Comparison,
    title: str,
    report: Path | None,
    form: Format,
    as_json: bool,
) -> None:
    """Write the report, and show table, classes and headline, or the numbers in a format."""
    if report is not None:
        with spinner("Writing the report"):
            comparison.to_html(report)
    subject = comparison[comparison.subject]
    if as_json:
        show_json(comparison.to_dict() | {"report": None if report is None else str(report)})
    elif form is not Format.table:
        typer.echo(getattr(comparison, f"to_{form}")(), nl=False)
    else:
        table = results_table(comparison, stdout().width)
        show_table(title, table, _caption(comparison), "", comparison.headline())
        plain = {r.name: r for r in comparison.results if r.name == "uncalibrated"}
        show_classes(plain | {subject.name: subject})
        show_sets({r.name: r.sets for r in comparison.results if r.sets is not None})
        show_groups({r.name: r.groups for r in comparison.results if r.groups is not None})
    for reason in dict.fromkeys(comparison.skipped.values()):
        names = [name for name, why in comparison.skipped.items() if why == reason]
        say(f"Left out: {', '.join(names)} ({reason}).")
    for result in comparison.results:
        for note in result.notes:
            say(f"{result.name}: {note}")
    warning = subject.class_warning
    if warning is not None:
        warn(f"{subject.name}: {warning}")
    if report is not None:
        say(f"Report: {report.resolve()}")


def results_table(comparison: hokical.report._comparison.Comparison, width: int) -> Table:
    """One row per method, the best of each score in bold."""
    roomy = width >= _ROOMY
    titles = (hokical.metrics.METRICS[name].title for name in comparison.main_columns)
    heads = [title.replace("classwise", "class") for title in titles]  # terminals are narrow
    extra = ("ECE interval", "difference", "fit") if roomy else ()
    table = new_table(("method", *heads, *extra))
    verdicts = {found.method: found for found in comparison.differences()}
    room = max(16, width - (_NUMBERS if roomy else _NARROW_NUMBERS))
    for result in comparison.results:
        cells = comparison.marked_cells(result, "[bold]{}[/bold]")
        if roomy:
            ece, seconds = result.summary["ece"], result.fit_seconds
            found = verdicts.get(result.name)
            cells.append(interval(ece.low, ece.high))
            known = found is not None and math.isfinite(found.value)
            value = f"{found.value:+.4f} " if found and known else ""
            cells.append("" if found is None else f"{value}{_SIGNS[found.verdict]}")
            cells.append("before" if seconds is None else f"{seconds:.2f} s")
        table.add_row(escape("\n".join(textwrap.wrap(result.label, room))), *cells)
    return table


def _caption(comparison: hokical.report._comparison.Comparison) -> str:
    """What the columns are, and what a wider terminal would show."""
    console = stdout()
    bold = ", best in bold" if console.is_terminal else ""
    judged = "all classes" if comparison.results[0].summary.vectors else "the label"
    roomy = console.width >= _ROOMY
    more = (
        f"Difference: log loss less that of {comparison.subject}; < better, > worse, = not clear "
        "(5 %, Holm)."
        if roomy
        else f"From {_ROOMY} columns on also intervals, differences and times; all of it "
        "with --json."
    )
    return f"ECE: 15 bins. Brier, log loss: of {judged}. Lower is better{bold}. {more}"
