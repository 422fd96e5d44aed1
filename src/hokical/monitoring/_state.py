"""What a monitor keeps of its stream: options, exact sums and evidence, never examples."""

from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, check_count
from hokical._core.groups import GroupCoding
from hokical._core.storage import storable
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._binned_sums import BinnedSums
from hokical.metrics._examples import Examples
from hokical.monitoring._arrivals import Panes, Window
from hokical.monitoring._class_watch import ClassWatch
from hokical.monitoring._coverage import CoverageMonitor
from hokical.monitoring._drift import Alarm, Evidence, Reading
from hokical.monitoring._expected import SampledRows


@storable("monitor-options")
@dataclass(frozen=True)
class MonitorOptions:
    """How a monitor looks at its stream; monitors with equal options can be merged."""

    window: Window
    n_bins: int
    delta: float
    tolerance: float
    interval_delta: float
    min_labels: int
    model: str
    n_classes: int | None = None
    class_tolerance: float = 0.05
    coverage: float | None = None
    groups: GroupCoding | None = None

    def __post_init__(self) -> None:
        for name in ("n_bins", "min_labels"):
            object.__setattr__(self, name, check_count(getattr(self, name), name=name))
        check_chance("delta", self.delta)
        check_chance("interval_delta", self.interval_delta)
        for name in ("tolerance", "class_tolerance"):
            value = getattr(self, name)
            if isinstance(value, (bool, str)) or not 0.0 <= value < 1.0:
                raise ValueError(f"`{name}` must be at least 0 and below 1; got {value!r}.")
        if self.coverage is not None:
            check_chance("coverage", self.coverage)
        if self.n_classes is not None:
            check_count(self.n_classes, name="n_classes", least=2)
        if not isinstance(self.model, str):
            raise TypeError(f"`model` must be a name; got {self.model!r}.")


