"""Calibrators as JSON files: readable, versioned, checksummed, written atomically, never code.

A file holds plain numbers and strings. Reading one looks the calibrator's kind up in a fixed
registry and hands it its numbers; nothing in the file can name a module or a function.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hokical.noise import Noise, noise_from_dict

FORMAT = "hokical-calibrator"
FORMAT_VERSION = 1

#: Arrays up to this many numbers are written as lists that people can read.
_READABLE_SIZE = 20_000


class CalibratorFileError(ValueError):
    """The file is not a calibrator that this version can read."""


def write_document(path: str | os.PathLike[str], body: dict[str, Any]) -> None:
    """Write `body` with format, version and checksum; the file is whole or not there at all."""
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, **_encode(body)}
    document["checksum"] = _checksum(document)
    write_text_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `write_document` wrote, or raise CalibratorFileError with the reason."""
    document = _parse(path)
    if document.get("format") != FORMAT:
        raise CalibratorFileError(f"{path} is not a hokical calibrator file.")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise CalibratorFileError(
            f"{path} has format version {version!r}; this hokical reads version {FORMAT_VERSION}. "
            "Fit and save it again, or install the version that wrote it "
            f"({document.get('library_version', 'unknown')})."
        )
    stored = document.pop("checksum", None)
    if stored != _checksum(document):
        raise CalibratorFileError(
            f"{path} does not match its checksum: it was edited or damaged. Save it again."
        )
    try:
        body = _decode(document)
    except (KeyError, TypeError, ValueError) as error:
        raise CalibratorFileError(f"{path} cannot be decoded: {error!r}.") from error
    return dict(body)


def fingerprint(body: dict[str, Any]) -> str:
    """A hash of what `write_document` would write: equal bodies, equal fingerprints."""
    return _checksum(_encode(body))


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a crash leaves either the old file or the new one."""
    with replacing(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream into a new file beside the target, which takes its place when all is written."""
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        with _naming(path), open(temporary, "xb") as stream:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with _naming(path):
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the system speak of the file that the user named, not of a temporary one."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def _parse(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CalibratorFileError(
            f"{path} is not a hokical calibrator file, or it was cut short: {error}"
        ) from error
    if not isinstance(document, dict):
        raise CalibratorFileError(f"{path} is not a hokical calibrator file.")
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _checksum(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _encode(value: Any) -> Any:
    """Plain JSON values; arrays, noise and non-finite numbers under a tag of their own."""
    if isinstance(value, Noise):
        return {"$noise": value.to_dict()}
    if isinstance(value, np.ndarray):
        return {"$array": _encode_array(value)}
    if isinstance(value, dict):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, np.generic):
        return _encode(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"cannot store a {type(value).__name__} in a calibrator file.")


def _encode_array(array: NDArray[Any]) -> dict[str, Any]:
    head = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.size <= _READABLE_SIZE:
        return head | {"values": [_encode(item) for item in array.ravel().tolist()]}
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return head | {"base64": base64.b64encode(raw).decode("ascii")}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$noise" in value:
        return noise_from_dict(value["$noise"])
    if "$array" in value:
        return _decode_array(value["$array"])
    if "$tuple" in value:
        return tuple(_decode(item) for item in value["$tuple"])
    if "$float" in value:
        return float(value["$float"])
    return {key: _decode(item) for key, item in value.items()}


def _decode_array(stored: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(stored["dtype"])
    if dtype.kind not in "fiub":
        raise ValueError(f"array of dtype {dtype} is not allowed")
    if "values" in stored:
        flat = np.array([_decode(item) for item in stored["values"]], dtype=dtype)
    else:
        raw = base64.b64decode(stored["base64"], validate=True)
        flat = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)
    return flat.reshape(stored["shape"])
