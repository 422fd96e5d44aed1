"""Pickles as the paper's logits are shared: ((val_logits, val_labels), (test_logits,
test_labels)).

An entry point of the group `hokical.readers` makes every command and function of
hokical read them. A pickle is a program, so none is run as it stands: every name that
it looks up is answered from the short list below, with stand-ins that only take notes.
Arrays of plain numbers are built from the notes afterwards. Any other name, and so any
call that a pickle could do harm with, is refused.
"""

import io
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hokical.io import DataFileError
from hokical_paper.core.files import NO_NAME, Arrays, report_damage
from hokical_paper.types import AnyArray

_EXPECTED = (
    "expected a pickle of ((val_logits, val_labels), (test_logits, test_labels))"
)
_REMEDY = "Save the arrays with `numpy.savez(path, logits=..., labels=...)`."
_FILL_DICT = (pickle.DICT, pickle.SETITEM, pickle.SETITEMS)
_FILL_SET = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
#: No side of an array is longer.
_LONGEST = 2**63


class _Dtype:
    """Notes of a dtype: its code (f4, i8, ...) and byte order."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def build(self) -> np.dtype[Any]:
        if not isinstance(self.code, str):
            raise TypeError(f"a dtype made of {_describe(self.code)} is not numbers")
        dtype = np.dtype(self.code)
        if dtype.kind not in "fiub":
            raise TypeError(f"an array of dtype {dtype} is not numbers")
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """Notes of an array: its bytes, dtype, shape and order."""

    def __init__(
        self, raw: Any = b"", dtype: Any = None, shape: Any = (), order: Any = "C"
    ):
        self.raw = raw
        self.dtype = dtype
        self.shape = shape
        self.order = order

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.dtype, fortran, self.raw = state
        self.order = "F" if fortran else "C"

    def build(self) -> AnyArray:
        shape = self.shape if isinstance(self.shape, tuple) else (None,)
        sized = all(type(side) is int and 0 <= side < _LONGEST for side in shape)
        if not isinstance(self.dtype, _Dtype) or not sized:
            raise TypeError("an array without a dtype or shape is not numbers")
        dtype = self.dtype.build()
        data = self.raw.encode("latin-1") if isinstance(self.raw, str) else self.raw
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"an array made of a {type(data).__name__} is not numbers")
        if len(data) != math.prod(self.shape) * dtype.itemsize:
            raise ValueError(
                f"{len(data)} bytes do not fill an array of shape {self.shape}"
            )
        array = np.frombuffer(data, dtype)
        return array.reshape(self.shape, order="F" if self.order == "F" else "C")


def _stand_ins() -> dict[tuple[str, str], Any]:
    """What the names in an array's pickle are answered with.

    New ones for every file, so that a pickle that writes on them changes nothing for
    the next.
    """
    allowed: dict[tuple[str, str], Any] = {
        ("numpy", "dtype"): lambda code, *rest: _Dtype(code),
        ("numpy", "ndarray"): None,  # only ever mentioned, never called
        ("_codecs", "encode"): lambda text, encoding: _encode(text, encoding),
    }
    for core in ("numpy.core", "numpy._core"):  # before and since NumPy 2
        allowed[f"{core}.multiarray", "_reconstruct"] = lambda *ignored: _Array()
        allowed[f"{core}.numeric", "_frombuffer"] = lambda *notes: _Array(*notes)
    return allowed


def _encode(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 spell bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("it encodes text as something else than latin-1")
    return text.encode("latin-1")


class _Reader(pickle._Unpickler):
    """An unpickler that knows the stand-ins and nothing else.

    Python's own rather than C's, because a few bytes can ask C's for any amount of
    memory (an index of the memo) or time (the hash of a key that is nested pairs of
    itself).
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(
        pickle._Unpickler.dispatch
    )

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        super().__init__(io.BytesIO(content), encoding="latin-1")
        self.path = path
        self.known = _stand_ins()
        self.size = len(content)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise DataFileError(
                self.path,
                f"{_EXPECTED}; found {module}.{name}, which is not a NumPy array and "
                "was not run.",
                _REMEDY,
            )
        return self.known[module, name]


def _refuse_set(reader: Any) -> None:
    raise DataFileError(reader.path, f"{_EXPECTED}; found a set in it.", _REMEDY)


def _check_keys(opcode: bytes) -> Callable[[Any], None]:
    """The usual action of an opcode that fills a dict, once the keys are known to be
    text.
    """
    usual = pickle._Unpickler.dispatch[opcode[0]]

    def fill(reader: Any) -> None:
        keys = reader.stack[-2:-1] if opcode == pickle.SETITEM else reader.stack[::2]
        for key in keys:
            if type(key) is not str:
                content = f"a dict with {_describe(key)} for a key"
                raise DataFileError(
                    reader.path, f"{_EXPECTED}; found {content}.", _REMEDY
                )
        usual(reader)

    return fill


def _read_bytearray(reader: Any) -> None:
    """BYTEARRAY8 makes room before it reads: not for more than the file has."""
    (size,) = struct.unpack("<Q", reader.read(8))
    if size > reader.size:
        raise pickle.UnpicklingError(
            f"{size} bytes announced in a file of {reader.size}"
        )
    reader.append(bytearray(reader.read(size)))


_Reader.dispatch |= {opcode[0]: _check_keys(opcode) for opcode in _FILL_DICT}
_Reader.dispatch |= {opcode[0]: _refuse_set for opcode in _FILL_SET}
_Reader.dispatch[pickle.BYTEARRAY8[0]] = _read_bytearray


def open_pickle(path: Path) -> Arrays:
    """The arrays of the usual nested pairs, of one pair, or of a dict of arrays."""
    with report_damage(path, "a pickle of NumPy arrays"):
        return _name_arrays(path, _Reader(path).load())


def _name_arrays(path: Path, content: object) -> Arrays:
    if isinstance(content, _Array):
        return {NO_NAME: content.build()}
    if isinstance(content, dict):
        return {key: _build(path, value) for key, value in content.items()}
    if isinstance(content, (tuple, list)) and len(content) == 2:
        if isinstance(content[0], _Array):
            return _pair(path, content, "")
        if all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in content):
            return _pair(path, content[0], "val_") | _pair(path, content[1], "test_")
    raise DataFileError(path, f"{_EXPECTED}; found {_describe(content)}.", _REMEDY)


def _pair(path: Path, pair: Any, prefix: str) -> dict[str, AnyArray]:
    return {
        f"{prefix}logits": _build(path, pair[0]),
        f"{prefix}labels": _build(path, pair[1]),
    }


def _build(path: Path, value: object) -> AnyArray:
    if isinstance(value, _Array):
        return value.build()
    if isinstance(value, list) and all(type(item) in (int, float) for item in value):
        return np.array(value)
    raise DataFileError(path, f"{_EXPECTED}; found {_describe(value)} in it.", _REMEDY)


def _describe(value: object) -> str:
    kind = type(value).__name__.lstrip("_").lower()
    return (
        f"a {kind} of {len(value)}"
        if isinstance(value, (tuple, list, dict))
        else f"a {kind}"
    )
