"""`evaluate`: every metric of a calibrator on new rows, before and after calibration.

Data that need not fit into memory are evaluated in one pass, by sums that add up. Of
maps, an item (an image, a sentence) is one example, not a position: positions of an
item are right and wrong together. So intervals are those of sums by item, and the
bounds are about a position drawn at random from a new item. Let G_nj be the sum of
correct - confidence over the positions of item n in bin j, divided by the number of its
positions. Then sum_j |G_nj| <= 1, which is all that the proofs of the bounds need
(`docs/theory.md`), with the mean of (sum_j |G_nj|)^2 in place of the Brier score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from scipy.special import stdtrit

from hokical._core import reading
from hokical._core.arrays import FloatArray, IntArray, to_host
from hokical._core.checks import bin_index, sum_by
from hokical._core.ensembles import Ensemble
from hokical._core.groups import read_columns, take_rows
from hokical._core.logits import TopK, as_logits
from hokical._core.reading import Rows
from hokical._core.runtime import progress_bar
from hokical._core.votes import join_votes
from hokical.calibrators import confidence
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, new_calibrator
from hokical.calibrators.stored import clone
from hokical.calibrators.survival import SurvivalCalibrator
from hokical.dense import Dense
from hokical.guarantees.fingerprints import number_hashes, warn_of_rows_of_fit
from hokical.guarantees.repeats import (
    RowMarks,
    copies_reported,
    warn_of_copies_in_test,
)
from hokical.metrics import groups as audits
from hokical.metrics import summaries
from hokical.metrics.levels import Levels, as_examples
from hokical.metrics.risk_models import summarize_event
from hokical.report.confidences import (
    assign_folds,
    cross_fit,
    warn_of_copied_answers,
)
from hokical.report.models import (
    CalibratedProbabilityModel,
    LabelledInputs,
    Model,
    ModelPredictions,
    classes_of,
    is_model,
)
from hokical.report.predictions import (
    Predicted,
    Setting,
    evaluate_predictions,
    unit_means,
)
from hokical.report.results import DataFacts, Evaluation
from hokical.report.rows import (
    VOTES,
    cluster_votes,
    measure_sets,
    read_logits,
    refuse_for_votes,
    split_votes,
    uncalibrated_of,
    uncalibrated_softmax,
    warn_of_dependent_rows,
    weigh_votes,
)
from hokical.streams import checked_blocks, open_source

#: Arguments of `evaluate` that not every kind of data takes.
_OPTIONS = (
    "sample_weight",
    "groups",
    "coverage",
    "mask",
    "positive",
    "folds",
    "cluster",
)
#: Metrics with intervals by item: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", *summaries.ROW_SCORES)


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
        its `classes_` (n,), or votes.
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
        `ConfidenceCalibrator`. The number of folds: each, stratified by class (unless
        `cluster` is given), is predicted by a fit on the others. Intervals are
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
    >>> evaluation = evaluate(cal, logits, labels)
    >>> round(evaluation.before["ece"].value, 3), round(evaluation["ece"].value, 3)
    (0.055, 0.01)
    """
    request = _Request(
        cal=cal,
        x=x,
        y=y,
        setting=Setting(
            summaries.SummaryOptions(n_bins, delta),
            data_name,
            groups,
            audits.renamed_classes(classes, class_names),
        ),
        sample_weight=sample_weight,
        groups=groups,
        coverage=coverage,
        mask=mask,
        positive=positive,
        folds=folds,
        cluster=cluster,
    )
    if isinstance(cal, Dense):
        return _evaluate_maps(request, cal)
    if is_model(cal):
        return _evaluate_inputs(request)
    if folds is not None and not isinstance(cal, confidence.ConfidenceCalibrator):
        method = new_calibrator(cal, argument="cal")
        request = replace(request, cal=None, method=method)
    else:
        _check_calibrator(cal)
    if y is None:
        return _evaluate_stream(request)
    if isinstance(cal, confidence.MultilabelCalibrator):
        return _evaluate_multilabel(request, cal)
    if isinstance(cal, confidence.ConfidenceCalibrator):
        return _evaluate_answers(request)
    return _evaluate_logits(request)


