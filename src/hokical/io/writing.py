"""Results into files that are whole or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hokical.core.files import replace_file
from hokical.io.errors import DataFileError


def write_npz(path: str | os.PathLike[str], **arrays: ArrayLike) -> None:
    """Write named arrays; an old file stays as it is until the new one is complete."""
    with replace_file(path) as stream:
        np.savez(stream, allow_pickle=False, **{name: np.asarray(a) for name, a in arrays.items()})


def check_output(
    path: Path, *, suffix: str | None = None, inputs: tuple[Path | None, ...] = ()
) -> None:
    """Refuse a place that cannot be written to, before the work is done and lost."""
    folder = path.parent
    if suffix is not None and path.suffix != suffix:
        raise DataFileError(path, f"expected an output name that ends in {suffix}.", "Rename it.")
    if not folder.is_dir():
        raise DataFileError(path, f"cannot be written: no folder {folder}.", "Make it first.")
    if path.exists() and not path.is_file():
        raise DataFileError(path, "cannot be written: it is not a file.", "Choose another name.")
    if not os.access(folder, os.W_OK):
        raise DataFileError(path, f"cannot be written: no right to write in {folder}.")
    if path.exists() and any(given and given.exists() and path.samefile(given) for given in inputs):
        raise DataFileError(path, "is an input too, and would be lost.", "Choose another name.")
