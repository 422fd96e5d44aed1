"""`evaluate`: every metric of a calibrator on new rows, before and after calibration.

`compare` fits several methods on one validation set and evaluates them on one test set.

Data that need not fit into memory are evaluated in one pass, by sums that add up. Of
maps, an item (an image, a sentence) is one example, not a position: positions of an
item are right and wrong together. So intervals are those of sums by item, and the
bounds are about a position drawn at random from a new item. Let G_nj be the sum of
correct - confidence over the positions of item n in bin j, divided by the number of its
positions. Then sum_j |G_nj| <= 1, which is all that the proofs of the bounds need
(`docs/theory.md`), with the mean of (sum_j |G_nj|)^2 in place of the Brier score.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import numpy as np
from scipy.special import stdtrit

from hokical._core import reading
from hokical._core.arrays import Array, FloatArray, IntArray, to_host
from hokical._core.checks import bin_index, sum_by
from hokical._core.ensembles import Ensemble
from hokical._core.groups import check_rows_of, read_columns, take_rows
from hokical._core.logits import Logits, TopK, as_logits
from hokical._core.reading import Rows
from hokical._core.runtime import WarningLog, progress_bar, track
from hokical._core.votes import Votes, join_votes, read_votes
from hokical.calibrators import confidence
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, method_names, new_calibrator
from hokical.calibrators.stored import check_plain_logits, clone
from hokical.dense import Dense
from hokical.guarantees.fingerprints import number_hashes, warn_of_rows_of_fit
from hokical.guarantees.repeats import (
    RowMarks,
    copies_reported,
    warn_of_copies_in_fit,
    warn_of_copies_in_test,
    warn_of_repeats_in_test,
)
from hokical.metrics import groups as audits
from hokical.metrics import summaries
from hokical.metrics.levels import Outcomes, add_known, as_examples
from hokical.metrics.risk_models import summarize_event
from hokical.report.confidences import (
    ConfidenceEntrant,
    LabelledConfidences,
    Methods,
    are_confidences,
    assign_folds,
    choose_entrants,
    cross_fit,
    read_answer_pairs,
    warn_of_copied_answers,
)
from hokical.report.models import (
    CalibratedProbabilityModel,
    LabelledInputs,
    Model,
    ModelPredictions,
    ProbabilityModel,
    classes_of,
    is_model,
    name_models,
)
from hokical.report.results import Comparison, DataFacts, Evaluation
from hokical.rules.base import predict_all
from hokical.rules.members import as_members
from hokical.streams import checked_blocks, open_source

#: The method that the headline is about if none is named: the default of the library.
DEFAULT = "auto"
#: What groups and sets cannot be tested with.
_VOTES = "votes, as tests and sets need one label per row"
#: Metrics with intervals by item: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", *summaries.ROW_SCORES)


@dataclass(frozen=True, eq=False)
class Predicted(Outcomes):
    """What a method predicts for rows: of logits also the predicted `label` (n,)."""

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
            labels,
            proba,
            predicted,
        )

    def event(self, positive: int) -> Outcomes | None:
        """Of two classes, the probability of one and whether it is the true one;
        None of more.
        """
        data = self.vectors
        return (
            None if data is None or data.proba.shape[1] != 2 else data.event(positive)
        )


@dataclass(frozen=True, eq=False)
class Setting:
    """How methods are evaluated: options of the summary, name of the data, groups,
    class names.

    `positive` is the event of two classes. `cluster` (n,) are numbers of what rows
    belong to, None if they are independent. If labels were votes, `votes_of` (n,) says
    which weighted rows are one example. Of models, `coverage` is that of their sets.
    `progress` says whether a bar is shown, None if that depends on the terminal.
    """

    options: summaries.SummaryOptions
    data_name: str | None = None
    groups: Any = None
    class_names: Sequence[str] = ()
    positive: int = 1
    cluster: IntArray | None = None
    votes_of: IntArray | None = None
    coverage: float | None = None
    progress: bool | None = None

    @property
    def event(self) -> str:
        """The name of the event, of two classes."""
        return (
            self.class_names[self.positive]
            if self.class_names
            else f"class {self.positive}"
        )


def judge(
    name: str,
    calibrator: Any,
    rows: Predicted,
    setting: Setting,
    data: DataFacts,
    sets: Any = None,
) -> Evaluation:
    """The evaluation of one method's predictions; rows of weight 0 do not count."""
    options = setting.options
    codes = setting.cluster
    groups = classes = binary = None
    if setting.groups is not None:
        event = rows.event(setting.positive)
        questions = ({} if event is None else {setting.event: event}) | {
            audits.LABEL: rows
        }
        groups = audits.audit(questions, setting.groups, rows.weight, options.delta)
    votes_of = setting.votes_of
    if rows.weight is not None:
        counting = rows.weight > 0.0
        codes = None if codes is None else codes[counting]
        votes_of = None if votes_of is None else votes_of[counting]
    rows = rows.counted()
    scores = summaries.row_scores(rows)
    weight = rows.weight
    levels = summaries.count_levels(
        rows, n_bins=options.n_bins, scores=scores, codes=codes
    )
    event = rows.event(setting.positive)
    events = None if event is None else summaries.count_levels(event, codes=codes)
    if votes_of is not None:
        n_examples = int(np.unique(votes_of).size)
        data = replace(data, n_rows=n_examples)
        levels = replace(levels, n_rows=n_examples)
        events = None if events is None else replace(events, n_rows=n_examples)
    if events is not None:
        binary = summarize_event(events, options.delta, setting.event)
    if rows.label is not None and votes_of is None:  # tests need one label per row
        classes = audits.label_rows(
            rows, rows.label, setting.class_names, options.delta
        )
    if (
        codes is not None
    ):  # clusters are what is independent: scores have the same mean over them
        place = np.unique(codes, return_inverse=True)[1].ravel()
        own = rows.filled_weight()
        n = int(place.max()) + 1
        share = n / float(own.sum())
        weight = None
        scores = {
            key: share * sum_by(place, own * one, n) for key, one in scores.items()
        }
        if votes_of is None or n != data.n_rows:
            data = replace(data, n_clusters=n)
        classes, groups = (
            each and audits.count_items(each, n) for each in (classes, groups)
        )
    return Evaluation(
        name=name,
        calibrator=calibrator,
        is_uncalibrated=_is_uncalibrated(name, calibrator),
        summary=summaries.summarize(levels, options),
        levels=levels,
        data=data,
        classes=classes,
        groups=groups,
        sets=sets,
        row_scores=scores,
        weight=weight,
        binary=binary,
    )


