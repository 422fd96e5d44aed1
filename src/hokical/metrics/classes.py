"""Calibration by predicted label: a good average can hide a class whose confidence is wrong.

For the rows labelled k: how many, what they say (mean confidence), how often they are right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import rel_entr

from hokical.core.bins import sum_by
from hokical.core.labels import as_labels
from hokical.core.types import FloatArray
from hokical.guarantees.binomial import check_chance
from hokical.metrics.binned import ece as top_label_ece
from hokical.metrics.checks import as_examples

#: A class whose gap is smaller than this is not worth a warning, however certain it is.
MATERIAL_GAP = 0.05


@dataclass(frozen=True)
class ClassRow:
    """The rows labelled `label`: their number, mean confidence and accuracy.

    `p_value` is a bound on the chance to see this if the class were off by no more than the margin
    of its table; `flagged` tells whether that is ruled out, allowing for the number of classes.
    """

    label: int
    n: int
    says: float
    right: float
    p_value: float
    flagged: bool

    @property
    def gap(self) -> float:
        """says - right: above 0 if the class is overconfident."""
        return self.says - self.right

    @property
    def certain_gap(self) -> float:
        """The size of the gap less two standard errors, for ranking classes."""
        return abs(self.gap) - 2.0 * math.sqrt(
            max(self.says * (1.0 - self.says), 1.0 / self.n) / self.n
        )


@dataclass(frozen=True)
class ClassTable:
    """One row per label that was given, in order; `margin` and `delta` of the test.

    Examples
    --------
    A model trained on balanced classes, used where few are positive:

    >>> rng = np.random.default_rng(0)
    >>> positive = rng.uniform(size=10_000) < 0.05
    >>> score = rng.normal(size=10_000) + 2 * positive - 1  # the log-odds at equal shares, halved
    >>> confidence = 1 / (1 + np.exp(-2 * np.abs(score)))
    >>> table = class_table(confidence, score > 0, positive)
    >>> [(row.label, round(row.says, 2), round(row.right, 2)) for row in table.rows]
    [(0, 0.86, 0.99), (1, 0.74, 0.22)]
    >>> [row.label for row in table.flagged]
    [1, 0]
    """

    rows: tuple[ClassRow, ...]
    margin: float
    delta: float

    @property
    def flagged(self) -> tuple[ClassRow, ...]:
        """The classes that are certainly off by more than the margin, the worst first."""
        return tuple(row for row in self.worst() if row.flagged)

    def worst(self, limit: int | None = None) -> tuple[ClassRow, ...]:
        """The rows by the size of the gap that is certain, the largest first."""
        return tuple(sorted(self.rows, key=lambda row: -row.certain_gap)[:limit])

    def warning(self, ece: float) -> str | None:
        """One line about the classes that the top-label error `ece` hides, or None."""
        if not self.flagged:
            return None
        worst, others = self.flagged[0], len(self.flagged) - 1
        more = (
            f"; {others} more {'classes are' if others > 1 else 'class is'} off" if others else ""
        )
        return (
            f"the top-label ECE of {ece:.4f} hides class {worst.label}: its {worst.n:,} rows say "
            f"{worst.says:.1%} and are right {worst.right:.1%} of the time{more}. Methods that "
            "learn each class can correct this: auto, structured, vecs."
        )


@dataclass(frozen=True, eq=False, repr=False)
class ClassSums:
    """Sums by predicted label, (classes,) each, that add with `+`; `squares` are of the weights."""

    count: FloatArray
    weight: FloatArray
    squares: FloatArray
    confidence: FloatArray
    correct: FloatArray

    @classmethod
    def from_examples(
        cls,
        predicted: Any,
        confidence: Any,
        correct: Any,
        sample_weight: Any = None,
        *,
        n_classes: int,
    ) -> ClassSums:
        """Sums of a chunk; `predicted` (n,) are the labels that were given."""
        rows = as_examples(confidence, correct)
        weight = np.ones(rows.n_rows) if sample_weight is None else np.asarray(sample_weight, float)
        label = as_labels(predicted, rows.n_rows, n_classes)
        columns = (
            np.sign(weight),
            weight,
            weight**2,
            weight * rows.confidence,
            weight * rows.correct,
        )
        return cls(*(sum_by(label, column, n_classes) for column in columns))

    def __add__(self, other: object) -> ClassSums:
        if not isinstance(other, ClassSums):
            return NotImplemented
        names = [field.name for field in fields(self)]
        return ClassSums(*(getattr(self, name) + getattr(other, name) for name in names))

    def table(self, *, ece: float, delta: float = 0.05) -> ClassTable:
        """The table; a class is flagged if it is off by more than twice the top-label `ece`."""
        check_chance("delta", delta)
        margin = max(MATERIAL_GAP, 2.0 * ece)
        given = np.flatnonzero(self.weight > 0)
        weight = self.weight[given]
        says, right = (np.clip(s[given] / weight, 0, 1) for s in (self.confidence, self.correct))
        # Weighted rows are worth as many as give a mean of the same variance.
        chance = gap_p_values(weight**2 / self.squares[given], says, right, margin)
        flagged = holm(chance) <= delta
        columns = (given, self.count[given].astype(np.int64), says, right, chance, flagged)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return ClassTable(tuple(ClassRow(*row) for row in rows), margin, delta)


def class_table(
    confidence: Any,
    predicted: Any,
    labels: Any,
    *,
    n_classes: int | None = None,
    delta: float = 0.05,
    sample_weight: Any = None,
) -> ClassTable:
    """For each predicted label: how many rows, what they say and how often they are right.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        The probability that each predicted label is right.
    predicted, labels : array-like of shape (n,)
        The labels that were given and the true ones, as column indices.
    n_classes : int, optional
        None: up to the largest label.
    delta : float
        The chance that any class of a model that is right about every class is flagged. A class is
        flagged if it is certainly off by more than 5 points, and by more than twice the ECE.
    sample_weight : array-like of shape (n,), optional
    """
    rows = as_examples(confidence, np.zeros(np.shape(confidence)))
    most = n_classes or np.iinfo(np.int64).max
    given = as_labels(predicted, rows.n_rows, most, name="predicted")
    truth = as_labels(labels, rows.n_rows, most)
    correct = given == truth
    size = n_classes or int(max(given.max(), truth.max())) + 1
    sums = ClassSums.from_examples(given, confidence, correct, sample_weight, n_classes=size)
    return sums.table(
        ece=top_label_ece(confidence, correct, sample_weight=sample_weight), delta=delta
    )


def gap_p_values(
    n: FloatArray, says: FloatArray, right: FloatArray, margin: float = 0.0
) -> FloatArray:
    """Bounds on the chance of such shares if the true ones are within `margin` of what is said.

    Chernoff's bound, which holds for rows of different confidence and any n (Hoeffding, 1963,
    doi:10.1080/01621459.1963.10500830).
    """
    nearest = np.clip(right, says - margin, says + margin)  # the closest share that is allowed
    distance = rel_entr(right, nearest) + rel_entr(1.0 - right, 1.0 - nearest)
    return np.asarray(np.minimum(1.0, 2.0 * np.exp(-n * distance)))


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values, in the given order; NaN stays and does not count.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    adjusted = np.full(p_values.shape, np.nan)
    order = np.argsort(p_values)[: int((~np.isnan(p_values)).sum())]
    factors = np.arange(order.shape[0], 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted
