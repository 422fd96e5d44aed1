"""Per-bin sums that add up, and the calibration errors that they give.

Equal-width bins are [j/J, (j+1)/J), the last one closed: 0.0 is in the first and 1.0 in the last.
With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from hokical._core.bins import bin_index, check_count, sum_by
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._examples import Examples, as_examples, check_norm

Bins = Literal["width", "mass"]


@storable("binned-sums")
@dataclass(frozen=True, eq=False, repr=False)
class BinnedSums:
    """Per-bin sums of (confidence, correct): all that binned metrics need, and they add up.

    The sums of a stream's batches, or of many workers, add up to the sums of the whole. Unweighted
    (or with whole weights) they do so to the bit in any order, see `exact_sums`. `count`, `weight`
    and `correct` (J,) are the rows of each bin, their weight and that of the correct ones; the
    `_words` (3, J) are sums of confidence and of (correct - confidence)^2, in three words each.
    Bins of `scheme` "mass" depend on the data, so their sums do not add up.

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
    scheme: Bins = "width"

    def __post_init__(self) -> None:
        for name, array in list(vars(self).items())[:-1]:
            shape = (3, self.n_bins) if name.endswith("_words") else (self.n_bins,)
            if array.shape != shape:
                raise ValueError(f"`{name}` must have shape {shape}; got {array.shape}.")

    @classmethod
    def from_examples(
        cls,
        confidence: Any,
        correct: Any,
        *,
        n_bins: int = 15,
        bins: Bins = "width",
        sample_weight: Any = None,
    ) -> Self:
        """Sums of examples; arguments as in `ece`."""
        rows = as_examples(confidence, correct, sample_weight)
        return cls.from_rows(rows, n_bins, bins)

    @classmethod
    def from_rows(cls, rows: Examples, n_bins: int, bins: Bins = "width") -> Self:
        """Sums of examples that were checked."""
        n_bins = check_count(n_bins)
        index = _bin_examples(rows, n_bins, bins)
        first = _first_sums(rows, index, n_bins)
        errors = exact_sums(index, (rows.correct - rows.confidence) ** 2, n_bins, rows.weight)
        count = np.bincount(index, minlength=n_bins).astype(np.int64)
        return cls(count, first[0], first[1], first[2:], errors, bins)

    def to_stored(self) -> dict[str, Any]:
        """The fields."""
        return dict(vars(self))

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """From a file; those of 0.3 also hold sums of squared confidences."""
        stored.pop("square_words", None)
        return cls(**stored)

    def __add__(self, other: object) -> Self:
        if not isinstance(other, BinnedSums):
            return NotImplemented
        if self.scheme != "width" or other.scheme != "width":
            raise ValueError(
                "only sums over equal-width bins add up, as equal-mass bins depend on the data. "
                'Make both with bins="width".'
            )
        if self.n_bins != other.n_bins:
            raise ValueError(
                "binned sums must have the same `n_bins` to be added; got "
                f"{self.n_bins} and {other.n_bins}."
            )
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(own + more for own, more in list(pairs)[:-1]))

    def __repr__(self) -> str:
        size = f"n_bins={self.n_bins}, total_weight={self.total_weight:g}"
        return f"BinnedSums({size}, scheme={self.scheme!r})"

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
        return gap_from_words(self.correct, self.confidence_words)

    @property
    def gap_sums(self) -> GapSums:
        """What calibration errors need."""
        return GapSums(self.gap, self.weight, self.correct)

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

    def ece(self, *, norm: float = 1) -> float:
        """See `ece`."""
        return float(gap_norm(self.gap, self.weight, check_norm(norm)))

    def debiased_ece(self) -> float:
        """See `debiased_ece`."""
        return float(debiased_error(*self.gap_sums))

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


class GapSums(NamedTuple):
    """Sums of correct - confidence, of weight and of correct by bin, (..., J) each."""

    gap: FloatArray
    weight: FloatArray
    correct: FloatArray

    @classmethod
    def from_table(cls, table: FloatArray) -> Self:
        """From what `gap_table` counted."""
        return cls(gap_from_words(table[1], table[2:]), table[0], table[1])


