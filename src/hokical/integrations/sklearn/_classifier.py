"""A scikit-learn classifier with calibrated confidence.

The scores of all held-out folds are pooled, one calibrator is fitted on them, and the estimator is
fitted again on all the data. So there is one model, as fast and with the same labels as the
estimator alone. The price: it has seen more data than the models of the folds, so its confidence
tends to be slightly too low rather than too high.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from hokical._core.conversion import Zeros, check_zeros
from hokical._core.labels import as_weights
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.calibrators._base import BaseCalibrator
from hokical.calibrators._registry import new_estimator
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._sets import PredictionSets
from hokical.integrations.sklearn import _held_out as held_out
from hokical.integrations.sklearn._held_out import HeldOutScores


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a classifier so that its confidence is calibrated.

    Logits are the estimator's `decision_function`, or the logarithm of its `predict_proba`. There,
    a probability of 0 shows the estimator's resolution (no tree voted for the class), not
    certainty: zeros are raised to half the smallest probability seen on held-out data, or to
    2.2e-16 if that is more. Labels are the estimator's own, the class of its largest score, for
    every method that preserves labels (see `hokical.calibrators._registry.table`).

    Parameters
    ----------
    estimator : scikit-learn classifier
        Needs `decision_function` or `predict_proba`. May be a Pipeline or a search.
    method : str or BaseCalibrator
        A name in the registry, or a calibrator.
    cv : int, splitter, iterable of (train, test) or "prefit"
        How to hold out data; an int is a number of stratified folds, not shuffled. Every held-out
        prediction counts once, so splits may overlap or omit examples. With "prefit", or if the
        estimator is a `FrozenEstimator`, the estimator has been fitted on other data, and all the
        data is used to calibrate. Prefer `FrozenEstimator`: it survives `clone`, and so a search.
    zeros : {"unlikely", "impossible"}
        What a probability of 0 means: as above, or that the class is impossible, which gets
        probability 0 (see `hokical.from_probabilities`).
    n_jobs : int, optional
        How many folds to fit in parallel, as in scikit-learn.

    Attributes
    ----------
    classes_ : (classes,), the labels, in the order of the columns of `predict_proba`
    estimator_ : the estimator, fitted on all the data
    calibrator_ : the calibrator, fitted on `n_calibration_` held-out predictions
    lowest_logit_ : logits are raised to this; -inf if they come from `decision_function`
    n_features_in_, feature_names_in_ : those of the estimator

    Notes
    -----
    An example whose class does not occur in the training part of its fold is not used to calibrate,
    with a warning: the final model would not make that mistake. For the other examples of the fold
    that class is impossible (-inf), as it was for the fold's model. A fold whose training part has
    only one class is not used at all.

    A method may find that the estimator's label is right less often than another class. The label
    stays, and so does its confidence, but `predict_proba` then levels the other classes, so that
    none exceeds the label. Only a confidence below 1/classes leaves no room for that:
    `predict_confidence` returns it, `predict_proba` a row of equal numbers.

    `sample_weight` goes to the calibrator, and to the estimator if its `fit` (or that of the last
    step of a Pipeline) takes it. There is no `decision_function`: it would rank examples by raw
    scores, unlike `predict_proba`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from hokical import CalibratedClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> model = CalibratedClassifier(forest, method="temps").fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2]).shape, bool(model.predict_confidence(X[1::2]).min() > 1 / 3)
    ((89, 3), True)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | BaseCalibrator = "auto",
        cv: int | Literal["prefit"] | Any = 5,
        zeros: Zeros = "unlikely",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.zeros = zeros
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator and calibrate it on held-out data.

        `X` (n, features) is whatever the estimator takes: arrays, data frames, sparse matrices,
        lists. `y` (n,) are labels, numbers or text. `sample_weight` (n,) says how much each example
        counts.
        """
        check_zeros(self.zeros)
        calibrator = new_estimator(self.method)
        X, labels = held_out.check_examples(self, X, y)
        weights = as_weights(sample_weight, labels.size)
        self.estimator_ = self._fit_estimator(X, labels, weights)
        self.classes_ = held_out.classes_of(self.estimator_)
        parts = self._hold_out(X, labels, weights)
        self._calibrate(calibrator, parts, held_out.class_index(labels, self.classes_), weights)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
            elif hasattr(self, name):  # of an earlier fit, on a frame
                delattr(self, name)
        return self

    def predict(self, X: Any) -> AnyArray:
        """Labels (n,): the estimator's own where the method preserves labels."""
        logits = self._logits(X)
        return np.asarray(self.classes_[self.calibrator_.predict(logits)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`.

        The predicted label has the largest one, as scikit-learn expects; see the notes above.
        """
        logits = self._logits(X)
        proba = self.calibrator_.predict_proba(logits)
        return held_out.label_on_top(proba, self.calibrator_.predict(logits), np.isfinite(logits))

    def predict_confidence(self, X: Any) -> FloatArray:
        """The probability (n,) that each predicted label is right."""
        logits = self._logits(X)
        return np.asarray(self.calibrator_.predict_confidence(logits))

    def certify(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Note rows that nothing was fitted on, for `predict_or_abstain` and `predict_set`."""
        X, labels = held_out.check_examples(self, X, y)
        truth = held_out.class_index(labels, self.classes_)
        self.calibrator_.certify(self._logits(X), truth, sample_weight, groups=groups)
        return self

    def predict_set(self, X: Any, *, groups: Any = None, **options: Any) -> PredictionSets:
        """The labels that each row may have, by name; options are those of Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        found = self.calibrator_.predict_set(self._logits(X), groups=groups, **options)
        return replace(found, classes=self.classes_.tolist())

    def predict_or_abstain(
        self, X: Any, *, risk: float = 0.05, delta: float = 0.1
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see Calibrator.

        Call `certify` first: held-out folds are scored by other models than the final one, and are
        no proof of what it does. Only a fitted estimator with `decision_function` needs none.
        """
        found = self.calibrator_.predict_or_abstain(self._logits(X), risk=risk, delta=delta)
        return replace(found, labels=self.classes_[found.labels])

    @property
    def _prefit(self) -> bool:
        named = isinstance(self.cv, str) and self.cv == "prefit"
        return named or isinstance(self.estimator, FrozenEstimator)

    def _fit_estimator(self, X: Any, y: AnyArray, weights: FloatArray | None) -> Any:
        """The estimator to predict with, fitted on all the data unless it was fitted before."""
        held_out.check_estimator(self.estimator)
        if self._prefit:
            return self.estimator
        if np.unique(y).size < 2:
            raise ValueError(
                f"`y` must hold at least two classes; got 1 class, {y[0]!r}, in all {y.size} "
                "examples. There is nothing to calibrate."
            )
        if weights is not None and held_out.weight_keyword(self.estimator) is None:
            kind = type(self.estimator).__name__
            warn_user(
                f"`sample_weight` was used for calibration only: {kind} does not take it in "
                "`fit`. Use an estimator that does, or omit it.",
                UserWarning,
            )
        return held_out.fit_clone(self.estimator, X, y, weights)

    def _hold_out(self, X: Any, y: AnyArray, weights: FloatArray | None) -> list[HeldOutScores]:
        """Scores of examples that the model giving them has not seen, one part per fold."""
        # Examples of weight 0 are not used, not even for the smallest probability seen.
        counts = np.ones(y.size, np.bool_) if weights is None else weights > 0.0
        if self._prefit:
            rows, scores = np.flatnonzero(counts), held_out.read_scores(self.estimator_, X)
            return [HeldOutScores(rows, self.classes_, scores[rows])]
        splits = [(train, test[counts[test]]) for train, test in self._splits(X, y)]
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(held_out.hold_out)(self.estimator, X, y, weights, train, test)
            for train, test in splits
        )
        held_out.warn_of_lost_rows(parts, sum(test.size for _, test in splits))
        return [part for part in parts if part.rows.size]

    def _splits(self, X: Any, y: AnyArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Row numbers of the training and the held-out part of each fold."""
        if isinstance(self.cv, str):
            raise ValueError(
                '`cv` must be a number of folds, a splitter, an iterable of splits or "prefit"; '
                f"got {self.cv!r}."
            )
        every = np.arange(y.size)
        for train, test in check_cv(self.cv, y, classifier=True).split(X, y):
            yield every[train], every[test]  # a splitter may give masks

    def _calibrate(
        self,
        calibrator: BaseCalibrator,
        parts: list[HeldOutScores],
        truth: IntArray,
        weights: FloatArray | None,
    ) -> None:
        """Pool the held-out scores and fit the calibrator on them."""
        self.lowest_logit_ = -math.inf
        if self.zeros == "unlikely" and not hasattr(self.estimator_, "decision_function"):
            scores = [part.scores for part in parts]
            self.lowest_logit_ = held_out.resolution(scores, self.classes_.size)
        rows = np.concatenate([part.rows for part in parts])
        logits = np.concatenate([part.logits(self.classes_, self.lowest_logit_) for part in parts])
        self.n_calibration_ = int(rows.size)
        own = None if weights is None else weights[rows]
        self.calibrator_ = calibrator.fit(logits, truth[rows], own)
        if not self._prefit or self.lowest_logit_ > -math.inf:
            # Scores of the models of folds, or raised to a limit that these very examples set, are
            # not independent examples of what the final model does.
            self.calibrator_.forget_examples()

    def _logits(self, X: Any) -> FloatArray:
        """The estimator's logits (n, classes), raised to the lowest."""
        check_is_fitted(self, "calibrator_")
        return np.maximum(held_out.read_scores(self.estimator_, X), self.lowest_logit_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.non_deterministic = inner.non_deterministic
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        return tags
