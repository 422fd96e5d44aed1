"""`evaluate`: every metric of a calibrator on new rows, before and after calibration.

Data that need not fit into memory are evaluated in one pass, by sums that add up. Of maps, an item
(an image, a sentence) is one example, not a position: positions of an item are right and wrong
together. So intervals are those of sums by item, and the bounds are about a position drawn at
random from a new item. Let G_nj be the sum of correct - confidence over the positions of item n in
bin j, divided by the number of its positions. Then sum_j |G_nj| <= 1, which is all that the proofs
of the bounds need (`docs/theory.md`), with the mean of (sum_j |G_nj|)^2 in place of the Brier
score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy.special import stdtrit

from hokical._core.arrays import FloatArray, IntArray, to_host
from hokical._core.checks import bin_index, check_count, sum_by
from hokical._core.groups import read_columns, take_rows
from hokical._core.logits import Logits, as_logits
from hokical._core.messages import progress_bar
from hokical._core.reading import Rows, as_clusters, as_weights, class_of_column, to_numpy
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, new_calibrator
from hokical.calibrators.confidence import ConfidenceCalibrator, answer_hashes
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.calibrators.stored import OutcomeCalibrator, clone
from hokical.dense import Dense
from hokical.guarantees.calibration_data import number_hashes, warn_of_rows_of_fit
from hokical.io.reading import open_source
from hokical.metrics import summaries
from hokical.metrics.examples import as_examples
from hokical.metrics.groups import count_items, label_table
from hokical.metrics.levels import add_known
from hokical.metrics.risk_models import summarize_event
from hokical.report.evaluation import DataFacts, Evaluation, Predicted, Setting, check_names, judge
from hokical.streams import checked_blocks

#: Metrics with intervals: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", "brier", "log_loss")


def _sums(
    rows: Predicted, n_classes: int, options: summaries.SummaryOptions
) -> tuple[summaries.SummarySums, FloatArray]:
    """Of rows of weight above 0: sums of the summary, and by predicted label, (5, classes)."""
    w = rows.filled_weight()
    columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
    assert rows.label is not None
    by_label = np.stack([sum_by(rows.label, column, n_classes) for column in columns])
    return summaries.SummarySums.from_rows(rows, rows.vectors, options), by_label


def evaluate_source(
    cal: Calibrator | None, source: Any, setting: Setting, positive: Any = None
) -> Evaluation:
    """The evaluation of a source of chunks."""
    options = setting.options
    chunks = open_source(source, fitted_by=cal)
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    setting = setting.with_event(positive, getattr(cal, "class_names", ()), n_classes)
    labels = check_names(setting.class_names, n_classes) or tuple(map(str, range(n_classes)))
    softmax = make("uncalibrated").fit(np.zeros((1, n_classes)), [0])
    methods = {"uncalibrated": softmax} | ({} if cal is None else {cal.name: cal})
    sums: dict[str, tuple[summaries.SummarySums, FloatArray]] = {}
    events: dict[str, Any] = {}
    first = 0
    for block in checked_blocks(chunks, n_classes, cal):
        if not first:
            warn_of_rows_of_fit(cal is not None and cal._are_of_fit(block.logits))
        first += block.n_rows
        if block.weights is not None and not block.weights.any():
            continue
        for name, method in methods.items():
            rows = Predicted.of_logits(method, block.logits, block.labels, block.weights)
            rows = rows.counted()
            events[name] = add_known(events.get(name), rows.event_sums(setting.positive))
            parts = _sums(rows, n_classes, options)
            known = sums.get(name)
            sums[name] = parts if known is None else (known[0] + parts[0], known[1] + parts[1])
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    data = DataFacts(first, n_classes, setting.data_name)
    found: Any = None
    for name, (own, by_label) in sums.items():
        classes, summary = (
            label_table(labels, by_label, options.delta),
            summaries.summarize(own, options),
        )
        levels, event = own.levels.levels, events[name]
        binary = None if event is None else summarize_event(event, options.delta, setting.event)
        rest = (summary, levels, data, found, classes)
        found = Evaluation(name, methods[name], *rest, binary=binary)
    return cast(Evaluation, found)


def evaluate_dense(cal: Dense, given: tuple[Any, Any, Any, Any], setting: Setting) -> Evaluation:
    """The evaluation of maps: of all positions that count, intervals and bounds by item.

    Given are logits, labels, mask and weights, each as `cal` takes them.
    """

    found = evaluate_source(cal.fitted_calibrator(), cal._source(given), setting)
    judged: Any = None
    for each in found.both:
        # The items of an iterator cannot be looked at again.
        items = () if isinstance(given[0], Iterator) else cal._read(*given, None)
        judged = replace(_judge_items(each, items), before=judged, binary=None)
    return cast(Evaluation, judged)


def _judge_items(found: Evaluation, positions: Iterable[Rows]) -> Evaluation:
    """The evaluation of all positions, with intervals and bounds by item, where there are items."""
    options, plain = found.summary.options, found.summary.values_alone()
    sums, weighted = _sum_items(positions, found.calibrator, options.n_bins)
    if not len(sums):
        return replace(found, summary=plain, classes=None)
    n_items, columns = len(sums), sums.sum(axis=2).T
    for name, scores in zip(_MEANS, columns[1:], strict=True):
        if n_items > 1 and np.isfinite(scores).all():
            ends = _interval(columns[0], scores, options.delta)
            plain.estimates[name] = summaries.with_ends(
                summaries.METRICS[name], plain[name].value, ends
            )
    gap = (sums[:, 1] - sums[:, 2]) / columns[0][:, None]
    shares = {
        "ece": float(np.abs(gap.mean(axis=0)).sum()),
        "brier": float((np.abs(gap).sum(axis=1) ** 2).mean()),
    }
    bounds = {} if weighted else summaries.proven_bounds(shares, n_items, options)
    classes = None if found.classes is None else count_items(found.classes, n_items)
    return replace(found, summary=replace(plain, bounds=bounds), classes=classes)


def _sum_items(positions: Iterable[Rows], calibrator: Any, n_bins: int) -> tuple[FloatArray, bool]:
    """Weight, correct, confidence, Brier score and log loss by item and bin, (items, 5, J).

    Also whether there were weights.
    """
    parts, weighted = [np.zeros((0, 5, n_bins))], False
    for part in positions:  # of whole items
        assert part.labels is not None
        rows = Predicted.of_logits(calibrator, as_logits(part.scores), part.labels, part.weights)
        weighted |= part.weights is not None
        item = part.ids - part.ids[0]
        cell = item * n_bins + bin_index(rows.confidence, n_bins)
        values: tuple[Any, ...] = (1.0, rows.correct, rows.confidence, *rows.scores.values())
        sums = [sum_by(cell, rows.filled_weight() * v, (item[-1] + 1) * n_bins) for v in values]
        parts.append(np.stack([each.reshape(-1, n_bins) for each in sums], axis=1))
    found = np.concatenate(parts)
    return found[found[:, 0].any(axis=1)], weighted


def _interval(weight: FloatArray, scores: FloatArray, delta: float) -> tuple[float, float]:
    """Student's interval of a mean over positions, from sums by item, (items,) each."""
    n, total = weight.size, weight.sum()
    mean = scores.sum() / total
    error = np.sqrt(n / (n - 1.0) * ((scores - mean * weight) ** 2).sum()) / total
    width = -stdtrit(n - 1.0, 0.5 * delta) * error
    return float(mean - width), float(mean + width)


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
    class_names: Sequence[str] = (),
    positive: Any = None,
    data_name: str | None = None,
    n_bins: int = 15,
    delta: float = 0.05,
) -> Evaluation:
    """Every metric of a calibrator on new rows, before and after calibration.

    Parameters
    ----------
    cal : fitted calibrator, or None; with `folds`, a method
        Fitted or loaded: of logits, a `ConfidenceCalibrator`, a `MultilabelCalibrator` or `Dense`.
        None evaluates the uncalibrated softmax of logits (n, classes), or confidences (n,).
    x, y
        Examples that nothing was fitted on: logits (n, classes) or a `TopK` and labels (n,);
        confidences (n,) and whether each was right (n,); scores and labels, both (n, labels), where
        every known label counts as a prediction of its own; maps for `Dense`. Without `y`, `x` is a
        stream that need not fit into memory: a path, a source of `hokical.streams`, or an iterable
        of chunks (logits, labels) or (logits, labels, sample_weight).
    sample_weight : array of shape (n,), optional
        How much each row counts; then there are no bounds.
    groups : array of shape (n,), or several columns, optional
        Tells which groups are miscalibrated, as in `hokical.metrics.group_table`; also passed to a
        calibrator that learned from groups. Of several labels, each is a group.
    cluster : array of shape (n,), optional
        Which rows belong together, as several images of a patient or answers to a question. Without
        it rows are taken to be independent, and intervals are too narrow where they are not. With
        it intervals, tests and differences allow for it, as in `hokical.metrics.summary`, and there
        are no bounds.
    coverage : float, optional
        Also measures the prediction sets of `cal` with this coverage.
    folds : int, optional
        Of logits (n, classes) without other examples to test on: `cal` is a method, a name or an
        unfitted calibrator. Each of so many folds, stratified by class, is predicted by a fit on
        the others. Intervals are conditional: they are about the mean of these fits on new
        examples, and treat the fits as given; bounds are left out. `Evaluation.calibrator` is
        fitted on all examples.
    mask : array, optional
        Of `Dense`: which positions count.
    class_names : sequence of str
        Names of the classes, or of the labels, by column.
    positive : str or int, optional
        Of two classes: the name or number of the event, whose probability comes first in all that
        is shown; see `Evaluation.binary`. By default it is the second class.
    data_name : str, optional
        Name of the data in reports.
    n_bins : int
        Bins of the calibration errors.
    delta : float
        Probability that an interval or a bound fails. Intervals of `Dense` are by item;
        several labels have none, as labels of one example are dependent.

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
    method = None if folds is None else new_calibrator(cal, argument="cal")
    if method is not None:
        cal = None
    names = tuple(map(str, class_names or getattr(cal, "class_names", ())))
    given = {"sample_weight": sample_weight, "groups": groups, "coverage": coverage, "mask": mask}
    given |= {"positive": positive, "folds": folds, "cluster": cluster}
    if not (cal is None or isinstance(cal, (Calibrator, OutcomeCalibrator, Dense))):
        raise TypeError(
            f"`cal` must be a fitted calibrator of hokical, or None; got {type(cal).__name__}. "
            "Evaluate the probabilities of other models: `evaluate(None, "
            "hokical.from_probabilities(model.predict_proba(X)), y)`."
        )
    if isinstance(cal, Calibrator):
        cal._check_fitted()
    if y is not None and not isinstance(cal, Dense):
        reader: Any = make("uncalibrated") if cal is None else cal
        fitted = cal if isinstance(cal, Calibrator) else None
        rows = reader._pair(x, y, sample_weight, groups, fitted_by=fitted)
        x, y, sample_weight, groups = rows[:4]
        names = names or rows.classes
    codes = None if cluster is None or y is None else as_clusters(cluster, len(y))
    setting = Setting(
        summaries.SummaryOptions(n_bins, delta), data_name, groups, names, cluster=codes
    )
    if isinstance(cal, Dense):
        _refuse(given, "Dense", "sample_weight", "mask")
        return evaluate_dense(cal, (x, y, mask, sample_weight), setting)
    if y is None:
        if isinstance(cal, OutcomeCalibrator):
            raise TypeError(
                "`y` must be given for confidences and for several labels; got None. Streams are "
                "of logits."
            )
        _refuse(given, "a stream (without `y`), whose chunks may have weights,", "positive")
        return evaluate_source(cal, x, setting, positive)
    if isinstance(cal, MultilabelCalibrator):
        _refuse(given, "several labels")
        return _evaluate_labels(cal, x, y, setting)
    if isinstance(cal, ConfidenceCalibrator) or (cal is None and np.ndim(x) == 1):
        _refuse(given, "confidences", "sample_weight", "groups", "cluster")
        return _evaluate_confidence(cal, x, y, as_weights(sample_weight, len(y)), setting)
    allowed = ("sample_weight", "groups", "cluster", "coverage", "positive", "folds")
    _refuse(given, "logits", *allowed)
    test = reader._read(x, y, sample_weight, groups, plain=True)
    n_classes = test.scores.n_classes
    check_names(names, n_classes)
    setting = setting.with_event(positive, names, n_classes)
    with progress_bar("Evaluating", None):
        if folds is not None:
            _refuse({"coverage": coverage}, "`folds`")
            return _evaluate_folds(method, test[:2], test.weights, setting, folds)
        return _evaluate_logits(cal, test[:2], test.weights, setting, coverage)


def _refuse(given: dict[str, Any], kind: str, *allowed: str) -> None:
    """Refuse options that a kind of data does not have."""
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise TypeError(f"`{name}` cannot be given for {kind}; leave it out.")


def read_pair(
    examples: Any, columns: tuple[str, ...] = (), groups: Any = None
) -> tuple[Logits, IntArray]:
    """Logits and labels of a pair of both, columns of a frame in the order of these names."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise TypeError(
            f"data must be a pair (logits, labels); got {type(examples).__name__}. As in "
            "`hokical.compare((val_logits, val_labels), (test_logits, test_labels))`."
        )
    reader = make("uncalibrated")
    reader.class_names = tuple(map(class_of_column, columns))
    logits, labels = examples
    rows = reader._read(logits, labels, None, groups, plain=True, columns=columns)
    return rows.scores, rows.labels


