"""A set of labelled images: one order for all sources, a digest, and the seeded split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    def sorted(cls, images: Images, labels: IntArray) -> LabelledImages:
        """The same examples in the order of their digests.

        Copies of a data set come in different orders. Sorted, they are the same array, so a seed
        means the same split and the same training on all of them.
        """
        images = np.ascontiguousarray(images, np.uint8)
        labels = np.asarray(labels, np.int64)
        order = np.argsort(_row_digests(images, labels), kind="stable")
        return cls(images[order], labels[order])

    def take(self, rows: IntArray) -> LabelledImages:
        return LabelledImages(self.images[rows], self.labels[rows])

    def sha256(self) -> str:
        """Of all pixels and labels."""
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
    """What a network learns from, what calibrators learn from, and what measures both."""

    train: LabelledImages
    val: LabelledImages
    test: LabelledImages


def split(data: DataSet, *, n_val: int, seed: int) -> Split:
    """Put `n_val` of the training examples aside, the same ones on every machine.

    >>> import numpy as np
    >>> pixels = np.arange(12, dtype=np.uint8).reshape(6, 1, 2, 1)
    >>> part = LabelledImages.sorted(pixels, np.arange(6))
    >>> cut = split(DataSet("toy", part, part), n_val=2, seed=0)
    >>> len(cut.train), len(cut.val), len(cut.test)
    (4, 2, 6)
    """
    if not 0 < n_val < len(data.train):
        raise ValueError(
            f"`n_val` must lie between 1 and {len(data.train) - 1}, so that something is left to "
            f"learn from; got {n_val}."
        )
    order = portable_permutation(len(data.train), seed)
    return Split(data.train.take(order[n_val:]), data.train.take(order[:n_val]), data.test)


def portable_permutation(n: int, seed: int) -> IntArray:
    """A permutation (n,) that no version of NumPy changes: PCG64's raw words, sorted."""
    return np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")


def _row_digests(images: Images, labels: IntArray) -> NDArray[np.bytes_]:
    """(n,) digests of 16 bytes, as text: fixed-length bytes lose trailing zeros."""
    rows = images.reshape(len(images), -1)
    digests = [
        hashlib.sha256(row.tobytes() + label.tobytes()).hexdigest()[:32].encode()
        for row, label in zip(rows, labels.astype("<i8"), strict=True)
    ]
    return np.array(digests)
