"""Prediction sets: from examples with labels to a rule, its answer, and the promise in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from hokical._core.arrays import Array, to_host
from hokical._core.bins import check_count
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import check_chance, clopper_pearson
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._control import (
    Thresholds,
    find_thresholds,
    pooled_class_thresholds,
    remembered,
)
from hokical.guarantees._selective import Evidence
from hokical.guarantees._words import Guaranteed, state_promise
from hokical.rules._base import Rule
from hokical.rules._sets import SLACK, Kind, SetRule

By = Literal["all", "class", "group"]
#: A threshold that every possible class reaches, and no impossible one.
_EVERYTHING = -5e-324


@dataclass(frozen=True)
class SetOptions:
    """What is asked of sets; see `Calibrator.predict_set`."""

    coverage: float | None = None
    delta: float | None = None
    by: By = "all"
    kind: Kind = "smallest"
    max_size: int | None = None
    allow_empty: bool = False
    penalty: float = 0.0
    free_ranks: int = 0
    random_state: int | None = None
    pooled: bool = False
    ordered: InitVar[bool] = False

    def __post_init__(self, ordered: bool) -> None:
        if ordered:
            if self.kind == "adaptive":
                raise ValueError('`ordered=True` does not go with kind="adaptive": take one.')
            object.__setattr__(self, "kind", "ordered")
        if self.coverage is None and self.max_size is None:
            raise TypeError("give `coverage`, such as 0.9, or `max_size`, such as 3, or both.")
        for name in ("coverage", "delta"):
            if getattr(self, name) is not None:
                check_chance(name, getattr(self, name))
        for name, kinds in (("by", By), ("kind", Kind)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"`{name}` must be one of {list(get_args(kinds))}; got {getattr(self, name)!r}."
                )
        if self.max_size is not None:
            check_count(self.max_size, name="max_size")
            if self.by != "all":  # many thresholds fit their own examples too well for a bound
                raise ValueError(
                    f'`max_size` goes with by="all" alone; got by={self.by!r}. What sets of '
                    "limited size reach is stated for all examples together."
                )
        check_count(self.free_ranks, name="free_ranks", least=0)
        if self.random_state is not None:
            check_count(self.random_state, name="random_state", least=0)
        if self.kind != "adaptive" and (self.penalty or self.random_state is not None):
            raise ValueError(
                f'`penalty` and `random_state` go with kind="adaptive"; got kind="{self.kind}".'
            )
        if self.pooled and (self.by != "class" or self.delta is not None or self.coverage is None):
            raise ValueError(
                '`pooled=True` goes with by="class" and a `coverage` on average, without `delta`.'
            )
        if self.kind == "ordered" and (self.by == "class" or self.max_size is not None):
            raise ValueError(
                '`by="class"` and `max_size` do not go with kind="ordered": with a threshold for '
                "each class, or a largest size, sets would have gaps."
            )


@dataclass(frozen=True, eq=False)
class CertifiedSets:
    """Options, the examples they are answered by, and the thresholds that these prove."""

    options: SetOptions
    examples: Conformity
    certified_on: Evidence
    n_classes: int
    cells: IntArray = field(init=False)
    thresholds: Thresholds = field(init=False)

    def __post_init__(self) -> None:
        asked, known = self.options, self.examples
        cells, n_cells = np.zeros(known.n, np.int64), 1
        if asked.by == "class":
            cells, n_cells = known.labels, self.n_classes
        elif asked.by == "group":
            if known.group is None:
                raise ValueError(
                    '`by="group"` has no groups to go by. Call `certify(logits, labels, '
                    "groups=groups)` first."
                )
            cells, n_cells = known.group, len(known.group_names) + 1  # the last: any other group
        weights: dict[str, Any] = {"weights": known.weights, "unit": known.unit}
        if asked.coverage is None:
            found = Thresholds(np.full(n_cells, np.inf), np.zeros(n_cells, np.bool_), 0)
        elif asked.pooled:
            given = (self._scores(), cells, known.draw, n_cells, float(asked.coverage))
            found = pooled_class_thresholds(*given, **weights)
        else:
            coverage, delta = float(asked.coverage), asked.delta
            found = find_thresholds(self._scores(), cells, n_cells, coverage, delta, **weights)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "thresholds", found)

    def _scores(self) -> FloatArray:
        asked = self.options
        given = (asked.penalty, asked.free_ranks, asked.random_state)
        return self.examples.scores(asked.kind, *given)

    def rule(self, rule: Rule, cell: int | None = None) -> SetRule:
        """The rule with its sets: with the thresholds of all classes, or that of one cell."""
        asked, values = self.options, self.thresholds.values
        return SetRule(
            rule,
            asked.kind,
            self._with_slack(values if cell is None else values[cell : cell + 1]),
            self.certified_on == "fit",
            asked.penalty,
            asked.free_ranks,
            asked.max_size or 0,
            asked.allow_empty,
        )

    @property
    def _said(self) -> FloatArray:
        """The probabilities (n,) whose place decides whether the true classes are inside."""
        ordered = self.options.kind == "ordered" and self.examples.run is not None
        return self.examples.run if ordered else self.examples.proba  # type: ignore[return-value]

    def _with_slack(self, values: FloatArray) -> FloatArray:
        """Thresholds moved outwards by what rounding may change."""
        moved = values + SLACK * np.abs(values)
        # Where a true class was impossible, nothing less than every class will do.
        needed = bool((self._said == 0.0).any())
        if self.options.kind == "adaptive":
            return moved if needed else np.minimum(moved, 1e300)
        return np.minimum(moved, 0.0 if needed else _EVERYTHING)

    def covered(self) -> BoolArray:
        """Which of the examples (n,) the sets cover, before a class is added to empty ones."""
        asked, known = self.options, self.examples
        inside = self._scores() <= self.thresholds.values[self.cells]
        if not asked.allow_empty:
            inside = inside | (known.rank == 1)
        return inside if asked.max_size is None else inside & (known.rank <= asked.max_size)

    def least_and_most(self) -> FloatArray:
        """The thresholds as probabilities: the least of a member, or the largest sum."""
        values = self.thresholds.values
        return values if self.options.kind == "adaptive" else np.abs(np.minimum(values, 0.0))

    def guarantee(
        self,
        promise: str | None = None,
        what: str = "examples",
        full: str = "Every class is in every set",
        held: str = "the sets hold the true class of {:.1%}",
    ) -> str:
        """The promise in words, or with others than those for sets; remembered.

        `what` is counted; `full` is said if too few are known, `held` of those that are covered.
        """
        words = (promise, what, full, held)
        return remembered(self, words, lambda: self._in_words(*words))

    def _in_words(self, promise: str | None, what: str, full: str, held: str) -> str:
        asked, known = self.options, self.examples
        own = self.certified_on == "fit"
        held_out = "held-out ones" if what == "examples" else f"held-out {what}"
        place = "examples of the fit, by the classifier's own scores" if own else held_out
        n = known.n if what == "examples" else round(float(known.counts.sum()))
        behind = f"of {n:,} {place}"
        if known.n:
            share = float(np.average(self.covered(), weights=known.counts))
            behind += f", {held.format(share)}"
        if asked.max_size is not None:
            return f"{self._reached()}: {behind}."
        assert asked.coverage is not None
        whom = {
            "all": "new examples of the same kind",
            "class": "new examples of each class",
            "group": "new examples of each group",
        }["all" if asked.pooled else asked.by]
        promise = (
            promise or f"At least {asked.coverage:.4g} of {whom} have their true class in the set"
        )
        given: dict[str, Any] = {"by": asked.by, "weighted": not known.counted}
        words = state_promise(promise, behind, delta=asked.delta, **given)
        return words + self._about_few(what, full)

    def _reached(self) -> str:
        """What sets of a limited size reach, as a lower bound."""
        if self.examples.weights is not None:
            return "What sets of this size cover of weighted examples cannot be bounded"
        delta = self.options.delta or 0.05
        hits = int(self.covered().sum())
        if self.options.coverage is not None:  # the example at the threshold is no trial
            hits = max(hits - 1, 0)
        low = float(clopper_pearson(hits, self.examples.n, delta=2.0 * min(delta, 0.49))[0])
        return (
            f"With confidence {1.0 - delta:.4g}, sets of at most {self.options.max_size} hold the "
            f"true class of at least {low:.4g} of new examples of the same kind"
        )

    def _about_few(self, what: str, full_sets: str) -> str:
        """A remark where examples are too few."""
        found, needed = self.thresholds, f"{self.thresholds.fewest:,} {what}"
        if self.options.by == "all" or self.options.pooled:
            if np.isfinite(found.values[0]):
                return ""
            if self.examples.counts.sum() >= found.fewest * self.examples.unit:
                return f" {full_sets}: too many of the true classes were impossible."
            return f" {full_sets}: it takes at least {needed} for less."
        n_cells = found.values.size - (self.options.by == "group")
        n_pooled = int(found.pooled[:n_cells].sum())
        if not n_pooled:
            return ""
        kinds = "classes" if self.options.by == "class" else "groups"
        full = np.isinf(found.values[found.pooled]).all()
        how = "are always in the set" if self.options.by == "class" else "get all classes"
        end = how if full else "share a threshold, and the promise is about all of them together"
        if not full and self.options.delta is not None:
            end += ", on average"
        return f" {n_pooled} of {n_cells} {kinds} have less than {needed}; they {end}."


def prove_sets(
    options: SetOptions, examples: Conformity, source: Evidence, n_classes: int
) -> CertifiedSets:
    """The thresholds that the examples prove for these options, remembered."""
    question = (options, source, n_classes)
    return remembered(
        examples, question, lambda: CertifiedSets(options, examples, source, n_classes)
    )


@dataclass(frozen=True, eq=False)
class PredictionSets(Guaranteed):
    """The classes that each example may have, with the promise about them.

    `members` (n, classes) is True for the classes in the set, `sizes` (n,) counts them. `other`
    (n,) is True where the set also holds classes hidden in a `TopK`, None where none is hidden.
    `guarantee` is the promise in words, with what it rests on: examples of the "fit" (sets are by
    the classifier's own softmax) or "held-out" ones (by calibrated probabilities), see
    `certified_on`. `thresholds` are the least probabilities of members, or the largest sums of
    adaptive sets: one, or one per class.
    """

    members: BoolArray
    sizes: IntArray
    options: SetOptions
    certified_on: Evidence
    guarantee: str
    thresholds: FloatArray
    other: BoolArray | None = None
    #: Names of the classes; None for column numbers.
    classes: Sequence[Any] | None = None
    #: Classes (n, k) that a `TopK` shows.
    seen: IntArray | None = None
    #: Rows whose group is not among those of `certify`: they get every class.
    n_unknown: int = 0

    @property
    def coverage(self) -> float | None:
        """The coverage that was asked for."""
        return self.options.coverage

    def labels(self, row: int) -> list[Any]:
        """The classes in the set of a row, by name where names are known, in column order.

        "or another" at the end stands for classes that a `TopK` hides.
        """
        if len(self.members.shape) != 2:
            raise ValueError(
                "sets of positions have no names by row; `members` has an axis for the classes."
            )
        inside = np.flatnonzero(to_host(self.members[row]))
        if self.seen is not None:
            inside = inside[np.isin(inside, self.seen[row])]
        found = [k if self.classes is None else self.classes[k] for k in inside.tolist()]
        return [*found, "or another"] if self.other is not None and self.other[row] else found

    def names(self, separator: str = "|") -> list[str]:
        """The sets as text, one for each row."""
        return [separator.join(map(str, self.labels(row))) for row in range(len(self.members))]

    def map_arrays(self, change: Callable[[Array], Array]) -> Self:
        """The same with arrays converted, as to another library."""
        return replace(self, members=change(self.members), sizes=change(self.sizes))

    def __str__(self) -> str:
        n_sets = int(np.prod(self.sizes.shape))
        mean = float(self.sizes.sum()) / max(1, n_sets)
        return f"{n_sets:,} sets of {mean:.2f} classes on average. {self.guarantee}"
