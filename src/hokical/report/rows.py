"""Checked rows of logits for evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from hokical._core import reading
from hokical._core.arrays import to_host
from hokical._core.ensembles import Ensemble
from hokical._core.groups import check_rows_of
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import Rows
from hokical._core.runtime import WarningLog
from hokical._core.votes import Votes, order_votes, read_votes
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make
from hokical.guarantees.repeats import (
    RowMarks,
    warn_of_copies_in_test,
    warn_of_repeats_in_test,
)
from hokical.metrics import summaries
from hokical.report.confidences import assign_folds
from hokical.report.predictions import Setting
from hokical.rules.members import as_members

#: Labels that groups and sets cannot be tested with.
VOTES = "votes, as tests and sets need one label per row"


def read_logits(cal: Calibrator | None, rows: Rows, names: Sequence[str]) -> Rows:
    """Checked rows of logits, in the order of a fitted calibrator if there is one.

    Ensembles stay what they are, as each method pools them in its own way.
    """
    ensemble = rows.scores if isinstance(rows.scores, Ensemble) else None
    if cal is not None:
        checked: Rows = cal.schema_.read_labelled(rows, grouped=False)
    else:
        data = as_logits(rows.scores) if ensemble is None else as_members(ensemble)
        labels = reading.as_labels(
            rows.labels, data.n_rows, data.n_classes, classes=tuple(names)
        )
        checked = check_rows_of(rows, data, labels, data.n_rows)
        predicted = data.to_host(data.labels)
        reading.warn_of_contradiction(predicted, labels, checked.weights)
    return checked if ensemble is None else replace(checked, scores=ensemble)


def split_votes(
    rows: Rows,
    names: Sequence[Sequence[str]],
    read: Callable[[Any], Logits] = as_logits,
) -> tuple[Rows, Votes | None]:
    """Rows with checked scores, and their votes; None where each row has one label.

    A frame of votes goes by the first `names` that are its columns, then by the columns
    of the scores. Ensembles stay what they are.
    """
    if np.ndim(rows.labels) != 2:
        return rows, None
    if isinstance(rows.scores, Ensemble):
        columns = rows.scores.columns
    else:
        columns = rows.columns
        rows = replace(rows, scores=read(rows.scores))
    names = (*names, columns)
    votes = read_votes(rows.labels, rows.n_rows, rows.n_classes, names=names)
    if votes is None:
        return rows, None
    if votes.are_hard:
        return replace(rows, labels=votes.labels), None
    labels = order_votes(rows.labels, names)
    return replace(rows, labels=reading.to_floats(labels, "labels", "fiub")), votes


def weigh_votes(rows: Rows, votes: Votes, setting: Setting) -> tuple[Rows, Setting]:
    """Weighted rows for each class with votes; those of a row belong together."""
    rows = replace(
        rows,
        scores=rows.scores.take(votes.rows),
        labels=votes.labels,
        weights=votes.weigh(rows.weights, rows.n_rows),
    )
    return rows, cluster_votes(votes, setting)


def cluster_votes(votes: Votes, setting: Setting) -> Setting:
    """The setting of weighted rows, of which those of an example belong together."""
    codes = votes.rows if setting.cluster is None else setting.cluster[votes.rows]
    return replace(setting, cluster=codes, votes_of=votes.rows)


def refuse_for_votes(**options: object) -> None:
    """Raise if an option is given that needs one label per row."""
    for name, value in options.items():
        if value is not None:
            raise TypeError(f"`{name}` cannot be given for {VOTES}; leave it out.")


def uncalibrated_of(rows: Rows) -> Calibrator:
    """The softmax of rows; of an ensemble, the mean of its members' own softmaxes."""
    if isinstance(rows.scores, Ensemble):
        return make("uncalibrated").fit(rows.scores[:1], [0])
    return uncalibrated_softmax(rows.n_classes)


def uncalibrated_softmax(n_classes: int) -> Calibrator:
    """The uncalibrated softmax, of one row: it learns nothing, and keeps no counts
    of a fit.
    """
    return make("uncalibrated").fit(np.zeros((1, n_classes)), [0])


def logits_of(rows: Rows) -> Logits:
    """Checked logits of rows; of an ensemble those of the mean of its members."""
    if not isinstance(rows.scores, Ensemble):
        logits: Logits = rows.scores
        return logits
    return uncalibrated_of(rows).fitted.read(rows.scores)


def warn_of_dependent_rows(
    rows: Rows, *, name: str = "x", folds: int | None = None
) -> None:
    """Warn if checked rows of logits, or of an ensemble, are copies or several of each
    example.
    """
    logits = logits_of(rows)
    copies = RowMarks.of(logits, rows.labels, rows.weights).copies()
    with WarningLog.current().once():
        warn_of_copies_in_test(copies, name=name, folds=folds)
        if type(logits) is Logits and rows.weights is None:
            warn_of_repeats_in_test(logits, rows.labels, folds=folds)


def measure_sets(
    calibrator: Any,
    test: Rows,
    coverage: float,
    groups: Any = None,
    cluster: Any = None,
) -> summaries.SetSummary:
    """Sets whose threshold one half of the test set, or of its clusters, gives, on
    the other.

    The halves are drawn, as the order of the rows may have to do with their labels.
    """
    logits = calibrator.fitted.read(test.scores, groups)
    labels = test.labels
    half = assign_folds(np.zeros(labels.size, np.int64), 2, cluster)
    certifying = np.flatnonzero(half == 0)
    measured = np.flatnonzero(half == 1)
    certified = copy(calibrator)
    # A test on the validation set is reported elsewhere.
    certified.certify(logits.take(certifying), labels[certifying], reused="ignore")
    sets = certified.predict_set(logits.take(measured), coverage=coverage)
    return summaries.summarize_sets(
        to_host(sets.members),
        labels[measured],
        goal=coverage,
        source=(
            "Thresholds come from a random half of the test set; coverage is that of "
            "the other half."
        ),
    )
