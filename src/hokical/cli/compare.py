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
from hokical.cli.beyond import Beyond, kind_of
from hokical.cli.beyond import make as make_beyond
from hokical.cli.data import check_method, choose_scores, make_method
from hokical.cli.inputs import load_examples
from hokical.cli.options import Json
from hokical.cli.show import (
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
from hokical.cli.tables import show_classes, show_groups, show_sets
from hokical.demo import DEMO_CLASSES, demo_logits

#: How the result is printed.
Format = StrEnum("Format", ["table", "csv", "markdown", "latex", "json"])
#: The width from which intervals, differences and times are shown, what the numbers
#: need in narrower tables, and in this one.
_ROOMY, _NARROW_NUMBERS, _NUMBERS = 116, 60, 98
_SIGNS = {"better": "<", "worse": ">", "no clear difference": "=", "unknown": "?"}


@opt.reads(without=("labels", "split", *opt.MAPS))
def compare(
    val: opt.Validation,
    given: opt.Input,
    test: Annotated[
        Path | None, opt.argument("[TEST]", "Test data; if omitted, VAL must hold both parts.")
    ] = None,
    more: Annotated[
        list[Path] | None, opt.argument("[MORE]", "More data sets; then each holds both parts.")
    ] = None,
    each: Annotated[bool, opt.text("VAL and TEST are data sets of their own.", "--each")] = False,
    metric: Annotated[
        str | None, opt.text("What ranks over data sets.", show_default="log_loss_full")
    ] = None,
    methods: Annotated[str, opt.text("all, or names of `hokical methods`: hoki,temps.")] = "all",
    settings: Annotated[
        list[str] | None,
        opt.text("An option: hoki.n_bins=20; repeatable.", "--set", metavar="M.K=V"),
    ] = None,
    subject: Annotated[
        str | None, opt.method("Method that the headline is about and others are compared with.")
    ] = None,
    report: Annotated[Path | None, opt.text("Write an HTML report here.")] = None,
    title: Annotated[str | None, opt.text("Title of the table and report.")] = None,
    coverage: Annotated[
        float | None, opt.text("Also measure prediction sets of this coverage, e.g. 0.9.")
    ] = None,
    form: Annotated[Format, opt.text("How to print the result.", "--format")] = Format.table,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    val_labels: Annotated[Path | None, opt.text("File with VAL's labels.")] = None,
    test_labels: Annotated[Path | None, opt.text("File with TEST's labels.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Fit methods on VAL and compare them on TEST.

    With three files or more, or --each, every file is a data set with a
    validation and a test part: methods are ranked over all of them.

    With --confidence and --right, or --multilabel, the one method for such
    data is compared with none.
    """
    form = Format.json if as_json else form
    sampling: dict[str, Any] = {"n_resamples": resamples, "random_state": seed}
    files = [val, *([] if test is None else [test]), *(more or [])]
    over_data_sets = each or len(files) > 2
    beyond = kind_of(given)
    if beyond:
        refuse(
            f"does not go with {beyond.options}.", metric=metric, subject=subject,
            coverage=coverage, val_labels=val_labels, test_labels=test_labels, each=each or more,
            methods=None if methods == "all" else methods,
        )  # fmt: skip
    elif over_data_sets:
        refuse(
            "is for one data set.", report=report, coverage=coverage, subject=subject,
            groups=given.groups, title=title,
            format=form if form in (Format.csv, Format.latex) else None,
        )  # fmt: skip
    else:
        refuse("is for several data sets.", metric=metric)
    if coverage is not None:
        with check_options("--coverage"):
            hokical.guarantees.plan_coverage(coverage)
    if report is not None:
        hokical.io.check_output(report)
    heading = title or (test or val).name
    if beyond:
        options = sampling | {"title": title}
        found = _judge_beyond(beyond, val, test, given, settings or [], options)
        show_comparison(found, heading, report, form)
        return
    subject = None if subject is None else check_method(subject)
    entrants = _choose_entrants(methods, subject, settings or [], seed)
    if over_data_sets:
        _show_standings(files, given, entrants, metric, sampling, form)
        return
    fitted_on, tested_on = _open_pair(val, test, given, (val_labels, test_labels))
    found = hokical.compare(
        fitted_on.pair,
        tested_on.pair,
        entrants,
        subject=subject,
        title=title,
        data_names=(val.name, (test or val).name),
        class_names=tested_on.classes,
        coverage=coverage,
        groups=(fitted_on.groups, tested_on.groups),
        **sampling,
    )
    if found.provenance.tested_on_validation:
        warn("VAL and TEST hold the same examples, so all results look too good.")
    heading = title or f"{heading}: {tested_on.logits.n_rows:,} examples"
    show_comparison(found, heading, report, form)


def _choose_entrants(methods: str, subject: str | None, settings: list[str], seed: int) -> Any:
    """The methods by name, those with options as calibrators; None for all that the data allow."""
    names = None
    if methods != "all":
        asked = [check_method(name.strip()) for name in methods.split(",") if name.strip()]
        if not asked:
            raise bad_option("--methods", "name at least one method, or `all`.")
        names = list(dict.fromkeys(["uncalibrated", *asked, *([subject] if subject else [])]))
    chosen: dict[str, list[str]] = {}
    for setting in settings:
        name, _, option = setting.partition(".")
        chosen.setdefault(check_method(name), []).append(option)
    if not chosen:
        return names
    made = {name: make_method(name, seed, options) for name, options in chosen.items()}
    known = names or hokical.calibrators.methods_from_logits()
    return {name: made.get(name, name) for name in dict.fromkeys([*known, *made])}


def _show_standings(
    files: list[Path],
    given: opt.Input,
    entrants: Any,
    metric: str | None,
    sampling: dict[str, Any],
    form: Format,
) -> None:
    """Rank methods over data sets, of which each file is one."""
    if len(set(files)) < len(files):
        raise bad_option("MORE", f"{max(files, key=files.count)} is given twice; leave one out.")
    pairs = {_short(file, files): _open_pair(file, None, given) for file in files}
    data = {name: (first.pair, last.pair) for name, (first, last) in pairs.items()}
    partly = any(isinstance(last.logits, hokical.TopK) for _, last in pairs.values())
    metric = metric or ("log_loss" if partly else "log_loss_full")
    with check_options("--metric"):
        standings = hokical.compare_many(data, entrants, metric=metric, **sampling)
    if form is Format.json:
        show_json(standings.to_dict())
    else:
        typer.echo(standings.to_markdown())


def _judge_beyond(
    kind: type[Beyond],
    val: Path,
    test: Path | None,
    given: opt.Input,
    settings: list[str],
    options: dict[str, Any],
) -> hokical.report._comparison.Comparison:
    """Confidences, or several labels, before and after a fit on the first file."""
    fitted_on = kind(val, given, None)
    _check_two_parts(val, test, fitted_on.part)
    named = [setting.removeprefix("confidence.") for setting in settings]
    cal, _ = fitted_on.fit(make_beyond(kind, named))
    tested_on = kind(test or val, replace(given, split=opt.Part.test), None)
    return tested_on.compare(cal, full=False, **options)


def _check_two_parts(val: Path, test: Path | None, part: str | None) -> None:
    if test is None and part is None:
        raise typer.BadParameter(
            f"{val} holds one set; pass TEST, data that nothing was fitted on."
        )


def _open_pair(
    val: Path, test: Path | None, given: opt.Input, labels: Any = (None, None)
) -> tuple[hokical.io.LabelledRows, hokical.io.LabelledRows]:
    """The examples to fit on and to test on, of two files or of one with both parts."""
    wanted = choose_scores(given)
    fitted_on = load_examples(val, replace(given, labels=labels[0]), wanted)
    _check_two_parts(val, test, fitted_on.part)
    given = replace(given, labels=labels[1], split=opt.Part.test)
    tested_on = load_examples(test or val, given, wanted)
    widths = [examples.logits.n_classes for examples in (fitted_on, tested_on)]
    if widths[0] != widths[1]:
        raise typer.BadParameter(
            f"VAL and TEST must have the same classes; got {widths[0]} and {widths[1]} columns."
        )
    return fitted_on, tested_on


def _short(file: Path, files: list[Path]) -> str:
    """The name of a data set, which tells it from the others."""
    return file.stem if [each.stem for each in files].count(file.stem) == 1 else str(file)


def demo(
    report: Annotated[Path, opt.text("Where to write the HTML report.")] = Path("report.html"),
    no_report: Annotated[bool, opt.text("Write no report.", "--no-report")] = False,
    as_json: Json = False,
) -> None:
    """Compare all methods on the shipped data, and write a report."""
    wanted = None if no_report else report
    if wanted is not None:
        hokical.io.check_output(wanted)
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), title=title, class_names=DEMO_CLASSES)
    show_comparison(comparison, title, wanted, Format.json if as_json else Format.table)


def show_comparison(
    comparison: hokical.report._comparison.Comparison, title: str, report: Path | None, form: Format
) -> None:
    """Write the report, and show table, classes and headline, or the numbers in a format."""
    if report is not None:
        with spinner("Writing the report"):
            hokical.report.write_report(comparison, report)
    subject = comparison[comparison.subject]
    if form is Format.json:
        show_json(comparison.to_dict() | {"report": None if report is None else str(report)})
    elif form is not Format.table:
        typer.echo(getattr(comparison, f"to_{form}")(), nl=False)
    else:
        table = results_table(comparison, stdout().width)
        show_table(title, table, _caption(comparison), "", comparison.headline())
        plain = {r.name: r.summary for r in comparison.results if r.name == "uncalibrated"}
        show_classes(plain | {subject.name: subject.summary}, comparison.class_names)
        show_sets({r.name: r.sets for r in comparison.results if r.sets is not None})
        show_groups({r.name: r.groups for r in comparison.results if r.groups is not None})
    for reason in dict.fromkeys(comparison.skipped.values()):
        names = [name for name, why in comparison.skipped.items() if why == reason]
        say(f"Left out: {', '.join(names)} ({reason}).")
    for result in comparison.results:
        for note in result.notes:
            say(f"{result.name}: {note}")
    warning = subject.summary.warn_of_class(comparison.class_names)
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
    judged = "all classes" if comparison.has_vectors else "the label"
    roomy = console.width >= _ROOMY
    more = (
        f"Difference: log loss less that of {comparison.subject}; < better, > worse, = not clear "
        "(5 %, Holm)."
        if roomy
        else f"From {_ROOMY} columns on also intervals, differences and times; all of it "
        "with --json."
    )
    return f"ECE: 15 bins. Brier, log loss: of {judged}. Lower is better{bold}. {more}"
