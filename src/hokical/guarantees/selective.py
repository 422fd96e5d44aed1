"""When to answer: the lowest threshold whose error rate is proven, and what it accepts.

Thresholds are tested exactly, in an order fixed in advance; `docs/guarantees.md` has the proof, and
the simulations behind the choice of this procedure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical.guarantees import control
from hokical.guarantees.bounds import binomial_tail, check_chance
from hokical.guarantees.scores import LEVELS, ScoreTable, level_log_odds, score_levels

#: The examples behind a guarantee: those of `fit`, or those passed to `certify`.
Evidence = Literal["fit", "held-out"]

#: Temperatures by which a classifier's own log-odds may be miscalibrated.
_TEMPERATURES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
#: Fractions of the allowed risk; a calibrated confidence is its own probability of error.
_SHARES = np.array([0.125, 0.25, 0.5, 1.0])


def lowest_level(table: ScoreTable, risk: float, delta: float, starts: IntArray) -> int:
    """The lowest level at which "the error rate from here up exceeds `risk`" is rejected.

    Levels are tested from the highest down; `delta` is divided equally among the `starts`. LEVELS
    if none is rejected.
    """
    accepted, wrong = (np.cumsum(part[::-1]) for part in (table.count, table.wrong))
    last = control.last_proven(binomial_tail(wrong, accepted, risk), LEVELS - 1 - starts, delta)
    return LEVELS if last < 0 else LEVELS - 1 - last


def starting_levels(risk: float, source: Evidence) -> IntArray:
    """Where testing may start: near the log-odds of 1 - risk.

    They depend on the risk alone. A calibrated confidence should be close to its true value; the
    classifier's own softmax may be off by a temperature.
    """
    if source == "held-out":
        return score_levels(np.log1p(-risk * _SHARES) - np.log(risk * _SHARES))
    smoothed = min(risk, 0.5)
    return score_levels(_TEMPERATURES * math.log((1.0 - smoothed) / smoothed))


@dataclass(frozen=True, eq=False)
class SelectivePrediction(control.Guaranteed):
    """Labels, and which of them to give as answers.

    `labels`, `confidence` and `accepted` (n,) are of all examples, accepted or not; see
    `labels_or`. `threshold_log_odds` is the smallest accepted score, inf if nothing is accepted
    (one for each group, if the guarantee is by group), and `coverage` the fraction that it accepts
    of the examples behind the guarantee: those of the "fit" (the score is the classifier's own
    softmax) or "held-out" ones (it is the calibrated confidence), as `certified_on` says. Examples
    of the fit test the classifier's own labels: of rows that reach the threshold, those whose label
    calibration has changed are not accepted.
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
        """The threshold as a probability: of the softmax, or of the calibrated confidence."""
        return 1.0 / (1.0 + np.exp(-self.threshold_log_odds))

    def map_arrays(self, change: Callable[[Any], Any]) -> Self:
        """The same with `labels`, `confidence` and `accepted` converted, as to another library."""
        names = ("labels", "confidence", "accepted")
        return replace(self, **{name: change(getattr(self, name)) for name in names})

    def labels_or(self, abstained: Any = -1) -> Any:
        """The labels (n,), with `abstained` where they are not accepted."""
        if isinstance(self.labels, np.ndarray):  # names too, of a scikit-learn classifier
            return np.where(self.accepted, self.labels, abstained)
        return self.labels * self.accepted + abstained * ~self.accepted

    def __str__(self) -> str:
        kept = int(self.accepted.sum())
        return f"{kept:,} of {math.prod(self.accepted.shape):,} accepted. {self.guarantee}"


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """Labels and confidences (n,), and the examples that test them: counts by score, `level` (n,)
    that of each row.

    `untested` labels (n,) are others than those that the table counts, and are not accepted: then
    the risk is that of a wrong label among rows that reach the threshold, accepted or not.
    """

    labels: IntArray
    confidence: FloatArray
    level: IntArray
    table: ScoreTable
    certified_on: Evidence
    untested: BoolArray | None = None

    def accept(self, *, risk: float, delta: float, by: str, groups: Any) -> SelectivePrediction:
        """Apply the thresholds that the table proves.

        With `by="group"` the risk is that of each of the table's groups; of rows of other `groups`
        nothing is accepted. With `by="new group"` it is that of a further group like the table's.
        """
        risk, delta = check_chance("risk", risk), check_chance("delta", delta)
        names, cell = self.table.groups, np.zeros(1, np.int64)
        if by not in ("all", "group", "new group"):
            raise ValueError(f'`by` must be "all", "group" or "new group"; got {by!r}.')
        if by == "all" and groups is not None and names is not None:
            names.match(groups, self.level.size, "may have another error rate than the guarantee's")
        if by != "all":
            if by == "group" and groups is None:
                raise ValueError(
                    '`groups` must be given with `by="group"`; got None. Pass those of the rows, '
                    "with the columns that `certify` got."
                )
            if names is None:
                raise ValueError(
                    f'`by="{by}"` needs examples that count alike with their groups: call '
                    "`certify(..., groups=groups)` first."
                )
        if by == "group" and names is not None:
            cell, _ = names.match(groups, self.level.size, "are not accepted")
        if by == "new group" and names is not None:
            names.check_countable(alike=True)
            proof = _prove_new_group(self.table.unseen or self.table, risk, delta)
        else:
            tested = self.untested is None
            proof = _prove(self.table, risk, delta, self.certified_on, by == "group", tested)
        accepted = self.level >= proof.least[cell]
        if self.untested is not None:
            accepted &= ~self.untested
        threshold = proof.log_odds if by == "group" else float(proof.log_odds[0])
        guarantee = (risk, delta, threshold, proof.coverage, self.certified_on, proof.guarantee)
        return SelectivePrediction(self.labels, self.confidence, accepted, *guarantee)


