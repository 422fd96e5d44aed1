"""Metrics of prediction sets: coverage and size, by class and by size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hokical._core.labels import as_labels
from hokical._core.portable import normal_quantile
from hokical._core.reading import to_numpy
from hokical._core.types import BoolArray, IntArray
from hokical.guarantees._binomial import check_chance, clopper_pearson

#: Sizes up to here are rows of their own; the rest is one.
_SIZES = 10


@dataclass(frozen=True)
class SetRow:
    """Some of the rows: how many, the share covered with its interval, and the mean size."""

    name: str
    n: int
    coverage: float
    low: float
    high: float
    mean_size: float


@dataclass(frozen=True)
class SetSummary:
    """`overall`, `by_class` (true classes that occur) and `by_size` of the sets.

    The interval of the mean size is normal, those of coverage are Clopper and Pearson's; each
    misses with probability `delta`. `goal` is the coverage that was asked for; `source` says where
    thresholds come from.
    """

    overall: SetRow
    size_low: float
    size_high: float
    by_class: tuple[SetRow, ...]
    by_size: tuple[SetRow, ...]
    goal: float | None
    delta: float
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return asdict(self)


def summarize_sets(
    members: Any, labels: Any, *, goal: float | None = None, delta: float = 0.05, source: str = ""
) -> SetSummary:
    """Coverage and size of sets `members` (n, classes), bool, for true `labels` (n,).

    >>> found = summarize_sets([[True, False], [True, True]], [1, 1], goal=0.9)
    >>> found.overall.coverage, found.overall.mean_size, [row.name for row in found.by_size]
    (0.5, 1.5, ['1', '2'])
    """
    inside = np.asarray(to_numpy(members, "members"))
    if inside.ndim != 2 or inside.dtype != np.bool_ or not inside.size:
        raise ValueError(
            f"`members` must be 2-D (n, classes), bool; got shape {inside.shape}, dtype "
            f"{inside.dtype}. `predict_set(...).members` has them."
        )
    delta = check_chance("delta", delta)
    truth = as_labels(labels, *inside.shape)
    covered, sizes = inside[np.arange(truth.size), truth], inside.sum(axis=1)
    width = float(normal_quantile(np.array([1.0 - delta / 2.0]))[0] * sizes.std())
    width /= np.sqrt(sizes.size)
    return SetSummary(
        overall=_rows(np.zeros_like(truth), covered, sizes, delta)[0],
        size_low=float(sizes.mean()) - width,
        size_high=float(sizes.mean()) + width,
        by_class=_rows(truth, covered, sizes, delta),
        by_size=_rows(np.minimum(sizes, _SIZES + 1), covered, sizes, delta, most=_SIZES),
        goal=goal,
        delta=delta,
        source=source,
    )


def _rows(
    group: IntArray, covered: BoolArray, sizes: IntArray, delta: float, most: float = np.inf
) -> tuple[SetRow, ...]:
    """A row for each group that occurs; one above `most` is named so."""
    names, place = np.unique(group, return_inverse=True)
    n, hits, total = (np.bincount(place, part) for part in (None, covered, sizes))
    ends = clopper_pearson(hits, n, delta=delta)
    numbers = zip(names, n, hits / n, ends[:, 0], ends[:, 1], total / n, strict=True)
    return tuple(
        SetRow(str(name) if name <= most else f"> {most}", int(k), *map(float, rest))
        for name, k, *rest in numbers
    )
