"""What a monitor keeps of its stream: rows, the reference of the fit, options, and
tests.

Rows are labelled, wait for their label by id, or were counted before. Memory is
bounded: of each kind the newest are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.checks import (
    Checked,
    Count,
    Within,
    as_number,
    bin_index,
    check_count,
    show,
    sum_by,
)
from hokical._core.groups import GroupCoding
from hokical._core.reading import check_length, to_numpy
from hokical._core.storage import pack_array, storable
from hokical.guarantees.bounds import check_chance, chi_square_tail, merge_cells
from hokical.guarantees.fingerprints import number_hashes
from hokical.metrics.levels import as_examples
from hokical.monitoring.e_process import Alarm, CoverageMonitor, EProcess

#: Classes or groups in a status.
_MAX_SHOWN = 20
#: Probability that one of the intervals of fit-time gaps fails.
_DELTA = 0.05
#: Total variation distance of the confidences below which a shift is negligible.
_MIN_DISTANCE = 0.1
#: The chi-square approximation needs about this many expected examples in a cell.
_MIN_EXPECTED = 5.0
#: Rows whose repetition has a larger chance than exp(-20) can be equal to earlier ones
#: by chance.
_MIN_SURPRISE = 20.0
#: How hashes and counts of rows without ids, and of those with ids, are called in
#: files.
_STORED = (("hashes", "counts"), ("named_hashes", "named_counts"))
#: Minimum share of distinct rows for equal rows to be taken for the same row.
_DISTINCT = 0.95


@storable("monitor-labelled")
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Confidence, whether it was right and the predicted class, (n,) each, and group
    codes.

    The class is -1 where it is not known, and so are `groups` (n, columns).
    """

    confidence: FloatArray
    correct: BoolArray
    predicted: IntArray
    groups: IntArray

    def __post_init__(self) -> None:
        if len({len(column) for column in vars(self).values()}) > 1:
            raise ValueError("the arrays of labelled rows must have one length.")
        if not ((self.confidence >= 0.0) & (self.confidence <= 1.0)).all():
            raise ValueError("`confidence` must lie in [0, 1].")

    @classmethod
    def empty(cls, n_columns: int) -> Self:
        """No rows, with `n_columns` columns of groups."""
        return cls(
            confidence=np.zeros(0),
            correct=np.zeros(0, np.bool_),
            predicted=np.zeros(0, int),
            groups=np.zeros((0, n_columns), int),
        )

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the rows, by a mask, a slice or by number."""
        return type(self)(**{name: column[rows] for name, column in vars(self).items()})

    def __len__(self) -> int:
        return len(self.confidence)

    def to_stored(self) -> dict[str, Any]:
        return {name: pack_array(column) for name, column in vars(self).items()}

    @property
    def brier(self) -> float:
        """The mean squared difference between confidence and right or wrong."""
        return float(((self.correct - self.confidence) ** 2).mean())

    def shares(self, bin_: int | None = None, n_bins: int = 1) -> tuple[float, float]:
        """Mean confidence and accuracy, of a bin or of all rows; NaN where there are
        none.
        """
        rows = self
        if bin_ is not None:
            rows = self.take(bin_index(self.confidence, n_bins) == bin_)
        if not len(rows):
            return np.nan, np.nan
        return float(rows.confidence.mean()), float(rows.correct.mean())


#: A prediction without a label: confidence, class (-1: unknown), groups, whether its
#: label will be a class (or else whether it was right), the classes of its prediction
#: set, if sets are tested.
WaitingRow = tuple[float, int, tuple[int, ...], bool, tuple[int, ...]]


@storable("monitor-waiting")
@dataclass(eq=False)
class WaitingRows:
    """Predictions by id, those that wait for a label, and ids that were labelled.

    `dropped` counts rows that were given up because more than `limit` waited.
    """

    limit: int
    rows: dict[str, WaitingRow] = field(default_factory=dict)
    labelled: dict[str, None] = field(default_factory=dict)
    dropped: Count = 0

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=0)
        are_known = isinstance(self.rows, dict) and isinstance(self.labelled, dict)
        if not are_known or not all(map(_is_waiting_row, self.rows.values())):
            raise ValueError("`rows` must hold predictions that wait for labels.")


def _is_waiting_row(row: object) -> bool:
    """Whether it is a `WaitingRow`; files may lie."""
    if not isinstance(row, tuple) or [*map(type, row)] != [
        float,
        int,
        tuple,
        bool,
        tuple,
    ]:
        return False
    confidence, _, groups, _, members = row
    return 0.0 <= confidence <= 1.0 and {*map(type, groups + members)} <= {int}


@storable("monitor-seen")
@dataclass(eq=False)
class SeenRows:
    """How often rows were counted, by a hash of what they hold, newest last.

    Rows with ids, `named`, are told apart by these; without them, a row counts once
    either way.
    """

    limit: int
    counts: dict[float, int] = field(default_factory=dict)
    named: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("limit", self.limit, least=0)

    def add(self, hashes: FloatArray, *, have_ids: bool = False) -> None:
        """Remember rows and their batch; raise if it, or most of its rows, were
        counted before.
        """
        batch = float(number_hashes(hashes[None])[0])  # for rows of few distinct values
        tables = [self.counts] if have_ids else [self.counts, self.named]
        repeated = hashes if any(batch in table for table in tables) else hashes[:0]
        distinct = [
            table for table in tables if len(table) >= _DISTINCT * sum(table.values())
        ]
        if not repeated.size:
            repeated = hashes[
                [any(row in table for table in distinct) for row in hashes.tolist()]
            ]
        # New rows are equal to these with probability exp(-surprise) at most, if they
        # are independent: by the frequencies that favor these rows most, their own.
        counts = np.unique(repeated, return_counts=True)[1]
        surprise = float(counts @ np.log(repeated.size / counts))
        if repeated.size > hashes.size / 2 and surprise > _MIN_SURPRISE:
            raise ValueError(
                f"predictions must be counted once; {repeated.size:,} of these "
                f"{hashes.size:,} rows were counted before. If only their labels are "
                "new, pass `ids` with the predictions and then `add_labels(ids, "
                "labels)`; if they are to count again, `again=True`."
            )
        table = self.named if have_ids else self.counts
        # Rows with ids leave no trace of how they were cut into batches.
        newest = hashes[-self.limit :].tolist()
        for row in newest if have_ids else [*newest, batch]:
            table[row] = table.pop(row, 0) + 1
        drop_oldest(table, self.limit)

    def to_stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"limit": self.limit}
        for (hashes, counts), table in zip(
            _STORED, (self.counts, self.named), strict=True
        ):
            stored[hashes] = pack_array(np.array([*table], float))
            stored[counts] = pack_array(np.array([*table.values()], int))
        return stored

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        pairs = [tuple(stored[name].tolist() for name in names) for names in _STORED]
        return cls(stored["limit"], *(dict(zip(*pair, strict=True)) for pair in pairs))


def as_ids(ids: Any, n_rows: int | None = None) -> list[str]:
    """Checked ids, text or integers, as text; one for each of `n_rows`, if that is known."""
    array = np.atleast_1d(to_numpy(ids, "ids"))
    check_length(array, array.size if n_rows is None else n_rows, "ids")
    keys = array.tolist()
    wrong = [key for key in keys if type(key) not in (str, int) or key == ""]
    if wrong:
        raise TypeError(
            f"`ids` must be text or integers; got {wrong[0]!r}. Give each prediction its "
            "own id."
        )
    return [str(key) for key in keys]


def refuse_repeated(ids: list[str]) -> list[str]:
    """The ids; raise if one comes twice."""
    if len(set(ids)) < len(ids):
        twice = next(key for key in ids if ids.count(key) > 1)
        raise ValueError(
            f"`ids` must be different; got {twice!r} twice. Leave one of them out."
        )
    return ids


def check_ids(
    ids: list[str], held: Any, limit: int | None = None, beside: str = ""
) -> None:
    """Raise if one of different ids was used before, in `held.rows` or `held.labelled`.

    With a `limit` of rows that may wait, raise if one does not wait for a label;
    `beside` is one more remedy.
    """
    for key in ids:
        waits = key in held.rows
        has_label = key in held.labelled
        if limit is None and waits:
            why = (
                f"must be new; {key!r} waits for its label. Pass the label to "
                "`add_labels(ids, labels)`, and not the prediction again."
            )
        elif limit is None and has_label:
            why = (
                f"must be new; {key!r} was counted with its label before. Leave the row "
                "out, or give a new prediction a new id."
            )
        elif has_label:
            why = f"must wait for a label; {key!r} has one already. Leave it out."
        elif limit is not None and not waits:
            why = (
                f"must be those of predictions without labels; {key!r} is unknown. Pass "
                "`ids` with the predictions; if its row was one of more than "
                f"{limit:,} that waited, make a new monitor with a larger "
                f"`max_waiting`{beside}."
            )
        else:
            continue
        raise ValueError(f"`ids` {why}")


def close_ids(ids: list[str], held: Any, limit: int) -> None:
    """Note in `held.labelled` that these ids have been labelled; the newest `limit`
    are kept.
    """
    for key in ids:
        held.rows.pop(key, None)
    held.labelled.update(dict.fromkeys(ids))
    drop_oldest(held.labelled, limit)


def drop_oldest(held: dict[Any, Any], limit: int) -> int:
    """Keep the newest `limit` entries; return how many were dropped."""
    surplus = max(0, len(held) - limit)
    for key in list(islice(held, surplus)):
        del held[key]
    return surplus


@dataclass(frozen=True)
class PartStatus:
    """Rows of the window with one predicted label, or of one group, and their test.

    `mean_confidence` and `accuracy` are NaN if there are no rows. An alarm stays; its
    `since` and `n` count rows of this part. `name` is that of the class or group, or
    its number.
    """

    label: int
    n: int
    mean_confidence: float
    accuracy: float
    log_e: float
    alarm: Alarm | None
    name: str = ""


@storable("monitor-parts")
@dataclass(eq=False)
class PartTests:
    """The test of each part by its number, as text; `tolerance` and `delta` are
    those of each.
    """

    tolerance: float
    delta: float
    tests: dict[str, EProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_chance("delta", self.delta)
        Within(0.0, 1.0).check("tolerance", self.tolerance, {})

    def add(self, parts: IntArray, rows: LabelledRows) -> None:
        """Add labelled rows of the parts (n,), -1 where they are not known."""
        order = np.argsort(parts, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
            if members.size and parts[members[0]] >= 0:
                number = str(parts[members[0]])
                if number not in self.tests:
                    allowance = np.full((2, 1), self.tolerance)
                    self.tests[number] = EProcess.start(allowance, self.delta)
                self.tests[number].add(rows.confidence[members], rows.correct[members])

    def table(
        self, parts: IntArray, window: LabelledRows, names: Sequence[str]
    ) -> tuple[PartStatus, ...]:
        """The parts to show: alarms first, then by evidence; `parts` (n, columns) of
        the window.
        """
        table = []
        for number, test in self.tests.items():
            label = int(number)
            rows = window.take((parts == label).any(axis=1))
            confidence, accuracy = rows.shares()
            status = PartStatus(
                label=label,
                n=len(rows),
                mean_confidence=confidence,
                accuracy=accuracy,
                log_e=test.log_e,
                alarm=test.alarm,
                name=names[label] if label < len(names) else number,
            )
            table.append(status)
        table.sort(key=lambda part: (part.alarm is None, -part.log_e, part.label))
        return tuple(table[:_MAX_SHOWN])


@storable("monitor-reference")
@dataclass(frozen=True, eq=False)
class Reference:
    """Sums over the reference examples in each bin of confidence, (J,) float64 each."""

    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray

    @classmethod
    def from_examples(cls, confidence: Any, correct: Any, n_bins: int) -> Self:
        """From `confidence` (n,) in [0, 1] and `correct` (n,), boolean."""
        rows = as_examples(confidence, correct)
        return cls.from_counts(
            rows.confidence, np.ones(rows.n_rows), rows.correct, n_bins
        )

    @classmethod
    def from_counts(
        cls, confidence: FloatArray, weight: Any, correct: Any, n_bins: int
    ) -> Self:
        """From how many examples have a confidence (n,), and how many of them are
        correct.
        """
        index = bin_index(confidence, n_bins)
        return cls(
            weight=sum_by(index, weight, n_bins),
            correct=sum_by(index, correct, n_bins),
            confidence=sum_by(index, weight * confidence, n_bins),
        )

    def allowances(self, tolerance: float) -> FloatArray:
        """How far confidence may be off, (2, 1 + J): the tolerance, or what the fit
        cannot exclude.

        First over all examples (a normal interval for the mean of correct -
        confidence), then in each bin (Agresti and Coull's interval of the accuracy),
        simultaneously with 95 %. A bin without examples may have any gap.
        """
        n = self.weight
        n_all = max(float(self.weight.sum()), 1.0)
        z = -NormalDist().inv_cdf(_DELTA / (2.0 * (1 + n.size)))
        right = (self.correct + 0.5 * z**2) / (n + z**2)
        reach = z * np.sqrt(right * (1.0 - right) / (n + z**2))
        mean_confidence = self.confidence / np.maximum(n, 1.0)
        share = (self.correct + 2.0) / (n + 4.0)  # so that no bin has a variance of 0
        overall = float((self.correct - self.confidence).sum()) / n_all
        spread = z * math.sqrt(float((n * share * (1.0 - share)).sum())) / n_all
        over = np.append(
            spread - overall, np.where(n > 0, mean_confidence - right + reach, 1.0)
        )
        under = np.append(
            overall + spread, np.where(n > 0, right + reach - mean_confidence, 1.0)
        )
        return np.asarray(np.clip([over, under], tolerance, 1.0))


@dataclass(frozen=True)
class InputShift:
    """The window's confidences compared with the reference's, by bins.

    `p_value` (chi-square) is valid for a single look; `distance` is the total variation
    distance. `shifted`: the p-value is below delta and the distance 0.1 or more.
    """

    n: int
    distance: float
    p_value: float
    shifted: bool


def input_shift(counts: IntArray, reference: FloatArray, delta: float) -> InputShift:
    """Compare counts per bin, (J,), with the reference's weights per bin, (J,).

    >>> same = input_shift(
    ...     np.array([10, 30, 60]), np.array([100.0, 300.0, 600.0]), 0.01
    ... )
    >>> same.p_value, same.shifted
    (1.0, False)
    >>> input_shift(
    ...     np.array([60, 30, 10]), np.array([100.0, 300.0, 600.0]), 0.01
    ... ).shifted
    True
    """
    table = np.array([counts, reference], dtype=np.float64)
    sizes = table.sum(axis=1)
    # Neighbouring bins are joined until both samples expect enough examples in each.
    group = merge_cells(table.sum(axis=0), _MIN_EXPECTED * sizes.sum() / sizes.min())
    table = np.array([np.bincount(group, row, int(group.max()) + 1) for row in table])
    share = table / sizes[:, None]
    distance = 0.5 * float(np.abs(share[0] - share[1]).sum())
    p_value = 1.0
    freedom = table.shape[1] - 1
    if freedom:
        expected = np.outer(sizes, table.sum(axis=0)) / sizes.sum()
        statistic = float(((table - expected) ** 2 / expected).sum())
        p_value = (
            chi_square_tail(freedom, statistic) if math.isfinite(statistic) else 0.0
        )
    shifted = p_value < delta and distance >= _MIN_DISTANCE
    return InputShift(int(counts.sum()), distance, p_value, shifted)


@storable("monitor-settings")
@dataclass(frozen=True)
class MonitorOptions:
    """The options of a `CalibrationMonitor`, checked."""

    window: int
    n_bins: int
    delta: float
    tolerance: float
    min_labels: int
    n_classes: int | None
    class_tolerance: float
    coverage: float | None
    groups: GroupCoding | None
    max_waiting: int

    def __post_init__(self) -> None:
        for name in ("window", "n_bins", "min_labels", "max_waiting"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        check_chance("delta", self.delta)
        for name in ("tolerance", "class_tolerance"):
            value = getattr(self, name)
            if not 0.0 <= as_number(value) < 1.0:
                raise ValueError(
                    f"`{name}` must be at least 0 and below 1; got {show(value)}."
                )
        if self.coverage is not None:
            check_chance("coverage", self.coverage)
        if self.n_classes is not None:
            check_count("n_classes", self.n_classes, least=2)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of groups in each column."""
        return () if self.groups is None else self.groups.sizes

    def group_numbers(self, groups: Any, n_rows: int) -> IntArray:
        """The numbers (n, columns) of the rows' groups among all groups; -1 if they
        are None.
        """
        if groups is None:
            return np.full((n_rows, len(self.group_sizes)), -1)
        if self.groups is None:
            raise ValueError(
                "`groups` must be None for this monitor, which was made without them. "
                "Give `groups` of the reference to the monitor."
            )
        codes = self.groups.codes([groups] if np.isscalar(groups) else groups, n_rows)
        return np.asarray(codes + np.cumsum([0, *self.group_sizes[:-1]]))


@storable("monitor-counts")
@dataclass(eq=False)
class MonitorState(Checked):
    """Counts, windows and tests of one stream.

    `n` and `n_observed` count labelled rows and all predictions; `window` has the
    newest labelled rows, `inputs` the confidences of the newest predictions. `stamp`
    identifies the calibrator.
    """

    options: MonitorOptions
    reference: Reference | None
    test: EProcess
    window: LabelledRows
    inputs: FloatArray
    classes: PartTests
    groups: PartTests
    waiting: WaitingRows
    seen: SeenRows
    sets: CoverageMonitor | None = None
    stamp: str | None = None
    n: Count = 0
    n_observed: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        n_bins = self.options.n_bins
        if self.test.allowance.shape[1] != 1 + n_bins:
            raise ValueError(f"`test` must have {n_bins} bins, as `options` say.")
        if self.reference is not None and self.reference.weight.shape != (n_bins,):
            raise ValueError(f"`reference` must have {n_bins} bins, as `options` say.")
        n_columns = len(self.options.group_sizes)
        for _, _, groups, _, _ in self.waiting.rows.values():
            if len(groups) != n_columns:
                raise ValueError(
                    f"`rows` that wait must have {n_columns} columns of groups; got "
                    f"{len(groups)}."
                )

    def count(
        self,
        rows: LabelledRows,
        truth: IntArray,
        ids: Any,
        hashes: FloatArray | None,
        members: AnyArray | None = None,
        *,
        of_logits: bool = False,
    ) -> None:
        """Count checked rows with the true classes `truth` (n,); those with -1 wait for
        a label.

        Of rows that are not `of_logits`, the class is 1 if a confidence was right and 0
        otherwise. `members` (n, classes) are their prediction sets, where these are
        tested. Rows without ids are recognized by their `hashes`, also among those with
        ids.
        """
        has_label = truth >= 0
        keys = None if ids is None else as_ids(ids, len(rows))
        if keys is not None:
            check_ids(refuse_repeated(keys), self.waiting)
        if hashes is not None:
            self.seen.add(hashes, have_ids=keys is not None)
        if keys is not None:
            self._keep_waiting(rows, ~has_label, keys, members, of_logits)
            labelled = [keys[k] for k in np.flatnonzero(has_label).tolist()]
            close_ids(labelled, self.waiting, self.waiting.limit)
        newest = np.concatenate([self.inputs, rows.confidence])
        self.inputs = newest[-self.options.window :]
        self.n_observed += len(rows)
        if members is not None and self.sets is not None:
            self.sets.update(members[has_label, truth[has_label]])
        self.count_labelled(rows.take(has_label))

    def _keep_waiting(
        self,
        rows: LabelledRows,
        waits: BoolArray,
        keys: list[str],
        members: AnyArray | None,
        of_logits: bool,
    ) -> None:
        """Keep the rows that wait for a label, by id."""
        waiting = self.waiting
        for k in np.flatnonzero(waits).tolist():
            classes: tuple[int, ...] = ()
            if members is not None:
                classes = tuple(np.flatnonzero(members[k]).tolist())
            waiting.rows[keys[k]] = (
                float(rows.confidence[k]),
                int(rows.predicted[k]),
                tuple(rows.groups[k].tolist()),
                of_logits,
                classes,
            )
        waiting.dropped += drop_oldest(waiting.rows, waiting.limit)

    def count_labelled(self, rows: LabelledRows) -> None:
        """Add labelled rows, in order of arrival."""
        if not len(rows):
            return
        size = self.options.window
        pairs = zip(vars(self.window).values(), vars(rows).values(), strict=True)
        self.window = LabelledRows(*(np.concatenate(pair)[-size:] for pair in pairs))
        bins = bin_index(rows.confidence, self.options.n_bins)
        self.test.add(rows.confidence, rows.correct, bins)
        self.classes.add(rows.predicted, rows)
        for column in rows.groups.T:
            self.groups.add(column, rows)
        self.n += len(rows)

    def to_stored(self) -> dict[str, Any]:
        return vars(self) | {"inputs": pack_array(self.inputs)}
