"""What a monitor keeps of its stream: the reference of the fit, options, windows and tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import bin_index, check_count, sum_by
from hokical._core.groups import GroupCoding
from hokical._core.reading import are_known, as_partial_labels, pair_rows, to_numpy
from hokical._core.storage import pack_array, storable
from hokical.calibrators import Calibrator
from hokical.guarantees.bounds import check_chance, chi_square_tail, merge_cells
from hokical.guarantees.scores import middle_log_odds
from hokical.metrics.examples import as_examples
from hokical.monitoring.coverage import CoverageMonitor
from hokical.monitoring.e_process import EProcess, PartTests
from hokical.monitoring.rows import (
    Batch,
    LabelledRows,
    SeenRows,
    WaitingRows,
    as_ids,
    check_distinct,
    check_new_ids,
)

#: Probability that one of the intervals of fit-time gaps fails.
_DELTA = 0.05
#: Total variation distance of the confidences below which a shift is negligible.
_LEAST_DISTANCE = 0.1
#: The chi-square approximation needs about this many expected examples in a cell.
_LEAST_EXPECTED = 5.0


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
        return cls._add_up(rows.confidence, np.ones(rows.n_rows), rows.correct, n_bins)

    @classmethod
    def from_calibrator(cls, calibrator: Calibrator, n_bins: int) -> Self:
        """From the confidence of a calibrator on held-out examples, or on those of its fit."""
        table = calibrator.kept_.held_out_scores or calibrator.kept_.fit_confidences
        if table is None:
            raise ValueError(
                f"`reference` must keep a histogram of its confidence; this {calibrator.name!r} "
                "has none (weights that are not whole numbers, positions of maps, or a file before "
                "0.4). Use `CalibrationMonitor.from_validation(calibrator, logits, labels)`."
            )
        whole = table.whole
        confidence = 0.5 * (1.0 + np.tanh(0.5 * middle_log_odds(whole.count.size)))
        return cls._add_up(confidence, whole.count, whole.correct, n_bins)

    @classmethod
    def _add_up(cls, confidence: FloatArray, weight: Any, correct: Any, n_bins: int) -> Self:
        index = bin_index(confidence, n_bins)
        parts = (weight, correct, weight * confidence)
        return cls(*(sum_by(index, part, n_bins) for part in parts))

    def allowances(self, tolerance: float) -> FloatArray:
        """How far confidence may be off, (2, 1 + J): the tolerance, or what the fit cannot exclude.

        First over all examples (a normal interval for the mean of correct - confidence), then in
        each bin (Agresti and Coull's interval of the accuracy), simultaneously with 95 %. A bin
        without examples may have any gap.
        """
        n, n_all = self.weight, max(float(self.weight.sum()), 1.0)
        z = -NormalDist().inv_cdf(_DELTA / (2.0 * (1 + n.size)))
        right = (self.correct + 0.5 * z**2) / (n + z**2)
        reach = z * np.sqrt(right * (1.0 - right) / (n + z**2))
        says = self.confidence / np.maximum(n, 1.0)
        share = (self.correct + 2.0) / (n + 4.0)  # so that no bin has a variance of 0
        overall = float((self.correct - self.confidence).sum()) / n_all
        spread = z * math.sqrt(float((n * share * (1.0 - share)).sum())) / n_all
        over = np.append(spread - overall, np.where(n > 0, says - right + reach, 1.0))
        under = np.append(overall + spread, np.where(n > 0, right + reach - says, 1.0))
        return np.asarray(np.clip([over, under], tolerance, 1.0))


@dataclass(frozen=True)
class InputShift:
    """The window's confidences compared with the reference's, by bins.

    `p_value` (chi-square) is valid for a single look; `distance` is the total variation distance.
    `shifted`: the p-value is below delta and the distance 0.1 or more.
    """

    n: int
    distance: float
    p_value: float
    shifted: bool


def input_shift(counts: IntArray, reference: FloatArray, delta: float) -> InputShift:
    """Compare counts per bin, (J,), with the reference's weights per bin, (J,).

    >>> same = input_shift(np.array([10, 30, 60]), np.array([100.0, 300.0, 600.0]), 0.01)
    >>> same.p_value, same.shifted
    (1.0, False)
    >>> input_shift(np.array([60, 30, 10]), np.array([100.0, 300.0, 600.0]), 0.01).shifted
    True
    """
    table = np.array([counts, reference], dtype=np.float64)
    sizes = table.sum(axis=1)
    # Neighbouring bins are joined until both samples expect enough examples in each.
    group = merge_cells(table.sum(axis=0), _LEAST_EXPECTED * sizes.sum() / sizes.min())
    table = np.array([np.bincount(group, row, int(group.max()) + 1) for row in table])
    share = table / sizes[:, None]
    distance = 0.5 * float(np.abs(share[0] - share[1]).sum())
    p_value, freedom = 1.0, table.shape[1] - 1
    if freedom:
        expected = np.outer(sizes, table.sum(axis=0)) / sizes.sum()
        statistic = float(((table - expected) ** 2 / expected).sum())
        p_value = chi_square_tail(freedom, statistic) if math.isfinite(statistic) else 0.0
    shifted = p_value < delta and distance >= _LEAST_DISTANCE
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
            object.__setattr__(self, name, check_count(getattr(self, name), name=name))
        check_chance("delta", self.delta)
        for name in ("tolerance", "class_tolerance"):
            value = getattr(self, name)
            if isinstance(value, (bool, str)) or not 0.0 <= value < 1.0:
                raise ValueError(f"`{name}` must be at least 0 and below 1; got {value!r}.")
        if self.coverage is not None:
            check_chance("coverage", self.coverage)
        if self.n_classes is not None:
            check_count(self.n_classes, name="n_classes", least=2)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of groups in each column."""
        return () if self.groups is None else self.groups.sizes

    @property
    def group_names(self) -> list[str]:
        """The names of all groups, column after column."""
        coding = self.groups
        columns = () if coding is None else range(len(coding.columns))
        return [name for k in columns if coding for name in coding.full_names(k)]

    def group_numbers(self, groups: Any, n_rows: int) -> IntArray:
        """The numbers (n, columns) of the rows' groups among all groups; -1 if they are None."""
        if groups is None:
            return np.full((n_rows, len(self.group_sizes)), -1)
        if self.groups is None:
            raise ValueError(
                "`groups` must be None for this monitor, which was made without them. Give "
                "`groups` of the reference to `CalibrationMonitor`."
            )
        codes = self.groups.codes([groups] if np.isscalar(groups) else groups, n_rows)
        return np.asarray(codes + np.cumsum([0, *self.group_sizes[:-1]]))


@storable("monitor-counts")
@dataclass(eq=False)
class MonitorState:
    """Counts, windows and tests of one stream.

    `n` and `n_observed` count labelled rows and all predictions; `window` has the newest labelled
    rows, `inputs` the confidences of the newest predictions. `stamp` identifies the calibrator.
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
    n: int = 0
    n_observed: int = 0

    @classmethod
    def start(cls, options: MonitorOptions, reference: Reference | None) -> Self:
        """The state of a monitor that has seen nothing."""
        allowance = np.full((2, 1 + options.n_bins), options.tolerance)
        if reference is not None:
            allowance = reference.allowances(options.tolerance)
        tolerance, sizes = options.class_tolerance, options.group_sizes
        return cls(
            options,
            reference,
            EProcess.start(allowance, options.delta),
            LabelledRows.none(len(sizes)),
            np.zeros(0),
            PartTests(tolerance, options.delta / (options.n_classes or 1)),
            PartTests(tolerance, options.delta / max(sum(sizes), 1)),
            WaitingRows(options.max_waiting),
            SeenRows(options.max_waiting),
        )

    def count(self, batch: Batch, ids: Any, hashes: FloatArray | None) -> None:
        """Count checked rows; those without a label wait under their ids.

        Rows without ids are recognized by their `hashes`, also among those with ids.
        """
        keys = None if ids is None else as_ids(ids, len(batch.rows))
        if keys is not None:
            check_new_ids(keys, self.waiting.rows, self.waiting.labelled)
        if hashes is not None:
            self.seen.add(hashes, have_ids=keys is not None)
        if keys is not None:
            self.waiting.add(keys, batch)
        newest = np.concatenate([self.inputs, batch.rows.confidence])
        self.inputs = newest[-self.options.window :]
        self.n_observed += len(batch.rows)
        if batch.members is not None and self.sets is not None:
            self.sets.update(batch.members[batch.known, batch.truth[batch.known]])
        self._count_labelled(batch.rows.take(batch.known))

    def add_labels(
        self, ids: Any, labels: Any, class_names: Sequence[str], *, skip: bool = False
    ) -> None:
        """Count rows that wait under these ids, with their labels (n,), where these are known.

        With `skip`, ids under which none waits are left out.
        """
        pair_rows(ids, labels, None, None, ("ids", "labels"))
        keys = as_ids(ids)
        given = np.atleast_1d(to_numpy(labels, "labels"))
        if given.shape != (len(keys),):
            raise ValueError(
                f"`labels` must have one entry per row of `ids` ({len(keys)}); got {given.shape}."
            )
        check_distinct(keys)
        counts = are_known(given)
        if skip:
            counts &= np.array([each in self.waiting.rows for each in keys], bool)
        chosen = np.flatnonzero(counts)
        if not chosen.size:
            return
        keys, given = [keys[k] for k in chosen.tolist()], given[chosen]
        rows, of_logits, members = self.waiting.find(keys)
        n_classes, names = (self.options.n_classes or 2, class_names) if of_logits else (2, ())
        truth = as_partial_labels(given, len(keys), n_classes, names)
        if of_logits and self.sets is not None:
            covered = [label in own for label, own in zip(truth.tolist(), members, strict=True)]
            self.sets.update(covered)
        rows = replace(rows, correct=truth == (rows.predicted if of_logits else 1))
        self._count_labelled(rows)
        self.waiting.close(keys)

    def _count_labelled(self, rows: LabelledRows) -> None:
        """Add labelled rows, in order of arrival."""
        if not len(rows):
            return
        self.window = self.window.append(rows, self.options.window)
        bins = bin_index(rows.confidence, self.options.n_bins)
        self.test.add(rows.confidence, rows.correct, bins)
        self.classes.add(rows.predicted, rows)
        for column in rows.groups.T:
            self.groups.add(column, rows)
        self.n += len(rows)

    def to_stored(self) -> dict[str, Any]:
        return vars(self) | {"inputs": pack_array(self.inputs)}
