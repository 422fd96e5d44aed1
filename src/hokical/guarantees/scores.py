"""Scores for thresholds: log-odds that the label is right, on levels fixed in advance; and tables
of counts at each level.

Levels are equally spaced in asinh(log-odds): linear around 0, with a fixed ratio (0.4 %) far from
it, so the same levels suit logits of any scale. Because they do not depend on data, tests at them
are valid, and their tables can be added. For rows whose score lies outside the range of the
calibration examples, their `Support`, a calibrator extrapolates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.groups import GroupNames
from hokical._core.logits import Logits, by_blocks, put_at_label
from hokical._core.special import exponential, safe_log
from hokical._core.storage import storable
from hokical.guarantees.bounds import clopper_pearson
from hokical.guarantees.control import remembered

_PER_UNIT = 256
_LOWEST = -4 * _PER_UNIT
#: Share of a logit by which float32, and sums in float32, change a score: a few ulps.
_SLACK = 2.0**-20
#: Ranges of a support are widened by this share, so that rows served in float32 stay inside.
_EDGE_SLACK = 2.0**-18
#: Number of levels: log-odds from -27 to 1490, beyond the range of a softmax in float64.
LEVELS = 12 * _PER_UNIT
#: So many levels are one, for the probability of each class.
_COARSE = 16
CLASS_LEVELS = LEVELS // _COARSE


def score_levels(log_odds: Any, coarse: int = 1) -> IntArray:
    """Level of each of the log-odds, 0 ... LEVELS - 1; values outside are clipped.

    Or of so many times fewer levels, each of which is `coarse` of these: a power of 2.
    """
    place = np.asarray(np.arcsinh(np.asarray(log_odds, np.float64)))
    place *= _PER_UNIT / coarse
    np.floor(place, out=place)
    place -= _LOWEST / coarse
    return np.clip(place, 0, LEVELS // coarse - 1, out=place).astype(np.int64)


def middle_log_odds(n_levels: int) -> FloatArray:
    """The log-odds in the middle of each level (n_levels,), where there are so many."""
    place = LEVELS * (np.arange(n_levels) + 0.5) / n_levels + _LOWEST
    return np.asarray(np.sinh(place / _PER_UNIT))


def conservative_levels(
    log_odds: Sequence[FloatArray], wrong: BoolArray, top: FloatArray
) -> IntArray:
    """The level (n,) at which to count each example, whatever rounding does to it when served.

    In float32, or on another device, a score comes out a little different, and may fall on another
    level. So wrong examples are counted at the highest level they may reach and right ones at the
    lowest: whichever level each is served at, no threshold accepts more wrong examples than were
    counted above it, nor fewer right ones. `log_odds` are forms (n,) of the score, which can be
    off by a share of it and of the `top` logit (n,).
    """
    least, most = (reduce(join, log_odds) for join in (np.minimum, np.maximum))
    score, away = np.where(wrong, most, least), np.where(wrong, _SLACK, -_SLACK)
    size = np.abs(np.where(np.isfinite(score), score, 0.0))
    return score_levels(score + away * (1.0 + np.abs(top)) + away * size)


def level_log_odds(level: Any) -> FloatArray:
    """The smallest log-odds (...) on levels, -inf on the lowest, inf beyond the highest."""
    found = np.sinh((np.asarray(level) + _LOWEST) / _PER_UNIT)
    return np.select([np.equal(level, 0), np.equal(level, LEVELS)], [-np.inf, np.inf], found)


def confidence_log_odds(confidence: FloatArray) -> FloatArray:
    """log(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(confidence) - np.log1p(-confidence))


def label_log_odds(logits: Logits) -> Array:
    """Softmax log-odds of the classifier's own label, (n,): -log sum_{i != label} exp(-d_i).

    The sum leaves the label out instead of subtracting it, so nothing cancels at high confidence.
    inf where the probability of all other classes underflows.
    """

    def work(block: Logits) -> Array:
        xp, fused = block.xp, block.backend.kernels.label_distances(block)
        if fused is not None:
            rest = fused[0]
        else:
            terms = exponential(-block.margins, xp)
            rest = xp.sum(put_at_label(terms, 0.0 * terms[:, :1], block), axis=1)
        if block.tail is not None:
            rest = rest + block.tail.count * xp.exp(-block.tail.margin)
        return -safe_log(rest, xp)

    return by_blocks(work, logits)


