"""Abstention and intervals for the accuracy of labels, by a rule and its calibration data."""

from dataclasses import replace
from typing import Any

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import as_groups
from hokical._core.logits import Logits, as_logits
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees import _scores as scores
from hokical.guarantees._calibration_data import CalibrationData
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._score_table import ScoreTable, accuracy_intervals, can_be_counts
from hokical.guarantees._selective import Evidence, SelectivePrediction, selective_prediction
from hokical.rules._base import Rule
from hokical.rules._predicting import predict_on_host
from hokical.rules._wrapped import BalancedRule


def count_held_out(
    rule: Rule,
    kept: CalibrationData,
    data: Logits,
    labels: IntArray,
    weights: FloatArray | None,
    groups: Any,
) -> CalibrationData:
    """The calibration data with these examples, which are held out, in place of earlier ones."""
    forms = _serving_forms(data)
    odds = [scores.confidence_log_odds(predict_on_host(rule, "confidence", form)) for form in forms]
    wrong = np.any([predict_on_host(rule, "labels", form) != labels for form in forms], axis=0)
    level = scores.conservative_levels(odds, wrong, data.to_host(data.top))
    counted = can_be_counts(weights)
    table = ScoreTable.from_examples(level, wrong, weights) if counted else None
    found = Conformity.from_rows(rule, forms, labels)
    if groups is not None:
        found = found.with_groups(as_groups(groups, data.n_rows))
    if weights is not None:
        counts, unit = weights[weights > 0.0], 1.0 if counted else float(weights.max())
        found = replace(found.take(weights > 0.0), weights=counts, unit=unit)
    return replace(kept, held_out_scores=table, held_out_conformity=found)


def abstain(
    rule: Rule, kept: CalibrationData, data: Logits, *, risk: float, delta: float
) -> SelectivePrediction:
    """Labels on the host, and which of them to accept."""
    source, table = _find_scores(rule, kept, "predict_or_abstain")
    confidence = predict_on_host(rule, "confidence", data)
    labels = predict_on_host(rule, "labels", data)
    return selective_prediction(
        labels,
        confidence,
        _levels(source, data, confidence),
        table,
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
    if source == "fit" and kept.neighbours is not None:
        levels = data.to_host(rule.on_device_of(data).neighbour_levels(data)).astype(np.int64)
        found = accuracy_intervals(kept.neighbours, levels, delta)
    else:
        # Examples were counted one level away where that is conservative (`conservative_levels`).
        found = accuracy_intervals(table, _levels(source, data, confidence), delta, doubt=1)
    ends = [np.minimum(found[:, 0], confidence), np.maximum(found[:, 1], confidence)]
    untested = _untested(rule, source, data)
    if untested is not None:
        ends[0][untested], ends[1][untested] = 0.0, 1.0
    return np.stack(ends, axis=1)


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
            "those of its fit are no test of it (weights that are not whole numbers of "
            "examples, pixels or tokens of the same items, folds of a cross-validation, or a "
            "file before 0.4 of a method that may change labels)"
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
