"""What scikit-learn estimators are fitted on, and their scores of held-out data, as logits."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing, column_or_1d, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_method_params, check_is_fitted

from hokical._core import conversion
from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.groups import take_rows
from hokical._core.messages import warn_user
from hokical._core.reading import class_index, pair_rows, to_numpy
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.guarantees.calibration_data import number_hashes, number_words, odd_powers, scatter

#: By how much rounding may lift a probability above 1 before it is an error.
_ROUNDING = 1e-6
_ENCODE = (
    "If the estimator takes no labels but 0, 1, ..., as XGBoost does, encode them: "
    "`codes = sklearn.preprocessing.LabelEncoder().fit_transform(y)`."
)


@dataclass(frozen=True, eq=False)
class ClassifierExamples:
    """Rows, labels and whatever else an estimator is fitted on (`params`), or its calibrator."""

    X: Any
    y: AnyArray
    params: dict[str, Any]
    weights: FloatArray | None
    groups: dict[str, AnyArray] | None

    @property
    def several(self) -> bool:
        """Whether rows have several labels, which do not exclude each other."""
        return self.y.ndim == 2

    def of_parts(self, parts: "Sequence[HeldOutScores]") -> tuple[AnyArray, Any, Any]:
        """Labels, weights and groups of the rows that were held out."""
        rows = np.concatenate([part.rows for part in parts])
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else take_rows(self.groups, rows)
        return self.y[rows], weights, groups

    def fit(self, estimator: Any, rows: IntArray | None = None) -> Any:
        """A clone of the estimator, fitted on all rows or on some of them."""
        X, y, params = self.X, self.y, self.params
        if rows is not None:
            X, y = _safe_split(estimator, X, y, rows)
            params = _check_method_params(self.X, params, rows)
        try:
            fresh = clone(estimator)
        except RuntimeError:  # CatBoost copies `cat_features`, which `clone` does not accept
            fresh = deepcopy(estimator)
        try:
            return fresh.fit(X, y, **params)
        except ValueError as error:
            error.add_note(_ENCODE)
            raise

    def hold_out(
        self, estimator: Any, train: IntArray | None, rows: IntArray, *, keep_model: bool
    ) -> "HeldOutScores":
        """Fit on some rows, and score other `rows` whose class occurs there.

        A fitted estimator, `train` None, scores all of them.
        """
        model, nothing = estimator, np.empty(0)
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
        return HeldOutScores(rows, known, scores, model if keep_model else None)


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores (rows, known) of the held-out `rows` by a model of the classes `known`.

    `model` is that model, where it is wanted.
    """

    rows: IntArray
    known: AnyArray
    scores: FloatArray
    model: Any = None

    def logits(self, classes: AnyArray, lowest: float) -> FloatArray:
        """Logits (rows, classes): none below `lowest`, and -inf for classes the model lacks."""
        out = np.full((self.rows.size, classes.size), -np.inf)
        out[:, class_index(self.known, classes, "y")] = np.maximum(self.scores, lowest)
        return out


@dataclass(frozen=True, eq=False)
class CalibratedFold:
    """A fitted classifier, and a calibrator of its logits raised to the `lowest`."""

    model: Any
    calibrator: Any
    lowest: float

    def logits(self, X: Any) -> FloatArray:
        several = isinstance(self.calibrator, MultilabelCalibrator)
        return np.clip(read_scores(self.model, X, several), self.lowest, -self.lowest)

    def spread(self, logits: FloatArray, classes: AnyArray, groups: Any = None) -> FloatArray:
        """Calibrated probabilities (n, classes), 0 for classes that the model lacks."""
        out = np.zeros((len(logits), classes.size))
        known = class_index(classes_of(self.model), classes, "y")
        out[:, known] = self.calibrator.predict_proba(logits, groups=groups)
        return out


def read_scores(estimator: Any, X: Any, several: bool) -> FloatArray:
    """A fitted classifier's logits (n, classes): decision scores, or log-probabilities.

    Of `several` labels, which do not exclude each other, log-odds (n, labels).
    """
    ways = ("decision_function", "predict_proba")
    way = next(way for way in (ways[::-1] if several else ways) if hasattr(estimator, way))
    found, name = getattr(estimator, way)(X), f"estimator.{way}(X)"
    if several and way == "predict_proba":
        return np.asarray(conversion.from_binary_probabilities(found, name=name))
    scores = to_numpy(found, name).astype(np.float64)
    if several:
        return scores
    n_classes = classes_of(estimator).size
    if way == "predict_proba":
        scores = np.where((scores > 1.0) & (scores <= 1.0 + _ROUNDING), 1.0, scores)
        scores = conversion.from_probabilities(scores, zeros="impossible", name=name)
    elif scores.ndim == 1 and n_classes == 2:
        scores = conversion.from_binary_scores(scores, name=name)
    if scores.shape[1:] != (n_classes,):
        raise ValueError(
            f"`{name}` must have one column per class, {n_classes}; got shape {scores.shape}. "
            'For scores of pairs of classes set `decision_function_shape="ovr"`.'
        )
    return scores


