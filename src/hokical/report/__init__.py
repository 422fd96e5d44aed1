"""Evaluations of calibrators, comparisons of methods, and both as one self-contained
HTML file.
"""

import os
from pathlib import Path

from hokical.report.results import Comparison, Evaluation

__all__ = ["Evaluation", "write_report"]


def write_report(found: Evaluation | Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the report of an evaluation or a comparison: `found.to_html(path)`.

    `path` is the HTML file, in a folder that exists, and is returned.

    >>> from hokical import compare
    >>> from hokical.demo import demo_logits
    >>> comparison = compare(*demo_logits(), ["uncalibrated", "temps"])
    >>> write_report(comparison, "report.html")  # doctest: +SKIP
    PosixPath('report.html')
    """
    return found.to_html(path)
