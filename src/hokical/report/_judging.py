"""From the predictions of one method to its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._groups import LABEL, audit, class_question, label_rows
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._sets import SetSummary
from hokical.metrics._summaries import SummarySums, summarize
from hokical.metrics._vectors import class_scores, top_label_rows
from hokical.report._evaluation import DataFacts, Evaluation


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a method predicts for rows: confidence and correctness (n,), with weights or None.

    Of logits also the predicted labels (n,), and the probabilities of all classes if known.
    """

    confidence: FloatArray
    correct: BoolArray
    weight: FloatArray | None = None
    labels: IntArray | None = None
    vectors: Predictions | None = None

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
        vectors = None
        if not isinstance(logits, TopK):
            proba = to_host(calibrator.predict_proba(logits, groups=groups))
            vectors = Predictions(proba, labels, weight)
        rows = (confidence.astype(np.float64), predicted == labels)
        return cls(*rows, weight, predicted, vectors)

    def counted(self) -> Self:
        """The rows of weight above 0."""
        if self.weight is None:
            return self
        kept = np.flatnonzero(self.weight)
        weight, vectors = self.weight[kept], self.vectors
        if vectors is not None:
            vectors = Predictions(vectors.proba[kept], vectors.labels[kept], weight)
        labels = None if self.labels is None else self.labels[kept]
        return type(self)(self.confidence[kept], self.correct[kept], weight, labels, vectors)

    @property
    def examples(self) -> Examples:
        """The rows as metrics take them."""
        return Examples(self.confidence, self.correct, self.weight)


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated: options of the summary, the data, groups of the rows, names."""

    options: SummaryOptions
    data: DataFacts
    groups: Any = None
    class_names: tuple[str, ...] = ()


def judge(
    name: str,
    calibrator: Any,
    rows: Predicted,
    setting: Setting,
    before: Evaluation | None = None,
    sets: SetSummary | None = None,
) -> Evaluation:
    """The evaluation of one method's predictions; rows of weight 0 do not count."""
    options, names, groups = setting.options, setting.class_names, None
    if setting.groups is not None:
        questions = {LABEL: Examples(rows.confidence, rows.correct, None)}
        if rows.vectors is not None:
            questions |= class_question(rows.vectors.proba, rows.vectors.labels, names)
        groups = audit(questions, setting.groups, rows.weight, options.delta)
    rows = rows.counted()
    examples, classes = rows.examples, None
    if rows.labels is not None:
        classes = label_rows(examples, rows.labels, names, options.delta)
    sums = SummarySums.from_rows(examples, rows.vectors, options)
    scores = top_label_rows(examples.confidence, examples.correct)
    return Evaluation(
        name,
        calibrator,
        summarize(sums, options),
        sums.levels.levels,
        setting.data,
        before,
        classes,
        groups,
        sets,
        names,
        row_scores=scores if rows.vectors is None else class_scores(rows.vectors),
        weight=rows.weight,
    )