def _is_uncalibrated(
    name: str, calibrator: Calibrator | confidence.OutcomeCalibrator | None
) -> bool:
    """Whether predictions are those before any calibration.

    The name is that of the evaluation of a model or of confidences, which have no
    calibrator then.
    """
    return (name if calibrator is None else calibrator.name) == "uncalibrated"


def evaluate(
    cal: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    cluster: Any = None,
    coverage: float | None = None,
    folds: int | None = None,
    mask: Any = None,
    classes: Sequence[str] = (),
    positive: Any = None,
    data_name: str | None = None,
    n_bins: int = 15,
    delta: float = 0.05,
    class_names: Sequence[str] | None = None,
) -> Evaluation:
    """Every metric of a calibrator on new rows, before and after calibration.

    Parameters
    ----------
    cal : calibrator, model or None; a method where there are folds
        Fitted or loaded: of logits, a `ConfidenceCalibrator`, a `MultilabelCalibrator`
        or `Dense`. A model is a classifier with `predict_proba` and `classes_`; of a
        `CalibratedClassifier` the estimator's own probabilities come first. None
        evaluates the uncalibrated softmax of logits (n, classes), or confidences (n,).
    x : array, or a stream
        Examples that nothing was fitted on: logits (n, classes) or a `TopK`;
        confidences (n,); scores of several labels (n, labels), where every known label
        counts as a prediction of its own; maps for `Dense`; inputs of a model. Without
        `y` it is a stream that need not fit into memory: a path, a source of
        `hokical.streams`, or an iterable of chunks (logits, labels) or (logits, labels,
        sample_weight).
    y : array, optional
        Labels (n,), or votes or shares (n, classes) of each label; of confidences
        whether each was right (n,); of several labels (n, labels); of a model values of
        its `classes_` (n,).
    sample_weight : array of shape (n,), optional
        How much each row counts; then there are no bounds.
    groups : array of shape (n,), or several columns, optional
        Tells which groups are miscalibrated, as in `hokical.metrics.group_table`; also
        passed to a calibrator that learned from groups. Of several labels, each is a
        group.
    cluster : array of shape (n,), optional
        Which rows belong together, as several images of a patient or answers to a
        question. Without it rows are taken to be independent, and intervals are too
        narrow where they are not. With it intervals, tests and differences allow for
        it, as in `hokical.metrics.summary`, and there are no bounds.
    coverage : float, optional
        Also measures the prediction sets of `cal` with this coverage; those of a
        `CalibratedClassifier` after its `certify`.
    folds : int, optional
        Without other examples to test on, of logits (n, classes): `cal` is a method, a
        name or an unfitted calibrator; of confidences and signals: a
        `ConfidenceCalibrator`. Each of so many folds, stratified by class, is predicted
        by a fit on the others; rows of one `cluster` are in one fold. Intervals are
        conditional: they are about the mean of these fits on new examples, and treat
        the fits as given; bounds are left out. `Evaluation.calibrator` is fitted on all
        examples.
    mask : array, optional
        Of `Dense`: which positions count.
    classes : sequence of str
        Names of the classes, or of the labels, by column.
    positive : str or int, optional
        Of two classes: the name or number of the event, whose probability comes first
        in all that is shown; see `Evaluation.binary`. By default it is the second
        class.
    data_name : str, optional
        Name of the data in reports.
    n_bins : int
        Bins of the calibration errors.
    delta : float
        Probability that an interval or a bound fails. Intervals of `Dense` are by item;
        several labels have none, as labels of one example are dependent.
    class_names : sequence of str, optional
        Deprecated, see `classes`.

    Returns
    -------
    evaluation : Evaluation
        `evaluation["ece"]` is a metric after calibration with its interval,
        `evaluation.before["ece"]` the same without calibration. `headline` and
        `verdict` say what changed, `to_html(path)` writes a report, `plot()` draws a
        reliability diagram.

    Examples
    --------
    >>> from hokical import TemperatureScaling, evaluate
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = TemperatureScaling().fit(val_logits, val_labels)
    >>> found = evaluate(cal, logits, labels)
    >>> round(found.before["ece"].value, 3), round(found["ece"].value, 3)
    (0.055, 0.01)
    """
    classes = audits.renamed_classes(classes, class_names)
    given = {
        "sample_weight": sample_weight,
        "groups": groups,
        "coverage": coverage,
        "mask": mask,
        "positive": positive,
        "folds": folds,
        "cluster": cluster,
    }

    def refuse(kind: str, *allowed: str) -> None:
        for name, value in given.items():
            if value is not None and name not in allowed:
                raise TypeError(f"`{name}` cannot be given for {kind}; leave it out.")

    if is_model(cal) and not isinstance(cal, Dense):
        refuse("models", "sample_weight", "groups", "cluster", "coverage", "positive")
        inputs = LabelledInputs.read(x, y, sample_weight, groups)
        setting = Setting(
            summaries.SummaryOptions(n_bins, delta),
            data_name,
            groups,
            classes,
            cluster=None if cluster is None else reading.as_clusters(cluster, len(y)),
            coverage=coverage,
        )
        with progress_bar("Evaluating", None):
            return _evaluate_model(cal, inputs, setting, positive)
    of_confidences = isinstance(cal, confidence.ConfidenceCalibrator)
    cross_fitted = folds is not None and not of_confidences
    method = new_calibrator(cal, argument="cal") if cross_fitted else None
    if method is not None:
        cal = None
    names = getattr(cal, "class_names", ())
    if classes is not None and len(classes):
        names = classes
    if not (
        cal is None
        or isinstance(cal, (Calibrator, confidence.OutcomeCalibrator, Dense))
    ):
        raise TypeError(
            "`cal` must be a fitted calibrator of hokical, a classifier with "
            f"`predict_proba` and `classes_`, or None; got {type(cal).__name__}. "
            "Evaluate other probabilities: "
            "`evaluate(None, hokical.from_probabilities(proba), y)`."
        )
    if isinstance(cal, Calibrator):
        cal.check_fitted()
    if y is not None and not isinstance(cal, Dense):
        reader: Any = make("uncalibrated") if cal is None else cal
        fitted = cal if isinstance(cal, Calibrator) else None
        rows = reader.read_pair(x, y, sample_weight, groups, fitted_by=fitted)
        x = rows.scores
        y = rows.labels
        sample_weight = rows.weights
        groups = rows.groups
        names = names if len(names) else rows.classes
    codes = (
        None if cluster is None or y is None else reading.as_clusters(cluster, len(y))
    )
    options = summaries.SummaryOptions(n_bins, delta)
    setting = Setting(options, data_name, groups, names, cluster=codes)
    if isinstance(cal, Dense):
        refuse("Dense", "sample_weight", "mask")
        return _evaluate_dense(cal, (x, y, sample_weight, mask), setting)
    if y is None:
        if isinstance(cal, confidence.OutcomeCalibrator):
            rule = "`y` must be given for confidences and for several labels"
            raise TypeError(f"{rule}; got None. Streams are of logits.")
        refuse("a stream (without `y`), whose chunks may have weights", "positive")
        return _evaluate_source(cal, x, setting, positive)
    if isinstance(cal, confidence.MultilabelCalibrator):
        refuse("several labels")
        return _evaluate_labels(cal, x, y, setting)
    if of_confidences and folds is not None:
        refuse("confidences", "sample_weight", "groups", "cluster", "folds")
        return _evaluate_confidence_folds(cal, rows, setting, folds)
    if of_confidences or (cal is None and _is_vector(x) and folds is None):
        refuse("confidences", "sample_weight", "groups", "cluster")
        if cal is None:
            _refuse_probabilities(x, y)
        weight = reading.as_weights(sample_weight, len(y))
        return _evaluate_confidence(cal, x, y, weight, setting)
    allowed = ("sample_weight", "cluster", "positive", "folds")
    refuse("logits", "groups", "coverage", *allowed)
    if np.ndim(y) == 2:
        read = as_logits if fitted is None else fitted.schema_.read
        rows = rows._replace(scores=read(rows.scores))
        votes = read_votes(rows.labels, rows.n_rows, rows.n_classes)
        if votes is not None and votes.are_hard:
            rows = rows._replace(labels=votes.labels)
        elif votes is not None:
            refuse(_VOTES, *allowed)
            rows, setting = _weigh_votes(rows, votes, setting)
    test = _read_logits(fitted, rows, names)
    setting = _name_classes(setting, test.n_classes, positive)
    if setting.cluster is None:
        _warn_of_dependent_rows(test, folds=folds)
    with progress_bar("Evaluating", None):
        if folds is None:
            return _evaluate_logits(cal, test, setting, coverage)
        if coverage is not None:
            raise TypeError("`coverage` cannot be given with `folds`; leave one out.")
        return _evaluate_folds(method, test, setting, folds)


