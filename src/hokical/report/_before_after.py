"""A fitted calibrator on new examples: what is said before and after, for tables and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import sum_by
from hokical._core.reading import to_numpy
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make
from hokical.calibrators._confidence import ConfidenceCalibrator
from hokical.calibrators._multilabel import MultilabelCalibrator, read_labels
from hokical.metrics._examples import as_examples
from hokical.report._comparison import (
    Comparison,
    check_examples,
    judge,
    judge_answers,
)
from hokical.report._results import DataFacts, MethodResult, Provenance


def before_and_after(
    calibrator: Calibrator | ConfidenceCalibrator | MultilabelCalibrator,
    given: Any,
    truth: Any,
    *,
    groups: Any = None,
    label_names: Sequence[str] = (),
    title: str | None = None,
    data_name: str | None = None,
    n_bins: int = 15,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> Comparison:
    """A comparison, for tables and reports, of what is said before and after calibration.

    To fit and compare several methods for logits see `hokical.compare`.

    Parameters
    ----------
    calibrator : a fitted calibrator
        One of confidences or of several labels may not be fitted yet: then there is no "after".
    given, truth
        Examples that nothing was fitted on: logits (n, classes) and labels (n,); confidences (n,)
        and whether answers are right (n,); or scores and labels, both (n, labels), where every
        known label counts as an answer of its own.
    groups : groups of the answers, as in `fit`
        Whom it is wrong about; of several labels, each is a group.
    label_names : names of the labels, by column
    title, data_name : title of the report, name of the data
    n_bins : bins of the calibration errors in tables
    n_resamples, random_state
        As in `compare`. Of several labels there are no intervals of single methods, nor bounds, as
        labels of one example go together; differences between methods are by example.

    Examples
    --------
    >>> from hokical import ConfidenceCalibrator
    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([0.8, 0.9, 1.0], size=(2, 2000))
    >>> right = rng.random((2, 2000)) < 0.8 * stated
    >>> cal = ConfidenceCalibrator().fit(stated[0], right[0])
    >>> found = before_and_after(cal, stated[1], right[1], n_resamples=0)
    >>> found["uncalibrated"].score("ece") > 5 * found["confidence"].score("ece")
    True
    """
    options: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    options["n_bins"] = n_bins
    if isinstance(calibrator, Calibrator):
        found = judge_logits([calibrator], (given, truth), options, groups, data_name)
        return replace(found, title=title)
    if isinstance(calibrator, MultilabelCalibrator):
        said, correct, example, groups = _by_label(calibrator, given, truth, label_names)
        options["n_resamples"] = 0
    elif isinstance(calibrator, ConfidenceCalibrator):
        said, example = {"uncalibrated": calibrator._uncalibrated(given)}, None
        if "rule_" in vars(calibrator):
            said[calibrator.name] = to_host(calibrator.predict(given, groups))
        correct = as_examples(said["uncalibrated"], truth).correct
    else:
        raise TypeError(
            f"`calibrator` must be one of hokical; got {type(calibrator).__name__}. See "
            "`hokical.compare` for others."
        )
    results = []
    for name, confidence in said.items():
        who = None if name == "uncalibrated" else calibrator
        result = judge_answers(name, who, (confidence, correct), options, groups)
        results.append(result if example is None else _by_example(result, example))
    what: Any = "confidences" if example is None else "scores"
    values = to_numpy(given, "given").reshape(len(given), -1)
    facts = DataFacts.describe(values, float(correct.mean()), data_name, what)
    origin = Provenance.collect(None, facts, random_state)
    return Comparison(tuple(results), origin, [*said][-1], title)


def judge_logits(
    fitted: Sequence[Any], given: Any, options: Any, groups: Any, name: Any, full: bool = True
) -> Comparison:
    """The classifier as it is, and `fitted` ones, on (logits, labels); `options` of `summary`."""
    test = check_examples(given)
    own = make("uncalibrated").fit(*test)
    judged = [judge(c.name, c, test, options, groups, full=full) for c in (own, *fitted)]
    facts = DataFacts.collect(*test, name)
    origin = Provenance.collect(None, facts, options["random_state"])
    return Comparison(tuple(judged), origin, judged[-1].name)


def _by_label(
    calibrator: MultilabelCalibrator, scores: Any, labels: Any, names: Sequence[str]
) -> tuple[dict[str, FloatArray], BoolArray, IntArray, AnyArray]:
    """Every known label as an answer: what is said, whether it is there, its example and name."""
    own = calibrator._uncalibrated(scores)
    marks = read_labels(labels, own.shape)
    called = np.array([*names] or [f"label {k}" for k in range(own.shape[1])])
    if called.shape != own.shape[1:]:
        raise ValueError(
            f"`label_names` must name each of the {own.shape[1]} labels; got {called.size} names."
        )
    known = ~np.isnan(marks)
    said = {"uncalibrated": own[known]}
    if "rule_" in vars(calibrator):
        said[calibrator.name] = to_host(calibrator.predict_proba(scores))[known]
    of = np.broadcast_to(called, own.shape)[known]
    return said, marks[known] == 1.0, np.nonzero(known)[0], of


def _by_example(found: MethodResult, example: IntArray) -> MethodResult:
    """Without what dependent answers cannot have; scores of rows as means over their labels."""
    n_rows, known = int(example.max()) + 1, found.summary.estimates
    kept = {n: e for n, e in known.items() if n not in ("aurc", "selective_risk")}
    share = n_rows / example.size
    rows = {name: share * sum_by(example, one, n_rows) for name, one in found.row_scores.items()}
    return replace(
        found, summary=replace(found.summary, estimates=kept, bounds={}), row_scores=rows
    )
