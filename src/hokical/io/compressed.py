"""Text in files that may be compressed: `.csv.gz` and `.csv.zst`."""

import gzip
import io
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from hokical.io.errors import import_reader

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_text(path: Path) -> TextIO:
    """The text of a file, decompressed if needed."""
    return io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="")


def open_binary(path: Path) -> Any:
    """The bytes of a file, decompressed if needed."""
    with path.open("rb") as stream:
        head = stream.read(len(ZSTD))
    if head.startswith(GZIP):
        return gzip.open(path)
    return _open_zstd(path) if head == ZSTD else path.open("rb")


def _open_zstd(path: Path) -> Any:
    """Through Python 3.14, its backport, or pyarrow, whichever is there."""
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(module).open(path)
        except ImportError:
            continue
    arrow = import_reader(path, "pyarrow", "text compressed by Zstandard", "zstd")
    return arrow.CompressedInputStream(str(path), "zstd")
