"""Sums that give every metric of a stream, and that add up over chunks and machines.

Binned metrics, the Brier score and accuracy are those of all rows at once: unweighted to the bit;
the log loss to rounding. Metrics of the order of confidences (AUROC, AURC, selective risk,
equal-mass bins, KS and smooth ECE) would need all rows: they are read from counts at levels of
confidence, whose examples are ties, which may move a few to a neighbouring equal-mass bin.

Over-confident networks say 1 - 1e-9 when they are right and 1 - 1e-6 when they are wrong, so levels
are fine near 0 and 1. With d = min(c, 1 - c), the distance to the nearer end,

    d >= 2^-8:  d is rounded to a multiple of 2^-18,
    d <  2^-8:  d is rounded to 10 binary digits after its first, down to 2^-53; below, to 0.

So d is off by at most 2^-11 of itself (0.05 %) and by at most 2^-19 (2e-6). 1 - c is exact for
c >= 1/2, and bits are shifted instead of taking a logarithm: levels are the same on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.blocks import row_slices
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._binned_sums import BinnedSums, exact_sums, gap_from_words, gap_norm
from hokical.metrics._examples import Examples, Predictions, as_examples, as_predictions

_STEPS = 1 << 18
_DIGITS = 10
_DROPPED = 52 - _DIGITS
#: The shortened float of level 0; 2^-53, the smallest 1 - c, is level 1.
_ZEROTH = ((1023 - 53) << _DIGITS) - 1
#: Level of 2^-8, where even steps begin, and of 1/2.
_EVEN = (53 - 8 << _DIGITS) + 1
_HALF = _EVEN + _STEPS // 2 - (_STEPS >> 8)

#: Number of levels: those of c up to 1/2, and of 1 - c down to 0.
N_LEVELS = 2 * _HALF + 1


@dataclass(frozen=True, eq=False, repr=False)
class MetricSums:
    """Sums over (confidence, correct); see the module. They add with `+`.

    `n_rows` counts rows of a weight above 0; `levels` (2, N_LEVELS), or None, is the weight of the
    wrong and of the right examples at each level of confidence; `losses` sums the log losses.

    >>> morning = MetricSums.from_examples([0.9, 0.8], [True, False])
    >>> evening = MetricSums.from_examples([0.85, 0.3], [True, True])
    >>> (morning + evening).n_rows
    4
    """

    n_rows: int
    weighted: bool
    binned: BinnedSums
    levels: FloatArray | None
    losses: float

    @classmethod
    def from_examples(
        cls,
        confidence: Any,
        correct: Any,
        sample_weight: Any = None,
        *,
        n_bins: int = 15,
        clip: float = 0.0,
        levels: bool = True,
    ) -> Self:
        """Sums of a chunk; arguments as in `ece` and `log_loss`.

        Without `levels` (6 MB, however many rows) there are no metrics of the order of confidences.
        """
        rows = as_examples(confidence, correct, sample_weight)
        weight = rows.filled_weight()
        losses = top_losses(rows, clip)
        cell = rows.correct * N_LEVELS + confidence_level(rows.confidence) if levels else None
        return cls(
            rows.n_rows,
            rows.weight is not None,
            BinnedSums.from_rows(rows, n_bins),
            None if cell is None else sum_by(cell, weight, 2 * N_LEVELS).reshape(2, N_LEVELS),
            float((weight * losses).sum()),
        )

    def __add__(self, other: object) -> Self:
        if not isinstance(other, MetricSums):
            return NotImplemented
        both = self.levels is not None and other.levels is not None
        return type(self)(
            self.n_rows + other.n_rows,
            self.weighted or other.weighted,
            self.binned + other.binned,
            self.levels + other.levels if both else None,  # type: ignore[operator]
            self.losses + other.losses,
        )

    def __repr__(self) -> str:
        return f"MetricSums({self.n_rows} rows, {self.binned!r})"

    def log_loss(self) -> float:
        """See `log_loss`."""
        return self.losses / self.binned.total_weight

    def rounded_examples(self) -> Examples:
        """The examples of the occupied levels, wrong before right."""
        if self.levels is None:
            raise ValueError(
                "metrics of the order of confidences need sums made with `levels=True`; got "
                "levels=False."
            )
        right, level = np.nonzero(self.levels)
        weight = self.levels[right, level]
        return Examples(level_confidence(level), right.astype(np.bool_), weight)


def confidence_level(confidence: FloatArray) -> IntArray:
    """Level of each confidence in [0, 1], monotone, from 0 for 0.0 to N_LEVELS - 1 for 1.0.

    >>> level = confidence_level(np.array([0.0, 0.5, 1 - 1e-9, 1 - 1e-10, 1.0]))
    >>> level.tolist()
    [0, 176129, 328629, 332066, 352258]
    """
    distance = np.minimum(confidence, 1.0 - confidence)
    half = np.int64(1) << np.int64(_DROPPED - 1)
    short = ((distance.view(np.int64) + half) >> _DROPPED) - _ZEROTH
    even = np.rint(distance * _STEPS).astype(np.int64) - (_STEPS >> 8) + _EVEN
    near = np.where(distance < 2.0**-8, np.maximum(short, 0), even)
    return np.asarray(np.where(confidence < 0.5, near, N_LEVELS - 1 - near))


def level_confidence(level: IntArray) -> FloatArray:
    """The confidence that represents each level.

    >>> level_confidence(np.array([0, 176129, N_LEVELS - 1]))
    array([0. , 0.5, 1. ])
    """
    near = np.minimum(level, N_LEVELS - 1 - level)
    short = ((near + _ZEROTH) << _DROPPED).view(np.float64)
    even = (near - _EVEN + (_STEPS >> 8)) / _STEPS
    distance = np.where(near < _EVEN, np.where(near > 0, short, 0.0), even)
    return np.asarray(np.where(level <= _HALF, distance, 1.0 - distance))


@dataclass(frozen=True, eq=False, repr=False)
class FullSums:
    """Sums over (proba, labels), of `total` weight. They add with `+`.

    `weight` and `correct` (classes, bins) and `words` (3, classes, bins) are per class and bin;
    `squares` and `losses` sum the Brier score and the log loss of all classes.
    """

    total: float
    squares: float
    losses: float
    weight: FloatArray
    correct: FloatArray
    words: FloatArray

    @classmethod
    def from_predictions(
        cls,
        proba: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        n_bins: int = 15,
        clip: float = 0.0,
    ) -> Self:
        """Sums of a chunk; arguments as in `classwise_ece` and `log_loss_full`."""
        return cls.from_rows(as_predictions(proba, labels, sample_weight), n_bins, clip)

    @classmethod
    def from_rows(cls, rows: Predictions, n_bins: int, clip: float) -> Self:
        """Sums of rows that were checked."""
        weight = rows.filled_weight()
        return cls(
            float(weight.sum()),
            float((weight * full_squares(rows)).sum()),
            float((weight * full_losses(rows, clip)).sum()),
            *_class_sums(rows, weight, n_bins),
        )

    def __add__(self, other: object) -> Self:
        if not isinstance(other, FullSums):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(own + more for own, more in pairs))

    def brier(self) -> float:
        """See `brier_full`."""
        return self.squares / self.total

    def log_loss(self) -> float:
        """See `log_loss_full`."""
        return self.losses / self.total

    def scores(self) -> dict[str, float]:
        """The metrics of all classes, by their names."""
        means = {"brier_full": self.brier(), "log_loss_full": self.log_loss()}
        return means | {"classwise_ece": self.classwise_ece()}

    def classwise_ece(self, norm: float = 1.0) -> float:
        """See `classwise_ece`."""
        gap = gap_from_words(self.correct, self.words)
        return float(gap_norm(gap, self.weight, norm).mean())


def _class_sums(
    rows: Predictions, weight: FloatArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight and correct (classes, bins), and words of the probability (3, classes, bins)."""
    n_classes = rows.n_classes
    size = n_classes * n_bins
    weights, hits, words = np.zeros(size), np.zeros(size), np.zeros((3, size))
    for part in row_slices(rows.n_rows, n_classes):
        proba = rows.proba[part].astype(np.float64)
        cell = np.arange(n_classes) * n_bins + bin_index(proba, n_bins)
        spread = np.repeat(weight[part], n_classes)
        own = cell[np.arange(proba.shape[0]), rows.labels[part]]
        weights += sum_by(cell.ravel(), spread, size)
        hits += sum_by(own, weight[part], size)
        words += exact_sums(cell.ravel(), proba.ravel(), size, spread)
    shape = (n_classes, n_bins)
    return weights.reshape(shape), hits.reshape(shape), words.reshape(3, *shape)