def _weigh_votes(rows: Rows, votes: Votes, setting: Setting) -> tuple[Rows, Setting]:
    """Weighted rows for each class with votes; those of a row belong together."""
    rows = rows._replace(
        scores=rows.scores.take(votes.rows),
        labels=votes.labels,
        weights=votes.weigh(rows.weights, rows.n_rows),
    )
    codes = votes.rows if setting.cluster is None else setting.cluster[votes.rows]
    return rows, replace(setting, cluster=codes, votes_of=votes.rows)


def _refuse_probabilities(x: object, y: object) -> None:
    """Raise if numbers (n,) can be probabilities of class 1 as well as confidences.

    Confidences of the likelier of two classes are at least 0.5; others come with
    booleans, whether each was right.
    """
    confidence = reading.to_numpy(x, "x")
    right = reading.to_numpy(y, "y")
    if right.dtype.kind == "b" or confidence.dtype.kind not in "fiu":
        return
    low = confidence < 0.5
    if low.any():
        row = int(low.argmax())
        raise ValueError(
            "`x` (n,) can be confidences or probabilities of class 1; got "
            f"{confidence[row]:g} in row {row} and `y` of dtype {right.dtype}. For "
            "confidences give as `y` whether each was right: `y.astype(bool)`. For "
            "probabilities of class 1 use `evaluate(None, "
            "hokical.from_probabilities(x), y)`."
        )


def _name_classes(setting: Setting, n_classes: int, positive: Any = None) -> Setting:
    """The setting with checked names, and the event among two classes, by its name or
    number.

    By default it is the second.
    """
    names = audits.check_names(setting.class_names, n_classes)
    setting = replace(setting, class_names=names)
    event = reading.event_index(positive, names, n_classes)
    return setting if event is None else replace(setting, positive=event)


def _is_vector(scores: Array) -> bool:
    """Whether they are one number for each row."""
    return not isinstance(scores, Ensemble) and np.ndim(scores) == 1


def _uncalibrated(rows: Rows) -> Calibrator:
    """The softmax of rows; of an ensemble, the mean of its members' own softmaxes."""
    if isinstance(rows.scores, Ensemble):
        return make("uncalibrated").fit(rows.scores[:1], [0])
    softmax: Calibrator = _softmax(rows.n_classes)
    return softmax


def _softmax(n_classes: int) -> Any:
    """The uncalibrated softmax, of one row: it learns nothing, and keeps no counts
    of a fit.
    """
    return make("uncalibrated").fit(np.zeros((1, n_classes)), [0])


def _logits_of(rows: Rows) -> Logits:
    """Checked logits of rows; of an ensemble those of the mean of its members."""
    if not isinstance(rows.scores, Ensemble):
        logits: Logits = rows.scores
        return logits
    return _uncalibrated(rows).fitted.read(rows.scores)


def _warn_of_dependent_rows(
    rows: Rows, *, name: str = "x", folds: int | None = None
) -> None:
    """Warn if checked rows of logits, or of an ensemble, are copies or several of each
    example.
    """
    logits = _logits_of(rows)
    copies = RowMarks.of(logits, rows.labels, rows.weights).copies()
    with WarningLog.current().once():
        warn_of_copies_in_test(copies, name=name, folds=folds)
        if type(logits) is Logits and rows.weights is None:
            warn_of_repeats_in_test(logits, rows.labels, folds=folds)


def _evaluate_logits(
    cal: Any, test: Rows, setting: Setting, coverage: Any = None
) -> Evaluation:
    pair = (test.scores, test.labels)
    weight = test.weights
    groups = setting.groups
    if coverage is not None and weight is not None:
        raise TypeError(
            "`coverage` cannot be given with `sample_weight`; leave one out."
        )
    data = DataFacts(
        n_rows=test.n_rows, n_classes=test.n_classes, name=setting.data_name
    )
    softmax = _uncalibrated(test)
    sets = None
    if cal is None and coverage is not None:
        sets = measure_sets(softmax, test, coverage, cluster=setting.cluster)
    rows = Predicted.of_logits(softmax, *pair, weight, groups)
    before = judge("uncalibrated", softmax, rows, setting, data, sets)
    if cal is None or cal.name == "uncalibrated":
        return before
    warn_of_rows_of_fit(cal.is_of_fit(test), setting.data_name)
    if coverage is not None:
        logits = cal.fitted.read(test.scores, groups)
        members = cal.predict_set(logits, coverage=coverage).members
        source = "Thresholds are those of the calibrator."
        sets = summaries.summarize_sets(
            to_host(members), test.labels, goal=coverage, source=source
        )
    rows = Predicted.of_logits(cal, *pair, weight, groups)
    return replace(judge(cal.name, cal, rows, setting, data, sets), before=before)


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


