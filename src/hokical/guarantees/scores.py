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
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, Literal, Self

import numpy as np

from hokical._core.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
)
from hokical._core.checks import ArrayOf, check_choice, show, sum_by
from hokical._core.groups import GroupNames
from hokical._core.logits import Logits, by_blocks
from hokical._core.memo import Memo, remembered
from hokical._core.special import expit, exponential, safe_log
from hokical._core.storage import storable
from hokical.guarantees import control
from hokical.guarantees.bounds import check_chance, clopper_pearson

#: The examples behind a guarantee: those of `fit`, or those passed to `certify`.
Source = Literal["fit", "held-out"]
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

    With `coarse`, a power of 2, each level is that many of these.
    """
    level = np.asarray(np.arcsinh(np.asarray(log_odds, np.float64)))
    level *= _PER_UNIT / coarse
    np.floor(level, out=level)
    level -= _LOWEST / coarse
    return np.clip(level, 0, LEVELS // coarse - 1, out=level).astype(np.int64)


def middle_log_odds(n_levels: int) -> FloatArray:
    """The log-odds (n_levels,) in the middle of each of `n_levels` levels."""
    level = LEVELS * (np.arange(n_levels) + 0.5) / n_levels + _LOWEST
    return np.asarray(np.sinh(level / _PER_UNIT))


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
    log_odds = np.sinh((np.asarray(level) + _LOWEST) / _PER_UNIT)
    return np.select(
        [np.equal(level, 0), np.equal(level, LEVELS)], [-np.inf, np.inf], log_odds
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
        odds_against = fused[0]
    else:
        terms = exponential(-block.margins, xp)
        odds_against = xp.sum(block.put_at_label(terms, 0.0 * terms[:, :1]), axis=1)
    if block.tail is not None:
        odds_against = odds_against + block.tail.count * xp.exp(-block.tail.margin)
    return -safe_log(odds_against, xp)


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

    def __add__(self, second: Self) -> Self:
        return self.from_rows(
            *map(np.append, vars(self).values(), vars(second).values())
        )

    @property
    def edges(self) -> list[float]:
        """The ends of both ranges, (4,), moved outwards: rows served in float32 stay
        inside.
        """
        bounds = np.append(self.log_odds, self.top)
        size = (
            1.0
            + np.abs(self.top).max()
            + np.where(np.isfinite(bounds), np.abs(bounds), 0.0)
        )
        moved: list[float] = (
            bounds + 2.0**-18 * size * [-1.0, 1.0, -1.0, 1.0]
        ).tolist()
        return moved


def is_within(logits: Logits, edges: Any) -> Array:
    """Which rows (n,) lie within the `edges` (4,) of a support; a row that holds NaN
    does not.
    """
    score = label_log_odds(logits)
    top = logits.top
    score_within = (score >= edges[0]) & (score <= edges[1])
    return score_within & (top >= edges[2]) & (top <= edges[3])


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, int64, (LEVELS,) from the lowest level of the score up.

    Or (cells, levels): of each group, with their `groups`; or of all examples by the
    probability of each class, `wrong` those of another one. Examples may be
    `clustered`: one of each cluster was counted.
    """

    count: IntArray
    wrong: IntArray
    groups: GroupNames | None = None
    clustered: bool = False
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)

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
            names, group_index = groups
            shape = (len(names.names), LEVELS)
            level = group_index * LEVELS + level
        weights = np.ones(level.size) if weights is None else weights
        tables = [
            sum_by(level, amounts, math.prod(shape))
            for amounts in (weights, weights * wrong)
        ]
        count, wrongs = (sums.astype(np.int64).reshape(shape) for sums in tables)
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

    @remembered
    def cells(self) -> tuple[Self, ...]:
        """The table of each cell."""
        return tuple(map(type(self), self.count, self.wrong))

    @remembered
    def pooled(self) -> Self:
        """The table of all groups together."""
        if self.groups is None:
            return self
        return type(self)(self.count.sum(axis=0), self.wrong.sum(axis=0))

    @property
    def total(self) -> int:
        return int(self.count.sum())

    def __add__(self, second: Self) -> Self:
        return type(self)(self.count + second.count, self.wrong + second.wrong)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self.to_stored(),)

    def to_stored(self) -> dict[str, Any]:
        """The levels that hold examples, as arrays (occupied,): most are empty."""
        level = np.flatnonzero(self.count).astype(np.int64)
        occupied = {
            name: getattr(self, name).ravel()[level] for name in ("count", "wrong")
        }
        shape = list(self.count.shape)
        names = {"groups": self.groups, "clustered": self.clustered}
        return {"level": level, "shape": shape, **occupied, **names}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be
        counts.
        """
        level, count, wrong = (
            np.asarray(stored[name]) for name in ("level", "count", "wrong")
        )
        is_valid = {(a.dtype.kind, a.shape) for a in (level, count, wrong)} == {
            ("i", level.shape)
        }
        is_valid &= bool((np.diff(level, prepend=-1) > 0).all())
        is_valid &= bool(((wrong >= 0) & (wrong <= count) & (count <= 1 << 62)).all())
        shape = tuple(stored.get("shape", (LEVELS,)))
        groups = stored.get("groups")
        cells = (LEVELS,) if groups is None else (len(groups.names), LEVELS)
        if not is_valid or (shape != cells and shape[1:] != (CLASS_LEVELS,)):
            raise ValueError(
                "a table must hold counts at rising levels, of which a part is wrong"
            )
        table = np.zeros((2, math.prod(shape)), np.int64)
        table[:, level] = count, wrong
        counts, wrongs = table.reshape(2, *shape)
        return cls(counts, wrongs, groups, stored.get("clustered", False))

    def intervals(
        self, levels: IntArray, values: FloatArray, delta: float
    ) -> FloatArray:
        """Clopper-Pearson interval (n, 2) of the share of right ones among examples of
        a part.

        The part is that which each of the `levels` (n,) belongs to, or the levels next
        to it: rounding may move an example by a level, and some are counted one level
        away on purpose. Intervals are extended to the `values` (n,).
        """
        bin_of_level, bin_intervals = self._by_part(delta)
        below, above = (
            bin_intervals[bin_of_level[np.clip(levels + k, 0, bin_of_level.size - 1)]].T
            for k in (-1, 1)
        )
        low = np.minimum(below[0], above[0])
        high = np.maximum(below[1], above[1])
        return np.stack([np.minimum(low, values), np.maximum(high, values)], axis=1)

    @remembered
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
        bin_of_level = np.searchsorted(
            np.array(last_levels, np.int64), np.arange(self.count.size)
        )
        counts = (
            (self.count - self.wrong).astype(np.float64),
            self.count.astype(np.float64),
        )
        sums = [
            sum_by(bin_of_level, amounts, int(bin_of_level[-1]) + 1)
            for amounts in counts
        ]
        return bin_of_level, clopper_pearson(*sums, delta=delta)


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


def starting_levels(risk: float, source: Source) -> IntArray:
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


@dataclass(frozen=True)
class AbstentionOptions:
    """What is asked of abstention; see `Calibrator.predict_or_abstain`."""

    risk: float
    delta: float
    by: Literal["all", "group", "new group"] = "all"

    def __post_init__(self) -> None:
        for name in ("risk", "delta"):  # as floats, of whatever numbers they are
            share = check_chance(name, getattr(self, name))
            object.__setattr__(self, name, share)
        check_choice("by", self.by, Literal["all", "group", "new group"])


@dataclass(frozen=True, eq=False)
class AbstentionThresholds:
    """From which score on labels are accepted, and what that guarantees.

    Attributes
    ----------
    levels : the least accepted level (cells,) of each group, or of all together;
        `LEVELS` where nothing is accepted
    coverage : the share of the examples behind the guarantee that is accepted
    certified_on : which examples these are
    guarantee : the guarantee in words
    """

    options: AbstentionOptions
    levels: IntArray
    coverage: float
    certified_on: Source
    guarantee: str

    @property
    def log_odds(self) -> Any:
        """The smallest accepted log-odds: a number, or one for each group."""
        least_odds = level_log_odds(self.levels)
        return least_odds if self.options.by == "group" else float(least_odds[0])

    def accepts(self, level: IntArray, cells: IntArray | None = None) -> BoolArray:
        """Which rows (n,) are accepted, by their levels and the cells of their groups.

        A cell beyond the last is that of a group without examples.
        """
        least = np.append(self.levels, LEVELS)
        return level >= (least[0] if cells is None else least[cells])


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
    certified_on: Source
    guarantee: str

    @classmethod
    def of(
        cls, proven: AbstentionThresholds, labels: Any, confidence: Any, accepted: Any
    ) -> Self:
        """Rows with the thresholds that they were accepted by."""
        return cls(
            labels,
            confidence,
            accepted,
            risk=proven.options.risk,
            delta=proven.options.delta,
            threshold_log_odds=proven.log_odds,
            coverage=proven.coverage,
            certified_on=proven.certified_on,
            guarantee=proven.guarantee,
        )

    @property
    def threshold(self) -> Any:
        """The threshold as a probability: of the softmax, or of the calibrated
        confidence.
        """
        return expit(self.threshold_log_odds, np)

    def labels_or(self, abstained: Any = -1) -> Any:
        """The labels (n,), with `abstained` where they are not accepted."""
        # Names too, of a scikit-learn classifier.
        if isinstance(self.labels, np.ndarray):
            try:
                return np.where(self.accepted, self.labels, abstained)
            except (TypeError, ValueError, OverflowError) as error:
                raise TypeError(
                    f"`abstained` must be one label, of dtype {self.labels.dtype}; got "
                    f"{show(abstained)}."
                ) from error
        return self.labels * self.accepted + abstained * ~self.accepted

    def __str__(self) -> str:
        n_accepted = int(self.accepted.sum())
        n_rows = math.prod(self.accepted.shape)
        return f"{n_accepted:,} of {n_rows:,} accepted. {self.guarantee}"


def match_groups(
    table: ScoreTable, by: str, groups: object, n_rows: int
) -> IntArray | None:
    """The cell (n,) of each row's group with `by="group"`; warn of unknown groups."""
    if by == "group" and groups is None:
        raise ValueError(
            '`groups` must be given with `by="group"`, as in `certify`; got None.'
        )
    names = table.groups
    if by != "all":
        names = control.known_groups(names, by, alike=True)
    if by == "new group" or groups is None or names is None:
        return None
    if by == "group":
        return names.match(groups, n_rows, "are not accepted")[0]
    names.tell_new(groups, n_rows, "may have another error rate than the guarantee's")
    return None


