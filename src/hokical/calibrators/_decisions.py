"""Abstention and intervals for the accuracy of labels, by a rule and its calibration data."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import read_columns, take_rows
from hokical._core.logits import Logits, as_logits
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees import _scores as scores
from hokical.guarantees._calibration_data import CalibrationData, HeldOutPart
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._control import can_be_counts
from hokical.guarantees._score_table import ScoreTable, class_levels
from hokical.guarantees._selective import Evidence, SelectivePrediction, selective_prediction
from hokical.rules._base import Rule
from hokical.rules._predicting import labels_and_confidence, predict_on_host
from hokical.rules._wrapped import BalancedRule

#: Beyond so many classes, `certify` does not count examples by the probability of each.
_MOST_CLASSES = 1024
#: What to do about rows that look like those of the fit.
Reused = Literal["refuse", "ignore"]


def check_reused(reused: Any) -> Reused:
    """A choice of what to do about rows of the fit."""
    if reused not in get_args(Reused):
        raise ValueError(f"`reused` must be one of {list(get_args(Reused))}; got {reused!r}.")
    found: Reused = reused
    return found


def note(
    rule: Rule,
    data: Logits,
    labels: IntArray,
    weights: FloatArray | None,
    groups: Any,
    *,
    counts: bool,
) -> HeldOutPart:
    """What the rule predicts of held-out examples: of their true classes, and of each class."""
    if counts and not can_be_counts(weights):
        raise ValueError("`sample_weight` must be whole numbers with `counts=True`.")
    columns = None if groups is None else read_columns(groups, data.n_rows)
    unit = 1.0
    if weights is not None:
        rows, unit = np.flatnonzero(weights), 1.0 if counts else float(weights.max())
        data, labels, weights = data.take(rows), labels[rows], weights[rows]
        columns = None if columns is None else take_rows(columns, rows)
    forms = _serving_forms(data)
    predictions = [labels_and_confidence(rule, form) for form in forms]
    odds = [scores.confidence_log_odds(confidence) for _, confidence in predictions]
    wrong = np.any([predicted != labels for predicted, _ in predictions], axis=0)
    level = scores.conservative_levels(odds, wrong, data.to_host(data.top))
    found = replace(Conformity.from_rows(rule, forms, labels), weights=weights, unit=unit)
    classes = None
    if not isinstance(data, TopK) and data.n_classes <= _MOST_CLASSES:
        proba = predict_on_host(rule, "proba", data).astype(np.float64)
        classes = ScoreTable.by_class(proba, labels, weights if counts else None)
    return HeldOutPart(found, level, wrong, classes, columns)


def abstain(
    rule: Rule,
    kept: CalibrationData,
    data: Logits,
    groups: Any,
    *,
    risk: float,
    delta: float,
    by_group: bool,
) -> SelectivePrediction:
    """Labels on the host, and which of them to accept."""
    source, table = _find_scores(rule, kept, "predict_or_abstain")
    cells = None
    if by_group:
        if table.groups is None or groups is None:
            raise ValueError(
                '`by="group"` needs `groups`, of the rows and of examples that count alike: call '
                "`certify(logits, labels, groups=groups)` first."
            )
        cells, _ = table.groups.match(groups, data.n_rows, "are not accepted")
    labels, confidence = labels_and_confidence(rule, data)
    return selective_prediction(
        labels,
        confidence,
        _levels(source, data, confidence),
        table,
        cells,
        risk=risk,
        delta=delta,
        certified_on=source,
        untested=_untested(rule, source, data, labels),
    )


def accuracy_interval(
    rule: Rule, kept: CalibrationData, data: Logits, *, delta: float
) -> FloatArray:
    """An interval (n, 2) on the host for the accuracy of labels with a similar score."""
    own = None
    if kept.held_out_scores is None:
        own = rule.on_device_of(data).label_interval(data)
    if own is not None:
        return np.stack([data.to_host(end) for end in own], axis=1)
    source, table = _find_scores(rule, kept, "predict_interval")
    confidence = predict_on_host(rule, "confidence", data)
    # Examples were counted one level away where that is conservative (`conservative_levels`).
    found = table.whole.intervals(_levels(source, data, confidence), delta)
    ends = [np.minimum(found[:, 0], confidence), np.maximum(found[:, 1], confidence)]
    untested = _untested(rule, source, data)
    if untested is not None:
        ends[0][untested], ends[1][untested] = 0.0, 1.0
    return np.stack(ends, axis=1)


def class_interval(
    rule: Rule, kept: CalibrationData, data: Logits, label: int, *, delta: float
) -> FloatArray:
    """An interval (n, 2) on the host for the share of a class among rows of similar probability."""
    if kept.held_out_classes is None:
        raise ValueError(
            "`label` has no examples to go by. Call `certify(logits, labels)` first, with logits "
            f"of all classes, at most {_MOST_CLASSES:,} of them, and examples that count alike."
        )
    proba = predict_on_host(rule, "proba", data)[:, label].astype(np.float64)
    found = kept.held_out_classes.rows[label].intervals(class_levels(proba), delta)
    return np.stack([np.minimum(found[:, 0], proba), np.maximum(found[:, 1], proba)], axis=1)


def _untested(
    rule: Rule, source: Evidence, data: Logits, labels: IntArray | None = None
) -> BoolArray | None:
    """Which predicted labels (n,) the examples do not test; None where they test all.

    Those of a fit test the classifier's own labels, which do not depend on them.
    """
    if source == "held-out" or rule.preserves_labels:
        return None
    found = predict_on_host(rule, "labels", data) if labels is None else labels
    return np.asarray(found != data.to_host(data.labels))


def _find_scores(rule: Rule, kept: CalibrationData, asked: str) -> tuple[Evidence, ScoreTable]:
    """The counts behind a guarantee, or an error that says how to get them."""
    if kept.held_out_scores is not None:
        return "held-out", kept.held_out_scores
    if kept.fit_scores is not None:
        return "fit", kept.fit_scores
    if isinstance(rule, BalancedRule):
        reason = "those of its fit, and of an earlier `certify`, have the old class frequencies"
    else:
        reason = (
            "those of its fit are no test of it (unequal weights, pixels or tokens of the same "
            "items, folds of a cross-validation, or a file before 0.4 of a method that may change "
            "labels)"
        )
    raise ValueError(
        f"`{asked}` has no examples to go by: {reason}. Call `certify(logits, labels)` first, "
        "with examples that nothing was fitted on."
    )


def _serving_forms(logits: Logits) -> list[Logits]:
    """The rows as they are, and as float32 if they are wider: confidence may have steps."""
    values = logits.values
    known = type(logits) in (Logits, GroupedLogits)
    plain = known and logits.is_numpy and values.dtype == np.float64
    if not plain or np.max(np.abs(values), where=np.isfinite(values), initial=0.0) > 3e38:
        return [logits]
    narrow = as_logits(values.astype(np.float32))
    return [logits, replace(logits, values=narrow.values, top=narrow.top)]


def _levels(source: Evidence, logits: Logits, confidence: FloatArray) -> IntArray:
    """The level (n,) of each example's score."""
    if source == "held-out":
        return scores.score_levels(scores.confidence_log_odds(confidence))
    return scores.score_levels(logits.to_host(scores.label_log_odds(logits)))
