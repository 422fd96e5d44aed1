"""Labelled images: a canonical order, a checksum, and the seeded split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical_paper.suite.pair_data import portable_permutation

Images = NDArray[np.uint8]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images (n, height, width, channels) and labels (n,)."""

    images: Images
    labels: IntArray

    def __len__(self) -> int:
        return int(self.labels.size)

    @classmethod
    def sort(cls, images: Images, labels: IntArray) -> LabelledImages:
        """The examples in the order of their digests.

        Copies of a data set have different orders. After sorting they are the same
        array, so a seed gives the same split and the same training with all of them.
        """
        images = np.ascontiguousarray(images, np.uint8)
        labels = np.asarray(labels, np.int64)
        order = np.argsort(_row_digests(images, labels), kind="stable")
        return cls(images[order], labels[order])

    def take(self, rows: IntArray) -> LabelledImages:
        return LabelledImages(self.images[rows], self.labels[rows])

    def sha256(self) -> str:
        """SHA-256 of all pixels and labels."""
        total = hashlib.sha256(np.ascontiguousarray(self.images).data)
        total.update(self.labels.astype("<i8").tobytes())
        return total.hexdigest()


@dataclass(frozen=True, eq=False)
class DataSet:
    """The training and test examples of a data set, sorted."""

    name: str
    train: LabelledImages
    test: LabelledImages

    @property
    def n_classes(self) -> int:
        return int(self.train.labels.max()) + 1


@dataclass(frozen=True, eq=False)
class Split:
    """Examples to train the network, to fit calibrators, and to test both."""

    train: LabelledImages
    val: LabelledImages
    test: LabelledImages


def split(data: DataSet, *, n_val: int, seed: int) -> Split:
    """Split off `n_val` of the training examples, the same on every machine.

    >>> import numpy as np
    >>> pixels = np.arange(12, dtype=np.uint8).reshape(6, 1, 2, 1)
    >>> part = LabelledImages.sort(pixels, np.arange(6))
    >>> cut = split(DataSet("toy", part, part), n_val=2, seed=0)
    >>> len(cut.train), len(cut.val), len(cut.test)
    (4, 2, 6)
    """
    if not 0 < n_val < len(data.train):
        raise ValueError(
            f"`n_val` must be between 1 and {len(data.train) - 1}, so that examples "
            f"for training remain; got {n_val}."
        )
    order = portable_permutation(len(data.train), seed)
    return Split(
        data.train.take(order[n_val:]), data.train.take(order[:n_val]), data.test
    )


def _row_digests(images: Images, labels: IntArray) -> NDArray[np.bytes_]:
    """Digests (n,) of 16 bytes as text, because NumPy's byte strings lose trailing
    zeros.
    """
    rows = images.reshape(len(images), -1)
    digests = [
        hashlib.sha256(row.tobytes() + label.tobytes()).hexdigest()[:32].encode()
        for row, label in zip(rows, labels.astype("<i8"), strict=True)
    ]
    return np.array(digests)
