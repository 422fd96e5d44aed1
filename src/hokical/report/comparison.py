"""`compare`: several methods, fitted on one validation set and evaluated on one test
set.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from hokical._core import reading
from hokical._core.checks import check_names, show
from hokical._core.ensembles import Ensemble
from hokical._core.logits import TopK
from hokical._core.reading import Rows
from hokical._core.runtime import WarningLog, track
from hokical._core.votes import read_votes
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, method_names
from hokical.calibrators.stored import check_plain_logits, clone
from hokical.guarantees.fingerprints import warn_of_rows_of_fit
from hokical.guarantees.repeats import (
    RowMarks,
    copies_reported,
    warn_of_copies_in_fit,
)
from hokical.metrics import groups as audits
from hokical.metrics import summaries
from hokical.report.confidences import (
    ConfidenceEntrant,
    LabelledConfidences,
    Methods,
    are_confidences,
    choose_entrants,
    read_answer_pairs,
)
from hokical.report.evaluation import (
    evaluate_confidence,
    evaluate_confidence_folds,
    evaluate_model,
)
from hokical.report.models import (
    LabelledInputs,
    ProbabilityModel,
    is_model,
    name_models,
)
from hokical.report.predictions import Predicted, Setting, evaluate_predictions
from hokical.report.results import Comparison, DataFacts, Evaluation
from hokical.report.rows import (
    logits_of,
    measure_sets,
    read_logits,
    refuse_for_votes,
    split_votes,
    warn_of_dependent_rows,
    weigh_votes,
)

#: The method that the headline is about if none is named: the default of the library.
DEFAULT = "auto"


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
    positive: str | int | None = None,
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
        Of confidences without a `test` pair: the number of folds of `validation`, each
        of which is predicted by a fit on the others, as in `evaluate`.
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
    positive : str or int, optional
        Of two classes: the name or number of the event, as in `evaluate`.
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
    >>> comparison = compare((signals, right), folds=5)
    >>> [difference.verdict for difference in comparison.differences()]
    ['worse', 'no clear difference']
    """
    classes = audits.renamed_classes(classes, class_names)
    if not isinstance(groups, (tuple, list)) or len(groups) != 2:
        raise TypeError(
            "`groups` must be a pair, the groups of the validation rows and of the test "
            f"rows; got {type(groups).__name__}. Pass `groups=(first, second)`."
        )
    if len(check_names("data_names", data_names)) != 2:
        raise ValueError(
            f"`data_names` must be those of the two data sets; got {show(data_names)}."
        )
    if methods is not None and not isinstance(methods, (str, Mapping)):
        methods = list(methods)
    setting = Setting(
        summaries.SummaryOptions(delta=delta),
        data_names[1],
        groups[1],
        classes,
        named_event=positive,
        cluster=cluster,
        coverage=coverage,
        progress=progress,
    )
    if are_confidences(validation, methods):
        options = {
            "coverage": coverage,
            "positive": positive,
            "classes": tuple(classes) or None,
        }
        for name, value in options.items():
            if value is not None:
                raise TypeError(
                    f"`{name}` cannot be given for confidences; leave it out."
                )
        _refuse_seed(random_state, "confidences, whose fits draw nothing")
        pairs = read_answer_pairs(validation, test, groups, data_names, folds)
        with WarningLog().once():
            return _compare_confidences(pairs, methods, setting, folds, subject)
    if folds is not None and _are_models(methods):
        raise TypeError(
            "`folds` cannot be given for models; pass `(X_train, y_train)` and `(X_test, "
            "y_test)`, of scikit-learn's `train_test_split`."
        )
    if folds is not None or test is None:
        raise TypeError(
            "`test` must be a pair (logits, labels), without `folds`, which are for "
            "confidences by name, `compare(({'stated': confidence}, right), folds=5)`. "
            "Of logits use `evaluate(method, logits, labels, folds=5)` for each."
        )
    fit_data = _FitData(validation, groups[0], data_names[0], random_state)
    if _are_models(methods):
        models = name_models(cast(Any, methods))
        return _compare_models(models, fit_data, test, setting, subject)
    return _compare_calibrators(methods, fit_data, test, setting, subject)


@dataclass(frozen=True, eq=False)
class _FitData:
    """What methods are fitted on: examples, their groups and name, and a seed."""

    examples: Any
    groups: Any
    name: str | None
    random_state: int


