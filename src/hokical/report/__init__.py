"""A comparison as one self-contained HTML file."""

import os
from pathlib import Path

from hokical._core.files import write_text_atomically
from hokical.report._before_after import before_and_after
from hokical.report._comparison import Comparison
from hokical.report._data import report_data
from hokical.report._page import render_page

__all__ = ["before_and_after", "render_page", "report_data", "write_report"]


def write_report(
    comparison: Comparison, path: str | os.PathLike[str], *, method: str | None = None
) -> Path:
    """Write the report of a comparison atomically.

    `path` is the HTML file, in a folder that exists, and is returned. `method` is that of the
    headline, shown first; None takes the comparison's subject.

    >>> from hokical import compare
    >>> from hokical.demo import demo_logits
    >>> comparison = compare(*demo_logits(), ["uncalibrated", "temps"], n_resamples=20)
    >>> write_report(comparison, "report.html")  # doctest: +SKIP
    PosixPath('report.html')
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must name a file in an existing folder; got {target}. Create {target.parent} "
            "first."
        )
    if target.is_dir():
        raise IsADirectoryError(f"`path` must name a file; {target} is a folder.")
    write_text_atomically(target, render_page(report_data(comparison, method)))
    return target
