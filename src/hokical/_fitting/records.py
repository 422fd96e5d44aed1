"""What a calibrator keeps of the examples of its fit, once there is a rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hokical._core.logits import TopK
from hokical._fitting.examples import Examples
from hokical.guarantees.class_features import (
    ClassFeatures,
    GroupFeatures,
    shift_features,
)
from hokical.guarantees.evidence import FitRecord, confidence_table
from hokical.guarantees.fingerprints import row_draws
from hokical.rules.base import (
    Rule,
    labels_and_confidence,
    predict_blocks,
    predict_on_host,
)

#: Calibration examples whose calibrated confidence is counted.
_MAX_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MAX_PROBABILITIES = 1 << 20
#: Examples that new rows can be compared with, by their effective number.
_MIN_REFERENCE = 100


def complete_record(record: FitRecord, rule: Rule, examples: Examples) -> FitRecord:
    """The record with counts by calibrated confidence, and class frequencies.

    The frequencies are those that the rule implies.
    """
    block = _with_needed_groups(examples, rule)
    n = block.n_rows
    rows = np.flatnonzero(row_draws(0, n) * n < _MAX_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    if record.label_scores is not None:
        labels, confidence = labels_and_confidence(rule, data)
        wrong = labels != block.labels[rows]
        counted = block.counting[rows].astype(np.float64)
        table = confidence_table(confidence.astype(np.float64), wrong, counted)
        record = replace(record, confidences=table)
    classes = record.class_features
    size = max(_MAX_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:size]
    if isinstance(data, TopK) or classes is None or not weights.any():
        return record
    sample = data.take(slice(0, min(size, data.n_rows)))
    with sample.backend.in_float64():  # and on the device of the logits
        proba = predict_blocks(rule, "proba", sample)
        labels = block.labels[rows][:size]
        classes = classes.with_implied(proba, labels, weights, sample)
    groups = record.group_features
    if rule.needed_groups is not None and classes.cells.size:
        groups = _count_groups(rule, block, size)
    return replace(record, class_features=classes, group_features=groups)


def shift_record(record: FitRecord, rule: Rule, examples: Examples) -> FitRecord | None:
    """The record with features of other examples by class, to compare new rows with.

    None of too few examples, or without one of a class that the record has.
    """
    assert record.class_features is not None
    cells = shift_features(examples.logits)[1]
    rows = (examples.labels, examples.correct, examples.counts, examples.n_classes)
    classes = ClassFeatures.from_rows(cells, *rows)
    is_missing = (record.class_features.count > 0.0) & (classes.count == 0.0)
    if classes.effective.sum() < _MIN_REFERENCE or is_missing.any():
        return None
    changed = replace(
        record, label_scores=None, class_features=classes, group_features=None
    )
    return complete_record(changed, rule, examples)


def _with_needed_groups(block: Examples, rule: Rule) -> Examples:
    """The examples with what a rule needs of the columns of groups that it uses."""
    needed = rule.needed_groups
    if needed is None or block.coding is None:
        return block
    inputs = np.asarray(block.logits.codes)
    of_fit = block.coding.codes_of_inputs(inputs)
    columns = []
    for index, name in enumerate(needed.columns):
        source = inputs if needed.is_numeric(index) else of_fit
        columns.append(source[:, block.coding.columns.index(name)])
    codes = np.stack(columns, axis=1)
    return replace(block, logits=replace(block.logits, codes=codes))


def _count_groups(rule: Rule, block: Examples, size: int) -> GroupFeatures:
    """The class scores of each group, of a sample of about `size` rows."""
    rows = np.flatnonzero(row_draws(0, block.n_rows) * block.n_rows < size)
    data = block.logits.take(rows)
    proba = predict_on_host(rule, "proba", data).astype(np.float64)
    codes = rule.needed_groups.codes_of_inputs(data.codes)
    coded = replace(data, codes=codes)
    return GroupFeatures.from_rows(coded, proba, block.labels[rows], block.counts[rows])
