"""What a fitted `CalibratedClassifier` predicts: labels, guarantees, other class frequencies."""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from hokical._core.types import AnyArray, FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.calibrators._shift import in_order
from hokical.guarantees._decisions import Decisions, Detections, cost_table, decide
from hokical.guarantees._row_sketch import Reused, RowSketch, refuse_rows_of_fit
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._shift import ShiftEstimate
from hokical.integrations.sklearn import _held_out as held_out
from hokical.integrations.sklearn._held_out import CalibratedModel


class ClassifierPredictions:
    """The predictions of `CalibratedClassifier`, from what its `fit` left."""

    keep_labels: bool
    classes_: Any
    calibrator_: Any
    models_: list[CalibratedModel]
    _fit_rows: RowSketch

    def predict(self, X: Any, *, groups: Any = None) -> AnyArray:
        """Labels (n,): the most likely class, or the estimator's own with `keep_labels`.

        Several labels are (n, labels) of 0 and 1: those with a probability of at least one half.
        `groups` are those of the rows, here and below, if `fit` learned from `calibration_groups`.
        """
        if self.keep_labels:
            return np.asarray(self.classes_[self._ask("predict", X, groups=groups)])
        proba = self.predict_proba(X, groups=groups)
        if isinstance(self.calibrator_, MultilabelCalibrator):
            return np.asarray(proba >= 0.5, np.int64)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def predict_proba(self, X: Any, *, groups: Any = None) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`.

        Of several labels, the probability (n, labels) of each.
        """
        return np.asarray(self._ask("predict_proba", X, groups=groups))

    def predict_confidence(self, X: Any, *, groups: Any = None) -> FloatArray:
        """The probability (n,) that each predicted label is right; (n, labels) of several."""
        if self.keep_labels:
            return np.asarray(self._ask("predict_confidence", X, groups=groups))
        proba = self.predict_proba(X, groups=groups)
        if isinstance(self.calibrator_, MultilabelCalibrator):
            return np.maximum(proba, 1.0 - proba)
        return np.asarray(proba.max(axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Accuracy, as of every classifier in scikit-learn."""
        return float(accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight))

    def certify(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        reused: Reused = "refuse",
    ) -> Self:
        """Note rows that nothing was fitted on, for `predict_or_abstain` and `predict_set`.

        Rows of `fit` are refused, unless `reused="ignore"` says that they only look alike.
        """
        X, labels = held_out.check_examples(self, X, y)
        logits = self._logits(X, groups)
        refuse_rows_of_fit([self._fit_rows], [held_out.example_hashes(X)], "X", reused)
        if isinstance(self.calibrator_, MultilabelCalibrator):
            self.calibrator_.certify(logits, labels, reused=reused)
        else:
            truth = held_out.class_index(labels, self.classes_)
            options: dict[str, Any] = {"groups": groups, "reused": reused}
            self.calibrator_.certify(logits, truth, sample_weight, **options)
        return self

    def predict_set(self, X: Any, *, groups: Any = None, **options: Any) -> Any:
        """The labels that each row may have, by name; options are those of Calibrator.

        Call `certify` first, as for `predict_or_abstain`. For several labels, see
        `MultilabelCalibrator.predict_set`.
        """
        found = self._ask("predict_set", X, groups=groups, **options)
        several = isinstance(self.calibrator_, MultilabelCalibrator)
        return found if several else replace(found, classes=self.classes_.tolist())

    def predict_or_abstain(
        self, X: Any, *, groups: Any = None, **options: Any
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see Calibrator.

        Call `certify` first: held-out folds are scored by other models than the final one, and are
        no proof of what it does. Only a fitted estimator with `decision_function` needs none.
        Labels and confidence are those of `predict` and `predict_confidence`. Where a method such
        as Hoki keeps the estimator's label and another class is more likely, nothing is accepted.
        """
        found: SelectivePrediction = self._ask("predict_or_abstain", X, groups=groups, **options)
        if not self.keep_labels and self.calibrator_.rule_.preserves_labels:
            proba = self.predict_proba(X, groups=groups)
            likeliest = proba.argmax(axis=1)
            accepted = found.accepted & (likeliest == found.labels)  # others were not tested
            found = replace(
                found, labels=likeliest, confidence=proba.max(axis=1), accepted=accepted
            )
        return replace(found, labels=self.classes_[found.labels])

    def predict_interval(self, X: Any, *, groups: Any = None, **options: Any) -> FloatArray:
        """An interval (n, 2) for the accuracy of labels with a similar score; see Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        return np.asarray(self._ask("predict_interval", X, groups=groups, **options))

    def detect(self, X: Any, label: Any, *, groups: Any = None, **options: Any) -> Detections:
        """Which rows to report as perhaps of one class, so that few of it are missed.

        `label` is one of `classes_`. Call `certify` first; see `Calibrator.detect`.
        """
        index = int(held_out.class_index(np.array([label]), self.classes_)[0])
        found: Detections = self._ask("detect", X, index, groups=groups, **options)
        words = found.guarantee.replace(f"class {index}", f"class {label}", 1)
        return replace(found, guarantee=words)

    def _ask(self, name: str, X: Any, *more: Any, groups: Any, **options: Any) -> Any:
        """What the calibrator's method of this name gives for rows of the estimator."""
        logits = self._logits(X, groups)
        if not hasattr(self.calibrator_, name):
            raise TypeError(
                f"`{name}` is for one label per row; this model has several. Use `predict_proba`, "
                "or `predict_set(X, coverage=0.9)` after `certify`."
            )
        given = options if groups is None else options | {"groups": groups}
        try:
            return getattr(self.calibrator_, name)(logits, *more, **given)
        except ValueError as error:  # in the words of this class
            text = str(error).replace("certify(logits, labels", "certify(X, y")
            raise ValueError(text) from error

    def predict_action(self, X: Any, costs: Any, *, groups: Any = None) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to cost.

        `costs` (classes, actions), rows in the order of `classes_`, or of two classes
        (false_positive, false_negative). Actions are labels if there is a column for each, else
        column numbers.
        """
        table = cost_table(costs, self.classes_.size)
        found = decide(self.predict_proba(X, groups=groups), table, self.classes_.size)
        if table.shape[1] != self.classes_.size:
            return found
        return replace(found, actions=self.classes_[found.actions])

    def estimate_shift(
        self, X: Any, sample_weight: Any = None, *, delta: float = 0.05, groups: Any = None
    ) -> ShiftEstimate:
        """Class frequencies and accuracy of rows without labels; see `Calibrator.estimate_shift`.

        `adapt()` of what is found is a classifier like this one. Rows are compared with held-out
        predictions of the fit; those of folds are of other models than the final one, which can be
        a little more or less sure, so "something else changed" may be a false alarm. To rely on
        the verdict, calibrate a `FrozenEstimator` on data that it has not seen.
        """
        calibrator: Calibrator = self.calibrator_
        given = self._logits(X), sample_weight
        found = calibrator.estimate_shift(*given, delta=delta, groups=groups)
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
        check_is_fitted(self, "models_")
        _check_feature_names(self, X, reset=False)
        if hasattr(self, "estimator_"):
            return self.models_[0].logits(X)
        found = [pair.spread(pair.logits(X), self.classes_, groups) for pair in self.models_]
        return held_out.log_of_mean(found)