@remembered
def prove_abstention(
    table: ScoreTable, options: AbstentionOptions, source: Source, tested: bool
) -> AbstentionThresholds:
    """The lowest thresholds whose error rate the examples of a table prove.

    Unless `tested`, the table counts the classifier's own labels where others may be
    predicted: the risk is then that of a wrong label among rows that reach the
    threshold, accepted or not.
    """
    if options.by != "all":
        control.known_groups(table.groups, options.by, alike=True)
    if options.by == "new group":
        return _prove_new_group(table, options, source)
    tables = table.cells() if options.by == "group" else (table.pooled(),)
    starts = starting_levels(options.risk, source)
    levels = [
        lowest_level(cell, options.risk, options.delta, starts) for cell in tables
    ]
    subject = "accepted labels" if tested else "rows that reach the threshold"
    if options.by == "group" and tested:
        subject += " of each group"
    lowest = list(zip(tables, levels, strict=True))
    coverage, message = _state_abstention(table, lowest, options, source, subject)
    n_empty = levels.count(LEVELS)
    if n_empty:
        message += f" Of {n_empty} of {len(levels)} groups nothing is accepted."
    if not tested:
        message += (
            " A label that calibration has changed is not accepted; call `certify` to "
            "include such labels."
        )
    if n_empty == len(levels):
        largest = max(tables, key=lambda cell: cell.total)
        message = _why_nothing(largest, options.risk, options.delta, source)
    return AbstentionThresholds(options, np.array(levels), coverage, source, message)


