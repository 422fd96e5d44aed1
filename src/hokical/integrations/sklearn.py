"""A scikit-learn classifier with calibrated confidence. The extra `sklearn` installs
what it needs.

An ensemble keeps the models of the folds, each with a calibrator that was fitted on the
held-out part of its fold, and averages their probabilities. Without it, the scores of
all held-out parts are pooled, one calibrator is fitted on them, and the estimator is
fitted again on all the data: one model, as fast as the estimator alone. It has seen
more data than the models of the folds, so its scores are of another scale than those
that the calibrator was fitted on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, Self

import numpy as np
from scipy.sparse import issparse

from hokical._core.runtime import WarningLog, install_command, warn_user

try:
    import sklearn as sklearn
except ImportError as error:
    raise ImportError(
        f"`CalibratedClassifier` needs scikit-learn: {install_command('sklearn')}."
    ) from error

from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import check_cv
from sklearn.utils import (
    Tags,
    column_or_1d,
    get_tags,
    indexable,
    validation,
)
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.parallel import Parallel, delayed

from hokical._core import reading
from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.ensembles import Ensemble
from hokical._core.groups import read_columns
from hokical._core.logits import as_logits
from hokical._core.reading import class_index
from hokical._fitting.examples import Examples, with_stats
from hokical._fitting.records import complete_record
from hokical.calibrators.averaged import CalibratedMember, CalibratedMembers
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, new_calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.calibrators.decisions import Decisions, cost_table, decide
from hokical.calibrators.methods import AutoCalibrator
from hokical.guarantees import fingerprints
from hokical.guarantees.repeats import copied_inputs, warn_of_copied_inputs
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import Detections
from hokical.guarantees.shift import ShiftEstimate, in_order
from hokical.integrations.held_out import (
    ClassifierExamples,
    HeldOutScores,
    check_estimator,
    classes_of,
    log_of_mean,
    read_scores,
    resolution,
)
from hokical.integrations.members import (
    CalibratedEnsemble,
    FittedMember,
    HeldOutMember,
    MemberClassifiers,
    pool_scores,
)
from hokical.rules.base import (
    ClippedRule,
    UncalibratedRule,
    clip_log_probabilities,
    predict_on_host,
)

__all__ = ["CalibratedClassifier"]

#: Row numbers to train on, None for a fitted estimator, and those to be scored.
Split = tuple[IntArray | None, IntArray]

_ENSEMBLE_FROM = 500  # examples: with five folds, a hundred for each calibrator
#: Log-odds of the largest float64 below 1 are 36.7.
_CERTAIN_LOG_ODDS = 36.0
#: The share of the different rows from which the values of a column are continuous.
_CONTINUOUS_SHARE = 0.5


class CalibratedClassifier(
    ClassifierMixin,  # type: ignore[misc]
    MetaEstimatorMixin,  # type: ignore[misc]
    _BaseComposition,  # type: ignore[misc]
):
    """Wrap a classifier so that its confidence is calibrated.

    Logits are the estimator's `decision_function`, or the logarithm of its
    `predict_proba`. There, a probability of 0 shows the estimator's resolution (no tree
    voted for the class): zeros are raised to half the smallest probability seen on
    held-out data, or to 2.2e-16 if that is more. The most likely class of the
    calibrated probabilities is predicted, as by scikit-learn's own; `keep_labels=True`
    predicts the estimator's.

    Parameters
    ----------
    estimator : scikit-learn classifier, or list of pairs (name, classifier)
        Needs `decision_function` or `predict_proba`. May be a Pipeline or a search.
        The classifiers of a list, or of a `VotingClassifier`, are pooled: the pool and
        one calibrator are fitted on the held-out scores of all of them.
    method : str or Calibrator
        A name in the registry, or a calibrator. scikit-learn's names work too:
        "temperature", "sigmoid" (`platt`; of more than two classes `vecs`, a slope and
        an intercept for each) and "isotonic" (`irova_ts`, an isotonic regression of
        each class against the others).
    cv : int, splitter, iterable of (train, test) or "prefit"
        How to hold out data; an int is a number of stratified folds, not shuffled.
        Every held-out prediction counts once, so splits may overlap or omit examples.
        With "prefit", or if the estimator is a `FrozenEstimator`, the estimator has
        been fitted on other data, and all the data is used to calibrate. Prefer
        `FrozenEstimator`: it survives `clone`, and so a search.
    keep_labels : bool
        True: `predict` gives the estimator's own label, the class of its largest score,
        with every method that preserves labels (see `hokical methods`), and
        `predict_confidence` the probability of that label. Another class can then have
        the largest entry of `predict_proba`, whose probabilities are the same either
        way. It takes precedence over the `keep_labels` of an `AutoCalibrator` that is
        given as `method`. Of a list, the labels are those of the first classifier; a
        `VotingClassifier` is calibrated as one classifier, whose labels are the vote's.
    ensemble : bool or "auto"
        True: the mean of the calibrated probabilities of the models of the folds, as in
        scikit-learn; "auto" is True with at least 500 examples, unless the estimator is
        fitted already, or with `keep_labels`: a fold of fewer is too small for a
        calibrator of its own. False: one model, fitted on all the data, as fast as the
        estimator alone. Of several classifiers, the scores of each are the mean of
        those of its models of the folds, or those of its one model.
    most_members : int, optional
        How many of several classifiers may have a weight, chosen greedily. The others
        are not needed any more: they are neither fitted on all the data nor evaluated.
    n_jobs : int, optional
        How many folds to fit in parallel, as in scikit-learn.

    Attributes
    ----------
    classes_ : (classes,), the labels, in the order of the columns of `predict_proba`;
        of several labels, their column numbers
    models_ : what predicts, one pair of `model` and `calibrator`, or one per fold; of
        several classifiers one pair, whose `model` has their models by name
    calibrator_ : the calibrator, fitted on `n_calibration_` held-out predictions. It
        can be used alone, on what `predict_scores` gives: logits, or of an ensemble a
        `hokical.Ensemble` of the logits of its models
    reason_ : what the default chose, and why
    members_ : of several classifiers, a table of their names, weights and held-out log
        losses
    needed_members_ : of several classifiers, the names of those that are evaluated
    named_estimators_ : of several classifiers, those that are needed, fitted on all the
        data, by name; not of an ensemble
    estimator_ : the estimator, fitted on all the data; not of an ensemble or of several
        classifiers, nor is the next
    lowest_logit_ : what the calibrator raises log-probabilities to; -inf if logits come
        from `decision_function`
    n_features_in_, feature_names_in_ : those of the estimator

    Notes
    -----
    An example whose class does not occur in the training part of its fold is not used
    to calibrate, with a warning: the final model would not make that mistake. For the
    other examples of the fold that class is masked (-inf), as it was for the fold's
    model. A fold whose training part has only one class is not used at all.

    `sample_weight` trains the estimator, if its `fit` (or that of the last step of a
    Pipeline) takes it, and the calibrator goes by `calibration_weight` alone: class
    weights in training would otherwise make probabilities of a population in which
    classes are as common as weighted. There is no `decision_function`: it would rank
    examples by raw scores, unlike `predict_proba`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from hokical import CalibratedClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> model = CalibratedClassifier(forest, method="temps").fit(X[::2], y[::2])
    >>> (
    ...     model.predict_proba(X[1::2]).shape,
    ...     bool(model.predict_confidence(X[1::2]).min() > 1 / 3),
    ... )
    ((89, 3), True)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | Calibrator = "auto",
        cv: int | Literal["prefit"] | Any = 5,
        keep_labels: bool = False,
        ensemble: bool | Literal["auto"] = "auto",
        most_members: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.keep_labels = keep_labels
        self.ensemble = ensemble
        self.most_members = most_members
        self.n_jobs = n_jobs

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep` also those of the estimator, or the classifiers
        of a list by name, and theirs.
        """
        if isinstance(self.estimator, list):
            return dict(self._get_params("estimator", deep=deep))
        return dict(super().get_params(deep=deep))

    def set_params(self, **params: object) -> Self:
        """Set parameters by the names that `get_params` gives, such as
        `rf__n_estimators`.
        """
        self._set_params("estimator", **params)
        return self

    def fit(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        calibration_weight: object = None,
        calibration_groups: object = None,
        **params: Any,
    ) -> Self:
        """Fit the estimator and calibrate it on held-out data.

        `X` (n, features) is whatever the estimator takes: arrays, data frames, sparse
        matrices, lists. `y` (n,) are labels, numbers or text; or (n, labels) of 0 and
        1, labels that do not exclude each other, for which probabilities are (n,
        labels). `sample_weight` (n,) says how much each example counts in training,
        `calibration_weight` (n,) how much it counts in the calibration; rows of weight
        0 calibrate nothing. `params` are those of the estimator's `fit`, such as
        `cat_features` or `eval_set`, cut by fold where they have an entry per row;
        `groups` (n,) is the splitter's. With scikit-learn's metadata routing they go to
        whom they are requested by.

        `calibration_groups` (n,), or several columns, are groups of people, sites,
        subjects that the calibrator learns from, see `AutoCalibrator.fit`; the
        estimator does not see them. If they clearly help, predictions need them, as
        `groups`: `predict_proba(X, groups=...)`.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit
        #: Of an ensemble, a calibrator of the probabilities of single models.
        self._single_calibrator: Calibrator | None = None
        members = self._read_members()
        if members is None:
            self._check_one_estimator()
        reading.pair_rows(
            X, calibration_groups, None, None, ("X", "calibration_groups")
        )
        X, labels = check_examples(self, X, y, sample_weight)
        n_rows = len(labels)
        validation.validate_data(self, X, skip_check_array=True)
        weights = reading.as_weights(sample_weight, n_rows)
        calibration_weights = reading.as_weights(
            calibration_weight, n_rows, name="calibration_weight"
        )
        groups = None
        if calibration_groups is not None:
            groups = read_columns(calibration_groups, n_rows)
        used = np.ones(n_rows, np.bool_) if weights is None else weights > 0.0
        calibrates = used
        if calibration_weights is not None:
            calibrates = used & (calibration_weights > 0.0)
        self._warned = WarningLog()
        with self._warned.once():
            fit_params, split_params = self._route(members, params, weights)
            if not (self._prefit or split_params):
                _warn_of_copies(X, labels, used)
            data = ClassifierExamples(X, labels, {}, calibration_weights, groups)
            if members is None:
                data = replace(data, params=fit_params)
                self._fit_models(data, calibrates, split_params)
            else:
                members = members.with_params(fit_params)
                self._fit_members(members, data, calibrates, split_params)
        self._fit_rows = fingerprints.RowSketch.from_hashes(example_hashes(X)[used])
        return self

    def _fit_models(
        self,
        data: ClassifierExamples,
        calibrates: BoolArray,
        split_params: dict[str, Any],
    ) -> None:
        """Fit and calibrate the model, or those of the folds."""
        calibrator = self._new_calibrator(data)
        averages = self._is_ensemble(len(data.y), data.several)
        final = None
        if not averages:
            final = self.estimator if self._prefit else data.fit(self.estimator)
        if data.several:
            self.classes_ = np.arange(data.y.shape[1])
        else:
            self.classes_ = np.unique(data.y) if averages else classes_of(final)
        splits = self._split(data, split_params, calibrates)
        (parts,) = self._hold_out(
            [(data, self.estimator)], splits, keep_models=averages
        )
        if averages:
            self.models_: list[Any] = [
                self._calibrate(part.model, calibrator, [part], data) for part in parts
            ]
            self.calibrator_ = self._calibrate_mean(parts, data)
        else:
            fold = self._calibrate(final, calibrator, parts, data)
            self.models_ = [fold]
            self.calibrator_ = fold.calibrator
            self.estimator_ = final
            self.lowest_logit_ = fold.lowest
        reasons = dict.fromkeys(
            getattr(fold.calibrator, "reason_", "") for fold in self.models_
        )
        if any(reasons):
            self.reason_ = "; ".join(reasons)

    def _fit_members(
        self,
        members: MemberClassifiers,
        data: ClassifierExamples,
        calibrates: BoolArray,
        split_params: dict[str, Any],
    ) -> None:
        """Pool and calibrate several classifiers."""
        calibrator = self._new_calibrator(data)
        self._check_members(data, calibrator)
        averages = self._is_ensemble(len(data.y), data.several)
        self.classes_ = members.read_classes(data.y)
        splits = self._split(data, split_params, calibrates)
        keep_models = averages or members.prefit
        held_out = self._score_members(members, data, splits, keep_models)
        self.calibrator_ = self._calibrate_members(calibrator, held_out, data)
        self.members_ = self.calibrator_.members_
        self.needed_members_ = self.calibrator_.needed_members_
        needed = [member for member in held_out if member.name in self.needed_members_]
        models = [member.models for member in needed]
        if not keep_models:
            models = Parallel(n_jobs=self.n_jobs)(
                delayed(member.refit)() for member in needed
            )
        fitted = {
            member.name: FittedMember(member_models, member.lowest)
            for member, member_models in zip(needed, models, strict=True)
        }
        self.models_ = [
            CalibratedEnsemble(fitted, self.calibrator_, held_out[0].classes)
        ]
        if not averages:
            self.named_estimators_ = {
                name: member.models[0] for name, member in fitted.items()
            }
        if hasattr(self.calibrator_, "reason_"):
            self.reason_ = self.calibrator_.reason_

    def _score_members(
        self,
        members: MemberClassifiers,
        data: ClassifierExamples,
        splits: Sequence[Split],
        keep_models: bool,
    ) -> list[HeldOutMember]:
        """Scores of each member for the rows that were held out from it."""
        jobs = [
            (members.examples_of(member, data, self.classes_), member.estimator)
            for member in members.members
        ]
        scores = self._hold_out(jobs, splits, keep_models=keep_models)
        classes = members.model_classes(self.classes_)
        return [
            HeldOutMember(name, *job, tuple(parts), classes)
            for name, job, parts in zip(members.names, jobs, scores, strict=True)
        ]

    def predict(self, X: object, *, groups: object = None) -> AnyArray:
        """Labels (n,): the most likely class, or the estimator's own with
        `keep_labels`.

        Several labels are (n, labels) of 0 and 1: those with a probability of at least
        one half. `groups` are those of the rows, here and below, if `fit` learned from
        `calibration_groups`.
        """
        if self.keep_labels:
            return np.asarray(self.classes_[self._ask("predict", X, groups=groups)])
        proba = self.predict_proba(X, groups=groups)
        if self._several:
            return np.asarray(proba >= 0.5, np.int64)
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def predict_proba(self, X: object, *, groups: object = None) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`.

        Of several labels, the probability (n, labels) of each.
        """
        return np.asarray(self._ask("predict_proba", X, groups=groups))

    def predict_confidence(self, X: object, *, groups: object = None) -> FloatArray:
        """The probability (n,) that each predicted label is right; (n, labels) of
        several.
        """
        if self.keep_labels:
            return np.asarray(self._ask("predict_confidence", X, groups=groups))
        proba = self.predict_proba(X, groups=groups)
        if self._several:
            return np.maximum(proba, 1.0 - proba)
        return np.asarray(proba.max(axis=1))

    def predict_uncalibrated(self, X: object) -> FloatArray:
        """The estimator's own probabilities (n, classes): softmaxes of decision scores.

        Of an ensemble, the mean of those of its models; of several classifiers, of
        those that are needed; of several labels (n, labels).
        """
        validation.check_is_fitted(self, "models_")
        with self._warned.once():
            if (pooled := self._pooled) is not None:
                return pooled.uncalibrated(X)
            parts = [fold.uncalibrated(X, self.classes_) for fold in self.models_]
        return np.asarray(np.mean(parts, axis=0))

    def is_of_fit(self, X: object) -> bool:
        """Whether rows are among those of the fit: too many of them have their
        values.
        """
        validation.check_is_fitted(self, "models_")
        return bool(self._fit_rows.holds_too_many(example_hashes(X)))

    def score(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        groups: object = None,
    ) -> float:
        """Accuracy, as of every classifier in scikit-learn."""
        return float(
            accuracy_score(
                y, self.predict(X, groups=groups), sample_weight=sample_weight
            )
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `calibrator_` to a JSON file; `hokical.load` reads it.

        It predicts without this model and its estimator from what `predict_scores`
        gives: `load(path).predict_proba(model.predict_scores(X))`. The estimator is not
        in the file: `joblib.dump` keeps all.
        """
        validation.check_is_fitted(self, "models_")
        self.calibrator_.save(path)

    def certify(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        groups: object = None,
        cluster: object = None,
        counts: bool = False,
        reused: fingerprints.Reused = "refuse",
    ) -> Self:
        """Note rows that nothing was fitted on, for `predict_or_abstain` and
        `predict_set`.

        Rows of `fit` are refused, unless `reused="ignore"` accepts identical rows.
        `cluster` and `counts` are those of `Calibrator.certify`; several labels take no
        `counts`.
        """
        options: dict[str, Any] = {
            "groups": groups,
            "cluster": cluster,
            "reused": reused,
        }
        options |= {"counts": True} if counts else {}
        X, labels = check_examples(self, X, y, sample_weight, groups)
        scores = self.predict_scores(X)
        fingerprints.refuse_rows_of_fit(self.is_of_fit(X), "X", reused)
        truth = labels if self._several else class_index(labels, self.classes_, "y")
        self.calibrator_.certify(scores, truth, sample_weight, **options)
        return self

    def predict_set(self, X: object, *, groups: object = None, **options: Any) -> Any:
        """The labels that each row may have, by name; options are those of Calibrator.

        Call `certify` first, as for `predict_or_abstain`. For several labels, see
        `MultilabelCalibrator.predict_set`.
        """
        sets = self._ask("predict_set", X, groups=groups, **options)
        return sets if self._several else replace(sets, classes=self.classes_.tolist())

    def predict_or_abstain(
        self, X: object, *, groups: object = None, **options: Any
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see
        Calibrator.

        Call `certify` first: held-out folds are scored by other models than the final
        one, and are no proof of what it does. Only a fitted estimator with
        `decision_function` needs none. Labels and confidence are those of `predict` and
        `predict_confidence`. Where a method such as Hoki keeps the estimator's label
        and another class is more likely, nothing is accepted.
        """
        selected: SelectivePrediction = self._ask(
            "predict_or_abstain", X, groups=groups, **options
        )
        if not self.keep_labels and self.calibrator_.rule_.preserves_labels:
            proba = self.predict_proba(X, groups=groups)
            labels = proba.argmax(axis=1)
            confidence = proba.max(axis=1)
            accepted = selected.accepted & (
                labels == selected.labels
            )  # others were not tested
            selected = replace(
                selected, labels=labels, confidence=confidence, accepted=accepted
            )
        return replace(selected, labels=self.classes_[selected.labels])

    def predict_interval(
        self, X: object, *, label: object = None, groups: object = None, **options: Any
    ) -> FloatArray:
        """An interval (n, 2) for the accuracy of labels with a similar score; see
        Calibrator.

        With `label`, one of `classes_`, for the probability of that class. Call
        `certify` first, as for `predict_or_abstain`.
        """
        if label is not None:
            options["label"] = self._place(label)
        return np.asarray(self._ask("predict_interval", X, groups=groups, **options))

    def detect(
        self, X: object, label: object, *, groups: object = None, **options: Any
    ) -> Detections:
        """Flag rows that may be of one class, so that few of its examples are missed.

        `label` is one of `classes_`. Call `certify` first; see `Calibrator.detect`.
        """
        index = self._place(label)
        found: Detections = self._ask("detect", X, index, groups=groups, **options)
        return found

    def _place(self, label: object) -> int:
        """The column of a label."""
        return int(class_index(np.array([label]), self.classes_, "label")[0])

    def _ask(
        self, name: str, X: object, *more: Any, groups: object, **options: Any
    ) -> Any:
        """What the calibrator's method of this name gives for rows of the estimator."""
        scores = self.predict_scores(X)
        self._check_has(name)
        given = options if groups is None else options | {"groups": groups}
        try:
            return getattr(self.calibrator_, name)(scores, *more, **given)
        except ValueError as error:  # in the words of this class
            text = str(error).replace("certify(logits, labels", "certify(X, y")
            raise ValueError(text) from error

    def _check_has(self, name: str) -> None:
        """Raise unless the calibrator has a method, which those of several labels
        may not.
        """
        validation.check_is_fitted(self, "models_")
        if not hasattr(self.calibrator_, name):
            rule = f"`{name}` is for one label per row; this model has several"
            remedy = (
                "Use `predict_proba`, or `predict_set(X, coverage=0.9)` after "
                "`certify`."
            )
            raise TypeError(f"{rule}. {remedy}")

    def predict_action(
        self, X: object, costs: object, *, groups: object = None
    ) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to
        cost.

        `costs` (classes, actions), rows in the order of `classes_`, or of two classes
        (false_positive, false_negative). Actions are labels if there is a column for
        each, else column numbers.
        """
        self._check_has("predict_action")
        table, _ = cost_table(costs, self.classes_.size)
        decisions = decide(
            self.predict_proba(X, groups=groups), table, self.classes_.size
        )
        if table.shape[1] != self.classes_.size:
            return decisions
        return replace(decisions, actions=self.classes_[decisions.actions])

    def estimate_shift(
        self,
        X: object,
        *,
        sample_weight: object = None,
        delta: float = 0.05,
        groups: object = None,
    ) -> ShiftEstimate:
        """Class frequencies and accuracy of rows without labels; see
        `Calibrator.estimate_shift`.

        `adapt()` of the estimate is a classifier like this one. Rows are compared with
        held-out predictions of the fit, which are of the single models of an ensemble:
        so each row is scored by one of them, and the accuracy is theirs; their mean is
        usually better. Without an ensemble the final model has seen more data than
        those of the folds, and "something else changed" may be a false alarm: to rely
        on it, calibrate a `FrozenEstimator` on data that it has not seen.
        """
        self._check_has("estimate_shift")
        learned = self.calibrator_.schema_.saw_groups
        logits = self._logits_of_one(X, groups if learned else None)
        calibrator = self.calibrator_
        if self._single_calibrator is not None:
            calibrator = self._single_calibrator
        estimate = calibrator.estimate_shift(
            logits, sample_weight=sample_weight, delta=delta, groups=groups
        )
        names = tuple(map(str, self.classes_.tolist()))
        names_and_owner: dict[str, Any] = {"class_names": names, "_calibrator": self}
        if self._averages:
            estimate = estimate.of_single_models()
        by_group = {
            name: replace(group, **names_and_owner)
            for name, group in estimate.by_group.items()
        }
        return replace(estimate, by_group=by_group, **names_and_owner)

    def reweight_classes(self, frequencies: object) -> Self:
        """A copy for other class frequencies, which are known; see
        `Calibrator.reweight_classes`.

        They are in the order of `classes_`, or a mapping of labels to frequencies.
        """
        self._check_has("reweight_classes")
        if isinstance(frequencies, Mapping):
            frequencies = in_order(frequencies, self.classes_.tolist())
        return self._change(lambda calibrator: calibrator.reweight_classes(frequencies))

    def reweighted(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is `weights` (classes,) times as
        frequent.
        """
        return self._change(lambda calibrator: calibrator.reweighted(weights))

    def _change(self, change: Callable[[Any], Any]) -> Self:
        """A copy with other calibrators of what is predicted."""
        changed = copy(self)
        changed.calibrator_ = change(self.calibrator_)
        if self._single_calibrator is not None:
            changed._single_calibrator = change(self._single_calibrator)
        else:
            changed.models_ = [replace(self.models_[0], calibrator=changed.calibrator_)]
        return changed

    @property
    def _pooled(self) -> CalibratedEnsemble | None:
        """The pooled members, if there are several classifiers."""
        model = self.models_[0]
        return model if isinstance(model, CalibratedEnsemble) else None

    @property
    def _averages(self) -> bool:
        """Whether what is predicted is the mean of the models of the folds."""
        if (pooled := self._pooled) is not None:
            return pooled.n_folds > 1
        return self._single_calibrator is not None

    def predict_scores(self, X: object) -> FloatArray | Ensemble:
        """The scores that `calibrator_` takes: logits (n, classes), of several labels
        log-odds (n, labels), or the logits of all models of an ensemble. Of several
        classifiers, an `Ensemble` of the logits of those that are needed, by name.
        """
        validation.check_is_fitted(self, "models_")
        validation._check_feature_names(self, X, reset=False)
        with self._warned.once():
            if self._single_calibrator is None:
                scores: FloatArray | Ensemble = self.models_[0].logits(X)
                return scores
            return Ensemble(
                [fold.all_logits(X, self.classes_) for fold in self.models_]
            )

    def _logits_of_one(self, X: object, groups: object = None) -> FloatArray | Ensemble:
        """Of each row the log-probabilities of one model of an ensemble, the same for
        copies of a row; without an ensemble the logits.
        """
        if not self._averages:
            return self.predict_scores(X)
        validation._check_feature_names(self, X, reset=False)
        draws = example_hashes(X)
        if self._fit_rows.has_twins:
            draws = fingerprints.row_draws(0, draws.size)
        with self._warned.once():
            if (pooled := self._pooled) is not None:
                return pooled.logits_of_one(X, draws)
            proba = np.stack(
                [
                    fold.spread(fold.logits(X), self.classes_, groups)
                    for fold in self.models_
                ]
            )
        chosen = (draws * len(proba)).astype(np.int64)
        return log_of_mean([proba[chosen, np.arange(draws.size)]])

    def _new_calibrator(self, data: ClassifierExamples) -> Any:
        """What is fitted on the scores, if it can use these examples."""
        method = self.method
        if isinstance(method, str) and not data.several:  # scikit-learn's names
            sigmoid = "platt" if np.unique(data.y).size <= 2 else "vecs"
            method = {"sigmoid": sigmoid, "isotonic": "irova_ts"}.get(method, method)
        calibrator = new_calibrator(method)
        if data.several:
            self._check_several_labels(data, calibrator)
            return MultilabelCalibrator()
        if data.groups is not None and not calibrator.method.learns_groups:
            raise ValueError(
                "`method` must be one that learns from groups where "
                f"`calibration_groups` are given; got {self.method!r}. Use the default, "
                '"auto", or leave the groups out.'
            )
        if isinstance(calibrator, AutoCalibrator):
            calibrator.set_params(keep_labels=bool(self.keep_labels))
        return calibrator

    def _check_several_labels(
        self, data: ClassifierExamples, calibrator: Calibrator
    ) -> None:
        """Raise if a parameter is for one label per row."""
        if data.groups is not None:
            raise ValueError(
                "`calibration_groups` must be None where `y` has several labels in a "
                "row: their calibrators do not learn from groups. Leave them out."
            )
        if not isinstance(calibrator, AutoCalibrator):
            raise ValueError(
                '`method` must be "auto" where `y` has several labels in a row: each '
                f"is fitted by one method of its own; got {self.method!r}. Leave it out."
            )
        if self.keep_labels:
            raise ValueError(
                "`keep_labels` must be False where `y` has several labels in a row: "
                "those with a probability of at least one half are predicted; got "
                f"{self.keep_labels!r}. Leave it out."
            )

    def get_metadata_routing(self) -> MetadataRouter:
        """Where scikit-learn's metadata go: to the estimator's `fit`, and to the
        splitter.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        if (members := self._read_members()) is None:
            router.add(estimator=self.estimator, method_mapping=to_fit)
        else:
            members.add_to(router)
        return router.add(splitter=self.cv, method_mapping=to_split)

    def _read_members(self) -> MemberClassifiers | None:
        """The classifiers that are pooled, if there are several."""
        if self.keep_labels and not isinstance(self.estimator, list):
            return None  # the labels of a vote are those of one classifier
        parameters = super().get_params(deep=False)
        return MemberClassifiers.read(self.estimator, self.cv, parameters)

    def _check_one_estimator(self) -> None:
        """Raise unless the estimator is a classifier that is not pooled."""
        check_estimator(self.estimator)
        if self.most_members is not None:
            raise ValueError(
                "`most_members` must be None for one classifier; got "
                f"{self.most_members!r}. It chooses among those of a list, or of a "
                "VotingClassifier without `keep_labels`."
            )

    def _check_members(self, data: ClassifierExamples, calibrator: Calibrator) -> None:
        """Raise unless several classifiers can be pooled."""
        if data.several:
            raise ValueError(
                "`estimator` must be one classifier where `y` has several labels in a "
                f"row; got {self.estimator!r}."
            )
        if self.keep_labels and not isinstance(calibrator, AutoCalibrator):
            raise ValueError(
                "`keep_labels` of several classifiers, the labels of the first, needs "
                f'method="auto"; got {self.method!r}.'
            )

    def _route(
        self,
        members: MemberClassifiers | None,
        params: dict[str, Any],
        weights: FloatArray | None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the estimator's `fit` is given, or by name those of several classifiers,
        and the splitter.
        """
        given = {} if weights is None else {"sample_weight": weights}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given, **params)
            of_splits = dict(routed.splitter.split)
            if members is None:
                return dict(routed.estimator.fit), of_splits
            return {name: routed[name].fit for name in members.names}, of_splits
        of_splits = {"groups": params.pop("groups")} if "groups" in params else {}
        if members is not None:
            return members.split_params(params, weights), of_splits
        taken = validation.has_fit_parameter(self.estimator, "sample_weight")
        if given and (self._prefit or not taken):
            why = "is fitted already" if self._prefit else "does not take it in `fit`"
            given = {}
            warn_user(
                f"`sample_weight` was not used: {type(self.estimator).__name__} {why}. "
                "Pass the weights of a step of a Pipeline as `step__sample_weight`, "
                "and those of the calibration as `calibration_weight`."
            )
        return params | given, of_splits

    @property
    def _several(self) -> bool:
        """Whether rows have several labels."""
        return isinstance(self.calibrator_, MultilabelCalibrator)

    @property
    def _prefit(self) -> bool:
        named = isinstance(self.cv, str) and self.cv == "prefit"
        if named or isinstance(self.estimator, FrozenEstimator):
            return True
        members = self._read_members()
        return members is not None and members.prefit

    def _is_ensemble(self, n_examples: int, several: bool) -> bool:
        """Whether the models of the folds are kept; `several` labels have one model."""
        if self.ensemble not in (True, False, "auto"):
            raise ValueError(
                f'`ensemble` must be True, False or "auto"; got {self.ensemble!r}.'
            )
        one_model = self._prefit or self.keep_labels or several
        if one_model and self.ensemble not in (False, "auto"):
            raise ValueError(
                "`ensemble` must not be True where there is one model; got "
                f"{self.ensemble!r}. Leave it out for a fitted estimator, with "
                "`keep_labels` and for several labels in a row."
            )
        enough = not one_model and n_examples >= _ENSEMBLE_FROM
        return enough if self.ensemble == "auto" else bool(self.ensemble)

    def _split(
        self, data: ClassifierExamples, of_splits: dict[str, Any], counts: BoolArray
    ) -> list[Split]:
        """The rows of each fold to train on, and those that count to be scored."""
        if self._prefit:
            return [(None, np.flatnonzero(counts))]
        every = np.arange(len(data.y))
        splits = check_cv(self.cv, data.y, classifier=True).split(
            data.X, data.y, **of_splits
        )
        # A splitter may give masks.
        return [(every[train], every[test][counts[test]]) for train, test in splits]

    def _hold_out(
        self,
        jobs: Sequence[tuple[ClassifierExamples, BaseEstimator]],
        splits: Sequence[Split],
        *,
        keep_models: bool,
    ) -> list[list[HeldOutScores]]:
        """Scores of examples that the model giving them has not seen, by fold, for each
        estimator.
        """
        scores = Parallel(n_jobs=self.n_jobs)(
            delayed(data.hold_out)(estimator, *split, keep_model=keep_models)
            for data, estimator in jobs
            for split in splits
        )
        starts = range(0, len(scores), len(splits))
        by_job = [scores[start : start + len(splits)] for start in starts]
        n_all = sum(test.size for _, test in splits)
        self.n_calibration_ = sum(part.rows.size for part in by_job[0])
        message = (
            f"{n_all - self.n_calibration_} of {n_all} held-out examples cannot be "
            "used for calibration, because the training part of their fold lacks "
            "their class, or has only one class. Use more examples of the rare "
            "classes, or a stratified splitter as `cv`."
        )
        if not self.n_calibration_:
            raise ValueError(message)
        if self.n_calibration_ < n_all:
            warn_user(message)
        return [[part for part in parts if part.rows.size] for parts in by_job]

    def _calibrate(
        self,
        model: Any,
        calibrator: Any,
        parts: list[HeldOutScores],
        data: ClassifierExamples,
    ) -> CalibratedFold:
        """The model, and a calibrator that was fitted on the pooled held-out scores."""
        labels, weights, groups = data.of_parts(parts)
        if data.several:
            return calibrate_labels(
                model, calibrator, parts, labels=labels, weights=weights
            )
        classes = classes_of(model)
        logits = np.concatenate([part.logits(classes) for part in parts])
        lowest = -math.inf
        examples = as_logits(logits)
        if not hasattr(model, "decision_function"):
            lowest = resolution([part.scores for part in parts], classes.size)
            examples = clip_log_probabilities(examples, lowest)
        labels = class_index(labels, classes, "y")
        fitted = clone(calibrator).fit(examples.values, labels, weights, groups=groups)
        fitted.set_columns((), tuple(map(str, classes.tolist())))
        if lowest > -math.inf:
            unclipped = fitted.fitted.schema.read(logits, groups)
            fitted = clip_inputs(fitted, lowest, Examples(unclipped, labels, weights))
        if not self._prefit or lowest > -math.inf:
            # Scores of the models of folds, or raised to a limit that these very
            # examples set, are not independent examples of what the final model does.
            fitted.forget_examples()
        return CalibratedFold(model, fitted, lowest)

    def _calibrate_members(
        self,
        calibrator: Calibrator,
        members: Sequence[HeldOutMember],
        data: ClassifierExamples,
    ) -> Calibrator:
        """The pool of the members and a calibrator of it, from their held-out scores."""
        truth, weights, groups = data.of_parts(members[0].parts)
        fitted: Calibrator = clone(calibrator).fit(
            pool_scores(members),
            class_index(truth, self.classes_, "y"),
            weights,
            groups=groups,
            classes=tuple(map(str, self.classes_.tolist())),
            most_members=self.most_members,
        )
        if not self._prefit or any(member.lowest > -math.inf for member in members):
            fitted.forget_examples()  # as those of one estimator
        return fitted

    def _calibrate_mean(
        self, parts: list[HeldOutScores], data: ClassifierExamples
    ) -> Calibrator:
        """A calibrator of the scores of all models, which predicts their mean.

        Another one, for `estimate_shift`, is of the probabilities of single models.
        """
        held_out = []
        for part, fold in zip(parts, self.models_, strict=True):
            _, _, groups = data.of_parts([part])
            held_out.append(fold.spread(part.scores, self.classes_, groups))
        truth, weights, _ = data.of_parts(parts)
        logits = log_of_mean([np.vstack(held_out)])
        labels = class_index(truth, self.classes_, "y")
        names = tuple(map(str, self.classes_.tolist()))
        calibrator = make("uncalibrated").fit(logits, labels, weights, classes=names)
        calibrator.forget_examples()
        self._single_calibrator = make("temps").fit(logits, labels, weights)
        if data.groups is not None:
            calibrator.note_groups()  # its models may have used them
        return calibrator.with_predictor(
            replace(
                calibrator.fitted,
                schema=replace(
                    calibrator.schema_,
                    members=CalibratedMembers(
                        tuple(fold.member(self.classes_) for fold in self.models_),
                        self.classes_.size,
                    ),
                ),
            )
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        members = self._read_members()
        if members is not None:
            return members.combine_tags(tags)
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.non_deterministic = inner.non_deterministic
        tags.classifier_tags = inner.classifier_tags or tags.classifier_tags
        return tags


@dataclass(frozen=True, eq=False)
class CalibratedFold:
    """A fitted classifier, and a calibrator of its logits.

    The calibrator raises log-probabilities below `lowest`.
    """

    model: Any
    calibrator: Any
    lowest: float

    def logits(self, X: object) -> FloatArray:
        """The classifier's logits (n, classes), or log-odds (n, labels)."""
        several = isinstance(self.calibrator, MultilabelCalibrator)
        return read_scores(self.model, X, several)

    def all_logits(self, X: object, classes: AnyArray) -> FloatArray:
        """Logits (n, classes): -inf for classes that the model lacks."""
        logits = self.logits(X)
        columns = class_index(classes_of(self.model), classes, "y")
        spread = np.full((len(logits), classes.size), -np.inf)
        spread[:, columns] = logits
        return spread

    def member(self, classes: AnyArray) -> CalibratedMember:
        """Its calibrator, as that of a member of an ensemble."""
        columns = class_index(classes_of(self.model), classes, "y")
        predictor = self.calibrator.fitted
        return CalibratedMember(predictor.schema, predictor.rule, columns)

    def uncalibrated(self, X: object, classes: AnyArray) -> FloatArray:
        """Probabilities (n, classes) before calibration, or (n, labels)."""
        if isinstance(self.calibrator, MultilabelCalibrator):
            return self.calibrator.uncalibrated(self.logits(X))
        logits = as_logits(self.logits(X))
        proba = predict_on_host(UncalibratedRule(), "proba", logits)
        return self._at_classes(proba, classes)

    def spread(
        self, logits: FloatArray, classes: AnyArray, groups: object = None
    ) -> FloatArray:
        """Calibrated probabilities (n, classes), 0 for classes that the model lacks."""
        proba = self.calibrator.predict_proba(logits, groups=groups)
        return self._at_classes(proba, classes)

    def _at_classes(self, proba: FloatArray, classes: AnyArray) -> FloatArray:
        columns = class_index(classes_of(self.model), classes, "y")
        spread = np.zeros((len(proba), classes.size))
        spread[:, columns] = proba
        return spread


def calibrate_labels(
    model: ClassifierMixin,
    calibrator: MultilabelCalibrator,
    parts: Sequence[HeldOutScores],
    *,
    labels: AnyArray,
    weights: FloatArray | None,
) -> CalibratedFold:
    """A model of several labels, with a calibrator of its pooled held-out scores."""
    scores = np.concatenate([part.scores for part in parts])
    if not hasattr(model, "predict_proba"):
        return CalibratedFold(model, calibrator.fit(scores, labels, weights), -math.inf)
    # Of probabilities of 0 and 1 the log-odds are what rounding makes them.
    size = np.abs(scores)
    largest = size.max(where=size < _CERTAIN_LOG_ODDS, initial=0.0)
    limit = math.log(2.0) + float(largest)
    calibrator.fit(np.clip(scores, -limit, limit), labels, weights)
    calibrator.rule_ = calibrator.rule_.clipped(limit)
    return CalibratedFold(model, calibrator, -limit)


def clip_inputs(
    calibrator: Calibrator, lowest: float, examples: Examples
) -> Calibrator:
    """A calibrator for log-probabilities as they are, from one for those of at least
    `lowest`.

    `examples` are those of its fit, as they were before.
    """
    predictor = calibrator.fitted
    stats = with_stats(lambda block: None, examples)
    rule = ClippedRule(lowest, predictor.rule)
    return calibrator.with_predictor(
        replace(
            predictor,
            schema=predictor.schema.of_log_probabilities(),
            rule=rule,
            fit_record=complete_record(stats.record, rule, examples),
        )
    )


def check_examples(
    owner: Any,
    X: object,
    y: object,
    sample_weight: object = None,
    groups: object = None,
) -> tuple[Any, AnyArray]:
    """X in a form that can be indexed by rows, and the labels as an array (n,), or
    (n, labels) for several.
    """
    if y is None:
        name = type(owner).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    reading.pair_rows(X, y, sample_weight, groups, ("X", "y"))
    truth = reading.to_numpy(y, "y")
    missing = [value is None or value != value for value in truth.ravel().tolist()]
    rule = "`y` must have a label in every row"
    reading.refuse(np.reshape(missing, truth.shape), truth, rule, "Drop such rows.")
    check_classification_targets(y)
    several = type_of_target(y) == "multilabel-indicator"
    X, labels = indexable(X, truth if several else column_or_1d(y, warn=True))
    if labels.size == 0:
        raise ValueError("`X` must have at least one row; got 0 samples.")
    return X, labels


def _warn_of_copies(X: object, labels: AnyArray, used: BoolArray) -> None:
    """Warn if many rows of inputs are copies, with the same labels (n,) or (n, k)."""
    hashes = example_hashes(X)[used]
    if not fingerprints.RowSketch.from_hashes(hashes).has_twins:
        return
    codes = fingerprints.number_hashes(labels) if labels.ndim == 2 else labels
    continuous = _is_continuous(X, np.unique(hashes).size)
    warn_of_copied_inputs(copied_inputs(hashes, codes[used], continuous))


def _is_continuous(X: Any, n_distinct: int) -> bool:
    """Whether inputs are numbers of several columns, of which one nearly tells the
    rows apart that are different.
    """
    if issparse(X) or np.ndim(X) != 2:
        return False
    table = np.asarray(X)
    if table.dtype.kind not in "fiu":
        return False
    n_values = np.array([np.unique(column).size for column in table.T])
    several = int((n_values > 1).sum()) > 1
    return several and int(n_values.max()) >= _CONTINUOUS_SHARE * n_distinct


def example_hashes(X: Any) -> FloatArray:
    """A number in [0, 1) for each row (n,) of a table, sparse matrix or list, by its
    contents.
    """
    if issparse(X):
        entries = X.tocoo()
        words = np.zeros(entries.shape[0], np.uint64)
        np.add.at(
            words, entries.row, fingerprints.number_words(entries.data, entries.col)
        )
        return fingerprints.scatter(words)
    try:
        table = np.asarray(X)
    except ValueError:  # rows of different lengths
        table = np.fromiter(X, object)
    if table.dtype.kind in "fiub":
        return fingerprints.number_hashes(table.reshape(len(table), -1))
    texts = (repr(row).encode(errors="replace") for row in table.tolist())
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return fingerprints.scatter(np.frombuffer(digests, np.uint64))
