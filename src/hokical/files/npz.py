"""`.npz`: NumPy's archives of named arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import Arrays, LazyArrays

_KIND = "a NumPy archive (.npz)"


def open_npz(path: Path) -> Arrays:
    """The archive's arrays by name, each read when asked for. Objects are refused."""
    with damage_reported(path, _KIND), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
    if not names and any(name.endswith("/data.pkl") for name in members):
        raise DataFileError(
            path,
            f"expected {_KIND}; found a PyTorch file.",
            "Save with `numpy.savez(path, logits=logits.numpy(), labels=labels.numpy())`.",
        )
    return LazyArrays(names, lambda name: _read_member(path, name))


def _read_member(path: Path, name: str) -> NDArray[Any]:
    with damage_reported(path, _KIND), np.load(path, allow_pickle=False) as stored:
        try:
            return np.asarray(stored[name])
        except ValueError as error:
            if "Object arrays" not in str(error):
                raise
            raise DataFileError(
                path,
                f"expected numbers in `{name}`; found Python objects, which are not read.",
                "Convert with `.astype(float)`, rows of equal length, and save again.",
            ) from error