def top_losses(rows: Examples, clip: float) -> FloatArray:
    """-log(probability of what happened) per example, (n,)."""
    confidence = rows.confidence
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        losses = np.where(rows.correct, -np.log(confidence), -np.log1p(-confidence))
    return np.minimum(losses, _loss_limit(clip))


def full_losses(data: Predictions, clip: float) -> FloatArray:
    """-log(probability of the true class) per example, (n,)."""
    chance = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(chance), _loss_limit(clip))


def ranked_squares(data: Predictions) -> FloatArray:
    """Sum over k of (P(class <= k) - 1{label <= k})^2 per example, (n,)."""
    said = np.cumsum(data.proba[:, :-1], axis=1, dtype=np.float64)
    reached = data.labels[:, None] <= np.arange(data.n_classes - 1)
    return np.asarray(((said - reached) ** 2).sum(axis=1))


def full_squares(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(data.n_rows, data.n_classes):
        block = data.proba[rows].astype(np.float64, order="C")  # which decides the order of sums
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def row_scores(
    examples: Examples, data: Predictions | None, clip: float = 0.0, ordered: bool = False
) -> dict[str, FloatArray]:
    """The scores (n,) whose means are metrics: proper scores of the label, and of all classes."""
    gap = examples.confidence - examples.correct
    scores = {"brier": gap**2, "log_loss": top_losses(examples, clip)}
    if data is not None:
        scores |= {"brier_full": full_squares(data), "log_loss_full": full_losses(data, clip)}
        scores |= {"ranked_probability_score": ranked_squares(data)} if ordered else {}
    return scores


def _loss_limit(clip: float) -> float:
    return math.inf if clip == 0.0 else -math.log(clip)
