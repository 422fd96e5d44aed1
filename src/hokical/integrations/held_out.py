"""Scores of scikit-learn classifiers for rows that they were not fitted on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, check_is_fitted

from hokical._core import conversion, reading
from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.groups import take_rows
from hokical._core.reading import class_index
from hokical._core.runtime import WarningLog

#: Probabilities above 1 by at most this are rounding, not an error.
_TOLERANCE = 1e-6
#: Methods that give scores, the preferred first; of several labels it is the last.
_SCORE_METHODS = ("decision_function", "predict_proba")


@dataclass(frozen=True, eq=False)
class ClassifierExamples:
    """Rows and labels, with the parameters of an estimator's `fit` (`params`), and the
    weights and groups for its calibrator.
    """

    X: object
    y: AnyArray
    params: dict[str, Any]
    weights: FloatArray | None
    groups: dict[str, AnyArray] | None

    @property
    def is_multilabel(self) -> bool:
        """Whether rows have several labels, which do not exclude each other."""
        return self.y.ndim == 2

    def take_held_out(self, folds: Sequence[HeldOutScores]) -> CalibrationRows:
        """Labels, weights and groups of the rows that folds held out."""
        rows = np.concatenate([fold.rows for fold in folds])
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else take_rows(self.groups, rows)
        return CalibrationRows(self.y[rows], weights, groups)

    def fit(self, estimator: Any, rows: IntArray | None = None) -> Any:
        """A clone of the estimator, fitted on all rows or on some of them."""
        X = self.X
        y = self.y
        params = self.params
        if rows is not None:
            X, y = _safe_split(estimator, X, y, rows)
            params = _check_method_params(self.X, params, rows)
        try:
            unfitted = clone(estimator)
        except RuntimeError:  # CatBoost copies `cat_features`, which `clone` refuses
            unfitted = deepcopy(estimator)
        try:
            return unfitted.fit(X, y, **params)
        except ValueError as error:
            error.add_note(
                "If the estimator takes no labels but 0, 1, ..., as XGBoost does, "
                "encode them: `codes = "
                "sklearn.preprocessing.LabelEncoder().fit_transform(y)`."
            )
            raise

    def hold_out(
        self,
        estimator: Any,
        train: IntArray | None,
        rows: IntArray,
        *,
        keep_model: bool,
    ) -> HeldOutScores:
        """Fit on some rows, and score other `rows` whose class occurs there.

        A fitted estimator, `train` None, scores all of them.
        """
        model = estimator
        if train is None:
            X = _safe_indexing(self.X, rows)
        else:
            if not self.is_multilabel:
                rows = rows[np.isin(self.y[rows], self.y[train])]
            if np.unique(self.y[train]).size < 2 or not rows.size:
                return HeldOutScores(rows[:0], np.empty(0), np.empty(0))
            model = self.fit(estimator, train)
            X, _ = _safe_split(estimator, self.X, self.y, rows, train)
        return HeldOutScores(
            rows,
            np.empty(0) if self.is_multilabel else classes_of(model),
            read_scores(model, X, multilabel=self.is_multilabel),
            hasattr(model, "decision_function"),
            model if keep_model else None,
        )


class CalibrationRows(NamedTuple):
    """What a calibrator is fitted on, beside scores."""

    labels: AnyArray
    weights: FloatArray | None
    groups: dict[str, AnyArray] | None


class HeldOutScores(NamedTuple):
    """Scores (rows, model classes) of the held-out `rows` of a fold by its model.

    They are decision scores, or logarithms of probabilities. `model` is None unless it
    is kept.
    """

    rows: IntArray
    model_classes: AnyArray
    scores: FloatArray
    are_decisions: bool = False
    model: Any = None

    def logits(self, classes: AnyArray) -> FloatArray:
        """Logits (rows, classes): -inf for classes that the model lacks."""
        return spread_scores(self.scores, self.model_classes, classes)


def spread_scores(
    scores: FloatArray,
    model_classes: AnyArray,
    classes: AnyArray,
    *,
    missing: float = -math.inf,
) -> FloatArray:
    """Scores (n, classes), with `missing` for classes that are not among the model's.

    >>> spread_scores(np.array([[1.0, 2.0]]), np.array([0, 2]), np.arange(3)).tolist()
    [[1.0, -inf, 2.0]]
    """
    spread = np.full((len(scores), classes.size), missing)
    spread[:, class_index(model_classes, classes, "y")] = scores
    return spread


def read_scores(estimator: Any, X: object, *, multilabel: bool) -> FloatArray:
    """A fitted classifier's logits (n, classes): decision scores, or log-probabilities.

    Of several labels, which do not exclude each other, log-odds (n, labels).
    """
    methods = _SCORE_METHODS[::-1] if multilabel else _SCORE_METHODS
    available = [method for method in methods if hasattr(estimator, method)]
    if not available:
        raise _no_scores(estimator)
    method = available[0]
    name = f"estimator.{method}(X)"
    outputs = getattr(estimator, method)(X)
    if not multilabel:
        return _read_class_scores(estimator, outputs, method, name)
    if method == "predict_proba":
        with zeros_accepted():
            return np.asarray(conversion.from_binary_probabilities(outputs, name=name))
    return reading.to_numpy(outputs, name).astype(np.float64)


def _read_class_scores(
    estimator: Any, outputs: object, method: str, name: str
) -> FloatArray:
    """Logits (n, classes) of a method's outputs, which may be (n,) for two classes."""
    n_classes = classes_of(estimator).size
    scores = reading.to_numpy(outputs, name).astype(np.float64)
    if method == "predict_proba":
        scores = np.where((scores > 1.0) & (scores <= 1.0 + _TOLERANCE), 1.0, scores)
        with zeros_accepted():
            scores = conversion.from_probabilities(scores, name=name)
    elif scores.ndim == 1 and n_classes == 2:
        scores = conversion.from_binary_scores(scores, name=name)
    if scores.shape[1:] != (n_classes,):
        raise ValueError(
            f"`{name}` must have one column per class, {n_classes}; got shape "
            f"{scores.shape}. For scores of pairs of classes set "
            '`decision_function_shape="ovr"`.'
        )
    return scores