def _evaluate_folds(
    method: Any, test: Rows, setting: Setting, folds: int
) -> Evaluation:
    """Each fold predicted by a fit on the others."""
    labels = test.labels
    groups = {} if setting.groups is None else read_columns(setting.groups, labels.size)
    fold = assign_folds(labels, folds, setting.cluster)

    def fit(rows: IntArray) -> Any:
        some = test.take(rows)
        if setting.votes_of is not None:
            first, table = join_votes(setting.votes_of[rows], some, test.n_classes)
            scores = some.scores.take(first)
            return clone(method).fit(scores, table, sample_weight=table.sum(axis=1))
        own = {} if some.weights is None else {"sample_weight": some.weights}
        if groups and method.method.learns_groups:
            own["groups"] = take_rows(groups, rows)
        with copies_reported():
            return clone(method).fit(some.scores, some.labels, **own)

    predictions = []
    for k in range(folds):
        cal = fit(np.flatnonzero(fold != k))
        held_out = np.flatnonzero(fold == k)
        rows = test.take(held_out)
        row_groups = take_rows(groups, held_out) or None
        predictions.append(
            Predicted.of_logits(cal, rows.scores, rows.labels, rows.weights, row_groups)
        )
    order = np.argsort(np.argsort(fold, kind="stable"))
    joined: dict[str, Any] = {}
    for column in fields(Predicted):
        blocks = [getattr(block, column.name) for block in predictions]
        joined[column.name] = None
        if blocks[0] is not None:
            joined[column.name] = np.concatenate(blocks)[order]
    fitted = fit(np.arange(labels.size))
    before = _evaluate_logits(None, test, setting)
    after = judge(fitted.name, fitted, Predicted(**joined), setting, before.data)
    # Bounds are proven for one calibrator, not for several.
    summary = replace(after.summary, bounds={})
    return replace(after, before=before, summary=summary, folds=folds)


def _evaluate_source(
    cal: Calibrator | None, source: Any, setting: Setting, positive: Any = None
) -> Evaluation:
    """The evaluation of a source of chunks."""
    options = setting.options
    chunks = open_source(source, fitted_by=cal)
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    setting = _name_classes(setting, n_classes, positive)
    methods = {"uncalibrated": _softmax(n_classes)} | (
        {} if cal is None else {cal.name: cal}
    )
    sums: dict[str, tuple[Any, ...]] = {}
    n_rows = 0
    for block in checked_blocks(chunks, n_classes, cal):
        if not n_rows:
            warn_of_rows_of_fit(cal is not None and cal.is_of_fit(Rows(block.logits)))
        n_rows += block.n_rows
        if block.weights is not None and not block.weights.any():
            continue
        for name, method in methods.items():
            rows = Predicted.of_logits(
                method, block.logits, block.labels, block.weights
            ).counted()
            assert rows.label is not None
            w = rows.filled_weight()
            event = rows.event(setting.positive)
            columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
            block_sums = (
                summaries.count_levels(rows, n_bins=options.n_bins),
                np.stack([sum_by(rows.label, column, n_classes) for column in columns]),
                event and summaries.count_levels(event),
            )
            sums[name] = tuple(
                map(add_known, sums.get(name, (None, None, None)), block_sums)
            )
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    data = DataFacts(n_rows=n_rows, n_classes=n_classes, name=setting.data_name)
    class_names = setting.class_names or tuple(map(str, range(n_classes)))
    evaluation: Evaluation | None = None
    for name, (levels, by_label, events) in sums.items():
        classes = audits.label_table(class_names, by_label, options.delta)
        binary = events and summarize_event(events, options.delta, setting.event)
        evaluation = Evaluation(
            name=name,
            calibrator=methods[name],
            is_uncalibrated=name == "uncalibrated",
            summary=summaries.summarize(levels, options),
            levels=levels,
            data=data,
            before=evaluation,
            classes=classes,
            binary=binary,
        )
    assert evaluation is not None
    return evaluation


def _evaluate_model(
    model: Model,
    inputs: LabelledInputs,
    setting: Setting,
    positive: str | int | None = None,
) -> Evaluation:
    """The evaluation of a classifier's probabilities, and of those before."""
    classes = classes_of(model, "cal")
    names = audits.check_names(setting.class_names, classes.size)
    if not names:
        names = tuple(map(str, classes.tolist()))
    setting = _name_classes(replace(setting, class_names=names), classes.size, positive)
    labels = inputs.truth(classes)
    data = DataFacts(n_rows=labels.size, n_classes=classes.size, name=setting.data_name)

    def judge_rows(
        called: str,
        rows: ModelPredictions,
        sets: summaries.SetSummary | None,
    ) -> Evaluation:
        correct = rows.labels == labels
        weights = inputs.weights
        predicted = Predicted(
            rows.confidence, correct, weights, labels, rows.proba, rows.labels
        )
        return judge(called, None, predicted, setting, data, sets)

    sets = None
    if setting.coverage is not None:
        sets = _measure_model_sets(model, inputs, labels, setting.coverage)
    rows = ModelPredictions.of(model, inputs.X, "cal", inputs.groups)
    if setting.cluster is None:
        wrong = rows.labels != labels
        marks = RowMarks(number_hashes(rows.proba), labels, wrong)
        warn_of_copies_in_test(marks.copies(), name="X")
    after = judge_rows(type(model).__name__, rows, sets)
    uncalibrated = ModelPredictions.uncalibrated(model, inputs.X)
    if uncalibrated is None or not isinstance(model, CalibratedProbabilityModel):
        return after
    warn_of_rows_of_fit(model.is_of_fit(inputs.X), setting.data_name)
    return replace(after, before=judge_rows("uncalibrated", uncalibrated, None))


def _measure_model_sets(
    model: Model, inputs: LabelledInputs, labels: IntArray, coverage: float
) -> summaries.SetSummary:
    """How prediction sets of a certified model cover the true classes."""
    if not isinstance(model, CalibratedProbabilityModel) or inputs.weights is not None:
        raise TypeError(
            "`coverage` is for a certified `CalibratedClassifier`, without "
            "`sample_weight`; leave it out."
        )
    sets = model.predict_set(inputs.X, coverage=coverage, groups=inputs.groups)
    return summaries.summarize_sets(
        to_host(sets.members),
        labels,
        goal=coverage,
        source="Thresholds are those of the model.",
    )


