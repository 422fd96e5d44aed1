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
from hokical._tensors import answers_with_tensors
from hokical._warnings import warn_user
from hokical.answers import confidence_of, labels_of
from hokical.guarantees.promises import Promises
from hokical.logits import Logits, as_labels, as_logits, as_weights
from hokical.storage import write_document
from hokical.streams.blocks import Blocks
from hokical.streams.dispatch import also_out_of_core, as_blocks
from hokical.streams.scored import ScoredBlocks
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class BaseCalibrator(Promises, BaseEstimator):  # type: ignore[misc]
    """Base of all calibrators; see `Hoki` for the methods' documentation."""

    #: How the method is called in the registry, in tables and on the command line.
    name: ClassVar[str]
    #: Where the method was published.
    reference: ClassVar[str]
    #: What a fit costs, in words.
    cost: ClassVar[str]
    #: False for methods whose most likely class can differ from the classifier's label.
    preserves_labels: ClassVar[bool] = True
    #: True for methods that make do with the best logits of each row, as a `TopK`.
    accepts_top_k: ClassVar[bool] = False
    #: True for methods that also need the logits of transformed inputs.
    needs_transformed: ClassVar[bool] = False

    n_classes_: int

    def fit(self, logits: Any, labels: Any = None, sample_weight: Any = None) -> Self:
        """Learn from validation logits and labels.

        Parameters
        ----------
        logits : array-like of shape (n, classes), or TopK
            The classifier's scores on examples it was not trained on. -inf marks an impossible
            class. A torch tensor stays on its device. What does not fit into memory can be given as
            chunks of (logits, labels), as a file or as a Dask array: see `hokical.streams`.
        labels : array-like of shape (n,)
            The true class of each example, as a column index. Left out where chunks bring theirs.
        sample_weight : array-like of shape (n,), optional
            How much each example counts; 2 is the same as giving it twice.
        """
        blocks = as_blocks(logits, labels, sample_weight)
        if blocks is not None:
            return self.fit_blocks(blocks)
        data, truth, weights = self._checked_examples(logits, labels, sample_weight)
        self._forget_classes()
        self._fit(data, truth, weights)
        self._keep_fit_scores(data, truth, weights)
        self._remember_classes(data.n_classes)
        return self

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Learn from blocks that are not in memory; `fit` and `hokical.streams.fit` make them."""
        if not self._fits_in_one_pass():
            blocks.require_passes(type(self).__name__)
        self._forget_classes()
        scored = ScoredBlocks(blocks, self._count_scores)
        self._fit_blocks(scored)
        self._set_fit_scores(scored.table)
        self._remember_classes(blocks.n_classes)
        return self

    @also_out_of_core
    def predict(self, logits: Any) -> IntArray:
        """Labels (n,): the classifier's own where the method preserves labels."""
        return labels_of(self._checked_logits(logits), self)

    @also_out_of_core
    def predict_confidence(self, logits: Any) -> FloatArray:
        """The chance (n,) that each predicted label is right."""
        return confidence_of(self._checked_logits(logits), self)

    @also_out_of_core
    def predict_proba(self, logits: Any) -> FloatArray:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The hidden classes of a `TopK` share evenly what is left to them.
        """
        data = self._checked_logits(logits)
        if isinstance(data, TopK):
            return _with_confidence(self._proba(data.filled()), data, self._confidence(data))
        return self._proba(data)

    @answers_with_tensors
    def confidence_bounds(self, logits: Any) -> tuple[FloatArray, FloatArray]:
        """The least and the greatest confidence (n,) that the hidden classes of a `TopK` allow.

        Half their difference tells how much the confidence owes to what is not seen. Both are the
        confidence itself where every class is seen.
        """
        data = self._checked_logits(logits)
        if isinstance(data, TopK):
            return self._confidence_bounds(data)
        confidence = confidence_of(data, self)
        return confidence, confidence.copy()

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
                "guarantees": self._stored_scores(),
            },
        )

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to fit.")

    def _fit_blocks(self, blocks: Blocks) -> None:
        """Gather everything and fit as ever, unless a method knows better."""
        self._fit(*blocks.gather(type(self).__name__))

    def _fits_in_one_pass(self) -> bool:
        """Whether `_fit_blocks` goes through the blocks once."""
        return True

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

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        raise TypeError(f"{type(self).__name__} does not say what hidden classes could change.")

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
        data = self._acceptable(as_logits(logits))
        truth = as_labels(labels, data.n_rows, data.n_classes)
        return data, truth, as_weights(sample_weight, data.n_rows)

    def _checked_logits(self, logits: Any) -> Logits:
        check_is_fitted(self, "n_classes_")
        return self._acceptable(as_logits(logits, fitted_by=self))

    def _acceptable(self, logits: Logits) -> Logits:
        if self.accepts_top_k:
            return logits
        return logits.with_every_class(self.name, "Use temps, ets, hoki or profile")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _with_confidence(proba: FloatArray, logits: TopK, confidence: FloatArray) -> FloatArray:
    """Give the label its confidence and the other classes (n, classes) the rest, as they share it.

    Whether the label's share is the confidence depends on the method: stability is the midpoint of
    two, where the shares come from one stand-in for the hidden classes.
    """
    rows = np.arange(logits.n_rows)
    own = np.where(logits.single_choice, 1.0, confidence)
    proba[rows, logits.labels] = 0.0
    others = proba.sum(axis=1)
    proba *= np.divide(1.0 - own, others, out=np.zeros_like(own), where=others > 0.0)[:, None]
    proba[rows, logits.labels] = own
    return proba


def warn_about_impossible_truths(
    logits: Logits, labels: IntArray, weights: FloatArray | None
) -> None:
    """Say how many examples have a true class that their logits rule out."""
    impossible = logits.of_class(labels) == -np.inf
    if weights is not None:
        impossible &= weights > 0.0
    if impossible.any():
        warn_user(
            f"{int(impossible.sum())} of {logits.n_rows} examples have a true class with logit "
            "-inf; they teach only that the other classes were wrong. Mask only classes that "
            "cannot occur.",
            RuntimeWarning,
        )
