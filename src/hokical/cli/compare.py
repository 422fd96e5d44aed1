"""`hokical compare` and `hokical demo`: several methods side by side, on held-out data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import hokical
from hokical.cli import options as opt
from hokical.cli.data import check_method, choose_scores, load_examples
from hokical.cli.options import Json
from hokical.cli.scores import show_comparison
from hokical.cli.show import warn
from hokical.demo import DEMO_CLASSES, demo_logits

if TYPE_CHECKING:
    from hokical.io import LabelledRows, Wanted

#: How the result is printed.
Format = StrEnum("Format", ["table", "csv", "markdown", "latex", "json"])


def compare(
    val: opt.Validation,
    test: Annotated[
        Path | None,
        typer.Argument(metavar="[TEST]", help="Test data; if omitted, VAL must hold both parts."),
    ] = None,
    methods: Annotated[
        str, opt.text("all, or comma-separated names from `hokical methods`.")
    ] = "all",
    subject: Annotated[
        str | None,
        opt.text(
            "The method of the headline, to which others are compared.",
            show_default="auto",
            autocompletion=opt.complete_method,
        ),
    ] = None,
    report: Annotated[Path | None, opt.text("Write an HTML report here.")] = None,
    title: Annotated[str | None, opt.text("Title of the table and report.")] = None,
    form: Annotated[Format, opt.text("How to print the result.", "--format")] = Format.table,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    val_labels: Annotated[Path | None, opt.text("File with VAL's labels.")] = None,
    test_labels: Annotated[Path | None, opt.text("File with TEST's labels.")] = None,
    probabilities: opt.Probabilities = False,
    zeros: opt.Zeros = None,
    binary_score: opt.BinaryScore = None,
    classes: opt.Classes = None,
    as_json: opt.Json = False,
) -> None:
    """Fit methods on VAL and compare them on TEST."""
    subject = None if subject is None else check_method(subject)
    names = _names(methods if subject is None or methods == "all" else f"{methods},{subject}")
    if report is not None:
        hokical.io.check_output(report)
    wanted = choose_scores(probabilities, binary_score, classes, zeros)
    fitted_on, tested_on = _load_both(val, test, val_labels, test_labels, wanted)
    found = hokical.compare(
        fitted_on.pair,
        tested_on.pair,
        names,
        subject=subject,
        title=title,
        data_names=(val.name, (test or val).name),
        n_resamples=resamples,
        seed=seed,
    )
    if found.provenance.tested_on_validation:
        warn("VAL and TEST hold the same examples, so all results look too good.")
    heading = title or f"{(test or val).name}: {tested_on.logits.n_rows:,} examples"
    names_of = tested_on.classes
    show_comparison(found, heading, report, as_json=as_json, form=form.value, classes=names_of)


def _names(methods: str) -> list[str] | None:
    """The given methods, after the uncalibrated one; None for all that the data allow."""
    if methods == "all":
        return None
    asked = [name.strip() for name in methods.split(",") if name.strip()]
    if not asked:
        raise typer.BadParameter("name at least one method, or `all`.", param_hint="--methods")
    return list(dict.fromkeys(["uncalibrated", *(check_method(name) for name in asked)]))


def _load_both(
    val: Path, test: Path | None, val_labels: Path | None, test_labels: Path | None, wanted: Wanted
) -> tuple[LabelledRows, LabelledRows]:
    learned = load_examples(val, opt.Part.val, val_labels, wanted=wanted)
    if test is None and learned.part is None:
        raise typer.BadParameter(
            f"{val} holds one set; pass TEST, data that nothing was fitted on."
        )
    judged = load_examples(test or val, opt.Part.test, test_labels, wanted=wanted)
    if learned.logits.n_classes != judged.logits.n_classes:
        raise typer.BadParameter(
            f"VAL and TEST must have the same classes; got {learned.logits.n_classes} and "
            f"{judged.logits.n_classes} columns."
        )
    return learned, judged


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
    comparison = hokical.compare(*demo_logits(), title=title)
    show_comparison(comparison, title, wanted, as_json=as_json, classes=DEMO_CLASSES)