def _evaluate_dense(
    cal: Dense, maps: tuple[Any, Any, Any, Any], setting: Setting
) -> Evaluation:
    """The evaluation of maps: of all positions that count, intervals and bounds by
    item.

    `maps` are logits, labels, weights and mask, each as `cal` takes them.
    """
    calibrator = cal.fitted_calibrator()
    by_position = _evaluate_source(calibrator, cal.source(maps), setting)
    evaluation: Evaluation | None = None
    for stage in by_position.stages:
        # The items of an iterator cannot be looked at again.
        items = () if isinstance(maps[0], Iterator) else cal.read_positions(maps)
        by_item = _evaluate_by_item(stage, items)
        evaluation = replace(by_item, before=evaluation, binary=None)
    assert evaluation is not None
    return evaluation


def _evaluate_by_item(evaluation: Evaluation, items: Iterable[Rows]) -> Evaluation:
    """The evaluation of all positions, with intervals and bounds by item, where
    there are items.
    """
    options = evaluation.summary.options
    summary = evaluation.summary.values_alone()
    table, weighted = _sum_items(evaluation.calibrator, items, options.n_bins)
    n = len(table)
    if not n:
        return replace(evaluation, summary=summary, classes=None)
    weight, *columns = table.sum(axis=2).T
    for name, sums in zip(_MEANS, columns, strict=True):
        if n > 1 and np.isfinite(sums).all():
            low_high = _student_interval(sums, weight, options.delta)
            metric = summaries.METRICS[name]
            value = summary[name].value
            summary.estimates[name] = summaries.with_ends(metric, value, low_high)
    gap = (table[:, 1] - table[:, 2]) / weight[:, None]
    error = float(np.abs(gap.mean(axis=0)).sum())
    square = float((np.abs(gap).sum(axis=1) ** 2).mean())
    bounds = {} if weighted else summaries.proven_bounds(error, square, n, options)
    classes = evaluation.classes and audits.count_items(evaluation.classes, n)
    return replace(evaluation, summary=replace(summary, bounds=bounds), classes=classes)


def _sum_items(
    calibrator: Any, items: Iterable[Rows], n_bins: int
) -> tuple[FloatArray, bool]:
    """Sums over the positions of each item, (items, sums, bins), and whether these have
    weights.

    The sums are of the weights, of what is right, of the confidence and of the scores.
    Items without weight are left out.
    """
    weighted = False
    blocks = [np.zeros((0, 1 + len(_MEANS), n_bins))]
    for positions in items:  # of whole items
        assert positions.labels is not None
        scores = as_logits(positions.scores)
        rows = Predicted.of_logits(
            calibrator, scores, positions.labels, positions.weights
        )
        weighted |= positions.weights is not None
        item = positions.ids - positions.ids[0]
        cell = item * n_bins + bin_index(rows.confidence, n_bins)
        losses = summaries.row_scores(rows).values()
        values: tuple[Any, ...] = (1.0, rows.correct, rows.confidence, *losses)
        weight = rows.filled_weight()
        n_cells = (item[-1] + 1) * n_bins
        sums = [sum_by(cell, weight * value, n_cells) for value in values]
        blocks.append(np.stack([column.reshape(-1, n_bins) for column in sums], axis=1))
    table = np.concatenate(blocks)
    return table[table[:, 0].any(axis=1)], weighted


def _student_interval(
    sums: FloatArray, weight: FloatArray, delta: float
) -> tuple[float, float]:
    """Student's interval of a mean over positions, from sums and weights by item."""
    n = sums.size
    mean = sums.sum() / weight.sum()
    squares = ((sums - mean * weight) ** 2).sum()
    error = np.sqrt(n / (n - 1.0) * squares) / weight.sum()
    width = -stdtrit(n - 1.0, 0.5 * delta) * error
    return float(mean - width), float(mean + width)


def _evaluate_confidence(
    cal: Any, x: Any, right: Any, weight: Any, setting: Setting
) -> Evaluation:
    stated = reading.to_numpy(x, "confidence") if cal is None else cal.uncalibrated(x)
    outcomes = as_examples(stated, right)
    warn_of_copied_answers(cal, Rows(x, right, weight), setting.cluster)
    data = _confidence_facts(outcomes.n_rows, setting)
    rows = Predicted(outcomes.confidence, outcomes.correct, weight)
    before = judge("uncalibrated", None, rows, setting, data)
    if cal is None or not cal.is_fitted:
        return before
    warn_of_rows_of_fit(cal.is_of_fit(cal.read_labelled(x, right)), setting.data_name)
    rows = replace(rows, confidence=to_host(cal.predict(x, groups=setting.groups)))
    return replace(judge(cal.name, cal, rows, setting, data), before=before)


def _confidence_facts(n_rows: int, setting: Setting) -> DataFacts:
    return DataFacts(
        n_rows=n_rows, n_classes=1, name=setting.data_name, kind="confidences"
    )


def _evaluate_confidence_folds(
    method: confidence.ConfidenceCalibrator,
    examples: Rows,
    setting: Setting,
    folds: int,
) -> Evaluation:
    """Answers of each fold predicted by a fit on the others; and a fit on all."""
    warn_of_copied_answers(method, examples, setting.cluster, folds)
    with copies_reported():
        whole = clone(method).fit(
            examples.scores, examples.labels, examples.weights, groups=setting.groups
        )
    rows = whole.read_labelled(
        examples.scores, examples.labels, examples.weights, setting.groups
    )
    right = rows.labels.astype(np.int64)
    fold = assign_folds(right, folds, setting.cluster)
    with copies_reported():
        proba = cross_fit(method, rows, setting.groups, fold)
    stated = Predicted(whole.uncalibrated(examples.scores), rows.labels, rows.weights)
    data = _confidence_facts(right.size, setting)
    before = judge("uncalibrated", None, stated, setting, data)
    predicted = replace(stated, confidence=proba)
    after = judge(whole.name, whole, predicted, setting, data)
    # Bounds are proven for one calibrator, not for several.
    summary = replace(after.summary, bounds={})
    return replace(after, before=before, summary=summary, folds=folds)


def _evaluate_labels(
    cal: Any, scores: Any, labels: Any, setting: Setting
) -> Evaluation:
    """Every known label as a prediction of its own."""
    proba = cal.uncalibrated(scores)
    n_rows, n_labels = proba.shape
    examples = cal.read_labelled(scores, labels)
    warn_of_copies_in_test(cal.copies(examples), clusters=False)
    names = audits.check_names(setting.class_names, n_labels)
    if not names:
        names = cal.schema_.columns or tuple(f"label {k}" for k in range(n_labels))
    is_known = ~np.isnan(examples.labels)
    example = np.nonzero(is_known)[0]
    data = DataFacts(
        n_rows=n_rows, n_classes=n_labels, name=setting.data_name, kind="scores"
    )
    label_names = np.broadcast_to(np.array(names), proba.shape)
    setting = replace(setting, groups=label_names[is_known])
    rows = Predicted(proba[is_known], examples.labels[is_known] == 1.0)
    before = _by_example(judge("uncalibrated", None, rows, setting, data), example)
    if not cal.is_fitted:
        return before
    warn_of_rows_of_fit(cal.is_of_fit(examples))
    rows = replace(rows, confidence=to_host(cal.predict_proba(scores))[is_known])
    after = _by_example(judge(cal.name, cal, rows, setting, data), example)
    return replace(after, before=before)


