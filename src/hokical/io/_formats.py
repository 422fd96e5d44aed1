"""What a file is, by its first bytes; its name decides only where bytes cannot. Text of a file."""

import codecs
import gzip
import os
import re
import stat
from pathlib import Path

from hokical.io._errors import DataFileError, report_damage

_HEAD_BYTES = 4096

#: First bytes of the formats that are read.
_MAGIC = (
    (b"PK\x03\x04", "npz"),
    (b"PK\x05\x06", "npz"),  # an empty archive
    (b"\x93NUMPY", "npy"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
)
#: First bytes of what people hand over by mistake, and what to do then.
_OTHERS = (
    (b"\x89HDF", "HDF5 data", "Save the arrays with `numpy.savez` instead."),
    (b"\x28\xb5\x2f\xfd", "data compressed by Zstandard", "Unpack it first (`unzstd`)."),
    (b"%PDF", "a PDF document", "Name the file with the logits."),
)
#: How protocols 0 and 1 look up what makes an array; no table has two such lines.
_OLD_PICKLE = re.compile(rb"c(numpy[\w.]*|_codecs)\n[A-Za-z_]\w*\n")
_REMEDIES: dict[type[OSError], str] = {
    FileNotFoundError: "Check the name and the folder.",
    PermissionError: "Ask its owner for the right to read it (`chmod +r`).",
}
_PICKLES = (".p", ".pkl", ".pickle")
_EXPECTED = "expected .npz, .npy, .csv or .parquet"
_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def find_format(path: Path) -> str:
    """One of npz, npy, parquet, arrow, pickle, csv; or DataFileError."""
    head = _first_bytes(path)
    if not head:
        raise DataFileError(
            path, f"{_EXPECTED}; found an empty file.", "Was it written to the end?"
        )
    if head.startswith(_GZIP):
        return _packed_format(path)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    for magic, what, remedy in _OTHERS:
        if head.startswith(magic):
            raise DataFileError(path, f"{_EXPECTED}; found {what}.", remedy)
    # A length in 8 bytes, then JSON of that length; it may begin with the bytes of a pickle.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= path.stat().st_size - 8:
        raise DataFileError(
            path, f"{_EXPECTED}; found safetensors.", "Save the arrays with `numpy.savez` instead."
        )
    if _is_pickle(head, path):
        return "pickle"
    if _is_text(head):
        return "csv"
    raise DataFileError(
        path, f"{_EXPECTED}; found bytes of no known kind.", "Save with `numpy.savez`."
    )


def _first_bytes(path: Path) -> bytes:
    """The beginning of a regular file; anything else is named for what it is."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            raise DataFileError(path, "expected a file; found a directory.", "Name a file in it.")
        if not stat.S_ISREG(kind):
            raise DataFileError(
                path, "expected a regular file; found a pipe or device.", "Save the data first."
            )
        with path.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = _REMEDIES.get(type(error), "")
        raise DataFileError(path, f"cannot be read: {reason}.", remedy) from error


def _is_pickle(head: bytes, path: Path) -> bool:
    """Protocols 2 to 5 say so in two bytes; 0 and 1 by naming NumPy, else by the file's name."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    if head[:1] not in (b"(", b"c", b"]", b"}"):
        return False
    return path.suffix.lower() in _PICKLES or _OLD_PICKLE.search(head) is not None


def _packed_format(path: Path) -> str:
    """Compressed text is a table; compressed anything else has to be unpacked."""
    with report_damage(path, "a compressed table (.csv.gz)"), gzip.open(path) as stream:
        head = stream.read(_HEAD_BYTES)
    if head and _is_text(head):
        return "csv"
    raise DataFileError(
        path, f"{_EXPECTED}; found compressed data that is no text.", "Unpack it first (`gunzip`)."
    )


def _is_text(head: bytes) -> bool:
    return head.startswith(_UTF_16) or all(byte >= 32 or byte in b"\t\r\n" for byte in head)


def read_text(path: Path) -> tuple[str, str]:
    """The text of a file, unpacked if needed, and its encoding: UTF-8 or 16, else Windows' own."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(_GZIP) else data
    if data.startswith(_UTF_16):
        return data.decode("utf-16"), "UTF-16"
    try:
        return data.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace"), "Windows-1252"
