"""Several labels at once: which are certainly there, certainly not, and open, with a guarantee."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import NUMPY, Array, FloatArray, IntArray, backend_of
from hokical._core.checks import check_choice
from hokical._core.groups import GroupNames, count_groups, read_columns, take_rows
from hokical._core.storage import pack_array, storable
from hokical.guarantees.control import (
    ABOUT_SHOWN,
    ONE_OF_EACH,
    Guaranteed,
    check_guarantee,
    find_thresholds,
    new_group_threshold,
    percent,
    remembered,
    state_guarantee,
)

#: Whom the coverage is guaranteed to: all labels of a row at once, also by group, or each label.
By = Literal["row", "label", "group", "new group"]
#: By what rounding may change them, probabilities are moved outwards: relative, and near 1.
_SLACK, _ULP = 1e-5, 1.2e-7


@storable("positives")
@dataclass(frozen=True, eq=False)
class HeldOutLabels:
    """Calibrated probabilities of labels that nothing was fitted on.

    Of those that are there (m,) `proba` and which `label`; the same of those that are not, `absent`
    and `absent_label`; and of each row whose labels are all known the largest probability of the
    contrary, `worst` (n,), and the place of its `group` (n,) among the `names`. `weights` are those
    of the three, where rows do not count alike, and `unit` is how much a new row may count. Rows
    may be `clustered`: one of each cluster was noted.
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
        for values in (self.proba, self.absent, self.worst):
            if not ((values >= 0.0) & (values <= 1.0)).all():
                raise ValueError("`positives` must hold probabilities.")
        for values, label in ((self.proba, self.label), (self.absent, self.absent_label)):
            if label.dtype.kind != "i" or label.shape != values.shape or (label < 0).any():
                raise ValueError("`positives` must hold the label of each probability.")
        sizes = [self.proba.shape, self.absent.shape, self.worst.shape]
        weights = [] if self.weights is None else [*self.weights]
        if weights and [each.shape for each in weights] != sizes:
            raise ValueError("`positives` must hold the weight of each probability.")
        if self.group is not None and self.group.shape != self.worst.shape:
            raise ValueError("`positives` must hold the group of each row.")

    @classmethod
    def from_rows(
        cls,
        proba: FloatArray,
        labels: FloatArray,
        weights: FloatArray | None = None,
        groups: Any = None,
    ) -> Self:
        """Of probabilities (n, labels) and labels (n, labels) of 0, 1 and NaN for not known."""
        columns = None if groups is None else read_columns(groups, len(labels))
        unit = 1.0
        if weights is not None:
            rows, unit = np.flatnonzero(weights), float(weights.max())
            proba, labels, weights = proba[rows], labels[rows], weights[rows]
            columns = None if columns is None else take_rows(columns, rows)
        there, not_there = (np.nonzero(labels == value) for value in (1.0, 0.0))
        whole = ~np.isnan(labels).any(axis=1)
        contrary = np.where(labels == 1.0, 1.0 - proba, proba)[whole]
        names, place, shares = None, None, None
        if weights is not None:
            shares = weights[there[0]], weights[not_there[0]], weights[whole]
        if columns is not None:
            names, place = GroupNames.from_rows(columns, len(proba))
            place = place[whole]
        found = proba[there], there[1], proba[not_there], not_there[1], contrary.max(axis=1)
        return cls(*found, place, names, shares, unit)

    def to_stored(self) -> dict[str, Any]:
        def pack(value: Any) -> Any:
            if isinstance(value, tuple):
                return [pack_array(each) for each in value]
            return pack_array(value) if isinstance(value, np.ndarray) else value

        return {field.name: pack(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        weights = stored.get("weights")
        return cls(**stored | {"weights": None if weights is None else tuple(weights)})

    def ends(self, n_labels: int, coverage: float, delta: float | None, by: By) -> FloatArray:
        """Probabilities (2, labels) below which a label is out, and above which it is in."""
        low, high = self.unordered_ends(n_labels, coverage, delta, by)
        # Where they cross, the point between them that is nearest to 1/2.
        middle = np.clip(0.5, np.minimum(low, high), np.maximum(low, high))
        return np.stack([np.where(low > high, middle, side) for side in (low, high)])

    @remembered
    def unordered_ends(
        self, n_labels: int, coverage: float, delta: float | None, by: By
    ) -> tuple[FloatArray, FloatArray]:
        """The same, not yet in order: one threshold for all labels of a row, or two for each.

        The first of a label is the probability that the share `coverage` of its positives reaches.
        """
        scores, cells, n_cells = self.worst, np.zeros(self.worst.size, np.int64), 1
        weights = None if self.weights is None else self.weights[2]
        if by == "label":
            scores, n_cells = np.append(-self.proba, self.absent), 2 * n_labels
            cells = np.append(self.label, n_labels + self.absent_label)
            weights = None if self.weights is None else np.append(*self.weights[:2])
        if by == "new group" and self.group is not None:
            counts = np.ones(scores.size) if weights is None else weights
            found = new_group_threshold(scores, self.group, coverage, delta, counts).values
        else:
            options: dict[str, Any] = {"weights": weights, "unit": self.unit, "pool": False}
            found = find_thresholds(scores, cells, n_cells, coverage, delta, **options).values
        sides = found.reshape(2, n_labels) if by == "label" else found
        low, high = np.broadcast_to(sides, (2, n_labels))
        low, high = -low if by == "label" else 1.0 - low, np.minimum(high, 1.0)
        high = np.minimum(high + _SLACK * (1.0 - high) + _ULP, 1.0)
        return np.maximum(low, 0.0) * (1.0 - _SLACK), high

    def of_group(self, place: int) -> Self:
        """The rows of one group whose labels are all known."""
        assert self.group is not None
        own = self.group == place
        none = np.zeros(0), np.zeros(0, np.int64)
        weights = None if self.weights is None else (none[0], none[0], self.weights[2][own])
        return type(self)(*none, *none, self.worst[own], None, None, weights, self.unit)


@dataclass(frozen=True, eq=False)
class LabelSets(Guaranteed):
    """What is certain of the labels of each row, with the guarantee about it.

    `inside` (n, labels) is True for labels that are certainly there, `possible` (n, labels) also
    for those that are open. `thresholds` (labels, 2): below the first a label is out, above the
    second it is in; by group (groups, 2, labels). `guarantee` is the guarantee in words.
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
    *,
    coverage: float,
    delta: float | None,
    by: By,
    groups: Any = None,
) -> LabelSets:
    """Sets for calibrated probabilities (n, labels); see `MultilabelCalibrator.predict_set`."""
    coverage, delta = check_guarantee(coverage, delta, "coverage")
    check_choice("by", by, By)
    if by == "new group" and known.group is None:
        raise ValueError(
            '`by="new group"` has no groups to go by. Call `certify(scores, labels, '
            "groups=groups)` first."
        )
    if by == "new group" and known.names is not None:
        known.names.check_countable(known.weights is None)
    if (by == "group") != (groups is not None):
        raise ValueError('`groups` must be given with `by="group"`, and with nothing else.')
    if by == "group":
        return _sets_by_group(proba, known, coverage, delta, groups)
    n_labels = int(proba.shape[1])
    low, high = ends = known.ends(n_labels, coverage, delta, by)
    below, above = ((backend_of(proba) or NUMPY).from_host(end, proba) for end in ends)
    words = _guarantee(known, coverage, delta, by)
    if never := [
        f"{int((side == end).sum()):,} are never {place}"
        for side, end, place in ((low, 0.0, "out"), (high, 1.0, "in"))
        if (side == end).any()
    ]:
        lack = "groups" if by == "new group" else "examples"
        words += f" For lack of {lack}, of {n_labels:,} labels {' and '.join(never)}."
    return LabelSets(proba > above, proba >= below, np.stack([low, high], axis=1), words)


def _sets_by_group(
    proba: Array, known: HeldOutLabels, coverage: float, delta: float | None, groups: Any
) -> LabelSets:
    """Sets with a threshold for each group; of one that `certify` did not have, all are open."""
    if known.names is None:
        raise ValueError('`by="group"` needs `certify(scores, labels, groups=...)` first.')
    n_rows, n_labels = map(int, proba.shape)
    place, _ = known.names.match(groups, n_rows, "have all labels open")
    n_groups = len(known.names.names)
    own = [known.of_group(k).ends(n_labels, coverage, delta, "row") for k in range(n_groups)]
    ends = np.stack([*own, np.broadcast_to([[0.0], [1.0]], (2, n_labels))])[place]
    backend = backend_of(proba) or NUMPY
    below, above = (backend.from_host(ends[:, k], proba) for k in range(2))
    words = _guarantee(known, coverage, delta, "group")
    return LabelSets(proba > above, proba >= below, np.stack([*own], axis=0), words)


def _guarantee(known: HeldOutLabels, coverage: float, delta: float | None, by: By) -> str:
    weighted, one = known.weights is not None, ONE_OF_EACH * known.clustered
    if by != "label":
        kind = ""
        if by == "new group":
            kind = f" of a new group, drawn like the {count_groups(known.group):,} of `certify`,"
        what = (
            f"At least {percent(coverage)} of new examples{kind} have all labels that are included "
            "and none that are excluded"
        )
        behind = f"certified on {known.worst.size:,} held-out examples{one}"
        whom = "all" if by == "row" else by
        words = state_guarantee(what, behind, delta=delta, by=whom, weighted=weighted)
        if by == "group":
            words = f"For each group: {words[0].lower()}{words[1:]}"
        return words + ABOUT_SHOWN * (by == "new group" and delta is not None)
    share = percent(1.0 - coverage)
    what = (
        f"At most {share} of new examples with a label have it excluded, and at most {share} of "
        "those without have it included, for each label"
    )
    behind = (
        f"certified on {known.proba.size:,} held-out positives and {known.absent.size:,} negatives"
        f"{one}"
    )
    return state_guarantee(what, behind, delta=delta, weighted=weighted)