def _compare_calibrators(
    methods: Methods,
    fit_data: _FitData,
    test_pair: Any,
    setting: Setting,
    subject: str | None,
) -> Comparison:
    """Calibrators of logits on the same test rows; unfitted ones are fitted first."""
    columns = _common_columns(methods, fit_data.examples)
    names = (setting.class_names, columns)
    validation = _read_pair("validation", fit_data.examples, names, fit_data.groups)
    test = _read_pair("test", test_pair, names, setting.groups)
    entrants, skipped = _choose_entrants(
        methods, fit_data.random_state, (validation, test)
    )
    subject = _choose_subject(entrants, subject)
    data = DataFacts(
        n_rows=test.n_rows, n_classes=test.n_classes, name=setting.data_name
    )
    setting = _with_clusters(setting, test.n_rows).with_names(test.n_classes)
    votes = read_votes(test.labels, test.n_rows, test.n_classes)
    if votes is not None:
        refuse_for_votes(groups=setting.groups, coverage=setting.coverage)
        test, setting = weigh_votes(test, votes, setting)
    _warn_of_copied_pair(validation, test, setting)
    results = []
    for name in track(list(entrants), "Comparing {}", len(entrants), setting.progress):
        seconds = _fit_entrant(entrants[name], validation, fit_data.groups)
        result = _evaluate_entrant(name, entrants[name], test, setting, data)
        results.append(replace(result, fit_seconds=seconds))
    is_of_fit = any(calibrator.is_of_fit(test) for calibrator in entrants.values())
    warn_of_rows_of_fit(is_of_fit, setting.data_name)
    return Comparison(
        results=_link_before(results),
        subject=subject,
        validation=DataFacts(
            n_rows=validation.n_rows,
            n_classes=validation.n_classes,
            name=fit_data.name,
        ),
        tested_on_validation=is_of_fit,
        skipped=skipped,
    )


def _common_columns(methods: Methods, validation: Any) -> tuple[str, ...]:
    """The columns of the fitted methods, else those of the validation data."""
    values = methods.values() if isinstance(methods, Mapping) else methods or ()
    columns = {
        method.schema_.columns
        for method in values
        if isinstance(method, Calibrator) and method.is_fitted
    } - {()}
    if len(columns) > 1:
        raise ValueError(
            "`methods` that are fitted must have the same columns in the same order; "
            f"got {', '.join(map(str, sorted(columns)))}. Compare them one by one."
        )
    if columns:
        return columns.pop()
    is_pair = isinstance(validation, (tuple, list)) and len(validation) > 0
    return reading.column_names(validation[0] if is_pair else None)


def _choose_subject(entrants: Mapping[str, Calibrator], subject: str | None) -> str:
    """The method of the headline.

    It is chosen by its name and never by test scores: a guarantee for whichever method
    came out best would hold less often than it says.
    """
    if subject is not None:
        return _check_subject(subject, [*entrants])
    if DEFAULT in entrants:
        return DEFAULT
    calibrated = [
        name for name, method in entrants.items() if method.name != "uncalibrated"
    ]
    return calibrated[-1] if calibrated else next(iter(entrants))


def _check_subject(subject: str, names: Sequence[str]) -> str:
    if subject not in names:
        raise ValueError(
            f"`subject` must be one of the methods {[*names]}; got {subject!r}."
        )
    return subject


def _with_clusters(setting: Setting, n_rows: int) -> Setting:
    """The setting with numbers of the clusters that were given."""
    if setting.cluster is None:
        return setting
    return replace(setting, cluster=reading.as_clusters(setting.cluster, n_rows))


def _fit_entrant(calibrator: Calibrator, validation: Rows, groups: Any) -> float | None:
    """Fit a calibrator unless it is fitted; the seconds that it took."""
    if calibrator.is_fitted:
        return None
    if groups is not None and not calibrator.method.learns_groups:
        groups = None
    options = {} if groups is None else {"groups": groups}
    start = time.perf_counter()
    with copies_reported():
        calibrator.fit(validation.scores, validation.labels, **options)
    return time.perf_counter() - start