def _evaluate_logits(
    cal: Any,
    test: tuple[Logits, IntArray],
    weight: FloatArray | None,
    setting: Setting,
    coverage: float | None,
) -> Evaluation:
    if coverage is not None and weight is not None:
        raise TypeError("`coverage` cannot be given with `sample_weight`; leave one out.")
    data = DataFacts(test[0].n_rows, test[0].n_classes, setting.data_name)
    # Of one row: it learns nothing, and the counts that a fit keeps are not needed.
    softmax = make("uncalibrated").fit(np.zeros((1, test[0].n_classes)), [0])
    sets = None
    if cal is None and coverage is not None:
        sets = measure_sets(softmax, test, coverage, cluster=setting.cluster)
    rows = Predicted.of_logits(softmax, *test, weight, setting.groups)
    before = judge("uncalibrated", softmax, rows, setting, data, sets)
    if cal is None or cal.name == "uncalibrated":
        return before
    warn_of_rows_of_fit(cal._are_of_fit(test[0]), setting.data_name)
    if coverage is not None:
        logits = cal._attach_groups(test[0], setting.groups)
        members = cal.predict_set(logits, coverage=coverage).members
        source = "Thresholds are those of the calibrator."
        sets = summaries.summarize_sets(to_host(members), test[1], goal=coverage, source=source)
    rows = Predicted.of_logits(cal, *test, weight, setting.groups)
    return replace(judge(cal.name, cal, rows, setting, data, sets), before=before)