@contextmanager
def zeros_accepted() -> Iterator[None]:
    """Suppress the warning about probabilities of 0, which a calibrator raises."""
    log = WarningLog.current()
    log.add(conversion.CERTAIN)
    with log.once():
        yield


def resolution(scores: Sequence[FloatArray], n_classes: int) -> float:
    """Logarithm of half the smallest held-out probability above 0.

    Smaller probabilities are raised to it.

    At most half of 1/classes, so that it never reaches the largest probability of a
    row. At least 2.2e-16, the rounding unit of 1: a probability is not known better
    than its complement, and the 1e-300 of a naive Bayes classifier would dominate every
    sum over examples.

    >>> import numpy as np
    >>> votes = np.log([[0.5, 0.25, 0.25], [0.05, 0.05, 0.9]])
    >>> round(float(np.exp(resolution([votes], 3))), 6)
    0.025
    """
    smallest = min(
        float(np.min(fold, initial=0.0, where=fold > conversion.LOG_ZERO))
        for fold in scores
    )
    half = min(smallest, -math.log(n_classes)) - math.log(2.0)
    return max(half, math.log(np.finfo(np.float64).eps))


def check_estimator(estimator: BaseEstimator) -> None:
    """Raise unless an estimator gives one score for each class.

    Some classifiers, such as a `StackingClassifier`, only know after their fit.
    """
    has_scores = any(hasattr(estimator, method) for method in _SCORE_METHODS)
    may_have = isinstance(estimator, BaseEstimator) and is_classifier(estimator)
    if not has_scores and not may_have:
        raise _no_scores(estimator)
    for name, value in estimator.get_params().items():
        # Three classes have three pairs: the number of columns does not show it.
        if name.split("__")[-1] == "decision_function_shape" and value == "ovo":
            raise ValueError(
                "`estimator` must give one score per class, but has "
                "decision_function_shape='ovo', scores of pairs. Set it to 'ovr'; the "
                "labels stay the same."
            )


def _no_scores(estimator: object) -> ValueError:
    return ValueError(
        "`estimator` must be a classifier with `decision_function` or "
        f"`predict_proba`, or a list of pairs (name, classifier); got {estimator!r}."
    )


def log_of_mean(proba: Sequence[FloatArray]) -> FloatArray:
    """The logarithm of the mean of probabilities (n, classes), -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.mean(proba, axis=0)))


def classes_of(estimator: Any) -> AnyArray:
    """The labels that a fitted classifier can predict."""
    check_is_fitted(estimator, "classes_")
    classes = np.asarray(estimator.classes_)
    if classes.size < 2:
        raise ValueError(
            f"`estimator` must know at least two classes; got 1 class, {classes}."
        )
    return classes


def class_names(classes: AnyArray) -> tuple[str, ...]:
    """Labels as texts.

    >>> class_names(np.array([0, 2]))
    ('0', '2')
    """
    return tuple(map(str, classes.tolist()))
