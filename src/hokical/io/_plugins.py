"""Formats that other packages read: each names a function in an entry point.

The function takes a path and gives the file's arrays by name. The group is `hokical.readers`, the
name of the entry point that of the format in `hokical.io._sniff`.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from hokical.io._errors import DataFileError
from hokical.io._names import Arrays

GROUP = "hokical.readers"
#: Distributions with a reader, by format.
_READERS = {"pickle": "hokical-paper"}


def find_reader(path: Path, kind: str) -> Callable[[Path], Arrays]:
    """The function that reads a format, or an error that says which package has it."""
    for entry in entry_points(group=GROUP, name=kind):
        reader: Callable[[Path], Arrays] = entry.load()
        return reader
    raise DataFileError(
        path,
        f"is a {kind}, which another package reads.",
        f"Install it: pip install {_READERS[kind]}. Or save the arrays with `numpy.savez`.",
    )
