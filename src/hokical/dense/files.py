"""Dense arrays in files, left on disk until a slab of them is wanted."""

from pathlib import Path
from typing import Any

import numpy as np

from hokical.dense.positions import MASKS
from hokical.io.errors import DataFileError
from hokical.io.names import FileSplit, find_name
from hokical.io.numpy_files import PackedArray
from hokical.io.opening import map_file
from hokical.io.reading import FileArrays, Location, is_top_k


def open_dense(
    path: Location, *, split: FileSplit = "val", labels: Location | None = None
) -> dict[str, Any]:
    """The arrays of a file, as the keyword arguments of `Dense.fit` and `from_dense`.

    The file is a `.npz` archive or a Zarr store with `logits` and, where there are such, `labels`,
    `mask` (or `attention_mask`) and `sample_weight` (or `val_logits`, `val_mask` and so on: `split`
    says which part); or a `.npy` file of logits. Arrays are mapped; members of a compressed archive
    are unpacked. `labels` can be in another file; `x_logits.npy` finds `x_labels.npy` by itself.

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
    where: Path, split: FileSplit, labels: Location | None
) -> tuple[dict[str, Any], FileSplit | None]:
    """`open_dense`, and which part was chosen, None where a file has no parts."""
    found = FileArrays(where, split, labels, map_file)
    if is_top_k(found.names.logits):  # their columns are ranks, not classes
        raise DataFileError(
            where,
            f"dense logits must be of all classes; found `{found.names.logits}`, the best of them.",
        )
    mask = find_name(found.arrays, MASKS, found.names.part)
    arrays = {
        "logits": found.logits,
        "labels": found.find_labels()[1],
        "mask": None if mask is None else found.arrays[mask],
        "sample_weight": found.weights,
    }
    given = {  # a compressed array can be sliced by its first axis only
        name: np.asarray(array[:]) if isinstance(array, PackedArray) else array
        for name, array in arrays.items()
        if array is not None
    }
    return given, found.names.part
