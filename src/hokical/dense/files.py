"""Dense arrays in files, left on disk until a slab of them is wanted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hokical.dense.positions import MASKS
from hokical.files.errors import DataFileError
from hokical.files.lazy import NAMELESS, Arrays
from hokical.files.names import Chosen, Split, choose, choose_labels, find_name
from hokical.files.npy import open_npy
from hokical.files.reading import labels_beside
from hokical.files.sniff import find_format
from hokical.files.topk import is_top_k
from hokical.streams.archives import PackedArray, open_members
from hokical.streams.zarrs import zarr_arrays


def open_dense(
    path: str | os.PathLike[str],
    *,
    split: Split = "val",
    labels: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """The arrays of a file, as the keyword arguments of `Dense.fit` and `from_dense`.

    Parameters
    ----------
    path : path
        A `.npz` archive or a Zarr store with `logits` and, where there are such, `labels`, `mask`
        (or `attention_mask`) and `sample_weight` (or `val_logits`, `test_logits`, `val_mask` and
        so on); or a `.npy` file of logits. Arrays are mapped into memory; members of a compressed
        archive are unpacked as a whole.
    split : {"val", "test"}
        Which part, if a file has parts.
    labels : path, optional
        Another file with the labels. `x_logits.npy` finds `x_labels.npy` by itself.

    Returns
    -------
    arrays : dict with `logits`, and `labels`, `mask` and `sample_weight` where there are such

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from hokical.dense import Dense, open_dense
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "maps.npz"
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=(4, 8, 8))
    >>> logits = rng.normal(size=(4, 8, 8, 3)) + 2 * np.eye(3)[labels]
    >>> np.savez(path, logits=logits, labels=labels, mask=labels > 0)
    >>> cal = Dense("temps").fit(**open_dense(path))
    >>> cal.predict(open_dense(path)["logits"]).shape
    (4, 8, 8)
    """
    return open_part(Path(path), split, labels)[0]


def open_part(
    where: Path, split: Split, labels: str | os.PathLike[str] | None
) -> tuple[dict[str, Any], Split | None]:
    """`open_dense`, and which part was chosen, None where a file has no parts."""
    arrays = _named_arrays(where)
    chosen = choose(where, arrays, split)
    if is_top_k(chosen.logits):  # their columns are ranks, not classes
        raise DataFileError(
            where,
            f"dense logits must be of all classes; found `{chosen.logits}`, the best of them.",
        )
    found = {
        "logits": _sliceable(arrays[chosen.logits]),
        "labels": _labels(where, arrays, chosen, split, labels),
        "mask": _mask(arrays, chosen),
        "sample_weight": None if chosen.weights is None else _sliceable(arrays[chosen.weights]),
    }
    return {name: array for name, array in found.items() if array is not None}, chosen.part


def _named_arrays(path: Path) -> Arrays:
    if path.is_dir():
        return zarr_arrays(path)
    kind = find_format(path)
    if kind == "npy":
        return open_npy(path)
    if kind == "npz":
        return open_members(path)
    raise DataFileError(
        path,
        f"dense logits are read from .npz and .npy files and Zarr stores; found {kind}.",
        "Save them with `np.savez(path, logits=..., labels=...)`.",
    )


def _labels(
    path: Path,
    arrays: Arrays,
    chosen: Chosen,
    split: Split,
    given: str | os.PathLike[str] | None,
) -> Any:
    beside = labels_beside(path, given, nameless=chosen.logits == NAMELESS)
    if beside is not None:
        others = _named_arrays(beside)
        return _sliceable(others[choose_labels(beside, others, split)])
    return None if chosen.labels is None else _sliceable(arrays[chosen.labels])


def _mask(arrays: Arrays, chosen: Chosen) -> Any:
    name = find_name(arrays, MASKS, chosen.part)
    return None if name is None else _sliceable(arrays[name])


def _sliceable(array: Any) -> Any:
    """An array that can be sliced along every axis; a compressed one only by its first."""
    return np.asarray(array[:]) if isinstance(array, PackedArray) else array
