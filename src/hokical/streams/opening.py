"""From a path, a folder or a dataset to a source, whatever the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hokical.files.errors import DataFileError
from hokical.files.lazy import NAMELESS, Arrays
from hokical.files.names import Split, choose, choose_labels
from hokical.files.npy import open_npy
from hokical.files.reading import labels_beside, read_examples, tidy_labels
from hokical.files.sniff import find_format
from hokical.streams.archives import open_members
from hokical.streams.datasets import DatasetSource, ParquetSource, is_arrow, partitioned
from hokical.streams.sources import ArraySource, Source

_WILD = frozenset("*?[")
#: What marks the folder of a Zarr array or group.
_ZARR = ("zarr.json", ".zarray", ".zgroup")


def open_source(
    data: Any, *, split: Split = "val", labels: str | os.PathLike[str] | None = None
) -> Source:
    """A source that reads a file, or all files of a folder, a chunk at a time.

    Parameters
    ----------
    data : path, list of paths, pyarrow Dataset or Table
        `.npy` and `.npz` (mapped into memory where they are not compressed), a Zarr folder,
        `.parquet`: one file, a folder of them, or a pattern such as "scores/*.parquet". Formats
        that cannot be read in parts (.csv, .safetensors, pickles) are read at once. A folder whose
        folders are called `name=value` has these as columns; so `split=val` is the column `split`.
    split : {"val", "test"}
        Which part, if a file has parts.
    labels : path, optional
        Another file with the labels (for `.npy`, `.npz` and Zarr).

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "val_logits.npy", np.zeros((10, 3)))
    >>> np.save(folder / "val_labels.npy", np.zeros(10, int))
    >>> open_source(folder / "val_logits.npy").n_rows
    10
    """
    if is_arrow(data):
        return DatasetSource(data, split=split)
    if not isinstance(data, (str, os.PathLike)):
        return ParquetSource(data, split=split)
    path = Path(data)
    if is_pattern(path):
        return ParquetSource(matching_files(path), split=split)
    if path.is_dir():
        return _open_folder(path, split, labels)
    kind = find_format(path)
    if kind == "parquet":
        return ParquetSource([path], split=split)
    if kind in ("npy", "npz"):
        return _from_named(path, _named_arrays(path), split, labels)
    found = read_examples(path, split=split, labels=labels)
    return ArraySource(found.logits.values, found.labels, found.weights)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder and the folders in it, by name."""
    return sorted(
        path
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def _open_folder(path: Path, split: Split, labels: str | os.PathLike[str] | None) -> Source:
    if any((path / name).exists() for name in _ZARR):
        from hokical.streams.zarrs import zarr_arrays

        return _from_named(path, zarr_arrays(path), split, labels)
    files = parquet_files(path)
    if not files:
        raise DataFileError(
            path, "expected a folder of .parquet files or a Zarr store; found neither."
        )
    if any("=" in part for part in files[0].relative_to(path).parts[:-1]):
        return DatasetSource(partitioned(files, path), split=split)
    return ParquetSource(files, split=split)


def is_pattern(path: Path) -> bool:
    """Whether a path is meant to match several files."""
    return bool(_WILD & set(str(path))) and not path.exists()


def matching_files(pattern: Path) -> list[Path]:
    """The files that match, by name."""
    base = Path(pattern.anchor) if pattern.is_absolute() else Path()
    files = sorted(base.glob(str(pattern.relative_to(base))))
    if not files:
        raise DataFileError(pattern, "no file matches.", "Check the name and the folder.")
    return files


def _named_arrays(path: Path) -> Arrays:
    return open_npy(path) if find_format(path) == "npy" else open_members(path)


def _from_named(
    path: Path, arrays: Arrays, split: Split, labels: str | os.PathLike[str] | None
) -> Source:
    chosen = choose(path, arrays, split)
    beside = labels_beside(path, labels, nameless=chosen.logits == NAMELESS)
    truth: Any = None
    if beside is not None:
        others = _named_arrays(beside)
        truth = others[choose_labels(beside, others, split)]
    elif chosen.labels is not None:
        truth = arrays[chosen.labels]
    if isinstance(truth, np.ndarray) and truth.dtype.kind not in "iub":
        truth = tidy_labels(truth)
    weights = None if chosen.weights is None else arrays[chosen.weights]
    return ArraySource(arrays[chosen.logits], truth, weights)
