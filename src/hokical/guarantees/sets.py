"""Prediction sets: from where predictions place the true classes of examples to a rule, its sets,
and the guarantee in words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import AnyArray, Array, BoolArray, FloatArray, IntArray, to_host
from hokical._core.checks import check_choice, check_count
from hokical._core.groups import GroupNames, count_groups
from hokical._core.logits import Logits, rows_per_block
from hokical._core.parallel import map_slices
from hokical._core.storage import pack_array, storable
from hokical.guarantees import control
from hokical.guarantees.selective import Evidence
from hokical.rules.base import Rule, set_probabilities
from hokical.rules.wrapped import SLACK, Kind, SetRule

By = Literal["all", "class", "group", "new group"]
#: A threshold that every possible class reaches, and no impossible one.
_EVERYTHING = -5e-324


@storable("conformity")
@dataclass(frozen=True, eq=False)
class Conformity:
    """The true class of each example, (n,) each.

    `labels` are the classes, `proba` their probabilities, `above` the sum of those that are
    likelier, `rank` their place (1: the likeliest), `weights` how much each counts, `unit` how much
    a new one may. `group` is their place among the `group_names`. `run` is the least probability
    from the likeliest class to the true one, in the order of the columns. Examples of a sample are
    those of the smallest `key`, which is random. `unseen` are the same examples with the
    predictions that a group gets which the fit does not know, where those of their groups differ.
    Examples may be `clustered`: one of each cluster was noted.
    """

    labels: IntArray
    proba: FloatArray
    above: FloatArray
    rank: IntArray
    weights: FloatArray | None = None
    unit: float = 1.0
    group: IntArray | None = None
    group_names: GroupNames | None = None
    run: FloatArray | None = None
    key: FloatArray | None = None
    unseen: Conformity | None = None
    clustered: bool = False

    @classmethod
    def from_rows(cls, rule: Rule, forms: Sequence[Logits], labels: IntArray) -> Self:
        """Of labelled rows in one or more `forms` of the same numbers, the worst of each."""
        found = [_place_truth(rule, form, labels) for form in forms]
        proba, above, rank, run = (np.stack(parts) for parts in zip(*found, strict=True))
        worst = proba.min(axis=0), above.max(axis=0), rank.max(axis=0).astype(np.int64)
        return cls(labels, *worst, run=run.min(axis=0))

    @property
    def n(self) -> int:
        return self.labels.size

    @property
    def counts(self) -> FloatArray:
        """How much each example counts, (n,)."""
        return np.ones(self.n) if self.weights is None else self.weights

    def scores(self, kind: Kind, penalty: float = 0.0, free_ranks: int = 0) -> FloatArray:
        """How strange each true class is, (n,): the score of `SetRule`."""
        if kind == "adaptive":
            found = self.above + penalty * np.maximum(self.rank - free_ranks, 0)
            return np.where(self.proba > 0.0, found, np.inf)
        if kind == "ordered" and self.run is None:
            raise ValueError(
                "ordered sets need examples that were noted for them. Call `certify(logits, "
                "labels)` first, with examples that nothing was fitted on."
            )
        return -(self.proba if kind == "smallest" or self.run is None else self.run)

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the examples."""
        some: dict[str, Any] = {name: array[rows] for name, array in self._arrays().items()}
        return replace(self, **some)

    @property
    def counted(self) -> bool:
        """Whether every example counts as one, or as a number of them."""
        return self.unit == 1.0 and control.can_be_counts(self.weights)

    def settled(self) -> Self:
        """The same without weights, if all are equal: their scale means nothing.

        Unless a new example may weigh more than each of these, as an item of many positions does.
        """
        if self.weights is None or self.counted or (self.weights != self.unit).any():
            return self
        return replace(self, weights=None, unit=1.0)

    def __add__(self, other: Self) -> Self:
        """Both lots of examples, without their groups."""
        joined: dict[str, Any] = {
            name: np.concatenate([array, getattr(other, name)])
            for name, array in self._arrays().items()
            if name not in ("weights", "group") and getattr(other, name) is not None
        }
        if self.weights is not None or other.weights is not None:
            joined["weights"] = np.concatenate([self.counts, other.counts])
        return type(self)(**joined, unit=max(self.unit, other.unit))

    def _arrays(self) -> dict[str, AnyArray]:
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: a for name, a in known.items() if isinstance(a, np.ndarray)}

    def to_stored(self) -> dict[str, Any]:
        """Arrays of as few bytes as hold the same numbers."""
        found: dict[str, Any] = {"unit": self.unit, "group_names": self.group_names}
        found |= {"unseen": self.unseen, "clustered": self.clustered}
        for name, array in self._arrays().items():
            small = array.astype(np.int32) if array.dtype.kind == "i" else array
            found[name] = pack_array(small)
        return found

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; groups of 0.3, one text for all columns, are left out."""
        wide = {"i": np.int64, "f": np.float64}
        for name, value in stored.items():
            if isinstance(value, np.ndarray):
                stored[name] = value.astype(wide[value.dtype.kind])
        grouped = isinstance(stored.get("group_names"), GroupNames)
        old = {"draw"} if grouped else {"draw", "group", "group_names"}
        found = cls(**{name: value for name, value in stored.items() if name not in old})
        limits = [(found.labels, 0, 1 << 31), (found.rank, 1, 1 << 31), (found.proba, 0.0, 1.0),
                  (found.above, 0.0, 1e300), (found.counts, 1e-300, 1e300)]  # fmt: skip
        right = 0.0 < found.unit < np.inf and (found.group is not None) == grouped
        if found.group is not None and found.group_names is not None:
            limits += [(found.group, 0, len(found.group_names.names) - 1)]
        sizes = {array.shape for array in found._arrays().values()}
        inside = all(((a >= low) & (a <= most)).all() for a, low, most in limits)
        right &= isinstance(found.unseen, cls | None)
        if not right or not inside or sizes != {(found.n,)}:
            raise ValueError("`conformity` must hold labels, ranks, probabilities and weights.")
        return found


def _place_truth(rule: Rule, logits: Logits, labels: IntArray) -> list[AnyArray]:
    """Probability, sum above, rank and run (n,) of the true class, in one pass."""
    here = rule.on_device_of(logits)
    columns = logits.from_host(np.arange(logits.n_classes))[None, :]

    def work(rows: slice) -> AnyArray:
        block, xp = logits.take(rows), logits.xp
        proba, truth = set_probabilities(here, block), logits.from_host(labels[rows])[:, None]
        own = xp.take_along_axis(proba, truth, axis=1)
        above = (proba > own) | ((proba == own) & (columns < truth))
        sums = xp.sum(xp.where(above, proba, 0.0), axis=1)
        ranks = xp.sum(xp.astype(above, xp.float64), axis=1) + 1.0
        best = xp.argmax(proba, axis=1)[:, None]
        between = (columns >= xp.minimum(best, truth)) & (columns <= xp.maximum(best, truth))
        run = xp.min(xp.where(between, proba, 1.0), axis=1)
        return logits.to_host(xp.stack([own[:, 0], sums, ranks, run]))

    with logits.backend.in_float64():
        step = rows_per_block(logits.n_classes, logits.backend.block_size)
        parts = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
    return [*np.concatenate(parts, axis=1)]


@dataclass(frozen=True)
class SetOptions:
    """What is asked of sets; see `Calibrator.predict_set`."""

    coverage: float
    delta: float | None = None
    by: By = "all"
    kind: Kind = "smallest"
    allow_empty: bool = False
    penalty: float = 0.0
    free_ranks: int = 0
    pooled: bool = False

    @classmethod
    def read(cls, given: dict[str, Any], allowed: Collection[str] = ()) -> Self:
        """Options of `predict_set` by name; only `allowed` ones beside `coverage`, if given."""
        names = allowed or [field.name for field in fields(cls)[1:]]
        if "coverage" not in given or not given.keys() <= {"coverage", *names}:
            raise TypeError(
                f"`predict_set` must get `coverage`, and may get {', '.join(names)}; got "
                f"{', '.join(given) or 'none'}. For a miscoverage `alpha` write "
                "`coverage=1 - alpha`."
            )
        return cls(**given)

    def __post_init__(self) -> None:
        control.check_guarantee(self.coverage, self.delta, "coverage")
        check_choice("by", self.by, By)
        check_choice("kind", self.kind, Kind)
        check_count(self.free_ranks, name="free_ranks", least=0)
        if self.kind != "adaptive" and self.penalty:
            raise ValueError(f'`penalty` goes with kind="adaptive"; got kind="{self.kind}".')
        if self.pooled and (self.by != "class" or self.delta is not None):
            raise ValueError('`pooled=True` goes with by="class", and without `delta`.')
        if self.pooled and self.kind != "smallest":
            raise ValueError(f'`pooled=True` goes with kind="smallest"; got kind="{self.kind}".')
        if self.kind == "ordered" and self.by == "class":
            raise ValueError(
                '`by="class"` does not go with kind="ordered": with a threshold for each class, '
                "sets would have gaps."
            )


@dataclass(frozen=True, eq=False)
class CertifiedSets:
    """Options, the examples that prove their `thresholds`, and the scores and cells (n,) of these.

    A cell is all examples, a class or a group.
    """

    options: SetOptions
    examples: Conformity
    certified_on: Evidence
    scores: FloatArray
    cells: IntArray
    thresholds: control.Thresholds

    def rule(self, rule: Rule, cell: int | None = None) -> SetRule:
        """The rule with its sets: with the thresholds of all classes, or that of one cell."""
        asked, values = self.options, self.thresholds.values
        limits = self._with_slack(values if cell is None else values[cell : cell + 1])
        scoring = (self.certified_on == "fit", asked.penalty, asked.free_ranks)
        return SetRule(rule, asked.kind, limits, *scoring, asked.allow_empty)

    def _with_slack(self, values: FloatArray) -> FloatArray:
        """Thresholds moved outwards by what rounding may change."""
        moved = values + SLACK * np.abs(values)
        # Where a true class was masked, nothing less than every class will do.
        if self.options.kind == "adaptive":
            return moved if (self.examples.proba == 0.0).any() else np.minimum(moved, 1e300)
        return np.minimum(moved, 0.0 if (self.scores == 0.0).any() else _EVERYTHING)

    def least_and_most(self) -> FloatArray:
        """The thresholds as probabilities: the least of a member, or the largest sum."""
        values = self.thresholds.values
        return values if self.options.kind == "adaptive" else np.abs(np.minimum(values, 0.0))

    @control.remembered
    def guarantee(
        self, guarantee: str | None = None, what: str = "examples", true: str = "true class"
    ) -> str:
        """The guarantee in words, or another one about `what` was counted, of one `true` class."""
        asked, known = self.options, self.examples
        place = f"held-out {what}"
        if self.certified_on == "fit":
            place = "examples of the fit, by the classifier's own scores"
        n = known.n if what == "examples" else round(float(known.counts.sum()))
        behind = f"{n:,} {place}{control.ONE_OF_EACH * known.clustered}"
        if known.n:
            covered = self.scores <= self.thresholds.values[self.cells]
            covered |= (known.rank == 1) & (not asked.allow_empty)
            share = np.average(covered, weights=known.counts)
            behind = f"observed {share:.1%} on {behind}"
        together = asked.by in ("all", "new group") or asked.pooled
        whom = "" if together else f" of each {asked.by}"
        if asked.by == "new group":
            whom = f" in a new group, drawn like the {count_groups(known.group):,} of `certify`"
            guarantee = None if guarantee is None else f"{guarantee}{whom}"
        if guarantee is None:
            whom += "," * (asked.by == "new group")
            guarantee = f"Coverage{whom} at least {control.percent(asked.coverage)}"
        # Positions of an item share its weight, which is 1 if nobody gave one.
        weighted = not known.counted if what == "examples" else known.unit != 1.0
        given: dict[str, Any] = {"by": asked.by, "weighted": weighted}
        words = control.state_guarantee(guarantee, behind, delta=asked.delta, **given)
        if asked.by == "new group":
            shown = "" if asked.delta is None else control.ABOUT_SHOWN
            return words + shown + self._about_few("groups", together, true)
        return words + self._about_few(what, together, true)

    def _about_few(self, what: str, together: bool, true: str) -> str:
        """A remark where examples are too few."""
        found, needed = self.thresholds, f"{self.thresholds.fewest:,} {what}"
        if together:
            full = f" Nothing is left out: it takes at least {needed} whose {true} is possible."
            return "" if np.isfinite(found.values[0]) else full
        pooled = found.pooled[: found.values.size - (self.options.by == "group")]
        if not pooled.any():
            return ""
        end = "for these nothing is left out"
        if np.isfinite(found.values[found.pooled]).any():
            end = "they share a threshold, and the guarantee is about all of them, on average"
        kinds = "classes" if self.options.by == "class" else "groups"
        return f" {pooled.sum()} of {pooled.size} {kinds} have less than {needed}; {end}."


@control.remembered
def prove_sets(
    known: Conformity, asked: SetOptions, source: Evidence, n_classes: int
) -> CertifiedSets:
    """The thresholds that examples prove for these options."""
    cells, n_cells = np.zeros(known.n, np.int64), 1
    if asked.by == "class":
        cells, n_cells = known.labels, n_classes
    elif asked.by in ("group", "new group"):
        if known.group is None or known.group_names is None:
            raise ValueError(
                f'`by="{asked.by}"` has no groups to go by. Call `certify(logits, labels, '
                "groups=groups)` first."
            )
        if asked.by == "group":
            cells, n_cells = known.group, len(known.group_names.names) + 1  # the last: unknown
        else:
            known.group_names.check_countable(known.counted)
    scores = known.scores(asked.kind, asked.penalty, asked.free_ranks)
    given = (scores, cells, n_cells, float(asked.coverage))
    if asked.by == "new group" and known.group is not None:
        found = control.new_group_threshold(
            scores, known.group, float(asked.coverage), asked.delta, known.counts
        )
    elif asked.pooled:
        found = control.prevalence_thresholds(*given, weights=known.counts, unit=known.unit)
    else:
        found = control.find_thresholds(*given, asked.delta, weights=known.counts, unit=known.unit)
    return CertifiedSets(asked, known, source, scores, cells, found)


@dataclass(frozen=True, eq=False)
class PredictionSets(control.Guaranteed):
    """The classes that each example may have, with the guarantee about them.

    `members` (n, classes) is True for the classes in the set, `sizes` (n,) counts them. `other`
    (n,) is True where the set also holds classes hidden in a `TopK`, None where none is hidden.
    `guarantee` is the guarantee in words, with what it rests on: examples of the "fit" (sets are by
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
    def coverage(self) -> float:
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

    def __str__(self) -> str:
        n_sets = int(np.prod(self.sizes.shape))
        mean = float(self.sizes.sum()) / max(1, n_sets)
        return f"{n_sets:,} sets of {mean:.2f} classes on average. {self.guarantee}"


@dataclass(frozen=True, eq=False)
class Detections(control.Guaranteed):
    """Rows that are `flagged` (n,), at which `threshold` (1,), and the guarantee in words."""

    flagged: Array
    threshold: FloatArray
    guarantee: str

    def __str__(self) -> str:
        n = int(np.prod(self.flagged.shape))
        return f"{int(self.flagged.sum()):,} of {n:,} rows are flagged. {self.guarantee}"