def _evaluate_folds(
    method: Any,
    test: tuple[Logits, IntArray],
    weight: FloatArray | None,
    setting: Setting,
    folds: int,
) -> Evaluation:
    """Each fold predicted by a fit on the others."""
    (logits, labels), groups = test, setting.groups
    if check_count(folds, name="folds") < 2 or folds > labels.size:
        raise ValueError(f"`folds` must be between 2 and the number of examples; got {folds}.")
    place, parts = _fold_numbers(labels, folds), []
    columns = None if groups is None else read_columns(groups, labels.size)

    def fit(rows: IntArray) -> Any:
        own: dict[str, Any] = {} if weight is None else {"sample_weight": weight[rows]}
        if columns is not None and method.method.learns_groups:
            own["groups"] = take_rows(columns, rows)
        return clone(method).fit(logits.take(rows), labels[rows], **own)

    for k in range(folds):
        rows = np.flatnonzero(place == k)
        beside = None if columns is None else take_rows(columns, rows)
        cal = fit(np.flatnonzero(place != k))
        parts.append(Predicted.of_logits(cal, logits.take(rows), labels[rows], None, beside))
    order = np.argsort(np.argsort(place, kind="stable"))
    joined = Predicted.join(parts, order, weight)
    before = _evaluate_logits(None, test, weight, setting, None)
    whole = fit(np.arange(labels.size))
    found = judge(whole.name, whole, joined, setting, before.data)
    summary = replace(found.summary, bounds={})  # proven for one calibrator, not for several
    return replace(found, before=before, summary=summary, folds=folds)


