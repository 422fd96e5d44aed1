"""What `evaluate` and `compare` return: as data, in words, as tables, a plot and a
report.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hokical._core.arrays import FloatArray
from hokical._core.storage import StrPath
from hokical.metrics.groups import GroupTable
from hokical.metrics.levels import Levels
from hokical.metrics.risk_models import EVENT_MAIN, EVENT_METRICS, BinarySummary
from hokical.metrics.summaries import METRICS, Estimate, SetSummary, Summary
from hokical.plots import EventPicture, reliability
from hokical.report import output
from hokical.report.output import Cell, TextCells

#: A class is worth a warning if its gap is at least this, and at least twice the ECE.
_MATERIAL_GAP = 0.05
_LEARN_CLASSES = ("auto", "structured", "vecs")
#: What words, tables and plots are of.
Of = Literal["event", "label"]
#: What a table has of a difference to the subject.
_DIFFERENCE = ("against", "metric", "value", "low", "high", "p_value", "verdict")


@dataclass(frozen=True)
class DataFacts:
    """A data set: its size, its name in reports, what was given of it, and its
    clusters if any.
    """

    n_rows: int
    n_classes: int
    name: str | None = None
    what: Literal["logits", "confidences", "scores"] = "logits"
    n_clusters: int | None = None

    @property
    def size(self) -> str:
        """The number of examples, in words."""
        clusters = (
            "" if self.n_clusters is None else f" of {self.n_clusters:,} clusters"
        )
        return f"{self.n_rows:,} examples{clusters}"

    @property
    def given(self) -> str:
        """What the data are, in words."""
        n = f"{self.n_rows:,}"
        k = self.n_classes
        if self.what == "scores":
            return f"{n} examples with {k} labels, each a prediction of its own"
        return (
            f"{n} examples of {k} classes"
            if self.what == "logits"
            else f"{n} confidences"
        )

    @property
    def named(self) -> str:
        """The same, after the name if there is one."""
        return self.given if self.name is None else f"{self.name}: {self.given}"


@dataclass(frozen=True, eq=False)
class Evaluation(output.TableOutput):
    """One method on one data set; `hokical.evaluate` makes it.

    `summary` has the metrics with their intervals and the bounds on the true
    calibration error; `found["ece"]` is `found.summary["ece"]`. `data` describes the
    rows. `before` is the evaluation of the uncalibrated predictions on the same rows,
    None if this is it. `classes` and `groups` say which predicted labels and which
    groups are miscalibrated, `sets` how prediction sets do. `binary`, of two classes,
    is the summary of the probability of the event, which then comes first in all that
    is shown. `levels` counts right and wrong rows by confidence. `row_scores` (n,) are
    the scores whose mean is a metric, `weight` (n,) the rows' weights. `fit_seconds` is
    None if the calibrator came fitted.

    `print(found)` shows a table, `found.plot()` a reliability diagram, of two classes
    the calibration curve of the event; `found.to_html(path)` writes a report, `to_csv`,
    `to_latex` and `to_markdown` tables, before and after calibration.
    """

    name: str
    calibrator: Any
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
    def both(self) -> tuple[Evaluation, ...]:
        """Before and after calibration; this alone if there is no before."""
        return (self,) if self.before is None else (self.before, self)

    @property
    def title(self) -> str:
        """The method in full words, without what its title has in brackets; "" if it
        has none.
        """
        return (
            ""
            if self.calibrator is None
            else str(self.calibrator.method.title).split(" (")[0]
        )

    @property
    def label(self) -> str:
        """The method in full words, its name in brackets."""
        known = not self.title or self.title in self.name
        return self.name if known else f"{self.title} ({self.name})"

    @property
    def level(self) -> str:
        """What intervals are called: 95% interval."""
        return f"{1.0 - self.summary.options.delta:.0%} interval"

    @property
    def may_change_labels(self) -> bool:
        """Whether the method can make another class the most likely one."""
        return not getattr(
            getattr(self.calibrator, "rule_", None), "preserves_labels", True
        )

    @property
    def converged(self) -> bool:
        """Whether the fit converged; True for methods without iterations."""
        return bool(getattr(self.calibrator, "converged_", True))

    @property
    def class_warning(self) -> str | None:
        """One line if the average hides a predicted label that is miscalibrated,
        else None.
        """
        error = self.score("ece")
        rows = () if self.classes is None else self.classes.flagged
        bad = [row for row in rows if abs(row.gap) > max(_MATERIAL_GAP, 2.0 * error)]
        if not bad:
            return None
        remedy = (
            "Methods that learn each class can correct this: "
            f"{', '.join(_LEARN_CLASSES)}."
        )
        if self.name in _LEARN_CLASSES:
            remedy = "More calibration examples of this class can correct this."
        worst = max(bad, key=lambda row: abs(row.gap))
        others = len(bad) - 1
        more = (
            f" ({others} more such {'class' if others == 1 else 'classes'})"
            if others
            else ""
        )
        return (
            f"the top-label ECE of {error:.4f} hides class {worst.name}: its "
            f"{worst.n:,} rows have confidence {worst.predicted:.1%} and accuracy "
            f"{worst.observed:.1%}{more}. {remedy}"
        )

    @property
    def notes(self) -> list[str]:
        """What to know of the method: it may change labels, did not converge, or
        hides a class.
        """
        first, now = (f"{each.score('accuracy'):.2%}" for each in (self.both[0], self))
        right = f"{now} of the test labels are right"
        right += "" if self.before is None else f" instead of {first}"
        notes = {
            f"May change labels: with this method {right}.": self.may_change_labels,
            "The fit did not converge.": not self.converged,
            f"Warning: {self.class_warning}": self.class_warning is not None,
        }
        infinite = [
            f"The {METRICS[name].full_title} has no interval: {estimate.reason}."
            for name, estimate in self.summary.estimates.items()
            if math.isinf(estimate.value)
        ]
        return [note for note, is_so in notes.items() if is_so] + infinite

    def missing_intervals(self, of: Of) -> list[str]:
        """Why metrics have no interval, a line for each; before calibration too."""
        methods: dict[str, list[str]] = {}
        for evaluation in self.both:
            summary: Any = evaluation.binary if of == "event" else evaluation.summary
            for name, estimate in summary.estimates.items():
                if estimate.reason:
                    title = (EVENT_METRICS if of == "event" else METRICS)[
                        name
                    ].full_title
                    line = f"{title} has no interval{{}}: {estimate.reason}."
                    methods.setdefault(line, []).append(evaluation.name)
        return [
            line.format("" if len(names) == len(self.both) else f" ({names[0]})")
            for line, names in methods.items()
        ]

    @property
    def verdict(self) -> str:
        """One sentence: O:E of an event, or else the calibration error, and what it
        was before.
        """
        return self.words()[0]

    @property
    def details(self) -> str:
        """What else is known of the event, or else of the predicted label."""
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
        if self.binary is None or of == "label":
            verdict, details = self._label_words(bound)
        else:
            verdict, details = self._event_words()
        if self.folds is not None and (self.binary is None or of == "event"):
            details += (
                f" Cross-fitted in {self.folds} folds: intervals are conditional on "
                "these fits, and do not allow for how they vary."
            )
        return verdict, details

    def _label_words(self, bound: bool) -> tuple[str, str]:
        """The calibration error and what it was; mean confidence and accuracy, or their
        like.

        The bound is always Bousquet's: the smallest of several would hold less often.
        """
        now = f"{self.score('ece'):.4f}"
        verdict = f"is {now}"
        if self.before is not None:
            first = f"{self.before.score('ece'):.4f}"
            verb = "fell" if float(now) < float(first) else "rose"
            verdict = (
                f"stayed at {now}" if first == now else f"{verb} from {first} to {now}"
            )
        names = ("Mean confidence", "accuracy")
        if self.data.what == "scores":
            names = ("Mean probability", "share of labels present")
        parts = []
        for word, metric in zip(names, ("mean_confidence", "accuracy"), strict=True):
            first, now = (f"{each.score(metric):.1%}" for each in (self.both[0], self))
            parts.append(
                f"{word} {'' if first == now else f'was {first} and '}is {now}"
            )
        details = "; ".join(parts) + "."
        if bound and (most := self.summary.bounds.get("bousquet")) is not None:
            level = f"{1.0 - self.summary.options.delta:.0%}"
            details += f" With {level} confidence the true error is below {most:.4f}."
        by = "" if self.name == "uncalibrated" else f" with {self.label}"
        return f"The calibration error {verdict}{by}.", details

    def _event_words(self) -> tuple[str, str]:
        """Observed to expected events; the event, its share and what is known of its
        probability.

        Before and after calibration.
        """
        summed: Any = (self.both[0].binary, self.binary)
        first, now = (each["oe_ratio"] for each in summed)
        ends = [
            "" if math.isnan(each.low) else f" ({each.low:.2f} to {each.high:.2f})"
            for each in (first, now)
        ]
        verdict = f"Observed events are {first.value:.2f} times the expected{ends[0]}"
        if first.low > 1.0 or first.high < 1.0:
            verdict += f": probabilities are too {'low' if first.low > 1.0 else 'high'}"
        if self.before is not None:
            verdict += f"; after calibration {now.value:.2f}{ends[1]}"
        elif self.name != "uncalibrated":
            verdict += f", with {self.label}"
        parts = []
        for name in ("mean_probability", "slope", "auroc", "log_loss"):
            metric = EVENT_METRICS[name]
            values = [metric.format(each[name].value) for each in summed]
            parts.append(f"{metric.title} {', then '.join(dict.fromkeys(values))}")
        known = "; ".join(parts)
        by = "" if self.before is None else f" with {self.label}"
        share = EVENT_METRICS["prevalence"].format(summed[1]["prevalence"].value)
        details = f"The event is {summed[1].event}, {share} of {self.data.size}."
        return f"{verdict}.", f"{details} {known[0].upper()}{known[1:]}{by}."

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
        methods = [found.method_dict() for found in self.both]
        return {
            "headline": self.headline,
            "methods": methods,
            "data": asdict(self.data),
        }

    def method_dict(self) -> dict[str, Any]:
        """The numbers of this method alone."""
        parts = {
            name: getattr(self, name)
            for name in ("binary", "classes", "groups", "sets")
        }
        tables = {
            name: part.to_dict() for name, part in parts.items() if part is not None
        }
        own = {
            "method": self.name,
            "title": self.title,
            "fit_seconds": self.fit_seconds,
        }
        own |= {"converged": self.converged} | (
            {} if self.folds is None else {"folds": self.folds}
        )
        return own | self.summary.to_dict() | tables

    def to_html(self, path: StrPath, *, title: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned."""
        return output.write_page(self.both, self, path, title)

    def cells(self) -> TextCells:
        """A small table, before and after."""
        return output.method_cells(self.both)

    def metric_cells(self, of: Of) -> TextCells:
        """A row for each metric: its value and interval, before and after."""
        event = of == "event"
        both = self.both
        known = EVENT_METRICS if event else METRICS
        found: list[Any] = [each.binary if event else each.summary for each in both]
        rows = []
        for name in EVENT_MAIN if event else self.summary.estimates:
            best = output.best_of(both, name, event) if len(both) > 1 else []
            row = [Cell(known[name].full_title)]
            for each, own in zip(both, found, strict=True):
                value, ends = known[name].show(own[name], " to ")
                row += [Cell(value, [each.name] == best), Cell(ends)]
            rows.append(row)
        return [
            "metric",
            *(head for each in both for head in (each.name, self.level)),
        ], rows

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, not rounded, before and after."""
        return [found.record() for found in self.both]

    def record(self) -> dict[str, Any]:
        """Every metric of this method and its interval; those of an event first."""
        row: dict[str, Any] = {"method": self.name, "title": self.title}
        event = {} if self.binary is None else self.binary.estimates
        named = {
            f"event_{name}": each for name, each in event.items()
        } | self.summary.estimates
        for name, found in named.items():
            row |= {
                name: found.value,
                f"{name}_low": found.low,
                f"{name}_high": found.high,
            }
        return row | {"true_ece_below": self.summary.bounds.get("bousquet", math.nan)}

    def __str__(self) -> str:
        event = self.binary
        lines = _align(*self.metric_cells("label"))
        lines += self.missing_intervals("label")
        if event is not None:
            remark = self.missing_intervals("event")
            remark += [] if event.remark is None else [event.remark]
            label = ["", "Predicted label", *lines, " ".join(self.words("label"))]
            lines = [
                event.title,
                *_align(*self.metric_cells("event")),
                *remark,
                *label,
                "",
            ]
        lines += [
            self.headline,
            *([f"Groups: {self.groups.verdict}."] if self.groups else []),
        ]
        warning = (
            [] if self.class_warning is None else [f"Warning: {self.class_warning}"]
        )
        return "\n".join([*lines, *warning])


def _align(heads: list[str], rows: list[list[Cell]]) -> list[str]:
    """The lines of a table."""
    lines = [heads, *([cell.text for cell in row] for row in rows)]
    width = max(20, *(len(name) + 1 for name, *_ in lines))
    return [
        f"{name:<{width}}" + "".join(f"{cell:>20}" for cell in row)
        for name, *row in lines
    ]


@dataclass(frozen=True, eq=False)
class Comparison(output.TableOutput):
    """Evaluations of methods, in the given order, and the headline's `subject`.

    `skipped` has the methods that the data do not allow, and why. `validation`
    describes the data of the fits; `tested_on_validation` is whether the test set holds
    the same examples, which makes everything look too good.
    """

    results: tuple[Evaluation, ...]
    subject: str
    validation: DataFacts
    tested_on_validation: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Evaluation:
        found = {result.name: result for result in self.results}
        if name not in found:
            raise KeyError(f"no method {name!r} here; there are {[*found]}.")
        return found[name]

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
            self.results, self[against or self.subject], metric, delta
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "subject": self.subject,
            "headline": self.headline,
            "methods": [result.method_dict() for result in self.results],
            "differences": [asdict(found) for found in self.differences()],
            "data": asdict(self[self.subject].data),
            "skipped": self.skipped,
            "validation": asdict(self.validation),
            "tested_on_validation": self.tested_on_validation,
        }

    def to_html(self, path: StrPath, *, title: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned."""
        return output.write_page(self.results, self[self.subject], path, title, self)

    def cells(self) -> TextCells:
        """A small table of the methods."""
        return output.method_cells(self.results)

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, the difference to the subject."""
        rows = []
        verdicts = {found.method: asdict(found) for found in self.differences()}
        for result in self.results:
            own = verdicts.get(result.name, {})
            gaps = {f"difference_{name}": own.get(name, "") for name in _DIFFERENCE}
            rows.append(result.record() | gaps | {"fit_seconds": result.fit_seconds})
        return rows
