"""Pickles as the field passes them round: ((val_logits, val_labels), (test_logits, test_labels)).

A pickle is a program, so none is run as it stands: every name that it looks up is answered from
the short list below, with stand-ins that only take notes. Arrays of plain numbers are built from
the notes afterwards. Any other name, and so any call that a pickle could do harm with, is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import NAMELESS, Arrays

_EXPECTED = "expected a pickle of ((val_logits, val_labels), (test_logits, test_labels))"
_REMEDY = "Save the arrays with `numpy.savez(path, logits=..., labels=...)`."


class _Dtype:
    """Notes of a dtype: its code (f4, i8, ...) and byte order."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def build(self) -> np.dtype[Any]:
        dtype = np.dtype(str(self.code))
        if dtype.kind not in "fiub":
            raise TypeError(f"an array of dtype {dtype} is not numbers")
        return dtype.newbyteorder(">") if self.order == ">" else dtype


class _Array:
    """Notes of an array: its bytes, dtype, shape and order."""

    def __init__(self, raw: Any = b"", dtype: Any = None, shape: Any = (), order: Any = "C"):
        self.raw, self.dtype, self.shape, self.order = raw, dtype, shape, order

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.dtype, fortran, self.raw = state
        self.order = "F" if fortran else "C"

    def build(self) -> NDArray[Any]:
        dtype = self.dtype.build()
        data = self.raw.encode("latin-1") if isinstance(self.raw, str) else self.raw
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"an array made of a {type(data).__name__} is not numbers")
        if len(data) != math.prod(self.shape) * dtype.itemsize:
            raise ValueError(f"{len(data)} bytes do not fill an array of shape {self.shape}")
        array = np.frombuffer(data, dtype)
        return array.reshape(self.shape, order="F" if self.order == "F" else "C")


def _stand_ins() -> dict[tuple[str, str], Any]:
    """What the names in an array's pickle are answered with.

    Made anew for every file, so that a pickle that writes on them changes nothing for the next.
    """
    known: dict[tuple[str, str], Any] = {
        ("numpy", "dtype"): lambda code, *rest: _Dtype(code),
        ("numpy", "ndarray"): None,  # only ever mentioned, never called
        ("_codecs", "encode"): lambda text, encoding: _encode(text, encoding),
    }
    for core in ("numpy.core", "numpy._core"):  # before and since NumPy 2
        known[f"{core}.multiarray", "_reconstruct"] = lambda *ignored: _Array()
        known[f"{core}.numeric", "_frombuffer"] = lambda *notes: _Array(*notes)
    return known


def _encode(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 spell bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it encodes as {encoding!r}")
    return text.encode("latin-1")


class _Reader(pickle.Unpickler):
    """An unpickler that knows the stand-ins and nothing else."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.BytesIO(path.read_bytes()), encoding="latin-1")
        self.path, self.known = path, _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise DataFileError(
                self.path,
                f"{_EXPECTED}; found {module}.{name}, which is not a NumPy array and was not run.",
                _REMEDY,
            )
        return self.known[module, name]


def open_pickle(path: Path) -> Arrays:
    """The arrays of the usual nested pairs, of one pair, or of a dict of arrays."""
    with damage_reported(path, "a pickle of NumPy arrays"):
        return _named(path, _Reader(path).load())


def _named(path: Path, content: object) -> Arrays:
    if isinstance(content, _Array):
        return {NAMELESS: content.build()}
    if isinstance(content, dict):
        return {str(key): _build(path, value) for key, value in content.items()}
    if isinstance(content, (tuple, list)) and len(content) == 2:
        if isinstance(content[0], _Array):
            return _pair(path, content, "")
        if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in content):
            return _pair(path, content[0], "val_") | _pair(path, content[1], "test_")
    raise DataFileError(path, f"{_EXPECTED}; found {_describe(content)}.", _REMEDY)


def _pair(path: Path, pair: Any, prefix: str) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}logits": _build(path, pair[0]),
        f"{prefix}labels": _build(path, pair[1]),
    }


def _build(path: Path, value: object) -> NDArray[Any]:
    if isinstance(value, _Array):
        return value.build()
    if isinstance(value, list) and all(type(item) in (int, float) for item in value):
        return np.array(value)
    raise DataFileError(path, f"{_EXPECTED}; found {_describe(value)} in it.", _REMEDY)


def _describe(value: object) -> str:
    kind = type(value).__name__.lstrip("_").lower()
    return f"a {kind} of {len(value)}" if isinstance(value, (tuple, list, dict)) else f"a {kind}"