@dataclass(frozen=True, eq=False)
class _Request:
    """The arguments of `evaluate`; `method` is fitted in folds if there is one."""

    cal: Any
    x: Any
    y: Any
    setting: Setting
    sample_weight: Any
    groups: Any
    coverage: float | None
    mask: Any
    positive: Any
    folds: int | None
    cluster: Any
    method: Calibrator | None = None

    def refuse_others(self, kind: str, *allowed: str) -> None:
        """Raise if an option is given that a kind of data does not take."""
        for name in _OPTIONS:
            if getattr(self, name) is not None and name not in allowed:
                raise TypeError(f"`{name}` cannot be given for {kind}; leave it out.")

    def read(self) -> tuple[Rows, Setting]:
        """Rows with columns in the order of a fitted calibrator, and their setting."""
        reader: Any = make("uncalibrated") if self.cal is None else self.cal
        rows: Rows = reader.read_pair(
            self.x, self.y, self.sample_weight, self.groups, fitted_by=self.fitted
        )
        names = self.class_names
        setting = replace(
            self.setting,
            groups=rows.groups,
            class_names=names if len(names) else rows.classes,
            cluster=self.read_clusters(len(rows.labels)),
        )
        return rows, setting

    def read_clusters(self, n_rows: int) -> IntArray | None:
        """The numbers (n,) of clusters, if they are given."""
        if self.cluster is None:
            return None
        return reading.as_clusters(self.cluster, n_rows)

    @property
    def fitted(self) -> Calibrator | None:
        """The calibrator of logits, if there is one."""
        return self.cal if isinstance(self.cal, Calibrator) else None

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes that are given, or those of the calibrator."""
        names = self.setting.class_names
        if len(names) or self.fitted is None:
            return names
        return self.fitted.class_names


def _check_calibrator(cal: object) -> None:
    """Raise unless it is None or a calibrator, of logits a fitted one."""
    if isinstance(cal, Calibrator):
        cal.check_fitted()
    elif isinstance(getattr(cal, "fitted", None), Calibrator):
        raise TypeError(
            "`cal` must be a fitted calibrator of hokical; got "
            f"{type(cal).__name__}, which holds one. Pass that and logits: "
            "`evaluate(model.fitted, logits, y)`."
        )
    elif isinstance(cal, SurvivalCalibrator):
        raise TypeError(
            "`cal` must be a fitted calibrator of scores; got SurvivalCalibrator, whose "
            "input is which transformations keep the label. Evaluate its confidences: "
            "`evaluate(None, cal.predict(survived), correct)`, with booleans for "
            "`correct`."
        )
    elif cal is not None and not isinstance(cal, confidence.OutcomeCalibrator):
        raise TypeError(
            "`cal` must be a fitted calibrator of hokical, a classifier with "
            f"`predict_proba` and `classes_`, or None; got {type(cal).__name__}. "
            "Evaluate other probabilities: "
            "`evaluate(None, hokical.from_probabilities(proba), y)`."
        )


def _evaluate_maps(request: _Request, cal: Dense) -> Evaluation:
    """The evaluation of `Dense`: of all positions that count, intervals and bounds by
    item.
    """
    request.refuse_others("Dense", "sample_weight", "mask")
    maps = (request.x, request.y, request.sample_weight, request.mask)
    source = cal.source(maps)
    by_position = _evaluate_source(cal.fitted_calibrator(), source, request.setting)
    evaluation: Evaluation | None = None
    for stage in by_position.stages:
        # The items of an iterator cannot be looked at again.
        items = () if isinstance(request.x, Iterator) else cal.read_positions(maps)
        by_item = _evaluate_by_item(stage, items)
        evaluation = replace(by_item, before=evaluation, binary=None)
    assert evaluation is not None
    return evaluation


def _evaluate_inputs(request: _Request) -> Evaluation:
    """The evaluation of a model on its inputs."""
    if request.folds is not None:
        raise TypeError(
            "`folds` cannot be given for models. Evaluate probabilities of "
            "scikit-learn's `cross_val_predict(model, X, y, method='predict_proba')`: "
            "`evaluate(None, hokical.from_probabilities(proba), y, classes=classes)`."
        )
    request.refuse_others(
        "models", "sample_weight", "groups", "cluster", "coverage", "positive"
    )
    inputs = LabelledInputs.read(
        request.x, request.y, request.sample_weight, request.groups
    )
    setting = replace(
        request.setting,
        groups=request.groups,
        cluster=request.read_clusters(inputs.n_rows),
        coverage=request.coverage,
        named_event=request.positive,
    )
    with progress_bar("Evaluating", None):
        return evaluate_model(request.cal, inputs, setting)


def _evaluate_stream(request: _Request) -> Evaluation:
    """The evaluation of a calibrator on a source of chunks."""
    if isinstance(request.cal, confidence.OutcomeCalibrator):
        raise TypeError(
            "`y` must be given for confidences and for several labels; got None. "
            "Streams are of logits."
        )
    request.refuse_others(
        "a stream (without `y`), whose chunks may have weights", "positive"
    )
    setting = replace(request.setting, class_names=request.class_names)
    return _evaluate_source(request.fitted, request.x, setting, request.positive)


def _evaluate_multilabel(
    request: _Request, cal: confidence.MultilabelCalibrator
) -> Evaluation:
    """The evaluation of several labels at once."""
    rows, setting = request.read()
    request.refuse_others("several labels")
    return _evaluate_labels(cal, rows.scores, rows.labels, setting)


def _evaluate_answers(request: _Request) -> Evaluation:
    """The evaluation of a calibrator of confidences."""
    rows, setting = request.read()
    if request.folds is None:
        return _evaluate_confidences_of(request, rows, setting)
    request.refuse_others("confidences", "sample_weight", "groups", "cluster", "folds")
    return evaluate_confidence_folds(request.cal, rows, setting, request.folds)


def _evaluate_confidences_of(
    request: _Request, rows: Rows, setting: Setting
) -> Evaluation:
    """The evaluation of confidences, calibrated or as they are."""
    request.refuse_others("confidences", "sample_weight", "groups", "cluster")
    if request.cal is None:
        _refuse_probabilities(rows.scores, rows.labels)
    weights = reading.as_weights(rows.weights, len(rows.labels))
    return evaluate_confidence(request.cal, replace(rows, weights=weights), setting)


def _evaluate_logits(request: _Request) -> Evaluation:
    """The evaluation of a calibrator of logits, or of a method in folds."""
    rows, setting = request.read()
    is_table = isinstance(rows.scores, (Ensemble, TopK))
    is_vector = not is_table and np.ndim(rows.scores) == 1
    if request.cal is None and request.method is None and is_vector:
        return _evaluate_confidences_of(request, rows, setting)
    allowed = ("sample_weight", "cluster", "positive", "folds")
    request.refuse_others("logits", "groups", "coverage", *allowed)
    fitted = request.fitted
    names = setting.class_names
    if fitted is None:
        rows, votes = split_votes(rows, (names,))
    else:
        known = (names, fitted.schema_.columns)
        rows, votes = split_votes(rows, known, fitted.schema_.read)
    if votes is not None:
        request.refuse_others(VOTES, *allowed)
        rows, setting = weigh_votes(rows, votes, setting)
    test = read_logits(fitted, rows, names)
    setting = setting.with_names(test.n_classes, request.positive)
    if setting.cluster is None:
        warn_of_dependent_rows(test, folds=request.folds)
    with progress_bar("Evaluating", None):
        if request.method is None or request.folds is None:
            return evaluate_logits(fitted, test, setting, request.coverage)
        if request.coverage is not None:
            raise TypeError("`coverage` cannot be given with `folds`; leave one out.")
        return _evaluate_folds(request.method, test, setting, request.folds)


def _refuse_probabilities(x: object, y: object) -> None:
    """Raise if numbers (n,) can be probabilities of class 1 as well as confidences.

    Confidences of the likelier of two classes are at least 0.5; others come with
    booleans, whether each was right.
    """
    confidence = reading.to_numpy(x, "x")
    right = reading.to_numpy(y, "y")
    if right.dtype.kind not in "fiu" or confidence.dtype.kind not in "fiu":
        return  # booleans, or what is refused as no outcomes
    if not np.isin(right, (0, 1)).all():
        return
    is_low = confidence < 0.5
    if is_low.any():
        row = int(is_low.argmax())
        raise ValueError(
            "`x` (n,) can be confidences or probabilities of class 1; got "
            f"{confidence[row]:g} in row {row} and `y` of dtype {right.dtype}. For "
            "confidences give as `y` whether each was right: `y.astype(bool)`. For "
            "probabilities of class 1 use `evaluate(None, "
            "hokical.from_probabilities(x), y)`."
        )


def evaluate_logits(
    cal: Calibrator | None,
    test: Rows,
    setting: Setting,
    coverage: float | None = None,
) -> Evaluation:
    """The evaluation of the uncalibrated softmax, and of a calibrator after it."""
    groups = setting.groups
    if coverage is not None and test.weights is not None:
        raise TypeError(
            "`coverage` cannot be given with `sample_weight`; leave one out."
        )
    data = DataFacts(
        n_rows=test.n_rows, n_classes=test.n_classes, name=setting.data_name
    )
    softmax = uncalibrated_of(test)
    sets = None
    if cal is None and coverage is not None:
        sets = measure_sets(softmax, test, coverage, cluster=setting.cluster)
    rows = Predicted.of_logits(softmax, test.scores, test.labels, test.weights, groups)
    before = evaluate_predictions("uncalibrated", softmax, rows, setting, data, sets)
    if cal is None or cal.name == "uncalibrated":
        return before
    warn_of_rows_of_fit(cal.is_of_fit(test), setting.data_name)
    if coverage is not None:
        logits = cal.fitted.read(test.scores, groups)
        members = cal.predict_set(logits, coverage=coverage).members
        sets = summaries.summarize_sets(
            to_host(members),
            test.labels,
            goal=coverage,
            source="Thresholds are those of the calibrator.",
        )
    rows = Predicted.of_logits(cal, test.scores, test.labels, test.weights, groups)
    after = evaluate_predictions(cal.name, cal, rows, setting, data, sets)
    return replace(after, before=before)


def _evaluate_folds(
    method: Calibrator, test: Rows, setting: Setting, folds: int
) -> Evaluation:
    """Each fold predicted by a fit on the others."""
    labels = test.labels
    groups = {} if setting.groups is None else read_columns(setting.groups, labels.size)
    fold = assign_folds(labels, folds, setting.cluster)

    def fit(rows: IntArray) -> Any:
        fit_rows = test.take(rows)
        if setting.votes_of is not None:
            first, table = join_votes(setting.votes_of[rows], fit_rows, test.n_classes)
            scores = fit_rows.scores.take(first)
            return clone(method).fit(scores, table, sample_weight=table.sum(axis=1))
        options = {}
        if fit_rows.weights is not None:
            options["sample_weight"] = fit_rows.weights
        if groups and method.method.learns_groups:
            options["groups"] = take_rows(groups, rows)
        with copies_reported():
            return clone(method).fit(fit_rows.scores, fit_rows.labels, **options)

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
    predicted = _join_predictions(predictions, order)
    fitted = fit(np.arange(labels.size))
    before = evaluate_logits(None, test, setting)
    after = evaluate_predictions(fitted.name, fitted, predicted, setting, before.data)
    return _of_folds(after, before, folds)


def _of_folds(after: Evaluation, before: Evaluation, folds: int) -> Evaluation:
    """The evaluation without bounds: they are proven for one calibrator alone."""
    summary = replace(after.summary, bounds={})
    return replace(after, before=before, summary=summary, folds=folds)


def _join_predictions(blocks: Sequence[Predicted], order: IntArray) -> Predicted:
    """Predictions of all blocks, in another order of their rows."""
    columns: dict[str, Any] = {}
    for field in fields(Predicted):
        arrays = [getattr(block, field.name) for block in blocks]
        columns[field.name] = None
        if arrays[0] is not None:
            columns[field.name] = np.concatenate(arrays)[order]
    return Predicted(**columns)


@dataclass(frozen=True, eq=False)
class _MethodSums:
    """Sums over the rows of a method: levels, by predicted label, and of the event."""

    levels: Levels
    by_label: FloatArray
    events: Levels | None

    @classmethod
    def of(cls, rows: Predicted, setting: Setting, n_classes: int) -> Self:
        """The sums of a block of predictions."""
        rows = rows.counted()
        assert rows.label is not None
        weight = rows.filled_weight()
        columns = (
            np.ones(weight.size),
            weight,
            weight**2,
            weight * rows.confidence,
            weight * rows.correct,
        )
        event = rows.event(setting.positive)
        return cls(
            summaries.count_levels(rows, n_bins=setting.options.n_bins),
            np.stack([sum_by(rows.label, column, n_classes) for column in columns]),
            None if event is None else summaries.count_levels(event),
        )

    def __add__(self, other: Self) -> Self:
        events = self.events
        if events is not None and other.events is not None:
            events = events + other.events
        return type(self)(
            self.levels + other.levels, self.by_label + other.by_label, events
        )


def _evaluate_source(
    cal: Calibrator | None, source: Any, setting: Setting, positive: Any = None
) -> Evaluation:
    """The evaluation of a source of chunks."""
    chunks = open_source(source, fitted_by=cal)
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    setting = setting.with_names(n_classes, positive)
    methods: dict[str, Any] = {"uncalibrated": uncalibrated_softmax(n_classes)}
    if cal is not None:
        methods[cal.name] = cal
    sums: dict[str, _MethodSums] = {}
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
            )
            block_sums = _MethodSums.of(rows, setting, n_classes)
            sums[name] = sums[name] + block_sums if name in sums else block_sums
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    data = DataFacts(n_rows=n_rows, n_classes=n_classes, name=setting.data_name)
    evaluation: Evaluation | None = None
    for name, method_sums in sums.items():
        after = _evaluate_sums(name, method_sums, setting, data)
        evaluation = replace(after, calibrator=methods[name], before=evaluation)
    assert evaluation is not None
    return evaluation


def _evaluate_sums(
    name: str, sums: _MethodSums, setting: Setting, data: DataFacts
) -> Evaluation:
    """The evaluation of a method from its sums."""
    options = setting.options
    names = setting.class_names or tuple(map(str, range(data.n_classes)))
    binary = None
    if sums.events is not None:
        binary = summarize_event(sums.events, options.delta, setting.event)
    return Evaluation(
        name=name,
        calibrator=None,
        is_uncalibrated=name == "uncalibrated",
        summary=summaries.summarize(sums.levels, options),
        levels=sums.levels,
        data=data,
        classes=audits.label_table(names, sums.by_label, options.delta),
        binary=binary,
    )


def evaluate_model(
    model: Model, inputs: LabelledInputs, setting: Setting
) -> Evaluation:
    """The evaluation of a classifier's probabilities, and of those before."""
    classes = classes_of(model, "cal")
    names = audits.check_names(setting.class_names, classes.size)
    if not names:
        names = tuple(map(str, classes.tolist()))
    event = setting.named_event
    if event is not None:
        event = reading.event_of_classes(event, classes, names)
    setting = replace(setting, class_names=names).with_names(classes.size, event)
    rows = ModelPredictions.of(model, inputs.X, "cal", inputs.groups)
    inputs.check_count(rows)
    votes = inputs.truth(classes)
    labels = votes.labels
    data = DataFacts(
        n_rows=inputs.n_rows, n_classes=classes.size, name=setting.data_name
    )

    def evaluate_stage(
        name: str, rows: ModelPredictions, sets: summaries.SetSummary | None
    ) -> Evaluation:
        if not votes.are_hard:
            rows = rows.take(votes.rows)
        predicted = Predicted(
            rows.confidence,
            rows.labels == labels,
            votes.weigh(inputs.weights, inputs.n_rows),
            truth=labels,
            proba=rows.proba,
            label=rows.labels,
        )
        return evaluate_predictions(name, None, predicted, setting, data, sets)

    if not votes.are_hard:
        refuse_for_votes(groups=setting.groups, coverage=setting.coverage)
        setting = cluster_votes(votes, setting)
    sets = None
    if setting.coverage is not None:
        sets = _measure_model_sets(model, inputs, labels, setting.coverage)
    if setting.cluster is None:
        wrong = rows.labels != labels
        marks = RowMarks(number_hashes(rows.proba), labels, wrong)
        warn_of_copies_in_test(marks.copies(), name="X")
    after = evaluate_stage(type(model).__name__, rows, sets)
    uncalibrated = ModelPredictions.uncalibrated(model, inputs.X)
    if uncalibrated is None or not isinstance(model, CalibratedProbabilityModel):
        return after
    warn_of_rows_of_fit(model.is_of_fit(inputs.X), setting.data_name)
    return replace(after, before=evaluate_stage("uncalibrated", uncalibrated, None))


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


