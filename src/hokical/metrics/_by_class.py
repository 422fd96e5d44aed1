"""Calibration by predicted label: a good average can hide a class whose confidence is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.labels import as_labels
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._calibration import ece as top_label_ece
from hokical.metrics._examples import as_confidence, as_examples

#: A class whose gap is smaller than this is not worth a warning, however certain it is.
MATERIAL_GAP = 0.05


@dataclass(frozen=True)
class ClassRow:
    """The `n` rows that got a label: mean confidence and accuracy.

    `p_value` bounds the probability of this if the class were off by at most the table's margin;
    it is `flagged` if that is ruled out, allowing for the number of classes.
    """

    label: int
    n: int
    says: float
    right: float
    p_value: float
    flagged: bool

    @property
    def certain_gap(self) -> float:
        """|says - right| less two standard errors, for ranking classes."""
        variance = max(self.says * (1.0 - self.says), 1.0 / self.n) / self.n
        return abs(self.says - self.right) - 2.0 * math.sqrt(variance)


@dataclass(frozen=True)
class ClassTable:
    """One row per label that was given, in order; see `class_table`."""

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

    def warning(self, ece: float, names: Sequence[str] = ()) -> str | None:
        """One line about the classes that the top-label error `ece` hides, or None.

        `names` are those of the classes, by column; without them the number is given.
        """
        if not self.flagged:
            return None
        worst, others = self.flagged[0], len(self.flagged) - 1
        name = names[worst.label] if names else worst.label
        return (
            f"the top-label ECE of {ece:.4f} hides class {name}: its {worst.n:,} rows say "
            f"{worst.says:.1%} and are right {worst.right:.1%} of the time"
            f"{f' ({others} more off)' if others else ''}. Methods that learn each class can "
            "correct this: auto, structured, vecs."
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
    ) -> Self:
        """Sums of a chunk; `predicted` (n,) are the labels that were given."""
        rows = as_examples(confidence, correct)
        weight = np.ones(rows.n_rows) if sample_weight is None else np.asarray(sample_weight, float)
        label = as_labels(predicted, rows.n_rows, n_classes, name="predicted")
        scores = (weight * rows.confidence, weight * rows.correct)
        columns = (np.sign(weight), weight, weight**2, *scores)
        return cls(*(sum_by(label, column, n_classes) for column in columns))

    def __add__(self, other: object) -> Self:
        if not isinstance(other, ClassSums):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(own + more for own, more in pairs))

    def table(self, *, ece: float, delta: float = 0.05) -> ClassTable:
        """The table, given the top-label ECE."""
        check_chance("delta", delta)
        margin = max(MATERIAL_GAP, 2.0 * ece)
        given = np.flatnonzero(self.weight > 0)
        weight = self.weight[given]
        says, right = (np.clip(s[given] / weight, 0, 1) for s in (self.confidence, self.correct))
        # Weighted rows are worth as many as give a mean of the same variance.
        chance = gap_p_values(weight**2 / self.squares[given], says, right, margin)
        count = self.count[given].astype(np.int64)
        columns = (given, count, says, right, chance, holm(chance) <= delta)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return ClassTable(tuple(ClassRow(*row) for row in rows), margin, delta)


def class_table(
    confidence: Any, predicted: Any, labels: Any, *, delta: float = 0.05, sample_weight: Any = None
) -> ClassTable:
    """For each predicted label: how many rows, what they say and how often they are right.

    `confidence` (n,) is the probability that each predicted label is right; `predicted` and
    `labels` (n,) are the labels that were given and the true ones, as column indices. `delta` is
    the probability that any class is flagged if all are calibrated. A class is flagged if it is
    certainly off by more than 5 points, and by more than twice the top-label ECE.

    A model trained on balanced classes, used where few are positive:

    >>> rng = np.random.default_rng(0)
    >>> positive = rng.uniform(size=10_000) < 0.05
    >>> score = rng.normal(size=10_000) + 2 * positive - 1
    >>> table = class_table(1 / (1 + np.exp(-2 * np.abs(score))), score > 0, positive)
    >>> [(row.label, round(row.says, 2), round(row.right, 2)) for row in table.flagged]
    [(1, 0.74, 0.22), (0, 0.86, 0.99)]
    """
    n_rows, most = as_confidence(confidence).size, np.iinfo(np.int64).max
    given = as_labels(predicted, n_rows, most, name="predicted")
    correct = given == as_labels(labels, n_rows, most)
    columns = (given, confidence, correct, sample_weight)
    sums = ClassSums.from_examples(*columns, n_classes=int(given.max()) + 1)
    error = top_label_ece(confidence, correct, sample_weight=sample_weight)
    return sums.table(ece=error, delta=delta)


def gap_p_values(
    n: FloatArray, says: FloatArray, right: FloatArray, margin: float = 0.0
) -> FloatArray:
    """Bounds on the probability of such shares if true ones are within `margin` of what is said.

    Chernoff's bound, which holds for rows of different confidence and any n (Hoeffding, 1963,
    doi:10.1080/01621459.1963.10500830).
    """
    from scipy.special import rel_entr

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