@dataclass(frozen=True, eq=False)
class _Proof:
    """The `least` accepted level of each group, and of unknown ones; LEVELS if nothing is."""

    least: IntArray
    log_odds: FloatArray
    coverage: float
    guarantee: str


@control.remembered
def _prove(
    table: ScoreTable, risk: float, delta: float, source: Evidence, by_group: bool, tested: bool
) -> _Proof:
    """Thresholds of all examples together or of each group, and the guarantee in words."""
    tables, starts = table.rows if by_group else (table.whole,), starting_levels(risk, source)
    least = [lowest_level(each, risk, delta, starts) for each in tables]
    pairs = list(zip(tables, least, strict=True))
    reached = sum(int(each.count[level:].sum()) for each, level in pairs)
    wrong = sum(int(each.wrong[level:].sum()) for each, level in pairs)
    place = "examples of the fit" if source == "fit" else "held-out examples"
    place += control.ONE_OF_EACH * table.clustered
    most = f"At most {control.percent(risk)} errors among the"
    what = f"{most} accepted labels{' of each group' * by_group}"
    if not tested:
        what = f"{most} rows that reach the threshold"
    behind = f"of {table.total:,} {place} the same rule accepts {reached:,}, with {wrong:,} errors"
    words = control.state_guarantee(what, behind, delta=delta, by="group" if by_group else "all")
    if none := least.count(LEVELS):
        words += f" Of {none} of {len(least)} groups nothing is accepted."
    if not tested:
        words += " A label that calibration has changed is not accepted; call `certify` to include "
        words += "such labels."
    if none == len(least):
        words = _why_nothing(tables, risk, delta, source)
    share = reached / max(table.total, 1)
    return _Proof(np.array([*least, LEVELS]), level_log_odds(least), share, words)


@control.remembered
def _prove_new_group(table: ScoreTable, risk: float, delta: float) -> _Proof:
    """One threshold for the rows of a group that is drawn like those of the table."""
    rows = table.count.any(axis=1)  # of weight 0 alone, a group shows nothing
    parts = (table.count[rows], table.wrong[rows])
    accepted, wrong = (np.cumsum(part[:, ::-1], axis=1) for part in parts)
    losses = control.GroupLosses(wrong, accepted, accepted[:, -1])
    last, n = control.last_for_new_group([(losses, risk)], delta), len(accepted)
    least = LEVELS if last < 0 else LEVELS - 1 - last
    reached, share = int(accepted[:, last].sum()), f"{control.least_shown(risk):,} of its labels"
    words = control.state_guarantee(
        f"At most {control.percent(risk)} errors among the accepted labels of a new group, drawn "
        f"like the {n:,} of `certify`, if {share} (or half of them) are accepted",
        f"of {table.total:,} held-out examples{control.ONE_OF_EACH * table.clustered} the same "
        f"rule accepts {reached:,}, with "
        f"{int(wrong[:, last].sum()):,} errors",
        delta=delta, by="new group",
    )  # fmt: skip
    words += control.ABOUT_SHOWN
    if last < 0:
        words = control.why_no_new_group([(losses, risk)], delta, "Nothing is accepted")
        reached = 0
    return _Proof(np.array([least]), level_log_odds([least]), reached / max(table.total, 1), words)


def _why_nothing(tables: Sequence[ScoreTable], risk: float, delta: float, source: Evidence) -> str:
    """What can be guaranteed instead, and how many examples the wanted guarantee needs."""
    table = max(tables, key=lambda each: each.total)
    share = delta / starting_levels(risk, source).size
    with_examples = np.flatnonzero(table.count)[::-1]
    accepted, wrong = (np.cumsum(part[with_examples]) for part in (table.count, table.wrong))

    def proves(other: float) -> bool:
        # Where tests start depends on the risk, so a smaller one than the best of these may have
        # been proven, if it had been asked for at first.
        return lowest_level(table, other, delta, starting_levels(other, source)) < LEVELS

    def would_prove(times: float) -> bool:
        more = control.more_examples(wrong, accepted, times)
        return bool((binomial_tail(*more, risk) <= share).any())

    n, wanted, best = table.total, f"{risk:.4g}", f"{control.smallest_risk(proves, risk):.3g}"
    words = control.state_limits(n, best, wanted, control.fewest_examples(risk, share), would_prove)
    return (
        f"Nothing is accepted: {n:,} examples do not prove a risk of {wanted} with "
        f"{control.percent(1.0 - delta)} confidence. {words}"
    )
