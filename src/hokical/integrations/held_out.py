"""Scores of scikit-learn classifiers for rows that they were not fitted on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, check_is_fitted

from hokical._core import conversion, reading
from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.groups import take_rows
from hokical._core.reading import class_index
from hokical._core.runtime import WarningLog

#: By how much rounding may lift a probability above 1 before it is an error.
_ROUNDING = 1e-6
#: Methods that give scores; of several labels the last is preferred.
_WAYS = ("decision_function", "predict_proba")


@dataclass(frozen=True, eq=False)
class ClassifierExamples:
    """Rows, labels and whatever else an estimator is fitted on (`params`), or its
    calibrator.
    """

    X: object
    y: AnyArray
    params: dict[str, Any]
    weights: FloatArray | None
    groups: dict[str, AnyArray] | None

    @property
    def several(self) -> bool:
        """Whether rows have several labels, which do not exclude each other."""
        return self.y.ndim == 2

    def of_parts(self, parts: Sequence[HeldOutScores]) -> tuple[AnyArray, Any, Any]:
        """Labels, weights and groups of the rows that were held out."""
        rows = np.concatenate([part.rows for part in parts])
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else take_rows(self.groups, rows)
        return self.y[rows], weights, groups

    def fit(self, estimator: Any, rows: IntArray | None = None) -> Any:
        """A clone of the estimator, fitted on all rows or on some of them."""
        X = self.X
        y = self.y
        params = self.params
        if rows is not None:
            X, y = _safe_split(estimator, X, y, rows)
            params = _check_method_params(self.X, params, rows)
        try:
            fresh = clone(estimator)
        except (
            RuntimeError
        ):  # CatBoost copies `cat_features`, which `clone` does not accept
            fresh = deepcopy(estimator)
        try:
            return fresh.fit(X, y, **params)
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
        nothing = np.empty(0)
        if train is None:
            X = _safe_indexing(self.X, rows)
        else:
            if not self.several:
                rows = rows[np.isin(self.y[rows], self.y[train])]
            if np.unique(self.y[train]).size < 2 or not rows.size:
                return HeldOutScores(rows[:0], nothing, nothing)
            model = self.fit(estimator, train)
            X, _ = _safe_split(estimator, self.X, self.y, rows, train)
        known = nothing if self.several else classes_of(model)
        scores = read_scores(model, X, self.several)
        are_decisions = hasattr(model, _WAYS[0])
        return HeldOutScores(
            rows, known, scores, are_decisions, model if keep_model else None
        )


class HeldOutScores(NamedTuple):
    """Scores (rows, known) of the held-out `rows` by a model of the classes `known`.

    They are decision scores, or logarithms of probabilities. `model` is that model,
    where it is wanted.
    """

    rows: IntArray
    known: AnyArray
    scores: FloatArray
    are_decisions: bool = False
    model: Any = None

    def logits(self, classes: AnyArray) -> FloatArray:
        """Logits (rows, classes): -inf for classes that the model lacks."""
        logits = np.full((self.rows.size, classes.size), -np.inf)
        logits[:, class_index(self.known, classes, "y")] = self.scores
        return logits


def read_scores(estimator: Any, X: object, several: bool) -> FloatArray:
    """A fitted classifier's logits (n, classes): decision scores, or log-probabilities.

    Of `several` labels, which do not exclude each other, log-odds (n, labels).
    """
    way = next(
        way for way in (_WAYS[::-1] if several else _WAYS) if hasattr(estimator, way)
    )
    found = getattr(estimator, way)(X)
    name = f"estimator.{way}(X)"
    if several and way == "predict_proba":
        with zeros_accepted():
            return np.asarray(conversion.from_binary_probabilities(found, name=name))
    scores = reading.to_numpy(found, name).astype(np.float64)
    if several:
        return scores
    n_classes = classes_of(estimator).size
    if way == "predict_proba":
        scores = np.where((scores > 1.0) & (scores <= 1.0 + _ROUNDING), 1.0, scores)
        with zeros_accepted():
            scores = conversion.from_probabilities(scores, name=name)
    elif scores.ndim == 1 and n_classes == 2:
        scores = conversion.from_binary_scores(scores, name=name)
    if scores.shape[1:] != (n_classes,):
        rule = (
            f"`{name}` must have one column per class, {n_classes}; got shape "
            f"{scores.shape}"
        )
        remedy = 'For scores of pairs of classes set `decision_function_shape="ovr"`.'
        raise ValueError(f"{rule}. {remedy}")
    return scores


@contextmanager
def zeros_accepted() -> Iterator[None]:
    """Without the warning about probabilities of 0: a calibrator raises them."""
    log = WarningLog.current()
    log.add(conversion.CERTAIN)
    with log.once():
        yield


def resolution(scores: Sequence[FloatArray], n_classes: int) -> float:
    """Log of half the smallest probability seen above 0, to which smaller ones are
    raised.

    At most half of 1/classes, so that it never reaches the largest probability of a
    row. At least 2.2e-16, the rounding unit of 1: a probability is not known better
    than its complement, and the 1e-300 of a naive Bayes classifier would dominate every
    sum over examples.

    >>> import numpy as np
    >>> votes = np.log([[0.5, 0.25, 0.25], [0.05, 0.05, 0.9]])
    >>> round(float(np.exp(resolution([votes], 3))), 6)
    0.025
    """
    seen = min(
        float(np.min(part, initial=0.0, where=part > conversion.LOG_ZERO))
        for part in scores
    )
    half = min(seen, -math.log(n_classes)) - math.log(2.0)
    return max(half, math.log(np.finfo(np.float64).eps))


def check_estimator(estimator: BaseEstimator) -> None:
    """Raise unless an estimator gives one score for each class."""
    if not any(hasattr(estimator, way) for way in _WAYS):
        raise ValueError(
            "`estimator` must be a classifier with `decision_function` or "
            f"`predict_proba`, or a list of pairs (name, classifier); got {estimator!r}."
        )
    for name, value in estimator.get_params().items():
        # Three classes have three pairs, so the number of columns does not tell.
        if name.split("__")[-1] == "decision_function_shape" and value == "ovo":
            raise ValueError(
                "`estimator` must give one score per class, but has "
                "decision_function_shape='ovo', scores of pairs. Set it to 'ovr'; the "
                "labels stay the same."
            )


def log_of_mean(parts: Sequence[FloatArray]) -> FloatArray:
    """The logarithm of the mean of probabilities (n, classes), -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.mean(parts, axis=0)))


def classes_of(estimator: Any) -> AnyArray:
    """The labels that a fitted classifier can predict."""
    check_is_fitted(estimator, "classes_")
    classes = np.asarray(estimator.classes_)
    if classes.size < 2:
        raise ValueError(
            f"`estimator` must know at least two classes; got 1 class, {classes}."
        )
    return classes
