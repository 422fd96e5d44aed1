"""Sets of classes that a row may have, and of labels that it certainly has and has not.

From where predictions place the truth of examples to thresholds, sets, and the
guarantee in words.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import NUMPY, AnyArray, Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import (
    LARGEST_COEFFICIENT,
    ArrayOf,
    Within,
    check_choice,
    check_count,
    check_flag,
    show,
)
from hokical._core.groups import GroupNames, count_groups, read_columns, take_rows
from hokical._core.logits import Logits, map_blocks
from hokical._core.memo import Memo, remembered
from hokical._core.storage import pack_array, storable
from hokical.guarantees import control
from hokical.guarantees.scores import Source
from hokical.rules.base import Rule, probabilities
from hokical.rules.sets import (
    THRESHOLD_SLACK,
    SetKind,
    SetRule,
    SetScore,
    Standing,
    set_score,
)

BySet = Literal["all", "class", "group", "new group"]
#: Whom the coverage is guaranteed to: all labels of a row at once, also by group, or
#: each label.
ByLabel = Literal["row", "label", "group", "new group"]


@dataclass(frozen=True, eq=False)
class _Examples:
    """Base of records of examples, whose arrays are stored in as few bytes as hold the
    numbers.
    """

    def to_stored(self) -> dict[str, Any]:
        stored = (entry.name for entry in fields(self) if entry.init)
        return {name: _pack(getattr(self, name)) for name in stored}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        return cls(**{name: _unpack(value) for name, value in stored.items()})


def _pack(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_pack(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return pack_array(value.astype(np.int32) if value.dtype.kind == "i" else value)
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpack(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.astype({"i": np.int64, "f": np.float64}[value.dtype.kind])
    return value


#: How much a new example may count, in stored records.
Unit = Annotated[float, Within(1e-300, LARGEST_COEFFICIENT)]


@storable("conformity")
@dataclass(frozen=True, eq=False)
class Conformity(_Examples):
    """Where predictions place the true class of each example, (n,) each.

    Attributes
    ----------
    labels : the true classes
    proba, above, rank, run : their `Standing` among all classes
    weights, unit : how much each counts, and how much a new one may
    group, group_names : the index of each example's group among the names
    key : random numbers; those of a sample are the smallest
    clustered : whether they are one example of each cluster
    """

    labels: Annotated[IntArray, ArrayOf(("n",), 0, 1 << 31, np.int64)]
    proba: Annotated[FloatArray, ArrayOf(("n",), 0.0, 1.0)]
    above: Annotated[FloatArray, ArrayOf(("n",), 0.0, 1e300)]
    rank: Annotated[IntArray, ArrayOf(("n",), 1, 1 << 31, np.int64)]
    weights: FloatArray | None = None
    unit: Unit = 1.0
    group: IntArray | None = None
    group_names: GroupNames | None = None
    run: FloatArray | None = None
    key: FloatArray | None = None
    clustered: bool = False
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)

    @classmethod
    def from_rows(cls, rule: Rule, forms: Sequence[Logits], labels: IntArray) -> Self:
        """Of labelled rows in one or more `forms` of the same numbers, the worst of
        each.
        """
        local_rule = rule if forms[0].is_numpy else rule.on_device_of(forms[0])

        def stand(rows: slice, block: Logits) -> AnyArray:
            """Probability, sum above, rank and run of the true class, (4, n)."""
            proba = probabilities(local_rule, block, hidden="most")
            truth = Standing.of_truth(proba, labels[rows], block)
            numbers = [truth.proba, truth.above, truth.rank, truth.run]
            return block.to_host(block.xp.stack(numbers))

        with forms[0].backend.in_float64():
            tables = [map_blocks(stand, form, form.n_classes) for form in forms]
        by_form = np.stack([np.concatenate(blocks, axis=1) for blocks in tables])
        return cls(
            labels,
            by_form[:, 0].min(axis=0),
            by_form[:, 1].max(axis=0),
            by_form[:, 2].max(axis=0).astype(np.int64),
            run=by_form[:, 3].min(axis=0),
        )

    @property
    def n(self) -> int:
        return self.labels.size

    @property
    def counts(self) -> FloatArray:
        """How much each example counts, (n,)."""
        return np.ones(self.n) if self.weights is None else self.weights

    @property
    def standing(self) -> Standing:
        """Where the true classes stand among all classes."""
        return Standing(self.proba, self.above, self.rank, self.run)

    @property
    def counted(self) -> bool:
        """Whether every example counts as one, or as a number of them."""
        return self.unit == 1.0 and control.can_be_counts(self.weights)

    @remembered
    def of_class(self, label: int, *, alike: bool) -> Conformity:
        """The examples of one class; `alike`, each counts as one."""
        examples = self.take(self.labels == label)
        return replace(examples, weights=None, unit=1.0) if alike else examples

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the examples."""
        taken: dict[str, Any] = {
            name: array[rows] for name, array in self.arrays().items()
        }
        return replace(self, **taken)

    def without_equal_weights(self) -> Self:
        """Without weights that mean nothing.

        Equal ones mean something where a new example may weigh more than each of
        these, as an item of many positions does.
        """
        if self.weights is None or self.counted:
            return self
        equal = bool((self.weights == self.unit).all())
        return replace(self, weights=None, unit=1.0) if equal else self

    def __add__(self, second: Self) -> Self:
        """Both lots of examples, without their groups."""
        joined: dict[str, Any] = {
            name: np.concatenate([array, getattr(second, name)])
            for name, array in self.arrays().items()
            if name not in ("weights", "group") and getattr(second, name) is not None
        }
        if self.weights is not None or second.weights is not None:
            joined["weights"] = np.concatenate([self.counts, second.counts])
        return type(self)(**joined, unit=max(self.unit, second.unit))

    def arrays(self) -> dict[str, AnyArray]:
        """Those of its fields that are arrays, by name."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            k: value for k, value in values.items() if isinstance(value, np.ndarray)
        }

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        examples = super().from_stored(stored)
        named = isinstance(examples.group_names, GroupNames)
        sound = 0.0 < examples.unit < np.inf and (examples.group is not None) == named
        counts = examples.counts
        sound &= bool(((counts >= 1e-300) & (counts <= 1e300)).all())
        if examples.group is not None and examples.group_names is not None:
            indices = np.arange(len(examples.group_names.names))
            sound &= bool(np.isin(examples.group, indices).all())
        shapes = {array.shape for array in examples.arrays().values()}
        if not sound or shapes != {(examples.n,)}:
            raise ValueError(
                "`conformity` must hold a weight and a group for each label."
            )
        return examples


@dataclass(frozen=True, kw_only=True)
class SetOptions:
    """What is asked of sets; see `Calibrator.predict_set`."""

    coverage: float
    delta: float | None = None
    by: BySet = "all"
    kind: SetKind = "smallest"
    pooled: bool = False
    penalty: float = 0.0
    free_ranks: int = 0
    allow_empty: bool = False

    def __post_init__(self) -> None:
        shares = control.check_guarantee(self.coverage, self.delta, "coverage")
        for name, share in zip(("coverage", "delta"), shares, strict=True):
            object.__setattr__(self, name, share)
        check_choice("by", self.by, BySet)
        check_choice("kind", self.kind, SetKind)
        check_count("free_ranks", self.free_ranks, least=0)
        check_flag("pooled", self.pooled)
        check_flag("allow_empty", self.allow_empty)
        Within(0.0).check("penalty", self.penalty, {})
        smallest = self.by == "class" and self.delta is None and self.kind == "smallest"
        if self.kind != "adaptive" and self.penalty:
            raise ValueError(
                f'`penalty` goes with kind="adaptive"; got kind="{self.kind}".'
            )
        if self.pooled and not smallest:
            raise ValueError(
                '`pooled=True` goes with kind="smallest", by="class" and no `delta`; '
                f'got kind="{self.kind}", by="{self.by}", delta={self.delta!r}.'
            )
        if self.kind == "ordered" and self.by == "class":
            raise ValueError(
                '`by="class"` does not go with kind="ordered": with a threshold for '
                "each class, sets would have gaps."
            )

    @property
    def score(self) -> SetScore:
        """The score that its sets bound."""
        return set_score(self.kind, self.penalty, self.free_ranks)


@dataclass(frozen=True, eq=False)
class CertifiedSets:
    """The thresholds that examples prove for the sets that are asked for.

    A cell is all examples, a class or a group.

    Attributes
    ----------
    options : what is asked for
    examples, certified_on : the examples, of the fit or of `certify`
    scores, cells : the score and the cell (n,) of each
    thresholds : that of each cell
    """

    options: SetOptions
    examples: Conformity
    certified_on: Source
    scores: FloatArray
    cells: IntArray
    thresholds: control.Thresholds
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)

    def rule(self, rule: Rule, cell: int | None = None) -> SetRule:
        """The rule with its sets: with the thresholds of all classes, or that of one
        cell.
        """
        options = self.options
        thresholds = self._outward_thresholds()
        return SetRule(
            rule,
            options.kind,
            thresholds if cell is None else thresholds[cell : cell + 1],
            own_scores=self.certified_on == "fit",
            penalty=options.penalty,
            free_ranks=options.free_ranks,
            allow_empty=options.allow_empty,
        )

    def probability_thresholds(self) -> FloatArray:
        """The thresholds as probabilities: the least of a member, or the largest
        sum.
        """
        return self.options.score.as_probability(self.thresholds.values)

    @remembered
    def _outward_thresholds(self) -> FloatArray:
        """The thresholds of all cells, moved outwards by what rounding may change."""
        values = self.thresholds.values
        outwards = values + THRESHOLD_SLACK * np.abs(values)
        return self.options.score.limit(outwards, self.examples.standing)

    @remembered
    def guarantee(
        self, claim: str | None = None, unit: str = "examples", true: str = "true class"
    ) -> str:
        """The guarantee in words, or another `claim` about `unit` was counted.

        `true` says what is covered.
        """
        options = self.options
        new_group = options.by == "new group"
        of_all_rows = options.by == "all" or options.pooled
        scope = "" if of_all_rows else f" of each {options.by}"
        if new_group:
            n_groups = count_groups(self.examples.group)
            scope = f" in a new group, drawn like the {n_groups:,} of `certify`"
        if claim is not None:
            claim += scope * new_group
        else:
            comma = "," * new_group
            least = control.percent(options.coverage)
            claim = f"Coverage{scope}{comma} at least {least}"
        by_rows = unit == "examples"
        examples = self.examples
        message = control.state_guarantee(
            claim,
            self._state_evidence(unit),
            delta=options.delta,
            by=options.by,
            # Positions of an item share its weight, which is 1 if nobody gave one.
            weighted=not examples.counted if by_rows else examples.unit != 1.0,
        )
        return message + self._state_shortage(unit, true)

    def _state_evidence(self, unit: str) -> str:
        """How many examples there are, and how often these are covered."""
        examples = self.examples
        kind = f"held-out {unit}"
        if self.certified_on == "fit":
            kind = "examples of the fit, by the classifier's own scores"
        counted = unit == "examples"
        n = examples.n if counted else round(float(examples.counts.sum()))
        message = f"{n:,} {kind}{control.ONE_OF_EACH * examples.clustered}"
        if not examples.n:
            return message
        covered = self.scores <= self.thresholds.values[self.cells]
        covered |= (examples.rank == 1) & (not self.options.allow_empty)
        share = np.average(covered, weights=examples.counts)
        return f"observed {share:.1%} on {message}"

    def _state_shortage(self, unit: str, true: str) -> str:
        """What the lack of examples means; "" where there is none."""
        options = self.options
        thresholds = self.thresholds
        new_group = options.by == "new group"
        needed = f"{thresholds.fewest:,} {'groups' if new_group else unit}"
        single = options.by in ("all", "new group") or options.pooled
        if single and not np.isfinite(thresholds.values[0]):
            return (
                f" Nothing is left out: it takes at least {needed} whose {true} is "
                "possible."
            )
        unknown_cell = options.by == "group"
        pooled = thresholds.pooled[: thresholds.values.size - unknown_cell]
        if not pooled.any():  # of classes or groups
            return ""
        consequence = "for these nothing is left out"
        if np.isfinite(thresholds.values[thresholds.pooled]).any():
            consequence = (
                "they share a threshold, and the guarantee is about all of them, on "
                "average"
            )
        cells = "classes" if options.by == "class" else "groups"
        return (
            f" {pooled.sum()} of {pooled.size} {cells} have fewer than {needed}; "
            f"{consequence}."
        )


@remembered
def prove_sets(
    examples: Conformity, options: SetOptions, source: Source, n_classes: int
) -> CertifiedSets:
    """The thresholds that examples prove for the sets that are asked for."""
    cells = np.zeros(examples.n, np.int64)
    n_cells = 1
    if options.by == "class":
        cells = examples.labels
        n_cells = n_classes
    elif options.by in ("group", "new group"):
        names = control.known_groups(
            examples.group_names, options.by, alike=examples.counted
        )
        if options.by == "group" and examples.group is not None:
            cells = examples.group
            n_cells = len(names.names) + 1  # the last is for unknown groups
    scores = options.score.of(examples.standing)
    if options.by == "new group" and examples.group is not None:
        thresholds = control.new_group_threshold(
            scores, examples.group, options.coverage, options.delta, examples.counts
        )
    elif options.pooled:
        thresholds = _pooled_thresholds(examples, scores, options, n_classes)
    else:
        thresholds = control.find_thresholds(
            scores,
            cells,
            n_cells,
            options.coverage,
            options.delta,
            weights=examples.counts,
            unit=examples.unit,
        )
    return CertifiedSets(options, examples, source, scores, cells, thresholds)


def _pooled_thresholds(
    examples: Conformity, scores: FloatArray, options: SetOptions, n_classes: int
) -> control.Thresholds:
    """Thresholds in proportion to class frequencies, with coverage on average over all.

    Rare classes are as easy to reach as others. Frequencies include the examples
    themselves, and not the new one, which can only add coverage (`docs/theory.md`).
    """
    counts = np.bincount(examples.labels, examples.counts, n_classes)
    frequency = counts + examples.unit  # none impossible
    thresholds = control.find_thresholds(
        scores / frequency[examples.labels],
        np.zeros_like(examples.labels),
        1,
        options.coverage,
        weights=examples.counts,
        unit=examples.unit,
    )
    return replace(thresholds, values=thresholds.values * frequency)


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
    certified_on: Source
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
        n_rows = len(self.members)
        try:
            index = operator.index(row)
        except TypeError:
            index = n_rows
        if not -n_rows <= index < n_rows:
            raise IndexError(
                f"`row` must be the number of one of the {n_rows} rows; got "
                f"{show(row)}."
            )
        inside = np.flatnonzero(arrays.to_host(self.members[row]))
        if self.seen is not None:
            inside = inside[np.isin(inside, self.seen[row])]
        names = [
            k if self.classes is None else self.classes[k] for k in inside.tolist()
        ]
        return (
            [*names, "or another"]
            if self.other is not None and self.other[row]
            else names
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


@dataclass(frozen=True)
class LabelSetOptions:
    """What is asked of sets of labels; see `MultilabelCalibrator.predict_set`."""

    coverage: float
    delta: float | None = None
    by: ByLabel = "row"

    def __post_init__(self) -> None:
        control.check_guarantee(self.coverage, self.delta, "coverage")
        check_choice("by", self.by, ByLabel)


@storable("positives")
@dataclass(frozen=True, eq=False)
class HeldOutLabels(_Examples):
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
    unit: Unit = 1.0
    clustered: bool = False
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = (self.proba, self.absent, self.worst)
        counterparts = (
            self.label,
            self.absent_label,
            self.worst if self.group is None else self.group,
        )
        is_valid = all(((column >= 0.0) & (column <= 1.0)).all() for column in values)
        is_valid &= all(
            index.dtype.kind == "i" and (index >= 0).all() for index in counterparts[:2]
        )
        is_valid &= all(
            (weights >= 0.0).all() and np.isfinite(weights).all()
            for weights in self.weights or ()
        )
        is_valid &= (self.group is None) == (self.names is None)
        if self.group is not None and self.names is not None:
            in_range = (self.group >= 0) & (self.group < len(self.names.names))
            is_valid &= self.group.dtype.kind == "i" and bool(in_range.all())
        table = zip(values, counterparts, self.weights or counterparts, strict=True)
        if not is_valid or any(
            len({column.shape for column in columns}) > 1 for columns in table
        ):
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
        present, absent = (np.nonzero(labels == value) for value in (1.0, 0.0))
        complete = ~np.isnan(labels).any(axis=1)
        names = None
        group_index = None
        shares = None
        if weights is not None:
            shares = weights[present[0]], weights[absent[0]], weights[complete]
        if columns is not None:
            names, group_index = GroupNames.from_rows(columns, len(proba))
            group_index = group_index[complete]
        worst = np.where(labels == 1.0, 1.0 - proba, proba)[complete].max(axis=1)
        return cls(
            proba=proba[present],
            label=present[1],
            absent=proba[absent],
            absent_label=absent[1],
            worst=worst,
            group=group_index,
            names=names,
            weights=shares,
            unit=unit,
        )

    @remembered
    def low_high(
        self, n_labels: int, options: LabelSetOptions
    ) -> tuple[FloatArray, FloatArray]:
        """Probabilities below which a label is out, and above which it is in, maybe not
        in order.

        One threshold for all labels of a row, (cells, labels), where a cell is a group,
        or all rows; or two for each, (labels,). The first of a label is the probability
        that the share `coverage` of its positives reaches.
        """
        values = self._thresholds(n_labels, options)
        if options.by == "label":
            low = -values[:n_labels]
            high = np.minimum(values[n_labels:], 1.0)
        else:
            of_rows = np.broadcast_to(values[:, None], (values.size, n_labels))
            low = 1.0 - of_rows
            high = np.minimum(of_rows, 1.0)
        # Outwards by what rounding may change: relative, and near 1.
        high = np.minimum(high + 1e-5 * (1.0 - high) + 1.2e-7, 1.0)
        return np.maximum(low, 0.0) * (1.0 - 1e-5), high

    def _thresholds(self, n_labels: int, options: LabelSetOptions) -> FloatArray:
        """The threshold of each cell: all rows, a group, or a label that is there or
        not.
        """
        if options.by == "new group" and self.group is not None:
            alike = np.ones(self.worst.size)
            return control.new_group_threshold(
                self.worst, self.group, options.coverage, options.delta, alike
            ).values
        scores = self.worst
        cells = np.zeros(self.worst.size, np.int64)
        n_cells = 1
        weights = None if self.weights is None else self.weights[2]
        if options.by == "label":
            scores = np.append(-self.proba, self.absent)
            n_cells = 2 * n_labels
            cells = np.append(self.label, n_labels + self.absent_label)
            weights = None if self.weights is None else np.append(*self.weights[:2])
        elif (
            options.by == "group" and self.names is not None and self.group is not None
        ):
            cells = self.group
            n_cells = len(self.names.names)
        return control.find_thresholds(
            scores,
            cells,
            n_cells,
            options.coverage,
            options.delta,
            weights=weights,
            unit=self.unit,
            pool=False,
        ).values


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

    def __str__(self) -> str:
        n_rows = self.inside.shape[0]
        inside = float(self.inside.sum()) / max(1, n_rows)
        still_open = float(self.open.sum()) / max(1, n_rows)
        return (
            f"{n_rows:,} rows, on average {inside:.2f} labels certain and "
            f"{still_open:.2f} open. {self.guarantee}"
        )


def label_sets(
    proba: Array,
    examples: HeldOutLabels,
    options: LabelSetOptions,
    groups: object,
) -> LabelSets:
    """Sets for calibrated probabilities (n, labels); see
    `MultilabelCalibrator.predict_set`.
    """
    by = options.by
    _check_label_sets(examples, options, groups)
    n_rows, n_labels = map(int, proba.shape)
    low, high = examples.low_high(n_labels, options)
    # Where they cross, the point between them that is nearest to 1/2.
    middle = np.clip(0.5, np.minimum(low, high), np.maximum(low, high))
    sides = [np.where(low > high, middle, side) for side in (low, high)]
    by_cell = np.stack(sides, axis=-2).reshape(-1, 2, n_labels)
    message = _state_label_sets(examples, options)
    if by == "group" and examples.names is not None:
        index, _ = examples.names.match(groups, n_rows, "have all labels open")
        open_cell = np.broadcast_to([[0.0], [1.0]], (1, 2, n_labels))
        limits = np.concatenate([by_cell, open_cell])[index].swapaxes(0, 1)
        thresholds = by_cell
    else:
        limits = by_cell[0]
        thresholds = limits.T
        message += _state_open_labels(limits, by)
    backend = arrays.backend_of(proba) or NUMPY
    below, above = (backend.from_host(limit, proba) for limit in limits)
    return LabelSets(proba > above, proba >= below, thresholds, message)


def _check_label_sets(
    examples: HeldOutLabels, options: LabelSetOptions, groups: object
) -> None:
    """Raise unless these examples can prove what is asked for."""
    by = options.by
    if by in ("group", "new group"):
        control.known_groups(examples.names, by, alike=True)
    if examples.weights is not None and (
        options.delta is not None or by == "new group"
    ):
        argument = '`by="new group"`' if options.delta is None else "`delta`"
        raise ValueError(
            f"{argument} needs examples that all count alike; those of `certify` have "
            "weights. Certify without `sample_weight`, or leave it out."
        )
    if (by == "group") != (groups is not None):
        raise ValueError(
            '`groups` must be given with `by="group"`, and with nothing else.'
        )


def _state_label_sets(examples: HeldOutLabels, options: LabelSetOptions) -> str:
    """The guarantee in words."""
    by = options.by
    at_least = control.percent(options.coverage)
    at_most = control.percent(1.0 - options.coverage)
    if by == "label":
        claim = (
            f"At most {at_most} of new examples with a label have it excluded, and at "
            f"most {at_most} of those without have it included, for each label"
        )
        evidence = (
            f"{examples.proba.size:,} held-out positives and {examples.absent.size:,} "
            "negatives"
        )
    else:
        scope = ""
        if by == "new group":
            n_groups = count_groups(examples.group)
            scope = f" of a new group, drawn like the {n_groups:,} of `certify`,"
        claim = (
            f"At least {at_least} of new examples{scope} have all labels that are "
            "included and none that are excluded"
        )
        evidence = f"{examples.worst.size:,} held-out examples"
    message = control.state_guarantee(
        claim,
        f"certified on {evidence}{control.ONE_OF_EACH * examples.clustered}",
        delta=options.delta,
        by=by if "group" in by else "all",
        weighted=examples.weights is not None,
    )
    if by == "group":
        return f"For each group: {message[0].lower()}{message[1:]}"
    return message


def _state_open_labels(limits: FloatArray, by: ByLabel) -> str:
    """How many labels can never be out or in, of limits (2, labels); "" if none."""
    low, high = limits
    never = []
    if (low == 0.0).any():
        never.append(f"{int((low == 0.0).sum()):,} are never out")
    if (high == 1.0).any():
        never.append(f"{int((high == 1.0).sum()):,} are never in")
    if not never:
        return ""
    unit = "groups" if by == "new group" else "examples"
    return f" For lack of {unit}, of {low.size:,} labels {' and '.join(never)}."
