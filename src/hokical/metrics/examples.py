"""The input of every metric is read and checked here, and nowhere else."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.conversion import check_probability_rows
from hokical._core.logits import row_slices
from hokical._core.reading import as_labels, as_weights, to_numpy


class _WeightedRows:
    """Rows: a column or table first, and a `weight` (n,), or None if all count alike."""

    weight: FloatArray | None

    @property
    def n_rows(self) -> int:
        return len(next(iter(vars(self).values())))

    def filled_weight(self) -> FloatArray:
        """The weights; ones if there are none."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def counted(self) -> Self:
        """The rows of weight above 0."""
        if self.weight is None or self.weight.all():
            return self
        kept = self.weight > 0
        columns = (column if column is None else column[kept] for column in vars(self).values())
        return type(self)(*columns)


@dataclass(frozen=True, eq=False)
class Outcomes(_WeightedRows):
    """Checked top-label data: `confidence` (n,), `correct` (n,), `weight` (n,) or None."""

    confidence: FloatArray
    correct: BoolArray
    weight: FloatArray | None


@dataclass(frozen=True, eq=False)
class Predictions(_WeightedRows):
    """Checked full-vector data: `proba` (n, classes), `labels` (n,), `weight` (n,) or None."""

    proba: AnyArray
    labels: IntArray
    weight: FloatArray | None

    @property
    def n_classes(self) -> int:
        return int(self.proba.shape[1])

    @property
    def top_label(self) -> Outcomes:
        """The probability of the most likely class, and whether it is the true one."""
        # At most 1: rows of float16 may sum to a little more.
        confidence = np.minimum(self.proba.max(axis=1).astype(np.float64), 1.0)
        return Outcomes(confidence, self.proba.argmax(axis=1) == self.labels, self.weight)


def as_examples(proba: Any, labels: Any, sample_weight: Any = None) -> Outcomes:
    """Check (n,) confidences and whether each was right, or (n, classes) and labels.

    Rows of weight 0 are dropped.
    """
    if np.ndim(proba) == 2:
        return as_predictions(proba, labels, sample_weight).top_label
    values = as_confidence(proba)
    truth = _as_correct(labels, values.shape[0])
    return Outcomes(values, truth, as_weights(sample_weight, values.shape[0])).counted()


def as_risks(probability: Any, outcome: Any, sample_weight: Any = None) -> Outcomes:
    """Check (n,) probabilities of an event and whether it happened; drop rows of weight 0."""
    values = as_confidence(probability, "probability")
    happened = _as_correct(outcome, values.shape[0], "outcome", "whether the event happened")
    return Outcomes(values, happened, as_weights(sample_weight, values.shape[0])).counted()


def as_predictions(proba: Any, labels: Any, sample_weight: Any = None) -> Predictions:
    """Check full-vector data and drop rows of weight 0. Rows are never rescaled."""
    table = _as_proba(proba)
    weight = as_weights(sample_weight, table.shape[0])
    return Predictions(table, as_labels(labels, *table.shape), weight).counted()


def check_norm(norm: Any) -> float:
    """The exponent of a norm: a number of at least 1, inf included."""
    if isinstance(norm, bool) or not isinstance(norm, (int, float, np.integer, np.floating)):
        raise TypeError(f"`norm` must be a number of at least 1, or inf; got {norm!r}.")
    if not norm >= 1:
        raise ValueError(f"`norm` must be at least 1, or inf; got {norm!r}. Use 1, 2 or math.inf.")
    return float(norm)


def check_inside(name: str, value: Any, low: float, high: float) -> float:
    """A number above `low` and at most `high`."""
    if not low < value <= high:
        rule = f"above {low:g}" if math.isinf(high) else f"above {low:g} and at most {high:g}"
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.")
    return float(value)


def as_confidence(confidence: Any, name: str = "confidence") -> FloatArray:
    """Checked confidences (n,), or other probabilities of that name."""
    array = _as_numbers(confidence, name)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must be 1-D (n,), one number per example, or probabilities "
            f"(n, classes); got shape {array.shape}. Flatten it, or use `hokical.Dense`."
        )
    if array.shape[0] == 0:
        raise ValueError(f"`{name}` must have at least one entry; got none.")
    values = array.astype(np.float64)
    bad = ~((values >= 0.0) & (values <= 1.0))  # catches NaN too, which compares false
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"`{name}` must lie in [0, 1]; got {values[row]} in row {row}. Logits are not "
            "probabilities; clip values that are only just outside due to rounding."
        )
    return values


def _as_numbers(values: Any, name: str, rule: str = "numbers in [0, 1]") -> AnyArray:
    array = to_numpy(values, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must be {rule}; got dtype {array.dtype}.")
    return array


def _as_correct(
    correct: Any, n_rows: int, name: str = "correct", what: str = "`predicted == labels`"
) -> BoolArray:
    array = _as_numbers(correct, name, "booleans, or 0 and 1")
    if array.shape != (n_rows,):
        raise ValueError(
            f"`{name}` must be 1-D with one entry per confidence ({n_rows}); got shape "
            f"{array.shape}."
        )
    bad = (array != 0) & (array != 1)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"`{name}` must be True or False (or 1 or 0); got {array[row]} in row {row}. "
            f"Pass {what}, not the labels."
        )
    return array.astype(np.bool_)


def _as_proba(proba: Any) -> AnyArray:
    array = _as_numbers(proba, "proba")
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] < 2:
        raise ValueError(
            "`proba` must be 2-D (n, classes) with a row per example and at least two columns; "
            f"got shape {array.shape}."
        )
    for rows in row_slices(*array.shape):
        block, remedy = array[rows].astype(np.float64), "For logits apply a softmax first."
        check_probability_rows(block, "proba", remedy=remedy, first_row=rows.start, slack=0.0)
    return array
