"""Calibration error by bins, from per-bin sums that can be added up.

Equal-width bins are [j/J, (j+1)/J), the last one closed: 0.0 is in the first and 1.0 in the last.
With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE,   p = inf: the MCE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_index, check_count, sum_by
from hokical.metrics.checks import Examples, as_examples, check_norm
from hokical.metrics.chunked import chunks_too
from hokical.metrics.equal_mass import mass_index
from hokical.metrics.exact import exact_sums, total

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Bins = Literal["width", "mass"]


@dataclass(frozen=True, eq=False, repr=False)
class BinnedSums:
    """Per-bin sums of (confidence, correct): everything binned metrics need, and they add.

    The sums of a stream's batches, or of many workers, add up to the sums of the whole. Unweighted
    (or with whole-number weights) they do so to the bit, in any order; see `exact.py`.

    Attributes
    ----------
    count : (J,) int64
        Rows in each bin.
    weight, correct : (J,) float64
        Sum of their weights, and of the weights of the correct ones: whole numbers if unweighted.
    confidence_words, square_words, error_words : (3, J) float64
        Sums of confidence, of its square, and of (correct - confidence)^2, in three words each.
    scheme : {"width", "mass"}
        How the bins were cut. Equal-mass bins depend on the data, so their sums do not add.

    Examples
    --------
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
    square_words: FloatArray
    error_words: FloatArray
    scheme: Bins = "width"

    @classmethod
    def from_examples(
        cls,
        confidence: Any,
        correct: Any,
        *,
        n_bins: int = 15,
        bins: Bins = "width",
        sample_weight: Any = None,
    ) -> BinnedSums:
        """Sums of examples: `confidence` (n,) in [0, 1], `correct` (n,), `sample_weight` (n,)."""
        examples = as_examples(confidence, correct, sample_weight)
        n_bins = check_count(n_bins)
        index = _bin_function(bins)(examples, n_bins)
        square = examples.confidence**2
        error = (examples.correct - examples.confidence) ** 2
        return cls(
            np.bincount(index, minlength=n_bins).astype(np.int64),
            *_first_sums(examples, index, n_bins),
            square_words=exact_sums(index, square, n_bins, examples.weight),
            error_words=exact_sums(index, error, n_bins, examples.weight),
            scheme=bins,
        )

    def __add__(self, other: object) -> BinnedSums:
        if not isinstance(other, BinnedSums):
            return NotImplemented
        if self.scheme != "width" or other.scheme != "width":
            raise ValueError(
                "only sums over equal-width bins add up; equal-mass bins depend on the data. "
                'Make both with bins="width".'
            )
        if self.n_bins != other.n_bins:
            raise ValueError(
                "binned sums must have the same `n_bins` to be added; got "
                f"{self.n_bins} and {other.n_bins}."
            )
        names = [field.name for field in fields(self) if field.name != "scheme"]
        return BinnedSums(*(getattr(self, name) + getattr(other, name) for name in names))

    def __repr__(self) -> str:
        size = f"n_bins={self.n_bins}, total_weight={self.total_weight:g}"
        return f"BinnedSums({size}, scheme={self.scheme!r})"

    @property
    def n_bins(self) -> int:
        return int(self.count.shape[0])

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the number of examples, if they were not weighted."""
        return float(self.weight.sum())

    @property
    def gap(self) -> FloatArray:
        """Sum of correct - confidence in each bin, (J,)."""
        return _gap(self.correct, self.confidence_words)

    @property
    def accuracy(self) -> FloatArray:
        """Share of correct examples in each bin, (J,), NaN where it is empty."""
        return _ratio(self.correct, self.weight)

    @property
    def mean_confidence(self) -> FloatArray:
        """Mean confidence of each bin, (J,), NaN where it is empty."""
        return _ratio(total(self.confidence_words), self.weight)

    def ece(self, *, norm: float = 1) -> float:
        """See `ece`."""
        return float(gap_norm(self.gap, self.weight, check_norm(norm)))

    def mce(self) -> float:
        """See `mce`."""
        return self.ece(norm=math.inf)

    def debiased_ece(self) -> float:
        """See `debiased_ece`."""
        return float(_root(debiased_square(self.gap, self.weight, self.correct)))

    def brier(self) -> float:
        """See `brier`."""
        return float(total(self.error_words.sum(axis=1)) / self.total_weight)

    def sharpness(self) -> float:
        """See `sharpness`."""
        mean = total(self.confidence_words.sum(axis=1)) / self.total_weight
        mean_square = total(self.square_words.sum(axis=1)) / self.total_weight
        return max(0.0, float(mean_square - mean**2))


@chunks_too
def ece(
    confidence: Any,
    correct: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error: how far confidence is from accuracy, averaged over bins.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        The chance that each label is right, in [0, 1].
    correct : array-like of shape (n,)
        Whether it was: booleans, or 0 and 1.
    n_bins : int
        Number of bins J.
    bins : {"width", "mass"}
        "width": [j/J, (j+1)/J), the last closed. "mass": about equal weight in each; equal
        confidences share a bin.
    norm : float
        1, 2, inf or any exponent of at least 1: how the bins' gaps are averaged.
    sample_weight : array-like of shape (n,), optional
        How often each example counts; 2 is the same as giving it twice.

    Returns
    -------
    error : float
        In [0, 1]. Unweighted, it does not depend on the order of the rows, to the bit.

    Examples
    --------
    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True], norm=2), 6)
    0.34641
    """
    examples = as_examples(confidence, correct, sample_weight)
    exponent, n_bins = check_norm(norm), check_count(n_bins)
    gap, weight, _ = gap_sums(examples, n_bins, bins)
    return float(gap_norm(gap, weight, exponent))


