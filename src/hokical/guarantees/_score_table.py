"""Counts of examples and mistakes at each level of a score; tables can be added."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.storage import storable
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._control import remembered
from hokical.guarantees._group_names import GroupNames
from hokical.guarantees._scores import LEVELS, confidence_log_odds, score_levels

#: So many levels are one, for the probability of each class.
_COARSE = 16


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, int64, (LEVELS,) from the lowest level of the score up.

    Or (cells, levels): of each group, with their `groups`; or of all examples by the probability of
    each class, `wrong` those of another one.
    """

    count: IntArray
    wrong: IntArray
    groups: GroupNames | None = None

    @classmethod
    def from_examples(
        cls,
        level: IntArray,
        wrong: BoolArray,
        weights: FloatArray | None = None,
        groups: tuple[GroupNames, IntArray] | None = None,
        shape: tuple[int, ...] = (LEVELS,),
    ) -> Self:
        """Count examples (n,); weights, if given, are integers: how often each was seen.

        `groups` are their names, and the place (n,) of each example's among them.
        """
        names = None
        if groups is not None:
            names, place = groups
            shape, level = (len(names.names), LEVELS), place * LEVELS + level
        weights = np.ones(level.size) if weights is None else weights
        parts = [sum_by(level, each, math.prod(shape)) for each in (weights, weights * wrong)]
        count, wrongs = (part.astype(np.int64).reshape(shape) for part in parts)
        return cls(count, wrongs, names)

    @classmethod
    def by_class(cls, proba: FloatArray, labels: IntArray, weights: FloatArray | None) -> Self:
        """By the probabilities (n, classes) of each class, of examples of true classes (n,)."""
        classes, columns = proba.shape[1], np.arange(proba.shape[1])
        level = class_levels(proba) + columns * (LEVELS // _COARSE)
        counts = None if weights is None else np.repeat(weights, classes)
        wrong = (labels[:, None] != columns).ravel()
        shape = (classes, LEVELS // _COARSE)
        return cls.from_examples(level.ravel(), wrong, counts, shape=shape)

    @cached_property
    def rows(self) -> tuple[Self, ...]:
        """The table of each cell."""
        return tuple(map(type(self), self.count, self.wrong))

    @cached_property
    def whole(self) -> Self:
        """The table of all groups together."""
        if self.groups is None:
            return self
        return type(self)(self.count.sum(axis=0), self.wrong.sum(axis=0))

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
        return {"level": level, **parts, "shape": list(self.count.shape), "groups": self.groups}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be counts."""
        level, count, wrong = (np.asarray(stored[name]) for name in ("level", "count", "wrong"))
        right = {(a.dtype.kind, a.shape) for a in (level, count, wrong)} == {("i", level.shape)}
        right &= bool((np.diff(level, prepend=-1) > 0).all())
        right &= bool(((wrong >= 0) & (wrong <= count) & (count <= 1 << 62)).all())
        shape, groups = tuple(stored.get("shape", (LEVELS,))), stored.get("groups")
        cells = (LEVELS,) if groups is None else (len(groups.names), LEVELS)
        if not right or (shape != cells and shape[1:] != (LEVELS // _COARSE,)):
            raise ValueError("a table must hold counts at rising levels, of which a part is wrong")
        whole = np.zeros((2, math.prod(shape)), np.int64)
        whole[:, level] = count, wrong
        counts, wrongs = whole.reshape(2, *shape)
        return cls(counts, wrongs, groups)

    def intervals(self, wanted: IntArray, delta: float) -> FloatArray:
        """Clopper-Pearson interval (n, 2) of the share of right ones among examples of a part.

        The part is that which each `wanted` level (n,) belongs to, or the levels next to it:
        rounding may move an example by a level, and some are counted one level away on purpose.
        """
        part, found = self._by_part(delta)
        sides = [found[part[np.clip(wanted + k, 0, part.size - 1)]] for k in (-1, 1)]
        low, high = np.moveaxis(np.stack(sides), -1, 0)
        return np.stack([low.min(axis=0), high.max(axis=0)], axis=1)

    @remembered
    def _by_part(self, delta: float) -> tuple[IntArray, FloatArray]:
        """The part of each level, (levels,), and the interval of each part, (parts, 2)."""
        part = part_of_level(self.count)
        counts = (self.correct.astype(np.float64), self.count.astype(np.float64))
        sums = [sum_by(part, each, int(part[-1]) + 1) for each in counts]
        return part, clopper_pearson(*sums, delta=delta)


@storable("neighbours")
class RetiredTable:
    """Counts in files of 0.3 that are not used any more."""

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> None:
        return None


def class_levels(proba: FloatArray) -> IntArray:
    """The levels (...) of probabilities of classes in a table of them."""
    return score_levels(confidence_log_odds(proba), _COARSE)


def part_of_level(count: IntArray) -> IntArray:
    """Divide levels into parts of neighbours with at least n^(2/3) examples each, (levels,).

    About n^(1/3) parts: both the width of a part and that of its interval shrink as n grows.
    The parts depend on the scores, never on the labels, and levels are not split.
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
