"""What a file is, by its first bytes; its name decides only where bytes cannot. Text of a file."""

import codecs
import gzip
import re
from pathlib import Path

from hokical.io._errors import DataFileError, report_damage

_HEAD_BYTES = 4096
#: First bytes of the formats that are read.
_MAGIC = {
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",  # an empty archive
    b"\x93NUMPY": "npy",
    b"PAR1": "parquet",
}
#: How protocols 0 and 1 look up what makes an array; no table has two such lines.
_OLD_PICKLE = re.compile(rb"c(numpy[\w.]*|_codecs)\n[A-Za-z_]\w*\n")
_PICKLES = (".p", ".pkl", ".pickle")
_EXPECTED = "expected .npz, .npy, .csv or .parquet"
_SAVE = "Save the arrays with `numpy.savez`, or a table as .csv or .parquet."
_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def find_format(path: Path) -> str:
    """One of npz, npy, parquet, pickle, csv; or DataFileError."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "a pipe or device"
        raise DataFileError(path, f"expected a file; found {what}.", "Save the data in a file.")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise DataFileError(
            path, f"cannot be read: {error.strerror}.", "Check its name, folder and permissions."
        ) from error
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    if _is_pickle(head, path):
        return "pickle"
    if head.startswith(_GZIP):
        with report_damage(path, "a compressed table (.csv.gz)"), gzip.open(path) as stream:
            head = stream.read(_HEAD_BYTES)
    if head and _is_text(head):
        return "csv"
    raise DataFileError(path, f"{_EXPECTED}; found {'another kind' if head else 'nothing'}.", _SAVE)


def _is_pickle(head: bytes, path: Path) -> bool:
    """Protocols 2 to 5 say so in two bytes; 0 and 1 by naming NumPy, else by the file's name."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return head[8:9] != b"{"  # a length in 8 bytes, then JSON: safetensors
    if head[:1] not in (b"(", b"c", b"]", b"}"):
        return False
    return path.suffix.lower() in _PICKLES or _OLD_PICKLE.search(head) is not None


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
