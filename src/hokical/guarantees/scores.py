"""Scores for thresholds: log-odds that the label is right, on levels fixed in advance;
tables of counts at each level; and when to answer: the lowest threshold whose error
rate they prove.

Levels are equally spaced in asinh(log-odds): linear around 0, with a fixed ratio (0.4
%) far from it, so the same levels suit logits of any scale. Because they do not depend
on data, tests at them are valid, and their tables can be added. For rows whose score
lies outside the range of the calibration examples, their `Support`, a calibrator
extrapolates.

Thresholds are tested exactly, in an order fixed in advance; `docs/guarantees.md` has
the proof, and the simulations behind the choice of this procedure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Annotated, Any, Literal, Self

import numpy as np

from hokical._core.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    to_input_library,
)
from hokical._core.checks import ArrayOf, check_choice, sum_by
from hokical._core.groups import GroupNames
from hokical._core.logits import Logits, by_blocks
from hokical._core.special import expit, exponential, safe_log
from hokical._core.storage import storable
from hokical.guarantees import control
from hokical.guarantees.bounds import check_chance, clopper_pearson

#: The examples behind a guarantee: those of `fit`, or those passed to `certify`.
Evidence = Literal["fit", "held-out"]
_PER_UNIT = 256
_LOWEST = -4 * _PER_UNIT
#: Share of a logit by which float32, and sums in float32, change a score: a few ulps.
_FLOAT32_SHARE = 2.0**-20
#: Number of levels: log-odds from -27 to 1490, beyond the range of a softmax in
#: float64.
LEVELS = 12 * _PER_UNIT
#: So many levels are one, for the probability of each class.
_PER_CLASS_LEVEL = 16
CLASS_LEVELS = LEVELS // _PER_CLASS_LEVEL


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
    odds: Sequence[FloatArray], wrong: BoolArray, top: FloatArray
) -> IntArray:
    """The level (n,) at which to count each example, whatever rounding does to it when
    served.

    In float32, or on another device, a score comes out a little different, and may fall
    on another level. So wrong examples are counted at the highest level they may reach
    and right ones at the lowest: whichever level each is served at, no threshold
    accepts more wrong examples than were counted above it, nor fewer right ones. `odds`
    are forms (n,) of the score, which can be off by a share of it and of the `top`
    logit (n,).
    """
    least, most = (reduce(join, odds) for join in (np.minimum, np.maximum))
    score = np.where(wrong, most, least)
    away = np.where(wrong, _FLOAT32_SHARE, -_FLOAT32_SHARE)
    size = np.abs(np.where(np.isfinite(score), score, 0.0))
    return score_levels(score + away * (1.0 + np.abs(top)) + away * size)


def level_log_odds(level: Any) -> FloatArray:
    """The smallest log-odds (...) on levels, -inf on the lowest, inf beyond the
    highest.
    """
    found = np.sinh((np.asarray(level) + _LOWEST) / _PER_UNIT)
    return np.select(
        [np.equal(level, 0), np.equal(level, LEVELS)], [-np.inf, np.inf], found
    )


def confidence_log_odds(confidence: FloatArray) -> FloatArray:
    """log(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(confidence) - np.log1p(-confidence))


def label_log_odds(logits: Logits) -> Array:
    """Softmax log-odds of the classifier's own label, (n,): -log sum_{i != label}
    exp(-d_i).
    """
    return by_blocks(block_log_odds, logits)


def block_log_odds(block: Logits) -> Array:
    """The same of a block of rows.

    The sum leaves the label out instead of subtracting it, so nothing cancels at high
    confidence. inf where the probability of all other classes underflows.
    """
    xp = block.xp
    fused = None if block.is_numpy else block.backend.kernels.label_distances(block)
    if fused is not None:
        rest = fused[0]
    else:
        terms = exponential(-block.margins, xp)
        rest = xp.sum(block.put_at_label(terms, 0.0 * terms[:, :1]), axis=1)
    if block.tail is not None:
        rest = rest + block.tail.count * xp.exp(-block.tail.margin)
    return -safe_log(rest, xp)