def label_resolution(scores: FloatArray) -> float:
    """Minus the largest log-odds that are not those of 0 and 1, which are what rounding makes them,
    and log 2 more.
    """
    size = np.abs(scores)
    return -math.log(2.0) - float(size.max(where=size < 36.0, initial=0.0))


def resolution(scores: Sequence[FloatArray], n_classes: int) -> float:
    """Log of half the smallest probability seen above 0, to which smaller ones are raised.

    At most half of 1/classes, so that it never reaches the largest probability of a row. At least
    2.2e-16, the rounding unit of 1: a probability is not known better than its complement, and the
    1e-300 of a naive Bayes classifier would dominate every sum over examples.

    >>> import numpy as np
    >>> votes = np.log([[0.5, 0.25, 0.25], [0.05, 0.05, 0.9]])
    >>> round(float(np.exp(resolution([votes], 3))), 6)
    0.025
    """
    seen = min(float(np.min(part, initial=0.0, where=np.isfinite(part))) for part in scores)
    half = min(seen, -math.log(n_classes)) - math.log(2.0)
    return max(half, math.log(np.finfo(np.float64).eps))


def check_examples(
    owner: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
) -> tuple[Any, AnyArray]:
    """X in a form that can be indexed by rows, and the labels as an array (n,)."""
    if y is None:
        raise ValueError(
            f"{type(owner).__name__} requires y to be passed, but the target y is None."
        )
    pair_rows(X, y, sample_weight, groups, ("X", "y"))
    missing = [value is None or value != value for value in np.ravel(to_numpy(y, "y"))]
    if any(missing):
        raise ValueError(
            f"`y` must have a label in every row; got none (NaN) in {sum(missing)} of them, row "
            f"{missing.index(True)} first. Drop such rows."
        )
    check_classification_targets(y)
    several = type_of_target(y) == "multilabel-indicator"
    X, labels = indexable(X, to_numpy(y, "y") if several else column_or_1d(y, warn=True))
    if labels.size == 0:
        raise ValueError("`X` must have at least one row; got 0 samples.")
    return X, labels


def log_of_mean(parts: Sequence[FloatArray]) -> FloatArray:
    """The logarithm of the mean of probabilities (n, classes), -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.mean(parts, axis=0)))


def example_hashes(X: Any) -> FloatArray:
    """A number in [0, 1) for each row (n,) of a table, sparse matrix or list, by its contents."""
    if issparse(X):
        entries = X.tocoo()
        words = np.zeros(entries.shape[0], np.uint64)
        odd = odd_powers(entries.shape[1])[entries.col]
        np.add.at(words, entries.row, number_words(entries.data) * odd)
        return scatter(words)
    try:
        table = np.asarray(X)
    except ValueError:  # rows of different lengths
        table = np.fromiter(X, object)
    if table.dtype.kind in "fiub":
        return number_hashes(table.reshape(len(table), -1))
    texts = (repr(row).encode(errors="replace") for row in table.tolist())
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return scatter(np.frombuffer(digests, np.uint64))


def check_estimator(estimator: Any) -> None:
    """Refuse estimators without scores, or with scores of pairs of classes."""
    if not any(hasattr(estimator, name) for name in ("decision_function", "predict_proba")):
        raise ValueError(
            "`estimator` must be a classifier with `decision_function` or `predict_proba`; got "
            f"{estimator!r}."
        )
    for name, value in estimator.get_params().items():
        # Three classes have three pairs, so the number of columns does not tell.
        if name.split("__")[-1] == "decision_function_shape" and value == "ovo":
            raise ValueError(
                "`estimator` must give one score per class, but has decision_function_shape="
                "'ovo', scores of pairs. Set it to 'ovr'; the labels stay the same."
            )


def classes_of(estimator: Any) -> AnyArray:
    """The labels that a fitted classifier can predict."""
    check_is_fitted(estimator, "classes_")
    classes = np.asarray(estimator.classes_)
    if classes.size < 2:
        raise ValueError(f"`estimator` must know at least two classes; got 1 class, {classes}.")
    return classes


def warn_of_lost_rows(parts: Sequence[HeldOutScores], n_held_out: int) -> None:
    """Warn if folds could not score some of their examples; raise if none is left."""
    n_kept = sum(part.rows.size for part in parts)
    message = (
        f"{n_held_out - n_kept} of {n_held_out} held-out examples cannot be used for "
        "calibration, because the training part of their fold lacks their class, or has only one "
        "class. Use more examples of the rare classes, or a stratified splitter as `cv`."
    )
    if n_kept == 0:
        raise ValueError(message)
    if n_kept < n_held_out:
        warn_user(message, UserWarning)