@storable("support")
@dataclass(frozen=True, eq=False)
class Support:
    """Ranges (2,) of the label's softmax log-odds (its Gumbel stability) and of the top logit.

    A further example, exchangeable with the n of the fit, lies outside with probability at most
    4 / (n + 1).
    """

    log_odds: FloatArray
    top: FloatArray

    def __post_init__(self) -> None:
        for name in ("log_odds", "top"):
            ends = getattr(self, name)
            array = isinstance(ends, np.ndarray) and ends.dtype == np.float64
            if not array or ends.shape != (2,) or not ends[0] <= ends[1]:
                raise ValueError(f"`{name}` must be two numbers, the smaller one first.")

    @classmethod
    def from_rows(cls, log_odds: FloatArray, top: FloatArray) -> Self:
        """Of rows with these log-odds and top logits, (n,) each."""
        return cls(*(np.array([x.min(), x.max()], np.float64) for x in (log_odds, top)))

    def __or__(self, other: Self) -> Self:
        pairs = ((self.log_odds, other.log_odds), (self.top, other.top))
        return self.from_rows(*map(np.concatenate, pairs))

    def holds(self, logits: Logits) -> Array:
        """Which rows (n,) lie within both ranges."""
        return is_within(logits, self.edges)

    @property
    def edges(self) -> list[float]:
        """The ends of both ranges, (4,), moved outwards by what rounding may change."""
        ends = np.append(self.log_odds, self.top)
        size = 1.0 + np.abs(self.top).max() + np.where(np.isfinite(ends), np.abs(ends), 0.0)
        found: list[float] = (ends + _EDGE_SLACK * size * [-1.0, 1.0, -1.0, 1.0]).tolist()
        return found


def is_within(logits: Logits, edges: Any) -> Array:
    """Which rows (n,) lie within the `edges` (4,) of a support; a row that holds NaN does not."""
    score, top = label_log_odds(logits), logits.top
    sure = (score >= edges[0]) & (score <= edges[1])
    return sure & (top >= edges[2]) & (top <= edges[3])


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, int64, (LEVELS,) from the lowest level of the score up.

    Or (cells, levels): of each group, with their `groups`; or of all examples by the probability of
    each class, `wrong` those of another one. `unseen` is the table of predictions that a group gets
    which the fit does not know, where those of these groups differ. Examples may be `clustered`:
    one of each cluster was counted.
    """

    count: IntArray
    wrong: IntArray
    groups: GroupNames | None = None
    unseen: ScoreTable | None = None
    clustered: bool = False

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
        columns, shape = np.arange(proba.shape[1]), (proba.shape[1], CLASS_LEVELS)
        level = class_levels(proba) + columns * shape[1]
        counts = None if weights is None else np.repeat(weights, columns.size)
        wrong = (labels[:, None] != columns).ravel()
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
        return {"level": level, **parts, "shape": list(self.count.shape), "groups": self.groups,
                "unseen": self.unseen, "clustered": self.clustered}  # fmt: skip

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be counts."""
        level, count, wrong = (np.asarray(stored[name]) for name in ("level", "count", "wrong"))
        right = {(a.dtype.kind, a.shape) for a in (level, count, wrong)} == {("i", level.shape)}
        right &= bool((np.diff(level, prepend=-1) > 0).all())
        right &= bool(((wrong >= 0) & (wrong <= count) & (count <= 1 << 62)).all())
        shape, groups = tuple(stored.get("shape", (LEVELS,))), stored.get("groups")
        cells = (LEVELS,) if groups is None else (len(groups.names), LEVELS)
        if not right or (shape != cells and shape[1:] != (CLASS_LEVELS,)):
            raise ValueError("a table must hold counts at rising levels, of which a part is wrong")
        if not isinstance(stored.get("unseen"), cls | None):
            raise ValueError("`unseen` must be a table")
        whole = np.zeros((2, math.prod(shape)), np.int64)
        whole[:, level] = count, wrong
        counts, wrongs = whole.reshape(2, *shape)
        unseen, clustered = stored.get("unseen"), bool(stored.get("clustered", False))
        return cls(counts, wrongs, groups, unseen, clustered)

    def intervals(self, wanted: IntArray, values: FloatArray, delta: float) -> FloatArray:
        """Clopper-Pearson interval (n, 2) of the share of right ones among examples of a part.

        The part is that which each `wanted` level (n,) belongs to, or the levels next to it:
        rounding may move an example by a level, and some are counted one level away on purpose.
        Intervals are extended to the `values` (n,).
        """
        part, found = self._by_part(delta)
        below, above = (found[part[np.clip(wanted + k, 0, part.size - 1)]].T for k in (-1, 1))
        low, high = np.minimum(below[0], above[0]), np.maximum(below[1], above[1])
        return np.stack([np.minimum(low, values), np.maximum(high, values)], axis=1)

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