def _fold_numbers(labels: IntArray, folds: int) -> IntArray:
    """The fold (n,) of each row: of each class in turn, in an order that is drawn once."""
    order = np.random.default_rng(0).permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    place = np.empty(labels.size, np.int64)
    place[order] = np.arange(labels.size) % folds
    return place


def measure_sets(
    calibrator: Any,
    test: tuple[Logits, IntArray],
    coverage: float,
    groups: Any = None,
    cluster: IntArray | None = None,
) -> summaries.SetSummary:
    """Sets whose threshold one half of the test set, or of its clusters, gives, on the other."""
    logits, labels = calibrator._attach_groups(test[0], groups), test[1]
    half = (np.arange(labels.size) if cluster is None else cluster) % 2
    known, new = np.flatnonzero(half == 0), np.flatnonzero(half == 1)
    twin = copy(calibrator)
    # A test on the validation set is reported elsewhere.
    twin.certify(logits.take(known), labels[known], reused="ignore")
    found = twin.predict_set(logits.take(new), coverage=coverage)
    source = "Thresholds come from one half of the test set; coverage is that of the other half."
    return summaries.summarize_sets(
        to_host(found.members), labels[new], goal=coverage, source=source
    )


def _evaluate_confidence(
    cal: Any, confidence: Any, right: Any, weight: FloatArray | None, setting: Setting
) -> Evaluation:
    stated = to_numpy(confidence, "confidence") if cal is None else cal._uncalibrated(confidence)
    rows = as_examples(stated, right)
    data = DataFacts(rows.n_rows, 1, setting.data_name, "confidences")
    own = Predicted(rows.confidence, rows.correct, weight)
    before = judge("uncalibrated", None, own, setting, data)
    if cal is None or not hasattr(cal, "rule_"):
        return before
    hashes = answer_hashes(cal._combine(cal._stated(confidence)), rows.correct)
    warn_of_rows_of_fit(cal._are_of_fit(hashes), setting.data_name)
    own = replace(own, confidence=to_host(cal.predict(confidence, setting.groups)))
    return replace(judge(cal.name, cal, own, setting, data), before=before)


