"""From the predictions of one method to its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._groups import LABEL, audit, class_question, label_rows
from hokical.metrics._levels import LevelSums
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._sets import SetSummary
from hokical.metrics._summaries import summarize
from hokical.metrics._vectors import class_scores, top_label_rows
from hokical.report._evaluation import Evaluation
from hokical.report._provenance import Provenance


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a method predicts for rows: confidence and correctness (n,).

    Of logits also the predicted labels (n,), and the probabilities of all classes if known.
    """

    confidence: FloatArray
    correct: BoolArray
    labels: IntArray | None = None
    vectors: Predictions | None = None


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated: options of the summary, weights and groups of the rows."""

    options: SummaryOptions
    weight: FloatArray | None = None
    groups: Any = None
    class_names: tuple[str, ...] = ()


def judge(
    name: str,
    calibrator: Any,
    rows: Predicted,
    setting: Setting,
    origin: Provenance,
    sets: SetSummary | None = None,
) -> Evaluation:
    """The evaluation of one method's predictions; rows of weight 0 do not count."""
    options, names = setting.options, setting.class_names
    kept: Any = slice(None) if setting.weight is None else np.flatnonzero(setting.weight)
    weight = None if setting.weight is None else setting.weight[kept]
    examples = Examples(rows.confidence[kept], rows.correct[kept], weight)
    vectors = rows.vectors
    if vectors is not None and weight is not None:
        vectors = Predictions(vectors.proba[kept], vectors.labels[kept], weight)
    classes = None
    if rows.labels is not None:
        classes = label_rows(examples, rows.labels[kept], names, options.delta)
    groups = None
    if setting.groups is not None:
        questions = {LABEL: Examples(rows.confidence, rows.correct, None)}
        if rows.vectors is not None:
            questions |= class_question(rows.vectors.proba, rows.vectors.labels, names)
        groups = audit(questions, setting.groups, setting.weight, options.delta)
    return Evaluation(
        name,
        calibrator,
        summarize(examples, vectors, options),
        LevelSums.from_rows(examples).levels,
        origin,
        classes=classes,
        groups=groups,
        sets=sets,
        class_names=names,
        row_scores=_row_scores(examples, vectors, options.n_bins),
        weight=weight,
    )


def _row_scores(
    examples: Examples, vectors: Predictions | None, n_bins: int
) -> dict[str, FloatArray]:
    """Scores (n,) whose mean is a metric, for differences of methods on the same rows."""
    found = top_label_rows(examples.confidence, examples.correct)
    found |= {} if vectors is None else class_scores(vectors, 0.0, ordered=False)
    gap, place = examples.correct - examples.confidence, bin_index(examples.confidence, n_bins)
    signs = np.sign(sum_by(place, examples.filled_weight() * gap, n_bins))
    return found | {"ece": signs[place] * gap}