def _by_example(evaluation: Evaluation, example: IntArray) -> Evaluation:
    """Without what dependent rows cannot have; scores of rows as means over their
    labels.
    """
    summary = evaluation.summary.values_alone()
    of_labels = ("aurc", "selective_risk")  # which rank rows by confidence
    estimates = {
        name: estimate
        for name, estimate in summary.estimates.items()
        if name not in of_labels
    }
    n_rows = int(example.max()) + 1
    share = n_rows / example.size
    example_scores = {
        name: share * sum_by(example, scores, n_rows)
        for name, scores in evaluation.row_scores.items()
    }
    return replace(
        evaluation,
        summary=replace(summary, estimates=estimates),
        row_scores=example_scores,
    )


def compare(
    validation: Any,
    test: Any = None,
    methods: Methods = None,
    *,
    folds: int | None = None,
    delta: float = 0.05,
    subject: str | None = None,
    data_names: tuple[str | None, str | None] = (None, None),
    classes: Sequence[str] = (),
    coverage: float | None = None,
    groups: tuple[Any, Any] = (None, None),
    cluster: Any = None,
    random_state: int = 0,
    progress: bool | None = None,
    class_names: Sequence[str] | None = None,
) -> Comparison:
    """Fit each method on `validation` (logits, labels) and evaluate it on `test`.

    Or models, such as classifiers of scikit-learn and a `CalibratedClassifier`: on
    (X, y), inputs and labels.

    Parameters
    ----------
    validation, test : (logits, labels), or (confidences, right)
        Logits (n, classes) and labels (n,); the methods are fitted on the first and
        evaluated on the second. Of answers: confidences (n,) or signals (n, k) and
        whether each is right (n,), with methods that are `ConfidenceCalibrator`; or a
        dict of several such confidences by name, of which each is calibrated and
        compared on the same answers.
    methods : names, estimators, or a mapping of names to them, optional
        Registry names, estimators with options, classes of your own. A fitted
        calibrator is used as it is, others are fitted. Models are classifiers with
        `predict_proba`, all of them; `validation` is None if all are fitted. None means
        "auto" and every method that needs only logits and labels. Methods that the data
        do not allow are left out, see `Comparison.skipped`.
    folds : int, optional
        Of confidences without a `test` pair: each of so many folds of `validation` is
        predicted by a fit on the others, as in `evaluate`.
    delta : float
        Probability that an interval or a bound fails.
    subject : str, optional
        The method of the headline, to which others are compared. None: "auto" if it is
        among them, else the last one. Name it before you look at the test set: the
        guarantee needs that.
    data_names : (str, str)
        Names of the validation and the test data in the report.
    classes : sequence of str
        Names of the classes in the report, by column; empty shows column numbers.
    coverage : float, optional
        Also measures prediction sets of this coverage: thresholds come from a random
        half of the test set, or of its clusters, coverage from the other half. Of
        models, those of a `CalibratedClassifier` after its `certify`.
    groups : (groups of the validation rows, groups of the test rows)
        Tells which groups each method is miscalibrated for, by groups of the test rows:
        text or numbers (n,), or several columns, as in `hokical.metrics.group_table`.
        "auto" learns from the groups of the validation rows, which models do not; None
        for none.
    cluster : array of shape (n,), optional
        Which test rows belong together, as several images of a patient: intervals,
        differences and verdicts allow for it, as in `evaluate`.
    random_state : int
        Seed of methods given by name.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.
    class_names : sequence of str, optional
        Deprecated, see `classes`.

    Returns
    -------
    comparison : Comparison
        `comparison["auto"]` is the `Evaluation` of a method, `best("log_loss")` the
        best one by a metric, `differences()` the paired differences to the `subject`
        with their intervals; `to_html(path)` writes a report.

    Examples
    --------
    >>> from hokical import Hoki, compare
    >>> from hokical.demo import demo_logits
    >>> methods = {"uncalibrated": "uncalibrated", "hoki 20": Hoki(n_bins=20)}
    >>> compare(*demo_logits(), methods).best("ece").label
    'Hoki (hoki 20)'

    Two signals of 300 answers, calibrated one by one and together:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> stated, agreed = rng.random((2, 300))
    >>> right = rng.random(300) < agreed
    >>> both = np.column_stack([stated, agreed])
    >>> signals = {"stated": stated, "agreement": agreed, "both": both}
    >>> found = compare((signals, right), folds=5)
    >>> [difference.verdict for difference in found.differences()]
    ['worse', 'no clear difference']
    """
    classes = audits.renamed_classes(classes, class_names)
    if not (isinstance(groups, (tuple, list)) and len(groups) == 2):
        rule = (
            "`groups` must be a pair, the groups of the validation rows and of the "
            "test rows"
        )
        raise TypeError(
            f"{rule}; got {type(groups).__name__}. Pass `groups=(first, second)`."
        )
    if methods is not None and not isinstance(methods, (str, Mapping)):
        methods = list(methods)
    if are_confidences(validation, methods):
        if coverage is not None or len(classes):
            name = "classes" if coverage is None else "coverage"
            raise TypeError(f"`{name}` cannot be given for confidences; leave it out.")
        _refuse_seed(random_state, "confidences, whose fits draw nothing")
        options = summaries.SummaryOptions(delta=delta)
        pairs = read_answer_pairs(validation, test, groups, data_names, folds)
        with WarningLog().once():
            return _compare_confidences(
                pairs, methods, options, cluster, folds, subject
            )
    if folds is not None or test is None:
        raise TypeError(
            "`test` must be a pair (logits, labels), without `folds`, which are for "
            "confidences by name, `compare(({'stated': confidence}, right), folds=5)`. "
            "Of logits use `evaluate(method, logits, labels, folds=5)` for each."
        )
    if _are_models(methods):
        if groups[0] is not None:
            raise TypeError(
                "`groups` of the validation rows cannot be given for models; pass "
                "`groups=(None, test_groups)`, and to a `CalibratedClassifier` its "
                "`calibration_groups` in `fit`."
            )
        _refuse_seed(random_state, "models, which have seeds of their own")
        setting = Setting(
            summaries.SummaryOptions(delta=delta),
            data_names[1],
            groups[1],
            classes,
            cluster=cluster,
            coverage=coverage,
            progress=progress,
        )
        return _compare_models(
            name_models(cast(Any, methods)),
            (validation, test),
            setting,
            subject,
            data_names[0],
        )
    named = methods.values() if isinstance(methods, Mapping) else methods or ()
    fitted = [each for each in named if isinstance(each, Calibrator) and each.is_fitted]
    columns = {each.schema_.columns for each in fitted} - {()}
    if len(columns) > 1:
        given = ", ".join(map(str, sorted(columns)))
        rule = "`methods` that are fitted must have the same columns in the same order"
        raise ValueError(f"{rule}; got {given}. Compare them one by one.")
    frame = (
        validation[0] if isinstance(validation, (tuple, list)) and validation else None
    )
    order = next(iter(columns), reading.column_names(frame))
    known = _read_pair("validation", validation, order, groups[0])
    new = _read_pair("test", test, order, groups[1])
    entrants, skipped = _choose_entrants(methods, random_state, (known, new))
    # The subject is chosen by its name and never by test scores: a guarantee for
    # whichever method came out best would hold less often than it says.
    if subject is None:
        others = [
            name for name, method in entrants.items() if method.name != "uncalibrated"
        ]
        subject = DEFAULT if DEFAULT in entrants else [*list(entrants)[:1], *others][-1]
    if subject not in entrants:
        raise ValueError(
            f"`subject` must be one of the methods {[*entrants]}; got {subject!r}."
        )
    data = DataFacts(n_rows=new.n_rows, n_classes=new.n_classes, name=data_names[1])
    codes = None if cluster is None else reading.as_clusters(cluster, new.n_rows)
    options = summaries.SummaryOptions(delta=delta)
    setting = Setting(options, data_names[1], groups[1], classes, cluster=codes)
    setting = _name_classes(setting, new.n_classes)
    if (votes := read_votes(new.labels, new.n_rows, new.n_classes)) is not None:
        for name, value in (("groups", groups[1]), ("coverage", coverage)):
            if value is not None:
                raise TypeError(f"`{name}` cannot be given for {_VOTES}; leave it out.")
        new, setting = _weigh_votes(new, votes, setting)
    _warn_of_copied_pair(known, new, setting)
    results = []
    for name in track(list(entrants), "Comparing {}", len(entrants), progress):
        method = entrants[name]
        seconds = None
        sets = None
        if not method.is_fitted:
            learns = groups[0] is not None and method.method.learns_groups
            start = time.perf_counter()
            own = {"groups": groups[0]} if learns else {}
            with copies_reported():
                method.fit(known.scores, known.labels, **own)
            seconds = time.perf_counter() - start
        if coverage is not None:
            sets = measure_sets(method, new, coverage, groups[1], codes)
        rows = Predicted.of_logits(
            method, new.scores, new.labels, new.weights, groups[1]
        )
        one = judge(name, method, rows, setting, data, sets)
        results.append(replace(one, fit_seconds=seconds))
    before = next((one for one in results if one.is_uncalibrated), None)
    linked = (one if one is before else replace(one, before=before) for one in results)
    fitted_on = DataFacts(
        n_rows=known.n_rows, n_classes=known.n_classes, name=data_names[0]
    )
    same = any(method.is_of_fit(new) for method in entrants.values())
    warn_of_rows_of_fit(same, data_names[1])
    return Comparison(
        results=tuple(linked),
        subject=subject,
        validation=fitted_on,
        tested_on_validation=same,
        skipped=skipped,
    )