def _evaluate_labels(
    cal: MultilabelCalibrator, scores: Any, labels: Any, setting: Setting
) -> Evaluation:
    """Every known label as a prediction of its own."""
    own = cal._uncalibrated(scores)
    marks = cal._read_labels(labels, own.shape)
    names = check_names(setting.class_names, own.shape[1])
    called = np.array(names or cal._columns or [f"label {k}" for k in range(own.shape[1])])
    known = ~np.isnan(marks)
    there, example = marks[known] == 1.0, np.nonzero(known)[0]
    data = DataFacts(own.shape[0], own.shape[1], setting.data_name, "scores")
    setting = replace(setting, groups=np.broadcast_to(called, own.shape)[known])
    rows = Predicted(own[known], there)
    before = _by_example(judge("uncalibrated", None, rows, setting, data), example)
    if not hasattr(cal, "rule_"):
        return before
    warn_of_rows_of_fit(cal._are_of_fit([number_hashes(cal._read_scores(scores))]))
    rows = replace(rows, confidence=to_host(cal.predict_proba(scores))[known])
    after = _by_example(judge(cal.name, cal, rows, setting, data), example)
    return replace(after, before=before)


def _by_example(found: Evaluation, example: IntArray) -> Evaluation:
    """Without what dependent rows cannot have; scores of rows as means over their labels."""
    n_rows, summary = int(example.max()) + 1, found.summary.values_alone()
    unfit = ("aurc", "selective_risk")
    kept = {name: each for name, each in summary.estimates.items() if name not in unfit}
    share = n_rows / example.size
    rows = {name: share * sum_by(example, one, n_rows) for name, one in found.row_scores.items()}
    return replace(found, summary=replace(summary, estimates=kept), row_scores=rows)
