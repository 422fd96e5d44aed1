"""`hokical compare`: methods side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

import hokical
from hokical.cli import options as opt
from hokical.cli.console import bad_option, check_options, new_table, say, show_table, stdout
from hokical.cli.reading import Source
from hokical.cli.settings import check_method
from hokical.cli.tables import show_details, show_found
from hokical.io._examples import Examples


def compare(
    val: opt.Validation,
    test: Annotated[
        Path | None, opt.argument("TEST", "Test data; if omitted, VAL must hold both parts.")
    ] = None,
    methods: Annotated[str, opt.text("all, or names of `hokical methods`: hoki,temps.")] = "all",
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    seed: opt.Seed = 0,
    labels: opt.Labels = None,
    test_labels: Annotated[
        Path | None, opt.text("File with the labels of TEST, if not in --labels.")
    ] = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    classes: opt.Classes = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    as_json: opt.Json = False,
) -> None:
    """Fit methods on VAL and compare them on TEST."""
    entrants = _choose_methods(methods)
    given = Source(
        val, opt.Part.val, labels=labels, label_column=label_column,
        score_columns=score_columns, classes=classes, probabilities=probabilities,
        groups=groups, missing=missing,
    )  # fmt: skip
    fitted_on, tested_on = _open_pair(given, test, test_labels or labels)
    with check_options():
        found = hokical.compare(
            (fitted_on.scores, fitted_on.labels),
            (tested_on.scores, tested_on.labels),
            entrants,
            data_names=(val.name, (test or val).name),
            class_names=tested_on.classes,
            coverage=coverage,
            groups=(fitted_on.groups, tested_on.groups),
            random_state=seed,
        )
    heading = f"{(test or val).name}: {tested_on.n_rows:,} examples"
    show_comparison(found, heading, report, as_json)


def _choose_methods(methods: str) -> list[str] | None:
    """The methods by name; None for all that the data allow."""
    if methods == "all":
        return None
    asked = [check_method(name) for name in opt.split_names(methods)]
    if not asked:
        raise bad_option("--methods", "name at least one method, or `all`.")
    return list(dict.fromkeys(["uncalibrated", *asked]))


def _open_pair(given: Source, test: Path | None, labels: Path | None) -> tuple[Examples, Examples]:
    """The examples to fit on and to test on, of two files or of one with both parts."""
    fitted_on = given.read()
    if test is None and fitted_on.part is None:
        raise typer.BadParameter(
            f"{given.path} holds one set; pass TEST, data that nothing was fitted on."
        )
    names = ",".join(fitted_on.classes) or None  # in whose order the other's columns are put
    if any("," in name for name in fitted_on.classes):
        names = given.classes
    new = replace(given, path=test or given.path, split=opt.Part.test, classes=names)
    new = replace(new, labels=labels)
    tested_on = new.read()
    for rows in (fitted_on, tested_on):
        if rows.kind == "confidence":
            raise typer.BadParameter(
                "`compare` needs logits or probabilities; for confidences use `fit`, then "
                "`evaluate`."
            )
        if rows.weights is not None:
            say("Weights are not used here.")
    return fitted_on, tested_on


def show_comparison(
    comparison: hokical.report._comparison.Comparison,
    title: str,
    report: Path | None,
    as_json: bool,
) -> None:
    """Write the report, and show table, classes and headline, or the numbers as JSON."""
    subject = comparison[comparison.subject]

    def show() -> None:
        bold = ", the best in bold" if stdout().is_terminal else ""
        note = f"ECE has 15 bins. Of ECE, Brier and log loss lower is better{bold}."
        table = _results_table(comparison)
        show_table(title, table, note, *_verdicts(comparison), "", comparison.headline)
        show_details(subject, comparison.results)

    for reason in dict.fromkeys(comparison.skipped.values()):
        names = [name for name, why in comparison.skipped.items() if why == reason]
        say(f"Left out: {', '.join(names)} ({reason}).")
    show_found(comparison, subject, report, as_json, show, title)


def _results_table(comparison: hokical.report._comparison.Comparison) -> Table:
    """One row per method, the best of each score in bold."""
    heads, rows = comparison.cells("[bold]{}[/bold]")
    table = new_table([head.replace("classwise", "class") for head in heads])
    for result, (_, *cells) in zip(comparison.results, rows, strict=True):
        table.add_row(escape(result.name), *(mark.format(text) for text, mark in cells))
    return table


def _verdicts(comparison: hokical.report._comparison.Comparison) -> list[str]:
    """Which methods differ clearly from the subject, which do not."""
    found: dict[str, list[str]] = {}
    for each in comparison.differences():
        found.setdefault(each.verdict, []).append(each.method)
    texts = [f"{verdict}: {', '.join(names)}" for verdict, names in sorted(found.items())]
    against = f"Log loss compared with {comparison.subject} (5 %, Holm): "
    return [f"{against}{'; '.join(texts)}."] if texts else []
