"""Several labels at once: which are certainly there, certainly not, and open, with a promise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import NUMPY, Array, backend_of
from hokical._core.bins import check_choice
from hokical._core.storage import pack_array, storable
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._control import (
    ABOUT_SHOWN,
    Guaranteed,
    check_promise,
    find_thresholds,
    new_group_threshold,
    remembered,
    state_promise,
)
from hokical.guarantees._group_names import GroupNames, count_groups

#: Whom the coverage is promised to: all labels of a row at once, or each label alone.
By = Literal["row", "label", "new group"]
#: By what rounding may change them, probabilities are moved outwards: relative, and near 1.
_SLACK, _ULP = 1e-5, 1.2e-7


@storable("positives")
@dataclass(frozen=True, eq=False)
class HeldOutLabels:
    """Calibrated probabilities of labels that nothing was fitted on.

    Of those that are there (m,) `proba` and which `label`; the same of those that are not, `absent`
    and `absent_label`; and of each row whose labels are all known the largest probability of the
    contrary, `worst` (n,), and the place of its `group` (n,) among the `names`.
    """

    proba: FloatArray
    label: IntArray
    absent: FloatArray
    absent_label: IntArray
    worst: FloatArray
    group: IntArray | None = None
    names: GroupNames | None = None

    def __post_init__(self) -> None:
        for values in (self.proba, self.absent, self.worst):
            if not ((values >= 0.0) & (values <= 1.0)).all():
                raise ValueError("`positives` must hold probabilities.")
        for values, label in ((self.proba, self.label), (self.absent, self.absent_label)):
            if label.dtype.kind != "i" or label.shape != values.shape or (label < 0).any():
                raise ValueError("`positives` must hold the label of each probability.")
        if self.group is not None and self.group.shape != self.worst.shape:
            raise ValueError("`positives` must hold the group of each row.")

    @classmethod
    def from_rows(cls, proba: FloatArray, labels: FloatArray, groups: Any = None) -> Self:
        """Of probabilities (n, labels) and labels (n, labels) of 0, 1 and NaN for not known."""
        there, not_there = (np.nonzero(labels == value) for value in (1.0, 0.0))
        whole = ~np.isnan(labels).any(axis=1)
        contrary = np.where(labels == 1.0, 1.0 - proba, proba)[whole]
        found = proba[there], there[1], proba[not_there], not_there[1], contrary.max(axis=1)
        if groups is None:
            return cls(*found)
        names, place = GroupNames.from_rows(groups, len(proba))
        return cls(*found, place[whole], names)

    def to_stored(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: pack_array(v) if isinstance(v, np.ndarray) else v for k, v in found.items()}

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
        if by == "label":
            scores, n_cells = np.append(-self.proba, self.absent), 2 * n_labels
            cells = np.append(self.label, n_labels + self.absent_label)
        if by == "new group" and self.group is not None:
            counts = np.ones(scores.size)
            found = new_group_threshold(scores, self.group, coverage, delta, counts).values
        else:
            found = find_thresholds(scores, cells, n_cells, coverage, delta, pool=False).values
        sides = found.reshape(2, n_labels) if by == "label" else found
        low, high = np.broadcast_to(sides, (2, n_labels))
        low, high = -low if by == "label" else 1.0 - low, np.minimum(high, 1.0)
        high = np.minimum(high + _SLACK * (1.0 - high) + _ULP, 1.0)
        return np.maximum(low, 0.0) * (1.0 - _SLACK), high


@dataclass(frozen=True, eq=False)
class LabelSets(Guaranteed):
    """What is certain of the labels of each row, with the promise about it.

    `inside` (n, labels) is True for labels that are certainly there, `possible` (n, labels) also
    for those that are open. `thresholds` (labels, 2): below the first a label is out, above the
    second it is in. `guarantee` is the promise in words.
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
    proba: Array, known: HeldOutLabels, *, coverage: float, delta: float | None, by: By
) -> LabelSets:
    """Sets for calibrated probabilities (n, labels); see `MultilabelCalibrator.predict_set`."""
    coverage, delta = check_promise(coverage, delta, "coverage")
    check_choice("by", by, By)
    if by == "new group" and known.group is None:
        raise ValueError(
            '`by="new group"` has no groups to go by. Call `certify(scores, labels, '
            "groups=groups)` first."
        )
    n_labels = int(proba.shape[1])
    low, high = ends = known.ends(n_labels, coverage, delta, by)
    below, above = ((backend_of(proba) or NUMPY).from_host(end, proba) for end in ends)
    words = _promise(known, coverage, delta, by)
    if never := [
        f"{int((side == end).sum()):,} are never {place}"
        for side, end, place in ((low, 0.0, "out"), (high, 1.0, "in"))
        if (side == end).any()
    ]:
        lack = "groups" if by == "new group" else "examples"
        words += f" For lack of {lack}, of {n_labels:,} labels {' and '.join(never)}."
    return LabelSets(proba > above, proba >= below, np.stack([low, high], axis=1), words)


def _promise(known: HeldOutLabels, coverage: float, delta: float | None, by: By) -> str:
    if by != "label":
        kind = "the same kind"
        if by == "new group":
            kind = f"a new group, drawn like the {count_groups(known.group):,} of `certify`,"
        what = (
            f"At least {coverage:.4g} of new examples of {kind} have all labels that are in "
            "and none that are out"
        )
        words = state_promise(
            what,
            f"of {known.worst.size:,} held-out ones",
            delta=delta,
            by=by if by == "new group" else "all",
        )
        return words + ABOUT_SHOWN * (by == "new group" and delta is not None)
    share = f"{1.0 - coverage:.4g}"
    what = (
        f"At most {share} of new examples with a label have it out, and at most {share} of those "
        "without have it in, for each label"
    )
    behind = f"of {known.proba.size:,} held-out positives and {known.absent.size:,} negatives"
    return state_promise(what, behind, delta=delta)
