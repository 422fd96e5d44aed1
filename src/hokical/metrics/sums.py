"""Sums from which every metric of a stream is read, and which add up over chunks and machines.

Binned metrics, the Brier score and accuracy come out as if all rows had been given at once, to the
bit where rows are unweighted; the log loss to rounding. Metrics of the order of confidences (AUROC,
AURC, selective risk, equal-mass bins, KS and smooth ECE) would need all of them: they are read from
counts at levels that are fine near 0 and 1 (`levels.py`). Each confidence c is off by at most 2e-6,
and by at most 0.05 % of min(c, 1 - c); those at one level are ties (which may move a few examples
from one equal-mass bin to the next).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_index, sum_by
from hokical.logits import iter_row_blocks
from hokical.metrics.binned import BinnedSums, gap_norm
from hokical.metrics.checks import Examples, Predictions, as_examples, as_predictions
from hokical.metrics.exact import exact_sums
from hokical.metrics.levels import N_LEVELS, confidence_level, level_confidence
from hokical.metrics.proper import full_losses, full_squares, top_losses

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class MetricSums:
    """Sums over (confidence, correct); see the module. They add with `+`.

    Attributes
    ----------
    n_rows : int
        Rows that count.
    weighted : bool
    binned : BinnedSums
    levels : (2, N_LEVELS) float64, or None if they were not wanted
        Weight of the wrong and of the right examples at each level of confidence.
    log_loss : float
        Sum of the log losses.

    Examples
    --------
    >>> morning = MetricSums.from_examples([0.9, 0.8], [True, False])
    >>> evening = MetricSums.from_examples([0.85, 0.3], [True, True])
    >>> (morning + evening).n_rows
    4
    """

    n_rows: int
    weighted: bool
    binned: BinnedSums
    levels: FloatArray | None
    log_loss: float

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
    ) -> MetricSums:
        """Sums of a chunk: `confidence` (n,), `correct` (n,) and `sample_weight` (n,).

        Without `levels` (6 MB, whatever the rows) there are no metrics of the order of confidences.
        """
        rows = as_examples(confidence, correct, sample_weight)
        weight = rows.filled_weight()
        losses = top_losses(rows.confidence, rows.correct, clip)
        return cls(
            rows.n_rows,
            rows.weight is not None,
            BinnedSums.from_examples(
                rows.confidence, rows.correct, n_bins=n_bins, sample_weight=rows.weight
            ),
            _level_weights(rows, weight) if levels else None,
            float((weight * losses).sum()),
        )

    def __add__(self, other: object) -> MetricSums:
        if not isinstance(other, MetricSums):
            return NotImplemented
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = self.levels + other.levels
        return MetricSums(
            self.n_rows + other.n_rows,
            self.weighted or other.weighted,
            self.binned + other.binned,
            levels,
            self.log_loss + other.log_loss,
        )

    def __repr__(self) -> str:
        return f"MetricSums({self.n_rows} rows, {self.binned!r})"

    def rounded_examples(self) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
        """Confidence, correct and weight of the occupied levels, wrong before right."""
        if self.levels is None:
            raise ValueError(
                "metrics of the order of confidences need sums made with `levels=True`; got "
                "levels=False."
            )
        right, level = np.nonzero(self.levels)
        return level_confidence(level), right.astype(np.bool_), self.levels[right, level]


@dataclass(frozen=True, eq=False, repr=False)
class FullSums:
    """Sums over (proba, labels) of `n_rows` rows. They add with `+`.

    `weight` and `correct` (classes, bins) and `words` (3, classes, bins) are per class and bin;
    `squares` and `losses` sum the Brier score and the log loss of all classes.
    """

    n_rows: int
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
    ) -> FullSums:
        """Sums of a chunk: `proba` (n, classes), `labels` (n,) and `sample_weight` (n,)."""
        rows = as_predictions(proba, labels, sample_weight)
        weight = np.ones(rows.n_rows) if rows.weight is None else rows.weight
        return cls(
            rows.n_rows,
            float(weight.sum()),
            float((weight * full_squares(rows)).sum()),
            float((weight * full_losses(rows, clip)).sum()),
            *_class_sums(rows, weight, n_bins),
        )

    def __add__(self, other: object) -> FullSums:
        if not isinstance(other, FullSums):
            return NotImplemented
        return FullSums(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple[Any, ...]:
        sums = (self.squares, self.losses, self.weight, self.correct, self.words)
        return (self.n_rows, self.total, *sums)

    def brier(self) -> float:
        """See `brier_full`."""
        return self.squares / self.total

    def log_loss(self) -> float:
        """See `log_loss_full`."""
        return self.losses / self.total

    def classwise_ece(self, norm: float = 1.0) -> float:
        """See `classwise_ece`."""
        gap = ((self.correct - self.words[0]) - self.words[1]) - self.words[2]
        return float(gap_norm(gap, self.weight, norm).mean())


def _level_weights(rows: Examples, weight: FloatArray) -> FloatArray:
    """Weight of the wrong and of the right examples at each level, (2, N_LEVELS)."""
    cell = rows.correct * N_LEVELS + confidence_level(rows.confidence)
    return sum_by(cell, weight, 2 * N_LEVELS).reshape(2, N_LEVELS)


def _class_sums(
    rows: Predictions, weight: FloatArray, n_bins: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight and correct (classes, bins), and words of the probability (3, classes, bins)."""
    n_classes = rows.n_classes
    size = n_classes * n_bins
    weights, hits, words = np.zeros(size), np.zeros(size), np.zeros((3, size))
    for part in iter_row_blocks(rows.n_rows, n_classes):
        proba = rows.proba[part].astype(np.float64)
        cell = np.arange(n_classes) * n_bins + bin_index(proba, n_bins)
        spread = np.repeat(weight[part], n_classes)
        own = cell[np.arange(proba.shape[0]), rows.labels[part]]
        weights += sum_by(cell.ravel(), spread, size)
        hits += sum_by(own, weight[part], size)
        words += exact_sums(cell.ravel(), proba.ravel(), size, spread)
    shape = (n_classes, n_bins)
    return weights.reshape(shape), hits.reshape(shape), words.reshape(3, *shape)
