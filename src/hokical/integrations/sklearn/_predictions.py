"""What a fitted `CalibratedClassifier` says of rows: labels, promises, a new balance."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from hokical._core.files import replace_file
from hokical._core.types import AnyArray, FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._shift import in_order
from hokical.guarantees._decisions import Decisions, Detections, cost_table, decide
from hokical.guarantees._row_sketch import RowSketch
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._sets import PredictionSets
from hokical.guarantees._shift import ShiftEstimate
from hokical.integrations.sklearn import _held_out as held_out
from hokical.integrations.sklearn._held_out import CalibratedModel


class ClassifierPredictions:
    """The answers of `CalibratedClassifier`, from what its `fit` left."""

    keep_labels: bool
    classes_: AnyArray
    calibrator_: Calibrator
    models_: list[CalibratedModel]
    _fit_rows: RowSketch

    def predict(self, X: Any, *, groups: Any = None) -> AnyArray:
        """Labels (n,): the most likely class, or the estimator's own with `keep_labels`.

        `groups` are those of the rows, here and below, if `fit` learned from `calibration_groups`.
        """
        if self.keep_labels:
            logits = self._logits(X)
            return np.asarray(self.classes_[self.calibrator_.predict(logits, groups=groups)])
        proba = self.predict_proba(X, groups=groups)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def predict_proba(self, X: Any, *, groups: Any = None) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`."""
        logits = self._logits(X, groups)
        return np.asarray(self.calibrator_.predict_proba(logits, groups=groups))

    def predict_confidence(self, X: Any, *, groups: Any = None) -> FloatArray:
        """The probability (n,) that each predicted label is right."""
        if self.keep_labels:
            logits = self._logits(X)
            return np.asarray(self.calibrator_.predict_confidence(logits, groups=groups))
        return np.asarray(self.predict_proba(X, groups=groups).max(axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Accuracy, as of every classifier in scikit-learn."""
        return float(accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight))

    def certify(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Note rows that nothing was fitted on, for `predict_or_abstain` and `predict_set`.

        Rows of `fit` are refused.
        """
        X, labels = held_out.check_examples(self, X, y)
        truth = held_out.class_index(labels, self.classes_)
        logits = self._logits(X, groups)
        if hasattr(self, "_fit_rows"):  # not in a pickle of an earlier version
            self._fit_rows.refuse(held_out.example_hashes(X), "X")
        self.calibrator_.certify(logits, truth, sample_weight, groups=groups)
        return self

    def predict_set(self, X: Any, *, groups: Any = None, **options: Any) -> PredictionSets:
        """The labels that each row may have, by name; options are those of Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        logits = self._logits(X, groups)
        with _in_own_words():
            own = self._own_groups(groups, options.get("by"))
            found: PredictionSets = self.calibrator_.predict_set(logits, groups=own, **options)
        return replace(found, classes=self.classes_.tolist())

    def predict_or_abstain(
        self, X: Any, *, risk: float = 0.05, delta: float = 0.1, groups: Any = None
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see Calibrator.

        Call `certify` first: held-out folds are scored by other models than the final one, and are
        no proof of what it does. Only a fitted estimator with `decision_function` needs none.
        Labels and confidence are those of `predict` and `predict_confidence`. Where a method such
        as Hoki keeps the estimator's label and another class is more likely, nothing is accepted.
        """
        logits = self._logits(X, groups)
        with _in_own_words():
            calibrator: Calibrator = self.calibrator_
            own = self._own_groups(groups)
            found = calibrator.predict_or_abstain(logits, risk=risk, delta=delta, groups=own)
        if not self.keep_labels and calibrator.rule_.preserves_labels:
            proba = np.asarray(calibrator.predict_proba(logits, groups=groups))
            likeliest = proba.argmax(axis=1)
            accepted = found.accepted & (likeliest == found.labels)  # others were not tested
            found = replace(
                found, labels=likeliest, confidence=proba.max(axis=1), accepted=accepted
            )
        return replace(found, labels=self.classes_[found.labels])

    def predict_interval(self, X: Any, *, delta: float = 0.05, groups: Any = None) -> FloatArray:
        """An interval (n, 2) for the accuracy of labels with a similar score; see Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        logits = self._logits(X, groups)
        with _in_own_words():
            own = self._own_groups(groups)
            found = self.calibrator_.predict_interval(logits, delta=delta, groups=own)
        return np.asarray(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the classifier with its estimator to a file, atomically, by joblib (a pickle).

        `calibrator_.save` writes the calibrator alone, as JSON.
        """
        with replace_file(path) as stream:
            joblib.dump(self, stream)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What `save` wrote. A pickle can run any code: load files that you trust alone."""
        found = joblib.load(path)
        if not isinstance(found, cls):
            raise TypeError(
                f"`path` must be a file that `{cls.__name__}.save` wrote; {path} holds a "
                f"{type(found).__name__}."
            )
        return found

    def detect(
        self,
        X: Any,
        label: Any,
        *,
        recall: float = 0.95,
        delta: float | None = None,
        groups: Any = None,
    ) -> Detections:
        """Which rows to report as perhaps of one class, so that few of it are missed.

        `label` is one of `classes_`. Call `certify` first; see `Calibrator.detect`.
        """
        logits, index = (
            self._logits(X, groups),
            int(held_out.class_index(np.array([label]), self.classes_)[0]),
        )
        with _in_own_words():
            calibrator: Calibrator = self.calibrator_
            own = self._own_groups(groups)
            found = calibrator.detect(logits, index, recall=recall, delta=delta, groups=own)
        return replace(
            found, guarantee=found.guarantee.replace(f"class {index}", f"class {label}", 1)
        )

    def predict_action(
        self, X: Any, costs: Any, *, actions: Any = None, groups: Any = None
    ) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to cost.

        `costs` (classes, actions), rows in the order of `classes_`, or of two classes
        (false_positive, false_negative); `actions` are the names of the columns. By default they
        are the labels if there is a column for each, else column numbers.
        """
        table = cost_table(costs, self.classes_.size)
        found = decide(self.predict_proba(X, groups=groups), table, self.classes_.size)
        n_actions = table.shape[1]
        names = self.classes_ if actions is None and n_actions == self.classes_.size else actions
        names = np.arange(n_actions) if names is None else np.asarray(names)
        if names.shape != (n_actions,):
            raise ValueError(
                f"`actions` must name the {n_actions} columns of `costs`; got {names.size} names."
            )
        return replace(found, actions=names[found.actions])

    def estimate_shift(
        self, X: Any, sample_weight: Any = None, *, delta: float = 0.05, groups: Any = None
    ) -> ShiftEstimate:
        """Class balance and accuracy of new rows, without labels; see `Calibrator.estimate_shift`.

        `adapt()` of what is found is a classifier like this one. Rows are compared with held-out
        predictions of the fit; those of folds are of other models than the final one, which can be
        a little more or less sure, so "something else changed" may be a false alarm. To rely on
        the verdict, calibrate a `FrozenEstimator` on data that it has not seen.
        """
        calibrator = self.calibrator_
        found = calibrator.estimate_shift(
            self._logits(X), sample_weight, delta=delta, groups=groups
        )
        own: dict[str, Any] = {
            "class_names": tuple(map(str, self.classes_.tolist())),
            "_calibrator": self._with_calibrator(calibrator._without_groups()),
        }
        parts = {name: replace(part, **own) for name, part in found.by_group.items()}
        return replace(found, by_group=parts, **own)

    def reweight_classes(self, frequencies: Any) -> Self:
        """A copy for other class frequencies, which are known; see `Calibrator.reweight_classes`.

        They are in the order of `classes_`, or a mapping of labels to frequencies.
        """
        calibrator = self.calibrator_
        if isinstance(frequencies, Mapping):
            frequencies = in_order(frequencies, self.classes_.tolist())
        return self._with_calibrator(calibrator.reweight_classes(frequencies))

    def _reweight(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is `weights` (classes,) times as frequent."""
        return self._with_calibrator(self.calibrator_._reweight(weights))

    def _with_calibrator(self, calibrator: Calibrator) -> Self:
        twin = copy(self)
        twin.calibrator_ = calibrator
        if hasattr(self, "estimator_"):
            twin.models_ = [replace(self.models_[0], calibrator=calibrator)]
        return twin

    def _logits(self, X: Any, groups: Any = None) -> FloatArray:
        """The estimator's logits (n, classes), raised to the lowest; or those of the mean."""
        self._check_columns(X)
        if hasattr(self, "estimator_"):
            return self.models_[0].logits(X)
        found = [pair.spread(pair.logits(X), self.classes_, groups) for pair in self.models_]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.mean(found, axis=0)))

    def _own_groups(self, groups: Any, by: Any = None) -> Any:
        """Groups for the calibrator: those that an ensemble learned from are used by its models."""
        return groups if hasattr(self, "estimator_") or by == "group" else None

    def _check_columns(self, X: Any) -> None:
        """Refuse a frame whose columns are not those of the fit, in their order."""
        check_is_fitted(self, "models_")
        if not type(self.models_[0].model).__module__.startswith("sklearn."):  # which look
            _check_feature_names(self, X, reset=False)


@contextmanager
def _in_own_words() -> Iterator[None]:
    """Errors of the calibrator that name `certify` as the wrapper has it."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace("certify(logits, labels", "certify(X, y")
        raise ValueError(text) from error
