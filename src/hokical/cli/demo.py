"""`hokical demo`: everything at once on data that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hokical.cli.options import Json
from hokical.cli.scores import measure, show_comparison, write_html


def demo(
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = Path(
        "report.html"
    ),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    as_json: Json = False,
) -> None:
    """Calibrate the shipped network with every method, compare them, write a report."""
    from hokical.comparison import compare
    from hokical.demo import demo_logits
    from hokical.files import check_output

    wanted = None if no_report else report
    if wanted is not None:
        check_output(wanted)
    found = compare(*demo_logits())
    measure(found)
    write_html(found, wanted)
    title = "A small network on MNIST, 10,000 test digits"
    show_comparison(found, title, wanted, as_json=as_json)