@storable("monitor-state")
@dataclass(eq=False)
class MonitorState:
    """Counts, windows and evidence of one stream, or (`merged`) a reading of several.

    `n` and `n_observed` count labelled examples and all predictions; `sums` are those since the
    start, `labelled` and `inputs` the windows; `time` is the newest timestamp. A pane of inputs
    counts predictions by bin, those unlike the fit, and those of which that is known. `batches` are
    digests of batches that were counted, `sets` watches prediction sets, `rows` are a sample of the
    window's rows, from which accuracy is expected.
    """

    options: MonitorOptions
    evidence: Evidence
    labelled: Panes[BinnedSums]
    inputs: Panes[IntArray]
    classes: ClassWatch
    n: int = 0
    n_observed: int = 0
    replicas: int = 1
    time: float | None = None
    sums: BinnedSums | None = None
    merged: Reading | None = None
    batches: list[str] = field(default_factory=list)
    sets: CoverageMonitor | None = None
    groups: ClassWatch | None = None
    rows: Panes[SampledRows] | None = None

    @classmethod
    def start(cls, options: MonitorOptions, allowance: FloatArray) -> Self:
        """The state of a monitor that has seen nothing."""
        evidence = Evidence.start(allowance, options.delta)
        window = options.window
        groups = None if options.groups is None else ClassWatch(Panes(window))
        panes = Panes[Any](window), Panes[Any](window), ClassWatch(Panes(window))
        return cls(options, evidence, *panes, groups=groups)

    @classmethod
    def merge(cls, states: list[Self]) -> Self:
        """A reading of several streams; the same, to the bit, in any order."""
        first, window = states[0], states[0].options.window
        sums = [state.sums for state in states if state.sums is not None]
        groups = [state.groups for state in states if state.groups is not None]
        return cls(
            first.options,
            Evidence.start(first.evidence.allowance, first.options.delta),
            reduce(Panes.merge, (state.labelled for state in states), Panes(window)),
            reduce(Panes.merge, (state.inputs for state in states), Panes(window)),
            ClassWatch.merge([state.classes for state in states], window),
            n=sum(state.n for state in states),
            n_observed=sum(state.n_observed for state in states),
            replicas=sum(state.replicas for state in states),
            time=max((state.time for state in states if state.time is not None), default=None),
            sums=reduce(add, sums) if sums else None,
            merged=reduce(add, (state.reading() for state in states)),
            sets=CoverageMonitor.merge([state.sets for state in states if state.sets is not None]),
            batches=sorted({batch for state in states for batch in state.batches}),
            groups=ClassWatch.merge(groups, window) if groups else None,
            rows=reduce(Panes.merge, (state.rows or Panes(window) for state in states)),
        )

    def reading(self) -> Reading:
        """The evidence now, of one stream or of all replicas."""
        return self.evidence.reading() if self.merged is None else self.merged

    def alarm(self) -> Alarm | None:
        """The alarm of this stream, which stays; or what all replicas together show now."""
        if self.merged is None:
            return self.evidence.alarm
        return self.merged.alarm_now(self.options.delta)

    def sums_since(self, alarm: Alarm) -> BinnedSums | None:
        """Sums of the window since the change that an alarm is about; of all if unknown."""
        window, since = self.options.window, None
        if window.timed and alarm.since_time is not None:
            since = int(alarm.since_time // window.pane)
        elif not window.timed and self.merged is None and alarm.since is not None:
            # Merged panes are counted from the newest.
            since = (alarm.since - 1) // int(window.pane)
        recent = None if since is None else self.labelled.total(since)
        return self.labelled.total() if recent is None else recent

    def count_inputs(
        self, confidence: FloatArray, times: FloatArray | None, known: BoolArray | None
    ) -> None:
        """Add predictions (n,), labelled or not, and whether they are like the fit, if known."""
        n, n_bins = confidence.shape[0], self.options.n_bins
        panes = self.options.window.panes_of(self.n_observed, n, times)
        bins = bin_index(confidence, n_bins)

        def count_rows(rows: BoolArray) -> IntArray:
            asked = np.zeros(0, np.bool_) if known is None else known[rows]
            others = np.array([np.count_nonzero(~asked), asked.size])
            return np.concatenate([np.bincount(bins[rows], minlength=n_bins), others])

        self.inputs.add(panes, count_rows)
        self.n_observed += n
        self._note_time(times)

    def sample_rows(self, found: SampledRows, times: FloatArray | None) -> None:
        """Keep some of the predictions that are about to be counted."""
        panes = self.options.window.panes_of(self.n_observed, found.key.size, times)
        self.rows = self.rows or Panes(self.options.window)
        self.rows.add(panes, found.take)

    def count_labelled(
        self,
        examples: Examples,
        times: FloatArray | None,
        predicted: IntArray | None,
        groups: IntArray | None = None,
    ) -> None:
        """Add labelled examples (n,), in order of arrival, with what is known of them.

        That is `predicted` classes (n,), and the codes (n, columns) of their groups.
        """
        confidence, correct = examples.confidence, examples.correct
        n_bins = self.options.n_bins

        def sum_rows(rows: BoolArray | Any) -> BinnedSums:
            return BinnedSums.from_examples(confidence[rows], correct[rows], n_bins=n_bins)

        panes = self.options.window.panes_of(self.n, examples.n_rows, times)
        self.labelled.add(panes, sum_rows)
        sums = sum_rows(slice(None))
        self.sums = sums if self.sums is None else self.sums + sums
        self.evidence.add(confidence, correct, bin_index(confidence, n_bins), times)
        if predicted is not None:
            new = partial(Evidence.start, *self.class_test())
            self.classes.add(predicted, examples, times, panes, new)
        if groups is not None and self.groups is not None:
            new = partial(Evidence.start, *self.group_test())
            for column in groups.T + self._first_codes():
                self.groups.add(column, examples, times, panes, new)
        self.n += examples.n_rows
        self._note_time(times)

    def class_test(self) -> tuple[FloatArray, float]:
        """The allowance (2, 1) and the delta of the test of a single class."""
        options = self.options
        return np.full((2, 1), options.class_tolerance), options.delta / (options.n_classes or 1)

    def group_test(self) -> tuple[FloatArray, float]:
        """The same of the test of a single group; those of all columns share the delta."""
        coding = self.options.groups
        n_groups = 1 if coding is None else sum(coding.sizes)
        return np.full((2, 1), self.options.class_tolerance), self.options.delta / n_groups

    def group_names(self) -> tuple[str, ...]:
        """The names of all groups, column after column."""
        coding = self.options.groups
        if coding is None:
            return ()
        columns = range(len(coding.columns))
        return tuple(name for k in columns for name in coding.full_names(k))

    def _first_codes(self) -> IntArray:
        """The number (columns, 1) of each column's first group among all."""
        assert self.options.groups is not None
        return np.cumsum([0, *self.options.groups.sizes[:-1]])[:, None]

    def _note_time(self, times: FloatArray | None) -> None:
        if times is not None:
            newest = float(times.max())
            self.time = newest if self.time is None else max(self.time, newest)