@storable("support")
@dataclass(frozen=True, eq=False)
class Support:
    """Ranges (2,) of the label's softmax log-odds (its Gumbel stability) and of the top
    logit.

    A further example, exchangeable with the n of the fit, lies outside with probability
    at most 4 / (n + 1).
    """

    log_odds: Annotated[FloatArray, ArrayOf((2,), -np.inf, np.inf)]
    top: Annotated[FloatArray, ArrayOf((2,), -np.inf, np.inf)]

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Of a file, whose numbers may be in any order."""
        if not all(low <= high for low, high in stored.values()):
            raise ValueError(
                "`support` must hold ranges, each with the smaller end first."
            )
        return cls(**stored)

    @classmethod
    def from_rows(cls, log_odds: FloatArray, top: FloatArray) -> Self:
        """Of rows with these log-odds and top logits, (n,) each."""
        return cls(*(np.array([x.min(), x.max()], np.float64) for x in (log_odds, top)))

    def __add__(self, other: Self) -> Self:
        return self.from_rows(
            *map(np.append, vars(self).values(), vars(other).values())
        )

    @property
    def edges(self) -> list[float]:
        """The ends of both ranges, (4,), moved outwards: rows served in float32 stay
        inside.
        """
        ends = np.append(self.log_odds, self.top)
        size = (
            1.0
            + np.abs(self.top).max()
            + np.where(np.isfinite(ends), np.abs(ends), 0.0)
        )
        found: list[float] = (ends + 2.0**-18 * size * [-1.0, 1.0, -1.0, 1.0]).tolist()
        return found


def is_within(logits: Logits, edges: Any) -> Array:
    """Which rows (n,) lie within the `edges` (4,) of a support; a row that holds NaN
    does not.
    """
    score = label_log_odds(logits)
    top = logits.top
    sure = (score >= edges[0]) & (score <= edges[1])
    return sure & (top >= edges[2]) & (top <= edges[3])


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, int64, (LEVELS,) from the lowest level of the score up.

    Or (cells, levels): of each group, with their `groups`; or of all examples by the
    probability of each class, `wrong` those of another one. `unseen` is the table of
    predictions that a group gets which the fit does not know, where those of these
    groups differ. Examples may be `clustered`: one of each cluster was counted.
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
        """Count examples (n,); weights, if given, are integers: how often each was
        seen.

        `groups` are their names, and the place (n,) of each example's among them.
        """
        names = None
        if groups is not None:
            names, place = groups
            shape = (len(names.names), LEVELS)
            level = place * LEVELS + level
        weights = np.ones(level.size) if weights is None else weights
        parts = [
            sum_by(level, each, math.prod(shape)) for each in (weights, weights * wrong)
        ]
        count, wrongs = (part.astype(np.int64).reshape(shape) for part in parts)
        return cls(count, wrongs, names)

    @classmethod
    def by_class(
        cls, proba: FloatArray, labels: IntArray, weights: FloatArray | None
    ) -> Self:
        """By the probabilities (n, classes) of each class, of examples of true
        classes (n,).
        """
        columns = np.arange(proba.shape[1])
        shape = (proba.shape[1], CLASS_LEVELS)
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
    def total(self) -> int:
        return int(self.count.sum())

    def __add__(self, other: Self) -> Self:
        return type(self)(self.count + other.count, self.wrong + other.wrong)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self.to_stored(),)

    def to_stored(self) -> dict[str, Any]:
        """The levels that hold examples, as arrays (occupied,): most are empty."""
        level = np.flatnonzero(self.count).astype(np.int64)
        held = {name: getattr(self, name).ravel()[level] for name in ("count", "wrong")}
        beside = {
            name: getattr(self, name) for name in ("groups", "unseen", "clustered")
        }
        return {"level": level, "shape": list(self.count.shape), **held, **beside}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be
        counts.
        """
        level, count, wrong = (
            np.asarray(stored[name]) for name in ("level", "count", "wrong")
        )
        right = {(a.dtype.kind, a.shape) for a in (level, count, wrong)} == {
            ("i", level.shape)
        }
        right &= bool((np.diff(level, prepend=-1) > 0).all())
        right &= bool(((wrong >= 0) & (wrong <= count) & (count <= 1 << 62)).all())
        shape = tuple(stored.get("shape", (LEVELS,)))
        groups = stored.get("groups")
        cells = (LEVELS,) if groups is None else (len(groups.names), LEVELS)
        if not right or (shape != cells and shape[1:] != (CLASS_LEVELS,)):
            raise ValueError(
                "a table must hold counts at rising levels, of which a part is wrong"
            )
        whole = np.zeros((2, math.prod(shape)), np.int64)
        whole[:, level] = count, wrong
        counts, wrongs = whole.reshape(2, *shape)
        return cls(
            counts, wrongs, groups, stored.get("unseen"), stored.get("clustered", False)
        )

    def intervals(
        self, wanted: IntArray, values: FloatArray, delta: float
    ) -> FloatArray:
        """Clopper-Pearson interval (n, 2) of the share of right ones among examples of
        a part.

        The part is that which each `wanted` level (n,) belongs to, or the levels next
        to it: rounding may move an example by a level, and some are counted one level
        away on purpose. Intervals are extended to the `values` (n,).
        """
        part, found = self._by_part(delta)
        below, above = (
            found[part[np.clip(wanted + k, 0, part.size - 1)]].T for k in (-1, 1)
        )
        low = np.minimum(below[0], above[0])
        high = np.maximum(below[1], above[1])
        return np.stack([np.minimum(low, values), np.maximum(high, values)], axis=1)

    @control.remembered
    def _by_part(self, delta: float) -> tuple[IntArray, FloatArray]:
        """The part of each level, (levels,), and the interval of each part, (parts, 2).

        Parts are neighbours with at least n^(2/3) examples together, so that there are
        about n^(1/3): both the width of a part and that of its interval shrink as n
        grows. They depend on the scores, never on the labels, and levels are not split.
        """
        reached = np.cumsum(self.count)
        done = 0
        last_levels = []
        size = math.ceil(self.total ** (2.0 / 3.0))
        while self.total - done >= 2 * size:
            last_levels.append(int(np.searchsorted(reached, done + size)))
            done = int(reached[last_levels[-1]])
        if last_levels and self.total - done < size:
            last_levels.pop()
        part = np.searchsorted(
            np.array(last_levels, np.int64), np.arange(self.count.size)
        )
        counts = (
            (self.count - self.wrong).astype(np.float64),
            self.count.astype(np.float64),
        )
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
    return score_levels(confidence_log_odds(proba), _PER_CLASS_LEVEL)


