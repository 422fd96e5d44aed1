"""A comparison, or a new class balance, as one self-contained HTML file."""

import os
from collections.abc import Sequence
from pathlib import Path

from hokical._core.files import write_text_atomically
from hokical.guarantees._shift import ShiftEstimate
from hokical.report._before_after import before_and_after
from hokical.report._comparison import Comparison
from hokical.report._data import report_data
from hokical.report._page import render_page
from hokical.report._shift import shift_page

__all__ = ["before_and_after", "render_page", "report_data", "write_report"]


def write_report(
    comparison: Comparison | ShiftEstimate,
    path: str | os.PathLike[str],
    *,
    method: str | None = None,
    class_names: Sequence[str] = (),
) -> Path:
    """Write the report of a comparison, or of `estimate_shift`, atomically.

    `path` is the HTML file, in a folder that exists, and is returned. `method` is that of the
    headline, shown first; None takes the comparison's subject. `class_names` are for the classes of
    `estimate_shift`; a comparison has its own.

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
    if isinstance(comparison, ShiftEstimate):
        page = shift_page(comparison, class_names)
    else:
        page = render_page(report_data(comparison, method))
    write_text_atomically(target, page)
    return target
