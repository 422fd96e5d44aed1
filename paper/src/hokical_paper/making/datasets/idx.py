"""IDX, the format of MNIST: a magic number, the array's shape, then its bytes."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage

_UNSIGNED_BYTE = 8


def parse_idx(content: bytes, source: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes."""
    with report_damage(source, "an IDX file"):
        zero, kind, n_sides = struct.unpack(">HBB", content[:4])
        shape = struct.unpack(f">{n_sides}I", content[4 : 4 + 4 * n_sides])
    size = len(content) - 4 - 4 * n_sides
    if zero != 0 or kind != _UNSIGNED_BYTE or size != math.prod(shape):
        raise DataFileError(
            source,
            f"expected an IDX file of unsigned bytes; found type {kind}, shape {shape} "
            f"and {size} bytes.",
            "Download it again.",
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n_sides).reshape(shape)


def read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read `name`, or `name`.gz, from a folder."""
    path = folder / name
    if path.exists():
        return parse_idx(path.read_bytes(), path)
    packed = folder / f"{name}.gz"
    with report_damage(packed, "a gzip file"):
        content = gzip.decompress(packed.read_bytes())
    return parse_idx(content, packed)
