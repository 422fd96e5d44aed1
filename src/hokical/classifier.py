"""A scikit-learn classifier with calibrated confidence: scores of held-out folds, one calibrator.

The scores of all held-out folds are pooled, one calibrator is fitted on them, and the estimator is
fitted once more on all the data. So there is one model, as fast at prediction and with the same
labels as the estimator alone. The price: the final model has seen more data than the models of the
folds, so its confidence tends to be a little too low rather than too high.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hokical._warnings import warn_user
from hokical.calibrators.base import Calibrator
from hokical.calibrators.registry import make, methods_without_extra_input
from hokical.calibrators.temps import settle_ties
from hokical.logits import as_weights, from_binary_scores, from_probabilities, to_numpy

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: A probability may exceed 1 by this much, from rounding, before it is an error.
_ROUNDING = 1e-6


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a classifier so that its confidence can be taken at its word.

    Logits are what the estimator's `decision_function` gives, or else the logarithm of its
    `predict_proba`. There, a probability of 0 is the estimator's resolution (no tree voted for the
    class) and not a proof, so zeros are raised to half the smallest probability seen on held-out
    data, or to 2.2e-16 if that is more. Labels are the estimator's own, the class of its largest
    score, for every method that preserves labels (`hokical.calibrators.registry.table` says which).

    Parameters
    ----------
    estimator : scikit-learn classifier
        Needs `decision_function` or `predict_proba`. May be a Pipeline or a search.
    method : str or Calibrator
        A name in the registry, or a calibrator with options of your choice.
    cv : int, splitter, iterable of (train, test) or "prefit"
        How to hold out data; an int means that many stratified folds, not shuffled. Every held-out
        prediction counts once, so splits may overlap or leave examples out. With "prefit", or if
        the estimator is a `FrozenEstimator`, the estimator is fitted already, on other data, and
        all the data calibrates. Prefer `FrozenEstimator`: it survives `clone`, and so a search.
    n_jobs : int, optional
        How many folds to fit at a time, as in scikit-learn.

    Attributes
    ----------
    classes_ : (classes,), the labels, in the order of the columns of `predict_proba`
    estimator_ : the estimator, fitted on all the data
    calibrator_ : the calibrator, fitted on the held-out logits
    n_calibration_ : number of held-out predictions that the calibrator has learned from
    lowest_logit_ : logits are raised to this; -inf where they come from `decision_function`
    n_features_in_, feature_names_in_ : as the estimator has them

    Notes
    -----
    An example whose class the training part of its fold lacks is left out of the calibration, with
    a warning: that mistake of the fold's model is not one that the final model would make. For the
    other examples of that fold the class is impossible (-inf), as it was for the fold's model. A
    fold whose training part holds one class only is left out as a whole.

    A method may find that the estimator's label is right less often than another class. The label
    stays, and so does its confidence, but `predict_proba` then spreads the rest over the other
    classes more evenly, so that none exceeds the label. Only a confidence below 1/classes leaves no
    room for that: `predict_confidence` gives it as it is, `predict_proba` a row of equal numbers.

    `sample_weight` goes to the calibrator, and to the estimator if its `fit` (or that of the last
    step of a Pipeline) takes it. There is no `decision_function`: it would rank the examples by the
    raw scores, and `predict_proba` ranks them by the calibrated ones.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from hokical.classifier import CalibratedClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> model = CalibratedClassifier(forest, method="temps").fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2]).shape
    (89, 3)
    >>> bool(model.predict_confidence(X[1::2]).min() > 1 / 3)
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | Calibrator = "hoki",
        cv: int | Literal["prefit"] | Any = 5,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the estimator and calibrate it on held-out data.

        Parameters
        ----------
        X : array-like, data frame, sparse matrix or list of shape (n, features)
            Whatever the estimator takes.
        y : array-like of shape (n,)
            Labels: numbers or text.
        sample_weight : array-like of shape (n,), optional
            How much each example counts, for the estimator and for the calibrator.
        """
        calibrator = new_calibrator(self.method)
        X, labels = checked_examples(self, X, y)
        weights = as_weights(sample_weight, labels.size)
        self.estimator_ = self._fitted_estimator(X, labels, weights)
        self.classes_ = known_classes(self.estimator_)
        parts = self._hold_out(X, labels, weights)
        self._calibrate(calibrator, parts, class_index(labels, self.classes_), weights)
        self._remember_features()
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,): the estimator's own where the method preserves labels."""
        logits = self._logits(X)
        return np.asarray(self.classes_[self.calibrator_.predict(logits)])

    def predict_proba(self, X: Any) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`.

        The predicted label has the largest one, as scikit-learn expects; see the notes above.
        """
        logits = self._logits(X)
        proba = self.calibrator_.predict_proba(logits)
        return label_on_top(proba, self.calibrator_.predict(logits), np.isfinite(logits))

    def predict_confidence(self, X: Any) -> FloatArray:
        """The chance (n,) that each predicted label is right."""
        logits = self._logits(X)
        return self.calibrator_.predict_confidence(logits)

    @property
    def _prefit(self) -> bool:
        named = isinstance(self.cv, str) and self.cv == "prefit"
        return named or isinstance(self.estimator, FrozenEstimator)

    def _fitted_estimator(self, X: Any, y: NDArray[Any], weights: FloatArray | None) -> Any:
        """The estimator to predict with: as it came if it is fitted already, else fitted on all."""
        check_estimator(self.estimator)
        if self._prefit:
            return self.estimator
        if np.unique(y).size < 2:
            raise ValueError(
                f"`y` must hold at least two classes; got 1 class, {y[0]!r}, in all {y.size} "
                "examples. There is nothing to calibrate: any confidence below 1 would be wrong."
            )
        if weights is not None and weight_keyword(self.estimator) is None:
            kind = type(self.estimator).__name__
            warn_user(
                f"`sample_weight` was used for the calibration only: {kind} does not take it in "
                "`fit`. Use an estimator that does, or leave it out.",
                UserWarning,
            )
        return fit_clone(self.estimator, X, y, weights)

    def _hold_out(self, X: Any, y: NDArray[Any], weights: FloatArray | None) -> list[HeldOut]:
        """Scores of examples that the model giving them has not seen, one part per fold."""
        # Examples of weight 0 must not count, not even for the smallest probability seen.
        counts = np.ones(y.size, np.bool_) if weights is None else weights > 0.0
        if self._prefit:
            rows = np.flatnonzero(counts)
            return [HeldOut(rows, self.classes_, read_scores(self.estimator_, X)[rows])]
        splits = [(train, test[counts[test]]) for train, test in self._splits(X, y)]
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(hold_out)(self.estimator, X, y, weights, train, test) for train, test in splits
        )
        warn_of_lost_rows(parts, sum(test.size for _, test in splits))
        return [part for part in parts if part.rows.size]

    def _splits(self, X: Any, y: NDArray[Any]) -> Iterator[tuple[IntArray, IntArray]]:
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
        calibrator: Calibrator,
        parts: list[HeldOut],
        truth: IntArray,
        weights: FloatArray | None,
    ) -> None:
        """Pool the held-out scores and fit the calibrator on them."""
        self.lowest_logit_ = -math.inf
        if not scores_are_decisions(self.estimator_):
            self.lowest_logit_ = resolution([part.scores for part in parts], self.classes_.size)
        rows = np.concatenate([part.rows for part in parts])
        logits = np.concatenate([part.logits(self.classes_, self.lowest_logit_) for part in parts])
        self.n_calibration_ = int(rows.size)
        self.calibrator_ = calibrator.fit(
            logits, truth[rows], None if weights is None else weights[rows]
        )

    def _remember_features(self) -> None:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
            elif hasattr(self, name):  # of an earlier fit, on a frame
                delattr(self, name)

    def _logits(self, X: Any) -> FloatArray:
        """The estimator's logits (n, classes), as the calibrator sees them."""
        check_is_fitted(self, "calibrator_")
        return np.maximum(read_scores(self.estimator_, X), self.lowest_logit_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.non_deterministic = inner.non_deterministic
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        return tags


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores (rows, known) of held-out examples `rows` by a model that knows `known` classes."""

    rows: IntArray
    known: NDArray[Any]
    scores: FloatArray

    def logits(self, classes: NDArray[Any], lowest: float) -> FloatArray:
        """Logits (rows, classes): none below `lowest`, and -inf for classes the model lacks."""
        out = np.full((self.rows.size, classes.size), -np.inf)
        out[:, class_index(self.known, classes)] = np.maximum(self.scores, lowest)
        return out


def hold_out(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    weights: FloatArray | None,
    train: IntArray,
    test: IntArray,
) -> HeldOut:
    """Fit on `train`, score the rows of `test` whose class was there to be learned."""
    known = np.unique(y[train])
    rows = test[np.isin(y[test], known)]
    if known.size < 2 or not rows.size:
        return HeldOut(rows[:0], known, np.empty((0, known.size)))
    X_train, y_train = _safe_split(estimator, X, y, train)
    X_test, _ = _safe_split(estimator, X, y, rows, train)
    fitted = fit_clone(estimator, X_train, y_train, None if weights is None else weights[train])
    return HeldOut(rows, known_classes(fitted), read_scores(fitted, X_test))


def read_scores(estimator: Any, X: Any) -> FloatArray:
    """A fitted classifier's logits (n, classes): decision scores, or else log-probabilities."""
    n_classes = known_classes(estimator).size
    if not scores_are_decisions(estimator):
        name = "estimator.predict_proba(X)"
        proba = to_numpy(estimator.predict_proba(X), name)
        scores = from_probabilities(without_overshoot(proba), name=name)
    else:
        name = "estimator.decision_function(X)"
        scores = to_numpy(estimator.decision_function(X), name)
        if scores.ndim == 1 and n_classes == 2:
            scores = from_binary_scores(scores, name=name)
    if scores.shape[1:] != (n_classes,):
        raise ValueError(
            f"`{name}` must have one column per class, {n_classes}; got shape {scores.shape}. "
            'For scores of pairs of classes set `decision_function_shape="ovr"`.'
        )
    return scores.astype(np.float64)


def label_on_top(proba: FloatArray, labels: IntArray, possible: NDArray[np.bool_]) -> FloatArray:
    """Make the label the largest of its row, in place, by evening out the other classes.

    Rows in which it is so already are not touched, and impossible classes keep 0.

    >>> import numpy as np
    >>> label_on_top(np.array([[0.4, 0.5, 0.1]]), np.array([0]), np.ones((1, 3), bool)).round(3)
    array([[0.4, 0.4, 0.2]])
    """
    rows = np.flatnonzero(proba.argmax(axis=1) != labels)
    if rows.size:
        index = (np.arange(rows.size), labels[rows])
        others, allowed = proba[rows], possible[rows].copy()
        top = np.maximum(others[index], 1.0 / allowed.sum(axis=1))
        others[index], allowed[index] = 0.0, False
        others *= ((1.0 - top) / others.sum(axis=1))[:, None]
        even = allowed * ((1.0 - top) / allowed.sum(axis=1))[:, None]
        excess = np.maximum(others.max(axis=1) - top, 0.0)
        span = others.max(axis=1) - even.max(axis=1)
        mix = np.divide(excess, span, out=np.zeros_like(span), where=span > 0.0)[:, None]
        proba[rows] = (1.0 - mix) * others + mix * even
        proba[rows, labels[rows]] = top
    return settle_ties(proba, labels)


def scores_are_decisions(estimator: Any) -> bool:
    """Whether logits come from `decision_function` rather than from `predict_proba`."""
    return hasattr(estimator, "decision_function")


def without_overshoot(proba: NDArray[Any]) -> NDArray[Any]:
    """Probabilities that rounding lifted above 1 (exp of a log-probability can) put back to 1."""
    return np.where((proba > 1.0) & (proba <= 1.0 + _ROUNDING), 1.0, proba)


def resolution(scores: Sequence[FloatArray], n_classes: int) -> float:
    """Log of half the smallest probability seen above 0: what smaller ones are raised to.

    At most half of 1/classes, so that raising never reaches the largest probability of a row. At
    least the rounding unit of 1, 2.2e-16: a probability is no surer than its complement is exact,
    and a naive Bayes classifier that says 1e-300 would rule every sum over examples.

    >>> import numpy as np
    >>> votes = np.log([[0.5, 0.25, 0.25], [0.05, 0.05, 0.9]])
    >>> round(float(np.exp(resolution([votes], 3))), 6)
    0.025
    """
    seen = min(float(np.min(part, initial=0.0, where=np.isfinite(part))) for part in scores)
    half = min(seen, -math.log(n_classes)) - math.log(2.0)
    return max(half, math.log(np.finfo(np.float64).eps))


def new_calibrator(method: Any) -> Calibrator:
    """An unfitted calibrator from a name or from a calibrator."""
    allowed = methods_without_extra_input()
    if isinstance(method, Calibrator) and not method.needs_transformed:
        fresh: Calibrator = clone(method)
        return fresh
    if isinstance(method, str) and method in allowed:
        return make(method)
    raise ValueError(
        f"`method` must be one of {allowed}, or a calibrator that needs nothing but logits; got "
        f"{method!r}."
    )


def checked_examples(owner: Any, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """X as something whose rows can be picked, and the labels as an array (n,)."""
    if y is None:
        raise ValueError(
            f"{type(owner).__name__} requires y to be passed, but the target y is None: give `y`, "
            "the label of each row."
        )
    check_classification_targets(y)
    X, labels = indexable(X, column_or_1d(y, warn=True))
    if labels.size == 0:
        raise ValueError("`X` must have at least one row; got 0 samples.")
    return X, labels


def check_estimator(estimator: Any) -> None:
    """Refuse what is no classifier, and scores that do not belong to classes."""
    if not any(hasattr(estimator, name) for name in ("decision_function", "predict_proba")):
        raise ValueError(
            "`estimator` must be a classifier with `decision_function` or `predict_proba`; got "
            f"{estimator!r}."
        )
    for name, value in estimator.get_params().items():
        # With three classes there are three pairs, so the number of columns would not tell.
        if name.split("__")[-1] == "decision_function_shape" and value == "ovo":
            raise ValueError(
                "`estimator` must give one score per class, but has decision_function_shape="
                "'ovo', scores of pairs. Set it to 'ovr'; the labels stay the same."
            )


def known_classes(estimator: Any) -> NDArray[Any]:
    """The labels that a fitted classifier can give."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise NotFittedError(
            f"`estimator` must be fitted and have `classes_` when `cv` is 'prefit'; got "
            f"{estimator!r}. Fit it first, and wrap it in `sklearn.frozen.FrozenEstimator` if it "
            "is going to be cloned."
        )
    classes = np.asarray(classes)
    if classes.size < 2:
        raise ValueError(f"`estimator` must know at least two classes; got 1 class, {classes}.")
    return classes


def class_index(labels: NDArray[Any], classes: NDArray[Any]) -> IntArray:
    """The position of each label in `classes`, by equality, so that 1 and 1.0 are the same.

    >>> import numpy as np
    >>> class_index(np.array(["b", "a", "b"]), np.array(["a", "b"]))
    array([1, 0, 1])
    """
    place = {label: index for index, label in enumerate(classes.tolist())}
    found = [place.get(label, -1) for label in labels.tolist()]
    if -1 in found:
        row = found.index(-1)
        raise ValueError(
            f"`y` must hold labels that the fitted estimator knows, {classes.tolist()}; got "
            f"{labels[row]!r} in row {row}. Leave such rows out, or fit the estimator on them too."
        )
    return np.array(found, np.int64)


def fit_clone(estimator: Any, X: Any, y: Any, weights: FloatArray | None) -> Any:
    """A copy of the estimator, fitted, with the weights where it takes any."""
    keyword = None if weights is None else weight_keyword(estimator)
    return clone(estimator).fit(X, y, **({keyword: weights} if keyword else {}))


def weight_keyword(estimator: Any) -> str | None:
    """What `fit` calls the weights, or None if it takes none.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> weight_keyword(make_pipeline(StandardScaler(), LogisticRegression()))
    'logisticregression__sample_weight'
    """
    if has_fit_parameter(estimator, "sample_weight"):
        return "sample_weight"
    if not isinstance(estimator, Pipeline):
        return None
    if get_config()["enable_metadata_routing"]:
        return "sample_weight"  # each step has said whether it wants them
    name, last = estimator.steps[-1]
    inner = weight_keyword(last)
    return inner and f"{name}__{inner}"


def warn_of_lost_rows(parts: Sequence[HeldOut], n_held_out: int) -> None:
    """Say so when folds could not score some of their examples; refuse if none is left."""
    n_kept = sum(part.rows.size for part in parts)
    message = (
        f"{n_held_out - n_kept} of {n_held_out} held-out examples are of no use for the "
        "calibration, because the training part of their fold lacks their class, or has one class "
        "only. Use more examples of the rare classes, or a stratified splitter as `cv`."
    )
    if n_kept == 0:
        raise ValueError(message)
    if n_kept < n_held_out:
        warn_user(message, UserWarning)