def evaluate_confidence(
    cal: confidence.ConfidenceCalibrator | None, rows: Rows, setting: Setting
) -> Evaluation:
    """The evaluation of confidences, and of a calibrator of them after it."""
    x = rows.scores
    right = rows.labels
    stated = reading.to_numpy(x, "confidence") if cal is None else cal.uncalibrated(x)
    outcomes = as_examples(stated, right)
    warn_of_copied_answers(cal, rows, setting.cluster)
    data = _confidence_facts(outcomes.n_rows, setting)
    predicted = Predicted(outcomes.confidence, outcomes.correct, rows.weights)
    before = evaluate_predictions("uncalibrated", None, predicted, setting, data)
    if cal is None or not cal.is_fitted:
        return before
    warn_of_rows_of_fit(cal.is_of_fit(cal.read_labelled(x, right)), setting.data_name)
    calibrated = to_host(cal.predict(x, groups=setting.groups))
    predicted = replace(predicted, confidence=calibrated)
    after = evaluate_predictions(cal.name, cal, predicted, setting, data)
    return replace(after, before=before)


def _confidence_facts(n_rows: int, setting: Setting) -> DataFacts:
    return DataFacts(
        n_rows=n_rows, n_classes=1, name=setting.data_name, kind="confidences"
    )


