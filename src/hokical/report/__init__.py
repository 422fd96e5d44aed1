"""Evaluations of calibrators, comparisons of methods, and both as one self-contained
HTML file.
"""

import os
from pathlib import Path

from hokical._core.runtime import warn_user
from hokical.report.results import Comparison, Evaluation

__all__ = ["Evaluation", "write_report"]


def write_report(
    evaluation: Evaluation | Comparison, path: str | os.PathLike[str]
) -> Path:
    """Write a report; call `evaluation.to_html(path)` instead. It goes with 0.7.

    >>> from hokical import compare
    >>> from hokical.demo import demo_logits
    >>> comparison = compare(*demo_logits(), ["uncalibrated", "temps"])
    >>> comparison.to_html("report.html")  # doctest: +SKIP
    PosixPath('report.html')
    """
    warn_user(
        "`write_report(evaluation, path)` is `evaluation.to_html(path)` now; it goes "
        "with 0.7.",
        FutureWarning,
    )
    return evaluation.to_html(path)
