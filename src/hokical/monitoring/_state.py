"""What a monitor keeps of its stream: options, windows and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, check_count
from hokical._core.groups import GroupCoding
from hokical._core.labels import as_labels
from hokical._core.storage import pack_array, storable
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import check_chance
from hokical.monitoring._coverage import CoverageMonitor
from hokical.monitoring._e_process import EProcess, PartTests
from hokical.monitoring._reference import Reference
from hokical.monitoring._rows import Batch, LabelledRows, SeenRows, WaitingRows, as_ids


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

        Rows without ids are recognized by their `hashes`.
        """
        if ids is not None:
            self.waiting.add(as_ids(ids, len(batch.rows)), batch)
        elif hashes is not None:
            self.seen.add(hashes)
        newest = np.concatenate([self.inputs, batch.rows.confidence])
        self.inputs = newest[-self.options.window :]
        self.n_observed += len(batch.rows)
        if batch.members is not None and self.sets is not None:
            self.sets.update(batch.members[batch.known, batch.truth[batch.known]])
        self._count_labelled(batch.rows.take(batch.known))

    def add_labels(self, ids: Any, labels: Any, class_names: Sequence[str]) -> None:
        """Count rows that wait under these ids, with their labels (n,)."""
        keys = as_ids(ids)
        if not keys:
            return
        rows, of_logits, members = self.waiting.find(keys)
        if of_logits:
            n_classes = self.options.n_classes or 2
            truth = as_labels(labels, len(keys), n_classes, classes=class_names)
            if self.sets is not None:
                covered = [label in own for label, own in zip(truth.tolist(), members, strict=True)]
                self.sets.update(covered)
            rows = replace(rows, correct=rows.predicted == truth)
        else:
            right = as_labels(np.atleast_1d(labels), len(keys), 2, name="labels")
            rows = replace(rows, correct=right == 1)
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
