"""`.npy`: one array without a name, left on disk and mapped into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import NAMELESS, Arrays


def open_npy(path: Path) -> Arrays:
    """The file's one array, nameless. Objects are refused."""
    with damage_reported(path, "a NumPy array (.npy)"):
        try:
            return {NAMELESS: _load(path)}
        except ValueError as error:
            if "object" not in str(error).lower():
                raise
            raise DataFileError(
                path,
                "expected an array of numbers; found Python objects, which are not read.",
                "Convert with `.astype(float)`, rows of equal length, and save again.",
            ) from error


def _load(path: Path) -> np.ndarray:
    """Mapped, so that logits larger than memory can be read; an empty array cannot be mapped."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError as error:
        if "empty file" not in str(error) and "mmap length" not in str(error):
            raise
        return np.asarray(np.load(path, allow_pickle=False))