def _refuse_seed(random_state: int, kind: str) -> None:
    """Raise if there is a seed that nothing would use."""
    if random_state != 0:
        raise TypeError(
            f"`random_state` is for methods given by name, not for {kind}; got "
            f"{random_state!r}. Leave it out."
        )


def _warn_of_copied_pair(validation: Rows, test: Rows, setting: Setting) -> None:
    """Warn of copies among the rows of the fits, and of the test."""
    if np.ndim(validation.labels) == 1:
        marks = RowMarks.of(
            _logits_of(validation), validation.labels, validation.weights
        )
        warn_of_copies_in_fit(marks.copies())
    if setting.cluster is None:
        _warn_of_dependent_rows(test, name="test")


def _compare_confidences(
    pairs: tuple[LabelledConfidences, LabelledConfidences],
    methods: Methods,
    options: summaries.SummaryOptions,
    cluster: Any,
    folds: int | None,
    subject: str | None,
) -> Comparison:
    """Calibrators of confidences on the same answers; cross-fitted in `folds`."""
    validation, test = pairs
    entrants = choose_entrants(validation.confidences, test.confidences, methods)
    names = [entrant.name for entrant in entrants]
    subject = names[-1] if subject is None else subject
    if subject not in names:
        raise ValueError(f"`subject` must be one of {names}; got {subject!r}.")
    codes = None if cluster is None else reading.as_clusters(cluster, test.n_rows)
    setting = Setting(options, test.name, test.groups, cluster=codes)
    if folds is not None:
        results = _cross_fit_entrants(entrants, test, setting, folds)
    else:
        results = _fit_entrants(entrants, pairs, setting)
    fitted_on = DataFacts(
        n_rows=validation.n_rows, n_classes=1, name=validation.name, kind="confidences"
    )
    return Comparison(results=tuple(results), subject=subject, validation=fitted_on)


def _fit_entrants(
    entrants: Sequence[ConfidenceEntrant],
    pairs: tuple[LabelledConfidences, LabelledConfidences],
    setting: Setting,
) -> list[Evaluation]:
    """Each calibrator fitted on the first answers and evaluated on the second."""
    validation, test = pairs
    results = []
    for entrant in entrants:
        calibrator = entrant.calibrator
        seconds = None
        if calibrator is not None and not calibrator.is_fitted:
            start = time.perf_counter()
            calibrator.fit(
                entrant.validation, validation.right, groups=validation.groups
            )
            seconds = time.perf_counter() - start
        evaluation = _evaluate_confidence(
            calibrator, entrant.test, test.right, None, setting
        )
        results.append(replace(evaluation, name=entrant.name, fit_seconds=seconds))
    return results


def _cross_fit_entrants(
    entrants: Sequence[ConfidenceEntrant],
    answers: LabelledConfidences,
    setting: Setting,
    folds: int,
) -> list[Evaluation]:
    """Each calibrator cross-fitted in the same folds."""
    results = []
    for entrant in entrants:
        if entrant.calibrator is None:
            evaluation = _evaluate_confidence(
                None, entrant.test, answers.right, None, setting
            )
        else:
            examples = entrant.calibrator.read_pair(
                entrant.test, answers.right, None, answers.groups
            )
            evaluation = _evaluate_confidence_folds(
                entrant.calibrator, examples, setting, folds
            )
        results.append(replace(evaluation, name=entrant.name))
    return results


