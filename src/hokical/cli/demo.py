"""`hokical demo`: all methods on the data that comes with the package."""

from pathlib import Path
from typing import Annotated

import typer

import hokical
from hokical.cli.options import Json
from hokical.cli.scores import show_comparison
from hokical.demo import DEMO_CLASSES, demo_logits


def demo(
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = Path(
        "report.html"
    ),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
    as_json: Json = False,
) -> None:
    """Compare all methods on the shipped data, and write a report."""
    wanted = None if no_report else report
    if wanted is not None:
        hokical.io.check_output(wanted)
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), title=title)
    show_comparison(comparison, title, wanted, as_json=as_json, classes=DEMO_CLASSES)
