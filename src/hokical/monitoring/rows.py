"""The rows that a monitor keeps: labelled, waiting for their label by id, and counted before.

Memory is bounded: of each kind the newest are kept.
"""

from __future__ import annotations

from collections.abc import Container, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.checks import bin_index, check_count
from hokical._core.reading import to_numpy
from hokical._core.storage import pack_array, storable
from hokical.guarantees.calibration_data import number_hashes

#: Rows whose repetition has a larger chance than exp(-20) can be equal to earlier ones by chance.
_LEAST_SURPRISE = 20.0
#: How hashes and counts of rows without ids, and of those with ids, are called in files.
_STORED = (("hashes", "counts"), ("named_hashes", "named_counts"))
#: The share of distinct rows from which on equal rows are taken for the same row.
_DISTINCT = 0.95


@storable("monitor-labelled")
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Confidence, whether it was right and the predicted class, (n,) each, and group codes.

    The class is -1 where it is not known, and so are `groups` (n, columns).
    """

    confidence: FloatArray
    correct: BoolArray
    predicted: IntArray
    groups: IntArray

    def __post_init__(self) -> None:
        if len({len(part) for part in vars(self).values()}) > 1:
            raise ValueError("the arrays of labelled rows must have one length.")
        if not ((self.confidence >= 0.0) & (self.confidence <= 1.0)).all():
            raise ValueError("`confidence` must lie in [0, 1].")

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the rows, by a mask, a slice or by number."""
        return type(self)(**{name: part[rows] for name, part in vars(self).items()})

    def append(self, more: Self, size: int) -> Self:
        """The newest `size` rows of both."""
        pairs = ((name, (own, getattr(more, name))) for name, own in vars(self).items())
        return type(self)(**{name: np.concatenate(pair)[-size:] for name, pair in pairs})

    def __len__(self) -> int:
        return len(self.confidence)

    def to_stored(self) -> dict[str, Any]:
        return {name: pack_array(part) for name, part in vars(self).items()}

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """No rows, with so many columns of groups."""
        nothing = np.zeros(0, int)
        return cls(np.zeros(0), nothing > 0, nothing, np.zeros((0, n_columns), int))

    def ece(self, n_bins: int) -> float:
        """The expected calibration error in bins of equal width."""
        gap = np.bincount(bin_index(self.confidence, n_bins), self.correct - self.confidence)
        return min(float(np.abs(gap).sum()) / len(self), 1.0)

    @property
    def brier(self) -> float:
        """The mean squared difference between confidence and right or wrong."""
        return float(((self.correct - self.confidence) ** 2).mean())

    def shares(self, bin_: int | None = None, n_bins: int = 1) -> tuple[float, float]:
        """Mean confidence and accuracy, of a bin or of all rows; NaN where there are none."""
        own = self if bin_ is None else self.take(bin_index(self.confidence, n_bins) == bin_)
        if not len(own):
            return np.nan, np.nan
        return float(own.confidence.mean()), float(own.correct.mean())


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as they arrive, with the true class `truth` (n,), -1 where it is not known yet.

    Of rows that are not `of_logits`, the class is 1 if a confidence was right and 0 otherwise.
    `members` (n, classes) are their prediction sets, where these are tested.
    """

    rows: LabelledRows
    truth: IntArray
    members: AnyArray | None = None
    of_logits: bool = False

    @property
    def known(self) -> BoolArray:
        """Whether there is a label (n,)."""
        return self.truth >= 0


class WaitingRow(NamedTuple):
    """A prediction without a label: confidence, class (-1: unknown), groups, and its set.

    `of_logits` says what its label will be: a class, or else whether it was right. `members` are
    the classes of its prediction set, if sets are tested.
    """

    confidence: float
    predicted: int
    groups: tuple[int, ...]
    of_logits: bool
    members: tuple[int, ...]


@storable("monitor-waiting")
@dataclass(eq=False)
class WaitingRows:
    """Predictions by id, those that wait for a label, and ids that were labelled.

    `dropped` counts rows that were given up because more than `limit` waited.
    """

    limit: int
    rows: dict[str, WaitingRow] = field(default_factory=dict)
    labelled: dict[str, None] = field(default_factory=dict)
    dropped: int = 0

    def __post_init__(self) -> None:
        check_count(self.limit, name="limit", least=0)
        self.rows = {each: WaitingRow(*row) for each, row in self.rows.items()}

    def add(self, ids: list[str], batch: Batch) -> None:
        """Keep what is needed of rows without a label, and the new ids of those with one."""
        rows, members = batch.rows, batch.members
        for k in np.flatnonzero(~batch.known).tolist():
            classes = () if members is None else np.flatnonzero(members[k]).tolist()
            groups, shares = (
                rows.groups[k].tolist(),
                (float(rows.confidence[k]), int(rows.predicted[k])),
            )
            self.rows[ids[k]] = WaitingRow(*shares, tuple(groups), batch.of_logits, tuple(classes))
        surplus = max(0, len(self.rows) - self.limit)
        drop_oldest(self.rows, surplus)
        self.dropped += surplus
        self.close([ids[k] for k in np.flatnonzero(batch.known).tolist()])

    def find(self, ids: list[str]) -> tuple[LabelledRows, bool, list[tuple[int, ...]]]:
        """The rows that wait under these ids, whether they are of logits, and their sets.

        Raise if one of them does not wait, or if they are of two kinds.
        """
        check_waiting_ids(ids, self.rows, self.labelled, self.limit)
        found = [self.rows[each] for each in ids]
        if len({row.of_logits for row in found}) > 1:
            raise ValueError(
                "`ids` must be of one kind; got rows of `update` and of `update_logits`. Add their "
                "labels in two calls."
            )
        confidence, predicted, groups, of_logits, members = zip(*found, strict=True)
        numbers = np.array(groups, int).reshape(len(ids), -1)
        unknown = np.zeros(len(ids), np.bool_)
        rows = LabelledRows(np.array(confidence), unknown, np.array(predicted), numbers)
        return rows, of_logits[0], list(members)

    def close(self, ids: list[str]) -> None:
        """Note that these ids have been labelled."""
        for each in ids:
            self.rows.pop(each, None)
        self.labelled.update(dict.fromkeys(ids))
        drop_oldest(self.labelled, len(self.labelled) - self.limit)


@storable("monitor-seen")
@dataclass(eq=False)
class SeenRows:
    """How often rows were counted, by a hash of what they hold, newest last.

    Rows with ids, `named`, are told apart by these; without them, a row counts once either way.
    """

    limit: int
    counts: dict[float, int] = field(default_factory=dict)
    named: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count(self.limit, name="limit", least=0)

    def add(self, hashes: FloatArray, *, have_ids: bool = False) -> None:
        """Remember rows and their batch; raise if it, or most of its rows, were counted before."""
        batch = float(number_hashes(hashes[None])[0])  # for rows of few distinct values
        tables = [self.counts] if have_ids else [self.counts, self.named]
        known = hashes if any(batch in table for table in tables) else hashes[:0]
        own = [table for table in tables if len(table) >= _DISTINCT * sum(table.values())]
        if not known.size:
            known = hashes[[any(each in table for table in own) for each in hashes.tolist()]]
        if known.size > hashes.size / 2 and _surprise(known) > _LEAST_SURPRISE:
            raise ValueError(
                f"predictions must be counted once; {known.size:,} of these {hashes.size:,} rows "
                "were counted before. If only their labels are new, pass `ids` with the "
                "predictions and then `add_labels(ids, labels)`; if they are to count again, "
                "`again=True`."
            )
        table = self.named if have_ids else self.counts
        # Rows with ids leave no trace of how they were cut into batches.
        for each in [*hashes[-self.limit :].tolist(), *([] if have_ids else [batch])]:
            table[each] = table.pop(each, 0) + 1
        drop_oldest(table, len(table) - self.limit)

    def to_stored(self) -> dict[str, Any]:
        found: dict[str, Any] = {"limit": self.limit}
        for (hashes, counts), table in zip(_STORED, (self.counts, self.named), strict=True):
            found[hashes] = pack_array(np.array([*table], float))
            found[counts] = pack_array(np.array([*table.values()], int))
        return found

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        none = np.zeros(0)  # files of 0.4 do not have those with ids
        pairs = [tuple(stored.get(name, none).tolist() for name in names) for names in _STORED]
        return cls(stored["limit"], *(dict(zip(*pair, strict=True)) for pair in pairs))


def _surprise(hashes: FloatArray) -> float:
    """New rows are equal to these with probability exp(-this) at most, if they are independent.

    That is the chance by the frequencies that favour these rows most: their own.
    """
    counts = np.unique(hashes, return_counts=True)[1]
    return float(counts @ np.log(hashes.size / counts))


def has_no_rows(batch: Any) -> bool:
    """Whether an array, a `TopK` or a list holds nothing."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return tuple(shape[:1]) == (0,)
    return isinstance(batch, Sized) and len(batch) == 0


