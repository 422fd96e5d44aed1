"""From a path, a folder, a dataset or chunks to a source, whatever the format."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.arrays import library_of
from hokical.io import _names as spelling
from hokical.io._datasets import TableSource
from hokical.io._errors import DataFileError, report_file
from hokical.io._labelled import FileArrays, Location, labels_beside, read_examples
from hokical.io._names import Arrays, FileSplit, Wanted
from hokical.io._numpy_files import map_npz, open_npy
from hokical.io._sniff import find_format
from hokical.io._sources import ArraySource, ChunkSource, from_arrays, from_chunks

_WILD = frozenset("*?[")
#: Libraries of arrays on disk, which are read a slice at a time.
_SLICED = ("zarr", "h5py")


def as_source(data: Any) -> ChunkSource:
    """A source from a path, a pyarrow Dataset or Table, a Zarr or HDF5 array, or `from_chunks`."""
    if isinstance(data, (str, os.PathLike)) or library_of(data) == "pyarrow":
        return open_source(data)
    return from_arrays(data) if library_of(data) in _SLICED else from_chunks(data)


def open_source(
    data: Any,
    *,
    split: FileSplit = "val",
    labels: Location | None = None,
    classes: tuple[str, ...] = (),
) -> ChunkSource:
    """A source that reads a file, or all files of a folder, a chunk at a time.

    Parameters
    ----------
    data : path, list of paths, pyarrow Dataset or Table
        `.npy` and `.npz` (mapped into memory where they are not compressed),
        `.parquet`: one file, a folder of them, or a pattern such as "scores/*.parquet". Other
        formats are read at once. Subfolders called `name=value` are columns, such as `split=val`.
    split : {"val", "test"}
        Which part, if the data has parts, as in `hokical.io.read_examples`.
    labels : path, optional
        Another file with the labels, for `.npy` and `.npz`.
    classes : tuple of str
        Columns of a table with these names, in this order, are the logits.

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
    options: dict[str, Any] = {"split": split, "classes": classes}
    if library_of(data) == "pyarrow":
        return TableSource.of_dataset(data, **options)
    if not isinstance(data, (str, os.PathLike)):
        return TableSource.of_files(data, **options)
    path = Path(data)
    if is_pattern(path):
        return TableSource.of_files(matching_files(path), **options)
    if path.is_dir():
        return _open_folder(path, **options)
    kind = find_format(path)
    if kind == "parquet":
        return TableSource.of_files([path], **options)
    if kind in ("npy", "npz"):
        return _map_arrays(path, split, labels)
    found = read_examples(
        path, split=split, labels=labels, wanted=Wanted(classes=classes, keep=None)
    )
    source = ArraySource(found.logits.values, found.labels, found.weights, path=path)
    source.classes, source.set_aside = found.classes, tuple(found.kept)
    return source


def map_file(path: Path) -> Arrays:
    """The arrays of a `.npy` or `.npz` file by name, left on disk."""
    kind = find_format(path)
    if kind not in ("npy", "npz"):
        raise DataFileError(
            path,
            f"arrays are mapped from .npz and .npy files; found {kind}.",
            "Save them with `np.savez(path, logits=..., labels=...)`.",
        )
    return open_npy(path) if kind == "npy" else map_npz(path)


def _map_arrays(path: Path, split: FileSplit, labels: Location | None) -> ChunkSource:
    found = FileArrays(path, split, labels, map_file)
    truth = found.find_labels()[1]
    if isinstance(truth, np.ndarray) and truth.dtype.kind not in "iub":
        truth = spelling.tidy_labels(truth)
    with report_file(path, "Check the arrays, or copy the data again."):
        return ArraySource(found.logits, truth, found.weights, path=path)


def _open_folder(path: Path, **options: Any) -> ChunkSource:
    files = parquet_files(path)
    if not files:
        raise DataFileError(path, "expected a folder of .parquet files; found none.")
    partitioned = any("=" in part for part in files[0].relative_to(path).parts[:-1])
    return TableSource.of_files(files, path if partitioned else None, **options)


def files_read(path: Path) -> Iterator[Path]:
    """The files that are read where a path is given: those of a folder, labels beside logits."""
    if is_pattern(path):
        yield from matching_files(path)
    elif path.is_dir():
        yield from parquet_files(path)
    else:
        yield path
        if path.suffix in (".npy", ".csv"):  # others have labels in themselves
            yield labels_beside(path)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder and its subfolders, by name."""
    return sorted(
        path
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


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
