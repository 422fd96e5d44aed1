"""What a scikit-learn estimator says of data held out from it: scores, read as logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import has_fit_parameter

from hokical._warnings import warn_user
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.registry import make, methods_without_extra_input
from hokical.calibrators.temps import settle_ties
from hokical.logits import from_binary_scores, from_probabilities, to_numpy

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: A probability may exceed 1 by this much, from rounding, before it is an error.
_ROUNDING = 1e-6


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


def new_calibrator(method: Any) -> BaseCalibrator:
    """An unfitted calibrator from a name or from a calibrator."""
    allowed = [*methods_without_extra_input(), "auto"]
    if isinstance(method, BaseCalibrator) and not method.needs_transformed:
        fresh: BaseCalibrator = clone(method)
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