def _are_models(methods: Methods) -> bool:
    """Whether models are compared, from their inputs; all are, or none."""
    if methods is None or isinstance(methods, str):
        return False
    values = list(methods.values() if isinstance(methods, Mapping) else methods)
    models = [is_model(value) for value in values]
    if any(models) and not all(models):
        odd = values[models.index(False)]
        raise TypeError(
            "`methods` must all be models, which take inputs, or all be calibrators, "
            f"which take scores; got {odd!r} among models."
        )
    return bool(models) and all(models)


def _compare_models(
    models: dict[str, ProbabilityModel],
    examples: tuple[Any, Any],
    setting: Setting,
    subject: str | None,
    train_name: str | None,
) -> Comparison:
    """Evaluations of models on the same rows; unfitted ones are fitted first."""
    train, test = examples
    inputs = LabelledInputs.read(*_as_pair("test", test), groups=setting.groups)
    if setting.cluster is not None:
        codes = reading.as_clusters(setting.cluster, inputs.y.size)
        setting = replace(setting, cluster=codes)
    unfitted = [
        name for name, model in models.items() if not hasattr(model, "classes_")
    ]
    if unfitted and train is None:
        raise ValueError(
            "`validation` must be a pair (X, y) to fit models on, or all models be "
            f"fitted; got None, and {', '.join(unfitted)} not fitted."
        )
    results = []
    log = WarningLog()
    for name in track(list(models), "Comparing {}", len(models), setting.progress):
        model = models[name]
        seconds = None
        if name in unfitted:
            start = time.perf_counter()
            estimator: Any = clone(model)  # unfitted ones have a `fit` as well
            model = estimator.fit(*_as_pair("validation", train))
            seconds = time.perf_counter() - start
        with log.once():
            result = _evaluate_model(model, inputs, setting)
        results.append(replace(result, name=name, fit_seconds=seconds))
    subject = results[-1].name if subject is None else subject
    if subject not in models:
        raise ValueError(
            f"`subject` must be one of the methods {[*models]}; got {subject!r}."
        )
    data = next(result.data for result in results if result.name == subject)
    fitted_on = None
    if train is not None:
        n_train = len(reading.to_numpy(train[1], "y"))
        fitted_on = replace(data, n_rows=n_train, name=train_name, n_clusters=None)
    return Comparison(
        results=tuple(results),
        subject=subject,
        validation=fitted_on,
    )


def _as_pair(name: str, examples: object) -> tuple[Any, Any]:
    """Inputs and labels."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise TypeError(
            f"`{name}` must be a pair (X, y); got {type(examples).__name__}."
        )
    return examples[0], examples[1]


def _read_pair(name: str, examples: Any, columns: tuple[str, ...], groups: Any) -> Rows:
    """Rows of a pair (logits, labels), columns of a frame in the order of these
    names.
    """
    pair = isinstance(examples, (tuple, list))
    if not pair or len(examples) != 2:
        got = type(examples).__name__
        got += f" of {len(examples)}" if pair else ""
        remedy = (
            "`hokical.compare((val_logits, val_labels), (test_logits, test_labels))`"
        )
        raise TypeError(
            f"`{name}` must be a pair (logits, labels); got {got}. Use {remedy}."
        )
    logits, labels = examples
    rows = make("uncalibrated").read_pair(logits, labels, None, groups)
    scores = rows.scores
    if isinstance(scores, Ensemble):
        scores = scores.order_columns(columns, strict=True)
    else:
        scores = reading.order_columns(scores, "logits", columns)
    names = tuple(map(reading.class_of_column, columns))
    rows = rows._replace(scores=scores)
    if np.ndim(labels) == 2:
        rows = rows._replace(scores=as_logits(scores))
        votes = read_votes(labels, rows.n_rows, rows.n_classes)
        if votes is not None and not votes.are_hard:
            return rows._replace(labels=reading.to_floats(labels, "labels", "fiub"))
        if votes is not None:
            rows = rows._replace(labels=votes.labels)
    return _read_logits(None, rows, names)


def _read_logits(cal: Any, rows: Rows, names: Sequence[str]) -> Rows:
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
    return checked if ensemble is None else checked._replace(scores=ensemble)


def _choose_entrants(
    methods: Methods, random_state: int, data: tuple[Rows, Rows]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Calibrators by name, and the names of those that the data do not allow, with
    the reason.
    """
    if isinstance(methods, str):
        raise TypeError(
            f"`methods` must be a list or dict of methods; got {methods!r}. Use "
            f"[{methods!r}]."
        )
    if methods is None:
        methods = [*method_names(2), "auto"]
    named: list[tuple[Any, Any]]
    if isinstance(methods, Mapping):
        named = list(methods.items())
    else:
        named = [(None, method) for method in methods]
    n_classes = data[0].n_classes
    top_k = any(isinstance(rows.scores, TopK) for rows in data)
    entrants: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for given_name, method in named:
        calibrator = _as_calibrator(method, random_state)
        has_options = isinstance(method, Calibrator) and "()" not in str(method)
        default_name = method if has_options else calibrator.name
        name = str(default_name if given_name is None else given_name)
        if name in entrants:
            remedy = f"Name them in a dict, such as {{'first': {calibrator}, ...}}."
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. {remedy}"
            )
        check_plain_logits(calibrator.name, calibrator.method.logits_kind, "methods")
        if n_classes > 2 and calibrator.method.binary_only:
            skipped[name] = f"for two classes, and there are {n_classes}"
        elif top_k and not calibrator.method.accepts_top_k:
            skipped[name] = "needs the logits of all classes"
        else:
            entrants[name] = calibrator
    if not entrants:
        raise ValueError(
            f"`methods` must have one that the data allow; got {skipped or 'none'}."
        )
    return entrants, skipped


def _as_calibrator(method: object, random_state: int) -> Calibrator:
    """A new estimator, or the calibrator itself if it is fitted."""
    if isinstance(method, str):
        estimator = make(method)
        if "random_state" in estimator.get_params(deep=False):
            estimator.set_params(random_state=random_state)
        return estimator
    if isinstance(method, type) and issubclass(method, Calibrator):
        return method()
    if not isinstance(method, Calibrator):
        raise TypeError(
            f"`methods` must hold names or calibrators; got {type(method).__name__}. "
            "Use a name of `hokical.calibrators.method_names()`; for the "
            "probabilities of other models, `hokical.metrics.summary`."
        )
    return method if method.is_fitted else clone(method)
