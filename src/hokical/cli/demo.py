"""`hokical demo`: all methods on the bundled logits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import hokical
from hokical.cli import options as opt
from hokical.cli.compare import show_comparison
from hokical.demo import DEMO_CLASSES, demo_logits


def demo(
    report: Annotated[Path, opt.text("HTML report to write.")] = Path("report.html"),
    as_json: opt.Json = False,
) -> None:
    """Compare all methods on the shipped data, and write a report."""
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), class_names=DEMO_CLASSES)
    show_comparison(comparison, title, report, as_json)