def lowest_level(table: ScoreTable, risk: float, delta: float, starts: IntArray) -> int:
    """The lowest level at which "the error rate from here up exceeds `risk`" is
    rejected.

    Levels are tested from the highest down; `delta` is divided equally among the
    `starts`. LEVELS if none is rejected.
    """
    losses = _from_top(table.count, table.wrong, risk)
    return LEVELS - 1 - control.last_safe([losses], delta, LEVELS - 1 - starts)


def _from_top(count: IntArray, wrong: IntArray, risk: float) -> control.Losses:
    """Errors among the accepted, (..., levels), from the highest level down."""
    accepted, errors = (np.cumsum(n[..., ::-1], axis=-1) for n in (count, wrong))
    return control.Losses(errors, accepted, risk, accepted[..., -1])


def starting_levels(risk: float, source: Evidence) -> IntArray:
    """Where testing may start: near the log-odds of 1 - risk.

    They depend on the risk alone. A calibrated confidence should be close to its true
    value; the classifier's own softmax may be off by a temperature.
    """
    if source == "held-out":
        shares = risk * np.array([0.125, 0.25, 0.5, 1.0])
        return score_levels(np.log1p(-shares) - np.log(shares))
    smoothed = min(risk, 0.5)
    temperatures = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    return score_levels(temperatures * math.log((1.0 - smoothed) / smoothed))


@dataclass(frozen=True, eq=False)
class SelectivePrediction:
    """Labels, and which of them to give as answers.

    `labels`, `confidence` and `accepted` (n,) are of all examples, accepted or not; see
    `labels_or`. `threshold_log_odds` is the smallest accepted score, inf if nothing is
    accepted (one for each group, if the guarantee is by group), and `coverage` the
    fraction that it accepts of the examples behind the guarantee: those of the "fit"
    (the score is the classifier's own softmax) or "held-out" ones (it is the calibrated
    confidence), as `certified_on` says. Examples of the fit test the classifier's own
    labels: of rows that reach the threshold, those whose label calibration has changed
    are not accepted.
    """

    labels: IntArray
    confidence: FloatArray
    accepted: BoolArray
    risk: float
    delta: float
    threshold_log_odds: Any
    coverage: float
    certified_on: Evidence
    guarantee: str

    @property
    def threshold(self) -> Any:
        """The threshold as a probability: of the softmax, or of the calibrated
        confidence.
        """
        return expit(self.threshold_log_odds, np)

    def labels_or(self, abstained: Any = -1) -> Any:
        """The labels (n,), with `abstained` where they are not accepted."""
        if isinstance(
            self.labels, np.ndarray
        ):  # names too, of a scikit-learn classifier
            return np.where(self.accepted, self.labels, abstained)
        return self.labels * self.accepted + abstained * ~self.accepted

    def __str__(self) -> str:
        kept = int(self.accepted.sum())
        return (
            f"{kept:,} of {math.prod(self.accepted.shape):,} accepted. {self.guarantee}"
        )


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """Labels and confidences (n,), and the examples that test them: counts by score,
    `level` (n,) that of each row.

    `untested` labels (n,) are others than those that the table counts, and are not
    accepted: then the risk is that of a wrong label among rows that reach the
    threshold, accepted or not.
    """

    labels: IntArray
    confidence: FloatArray
    level: IntArray
    table: ScoreTable
    certified_on: Evidence
    untested: BoolArray | None = None

    def accept(
        self, like: Any, *, risk: float, delta: float, by: str, groups: Any
    ) -> SelectivePrediction:
        """Apply the thresholds that the table proves; arrays are of the library of
        those `like`.

        With `by="group"` the risk is that of each of the table's groups; of rows of
        other `groups` nothing is accepted. With `by="new group"` it is that of a
        further group like the table's.
        """
        risk = check_chance("risk", risk)
        delta = check_chance("delta", delta)
        check_choice("by", by, Literal["all", "group", "new group"])
        if by == "group" and groups is None:
            raise ValueError(
                '`groups` must be given with `by="group"`, as in `certify`; got None.'
            )
        table = self.table
        names = self.table.groups
        cell = np.zeros(1, np.int64)
        if by != "all":
            names = control.known_groups(names, by, alike=True)
        if by == "new group":
            table = table.unseen or table
        elif by == "group" and names is not None:
            cell, _ = names.match(groups, self.level.size, "are not accepted")
        elif groups is not None and names is not None:  # for the warning
            fate = "may have another error rate than the guarantee's"
            names.match(groups, self.level.size, fate)
        tested = self.untested is None
        least, coverage, words = _prove(
            table, risk, delta, self.certified_on, by, tested
        )
        log_odds = level_log_odds(least[:-1])
        accepted = self.level >= least[cell]
        if self.untested is not None:
            accepted &= ~self.untested
        rows = (self.labels, self.confidence, accepted)
        labels, confidence, accepted = (to_input_library(array, like) for array in rows)
        threshold = log_odds if by == "group" else float(log_odds[0])
        proven = (risk, delta, threshold, coverage, self.certified_on, words)
        return SelectivePrediction(labels, confidence, accepted, *proven)


