"""What a calibrator makes of its input: names of classes, frames, counts for guarantees, files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np

from hokical._core.conversion import from_probabilities, probability_scale
from hokical._core.logits import Logits, as_logits
from hokical._core.messages import warn_user
from hokical._core.reading import Rows, as_labels, class_of_column, column_names, to_numpy
from hokical._core.storage import CalibratorFileError
from hokical._core.topk import TopK
from hokical._fitting.examples import Examples, effective_size
from hokical.calibrators.stored import check_stored
from hokical.guarantees.calibration_data import CalibrationData, row_draws
from hokical.guarantees.class_scores import GroupScores, class_means
from hokical.guarantees.scores import ScoreTable, Support, confidence_log_odds, score_levels
from hokical.rules.base import Rule, labels_and_confidence, predict_blocks, predict_on_host

#: Rows from which on they are checked for looking like probabilities: fewer can sum to 1 by
#: coincidence.
_FEWEST_ROWS = 4
#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MOST_PROBABILITIES = 1 << 20
#: More classes than this mean a damaged file.
_MOST_COLUMNS = 1 << 31


def convert_frame(frame: Any, metadata: dict[str, Any]) -> Any:
    """The logits of a frame of probabilities, if by the `metadata` the fit was on such a table.

    Without that, columns that are named as probabilities are refused.
    """
    names = column_names(frame)
    if not names:
        return frame
    if metadata.get("scores") == "probabilities":
        values = to_numpy(frame, "logits")
        is_proba = values.min() >= 0.0 and np.allclose(values.sum(axis=1), 1.0, atol=0.05)
        zeros = metadata.get("zeros", "unlikely")
        return from_probabilities(values, zeros=zeros) if is_proba else frame
    if all(name.lower().startswith("prob") and class_of_column(name) != name for name in names):
        raise ValueError(
            f"`logits` must be logits, as in the fit; columns such as `{names[0]}` hold "
            "probabilities. Convert them: `hokical.from_probabilities`."
        )
    return frame


def warn_of_probabilities(data: Logits, support: Support | None) -> None:
    """Warn if rows look like probabilities, and those of the fit, by its support, did not."""
    if support is None or type(data) is not Logits or not data.is_numpy:
        return
    highest = data.top.max() if data.n_rows >= _FEWEST_ROWS else np.inf
    if highest > 100.0 or data.top.min() <= 0.0:
        return
    scale = probability_scale(data, data.top)
    before = support.top[1]  # of logarithms of probabilities at most 0
    if (scale == 1.0 and not 0.0 < before <= 1.0) or (scale == 100.0 and before < highest):
        kind = "probabilities" if scale == 1.0 else "percentages"
        warn_user(
            f"`logits` look like {kind}: all rows sum to {scale:g}, and those of the fit did "
            "not. Pass logits, as in the fit.",
            UserWarning,
        )


def name_classes(given: Rows, names: tuple[str, ...]) -> Rows:
    """Rows whose classes have these names, which their labels may be."""
    columns = as_logits(given.scores).n_classes
    if not len(names) == len(set(names)) == columns:
        raise ValueError(
            f"`classes` must name each of the {columns} columns of `logits`; got {len(names)}."
        )
    labels = as_labels(given.labels, len(given.labels), columns, classes=names)
    return given._replace(labels=labels, classes=names)


def count_examples(kept: CalibrationData, rule: Rule, block: Examples) -> CalibrationData:
    """With counts of calibration examples by confidence, and the frequencies that it implies."""
    n = block.n_rows
    needed = rule.needed_groups
    if needed is not None and block.coding is not None:  # of all columns, those that it uses
        used = [block.coding.columns.index(name) for name in needed.columns]
        codes = np.asarray(block.logits.codes)[:, used]
        block = replace(block, logits=replace(block.logits, codes=codes))
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    if kept.fit_scores is not None:
        labels, confidence = labels_and_confidence(rule, data)
        level = score_levels(confidence_log_odds(confidence.astype(np.float64)))
        counted = block.counting[rows].astype(np.float64)
        table = ScoreTable.from_examples(level, labels != block.labels[rows], counted)
        kept = replace(kept, fit_confidences=table)
    most = max(_MOST_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:most]
    if isinstance(data, TopK) or kept.class_scores is None or not weights.any():
        return kept
    some = data.take(slice(0, min(most, data.n_rows)))
    with some.backend.in_float64():  # and on the device of the logits
        proba = predict_blocks(rule, "proba", some)
        means = class_means(proba, block.labels[rows][:most], weights, some)
    known = kept.class_scores.with_implied(*means, effective_size(weights / weights.sum()))
    kept = replace(kept, class_scores=known)
    if needed is None or not known.cells.size:
        return kept
    rows = np.flatnonzero(row_draws(0, n) * n < most)
    data, weights = block.logits.take(rows), block.counts[rows]
    proba = predict_on_host(rule, "proba", data).astype(np.float64)
    found = GroupScores.from_rows(data, proba, block.labels[rows], weights)
    return replace(kept, group_scores=found)


def check_document(document: dict[str, Any]) -> tuple[Rule, int, CalibrationData]:
    """Rule, number of classes and kept data of a file's contents, if they belong together."""
    rule: Rule = check_stored(document, "rule", Rule)
    n_classes: int = check_stored(document, "n_classes", int)
    kinds = get_type_hints(CalibrationData).items()
    kept = CalibrationData(**{name: check_stored(document, name, kind) for name, kind in kinds})
    if not 2 <= n_classes < _MOST_COLUMNS:
        raise CalibratorFileError(f"the file must be for at least 2 classes; got {n_classes}.")
    if rule.n_classes not in (None, n_classes):
        raise CalibratorFileError(
            f"the file is for {n_classes} classes, and its rule for {rule.n_classes}."
        )
    for name in kept.unsuitable(n_classes):
        raise CalibratorFileError(f"the file has no usable `{name}` for {n_classes} classes.")
    return rule, n_classes, kept
