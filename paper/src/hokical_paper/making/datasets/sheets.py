"""Images as lossless WebP sheets in .npz parts, half the size of an .npz of pixels.

A part `<name>_webp_part<i>of<k>.npz` has `webp` (the bytes of all sheets), `offsets`
(sheet j is bytes offsets[j] to offsets[j + 1]), `y` (labels) and `start` (index of the
part's first image). A sheet has up to 2000 images of 32 x 32, 25 in a row. The parts
together have the training images, followed by the 10,000 test images.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core import thread_count
from hokical_paper.core.files import replace_file, report_damage

Pixels = NDArray[np.uint8]

_PER_ROW = 25
_PER_SHEET = 2000
_SIDE = 32


def sheet_parts(folder: Path, name: str) -> list[Path]:
    """The parts of a data set in a folder, in order; empty if some are missing."""
    paths = sorted(folder.glob(f"{name}_webp_part*of*.npz"))
    complete = paths and paths[0].stem.endswith(f"of{len(paths)}")
    return paths if complete else []


def read_sheets(parts: list[Path]) -> tuple[Pixels, NDArray[np.int64]]:
    """All images (n, 32, 32, 3) and labels (n,) of the parts."""
    images: list[Pixels] = []
    labels: list[NDArray[np.int64]] = []
    for part in parts:
        pixels, truth, start = _read_part(part)
        expected = sum(len(block) for block in images)
        if start != expected or len(pixels) != len(truth):
            raise DataFileError(
                part,
                f"expected images from {expected} on, one label each; found "
                f"{len(pixels)} images from {start} on and {len(truth)} labels.",
                "Copy all parts again.",
            )
        images.append(pixels)
        labels.append(truth)
    return np.concatenate(images), np.concatenate(labels)


def write_sheets(
    folder: Path, name: str, images: Pixels, labels: NDArray[np.int64]
) -> list[Path]:
    """Write images (n, 32, 32, 3) and labels as two parts."""
    starts = range(0, len(images), _PER_SHEET)
    with ThreadPoolExecutor(thread_count()) as pool:
        packed = list(
            pool.map(lambda start: _pack(images[start : start + _PER_SHEET]), starts)
        )
    middle = (len(packed) + 1) // 2
    paths = []
    for number, sheets in enumerate((slice(0, middle), slice(middle, None)), start=1):
        path = folder / f"{name}_webp_part{number}of2.npz"
        rows = slice((sheets.start or 0) * _PER_SHEET, number * middle * _PER_SHEET)
        _write_part(path, packed[sheets], labels[rows], rows.start)
        paths.append(path)
    return paths


def _write_part(
    path: Path, sheets: list[bytes], labels: NDArray[np.int64], start: int
) -> None:
    offsets = np.cumsum([0, *map(len, sheets)], dtype=np.int64)
    webp = np.frombuffer(b"".join(sheets), np.uint8)
    with replace_file(path) as stream:
        np.savez(
            stream, webp=webp, offsets=offsets, y=labels.astype(np.uint8), start=start
        )


def _read_part(path: Path) -> tuple[Pixels, NDArray[np.int64], int]:
    with report_damage(path, "WebP sheets in an .npz file"), open(path, "rb") as stream:
        file = np.load(stream)
        raw = file["webp"].tobytes()
        offsets = file["offsets"]
        sheets = [raw[a:b] for a, b in pairwise(offsets.tolist())]
        with ThreadPoolExecutor(thread_count()) as pool:
            images = np.concatenate(list(pool.map(_unpack, sheets)))
        return images, file["y"].astype(np.int64), int(file["start"])


def _unpack(sheet: bytes) -> Pixels:
    from PIL import Image

    with Image.open(io.BytesIO(sheet), formats=["WEBP"]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    grid = pixels.reshape(pixels.shape[0] // _SIDE, _SIDE, _PER_ROW, _SIDE, 3)
    return np.ascontiguousarray(grid.swapaxes(1, 2)).reshape(-1, _SIDE, _SIDE, 3)


def _pack(images: Pixels) -> bytes:
    from PIL import Image

    grid = images.reshape(-1, _PER_ROW, _SIDE, _SIDE, 3).swapaxes(1, 2)
    picture = Image.fromarray(
        np.ascontiguousarray(grid).reshape(-1, _PER_ROW * _SIDE, 3)
    )
    stream = io.BytesIO()
    picture.save(stream, "WEBP", lossless=True, quality=75, method=4)
    return stream.getvalue()
