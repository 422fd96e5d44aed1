"""Sets of classes that a row may have, and of labels that it certainly has and has not.

From where predictions place the truth of examples to thresholds, sets, and the
guarantee in words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import NUMPY, AnyArray, Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import ArrayOf, check_choice, check_count
from hokical._core.groups import GroupNames, count_groups, read_columns, take_rows
from hokical._core.logits import Logits, map_blocks
from hokical._core.storage import pack_array, storable
from hokical.guarantees import control
from hokical.guarantees.scores import Evidence
from hokical.rules.base import THRESHOLD_SLACK, Rule, SetKind, SetRule, probabilities

BySet = Literal["all", "class", "group", "new group"]
#: Whom the coverage is guaranteed to: all labels of a row at once, also by group, or
#: each label.
ByLabel = Literal["row", "label", "group", "new group"]


@dataclass(frozen=True, eq=False)
class _Held:
    """Base of records of examples, whose arrays are stored in as few bytes as hold
    the numbers.
    """

    def to_stored(self) -> dict[str, Any]:
        return {field.name: _pack(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        return cls(**{name: _unpack(value) for name, value in stored.items()})


def _pack(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_pack(each) for each in value]
    if isinstance(value, np.ndarray):
        return pack_array(value.astype(np.int32) if value.dtype.kind == "i" else value)
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(each) for each in value)
    if isinstance(value, np.ndarray):
        return value.astype({"i": np.int64, "f": np.float64}[value.dtype.kind])
    return value


@storable("conformity")
@dataclass(frozen=True, eq=False)
class Conformity(_Held):
    """The true class of each example, (n,) each.

    `labels` are the classes, `proba` their probabilities, `above` the sum of those that
    are likelier, `rank` their place (1: the likeliest), `weights` how much each counts,
    `unit` how much a new one may. `group` is their place among the `group_names`. `run`
    is the least probability from the likeliest class to the true one, in the order of
    the columns. Examples of a sample are those of the smallest `key`, which is random.
    `unseen` are the same examples with the predictions that a group gets which the fit
    does not know, where those of their groups differ. Examples may be `clustered`: one
    of each cluster was noted.
    """

    labels: Annotated[IntArray, ArrayOf(("n",), 0, 1 << 31, np.int64)]
    proba: Annotated[FloatArray, ArrayOf(("n",), 0.0, 1.0)]
    above: Annotated[FloatArray, ArrayOf(("n",), 0.0, 1e300)]
    rank: Annotated[IntArray, ArrayOf(("n",), 1, 1 << 31, np.int64)]
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
        """Of labelled rows in one or more `forms` of the same numbers, the worst of
        each.
        """
        here = rule if forms[0].is_numpy else rule.on_device_of(forms[0])

        def place(rows: slice, block: Logits) -> AnyArray:
            """Probability, sum above, rank and run of the true class, (4, n)."""
            xp = block.xp
            proba = probabilities(here, block, hidden="most")
            columns = block.from_host(np.arange(block.n_classes))[None, :]
            truth = block.from_host(labels[rows])[:, None]
            own = xp.take_along_axis(proba, truth, axis=1)
            above = (proba > own) | ((proba == own) & (columns < truth))
            sums = xp.sum(xp.where(above, proba, 0.0), axis=1)
            ranks = xp.sum(xp.astype(above, xp.float64), axis=1) + 1.0
            best = xp.argmax(proba, axis=1)[:, None]
            between = (columns >= xp.minimum(best, truth)) & (
                columns <= xp.maximum(best, truth)
            )
            run = xp.min(xp.where(between, proba, 1.0), axis=1)
            return block.to_host(xp.stack([own[:, 0], sums, ranks, run]))

        with forms[0].backend.in_float64():
            parts = [map_blocks(place, form, form.n_classes) for form in forms]
        found = [np.concatenate(part, axis=1) for part in parts]
        proba, above, rank, run = np.stack(found, axis=1)
        worst = proba.min(axis=0), above.max(axis=0), rank.max(axis=0).astype(np.int64)
        return cls(labels, *worst, run=run.min(axis=0))

    @property
    def n(self) -> int:
        return self.labels.size

    @property
    def counts(self) -> FloatArray:
        """How much each example counts, (n,)."""
        return np.ones(self.n) if self.weights is None else self.weights

    def scores(
        self, kind: SetKind, penalty: float = 0.0, free_ranks: int = 0
    ) -> FloatArray:
        """How strange each true class is, (n,): the score of `SetRule`."""
        if kind == "adaptive":
            found = self.above + penalty * np.maximum(self.rank - free_ranks, 0)
            return np.where(self.proba > 0.0, found, np.inf)
        if kind == "smallest":
            return -self.proba
        if self.run is None:
            remedy = (
                "Call `certify(logits, labels)` first, with rows that nothing was "
                "fitted on."
            )
            raise ValueError(
                f"ordered sets need examples that were noted for them. {remedy}"
            )
        return -self.run

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the examples."""
        some: dict[str, Any] = {
            name: array[rows] for name, array in self._arrays().items()
        }
        return replace(self, **some)

    @property
    def counted(self) -> bool:
        """Whether every example counts as one, or as a number of them."""
        return self.unit == 1.0 and control.can_be_counts(self.weights)

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

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Groups of 0.3, one text for all columns, are left out."""
        grouped = isinstance(stored.get("group_names"), GroupNames)
        old = {"draw"} if grouped else {"draw", "group", "group_names"}
        found = super().from_stored(
            {k: each for k, each in stored.items() if k not in old}
        )
        right = 0.0 < found.unit < np.inf and (found.group is not None) == grouped
        right &= bool(((found.counts >= 1e-300) & (found.counts <= 1e300)).all())
        if found.group is not None and found.group_names is not None:
            right &= bool(
                np.isin(found.group, np.arange(len(found.group_names.names))).all()
            )
        if not right or any(a.shape != (found.n,) for a in found._arrays().values()):
            raise ValueError(
                "`conformity` must hold a weight and a group for each label."
            )
        return found


@dataclass(frozen=True)
class SetOptions:
    """What is asked of sets; see `Calibrator.predict_set`."""

    coverage: float
    delta: float | None = None
    by: BySet = "all"
    kind: SetKind = "smallest"
    allow_empty: bool = False
    penalty: float = 0.0
    free_ranks: int = 0
    pooled: bool = False

    @classmethod
    def read(cls, given: dict[str, Any], allowed: Collection[str] = ()) -> Self:
        """Options of `predict_set` by name; only `allowed` ones beside `coverage`,
        if given.
        """
        names = allowed or [field.name for field in fields(cls)[1:]]
        if "coverage" not in given or not given.keys() <= {"coverage", *names}:
            raise TypeError(
                "`predict_set` must get `coverage` (for a miscoverage, `coverage=1 - "
                f"alpha`), and may get {', '.join(names)}; got "
                f"{', '.join(given) or 'none'}."
            )
        return cls(**given)

    def __post_init__(self) -> None:
        control.check_guarantee(self.coverage, self.delta, "coverage")
        check_choice("by", self.by, BySet)
        check_choice("kind", self.kind, SetKind)
        check_count("free_ranks", self.free_ranks, least=0)
        smallest = self.by == "class" and self.delta is None and self.kind == "smallest"
        if self.kind != "adaptive" and self.penalty:
            raise ValueError(
                f'`penalty` goes with kind="adaptive"; got kind="{self.kind}".'
            )
        if self.pooled and not smallest:
            rule = '`pooled=True` goes with kind="smallest", by="class" and no `delta`'
            got = f'kind="{self.kind}", by="{self.by}", delta={self.delta!r}'
            raise ValueError(f"{rule}; got {got}.")
        if self.kind == "ordered" and self.by == "class":
            reason = "with a threshold for each class, sets would have gaps"
            raise ValueError(f'`by="class"` does not go with kind="ordered": {reason}.')


class CertifiedSets:
    """Options, the examples that prove their `thresholds`, and the scores and cells
    (n,) of these.

    A cell is all examples, a class or a group.
    """

    def __init__(
        self, known: Conformity, asked: SetOptions, source: Evidence, n_classes: int
    ) -> None:
        cells = np.zeros(known.n, np.int64)
        n_cells = 1
        if asked.by == "class":
            cells = known.labels
            n_cells = n_classes
        elif asked.by in ("group", "new group"):
            names = control.known_groups(
                known.group_names, asked.by, alike=known.counted
            )
            if asked.by == "group" and known.group is not None:
                # the last: unknown
                cells = known.group
                n_cells = len(names.names) + 1
        scores = known.scores(asked.kind, asked.penalty, asked.free_ranks)
        given = (scores, cells, n_cells, asked.coverage)
        weighed: dict[str, Any] = {"weights": known.counts, "unit": known.unit}
        if asked.by == "new group" and known.group is not None:
            limits = (asked.coverage, asked.delta, known.counts)
            found = control.new_group_threshold(scores, known.group, *limits)
        elif asked.pooled:
            # In proportion to class frequencies, with coverage on average over all:
            # rare classes are as easy to reach as others. Frequencies include the
            # examples themselves, and not the new one, which can only add coverage
            # (`docs/theory.md`).
            frequency = (
                np.bincount(cells, known.counts, n_classes) + known.unit
            )  # none impossible
            given = (scores / frequency[cells], np.zeros_like(cells), 1, asked.coverage)
            found = control.find_thresholds(*given, **weighed)
            found = found._replace(values=found.values * frequency)
        else:
            found = control.find_thresholds(*given, asked.delta, **weighed)
        self.options = asked
        self.examples = known
        self.certified_on = source
        self.scores = scores
        self.cells = cells
        self.thresholds = found

    def rule(self, rule: Rule, cell: int | None = None) -> SetRule:
        """The rule with its sets: with the thresholds of all classes, or that of one
        cell.

        Thresholds are moved outwards by what rounding may change.
        """
        asked = self.options
        values = self.thresholds.values
        values = values if cell is None else values[cell : cell + 1]
        # Where a true class was masked, nothing less than every class will do.
        if asked.kind == "adaptive":
            most = np.inf if (self.examples.proba == 0.0).any() else 1e300
        else:  # the second is what every possible class reaches, and no impossible one
            most = 0.0 if (self.scores == 0.0).any() else -5e-324
        limits = np.minimum(values + THRESHOLD_SLACK * np.abs(values), most)
        scoring = (self.certified_on == "fit", asked.penalty, asked.free_ranks)
        return SetRule(rule, asked.kind, limits, *scoring, asked.allow_empty)

    def least_and_most(self) -> FloatArray:
        """The thresholds as probabilities: the least of a member, or the largest
        sum.
        """
        values = self.thresholds.values
        return (
            values
            if self.options.kind == "adaptive"
            else np.abs(np.minimum(values, 0.0))
        )

    @control.remembered
    def guarantee(
        self, claim: str | None = None, what: str = "examples", true: str = "true class"
    ) -> str:
        """The guarantee in words, or another `claim` about `what` was counted, of
        one class.
        """
        asked = self.options
        known = self.examples
        rows = what == "examples"
        place = f"held-out {what}"
        if self.certified_on == "fit":
            place = "examples of the fit, by the classifier's own scores"
        n = known.n if rows else round(float(known.counts.sum()))
        behind = f"{n:,} {place}{control.ONE_OF_EACH * known.clustered}"
        if known.n:
            covered = self.scores <= self.thresholds.values[self.cells]
            covered |= (known.rank == 1) & (not asked.allow_empty)
            behind = (
                f"observed {np.average(covered, weights=known.counts):.1%} on {behind}"
            )
        unseen = asked.by == "new group"
        together = asked.by == "all" or asked.pooled
        whom = "" if together else f" of each {asked.by}"
        if unseen:
            whom = (
                f" in a new group, drawn like the {count_groups(known.group):,} of "
                "`certify`"
            )
        least = (
            f"Coverage{whom}{',' * unseen} at least {control.percent(asked.coverage)}"
        )
        words = control.state_guarantee(
            least if claim is None else f"{claim}{whom * unseen}",
            behind,
            delta=asked.delta,
            by=asked.by,
            # Positions of an item share its weight, which is 1 if nobody gave one.
            weighted=not known.counted if rows else known.unit != 1.0,
        )
        found = self.thresholds
        needed = f"{found.fewest:,} {'groups' if unseen else what}"
        pooled = found.pooled[: found.values.size - (asked.by == "group")]
        if (together or unseen) and not np.isfinite(found.values[0]):
            words += (
                f" Nothing is left out: it takes at least {needed} whose {true} is "
                "possible."
            )
        elif pooled.any():  # of classes or groups
            end = "for these nothing is left out"
            if np.isfinite(found.values[found.pooled]).any():
                end = (
                    "they share a threshold, and the guarantee is about all of them, "
                    "on average"
                )
            kinds = "classes" if asked.by == "class" else "groups"
            words += (
                f" {pooled.sum()} of {pooled.size} {kinds} have fewer than {needed}; "
                f"{end}."
            )
        return words


#: The sets that examples prove for options.
prove_sets = control.remembered(CertifiedSets)


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """The classes that each example may have, with the guarantee about them.

    `members` (n, classes) is True for the classes in the set, `sizes` (n,) counts them.
    `other` (n,) is True where the set also holds classes hidden in a `TopK`, None where
    none is hidden. `guarantee` is the guarantee in words, with what it rests on:
    examples of the "fit" (sets are by the classifier's own softmax) or "held-out" ones
    (by calibrated probabilities), see `certified_on`. `thresholds` are the least
    probabilities of members, or the largest sums of adaptive sets: one, or one per
    class.
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
        """The classes in the set of a row, by name where names are known, in column
        order.

        "or another" at the end stands for classes that a `TopK` hides.
        """
        if len(self.members.shape) != 2:
            raise ValueError(
                "sets of positions have no names by row; use the axes of `members`."
            )
        inside = np.flatnonzero(arrays.to_host(self.members[row]))
        if self.seen is not None:
            inside = inside[np.isin(inside, self.seen[row])]
        found = [
            k if self.classes is None else self.classes[k] for k in inside.tolist()
        ]
        return (
            [*found, "or another"]
            if self.other is not None and self.other[row]
            else found
        )

    def __str__(self) -> str:
        n_sets = int(np.prod(self.sizes.shape))
        mean = float(self.sizes.sum()) / max(1, n_sets)
        return f"{n_sets:,} sets of {mean:.2f} classes on average. {self.guarantee}"


@dataclass(frozen=True, eq=False)
class Detections:
    """Rows that are `flagged` (n,), at which `threshold` (1,), and the guarantee in
    words.
    """

    flagged: Array
    threshold: FloatArray
    guarantee: str

    def __str__(self) -> str:
        n = int(np.prod(self.flagged.shape))
        return (
            f"{int(self.flagged.sum()):,} of {n:,} rows are flagged. {self.guarantee}"
        )


@storable("positives")
@dataclass(frozen=True, eq=False)
class HeldOutLabels(_Held):
    """Calibrated probabilities of labels that nothing was fitted on.

    Of those that are there (m,) `proba` and which `label`; the same of those that are
    not, `absent` and `absent_label`; and of each row whose labels are all known the
    largest probability of the contrary, `worst` (n,), and the place of its `group` (n,)
    among the `names`. `weights` are those of the three, where rows do not count alike,
    and `unit` is how much a new row may count. Rows may be `clustered`: one of each
    cluster was noted.
    """

    proba: FloatArray
    label: IntArray
    absent: FloatArray
    absent_label: IntArray
    worst: FloatArray
    group: IntArray | None = None
    names: GroupNames | None = None
    weights: tuple[FloatArray, FloatArray, FloatArray] | None = None
    unit: float = 1.0
    clustered: bool = False

    def __post_init__(self) -> None:
        values = (self.proba, self.absent, self.worst)
        beside = (
            self.label,
            self.absent_label,
            self.worst if self.group is None else self.group,
        )
        right = all(((each >= 0.0) & (each <= 1.0)).all() for each in values)
        right &= all(own.dtype.kind == "i" and (own >= 0).all() for own in beside[:2])
        lots = zip(values, beside, self.weights or beside, strict=True)
        if not right or any(len({each.shape for each in lot}) > 1 for lot in lots):
            raise ValueError(
                "`positives` must hold probabilities, each with label, weight, group."
            )

    @classmethod
    def from_rows(
        cls,
        proba: FloatArray,
        labels: FloatArray,
        weights: Any = None,
        groups: Any = None,
    ) -> Self:
        """Of probabilities (n, labels) and labels (n, labels) of 0, 1 and NaN for
        not known.
        """
        columns = None if groups is None else read_columns(groups, len(labels))
        unit = 1.0
        if weights is not None:
            rows = np.flatnonzero(weights)
            unit = float(weights.max())
            proba = proba[rows]
            labels = labels[rows]
            weights = weights[rows]
            columns = None if columns is None else take_rows(columns, rows)
            if np.ptp(weights) == 0.0:  # all count alike
                weights = None
                unit = 1.0
        there, absent = (np.nonzero(labels == value) for value in (1.0, 0.0))
        whole = ~np.isnan(labels).any(axis=1)
        names = None
        place = None
        shares = None
        if weights is not None:
            shares = weights[there[0]], weights[absent[0]], weights[whole]
        if columns is not None:
            names, place = GroupNames.from_rows(columns, len(proba))
            place = place[whole]
        worst = np.where(labels == 1.0, 1.0 - proba, proba)[whole].max(axis=1)
        found = (proba[there], there[1], proba[absent], absent[1], worst)
        return cls(*found, place, names, shares, unit)

    @control.remembered
    def ends(
        self, n_labels: int, coverage: float, delta: float | None, by: str
    ) -> tuple[FloatArray, FloatArray]:
        """Probabilities below which a label is out, and above which it is in, maybe not
        in order.

        One threshold for all labels of a row, (cells, labels), where a cell is a group,
        or all rows; or two for each, (labels,). The first of a label is the probability
        that the share `coverage` of its positives reaches.
        """
        scores = self.worst
        cells = np.zeros(self.worst.size, np.int64)
        n_cells = 1
        weights = None if self.weights is None else self.weights[2]
        if by == "label":
            scores = np.append(-self.proba, self.absent)
            n_cells = 2 * n_labels
            cells = np.append(self.label, n_labels + self.absent_label)
            weights = None if self.weights is None else np.append(*self.weights[:2])
        elif by == "group" and self.group is not None and self.names is not None:
            cells = self.group
            n_cells = len(self.names.names)
        if by == "new group" and self.group is not None:
            alike = np.ones(scores.size)
            found = control.new_group_threshold(
                scores, self.group, coverage, delta, alike
            ).values
        else:
            found = control.find_thresholds(
                scores,
                cells,
                n_cells,
                coverage,
                delta,
                weights=weights,
                unit=self.unit,
                pool=False,
            ).values
        if by == "label":
            low = -found[:n_labels]
            high = np.minimum(found[n_labels:], 1.0)
        else:
            far = np.broadcast_to(found[:, None], (found.size, n_labels))
            low = 1.0 - far
            high = np.minimum(far, 1.0)
        # Outwards by what rounding may change: relative, and near 1.
        high = np.minimum(high + 1e-5 * (1.0 - high) + 1.2e-7, 1.0)
        return np.maximum(low, 0.0) * (1.0 - 1e-5), high


@dataclass(frozen=True, eq=False)
class LabelSets:
    """What is certain of the labels of each row, with the guarantee about it.

    `inside` (n, labels) is True for labels that are certainly there, `possible` (n,
    labels) also for those that are open. `thresholds` (labels, 2): below the first a
    label is out, above the second it is in; by group (groups, 2, labels). `guarantee`
    is the guarantee in words.
    """

    inside: Array
    possible: Array
    thresholds: FloatArray
    guarantee: str

    @property
    def open(self) -> Array:
        """The labels (n, labels) of which neither is certain."""
        return self.possible & ~self.inside

    @property
    def outside(self) -> Array:
        """The labels (n, labels) that are certainly not there."""
        return ~self.possible


def label_sets(
    proba: Array,
    known: HeldOutLabels,
    coverage: float,
    delta: float | None,
    by: str,
    groups: Any,
) -> LabelSets:
    """Sets for calibrated probabilities (n, labels); see
    `MultilabelCalibrator.predict_set`.
    """
    coverage, delta = control.check_guarantee(coverage, delta, "coverage")
    check_choice("by", by, ByLabel)
    if by in ("group", "new group"):
        control.known_groups(known.names, by, alike=True)
    if known.weights is not None and (delta is not None or by == "new group"):
        asked = '`by="new group"`' if delta is None else "`delta`"
        rule = (
            f"{asked} needs examples that all count alike; those of `certify` have "
            "weights"
        )
        raise ValueError(f"{rule}. Certify without `sample_weight`, or leave it out.")
    if (by == "group") != (groups is not None):
        raise ValueError(
            '`groups` must be given with `by="group"`, and with nothing else.'
        )
    n_rows, n_labels = map(int, proba.shape)
    low, high = known.ends(n_labels, coverage, delta, by)
    # Where they cross, the point between them that is nearest to 1/2.
    middle = np.clip(0.5, np.minimum(low, high), np.maximum(low, high))
    sides = [np.where(low > high, middle, side) for side in (low, high)]
    found = np.stack(sides, axis=-2).reshape(-1, 2, n_labels)
    at_least = control.percent(coverage)
    at_most = control.percent(1.0 - coverage)
    kind = ""
    behind = f"{known.worst.size:,} held-out examples"
    if by == "new group":
        kind = (
            f" of a new group, drawn like the {count_groups(known.group):,} of "
            "`certify`,"
        )
    what = (
        f"At least {at_least} of new examples{kind} have all labels that are included "
        "and none "
    )
    what += "that are excluded"
    if by == "label":
        what = (
            f"At most {at_most} of new examples with a label have it excluded, and at "
            "most "
        )
        what += f"{at_most} of those without have it included, for each label"
        behind = (
            f"{known.proba.size:,} held-out positives and {known.absent.size:,} "
            "negatives"
        )
    words = control.state_guarantee(
        what,
        f"certified on {behind}{control.ONE_OF_EACH * known.clustered}",
        delta=delta,
        by=by if "group" in by else "all",
        weighted=known.weights is not None,
    )
    if by == "group":
        words = f"For each group: {words[0].lower()}{words[1:]}"
    low, high = found[0]
    ends = found[0]
    if by == "group" and known.names is not None:
        place, _ = known.names.match(groups, n_rows, "have all labels open")
        every = np.concatenate(
            [found, np.broadcast_to([[0.0], [1.0]], (1, 2, n_labels))]
        )
        ends = every[place].swapaxes(0, 1)
    elif never := [
        f"{int((side == end).sum()):,} are never {place}"
        for side, end, place in ((low, 0.0, "out"), (high, 1.0, "in"))
        if (side == end).any()
    ]:
        lack = "groups" if by == "new group" else "examples"
        words += f" For lack of {lack}, of {n_labels:,} labels {' and '.join(never)}."
    below, above = (
        (arrays.backend_of(proba) or NUMPY).from_host(end, proba) for end in ends
    )
    thresholds = found if by == "group" else np.stack([low, high], axis=1)
    return LabelSets(proba > above, proba >= below, thresholds, words)
