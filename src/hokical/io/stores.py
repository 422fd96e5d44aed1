"""Named arrays in files that need a library: safetensors (extra `safetensors`), Zarr (`zarr`)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io.errors import DataFileError, import_reader, objects_error, report_damage
from hokical.io.names import NAMELESS, Arrays, LazyArrays

_SAFETENSORS, _ZARR = "a safetensors file", "a Zarr store"


def open_safetensors(path: Path) -> Arrays:
    """The file's tensors by name, each read when asked for."""
    library = import_reader(path, "safetensors", _SAFETENSORS, "safetensors")

    def read(name: str) -> NDArray[Any]:
        with (
            report_damage(path, _SAFETENSORS),
            library.safe_open(path, framework="numpy") as stored,
        ):
            kind = stored.get_slice(name).get_dtype()
            if kind.startswith(("BF16", "F8")):  # NumPy has no such numbers
                raise DataFileError(
                    path,
                    f"expected `{name}` as F16, F32 or F64; found {kind}.",
                    "Save with `tensor.float()`.",
                )
            return np.asarray(stored.get_tensor(name))

    with report_damage(path, _SAFETENSORS), library.safe_open(path, framework="numpy") as stored:
        return LazyArrays(list(stored.keys()), read)


def open_zarr(path: Path) -> Arrays:
    """The arrays of a group by name, or the one array, nameless; read chunk by chunk."""
    library = import_reader(path, "zarr", _ZARR, "zarr")
    with report_damage(path, _ZARR):
        stored: Any = library.open(str(path), mode="r")
        if hasattr(stored, "shape"):
            return LazyArrays([NAMELESS], lambda name: _check_array(path, name, stored))
        names = list(stored.array_keys())

    def read(name: str) -> Any:
        with report_damage(path, _ZARR):
            return _check_array(path, name, stored[name])

    return LazyArrays(names, read)


def _check_array(path: Path, name: str, array: Any) -> Any:
    """Refuse, by the metadata alone, what could run code or is not all there."""
    codecs = {getattr(codec, "codec_id", "") for codec in (*array.filters, *array.compressors)}
    kind = np.dtype(array.dtype).kind
    if kind not in "fiub" or "pickle" in codecs:
        raise objects_error(path, f"numbers in `{name}`")
    # Zarr does not store chunks of zeros. In labels and padding they are meant, in rows of logits
    # they are a loss.
    if kind == "f" and array.ndim == 2 and array.nchunks_initialized < array.nchunks:
        missing = array.nchunks - array.nchunks_initialized
        raise DataFileError(
            path,
            f"expected all {array.nchunks} chunks of `{name}`; {missing} are missing.",
            "Copy or save the store again.",
        )
    return array