def gap_table(rows: Examples, n_bins: int, bins: Bins) -> FloatArray:
    """Weight, correct and the words of confidence by bin, (5, J); tables of equal width add up."""
    return _first_sums(rows, _bin_examples(rows, n_bins, bins), n_bins)


def gap_from_words(correct: FloatArray, words: FloatArray) -> FloatArray:
    """Sum of correct - confidence, from `correct` (..., J) and words of confidence (3, ..., J)."""
    # Large words first, so that equal confidence and accuracy cancel exactly.
    return np.asarray(((correct - words[0]) - words[1]) - words[2])


def gap_norm(gap: FloatArray, weight: FloatArray, norm: float) -> FloatArray:
    """The p-norm of gap / weight under the bins' shares of weight, along the last axis."""
    size = np.abs(gap)
    whole = weight.sum(axis=-1)
    if norm == 1.0:
        return np.asarray(size.sum(axis=-1) / whole)
    mean = np.divide(size, weight, out=np.zeros_like(size), where=weight > 0)
    if math.isinf(norm):
        return np.asarray(mean.max(axis=-1))
    # Relative to the largest gap, so that powers of small gaps do not all underflow.
    largest = mean.max(axis=-1, keepdims=True)
    share = np.divide(mean, largest, out=np.zeros_like(mean), where=largest > 0)
    power = (weight * share**norm).sum(axis=-1) / whole
    return np.asarray(largest[..., 0] * power ** (1.0 / norm))


def debiased_error(
    gap: FloatArray, weight: FloatArray, correct: FloatArray, *, squared: bool = False
) -> FloatArray:
    """Kumar's estimate of the squared calibration error, along the last axis, or its root."""
    enough = weight > 1
    w = np.where(enough, weight, 2.0)
    accuracy = correct / w
    square = (gap / w) ** 2 - accuracy * (1.0 - accuracy) / (w - 1.0)
    mean = np.asarray(np.where(enough, w * square, 0.0).sum(axis=-1) / weight.sum(axis=-1))
    return mean if squared else np.sqrt(np.maximum(mean, 0.0))


def _first_sums(examples: Examples, index: IntArray, n_bins: int) -> FloatArray:
    """Weight, correct, and the words of confidence, (5, J)."""
    weight = examples.filled_weight()
    words = exact_sums(index, examples.confidence, n_bins, examples.weight)
    parts = (sum_by(index, part, n_bins) for part in (weight, weight * examples.correct))
    return np.stack([*parts, *words])


def _bin_examples(examples: Examples, n_bins: int, bins: str) -> IntArray:
    """Bin of each example, (n,)."""
    if bins == "width":
        return bin_index(examples.confidence, n_bins)
    if bins == "mass":
        return mass_index(examples.confidence, n_bins, examples.weight)
    raise ValueError(f"`bins` must be one of ['width', 'mass']; got {bins!r}.")


def mass_index(confidence: FloatArray, n_bins: int, weight: FloatArray | None = None) -> IntArray:
    """Bin of each confidence: floor(n_bins * share of the weight below it, half its own included).

    Ties are never split, so the bins do not depend on the order of the rows; where many examples
    share one confidence, neighbouring bins stay empty.

    >>> mass_index(np.array([0.9, 0.1, 0.2, 0.8, 0.8, 0.8]), 3)
    array([2, 0, 0, 1, 1, 1])
    """
    values, place = np.unique(confidence, return_inverse=True)
    own = sum_by(place, np.ones_like(confidence) if weight is None else weight, values.shape[0])
    upto = np.cumsum(own)
    middle = upto - own + upto  # doubled: an integer if the weights are
    index = np.floor_divide(n_bins * middle, 2.0 * upto[-1]).astype(np.int64)
    return np.asarray(np.minimum(index, n_bins - 1)[place])


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
