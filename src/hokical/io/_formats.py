"""What a file is, by its first bytes; its name decides only where bytes cannot. Text of a file."""

import gzip
import warnings
from pathlib import Path

from hokical.io._errors import DataFileError, report_damage

_HEAD_BYTES = 4096
#: First bytes of the formats that are read; of pickles, those of protocols 2 to 5.
_MAGIC = {b"PK\x03\x04": "npz", b"\x93NUMPY": "npy", b"PAR1": "parquet"}
_PICKLED = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_PICKLES = (".p", ".pkl", ".pickle")
SAVE = "Save the arrays with `numpy.savez`, or a table as .csv or .parquet."
_GZIP = b"\x1f\x8b"


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
    # A length in 8 bytes, then JSON, is of safetensors.
    pickled = head[:2] in _PICKLED and head[8:9] != b"{"
    if pickled or (head and path.suffix.lower() in _PICKLES):
        return "pickle"
    if head.startswith(_GZIP):
        with report_damage(path, "a compressed table (.csv.gz)"), gzip.open(path) as stream:
            head = stream.read(_HEAD_BYTES)
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "csv"
    found = "another kind" if head else "nothing"
    raise DataFileError(
        path, f"expected .npz, .npy, .csv (UTF-8) or .parquet; found {found}.", SAVE
    )


def read_text(path: Path) -> str:
    """The text of a file, unpacked if needed: in UTF-8, else in the encoding of Windows."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(_GZIP) else data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        warnings.warn(f"{path.name} is not UTF-8 and is read as Windows-1252.", stacklevel=2)
        return data.decode("cp1252", errors="replace")
