"""One calibrator on one data set: every metric, before and after, as data, table, plot and page."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits
from hokical.metrics import summaries
from hokical.metrics.calibration import row_scores
from hokical.metrics.examples import Outcomes, Predictions
from hokical.metrics.groups import LABEL, GroupTable, audit, class_question, count_items, label_rows
from hokical.metrics.levels import Levels, LevelSums
from hokical.metrics.risk_models import EVENT_MAIN, EVENT_METRICS, BinarySummary, summarize_event
from hokical.plots import EventPicture, Reliability
from hokical.report.content import method_cells, method_record, report_data
from hokical.report.page import TableOutput, TextCells, write_page
from hokical.rules.base import predict_all

#: A class is worth a warning if its gap is at least this, and at least twice the ECE.
_MATERIAL_GAP = 0.05
_LEARN_CLASSES = ("auto", "structured", "vecs")


@dataclass(frozen=True)
class DataFacts:
    """A data set: its size, its name in reports, what was given of it, and its clusters if any."""

    n_rows: int
    n_classes: int
    name: str | None = None
    what: Literal["logits", "confidences", "scores"] = "logits"
    n_clusters: int | None = None

    @property
    def size(self) -> str:
        """The number of examples, in words."""
        clusters = "" if self.n_clusters is None else f" of {self.n_clusters:,} clusters"
        return f"{self.n_rows:,} examples{clusters}"


@dataclass(frozen=True, eq=False)
class Evaluation(TableOutput):
    """One method on one data set; `hokical.evaluate` makes it.

    `summary` has the metrics with their intervals and the bounds on the true calibration error;
    `found["ece"]` is `found.summary["ece"]`. `data` describes the rows. `before` is the evaluation
    of the uncalibrated predictions on the same rows, None if this is it. `classes` and `groups` say
    which predicted labels and which groups are miscalibrated, `sets` how prediction sets do.
    `binary`, of two classes, is the summary of the probability of the event, which then comes
    first in all that is shown. `levels` counts right and wrong rows by confidence. `row_scores`
    (n,) are the scores whose mean is a metric, `weight` (n,) the rows' weights. `fit_seconds` is
    None if the calibrator came fitted.

    `print(found)` shows a table, `found.plot()` a reliability diagram, of two classes the
    calibration curve of the event; `found.to_html(path)` writes
    a report, `to_csv`, `to_latex` and `to_markdown` tables, before and after calibration.
    """

    name: str
    calibrator: Any
    summary: summaries.Summary
    levels: Levels
    data: DataFacts
    before: Evaluation | None = None
    classes: GroupTable | None = None
    groups: GroupTable | None = None
    sets: summaries.SetSummary | None = None
    row_scores: dict[str, FloatArray] = field(default_factory=dict)
    weight: FloatArray | None = None
    fit_seconds: float | None = None
    binary: BinarySummary | None = None
    folds: int | None = None

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
        """The method in full words, without what its title has in brackets; "" if it has none."""
        return "" if self.calibrator is None else str(self.calibrator.method.title).split(" (")[0]

    @property
    def label(self) -> str:
        """The method in full words, its name in brackets."""
        known = not self.title or self.title in self.name
        return self.name if known else f"{self.title} ({self.name})"

    @property
    def may_change_labels(self) -> bool:
        """Whether the method can make another class the most likely one."""
        rule = getattr(self.calibrator, "rule_", None)
        return not getattr(rule, "preserves_labels", True)

    @property
    def converged(self) -> bool:
        """Whether the fit converged; True for methods without iterations."""
        return bool(getattr(self.calibrator, "converged_", True))

    def __getitem__(self, name: str) -> summaries.Estimate:
        return self.summary[name]

    def score(self, name: str) -> float:
        """The value of one metric."""
        return self.summary[name].value

    @property
    def class_warning(self) -> str | None:
        """One line if the average hides a predicted label that is miscalibrated, else None."""
        error = self.score("ece")
        rows = () if self.classes is None else self.classes.flagged
        bad = [row for row in rows if abs(row.gap) > max(_MATERIAL_GAP, 2.0 * error)]
        if not bad:
            return None
        remedy = f"Methods that learn each class can correct this: {', '.join(_LEARN_CLASSES)}."
        if self.name in _LEARN_CLASSES:
            remedy = "More calibration examples of this class can correct this."
        worst, others = max(bad, key=lambda row: abs(row.gap)), len(bad) - 1
        more = f" ({others} more such {'class' if others == 1 else 'classes'})" if others else ""
        return (
            f"the top-label ECE of {error:.4f} hides class {worst.name}: its {worst.n:,} rows have "
            f"confidence {worst.predicted:.1%} and accuracy {worst.observed:.1%}{more}. {remedy}"
        )

    @property
    def notes(self) -> list[str]:
        """What to know of the method: it may change labels, did not converge, or hides a class."""
        notes = []
        if self.may_change_labels:
            before = self.before
            then = "" if before is None else f" instead of {before.score('accuracy'):.2%}"
            notes.append(
                f"May change labels: with this method {self.score('accuracy'):.2%} of the test "
                f"labels are right{then}."
            )
        if not self.converged:
            notes.append("The fit did not converge.")
        return notes + ([] if self.class_warning is None else [f"Warning: {self.class_warning}"])

    @property
    def verdict(self) -> str:
        """One sentence: O:E of an event, or else the calibration error, and what it was before."""
        return self.label_verdict if self.binary is None else event_verdict(self)

    @property
    def details(self) -> str:
        """What else is known of the event, or else of the predicted label."""
        text = self.label_details if self.binary is None else event_details(self)
        if self.folds is None:
            return text
        return (
            f"{text} Cross-fitted in {self.folds} folds: intervals are conditional on these fits, "
            "and do not allow for how they vary."
        )

    @property
    def label_verdict(self) -> str:
        """One sentence: the calibration error of the predicted label, and what it was before."""
        error, first = (
            "" if found is None else f"{found.score('ece'):.4f}" for found in (self, self.before)
        )
        by = "" if self.name == "uncalibrated" else f" with {self.label}"
        if first in ("", error):
            return f"The calibration error {'stayed at' if first else 'is'} {error}{by}."
        verb = "fell" if float(error) < float(first) else "rose"
        return f"The calibration error {verb} from {first} to {error}{by}."

    @property
    def label_details(self) -> str:
        """Mean confidence and accuracy, and a bound on the true calibration error.

        The bound is always Bousquet's: the smallest of several would hold less often.
        """
        if "bousquet" not in self.summary.bounds:
            return self.shares
        level, bound = 1.0 - self.summary.options.delta, self.summary.bounds["bousquet"]
        return f"{self.shares} With {level:.0%} confidence the true error is below {bound:.4f}."

    @property
    def shares(self) -> str:
        """Mean confidence and accuracy, or of several labels per row their shares, in words."""
        labels = self.data.what == "scores"
        words = ("Mean probability", "share of labels present") if labels else (
            "Mean confidence", "accuracy"
        )  # fmt: skip
        return "; ".join(map(self._change, words, ("mean_confidence", "accuracy"))) + "."

    @property
    def headline(self) -> str:
        """What calibration changed, in words, with a guarantee."""
        return f"{self.verdict} {self.details}"

    def _change(self, word: str, metric: str) -> str:
        """A share before and after, or once if it stayed."""
        first, now = (f"{each.score(metric):.1%}" for each in (self.both[0], self))
        return f"{word} is {now}" if first == now else f"{word} was {first} and is {now}"

    def plot(
        self, ax: Any = None, *, n_bins: int = 15, of: Literal["event", "label"] | None = None,
        **style: Any,
    ) -> Any:  # fmt: skip
        """The calibration curve of the event, or else the reliability diagram of the label.

        On a matplotlib Axes; `style` is that of its line or its bars. `of` chooses for two classes.
        """
        delta = self.summary.options.delta
        if self.binary is not None and of != "label":
            return EventPicture.from_summary(self.binary).draw_curve(ax, delta, **style)
        return Reliability.from_levels(self.levels, n_bins, "width", delta).draw(ax, **style)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: the methods before and after, and the headline."""
        methods = [found.method_dict() for found in self.both]
        return {"headline": self.headline, "methods": methods, "data": asdict(self.data)}

    def method_dict(self) -> dict[str, Any]:
        """The numbers of this method alone."""
        parts: dict[str, Any] = {"binary": self.binary, "classes": self.classes}
        parts |= {"groups": self.groups, "sets": self.sets}
        return {
            "method": self.name,
            "title": self.title,
            "fit_seconds": self.fit_seconds,
            "converged": self.converged,
            **({} if self.folds is None else {"folds": self.folds}),
            **self.summary.to_dict(),
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned."""
        return write_page(report_data(self.both, self, title=title), path)

    def cells(self, mark: str) -> TextCells:
        """A small table, before and after, the best of each score in `mark`."""
        return method_cells(self.both, mark)

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, before and after."""
        return [method_record(found) for found in self.both]

    def __str__(self) -> str:
        both, event = self.both, self.binary
        metrics = [summaries.METRICS[name] for name in self.summary.estimates]
        lines = self._lines(metrics, [found.summary for found in both])
        lines += [
            f"{metric.full_title} has no interval: {self[metric.name].reason}."
            for metric in metrics
            if self[metric.name].reason
        ]
        if event is not None:
            of_event = self._lines([EVENT_METRICS[name] for name in EVENT_MAIN], events_of(both))
            remark = [] if event.remark is None else [event.remark]
            label = ["", "Predicted label", *lines, f"{self.label_verdict} {self.label_details}"]
            lines = [event.title, *of_event, *remark, *label, ""]
        warning = [] if self.class_warning is None else [f"Warning: {self.class_warning}"]
        verdict = [] if self.groups is None else [f"Groups: {self.groups.verdict}."]
        return "\n".join([*lines, self.headline, *verdict, *warning])

    def _lines(self, metrics: Sequence[summaries.Metric], found: Iterable[Any]) -> list[str]:
        """A table of the values and intervals that summaries before and after have."""
        level, known = f"{1.0 - self.summary.options.delta:.0%} interval", list(found)
        table = [("metric", [cell for each in self.both for cell in (each.name, level)])]
        for metric in metrics:
            pairs = (metric.show(each[metric.name], " to ") for each in known)
            table.append((metric.full_title, [text for pair in pairs for text in pair]))
        width = max(20, *(len(name) + 1 for name, _ in table))
        return [f"{name:<{width}}" + "".join(f"{cell:>20}" for cell in row) for name, row in table]


@dataclass(frozen=True, eq=False)
class Predicted(Outcomes):
    """What a method predicts for rows: confidence and correctness (n,), with weights or None.

    Of logits also the predicted `label` and the true class `truth` (n,), and the probabilities
    `proba` (n, classes) if known.
    """

    weight: FloatArray | None = None
    label: IntArray | None = None
    truth: IntArray | None = None
    proba: AnyArray | None = None

    @classmethod
    def of_logits(
        cls,
        calibrator: Any,
        logits: Logits,
        labels: IntArray,
        weight: FloatArray | None = None,
        groups: Any = None,
    ) -> Self:
        """The predictions of a fitted calibrator for checked logits and labels."""
        data = calibrator._check_logits(calibrator._attach_groups(logits, groups))
        predicted, confidence, proba = predict_all(calibrator.rule_, data)
        rows = (confidence.astype(np.float64), predicted == labels)
        return cls(*rows, weight, predicted, labels, proba)

    @classmethod
    def join(cls, parts: Sequence[Self], order: IntArray, weight: FloatArray | None) -> Self:
        """Predictions of parts, one after the other, then in this order, with weights."""

        def whole(name: str) -> Any:
            column = [getattr(part, name) for part in parts]
            return None if column[0] is None else np.concatenate(column)[order]

        rows = whole("confidence"), whole("correct"), weight
        return cls(*rows, whole("label"), whole("truth"), whole("proba"))

    def event_sums(self, positive: int, codes: IntArray | None = None) -> LevelSums | None:
        """The levels of the probability of the event, of rows in clusters (n,) if given."""
        rows = self.event(positive)
        return None if rows is None else summaries.clustered_levels(rows, codes)

    def event(self, positive: int) -> Outcomes | None:
        """Of two classes, the probability of one and whether it is the true one; None of more."""
        if self.proba is None or self.truth is None or self.proba.shape[1] != 2:
            return None
        risk = np.clip(self.proba[:, positive].astype(np.float64), 0.0, 1.0)
        return Outcomes(risk, self.truth == positive, self.weight)

    @property
    def vectors(self) -> Predictions | None:
        """The probabilities of all classes, if known."""
        if self.proba is None or self.truth is None:
            return None
        return Predictions(self.proba, self.truth, self.weight)

    @property
    def scores(self) -> dict[str, FloatArray]:
        """The scores (n,) whose means are metrics: of all classes if known, else of the label."""
        return row_scores(self, self.vectors)


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated: options of the summary, name of the data, groups, class names.

    `cluster` (n,) are numbers of what rows belong to, None if they are independent.
    """

    options: summaries.SummaryOptions
    data_name: str | None = None
    groups: Any = None
    class_names: tuple[str, ...] = ()
    positive: int = 1
    cluster: IntArray | None = None

    @property
    def event(self) -> str:
        """The name of the event, of two classes."""
        return self.class_names[self.positive] if self.class_names else f"class {self.positive}"

    def with_event(self, positive: Any, known: Sequence[str], n_classes: int) -> Self:
        """With the event, which is the name or number of a class; by default the second of two."""
        names = self.class_names or (tuple(known) if n_classes == 2 else ())
        made = replace(self, class_names=names)
        if positive is None:
            return made
        if n_classes != 2:
            raise ValueError(
                f"`positive` must be None for {n_classes} classes; got {positive!r}. It names the "
                "event of two."
            )
        choices = [*names, 0, 1]
        if isinstance(positive, bool) or positive not in choices:
            raise ValueError(f"`positive` must be one of {choices}; got {positive!r}.")
        return replace(made, positive=choices.index(positive) % 2 if names else int(positive))


def events_of(found: Sequence[Evaluation]) -> Iterator[BinarySummary]:
    """The summaries of the event."""
    return (each.binary for each in found if each.binary is not None)


def event_verdict(found: Evaluation) -> str:
    """Observed to expected events in words, before and after."""
    first, now = (each["oe_ratio"] for each in _first_and_last(found))
    text = f"Observed events are {_ratio(first, ' times the expected')}"
    if first.low > 1.0 or first.high < 1.0:
        text += f": probabilities are too {'low' if first.low > 1.0 else 'high'}"
    if found.before is not None:
        return f"{text}; after calibration {_ratio(now)}."
    return f"{text}." if found.name == "uncalibrated" else f"{text}, with {found.label}."


def _ratio(found: summaries.Estimate, unit: str = "") -> str:
    """A ratio and its interval."""
    ends = "" if math.isnan(found.low) else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.value:.2f}{unit}{ends}"


def event_details(found: Evaluation) -> str:
    """The event and its share, then what is known of its probability, before and after."""
    first, now = _first_and_last(found)
    share = EVENT_METRICS["prevalence"].format(now["prevalence"].value)
    by = "" if found.before is None else f" with {found.label}"
    parts = []
    for name in ("mean_probability", "slope", "auroc", "log_loss"):
        metric = EVENT_METRICS[name]
        values = [metric.format(each[name].value) for each in (first, now)]
        parts.append(f"{metric.title} {', then '.join(dict.fromkeys(values))}")
    known = "; ".join(parts)
    text = f"The event is {now.event}, {share} of {found.data.size}."
    return f"{text} {known[0].upper()}{known[1:]}{by}."


def _first_and_last(found: Evaluation) -> tuple[BinarySummary, BinarySummary]:
    all_of = [*events_of(found.both)]
    return all_of[0], all_of[-1]


def check_names(names: Sequence[str], n_classes: int) -> tuple[str, ...]:
    """Names of all classes, or none."""
    if isinstance(names, str) or len(names) not in (0, n_classes):
        raise ValueError(
            f"`class_names` must have a name for each of the {n_classes} columns; got {names!r}. "
            "List them in the order of the columns, or leave it out."
        )
    return tuple(map(str, names))


def judge(
    name: str, calibrator: Any, rows: Predicted, setting: Setting, data: DataFacts, sets: Any = None
) -> Evaluation:
    """The evaluation of one method's predictions; rows of weight 0 do not count."""
    options, names, groups = setting.options, setting.class_names, None
    if setting.groups is not None:
        questions: dict[str, Outcomes] = {LABEL: rows}
        if rows.proba is not None and rows.truth is not None:
            event = class_question(rows.proba, rows.truth, names, setting.positive)
            questions = event | questions
        groups = audit(questions, setting.groups, rows.weight, options.delta)
    codes = setting.cluster
    if codes is not None and rows.weight is not None:
        codes = codes[rows.weight > 0.0]
    rows = rows.counted()
    classes = None if rows.label is None else label_rows(rows, rows.label, names, options.delta)
    scores = rows.scores
    sums = summaries.SummarySums.from_rows(rows, rows.vectors, options, scores, codes)
    events, weight = rows.event_sums(setting.positive, codes), rows.weight
    if codes is not None:
        n_clusters = np.unique(codes).size
        data = replace(data, n_clusters=n_clusters)
        classes, groups = (
            t if t is None else count_items(t, n_clusters) for t in (classes, groups)
        )
        scores, weight = _by_cluster(scores, rows.filled_weight(), codes), None
    found = (
        summaries.summarize(sums, options),
        sums.levels.levels,
        data,
        None,
        classes,
        groups,
        sets,
    )
    binary = None if events is None else summarize_event(events, options.delta, setting.event)
    return Evaluation(name, calibrator, *found, scores, weight, binary=binary)


def _by_cluster(
    scores: dict[str, FloatArray], weight: FloatArray, codes: IntArray
) -> dict[str, FloatArray]:
    """Scores of clusters whose mean is that of the rows: clusters are what is independent."""
    _, place = np.unique(codes, return_inverse=True)
    n = int(place.max()) + 1
    share = n / float(weight.sum())
    return {name: share * sum_by(place.ravel(), weight * one, n) for name, one in scores.items()}
