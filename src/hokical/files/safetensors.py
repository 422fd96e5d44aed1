"""`.safetensors`: named tensors (extra `safetensors`)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import Arrays, LazyArrays

_KIND = "a safetensors file"


def open_safetensors(path: Path) -> Arrays:
    """The file's tensors by name, each read when asked for."""
    try:
        safe_open = import_module("safetensors").safe_open
    except ImportError as error:
        raise DataFileError(
            path,
            "is a safetensors file, for which a library is missing.",
            "Install it: pip install 'hokical[safetensors]'.",
        ) from error
    with damage_reported(path, _KIND), safe_open(path, framework="numpy") as stored:
        names = list(stored.keys())
    return LazyArrays(names, lambda name: _read_tensor(path, name))


def _read_tensor(path: Path, name: str) -> NDArray[Any]:
    safe_open = import_module("safetensors").safe_open
    with damage_reported(path, _KIND), safe_open(path, framework="numpy") as stored:
        kind = stored.get_slice(name).get_dtype()
        if kind.startswith(("BF16", "F8")):  # NumPy has no such numbers
            raise DataFileError(
                path,
                f"expected `{name}` as F16, F32 or F64; found {kind}.",
                "Save with `tensor.float()`.",
            )
        return np.asarray(stored.get_tensor(name))
