"""Counts of examples and mistakes at each level of a score; tables can be added."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.groups import match_cells, read_cells
from hokical._core.storage import storable
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._control import remembered
from hokical.guarantees._scores import LEVELS, confidence_log_odds, score_levels

#: So many levels are one, for the probability of each class.
_COARSE = 16


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, int64, (LEVELS,) from the lowest level of the score up.

    Or (classes, levels) by the probability of each class, `wrong` those of another one.
    """

    count: IntArray
    wrong: IntArray

    def __post_init__(self) -> None:
        for name, most in (("count", 1 << 62), ("wrong", self.count)):
            array = getattr(self, name)
            right = (
                array.shape[-1:] in ((LEVELS,), (LEVELS // _COARSE,)) and array.dtype.kind == "i"
            )
            if not right or not ((array >= 0) & (array <= most)).all():
                raise ValueError(
                    f"`{name}` must hold counts at each level, of which a part is wrong"
                )

    @classmethod
    def from_examples(
        cls,
        level: IntArray,
        wrong: BoolArray,
        weights: FloatArray | None = None,
        shape: tuple[int, ...] = (LEVELS,),
    ) -> Self:
        """Count examples; weights, if given, are integers: how often each was seen."""
        weights = np.ones(level.size) if weights is None else weights
        parts = [sum_by(level, each, math.prod(shape)) for each in (weights, weights * wrong)]
        return cls(*(part.astype(np.int64).reshape(shape) for part in parts))

    @classmethod
    def by_class(cls, proba: FloatArray, labels: IntArray, weights: FloatArray | None) -> Self:
        """By the probabilities (n, classes) of each class, of examples of true classes (n,)."""
        classes, columns = proba.shape[1], np.arange(proba.shape[1])
        level = class_levels(proba) + columns * (LEVELS // _COARSE)
        counts = None if weights is None else np.repeat(weights, classes)
        wrong = (labels[:, None] != columns).ravel()
        return cls.from_examples(level.ravel(), wrong, counts, (classes, LEVELS // _COARSE))

    @property
    def correct(self) -> IntArray:
        return self.count - self.wrong

    @property
    def total(self) -> int:
        return int(self.count.sum())

    @property
    def accuracy(self) -> float:
        return 1.0 - int(self.wrong.sum()) / self.total

    def __add__(self, other: Self) -> Self:
        return type(self)(self.count + other.count, self.wrong + other.wrong)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self.to_stored(),)

    def to_stored(self) -> dict[str, Any]:
        """The levels that hold examples, as arrays (occupied,): most are empty."""
        level = np.flatnonzero(self.count).astype(np.int64)
        parts = {"count": self.count.ravel()[level], "wrong": self.wrong.ravel()[level]}
        return {"level": level, **parts, "shape": list(self.count.shape)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be counts."""
        parts = [np.asarray(stored[name]) for name in ("level", "count", "wrong")]
        rising = (np.diff(parts[0], prepend=-1) > 0).all()
        if {(a.dtype.kind, a.shape) for a in parts} != {("i", parts[0].shape)} or not rising:
            raise ValueError("a table of counts must hold integers at rising levels")
        shape = tuple(stored.get("shape", (LEVELS,)))
        whole = np.zeros((2, math.prod(shape)), np.int64)
        whole[:, parts[0]] = parts[1:]
        return cls(*whole.reshape(2, *shape))

    def intervals(self, wanted: IntArray, delta: float, label: int | None = None) -> FloatArray:
        """Clopper-Pearson interval (n, 2) of the share of right ones among examples of a group.

        The group is that which each `wanted` level (n,) belongs to, or the levels next to it:
        rounding may move an example by a level, and some are counted one level away on purpose.
        """
        group, found = remembered(self, (label, delta), lambda: self._by_group(label, delta))
        sides = [found[group[np.clip(wanted + k, 0, group.size - 1)]] for k in (-1, 1)]
        low, high = np.moveaxis(np.stack(sides), -1, 0)
        return np.stack([low.min(axis=0), high.max(axis=0)], axis=1)

    def _by_group(self, label: int | None, delta: float) -> tuple[IntArray, FloatArray]:
        """The group of each level, (levels,), and the interval of each group, (groups, 2)."""
        parts = [a if label is None else a[label] for a in (self.correct, self.count)]
        group = group_of_level(parts[1])
        sums = [sum_by(group, part.astype(np.float64), int(group[-1]) + 1) for part in parts]
        return group, clopper_pearson(*sums, delta=delta)


@storable("score-tables")
@dataclass(frozen=True, eq=False)
class GroupTables:
    """A table for each group, whose values of the `columns` are one of `names`."""

    columns: tuple[str, ...]
    names: tuple[tuple[Any, ...], ...]
    tables: tuple[ScoreTable, ...]

    def __post_init__(self) -> None:
        sizes = {len(name) for name in self.names}
        if len(self.names) != len(self.tables) or not sizes <= {len(self.columns)}:
            raise ValueError("tables of groups must have as many names, one value a column")

    @classmethod
    def from_examples(
        cls, groups: Any, level: IntArray, wrong: BoolArray, weights: FloatArray | None
    ) -> Self:
        """Count examples (n,) of each of the `groups`."""
        columns, cells = read_cells(groups, level.size)
        names = tuple(dict.fromkeys(cells))
        own = match_cells(groups, level.size, columns, names)
        rows = [own == k for k in range(len(names))]
        counts = [None if weights is None else weights[some] for some in rows]
        tables = [
            ScoreTable.from_examples(level[some], wrong[some], count)
            for some, count in zip(rows, counts, strict=True)
        ]
        return cls(columns, names, tuple(tables))

    def match(self, groups: Any, n_rows: int) -> IntArray:
        """The place (n,) of each row's table; their number where the group is unknown."""
        return match_cells(groups, n_rows, self.columns, self.names)


@storable("neighbours")
class RetiredTable:
    """Counts in files of 0.3 that are not used any more."""

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> None:
        return None


def class_levels(proba: FloatArray) -> IntArray:
    """The levels (...) of probabilities of classes in a table of them."""
    return score_levels(confidence_log_odds(proba), _COARSE)


def group_of_level(count: IntArray) -> IntArray:
    """Divide levels into groups of neighbours with at least n^(2/3) examples each, (levels,).

    About n^(1/3) groups: both the width of a group and that of its interval shrink as n grows.
    The groups depend on the scores, never on the labels, and levels are not split.
    """
    reached = np.cumsum(count)
    total = int(reached[-1])
    size = math.ceil(total ** (2.0 / 3.0))
    last_levels: list[int] = []
    done = 0
    while total - done >= 2 * size:
        last_levels.append(int(np.searchsorted(reached, done + size)))
        done = int(reached[last_levels[-1]])
    if last_levels and total - done < size:
        last_levels.pop()
    return np.searchsorted(np.array(last_levels, np.int64), np.arange(count.size))
