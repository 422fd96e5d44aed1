"""`hokical compare`: several methods side by side, on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hokical.cli.data import check_method, load_examples
from hokical.cli.options import Json, Part, Resamples, Seed, Validation
from hokical.cli.scores import measure, show_comparison, write_html
from hokical.cli.show import say

if TYPE_CHECKING:
    from hokical.files import Examples


def compare(
    val: Validation,
    test: Annotated[
        Path | None,
        typer.Argument(metavar="[TEST]", help="Test data; left out, VAL must hold both parts."),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="all, or names from `hokical methods` with commas between.")
    ] = "all",
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    val_labels: Annotated[Path | None, typer.Option(help="File with VAL's labels.")] = None,
    test_labels: Annotated[Path | None, typer.Option(help="File with TEST's labels.")] = None,
    as_json: Json = False,
) -> None:
    """Fit methods on VAL, measure them on TEST, and show them side by side."""
    from hokical.comparison import compare as run
    from hokical.files import check_output

    names = _names(methods)
    if report is not None:
        check_output(report, inputs=(val, test, val_labels, test_labels))
    learned, judged = _both(val, test, val_labels, test_labels)
    found = run(learned.pair, judged.pair, names, n_resamples=resamples, seed=seed)
    measure(found)
    write_html(found, report)
    if found.provenance.tested_on_validation:
        say("Warning: VAL and TEST hold the same examples; what is learned looks too good on them.")
    title = f"{(test or val).name}: {judged.logits.n_rows:,} examples"
    show_comparison(found, title, report, as_json=as_json)


def _names(methods: str) -> list[str] | None:
    """The methods asked for, after the classifier itself; None for all that the data allow."""
    if methods == "all":
        return None
    asked = [name.strip() for name in methods.split(",") if name.strip()]
    if not asked:
        raise typer.BadParameter("name at least one method, or `all`.", param_hint="--methods")
    return list(dict.fromkeys(["uncalibrated", *(check_method(name) for name in asked)]))


def _both(
    val: Path, test: Path | None, val_labels: Path | None, test_labels: Path | None
) -> tuple[Examples, Examples]:
    learned = load_examples(val, Part.val, val_labels)
    if test is None and learned.part is None:
        raise typer.BadParameter(
            f"{val} holds one set; give TEST, data that nothing was fitted on."
        )
    judged = load_examples(test or val, Part.test, test_labels)
    if learned.logits.n_classes != judged.logits.n_classes:
        raise typer.BadParameter(
            f"VAL and TEST must have the same classes; got {learned.logits.n_classes} and "
            f"{judged.logits.n_classes} columns."
        )
    return learned, judged