def _evaluate_entrant(
    name: str, calibrator: Calibrator, test: Rows, setting: Setting, data: DataFacts
) -> Evaluation:
    """The evaluation of a fitted calibrator on the test rows."""
    sets = None
    if setting.coverage is not None:
        sets = measure_sets(
            calibrator, test, setting.coverage, setting.groups, setting.cluster
        )
    rows = Predicted.of_logits(
        calibrator, test.scores, test.labels, test.weights, setting.groups
    )
    return evaluate_predictions(name, calibrator, rows, setting, data, sets)


def _link_before(results: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """Evaluations with that of the uncalibrated scores, if there is one, as `before`."""
    before = next((result for result in results if result.is_uncalibrated), None)
    return tuple(
        result if result is before else replace(result, before=before)
        for result in results
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
            logits_of(validation), validation.labels, validation.weights
        )
        warn_of_copies_in_fit(marks.copies())
    if setting.cluster is None:
        warn_of_dependent_rows(test, name="test")


def _compare_confidences(
    pairs: tuple[LabelledConfidences, LabelledConfidences],
    methods: Methods,
    setting: Setting,
    folds: int | None,
    subject: str | None,
) -> Comparison:
    """Calibrators of confidences on the same answers; cross-fitted in `folds`."""
    validation, test = pairs
    entrants = choose_entrants(validation.confidences, test.confidences, methods)
    names = [entrant.name for entrant in entrants]
    subject = names[-1] if subject is None else _check_subject(subject, names)
    setting = replace(setting, data_name=test.name, groups=test.groups)
    setting = _with_clusters(setting, test.n_rows)
    if folds is None:
        results = _fit_entrants(entrants, pairs, setting)
    else:
        results = _cross_fit_entrants(entrants, test, setting, folds)
    fitted_on = DataFacts(
        n_rows=validation.n_rows, n_classes=1, name=validation.name, kind="confidences"
    )
    return Comparison(results=tuple(results), subject=subject, validation=fitted_on)


def _fit_entrants(
    entrants: Sequence[ConfidenceEntrant],
    pairs: tuple[LabelledConfidences, LabelledConfidences],
    setting: Setting,
) -> list[Evaluation]:
    """The evaluation on the second answers of calibrators fitted on the first."""
    validation, test = pairs
    results = []
    for entrant in entrants:
        calibrator = entrant.calibrator
        seconds = None
        if calibrator is not None and not calibrator.is_fitted:
            start = time.perf_counter()
            with _naming(entrant):
                calibrator.fit(
                    entrant.validation, validation.right, groups=validation.groups
                )
            seconds = time.perf_counter() - start
        rows = Rows(entrant.test, test.right)
        with _naming(entrant):
            result = evaluate_confidence(calibrator, rows, setting)
        results.append(replace(result, name=entrant.name, fit_seconds=seconds))
    return results


def _cross_fit_entrants(
    entrants: Sequence[ConfidenceEntrant],
    answers: LabelledConfidences,
    setting: Setting,
    folds: int,
) -> list[Evaluation]:
    """The evaluation of calibrators that are cross-fitted in the same folds."""
    results = []
    for entrant in entrants:
        with _naming(entrant):
            result = _cross_fit_entrant(entrant, answers, setting, folds)
        results.append(replace(result, name=entrant.name))
    return results


def _cross_fit_entrant(
    entrant: ConfidenceEntrant,
    answers: LabelledConfidences,
    setting: Setting,
    folds: int,
) -> Evaluation:
    """The evaluation of one of them; of confidences as stated without folds."""
    if entrant.calibrator is None:
        rows = Rows(entrant.test, answers.right)
        return evaluate_confidence(None, rows, setting)
    rows = entrant.calibrator.read_pair(
        entrant.test, answers.right, None, answers.groups
    )
    return evaluate_confidence_folds(entrant.calibrator, rows, setting, folds)


@contextmanager
def _naming(entrant: ConfidenceEntrant) -> Iterator[None]:
    """A context whose errors say which confidences they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{entrant.name!r}: {error}") from error


def _are_models(methods: Methods) -> bool:
    """Whether models are compared, from their inputs; all are, or none."""
    if methods is None or isinstance(methods, str):
        return False
    values = list(methods.values() if isinstance(methods, Mapping) else methods)
    are_models = [is_model(value) for value in values]
    if any(are_models) and not all(are_models):
        calibrator = values[are_models.index(False)]
        raise TypeError(
            "`methods` must all be models, which take inputs, or all be calibrators, "
            f"which take scores; got {calibrator!r} among models."
        )
    return bool(are_models) and all(are_models)


def _compare_models(
    models: dict[str, ProbabilityModel],
    fit_data: _FitData,
    test: Any,
    setting: Setting,
    subject: str | None,
) -> Comparison:
    """Evaluations of models on the same rows; unfitted ones are fitted first."""
    if fit_data.groups is not None:
        raise TypeError(
            "`groups` of the validation rows cannot be given for models; pass "
            "`groups=(None, test_groups)`, and to a `CalibratedClassifier` its "
            "`calibration_groups` in `fit`."
        )
    _refuse_seed(fit_data.random_state, "models, which have seeds of their own")
    inputs = LabelledInputs.read(*_as_pair("test", test), groups=setting.groups)
    setting = _with_clusters(setting, inputs.n_rows)
    train = fit_data.examples
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
            result = evaluate_model(model, inputs, setting)
        results.append(replace(result, name=name, fit_seconds=seconds))
    names = [*models]
    subject = names[-1] if subject is None else _check_subject(subject, names)
    fitted_on = None
    if train is not None:
        data = results[names.index(subject)].data
        n_train = len(reading.to_numpy(train[1], "y"))
        fitted_on = replace(data, n_rows=n_train, name=fit_data.name, n_clusters=None)
    return Comparison(results=tuple(results), subject=subject, validation=fitted_on)


def _as_pair(name: str, examples: object) -> tuple[Any, Any]:
    """Inputs and labels."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise TypeError(
            f"`{name}` must be a pair (X, y); got {type(examples).__name__}."
        )
    return examples[0], examples[1]