def _prove_new_group(
    table: ScoreTable, options: AbstentionOptions, source: Source
) -> AbstentionThresholds:
    """The threshold for a further group, drawn like those of the table."""
    risk = options.risk
    shown = table.count.any(axis=1)  # of weight 0 alone, a group shows nothing
    losses = [_from_top(table.count[shown], table.wrong[shown], risk)]
    levels = [LEVELS - 1 - control.last_for_new_group(losses, options.delta)]
    subject = (
        f"accepted labels of a new group, drawn like the {shown.sum():,} of "
        f"`certify`, if {control.least_shown(risk):,} of its labels (or half of them) "
        "are accepted"
    )
    coverage, message = _state_abstention(
        table, [(table.pooled(), levels[0])], options, source, subject
    )
    if levels[0] == LEVELS:
        message = control.why_no_new_group(losses, options.delta, "Nothing is accepted")
    return AbstentionThresholds(options, np.array(levels), coverage, source, message)


def _state_abstention(
    table: ScoreTable,
    lowest: Sequence[tuple[ScoreTable, int]],
    options: AbstentionOptions,
    source: Source,
    subject: str,
) -> tuple[float, str]:
    """The share of examples that is accepted, and the guarantee in words.

    `lowest` are cells of the table, each with its lowest accepted level.
    """
    n_accepted = sum(int(cell.count[level:].sum()) for cell, level in lowest)
    n_wrong = sum(int(cell.wrong[level:].sum()) for cell, level in lowest)
    kind = "examples of the fit" if source == "fit" else "held-out examples"
    clustered = control.ONE_OF_EACH * table.clustered
    message = control.state_guarantee(
        f"At most {control.percent(options.risk)} errors among the {subject}",
        f"of {table.total:,} {kind}{clustered} the same rule accepts {n_accepted:,}, "
        f"with {n_wrong:,} errors",
        delta=options.delta,
        by=options.by,
    )
    return n_accepted / max(table.total, 1), message


def _why_nothing(table: ScoreTable, risk: float, delta: float, source: Source) -> str:
    """What can be guaranteed instead, and how many examples the risk needs."""
    share = delta / starting_levels(risk, source).size
    occupied = np.flatnonzero(table.count)
    losses = _from_top(table.count[occupied], table.wrong[occupied], risk)

    def proves(tried_risk: float) -> bool:
        # Where tests start depends on the risk, so a smaller one than the best of these
        # may have been proven, if it had been asked for at first.
        starts = starting_levels(tried_risk, source)
        return lowest_level(table, tried_risk, delta, starts) < LEVELS

    def would_prove(times: float) -> bool:
        return bool((losses.repeated(times).p_values() <= share).any())

    shortfall = control.Shortfall(
        table.total,
        f"a risk of {risk:.4g}",
        delta,
        smallest=f"{control.smallest_risk(proves, risk):.3g}",
        fewest=control.fewest_examples(risk, share),
        would_prove=would_prove,
    )
    return shortfall.describe("Nothing is accepted")
