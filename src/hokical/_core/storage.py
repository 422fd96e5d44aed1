"""JSON documents: readable, versioned, checksummed, written atomically, never code.

A file holds plain numbers and strings, arrays, and records: frozen dataclasses that
were declared `storable` under a name. Reading looks the name up and calls the class,
which validates its fields as usual; nothing in the file can name a module or a
function. Files are written as a whole or not at all, and there are locks between
processes.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from hokical._core import _legacy
from hokical._core.arrays import AnyArray
from hokical._core.checks import Checked, show

try:
    import fcntl
except ImportError:  # Windows, where files are not locked
    fcntl = None  # type: ignore[assignment]


StrPath = str | os.PathLike[str]


def printable(text: str) -> str:
    r"""The text with its control characters escaped, for names that a terminal must not
    obey.

    >>> print(printable("a\x1b[31m.npz"))
    a\x1b[31m.npz
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def as_path(path: object) -> Path:
    """A file's path, which an argument of that name must be."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"`path` must be the path of a file; got {show(path)}.")
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"`path` must be the path of a file, as text; got {text!r}.")
    return Path(text)


def write_text_atomically(path: StrPath, text: str) -> None:
    """Write a text file so that a crash leaves either the old file or the new one."""
    with replace_file(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replace_file(path: StrPath) -> Iterator[IO[bytes]]:
    """A stream to a temporary file, which replaces the target when it is complete."""
    target = Path(os.path.realpath(as_path(path)))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with temporary.open("xb") as stream:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise  # of another file, which is read meanwhile
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def lock_file(path: StrPath) -> Iterator[None]:
    """Wait for a lock and hold it; it ends with the process at the latest. The file
    stays.
    """
    with as_path(path).open("ab") as stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


FORMAT = "hokical-calibrator"
FORMAT_VERSION = 3

#: Arrays up to this many elements are written as readable lists.
_READABLE_SIZE = 20_000
#: Errors that invalid stored numbers may cause while they are validated.
_UNUSABLE = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
#: Files that are often taken for calibrators, by how they begin.
_OTHER_FILES = {
    b"\x80": "a pickle",
    b"PK": "a zip archive, as NumPy and PyTorch write them",
}
#: Keys of objects that stand for something else; a user's mapping with one of them is a
#: "$dict".
_TAGS = {"$record", "$array", "$tuple", "$float", "$dict"}
#: Numbers that JSON has no word for.
_NON_FINITE = {repr(number): number for number in (math.nan, math.inf, -math.inf)}
#: What an array of a kind of dtype holds, as JSON reads it.
_NUMBERS: dict[str, tuple[type, ...]] = {
    "f": (float, int),
    "i": (int,),
    "u": (int,),
    "b": (bool,),
}
#: Classes that can be stored besides plain values, by their name in files.
_records: dict[str, type[Any]] = {}
_names: dict[type[Any], str] = {}
Record = TypeVar("Record", bound=type[Any])
Finder = Callable[[str], None] | None


class CalibratorFileError(ValueError):
    """The file is not a calibrator that this version can read."""


def storable(name: str) -> Callable[[Record], Record]:
    """Class decorator: allow instances of a frozen dataclass to be stored under a name.

    Its fields are stored, unless it has `to_stored`, which returns a dict, and a class
    method `from_stored` that reads it back. Either way its fields must be what their
    annotations say.
    """

    def declare(kind: Record) -> Record:
        if _records.setdefault(name, kind).__qualname__ != kind.__qualname__:
            raise ValueError(
                f"{name!r} is stored as {_records[name]!r} already; got {kind!r}."
            )
        _records[name] = kind
        _names[kind] = name
        return kind

    return declare


def is_storable(name: str) -> bool:
    """Whether a record of this name can be read."""
    return name in _records


def record_class(name: str) -> type[Any]:
    """The class that is stored under a name."""
    if name not in _records:
        raise ValueError(
            f"{name!r} is not known to this version: import the package that defines "
            "it, or update hokical"
        )
    return _records[name]


def write_document(path: StrPath, body: dict[str, Any]) -> None:
    """Write `body` with format, version and checksum, atomically."""
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, **_encode(body)}
    document["checksum"] = checksum(document)
    write_text_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_document(
    path: StrPath, find: Finder = None, kind: str = "calibrator"
) -> dict[str, Any]:
    """Read what `write_document` wrote, or raise CalibratorFileError with the reason.

    `find(name)` is called for records with an unknown name, and may declare them;
    `kind` is what the file must hold.
    """
    document = _read_json(path, kind)
    _check_header(document, path, kind)
    try:
        if document.get("format_version") == _legacy.FORMAT_BEFORE:
            document = _legacy.upgrade(document)
        return dict(_decode(document, find))
    except _UNUSABLE as error:
        raise CalibratorFileError(
            f"{path} does not hold a usable {kind}: {error}"
        ) from error


def _read_json(path: StrPath, kind: str) -> dict[str, Any]:
    """The JSON object of a file of this library."""
    content = as_path(path).read_bytes()
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = f"or it was cut short: {error}"
        for first, name in _OTHER_FILES.items():
            if content.startswith(first):
                why = f"but looks like {name}; loading never runs code"
        raise CalibratorFileError(
            f"{path} is not a hokical {kind} file, which is JSON that `save(path)` "
            f"writes, {why}. Open it with the library that wrote it, and save the "
            f"{kind}."
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibratorFileError(f"{path} is not a hokical {kind} file.")
    return document


def _check_header(document: dict[str, Any], path: StrPath, kind: str) -> None:
    """Check the version, the checksum, which is removed, and the kind."""
    version = document.get("format_version")
    is_known = version in (FORMAT_VERSION, _legacy.FORMAT_BEFORE)
    if not is_known or type(version) is not int:
        raise CalibratorFileError(
            f"{path} has format version {version!r}; this hokical reads version "
            f"{FORMAT_VERSION}. Fit and save it again, or install the version of "
            f"hokical that wrote it ({document.get('library_version', 'unknown')})."
        )
    stored = document.pop("checksum", None)
    try:
        intact = stored == checksum(document)
    except ValueError:  # a number that no float64 can hold
        intact = False
    if not intact:
        raise CalibratorFileError(
            f"{path} does not match its checksum: it was edited or damaged. Save it "
            "again."
        )
    stored_kind = document.get("kind", "calibrator")
    if stored_kind != kind:
        loader = (
            "hokical.load" if stored_kind == "calibrator" else f"{stored_kind}.load"
        )
        raise CalibratorFileError(
            f"{path} must hold: {kind}; it holds: {stored_kind}. Read it with "
            f"`{loader}(path)`."
        )


def fingerprint(body: dict[str, Any]) -> str:
    """A hash of what `write_document` would write."""
    return checksum(_encode(body))


def checksum(document: dict[str, Any]) -> str:
    """That of an encoded document."""
    canonical = json.dumps(
        document, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _encode(value: Any) -> Any:
    """Plain JSON values; arrays, records and non-finite numbers as tagged objects."""
    if type(value) in _names:
        if hasattr(value, "to_stored"):
            stored = value.to_stored()
        else:
            stored = {
                entry.name: getattr(value, entry.name)
                for entry in fields(value)
                if entry.init
            }
        return {"$record": _names[type(value)], **_encode(stored)}
    if isinstance(value, _Packed):
        return dict(value)
    if isinstance(value, np.ndarray):
        return {"$array": _encode_array(value)}
    if isinstance(value, dict):
        plain = {str(key): _encode(item) for key, item in value.items()}
        return (
            plain if _TAGS.isdisjoint(plain) else {"$dict": [*map(list, plain.items())]}
        )
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


class _Packed(dict[str, Any]):
    """What is encoded already."""


def pack_array(array: AnyArray) -> dict[str, Any]:
    """An array as it is stored where nobody will read its numbers, for `to_stored`."""
    return _Packed({"$array": _encode_array(array, 0)})


def _encode_array(array: AnyArray, readable: int = _READABLE_SIZE) -> dict[str, Any]:
    head = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.size <= readable:
        return head | {"values": [_encode(item) for item in array.ravel().tolist()]}
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return head | {"base64": base64.b64encode(raw).decode("ascii")}


def _decode(value: Any, find: Finder = None) -> Any:
    """The value that JSON stands for."""
    if isinstance(value, list):
        return [_decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    if "$record" in value:
        return _decode_record(value, find)
    if "$array" in value:
        return _decode_array(value["$array"])
    if "$tuple" in value:
        return tuple(_decode(item, find) for item in value["$tuple"])
    if "$float" in value:
        return _NON_FINITE[value["$float"]]
    if "$dict" in value:
        return {str(key): _decode(item, find) for key, item in value["$dict"]}
    return {key: _decode(item, find) for key, item in value.items()}


def _decode_record(value: dict[str, Any], find: Finder) -> Any:
    """An instance of a class that was declared with `storable`."""
    name = value["$record"]
    if name not in _records and find is not None:
        find(name)
    kind: Any = record_class(name)
    stored = {
        key: _decode(item, find) for key, item in value.items() if key != "$record"
    }
    from_stored = kind.from_stored if hasattr(kind, "from_stored") else None
    record = kind(**stored) if from_stored is None else from_stored(stored)
    # A `Checked` has checked itself.
    if is_dataclass(record) and not isinstance(record, Checked):
        Checked.__post_init__(record)  # type: ignore[arg-type]  # a dataclass of any kind
    return record


def _decode_array(stored: dict[str, Any]) -> AnyArray:
    """An array of numbers or booleans."""
    name = stored["dtype"]
    shape = stored["shape"]
    dtype = np.dtype(name)
    if not isinstance(name, str) or dtype.kind not in "fiub":
        raise ValueError(f"array of dtype {name} is not allowed")
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"array of shape {shape} is not allowed")
    if "values" in stored:
        flat = _array_of([_decode(item) for item in stored["values"]], dtype)
    else:
        raw = base64.b64decode(stored["base64"], validate=True)
        flat = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)
    return flat.reshape(shape)


def _array_of(values: list[Any], dtype: np.dtype[Any]) -> AnyArray:
    """Stored numbers (n,) of the kind of a dtype, without the conversions of NumPy."""
    kinds = _NUMBERS[dtype.kind]
    for value in values:
        if type(value) not in kinds:
            raise ValueError(f"array of dtype {dtype.name} holds {value!r}")
    return np.array(values, dtype=dtype)


def json_values(value: Any) -> Any:
    """Values that JSON has: lists of arrays, null for NaN and infinities, text of
    the rest.
    """
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return json_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else str(value)
    )
