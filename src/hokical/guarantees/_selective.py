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

from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import binomial_tail
from hokical.guarantees._control import (
    examples_needed,
    fewest_examples,
    last_proven,
    more_examples,
    remembered,
    smallest_risk,
)
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import LEVELS, level_log_odds, score_levels
from hokical.guarantees._words import Guaranteed, state_limits, state_promise

#: The examples behind a guarantee: those of `fit`, or those passed to `certify`.
Evidence = Literal["fit", "held-out"]

#: Temperatures by which a classifier's own log-odds may be miscalibrated.
_TEMPERATURES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
#: Fractions of the allowed risk; a calibrated confidence is its own probability of error.
_SHARES = np.array([0.125, 0.25, 0.5, 1.0])


@dataclass(frozen=True)
class Threshold:
    """Accept from `level` up (None: nothing); how many of `total` examples that accepts."""

    level: int | None
    accepted: int
    wrong: int
    total: int


def choose_threshold(table: ScoreTable, risk: float, delta: float, starts: IntArray) -> Threshold:
    """The lowest level at which "the error rate from here up exceeds `risk`" is rejected.

    Levels are tested from the highest down; `delta` is divided equally among the `starts`.
    """
    accepted, wrong = (np.cumsum(part[::-1]) for part in (table.count, table.wrong))
    last = last_proven(binomial_tail(wrong, accepted, risk), LEVELS - 1 - starts, delta)
    if last < 0:
        return Threshold(None, 0, 0, table.total)
    return Threshold(LEVELS - 1 - last, int(accepted[last]), int(wrong[last]), table.total)


def starting_levels(risk: float, source: Evidence) -> IntArray:
    """Where testing may start: near the log-odds of 1 - risk.

    They depend on the risk alone. A calibrated confidence should be close to its true value; the
    classifier's own softmax may be off by a temperature.
    """
    if source == "held-out":
        return score_levels(np.log1p(-risk * _SHARES) - np.log(risk * _SHARES))
    smoothed = min(risk, 0.5)
    return score_levels(_TEMPERATURES * math.log((1.0 - smoothed) / smoothed))


def prove_threshold(table: ScoreTable, risk: float, delta: float, source: Evidence) -> Threshold:
    """`choose_threshold` from the starts that the source of the examples suggests, remembered."""
    starts = starting_levels(risk, source)
    question = ("threshold", risk, delta, source)
    return remembered(table, question, lambda: choose_threshold(table, risk, delta, starts))


@dataclass(frozen=True, eq=False)
class SelectivePrediction(Guaranteed):
    """Labels, and which of them to give as answers.

    `labels`, `confidence` and `accepted` (n,) are of all examples, accepted or not; see
    `labels_or`. `threshold_log_odds` is the smallest accepted score, inf if nothing is accepted
    (one for each group, if the promise is by group), and `coverage` the fraction that it accepts
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

    def labels_or(self, abstained: int = -1) -> IntArray:
        """The labels (n,), with `abstained` where they are not accepted."""
        # Not np.where: these may be tensors.
        return self.labels * self.accepted + abstained * ~self.accepted

    def __str__(self) -> str:
        kept = int(self.accepted.sum())
        return f"{kept:,} of {math.prod(self.accepted.shape):,} accepted. {self.guarantee}"


def selective_prediction(
    labels: IntArray,
    confidence: FloatArray,
    levels: IntArray,
    table: ScoreTable,
    cells: IntArray | None = None,
    *,
    risk: float,
    delta: float,
    certified_on: Evidence,
    untested: BoolArray | None = None,
) -> SelectivePrediction:
    """Apply the thresholds that a table proves to the levels (n,) of new examples.

    `cells` (n,) are their groups in the table, if the risk is that of each group; a number that it
    does not have is an unknown group, of which nothing is accepted. `untested` labels (n,) are
    others than those that the table counts, and are not accepted: then the risk is that of a wrong
    label among rows that reach the threshold, accepted or not.
    """
    tables = (table.whole,) if cells is None else table.rows
    found = [prove_threshold(table, risk, delta, certified_on) for table in tables]
    least = np.array([LEVELS if each.level is None else each.level for each in found] + [LEVELS])
    accepted = levels >= (least[0] if cells is None else least[cells])
    odds = np.array([np.inf if k == LEVELS else level_log_odds(int(k)) for k in least[:-1]])
    if untested is not None:
        accepted &= ~untested
    total, reached = (sum(getattr(each, n) for each in found) for n in ("total", "accepted"))
    question = ("words", risk, delta, certified_on, cells is not None, untested is None)
    words = remembered(tables[0], question, lambda: _promise(found, tables, *question[1:]))
    threshold = float(odds[0]) if cells is None else odds
    promise = (risk, delta, threshold, reached / max(total, 1), certified_on, words)
    return SelectivePrediction(labels, confidence, accepted, *promise)


def _promise(
    found: Sequence[Threshold],
    tables: Sequence[ScoreTable],
    risk: float,
    delta: float,
    source: Evidence,
    by_group: bool,
    tested: bool,
) -> str:
    reached, wrong, total = (sum(getattr(each, name) for each in found)
                             for name in ("accepted", "wrong", "total"))  # fmt: skip
    place = "examples of the fit" if source == "fit" else "held-out examples"
    none = [each.level is None for each in found]
    if all(none):
        return _why_nothing(tables, risk, delta, source)
    what = f"At most {risk:.4g} of the accepted labels{' of each group' * by_group} are wrong"
    if not tested:
        what = f"At most {risk:.4g} of the rows that reach the threshold get a wrong label"
    behind = (
        f"of {total:,} {place} the same rule accepts {reached:,}, and {wrong:,} of those are wrong"
    )
    words = state_promise(what, behind, delta=delta, by="group" if by_group else "all")
    words += f" Of {sum(none)} of {len(none)} groups nothing is accepted." * any(none)
    changed = " A label that calibration has changed is not accepted; `certify` tests such too."
    return words + changed * (not tested)


def _why_nothing(tables: Sequence[ScoreTable], risk: float, delta: float, source: Evidence) -> str:
    """What can be promised instead, and how many examples the wanted promise needs."""
    table = max(tables, key=lambda each: each.total)
    share = delta / starting_levels(risk, source).size
    with_examples = np.flatnonzero(table.count)[::-1]
    accepted, wrong = (np.cumsum(part[with_examples]) for part in (table.count, table.wrong))

    def proves(other: float) -> bool:
        # Where tests start depends on the risk, so a smaller one than the best of these may have
        # been proven, if it had been asked for at first.
        starts = starting_levels(other, source)
        return choose_threshold(table, other, delta, starts).level is not None

    def would_prove(times: float) -> bool:
        return bool((binomial_tail(*more_examples(wrong, accepted, times), risk) <= share).any())

    best, needed = smallest_risk(proves, risk), examples_needed(would_prove, table.total)
    fewest = fewest_examples(risk, share)
    return (
        f"Nothing is accepted: {table.total:,} examples do not prove a risk of {risk:.4g} with "
        f"confidence {1.0 - delta:.4g}. "
        f"{state_limits(table.total, f'{best:.3g}', f'{risk:.4g}', fewest, needed)}"
    )