@chunks_too
def mce(
    confidence: Any,
    correct: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    sample_weight: Any = None,
) -> float:
    """Maximum calibration error: the largest gap of any bin that holds examples.

    >>> round(mce([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.4
    """
    return ece(
        confidence, correct, n_bins=n_bins, bins=bins, norm=math.inf, sample_weight=sample_weight
    )


@chunks_too
def debiased_ece(
    confidence: Any,
    correct: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    squared: bool = False,
    sample_weight: Any = None,
) -> float:
    """The 2-norm calibration error less what sampling alone adds to it (Kumar et al., 2019).

    sum_j w_j/W [gap_j^2 - acc_j (1 - acc_j)/(w_j - 1)]. A bin with one example allows no estimate
    of its noise and adds 0. Weights are read as numbers of examples.

    Parameters
    ----------
    squared : bool
        False: the root, on the scale of `ece(norm=2)`, and 0 where the estimate is negative.
        True: the estimate itself, which is negative about half the time for a perfect model.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> round(ece(confidence, correct, norm=2), 4), round(debiased_ece(confidence, correct), 4)
    (0.0407, 0.0207)
    """
    examples = as_examples(confidence, correct, sample_weight)
    square = debiased_square(*gap_sums(examples, check_count(n_bins), bins))
    return float(square if squared else _root(square))


def gap_sums(
    examples: Examples, n_bins: int, bins: Bins
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gap, weight and correct of each bin, (J,): what calibration errors need, and no more."""
    index = _bin_function(bins)(examples, n_bins)
    weight, correct, words = _first_sums(examples, index, n_bins)
    return _gap(correct, words), weight, correct


def gap_norm(gap: FloatArray, weight: FloatArray, norm: float) -> FloatArray:
    """The p-norm of gap / weight under the bins' shares of weight, along the last axis."""
    size = np.abs(gap)
    whole = weight.sum(axis=-1)
    if norm == 1.0:
        return np.asarray(size.sum(axis=-1) / whole)
    mean = np.divide(size, weight, out=np.zeros_like(size), where=weight > 0)
    if math.isinf(norm):
        return np.asarray(mean.max(axis=-1))
    # Powers of shares of the largest gap cannot underflow all at once, as small gaps' could.
    largest = mean.max(axis=-1, keepdims=True)
    share = np.divide(mean, largest, out=np.zeros_like(mean), where=largest > 0)
    power = (weight * share**norm).sum(axis=-1) / whole
    return np.asarray(largest[..., 0] * power ** (1.0 / norm))


def debiased_square(gap: FloatArray, weight: FloatArray, correct: FloatArray) -> FloatArray:
    """Kumar's estimate of the squared calibration error, along the last axis."""
    enough = weight > 1
    w = np.where(enough, weight, 2.0)
    accuracy = correct / w
    square = (gap / w) ** 2 - accuracy * (1.0 - accuracy) / (w - 1.0)
    return np.asarray(np.where(enough, w * square, 0.0).sum(axis=-1) / weight.sum(axis=-1))


def _first_sums(
    examples: Examples, index: IntArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight (J,), correct (J,) and the words of confidence (3, J)."""
    weight = examples.filled_weight()
    words = exact_sums(index, examples.confidence, n_bins, examples.weight)
    hits = sum_by(index, weight * examples.correct, n_bins)
    return sum_by(index, weight, n_bins), hits, words


def _gap(correct: FloatArray, words: FloatArray) -> FloatArray:
    # Large words first: where confidence and accuracy agree, what cancels does so exactly.
    return np.asarray(((correct - words[0]) - words[1]) - words[2])


def _width_bins(examples: Examples, n_bins: int) -> IntArray:
    return bin_index(examples.confidence, n_bins)


def _mass_bins(examples: Examples, n_bins: int) -> IntArray:
    return mass_index(examples.confidence, n_bins, examples.weight)


_BINS = {"width": _width_bins, "mass": _mass_bins}


def _bin_function(bins: str) -> Any:
    if bins not in _BINS:
        raise ValueError(f"`bins` must be one of {list(_BINS)}; got {bins!r}.")
    return _BINS[bins]


def _root(square: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(square, 0.0))


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