@control.remembered
def _prove(
    table: ScoreTable,
    risk: float,
    delta: float,
    source: Evidence,
    by: str,
    tested: bool,
) -> tuple[IntArray, float, str]:
    """The least accepted level of each group and of unknown ones, or of all together or
    of a new one, LEVELS where nothing is; the share of examples that they accept, and
    the guarantee.
    """
    tables = table.rows if by == "group" else (table.whole,)
    whom = "accepted labels" if tested else "rows that reach the threshold"
    whom += " of each group" * (by == "group" and tested)
    if by == "new group":
        shown = table.count.any(axis=1)  # of weight 0 alone, a group shows nothing
        losses = [_from_top(table.count[shown], table.wrong[shown], risk)]
        least = [LEVELS - 1 - control.last_for_new_group(losses, delta)]
        whom += (
            f" of a new group, drawn like the {shown.sum():,} of `certify`, if "
            f"{control.least_shown(risk):,} of its labels (or half of them) are "
            "accepted"
        )
    else:
        starts = starting_levels(risk, source)
        least = [lowest_level(each, risk, delta, starts) for each in tables]
    reached = sum(
        int(each.count[k:].sum()) for each, k in zip(tables, least, strict=True)
    )
    wrong = sum(
        int(each.wrong[k:].sum()) for each, k in zip(tables, least, strict=True)
    )
    place = "examples of the fit" if source == "fit" else "held-out examples"
    words = control.state_guarantee(
        f"At most {control.percent(risk)} errors among the {whom}",
        f"of {table.total:,} {place}{control.ONE_OF_EACH * table.clustered} the same "
        f"rule accepts {reached:,}, with {wrong:,} errors",
        delta=delta,
        by=by,
    )
    if none := least.count(LEVELS):
        words += f" Of {none} of {len(least)} groups nothing is accepted."
    if not tested:
        words += (
            " A label that calibration has changed is not accepted; call `certify` to "
            "include "
        )
        words += "such labels."
    if none == len(least) and by == "new group":
        words = control.why_no_new_group(losses, delta, "Nothing is accepted")
    elif none == len(least):
        words = _why_nothing(
            max(tables, key=lambda each: each.total), risk, delta, source
        )
    return np.array([*least, LEVELS]), reached / max(table.total, 1), words


def _why_nothing(table: ScoreTable, risk: float, delta: float, source: Evidence) -> str:
    """What can be guaranteed instead, and how many examples the wanted guarantee
    needs.
    """
    share = delta / starting_levels(risk, source).size
    held = np.flatnonzero(table.count)
    losses = _from_top(table.count[held], table.wrong[held], risk)

    def proves(other: float) -> bool:
        # Where tests start depends on the risk, so a smaller one than the best of these
        # may have been proven, if it had been asked for at first.
        return (
            lowest_level(table, other, delta, starting_levels(other, source)) < LEVELS
        )

    def would_prove(times: float) -> bool:
        return bool((losses.repeated(times).p_values() <= share).any())

    best = f"{control.smallest_risk(proves, risk):.3g}"
    known: Any = {
        "fewest": control.fewest_examples(risk, share),
        "would_prove": would_prove,
    }
    wanted = f"a risk of {risk:.4g}"
    return control.why_none(
        "Nothing is accepted", table.total, wanted, delta, best=best, **known
    )
