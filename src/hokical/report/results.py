"""What `evaluate` and `compare` return: as data, in words, as tables, a plot and a
report.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hokical._core.arrays import FloatArray
from hokical._core.checks import check_flag, show
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import StoredEstimator
from hokical.metrics.groups import GroupTable
from hokical.metrics.levels import Levels
from hokical.metrics.risk_models import EVENT_MAIN, EVENT_METRICS, BinarySummary
from hokical.metrics.summaries import METRICS, Estimate, SetSummary, Summary
from hokical.plots import EventPicture, draw_estimates, reliability
from hokical.report import headline, output, page
from hokical.report.output import Cell, TextCells
from hokical.report.tracking import ReportOutput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What words, tables and plots are of.
Of = Literal["event", "label"]
#: What predictions are made of.
DataKind = Literal["logits", "confidences", "scores"]
#: What a table has of a difference to the subject.
_DIFFERENCE = ("against", "metric", "value", "low", "high", "p_value", "verdict")


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """A data set: its size, its name in reports, the kind of its scores, and its
    clusters if any.
    """

    n_rows: int
    n_classes: int
    name: str | None = None
    kind: DataKind = "logits"
    n_clusters: int | None = None

    @property
    def size(self) -> str:
        """The number of examples, in words."""
        if self.n_clusters is None:
            return f"{self.n_rows:,} examples"
        return f"{self.n_rows:,} examples of {self.n_clusters:,} clusters"

    @property
    def description(self) -> str:
        """Size and kind, in words."""
        n_rows = f"{self.n_rows:,}"
        n_classes = self.n_classes
        if self.kind == "scores":
            return (
                f"{n_rows} examples with {n_classes} labels, each a prediction of its "
                "own"
            )
        if self.kind == "confidences":
            return f"{n_rows} confidences"
        return f"{n_rows} examples of {n_classes} classes"

    @property
    def named_description(self) -> str:
        """The description, after the name if there is one."""
        if self.name is None:
            return self.description
        return f"{self.name}: {self.description}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation(ReportOutput):
    """One method on one data set; `hokical.evaluate` makes it.

    `summary` has the metrics with their intervals and the bounds on the true
    calibration error; `evaluation["ece"]` is `evaluation.summary["ece"]`. `data`
    describes the rows. `before` is the evaluation of the uncalibrated predictions on
    the same rows, None if this is it. `classes` and `groups` say which predicted labels
    and which groups are miscalibrated, `sets` how prediction sets do. `binary`, of two
    classes, is the summary of the probability of the event, which then comes first in
    all that is shown. `levels` counts right and wrong rows by confidence. `row_scores`
    (n,) are the scores whose mean is a metric, `weight` (n,) the rows' weights.
    `fit_seconds` is None if the calibrator came fitted. `is_uncalibrated` says whether
    the predictions are those before any calibration, whatever their `name`.

    `print(evaluation)` shows the headline and a table, `evaluation.plot()` a
    reliability diagram, of two classes the calibration curve of the event;
    `evaluation.to_html(path)` writes a report, `to_csv`, `to_latex` and `to_markdown`
    tables, `to_json` all numbers, before and after calibration. `log_to_mlflow` and
    `log_to_wandb` store the report with an experiment.
    """

    name: str
    calibrator: StoredEstimator | None
    summary: Summary
    levels: Levels
    data: DataFacts
    before: Evaluation | None = None
    classes: GroupTable | None = None
    groups: GroupTable | None = None
    sets: SetSummary | None = None
    row_scores: dict[str, FloatArray] = field(default_factory=dict)
    weight: FloatArray | None = None
    fit_seconds: float | None = None
    binary: BinarySummary | None = None
    folds: int | None = None
    is_uncalibrated: bool = False

    def __getitem__(self, name: str) -> Estimate:
        return self.summary[name]

    def score(self, name: str) -> float:
        """The value of one metric."""
        return self.summary[name].value

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.summary.n

    @property
    def stages(self) -> tuple[Evaluation, ...]:
        """Before and after calibration; this alone if there is no before."""
        return (self,) if self.before is None else (self.before, self)

    @property
    def title(self) -> str:
        """The method in full words, without what its title has in brackets; "" if it
        has none.
        """
        if self.calibrator is None:
            return ""
        return str(self.calibrator.method.title).split(" (")[0]

    @property
    def label(self) -> str:
        """The method in full words, its name in brackets."""
        if not self.title or self.title in self.name:
            return self.name
        return f"{self.title} ({self.name})"

    @property
    def level(self) -> str:
        """What intervals are called: 95% interval."""
        return f"{1.0 - self.summary.options.delta:.0%} interval"

    @property
    def may_change_labels(self) -> bool:
        """Whether the method can make another class the most likely one."""
        return (
            isinstance(self.calibrator, Calibrator)
            and not self.calibrator.rule_.preserves_labels
        )

    @property
    def converged(self) -> bool:
        """Whether the fit converged; True for methods without iterations."""
        calibrator = self.calibrator
        return not isinstance(calibrator, StoredEstimator) or calibrator.has_converged

    @property
    def class_warning(self) -> str | None:
        """One line if the average hides a predicted label that is miscalibrated,
        else None.
        """
        return headline.class_warning(self)

    @property
    def label_change(self) -> str | None:
        """The share of right labels, if the method may change labels."""
        if not self.may_change_labels:
            return None
        change = f"{self.score('accuracy'):.2%} of the test labels are right"
        if self.before is not None:
            change += f" instead of {self.before.score('accuracy'):.2%}"
        return f"May change labels: with this method {change}."

    @property
    def notes(self) -> list[str]:
        """Remarks on the method: it may change labels, did not converge, or hides a
        class.
        """
        if self.label_change is None:
            return self.problems
        return [self.label_change, *self.problems]

    @property
    def problems(self) -> list[str]:
        """The notes that ask for something to be done."""
        problems = [] if self.converged else ["The fit did not converge."]
        if self.class_warning is not None:
            problems.append(f"Warning: {self.class_warning}")
        problems += [
            f"The {METRICS[name].full_title} has no interval: {estimate.reason}."
            for name, estimate in self.summary.estimates.items()
            if math.isinf(estimate.value)
        ]
        return problems

    def missing_intervals(self, of: Of) -> list[str]:
        """Why metrics have no interval, a line for each; before calibration too."""
        event = of == "event"
        metrics = EVENT_METRICS if event else METRICS
        methods: dict[str, list[str]] = {}
        for stage in self.stages:
            for name, estimate in stage.estimates(event).items():
                if estimate.reason:
                    title = metrics[name].full_title
                    line = f"{title} has no interval{{}}: {estimate.reason}."
                    methods.setdefault(line, []).append(stage.name)
        return [
            line.format("" if len(names) == len(self.stages) else f" ({names[0]})")
            for line, names in methods.items()
        ]

    @property
    def verdict(self) -> str:
        """One sentence: what the model said and how often it was right; of an event
        O:E.
        """
        return self.words()[0]

    @property
    def finding(self) -> str:
        """Where the model was most wrong about itself, for readers new to
        calibration.
        """
        if self.binary is None:
            return headline.label_finding(self)
        return headline.event_finding(self)

    @property
    def details(self) -> str:
        """Log loss and calibration error; of an event, what is known of its
        probability.
        """
        return self.words()[1]

    @property
    def headline(self) -> str:
        """What calibration changed, in words, with a guarantee."""
        return " ".join(self.words())

    def words(self, of: Of = "event", *, bound: bool = True) -> tuple[str, str]:
        """The verdict and the details: of the event if there is one, or of the
        predicted label.

        A `bound` on the true calibration error is part of the latter.
        """
        of_event = self.binary is not None and of == "event"
        if of_event:
            verdict = headline.event_verdict(self)
            details = headline.event_details(self)
        else:
            verdict = headline.label_verdict(self)
            details = headline.label_details(self, bound=bound)
        if self.folds is not None and (of_event or self.binary is None):
            details += (
                f" Cross-fitted in {self.folds} folds: intervals are conditional on "
                "these fits, and do not allow for how they vary."
            )
        return verdict, details

    def plot(
        self, ax: Any = None, *, n_bins: int = 15, of: Of | None = None, **style: Any
    ) -> Any:
        """The calibration curve of the event, or else the reliability diagram of the
        label.

        On a matplotlib Axes; `style` is that of its line or its bars. `of` chooses for
        two classes.
        """
        delta = self.summary.options.delta
        if self.binary is not None and of != "label":
            return EventPicture.from_summary(self.binary).draw_curve(ax, delta, **style)
        return reliability(self.levels, None, n_bins=n_bins, delta=delta).draw(
            ax, **style
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: the methods before and after, and the headline."""
        return {
            "headline": self.headline,
            "finding": self.finding,
            "methods": [stage.method_dict() for stage in self.stages],
            "data": asdict(self.data),
        }

    def method_dict(self) -> dict[str, Any]:
        """The numbers of this method alone."""
        values: dict[str, Any] = {
            "method": self.name,
            "title": self.title,
            "fit_seconds": self.fit_seconds,
            "converged": self.converged,
        }
        if self.folds is not None:
            values["folds"] = self.folds
        values |= self.summary.to_dict()
        tables = {
            "binary": self.binary,
            "classes": self.classes,
            "groups": self.groups,
            "sets": self.sets,
        }
        for name, table in tables.items():
            if table is not None:
                values[name] = table.to_dict()
        return values

    def write_page(self, path: Path, title: str | None) -> None:
        """Write the page of the report."""
        page.write_page(self.stages, self, path, title)

    def cells(self) -> TextCells:
        """A small table, before and after."""
        return output.method_cells(self.stages)

    def metric_cells(self, of: Of) -> TextCells:
        """A row for each metric: its value and interval, before and after."""
        event = of == "event"
        metrics = EVENT_METRICS if event else METRICS
        names = EVENT_MAIN if event else tuple(self.summary.estimates)
        stages = self.stages
        rows = []
        for name in names:
            metric = metrics[name]
            best = output.best_of(stages, name, event) if len(stages) > 1 else []
            row = [Cell(metric.full_title)]
            for stage in stages:
                value, low_high = metric.show(stage.estimate(name, event), " to ")
                row += [Cell(value, best=[stage.name] == best), Cell(low_high)]
            rows.append(row)
        heads = ["metric"]
        for stage in stages:
            heads += [stage.name, self.level]
        return heads, rows

    def estimate(self, name: str, event: bool = False) -> Estimate:
        """A metric with its interval: of the event, or of the predicted label."""
        estimates = self.estimates(event)
        if not isinstance(name, str) or name not in estimates:
            raise KeyError(f"no metric {show(name)} here; there are {[*estimates]}.")
        return estimates[name]

    def estimates(self, event: bool = False) -> dict[str, Estimate]:
        """Every metric with its interval: of the event, or of the predicted label."""
        check_flag("event", event)
        if not event:
            return self.summary.estimates
        if self.binary is None:
            raise ValueError(
                f"an event is for two classes; the data are {self.data.description}."
            )
        return self.binary.estimates

    def evaluations(self) -> tuple[Evaluation, ...]:
        """What the report is about: before and after."""
        return self.stages

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, not rounded, before and after."""
        return [stage.record() for stage in self.stages]

    def all_estimates(self) -> dict[str, Estimate]:
        """Every metric by name; those of an event first, as `event_...`."""
        estimates = {} if self.binary is None else self.binary.estimates
        of_event = {f"event_{name}": value for name, value in estimates.items()}
        return of_event | self.summary.estimates

    def record(self) -> dict[str, Any]:
        """Every metric of this method and its interval; those of an event first."""
        row: dict[str, Any] = {"method": self.name, "title": self.title}
        for name, estimate in self.all_estimates().items():
            row[name] = estimate.value
            row[f"{name}_low"] = estimate.low
            row[f"{name}_high"] = estimate.high
        row["true_ece_below"] = self.summary.bounds.get("bousquet", math.nan)
        return row

    def __str__(self) -> str:
        lines = [output.wrap(self.headline), ""]
        if self.binary is not None:
            lines += [
                self.binary.title,
                *output.align(*self.metric_cells("event")),
                *map(output.wrap, self.missing_intervals("event")),
                *([] if self.binary.remark is None else [self.binary.remark]),
                "",
                "Predicted label",
                output.wrap(" ".join(self.words("label"))),
            ]
        lines += output.align(*self.metric_cells("label"))
        lines += map(output.wrap, self.missing_intervals("label"))
        if self.groups is not None:
            lines.append(output.wrap(f"Groups: {self.groups.verdict}."))
        if self.class_warning is not None:
            lines.append(output.wrap(f"Warning: {self.class_warning}"))
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(ReportOutput):
    """Evaluations of methods, in the given order, and the headline's `subject`.

    `skipped` has the methods that the data do not allow, and why. `validation`
    describes the data of the fits, if there were any; `tested_on_validation` is whether
    the test set holds the same examples, which makes everything look too good.
    """

    results: tuple[Evaluation, ...]
    subject: str
    validation: DataFacts | None
    tested_on_validation: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Evaluation:
        evaluations = {result.name: result for result in self.results}
        if not isinstance(name, str) or name not in evaluations:
            raise KeyError(f"no method {show(name)} here; there are {[*evaluations]}.")
        return evaluations[name]

    @property
    def headline(self) -> str:
        """What the subject changed, in words, with a guarantee."""
        return self[self.subject].headline

    def best(self, score: str) -> Evaluation:
        """The method with the lowest value of a score."""
        return min(self.results, key=lambda result: result.score(score))

    def differences(
        self,
        metric: str = "log_loss",
        *,
        against: str | None = None,
        delta: float = 0.05,
    ) -> tuple[output.Difference, ...]:
        """Paired differences of every other method to one, with intervals and verdicts.

        `metric` is "log_loss" or "brier"; `against` None is the subject. `delta` is the
        probability that an interval misses, and the level of verdicts, which allow for
        the number of methods (Holm).
        """
        return output.paired_differences(
            self.results,
            self[self.subject if against is None else against],
            metric,
            delta,
        )

    def plot(
        self, ax: Axes | None = None, *, metric: str = "log_loss", **style: Any
    ) -> Axes:
        """The metric of every method with its interval, the best first.

        On a matplotlib Axes; `style` is that of the points. Intervals of methods on the
        same rows may overlap though their difference is clear: see `differences`.
        """
        ordered = sorted(self.results, key=lambda result: result.score(metric))
        estimates = [result[metric] for result in ordered]
        return draw_estimates(
            [result.label for result in ordered],
            [(estimate.value, estimate.low, estimate.high) for estimate in estimates],
            ax,
            title=METRICS[metric].full_title,
            marked=ordered.index(self[self.subject]),
            **style,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        subject = self[self.subject]
        return {
            "subject": self.subject,
            "headline": self.headline,
            "finding": subject.finding,
            "methods": [result.method_dict() for result in self.results],
            "differences": [asdict(difference) for difference in self.differences()],
            "data": asdict(subject.data),
            "skipped": self.skipped,
            "validation": self.validation and asdict(self.validation),
            "tested_on_validation": self.tested_on_validation,
        }

    def write_page(self, path: Path, title: str | None) -> None:
        """Write the page of the report."""
        page.write_page(self.results, self[self.subject], path, title, self)

    def evaluations(self) -> tuple[Evaluation, ...]:
        """What the report is about: every method."""
        return self.results

    def cells(self) -> TextCells:
        """A small table of the methods."""
        return output.method_cells(self.results)

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, the difference to the subject."""
        rows = []
        by_method = {
            difference.method: asdict(difference) for difference in self.differences()
        }
        for result in self.results:
            difference = by_method.get(result.name, {})
            row = result.record()
            for name in _DIFFERENCE:
                row[f"difference_{name}"] = difference.get(name, "")
            row["fit_seconds"] = result.fit_seconds
            rows.append(row)
        return rows