def evaluate_confidence_folds(
    method: confidence.ConfidenceCalibrator,
    examples: Rows,
    setting: Setting,
    folds: int,
) -> Evaluation:
    """Answers of each fold predicted by a fit on the others; and a fit on all."""
    warn_of_copied_answers(method, examples, setting.cluster, folds)
    with copies_reported():
        fitted = clone(method).fit(
            examples.scores, examples.labels, examples.weights, groups=setting.groups
        )
    rows = fitted.read_labelled(
        examples.scores, examples.labels, examples.weights, setting.groups
    )
    right = rows.labels.astype(np.int64)
    fold = assign_folds(right, folds, setting.cluster)
    with copies_reported():
        proba = cross_fit(method, rows, setting.groups, fold)
    stated = Predicted(fitted.uncalibrated(examples.scores), rows.labels, rows.weights)
    data = _confidence_facts(right.size, setting)
    before = evaluate_predictions("uncalibrated", None, stated, setting, data)
    predicted = replace(stated, confidence=proba)
    after = evaluate_predictions(fitted.name, fitted, predicted, setting, data)
    return _of_folds(after, before, folds)


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
    before = _by_example(
        evaluate_predictions("uncalibrated", None, rows, setting, data), example
    )
    if not cal.is_fitted:
        return before
    warn_of_rows_of_fit(cal.is_of_fit(examples))
    rows = replace(rows, confidence=to_host(cal.predict_proba(scores))[is_known])
    after = _by_example(
        evaluate_predictions(cal.name, cal, rows, setting, data), example
    )
    return replace(after, before=before)


def _by_example(evaluation: Evaluation, example: IntArray) -> Evaluation:
    """The evaluation without intervals and rankings, which need independent rows.

    Scores of examples are means over their labels.
    """
    summary = evaluation.summary.values_alone()
    rankings = ("aurc", "selective_risk")
    estimates = {
        name: estimate
        for name, estimate in summary.estimates.items()
        if name not in rankings
    }
    return replace(
        evaluation,
        summary=replace(summary, estimates=estimates),
        row_scores=unit_means(evaluation.row_scores, example, np.ones(example.size)),
    )
