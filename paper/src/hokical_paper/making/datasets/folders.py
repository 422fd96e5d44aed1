"""Read torchvision's folders of data sets."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage
from hokical_paper.making.datasets.idx import read_idx
from hokical_paper.making.datasets.npm import DataArrays

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]

#: Folder, files of the training set, file of the test set, key of the labels.
_CIFAR: dict[str, tuple[str, list[str], str, str]] = {
    "cifar10": (
        "cifar-10-batches-py",
        [f"data_batch_{i}" for i in range(1, 6)],
        "test_batch",
        "labels",
    ),
    "cifar100": ("cifar-100-python", ["train"], "test", "fine_labels"),
}


def find_folder(root: Path, name: str) -> Path | None:
    """Torchvision's folder of a data set below its root, or None."""
    folder = root / "MNIST" / "raw" if name == "mnist" else root / _CIFAR[name][0]
    return folder if folder.is_dir() else None


def read_folder(folder: Path, name: str) -> DataArrays:
    """Images (n, height, width, channels) and labels (n,) in torchvision's folder."""
    if name == "mnist":
        return *_mnist_part(folder, "train"), *_mnist_part(folder, "t10k")
    _, train, test, key = _CIFAR[name]
    batches = [_cifar_batch(folder / file, key) for file in train]
    images, labels = zip(*batches, strict=True)
    return (
        np.concatenate(images),
        np.concatenate(labels),
        *_cifar_batch(folder / test, key),
    )


def _mnist_part(folder: Path, prefix: str) -> Part:
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte").astype(np.int64)
    return read_idx(folder, f"{prefix}-images-idx3-ubyte")[..., None], labels


def _cifar_batch(path: Path, key: str) -> Part:
    with report_damage(path, "a batch of CIFAR images"):
        content = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="latin-1").load()
        rows = np.asarray(content["data"], np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(content[key], np.int64)
    if len(rows) != len(labels):
        raise DataFileError(path, f"found {len(rows)} images and {len(labels)} labels.")
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1)), labels


class _ArraysOnly(pickle.Unpickler):
    """CIFAR is distributed as pickles. Loading one may create arrays and run nothing
    else.
    """

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        allowed = {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(
                f"{module}.{name} is not an array and was not loaded"
            )
        return super().find_class(module, name)
