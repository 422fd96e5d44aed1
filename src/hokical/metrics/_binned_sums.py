"""Per-bin sums that add up to the bit, in any order: what a monitor keeps of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, check_count, sum_by
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._calibration import gap_norm
from hokical.metrics._examples import as_examples
from hokical.metrics._levels import BinSums


@storable("binned-sums")
@dataclass(frozen=True, eq=False, repr=False)
class BinnedSums:
    """Per-bin sums of (confidence, correct): all that binned metrics need, and they add up.

    The sums of a stream's batches, or of many workers, add up to the sums of the whole. Unweighted
    (or with whole weights) they do so to the bit in any order, see `exact_sums`. `count`, `weight`
    and `correct` (J,) are the rows of each bin, their weight and that of the correct ones; the
    `_words` (3, J) are sums of confidence and of (correct - confidence)^2, in three words each.

    >>> morning = BinnedSums.from_examples([0.9, 0.8], [True, False], n_bins=10)
    >>> evening = BinnedSums.from_examples([0.85, 0.3], [True, True], n_bins=10)
    >>> day = morning + evening
    >>> day.count
    array([0, 0, 0, 1, 0, 0, 0, 0, 2, 1])
    >>> round(day.ece(), 6)
    0.3625
    """

    count: IntArray
    weight: FloatArray
    correct: FloatArray
    confidence_words: FloatArray
    error_words: FloatArray

    def __post_init__(self) -> None:
        for name, array in vars(self).items():
            shape = (3, self.n_bins) if name.endswith("_words") else (self.n_bins,)
            if array.shape != shape:
                raise ValueError(f"`{name}` must have shape {shape}; got {array.shape}.")

    @classmethod
    def from_examples(
        cls, confidence: Any, correct: Any, *, n_bins: int = 15, sample_weight: Any = None
    ) -> Self:
        """Sums of examples; arguments as in `ece`."""
        rows, n_bins = as_examples(confidence, correct, sample_weight), check_count(n_bins)
        index, weight = bin_index(rows.confidence, n_bins), rows.filled_weight()
        errors = (rows.correct - rows.confidence) ** 2
        return cls(
            np.bincount(index, minlength=n_bins).astype(np.int64),
            *(sum_by(index, part, n_bins) for part in (weight, weight * rows.correct)),
            *(exact_sums(index, part, n_bins, rows.weight) for part in (rows.confidence, errors)),
        )

    def to_stored(self) -> dict[str, Any]:
        """The fields."""
        return dict(vars(self))

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """From a file; those of 0.3 also hold sums of squared confidences and a kind of bins."""
        return cls(**{k: v for k, v in stored.items() if k not in ("square_words", "scheme")})

    def __add__(self, other: object) -> Self:
        if not isinstance(other, BinnedSums):
            return NotImplemented
        if self.n_bins != other.n_bins:
            raise ValueError(
                "binned sums must have the same `n_bins` to be added; got "
                f"{self.n_bins} and {other.n_bins}."
            )
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(own + more for own, more in pairs))

    def __repr__(self) -> str:
        return f"BinnedSums(n_bins={self.n_bins}, total_weight={self.total_weight:g})"

    @property
    def n_bins(self) -> int:
        return int(self.count.shape[0])

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the number of examples if unweighted."""
        return float(self.weight.sum())

    @property
    def gap(self) -> FloatArray:
        """Sum of correct - confidence in each bin, (J,)."""
        # Large words first, so that equal confidence and accuracy cancel exactly.
        words = self.confidence_words
        return np.asarray(((self.correct - words[0]) - words[1]) - words[2])

    @property
    def accuracy(self) -> FloatArray:
        """Share of correct examples in each bin, (J,), NaN where it is empty."""
        return _ratio(self.correct, self.weight)

    @property
    def mean_confidence(self) -> FloatArray:
        """Mean confidence of each bin, (J,), NaN where it is empty."""
        return _ratio(total(self.confidence_words), self.weight)

    @property
    def overall_accuracy(self) -> float:
        """Share of correct examples over all bins."""
        return float(self.correct.sum() / self.total_weight)

    @property
    def overall_confidence(self) -> float:
        """Mean confidence over all bins."""
        return self._mean(self.confidence_words)

    def ece(self) -> float:
        """See `ece`."""
        return float(gap_norm(BinSums(self.gap, self.weight, self.correct)))

    def brier(self) -> float:
        """See `brier`."""
        return self._mean(self.error_words)

    def _mean(self, words: FloatArray) -> float:
        return float(total(words.sum(axis=1)) / self.total_weight)


def exact_sums(
    group: IntArray, values: FloatArray, n_groups: int, weight: FloatArray | None = None
) -> FloatArray:
    """Sum of values in [0, 1] by group, as three words (3, n_groups) whose total is the sum.

    Floating-point addition is not associative: other batches would give another last digit. So each
    value is rounded to 2^-54 (which leaves 1/4 or more unchanged, and changes others by less than
    1e-16) and split into multiples of 2^-18, 2^-36 and 2^-54. A word's sum is one of small
    integers, exact in float64 up to 2^35 examples in one group; beyond that, or with fractional
    weights, sums are right to rounding but may depend on the order.

    >>> words = exact_sums(np.array([0, 0, 1]), np.array([0.1, 0.2, 1.0]), 2)
    >>> total(words)
    array([0.3, 1. ])
    """
    words = np.empty((3, n_groups))
    left = np.rint(values * 2.0**54)
    for place, unit in enumerate((2.0**36, 2.0**18, 1.0)):
        whole = np.floor(left / unit) * unit
        left -= whole
        word = whole * 2.0**-54
        words[place] = np.bincount(group, word if weight is None else word * weight, n_groups)
    return words


def total(words: FloatArray) -> FloatArray:
    """The sums (..., n_groups), small words first so that little is lost."""
    return np.asarray(words[0] + (words[1] + words[2]))


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