def as_ids(ids: Any, n_rows: int | None = None) -> list[str]:
    """Checked ids, text or integers, as text; of so many rows if that is known."""
    array = np.atleast_1d(to_numpy(ids, "ids"))
    if array.ndim != 1 or (n_rows is not None and array.size != n_rows):
        rule = "1-D" if n_rows is None else f"1-D with one entry per row ({n_rows})"
        raise ValueError(f"`ids` must be {rule}; got shape {array.shape}.")
    found = array.tolist()
    wrong = [each for each in found if type(each) not in (str, int) or each == ""]
    if wrong:
        raise TypeError(
            f"`ids` must be text or integers; got {wrong[0]!r}. Give each prediction its own id."
        )
    return [str(each) for each in found]


def check_new_ids(ids: list[str], waiting: Container[str], labelled: Container[str]) -> None:
    """Raise if an id was used before, or comes twice."""
    check_distinct(ids)
    for each in ids:
        if each in waiting:
            raise ValueError(
                f"`ids` must be new; {each!r} waits for its label. Pass the label to "
                "`add_labels(ids, labels)`, and not the prediction again."
            )
        if each in labelled:
            raise ValueError(
                f"`ids` must be new; {each!r} was counted with its label before. Leave the "
                "row out, or give a new prediction a new id."
            )


def check_waiting_ids(
    ids: list[str], waiting: Container[str], labelled: Container[str], limit: int
) -> None:
    """Raise if an id does not wait for a label, or comes twice."""
    check_distinct(ids)
    for each in ids:
        if each in labelled:
            raise ValueError(
                f"`ids` must wait for a label; {each!r} has one already. Leave it out."
            )
        if each not in waiting:
            raise ValueError(
                f"`ids` must be those of predictions without labels; {each!r} is unknown. Pass "
                "`ids` with the predictions; if its row was one of more than "
                f"{limit:,} that waited, make the monitor with a larger `max_waiting`; "
                '`unknown="skip"` leaves such out.'
            )


def check_distinct(ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ValueError(f"`ids` must be different; got {twice!r} twice. Leave one of them out.")


def drop_oldest(held: dict[Any, Any], n: int) -> None:
    for key in list(islice(held, max(n, 0))):
        del held[key]
