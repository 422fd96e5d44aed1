"""Expected accuracy and class balance of the window, from a sample of its probabilities.

A pane keeps so many rows, those of the smallest hashes, so a window does not depend on how the
stream was cut, and replicas can be merged in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hokical._core.storage import pack_array, storable
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.calibrators import Calibrator
from hokical.guarantees._label_shift import NewRows
from hokical.guarantees._row_sketch import row_hashes
from hokical.guarantees._shift import ShiftEstimate, estimate_shift

#: Probabilities that a window keeps at most, 4 MB of them.
_MOST_NUMBERS = 1 << 20
#: Classes in a status.
_SHOWN = 20
_ARRAYS = ("key", "labels", "proba", "looks", "own_labels")


@storable("monitor-rows")
@dataclass(frozen=True, eq=False)
class SampledRows:
    """At most `most` rows: hashes, labels (m,), probabilities (m, classes), looks (m, looks).

    `own_labels` (m,) are the classifier's, -1 where they are not known, as in states before 0.4.
    """

    key: FloatArray
    labels: IntArray
    proba: AnyArray
    looks: IntArray
    own_labels: IntArray
    count: int
    most: int

    @classmethod
    def of(cls, calibrator: Calibrator, data: Any, most: int) -> Self:
        """Of checked rows."""
        rows = calibrator.without_groups().as_new_rows(data)
        proba = rows.proba.astype(np.float32)
        own = np.full_like(rows.labels, -1) if rows.own_labels is None else rows.own_labels
        return cls(row_hashes(data), rows.labels, proba, rows.looks, own, rows.count, most)

    def take(self, rows: AnyArray) -> Self:
        """Some of the rows, by a mask or by number, or as many of them as are kept."""
        own = np.arange(self.key.size)[rows]
        kept = own[np.argsort(self.key[own], kind="stable")[: self.most]]
        some: dict[str, Any] = {name: getattr(self, name)[kept] for name in _ARRAYS}
        return replace(self, **some, count=own.size)

    def __add__(self, other: Self) -> Self:
        both: dict[str, Any] = {
            n: np.concatenate([getattr(self, n), getattr(other, n)]) for n in _ARRAYS
        }
        kept = replace(self, **both).take(np.arange(both["key"].size))
        return replace(kept, count=self.count + other.count)

    def to_stored(self) -> dict[str, Any]:
        known = vars(self)
        return {n: pack_array(v) if isinstance(v, np.ndarray) else v for n, v in known.items()}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        unknown = np.full_like(stored["labels"], -1)
        return cls(**{"own_labels": unknown} | stored)

    def estimate(self, calibrator: Calibrator, delta: float) -> ShiftEstimate:
        """Of the rows of a window."""
        calibrator = calibrator.without_groups()
        own, counts = calibrator.without_twins(self.key, np.ones(self.key.size))
        proba = self.proba[own].astype(np.float64)
        proba /= proba.sum(axis=1, keepdims=True)
        weights = counts / counts.sum()
        labels, theirs = self.labels[own], self.own_labels[own]
        theirs = labels if calibrator.rule_.preserves_labels else theirs
        known = None if (theirs < 0).any() else theirs
        rows = NewRows(proba, labels, self.looks[own], weights, self.key.size, known)
        assert calibrator.class_scores_ is not None
        return estimate_shift(rows, calibrator.class_scores_, delta, calibrator)


def rows_per_pane(n_classes: int, n_panes: int) -> int:
    """How many rows a pane keeps."""
    return max(1, _MOST_NUMBERS // (n_classes * n_panes))


@dataclass(frozen=True)
class ClassShare:
    """The share of a class in the window, its interval, and its share in the fit."""

    name: str
    share: float
    low: float
    high: float
    old: float


@dataclass(frozen=True)
class Expected:
    """What the window's rows say without labels, of `n` of them; see `ShiftEstimate`.

    `dropped`: the accuracy of the window is below that of the classifier in the fit, by its
    interval. `balance` has
    the classes that changed most, at most 20. All are valid for one look.
    """

    n: int
    accuracy: float
    low: float
    high: float
    holds: bool
    dropped: bool
    verdict: str
    balance: tuple[ClassShare, ...]


def expected_status(
    rows: SampledRows, calibrator: Calibrator, delta: float, names: tuple[str, ...]
) -> Expected:
    """The estimate for a window, in a status."""
    found = rows.estimate(calibrator, delta)
    low, high = found.accuracy_interval
    scores = calibrator.fit_scores_
    order = np.argsort(-np.abs(found.balance - found.old_balance), kind="stable")[:_SHOWN]
    shares = tuple(
        ClassShare(
            names[k] if k < len(names) else str(k),
            float(found.balance[k]),
            float(found.balance_interval[k, 0]),
            float(found.balance_interval[k, 1]),
            float(found.old_balance[k]),
        )
        for k in order.tolist()
    )
    dropped = scores is not None and high < scores.accuracy
    return Expected(
        rows.count, found.accuracy, float(low), float(high), found.holds, bool(dropped),
        found.verdict, shares,
    )  # fmt: skip
