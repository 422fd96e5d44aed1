"""Predictions of a method for checked rows, and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hokical._core import reading
from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import OutcomeCalibrator
from hokical.metrics import groups as audits
from hokical.metrics import summaries
from hokical.metrics.levels import Levels, Outcomes
from hokical.metrics.risk_models import summarize_event
from hokical.report.results import DataFacts, Evaluation
from hokical.rules.base import predict_all


@dataclass(frozen=True, eq=False)
class Predicted(Outcomes):
    """Predictions of a method for rows: of logits also the predicted `label` (n,)."""

    label: IntArray | None = None

    @classmethod
    def of_logits(
        cls,
        calibrator: Any,
        logits: Logits,
        labels: Any,
        weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """The predictions of a fitted calibrator for checked logits and labels."""
        data = calibrator.fitted.read(logits, groups)
        predicted, top, proba = predict_all(calibrator.rule_, data)
        return cls(
            top.astype(np.float64),
            predicted == labels,
            weight,
            truth=labels,
            proba=proba,
            label=predicted,
        )

    def event(self, positive: int) -> Outcomes | None:
        """Of two classes, the probability of one and whether it is the true one.

        None of more classes.
        """
        data = self.vectors
        if data is None or data.proba.shape[1] != 2:
            return None
        return data.event(positive)


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated.

    Attributes
    ----------
    options : of the summary
    data_name : the name of the data
    groups, class_names : those of the rows
    positive : the event of two classes
    named_event : its name or number as it was given, before the classes are known
    cluster : (n,), numbers of the clusters of rows; None if rows are independent
    votes_of : (n,), of weighted rows that votes were made to, the number of their example
    coverage : that of prediction sets, if they are measured
    progress : whether a bar is shown; None if that depends on the terminal
    """

    options: summaries.SummaryOptions
    data_name: str | None = None
    groups: Any = None
    class_names: Sequence[str] = ()
    positive: int = 1
    named_event: object = None
    cluster: IntArray | None = None
    votes_of: IntArray | None = None
    coverage: float | None = None
    progress: bool | None = None

    @property
    def event(self) -> str:
        """The name of the event, of two classes."""
        if self.class_names:
            return self.class_names[self.positive]
        return f"class {self.positive}"

    def counted(self, weight: FloatArray | None) -> Self:
        """The setting of the rows whose weight (n,) is not 0."""
        if weight is None:
            return self
        counts = weight > 0.0
        return replace(
            self,
            cluster=None if self.cluster is None else self.cluster[counts],
            votes_of=None if self.votes_of is None else self.votes_of[counts],
        )

    def with_names(self, n_classes: int, positive: Any = None) -> Self:
        """The setting with checked names of classes, and the event among two.

        The event is given by name or number; by default it is the second class.
        """
        names = audits.check_names(self.class_names, n_classes)
        setting = replace(self, class_names=names)
        if positive is None:
            positive = self.named_event
        event = reading.event_index(positive, names, n_classes)
        return setting if event is None else replace(setting, positive=event)


def evaluate_predictions(
    name: str,
    calibrator: Any,
    rows: Predicted,
    setting: Setting,
    data: DataFacts,
    sets: Any = None,
) -> Evaluation:
    """The evaluation of one method's predictions; rows of weight 0 do not count."""
    groups = None if setting.groups is None else _audit_groups(rows, setting)
    setting = setting.counted(rows.weight)
    rows = rows.counted()
    scores = summaries.row_scores(rows)
    levels = summaries.count_levels(
        rows, n_bins=setting.options.n_bins, scores=scores, codes=setting.cluster
    )
    event = rows.event(setting.positive)
    events = (
        None if event is None else summaries.count_levels(event, codes=setting.cluster)
    )
    if setting.votes_of is not None:
        n_examples = int(np.unique(setting.votes_of).size)
        data = replace(data, n_rows=n_examples)
        levels = replace(levels, n_rows=n_examples)
        events = None if events is None else replace(events, n_rows=n_examples)
    evaluation = Evaluation(
        name=name,
        calibrator=calibrator,
        is_uncalibrated=_is_uncalibrated(name, calibrator),
        summary=summaries.summarize(levels, setting.options),
        levels=levels,
        data=data,
        classes=_audit_labels(rows, setting),
        groups=groups,
        sets=sets,
        row_scores=scores,
        weight=rows.weight,
        binary=_summarize_event(events, setting),
    )
    if setting.cluster is None:
        return evaluation
    return _by_cluster(evaluation, setting.cluster, rows.filled_weight(), setting)


def _audit_groups(rows: Predicted, setting: Setting) -> audits.GroupTable:
    """Which groups are miscalibrated: for the event of two classes, and for labels."""
    questions: dict[str, Outcomes] = {}
    event = rows.event(setting.positive)
    if event is not None:
        questions[setting.event] = event
    questions[audits.LABEL] = rows
    return audits.audit(questions, setting.groups, rows.weight, setting.options.delta)


def _audit_labels(rows: Predicted, setting: Setting) -> audits.GroupTable | None:
    """Which predicted labels are miscalibrated; tests need one label per row."""
    if rows.label is None or setting.votes_of is not None:
        return None
    return audits.label_rows(
        rows, rows.label, setting.class_names, setting.options.delta
    )


def _summarize_event(events: Levels | None, setting: Setting) -> Any:
    if events is None:
        return None
    return summarize_event(events, setting.options.delta, setting.event)


def _by_cluster(
    evaluation: Evaluation, cluster: IntArray, weight: FloatArray, setting: Setting
) -> Evaluation:
    """The evaluation with clusters as examples, which are independent.

    Scores of clusters have the same mean as those of rows.
    """
    unit = np.unique(cluster, return_inverse=True)[1].ravel()
    n_clusters = int(unit.max()) + 1
    data = evaluation.data
    if setting.votes_of is None or n_clusters != data.n_rows:
        data = replace(data, n_clusters=n_clusters)
    classes = evaluation.classes
    groups = evaluation.groups
    return replace(
        evaluation,
        data=data,
        classes=classes and audits.count_items(classes, n_clusters),
        groups=groups and audits.count_items(groups, n_clusters),
        row_scores=unit_means(evaluation.row_scores, unit, weight),
        weight=None,
    )


def unit_means(
    scores: Mapping[str, FloatArray], unit: IntArray, weight: FloatArray
) -> dict[str, FloatArray]:
    """Scores of units (units,) whose mean is the weighted mean of those of rows (n,).

    `unit` (n,) is the number of each row's unit.
    """
    n_units = int(unit.max()) + 1
    share = n_units / float(weight.sum())
    return {
        name: share * sum_by(unit, weight * values, n_units)
        for name, values in scores.items()
    }


def _is_uncalibrated(
    name: str, calibrator: Calibrator | OutcomeCalibrator | None
) -> bool:
    """Whether predictions are those before any calibration.

    The name is that of the evaluation of a model or of confidences, which have no
    calibrator then.
    """
    return (name if calibrator is None else calibrator.name) == "uncalibrated"
