"""Zarr stores (extra `zarr`): arrays that are read chunk by chunk."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import NAMELESS, Arrays, LazyArrays


def zarr_arrays(path: Path) -> Arrays:
    """The arrays of a group by name, or the one array, nameless."""
    try:
        zarr = import_module("zarr")
    except ImportError as error:
        raise DataFileError(
            path,
            "is a Zarr store, for which a library is missing.",
            "Install it: pip install 'hokical[zarr]'.",
        ) from error
    with damage_reported(path, "a Zarr store"):
        stored: Any = zarr.open(str(path), mode="r")
        if hasattr(stored, "shape"):
            return LazyArrays([NAMELESS], lambda name: stored)
        return LazyArrays(list(stored.array_keys()), lambda name: stored[name])
