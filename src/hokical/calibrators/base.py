"""What every calibrator is: a scikit-learn estimator from logits to confidence.

A method implements `_fit` and `_proba` (or `_confidence` as well) on checked input; everything a
user touches is here: validation, prediction, saving.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

import hokical
from hokical._warnings import warn_user
from hokical.logits import Logits, as_labels, as_logits, as_weights
from hokical.storage import write_document

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Calibrator(BaseEstimator):  # type: ignore[misc]
    """Base of all calibrators; see `Hoki` for the methods' documentation."""

    #: How the method is called in the registry, in tables and on the command line.
    name: ClassVar[str]
    #: Where the method was published.
    reference: ClassVar[str]
    #: What a fit costs, in words.
    cost: ClassVar[str]
    #: False for methods whose most likely class can differ from the classifier's label.
    preserves_labels: ClassVar[bool] = True
    #: True for methods that also need the logits of transformed inputs.
    needs_transformed: ClassVar[bool] = False

    n_classes_: int

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None) -> Self:
        """Learn from validation logits and labels.

        Parameters
        ----------
        logits : array-like of shape (n, classes)
            The classifier's scores on examples it was not trained on. -inf marks an impossible
            class.
        labels : array-like of shape (n,)
            The true class of each example, as a column index.
        sample_weight : array-like of shape (n,), optional
            How much each example counts; 2 is the same as giving it twice.
        """
        data, truth, weights = self._checked_examples(logits, labels, sample_weight)
        self._forget_classes()
        self._fit(data, truth, weights)
        self._remember_classes(data.n_classes)
        return self

    def predict(self, logits: Any) -> IntArray:
        """Labels (n,): the classifier's own where the method preserves labels."""
        data = self._checked_logits(logits)
        return self._labels(data)

    def predict_confidence(self, logits: Any) -> FloatArray:
        """The chance (n,) that each predicted label is right."""
        return self._confidence(self._checked_logits(logits))

    def predict_proba(self, logits: Any) -> FloatArray:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0."""
        return self._proba(self._checked_logits(logits))

    def score(self, logits: Any, labels: Any, sample_weight: Any = None) -> float:
        """Minus the Brier score of the confidence: larger is better, 0 is perfect."""
        known = self._checked_logits(logits)
        data, truth, weights = self._checked_examples(known, labels, sample_weight)
        error = self.predict_confidence(data) - (self.predict(data) == truth)
        return -float(np.average(error**2, weights=weights))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads it.

        A `random_state` that is a generator is stored as None: its draws are kept, not its state.
        """
        check_is_fitted(self, "n_classes_")
        parameters = self.get_params(deep=False)
        if not isinstance(parameters.get("random_state"), (int, np.integer, type(None))):
            parameters["random_state"] = None  # a generator's state is not ours to keep
        write_document(
            path,
            {
                "kind": type(self).__name__,
                "library_version": hokical.__version__,
                "n_classes": self.n_classes_,
                "parameters": parameters,
                "state": self._state(),
            },
        )

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to fit.")

    def _proba(self, logits: Logits) -> FloatArray:
        raise TypeError(f"{type(self).__name__} does not say how to predict.")

    def _labels(self, logits: Logits) -> IntArray:
        if self.preserves_labels:
            return logits.labels
        return np.asarray(np.argmax(self._proba(logits), axis=1))

    def _confidence(self, logits: Logits) -> FloatArray:
        proba = self._proba(logits)
        if self.preserves_labels:
            return proba[np.arange(logits.n_rows), logits.labels]
        return np.asarray(proba.max(axis=1))

    def _state(self) -> dict[str, Any]:
        """The fitted attributes, as numbers, strings and arrays."""
        raise TypeError(f"{type(self).__name__} does not say how to be saved.")

    def _restore(self, state: dict[str, Any]) -> None:
        """Set the fitted attributes from what `_state` gave."""
        raise TypeError(f"{type(self).__name__} does not say how to be loaded.")

    def _forget_classes(self) -> None:
        """From here on a fit that is broken off leaves no half-fitted calibrator behind."""
        self.__dict__.pop("n_classes_", None)

    def _remember_classes(self, n_classes: int) -> None:
        self.n_classes_ = n_classes
        self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes)

    def _checked_examples(
        self, logits: Any, labels: Any, sample_weight: Any
    ) -> tuple[Logits, IntArray, FloatArray | None]:
        if labels is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row."
            )
        data = as_logits(logits)
        truth = as_labels(labels, data.n_rows, data.n_classes)
        return data, truth, as_weights(sample_weight, data.n_rows)

    def _checked_logits(self, logits: Any) -> Logits:
        check_is_fitted(self, "n_classes_")
        return as_logits(logits, fitted_by=self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def warn_about_impossible_truths(
    logits: Logits, labels: IntArray, weights: FloatArray | None
) -> None:
    """Say how many examples have a true class that their logits rule out."""
    impossible = logits.values[np.arange(logits.n_rows), labels] == -np.inf
    if weights is not None:
        impossible &= weights > 0.0
    if impossible.any():
        warn_user(
            f"{int(impossible.sum())} of {logits.n_rows} examples have a true class with logit "
            "-inf; they teach only that the other classes were wrong. Mask only classes that "
            "cannot occur.",
            RuntimeWarning,
        )