def _read_pair(
    name: str, examples: Any, names: tuple[Sequence[str], tuple[str, ...]], groups: Any
) -> Rows:
    """Rows of a pair (logits, labels), columns of frames in the order of these names of
    classes and of columns.
    """
    is_sequence = isinstance(examples, (tuple, list))
    if not is_sequence or len(examples) != 2:
        description = type(examples).__name__
        if is_sequence:
            description += f" of {len(examples)}"
        raise TypeError(
            f"`{name}` must be a pair (logits, labels); got {description}. Use "
            "`hokical.compare((val_logits, val_labels), (test_logits, test_labels))`."
        )
    logits, labels = examples
    rows = make("uncalibrated").read_pair(logits, labels, None, groups)
    scores = rows.scores
    columns = names[1]
    if isinstance(scores, Ensemble):
        scores = scores.order_columns(columns, strict=True)
    else:
        scores = reading.order_columns(scores, "logits", columns)
    rows = replace(rows, scores=scores)
    rows, votes = split_votes(rows, names)
    if votes is not None:
        return rows
    class_names = tuple(map(reading.class_of_column, columns))
    return read_logits(None, rows, class_names)


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
    has_top_k = any(isinstance(rows.scores, TopK) for rows in data)
    entrants: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for mapped_name, method in named:
        calibrator = _as_calibrator(method, random_state)
        name = _default_name(method, calibrator)
        if mapped_name is not None:
            name = str(mapped_name)
        if name in entrants:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them in "
                f"a dict, such as {{'first': {calibrator}, ...}}."
            )
        check_plain_logits(calibrator.name, calibrator.method.logits_kind, "methods")
        reason = _reason_to_skip(calibrator, n_classes, has_top_k)
        if reason:
            skipped[name] = reason
        else:
            entrants[name] = calibrator
    if not entrants:
        raise ValueError(
            f"`methods` must have one that the data allow; got {skipped or 'none'}."
        )
    return entrants, skipped


def _default_name(method: object, calibrator: Calibrator) -> str:
    """The name of the method, or the calibrator as text if it has options."""
    if isinstance(method, Calibrator) and method.has_options:
        return str(method)
    return calibrator.name


def _reason_to_skip(calibrator: Calibrator, n_classes: int, has_top_k: bool) -> str:
    """Why the data do not allow a calibrator; "" if they do."""
    if n_classes > 2 and calibrator.method.binary_only:
        return f"for two classes, and there are {n_classes}"
    if has_top_k and not calibrator.method.accepts_top_k:
        return "needs the logits of all classes"
    return ""


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
