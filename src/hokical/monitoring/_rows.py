"""The rows that a monitor keeps, and labels that may be missing."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index
from hokical._core.labels import as_labels
from hokical._core.reading import to_numpy
from hokical._core.storage import pack_array, storable
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray


@storable("monitor-labelled")
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Confidence, whether it was right and the predicted class, (n,) each, and group codes.

    The class is -1 where it is not known, and so are `groups` (n, columns).
    """

    confidence: FloatArray
    correct: BoolArray
    predicted: IntArray
    groups: IntArray

    def __post_init__(self) -> None:
        if len({len(part) for part in vars(self).values()}) > 1:
            raise ValueError("the arrays of labelled rows must have one length.")
        if not ((self.confidence >= 0.0) & (self.confidence <= 1.0)).all():
            raise ValueError("`confidence` must lie in [0, 1].")

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the rows, by a mask, a slice or by number."""
        return type(self)(**{name: part[rows] for name, part in vars(self).items()})

    def append(self, more: Self, size: int) -> Self:
        """The newest `size` rows of both."""
        pairs = ((name, (own, getattr(more, name))) for name, own in vars(self).items())
        return type(self)(**{name: np.concatenate(pair)[-size:] for name, pair in pairs})

    def __len__(self) -> int:
        return len(self.confidence)

    def to_stored(self) -> dict[str, Any]:
        return {name: pack_array(part) for name, part in vars(self).items()}

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """No rows, with so many columns of groups."""
        nothing = np.zeros(0, int)
        return cls(np.zeros(0), nothing > 0, nothing, np.zeros((0, n_columns), int))

    def ece(self, n_bins: int) -> float:
        """The expected calibration error in bins of equal width."""
        gap = np.bincount(bin_index(self.confidence, n_bins), self.correct - self.confidence)
        return min(float(np.abs(gap).sum()) / len(self), 1.0)

    @property
    def brier(self) -> float:
        """The mean squared difference between confidence and right or wrong."""
        return float(((self.correct - self.confidence) ** 2).mean())

    def shares(self, bin_: int | None = None, n_bins: int = 1) -> tuple[float, float]:
        """Mean confidence and accuracy, of a bin or of all rows; NaN where there are none."""
        own = self if bin_ is None else self.take(bin_index(self.confidence, n_bins) == bin_)
        if not len(own):
            return np.nan, np.nan
        return float(own.confidence.mean()), float(own.correct.mean())


def as_partial_labels(
    labels: Any, n_rows: int, n_classes: int, names: Sequence[Any] = (), name: str = "labels"
) -> IntArray:
    """Checked labels (n,), numbers or names of classes; -1 where they are None, NaN or -1."""
    found = np.full(n_rows, -1)
    if labels is None:
        return found
    array = np.atleast_1d(to_numpy(labels, name))
    if array.shape != (n_rows,):
        return as_labels(array, n_rows, n_classes, name=name)  # which raises
    known = np.array([each is not None and each == each and each != -1 for each in array.tolist()])
    given = array[known]
    if given.dtype.kind == "f" and (given == np.floor(given)).all():  # next to NaN, integers are
        given = given.astype(np.int64)
    found[known] = as_labels(given, given.size, n_classes, name=name, classes=names)
    return found


def has_no_rows(batch: Any) -> bool:
    """Whether an array, a `TopK` or a list holds nothing."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return tuple(shape[:1]) == (0,)
    return isinstance(batch, Sized) and len(batch) == 0
