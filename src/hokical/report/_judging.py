"""From the predictions of one method to its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._groups import LABEL, audit, class_question, label_rows
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import SummarySums, summarize
from hokical.metrics._vectors import class_scores, top_label_rows
from hokical.report._evaluation import DataFacts, Evaluation


@dataclass(frozen=True, eq=False)
class Predicted(Examples):
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
        predicted = to_host(calibrator.predict(logits, groups=groups))
        confidence = to_host(calibrator.predict_confidence(logits, groups=groups))
        known = not isinstance(logits, TopK)
        proba = to_host(calibrator.predict_proba(logits, groups=groups)) if known else None
        rows = (confidence.astype(np.float64), predicted == labels)
        return cls(*rows, weight, predicted, labels, proba)

    @property
    def vectors(self) -> Predictions | None:
        """The probabilities of all classes, if known."""
        if self.proba is None or self.truth is None:
            return None
        return Predictions(self.proba, self.truth, self.weight)

    @property
    def scores(self) -> dict[str, FloatArray]:
        """The scores (n,) whose means are metrics: of all classes if known, else of the label."""
        known = self.vectors
        return (
            top_label_rows(self.confidence, self.correct) if known is None else class_scores(known)
        )


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated: options of the summary, name of the data, groups, class names."""

    options: SummaryOptions
    data_name: str | None = None
    groups: Any = None
    class_names: tuple[str, ...] = ()


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
        questions: dict[str, Examples] = {LABEL: rows}
        if rows.proba is not None and rows.truth is not None:
            questions |= class_question(rows.proba, rows.truth, names)
        groups = audit(questions, setting.groups, rows.weight, options.delta)
    rows = rows.counted()
    classes = None if rows.label is None else label_rows(rows, rows.label, names, options.delta)
    sums = SummarySums.from_rows(rows, rows.vectors, options)
    found = (summarize(sums, options), sums.levels.levels, data, None, classes, groups, sets)
    return Evaluation(name, calibrator, *found, rows.scores, rows.weight)
