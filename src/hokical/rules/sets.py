"""Sets of classes: how strange each class is, and the classes that are not too strange.

A kind of set is a `SetScore`, whose formula stands here once: examples of `certify` get
the score of their true class, whose quantile is a threshold, and `SetRule` takes the
classes whose score is at most that threshold. Classes are taken in the order of falling
probability, equal ones in the order of their columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, ClassVar, Literal

import numpy as np

from hokical._core.arrays import Array, FloatArray, IntArray, Namespace
from hokical._core.checks import (
    ArrayOf,
    NoEvidenceError,
    Within,
    check_choice,
    check_count,
)
from hokical._core.logits import Logits
from hokical.rules.base import (
    Rule,
    UncalibratedRule,
    WrappedRule,
    probabilities,
)

#: Classes above a probability; the likeliest until they sum to a probability; or those
#: above a probability that no other class cuts off from the likeliest, in the order of
#: columns.
SetKind = Literal["smallest", "adaptive", "ordered"]
#: Share of a threshold by which float32, or another device, may change a probability.
THRESHOLD_SLACK = 2.0**-20


@dataclass(frozen=True, eq=False)
class Standing:
    """Where classes stand among all classes of their row, in arrays of one shape.

    Attributes
    ----------
    proba : their probabilities
    above : the sum of those that are likelier
    rank : 1 for the likeliest
    run : the least probability from the likeliest class to this one, by columns
    """

    proba: Array
    above: Array = None
    rank: Array = None
    run: Array = None

    @classmethod
    def of_truth(cls, proba: Array, labels: IntArray, block: Logits) -> Standing:
        """That of the true classes (n,), by the probabilities (n, classes) of a
        block.
        """
        xp = block.xp
        columns = block.from_host(np.arange(block.n_classes))[None, :]
        truth = block.from_host(labels)[:, None]
        true_proba = xp.take_along_axis(proba, truth, axis=1)
        likelier = (proba > true_proba) | ((proba == true_proba) & (columns < truth))
        best = xp.argmax(proba, axis=1)[:, None]
        from_best = columns >= xp.minimum(best, truth)
        between = from_best & (columns <= xp.maximum(best, truth))
        return cls(
            true_proba[:, 0],
            above=xp.sum(xp.where(likelier, proba, 0.0), axis=1),
            rank=xp.sum(xp.astype(likelier, xp.float64), axis=1) + 1.0,
            run=xp.min(xp.where(between, proba, 1.0), axis=1),
        )

    @classmethod
    def of_all(cls, proba: Array, xp: Namespace) -> Standing:
        """That of all classes (n, classes), by their probabilities; without runs."""
        order = xp.argsort(-proba, axis=1, stable=True)
        rank = xp.argsort(order, axis=1, stable=True)
        falling = xp.take_along_axis(proba, order, axis=1)
        sums = xp.cumulative_sum(falling, axis=1) - falling
        return cls(
            proba,
            above=xp.take_along_axis(sums, rank, axis=1),
            rank=xp.astype(rank + 1, xp.float64),
        )


class SetScore(ABC):
    """How strange a class is; a set has the classes of score at most a threshold."""

    @abstractmethod
    def of(self, standing: Standing, xp: Namespace = np) -> Array:
        """The scores, in the shape of the standing."""

    @abstractmethod
    def members(
        self, proba: Array, threshold: Array, logits: Logits, *, allow_empty: bool
    ) -> Array:
        """Which classes are in the set of each row, (n, classes) bool.

        At least the likeliest class is taken, unless `allow_empty`.
        """

    def limit(self, thresholds: FloatArray, standing: Standing) -> FloatArray:
        """Thresholds no higher than what every possible class reaches.

        Where the true class of an example was impossible, the threshold of every class
        stays.
        """
        highest = 0.0 if (self.of(standing) == 0.0).any() else -5e-324
        return np.minimum(thresholds, highest)

    def as_probability(self, thresholds: FloatArray) -> FloatArray:
        """Thresholds as probabilities: the least of a member."""
        return np.abs(np.minimum(thresholds, 0.0))


class SmallestSets(SetScore):
    """The score is minus the probability: the smallest sets on average."""

    def of(self, standing: Standing, xp: Namespace = np) -> Array:
        return -standing.proba

    def members(
        self, proba: Array, threshold: Array, logits: Logits, *, allow_empty: bool
    ) -> Array:
        least = -threshold[None, :]
        if not allow_empty:
            xp = logits.xp
            least = xp.minimum(least, xp.max(proba, axis=1, keepdims=True))
        return proba >= least


class OrderedSets(SmallestSets):
    """The score is minus the least probability from the likeliest class to this one.

    Sets are runs of neighbouring columns.
    """

    def of(self, standing: Standing, xp: Namespace = np) -> Array:
        if standing.run is None:
            raise NoEvidenceError(
                "ordered sets need examples that were noted for them."
            )
        return -standing.run

    def members(
        self, proba: Array, threshold: Array, logits: Logits, *, allow_empty: bool
    ) -> Array:
        likely = super().members(proba, threshold, logits, allow_empty=allow_empty)
        return _run_around_best(likely, proba, logits)


@dataclass(frozen=True)
class AdaptiveSets(SetScore):
    """The score is the probability of all likelier classes (APS).

    `penalty` is added for every rank beyond `free_ranks` (RAPS).
    """

    penalty: float = 0.0
    free_ranks: int = 0

    def of(self, standing: Standing, xp: Namespace = np) -> Array:
        ranks_beyond = xp.clip(standing.rank - self.free_ranks, 0.0, None)
        scores = standing.above + self.penalty * ranks_beyond
        return xp.where(standing.proba > 0.0, scores, xp.inf)

    def members(
        self, proba: Array, threshold: Array, logits: Logits, *, allow_empty: bool
    ) -> Array:
        standing = Standing.of_all(proba, logits.xp)
        inside = self.of(standing, logits.xp) <= threshold
        return inside if allow_empty else inside | (standing.rank == 1.0)

    def limit(self, thresholds: FloatArray, standing: Standing) -> FloatArray:
        highest = np.inf if (standing.proba == 0.0).any() else 1e300
        return np.minimum(thresholds, highest)

    def as_probability(self, thresholds: FloatArray) -> FloatArray:
        """The largest sum of likelier classes of a member."""
        return thresholds


def set_score(kind: SetKind, penalty: float = 0.0, free_ranks: int = 0) -> SetScore:
    """The score of a kind of set."""
    if kind == "adaptive":
        return AdaptiveSets(penalty, free_ranks)
    return SmallestSets() if kind == "smallest" else OrderedSets()


@dataclass(frozen=True, eq=False)
class SetRule(WrappedRule):
    """`rule`, and the classes whose score is at most a `threshold` (1,) or (classes,).

    Scores are by the probabilities of the rule or, if `own_scores`, by the classifier's
    softmax. At least the likeliest class is taken, unless `allow_empty`.
    """

    name: ClassVar[str] = "sets"

    rule: Rule
    kind: SetKind
    threshold: Annotated[FloatArray, ArrayOf((None,), -np.inf, np.inf)]
    own_scores: bool = False
    penalty: Annotated[float, Within(0.0, np.inf)] = 0.0
    free_ranks: int = 0
    allow_empty: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind", self.kind, SetKind)
        check_count("free_ranks", self.free_ranks, least=0)

    accepts_top_k = property(attrgetter("rule.accepts_top_k"))

    def describe(self) -> str:
        return f"{self.rule.describe()}, {self.kind} sets"

    def labels(self, logits: Logits) -> Array:
        return self.rule.labels(logits)

    def confidence(self, logits: Logits) -> Array:
        return self.rule.confidence(logits)

    def proba(self, logits: Logits) -> Array:
        return self.rule.proba(logits)

    def members(self, logits: Logits) -> Array:
        """Which classes are in the set of each row, (n, classes) bool."""
        rule = UncalibratedRule() if self.own_scores else self.rule
        proba = probabilities(rule, logits, hidden="most")
        score = set_score(self.kind, self.penalty, self.free_ranks)
        return score.members(
            proba, self.threshold, logits, allow_empty=self.allow_empty
        )


def _run_around_best(likely: Array, proba: Array, logits: Logits) -> Array:
    """The likely classes (n, classes) that no other class parts from the likeliest."""
    xp = logits.xp
    unlikely = xp.astype(~likely, xp.float64)
    before = xp.cumulative_sum(unlikely, axis=1)  # of classes up to and with each
    best = xp.argmax(proba, axis=1)[:, None]
    at_best = xp.take_along_axis(before, best, axis=1)
    columns = logits.from_host(np.arange(proba.shape[1]))[None, :]
    gaps = xp.where(columns < best, at_best - before, before - at_best)
    return likely & (gaps == 0.0)
