"""Several labels at once: which are certainly there, certainly not, and open, with a promise."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np

from hokical._core.arrays import Array, backend_of
from hokical._core.storage import pack_array, storable
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._thresholds import examples_to_cover
from hokical.rules._checks import check_array

#: Whom the coverage is promised to: all labels of a row at once, or each label alone.
By = Literal["row", "label"]
#: What serving in another precision may change of a probability, relative, and near 1.
_SLACK, _ULP = 1e-5, 1.2e-7


@storable("positives")
@dataclass(frozen=True, eq=False)
class HeldOutLabels:
    """Calibrated probabilities of labels that nothing was fitted on.

    Of those that are there (m,) `proba` and which `label`; the same of those that are not, `absent`
    and `absent_label`; and of each row whose labels are all known the largest probability of the
    contrary, `worst` (n,). Files of 0.2 have the first two alone.
    """

    proba: FloatArray
    label: IntArray
    absent: FloatArray | None = None
    absent_label: IntArray | None = None
    worst: FloatArray | None = None

    def __post_init__(self) -> None:
        for said, label in ((self.proba, self.label), (self.absent, self.absent_label)):
            if said is not None and said.size:
                check_array("proba", said, (None,), 0.0, 1.0)
                check_array("label", label, said.shape, 0, 1 << 31, dtype=np.int64)
        if self.worst is not None and self.worst.size:
            check_array("worst", self.worst, (None,), 0.0, 1.0)

    @classmethod
    def from_rows(cls, proba: FloatArray, labels: FloatArray) -> Self:
        """Of probabilities (n, labels) and labels (n, labels) of 0, 1 and NaN for not known."""
        there, not_there = (np.nonzero(labels == value) for value in (1.0, 0.0))
        whole = ~np.isnan(labels).any(axis=1)
        contrary = np.where(labels == 1.0, 1.0 - proba, proba)[whole]
        return cls(proba[there], there[1], proba[not_there], not_there[1], contrary.max(axis=1))

    def to_stored(self) -> dict[str, Any]:
        arrays = {name: array for name, array in vars(self).items() if array is not None}
        return {name: pack_array(array) for name, array in arrays.items()}

    def least(self, n_labels: int, coverage: float, delta: float | None) -> FloatArray:
        """The probabilities (labels,) that this share of a label's positives reaches, or 0."""
        found = _cover(-self.proba, self.label, n_labels, coverage, delta)
        return _outwards(np.where(np.isinf(found), 0.0, -found), up=False)

    def most(self, n_labels: int, coverage: float, delta: float | None) -> FloatArray:
        """Those (labels,) that this share of the examples without a label does not pass, or 1."""
        assert self.absent is not None
        assert self.absent_label is not None
        found = _cover(self.absent, self.absent_label, n_labels, coverage, delta)
        return _outwards(np.minimum(found, 1.0), up=True)


def _cover(
    strange: FloatArray, label: IntArray, n_labels: int, coverage: float, delta: float | None
) -> FloatArray:
    """For each label the strangest that must be covered; inf where its examples are too few."""
    order = np.lexsort((strange, label))
    starts = np.searchsorted(label[order], np.arange(n_labels + 1)).tolist()
    found = np.full(n_labels, np.inf)
    for k, (start, stop) in enumerate(pairwise(starts)):
        needed = examples_to_cover(stop - start, coverage, delta)
        if needed <= stop - start:
            found[k] = strange[order[start + needed - 1]]
    return found


def _outwards(values: FloatArray, *, up: bool) -> FloatArray:
    """Probabilities moved by what rounding may change."""
    if up:
        return np.minimum(values + _SLACK * (1.0 - values) + _ULP, 1.0)
    return values * (1.0 - _SLACK)


@dataclass(frozen=True, eq=False)
class LabelSets:
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
    coverage = check_chance("coverage", coverage)
    delta = None if delta is None else check_chance("delta", delta)
    if by not in get_args(By):
        raise ValueError(f"`by` must be one of {list(get_args(By))}; got {by!r}.")
    if known.worst is None:
        raise ValueError(
            "`predict_set` needs examples that were noted for it, and this file is older. Call "
            "`certify(scores, labels)` again."
        )
    n_labels = int(proba.shape[1])
    if by == "label":
        low, high = (find(n_labels, coverage, delta) for find in (known.least, known.most))
    else:
        needed = examples_to_cover(known.worst.size, coverage, delta)
        enough = needed <= known.worst.size
        worst = np.full(n_labels, np.sort(known.worst)[needed - 1] if enough else 1.0)
        low, high = _outwards(1.0 - worst, up=False), _outwards(worst, up=True)
    middle = np.clip(0.5, np.minimum(low, high), np.maximum(low, high))
    low, high = (np.where(low > high, middle, side) for side in (low, high))
    backend = backend_of(proba)
    ends = [end if backend is None else backend.from_host(end, proba) for end in (low, high)]
    sure = "on average over such examples" if delta is None else f"with confidence {1 - delta:.4g}"
    if by == "row":
        words = _promise_rows(known, coverage, sure)
    else:
        words = _promise_labels(known, coverage, f"for each label, {sure}")
    if never := [
        f"{int((side == end).sum()):,} are never {place}"
        for side, end, place in ((low, 0.0, "out"), (high, 1.0, "in"))
        if (side == end).any()
    ]:
        words += f" For lack of examples, of {n_labels:,} labels {' and '.join(never)}."
    return LabelSets(proba > ends[1], proba >= ends[0], np.stack([low, high], axis=1), words)


def _promise_rows(known: HeldOutLabels, coverage: float, sure: str) -> str:
    assert known.worst is not None
    return (
        f"At least {coverage:.4g} of new examples of the same kind have all labels that are in and "
        f"none that are out, {sure}, as judged by {known.worst.size:,} held-out ones."
    )


def _promise_labels(known: HeldOutLabels, coverage: float, sure: str) -> str:
    assert known.absent is not None
    share = f"{1.0 - coverage:.4g}"
    return (
        f"At most {share} of new examples with a label have it out, and at most {share} of those "
        f"without have it in, {sure}, as judged by {known.proba.size:,} held-out positives and "
        f"{known.absent.size:,} negatives."
    )
