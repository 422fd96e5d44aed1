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
from dataclasses import dataclass, fields, replace
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
from hokical._core.checks import NoEvidenceError, check_flag
from hokical._core.ensembles import Ensemble
from hokical._core.groups import read_columns
from hokical._core.logits import as_logits
from hokical._core.reading import class_index
from hokical._fitting.examples import Examples, with_stats
from hokical._fitting.records import complete_record
from hokical.calibrators.automatic import AutoCalibrator
from hokical.calibrators.averaged import CalibratedMember, CalibratedMembers
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import make, new_calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.calibrators.decisions import (
    Decisions,
    are_of_errors,
    cost_table,
    decide,
)
from hokical.guarantees import fingerprints
from hokical.guarantees.repeats import copied_inputs, warn_of_copied_inputs
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import (
    ByLabel,
    BySet,
    Detections,
    LabelSets,
    PredictionSets,
    SetOptions,
)
from hokical.guarantees.shift import ShiftEstimate, in_order
from hokical.integrations.held_out import (
    ClassifierExamples,
    HeldOutScores,
    check_estimator,
    class_names,
    classes_of,
    log_of_mean,
    read_scores,
    resolution,
    spread_scores,
)
from hokical.integrations.members import (
    CalibratedPool,
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
from hokical.rules.sets import SetKind

__all__ = ["CalibratedClassifier"]

#: Row numbers to train on, None for a fitted estimator, and those to be scored.
Split = tuple[IntArray | None, IntArray]

#: Fewest examples of an ensemble: with five folds, a hundred for each calibrator.
_MIN_ENSEMBLE = 500
#: A model of all the data has seen more than those of the folds.
_FALSE_SHIFT = (
    "`estimate_shift` compares the scores of a model that was fitted on all rows with "
    "those of the models of the folds, which can differ where nothing has changed: "
    "'not label shift' may be a false alarm. Call `certify` with 100 other rows or "
    "more, of all classes, which are compared instead, or use `ensemble=True`."
)
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
        fitted already, or with `keep_labels`: folds of fewer examples are too small for
        a calibrator each. False: one model, fitted on all the data, as fast as the
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
    models_ : one pair of `model` and `calibrator`, or one per fold; of several
        classifiers one pair, whose `model` has their models by name
    calibrator_ : the calibrator, fitted on `n_calibration_` held-out predictions. It
        can be used alone, on the scores of `predict_scores`: logits, or of an ensemble
        a `hokical.Ensemble` of the logits of its models
    single_calibrator_ : of an ensemble, a calibrator of its single models for
        `estimate_shift`, else None
    reference_calibrator_ : the calibrator with the examples of `certify`, for
        `estimate_shift` of one model that was fitted on all rows, else None
    reason_ : the choice of the default, with its reason
    members_ : of several classifiers, a table of their names, weights and held-out log
        losses
    needed_members_ : of several classifiers, the names of those that are evaluated
    named_estimators_ : of several classifiers, those that are needed, fitted on all the
        data, by name; not of an ensemble
    estimator_ : the estimator, fitted on all the data; not of an ensemble or of several
        classifiers, nor is the next
    lowest_logit_ : the calibrator raises smaller log-probabilities to it; -inf if logits
        come from `decision_function`
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

    calibrator_: Calibrator | MultilabelCalibrator
    single_calibrator_: Calibrator | None = None
    reference_calibrator_: Calibrator | None = None

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
        the objects that request them.

        `calibration_groups` (n,), or several columns, are groups of people, sites,
        subjects that the calibrator learns from, see `AutoCalibrator.fit`; the
        estimator does not see them. If they clearly help, predictions need them, as
        `groups`: `predict_proba(X, groups=...)`.
        """
        self._forget_fit()
        members = self._read_members()
        if members is None:
            self._check_one_estimator()
        data, weights = self._read_examples(
            X, y, sample_weight, calibration_weight, calibration_groups
        )
        trains = _is_positive(weights, len(data.y))
        prefit = self._is_prefit(members)
        self._warned = WarningLog()
        with self._warned.once():
            fit_params, split_params = self._route(members, params, weights, prefit)
            plan = FitPlan(
                data,
                calibrates=trains & _is_positive(data.weights, len(data.y)),
                split_params=split_params,
                prefit=prefit,
            )
            if not (prefit or split_params):
                _warn_of_copies(data.X, data.y, trains)
            if members is None:
                data = replace(data, params=fit_params)
                self._fit_models(replace(plan, data=data))
            else:
                self._fit_members(members.with_params(fit_params), plan)
        row_hashes = example_hashes(data.X)
        self._fit_rows = fingerprints.RowSketch.from_hashes(row_hashes[trains])
        return self

    def _forget_fit(self) -> None:
        """Delete the attributes of an earlier fit."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _read_examples(
        self,
        X: object,
        y: object,
        sample_weight: object,
        calibration_weight: object,
        calibration_groups: object,
    ) -> tuple[ClassifierExamples, FloatArray | None]:
        """The checked examples for the calibrator, and weights (n,) of the training."""
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
        return ClassifierExamples(X, labels, {}, calibration_weights, groups), weights

    def _fit_models(self, plan: FitPlan) -> None:
        """Fit and calibrate the model, or those of the folds."""
        data = plan.data
        calibrator = self._new_calibrator(data)
        if self._is_ensemble(plan):
            self._fit_folds(plan, calibrator)
        else:
            self._fit_one_model(plan, calibrator)
        reasons = [fold.calibrator.choice_reason for fold in self.models_]
        different = list(dict.fromkeys(reason for reason in reasons if reason))
        if different:
            self.reason_ = "; ".join(different)

    def _fit_folds(self, plan: FitPlan, calibrator: Calibrator) -> None:
        """Fit and calibrate the models of the folds, whose mean is predicted."""
        self.classes_ = np.unique(plan.data.y)
        jobs = [(plan.data, self.estimator)]
        (held_out,) = self._hold_out(jobs, self._split(plan), keep_models=True)
        folds = [
            _calibrate_fold(fold.model, calibrator, [fold], plan) for fold in held_out
        ]
        self.models_: list[Any] = folds
        self.calibrator_ = self._calibrate_mean(folds, held_out, plan.data)

    def _fit_one_model(
        self, plan: FitPlan, calibrator: Calibrator | MultilabelCalibrator
    ) -> None:
        """Fit one model on all the data, and calibrate it on held-out scores."""
        data = plan.data
        model = self.estimator if plan.prefit else data.fit(self.estimator)
        if data.is_multilabel:
            self.classes_ = np.arange(data.y.shape[1])
        else:
            self.classes_ = classes_of(model)
        jobs = [(data, self.estimator)]
        (held_out,) = self._hold_out(jobs, self._split(plan), keep_models=False)
        fold: CalibratedFold | MultilabelFold
        if isinstance(calibrator, MultilabelCalibrator):
            fold = _calibrate_labels(model, calibrator, held_out, data)
        else:
            fold = _calibrate_fold(model, calibrator, held_out, plan)
        self.models_ = [fold]
        self.calibrator_ = fold.calibrator
        self.estimator_ = model
        self.lowest_logit_ = fold.lowest

    def _fit_members(self, members: MemberClassifiers, plan: FitPlan) -> None:
        """Pool and calibrate several classifiers."""
        data = plan.data
        calibrator = self._new_calibrator(data)
        self._check_members(data, calibrator)
        averages = self._is_ensemble(plan)
        self.classes_ = members.read_classes(data.y)
        keep_models = averages or members.prefit
        held_out = self._score_members(members, plan, keep_models)
        self.calibrator_ = self._calibrate_members(calibrator, held_out, plan)
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
        self.models_ = [CalibratedPool(fitted, self.calibrator_, held_out[0].classes)]
        if not averages:
            self.named_estimators_ = {
                name: member.models[0] for name, member in fitted.items()
            }
        reason = self.calibrator_.choice_reason
        if reason is not None:
            self.reason_ = reason

    def _score_members(
        self, members: MemberClassifiers, plan: FitPlan, keep_models: bool
    ) -> list[HeldOutMember]:
        """Scores of each member for the rows that were held out from it."""
        jobs = [
            (members.examples_of(member, plan.data, self.classes_), member.estimator)
            for member in members.members
        ]
        held_out = self._hold_out(jobs, self._split(plan), keep_models=keep_models)
        classes = members.model_classes(self.classes_)
        return [
            HeldOutMember(name, data, estimator, tuple(folds), classes)
            for name, (data, estimator), folds in zip(
                members.names, jobs, held_out, strict=True
            )
        ]

    def predict(self, X: object, *, groups: object = None) -> AnyArray:
        """Labels (n,): the most likely class, or the estimator's own with
        `keep_labels`.

        Several labels are (n, labels) of 0 and 1: those with a probability of at least
        one half. `groups` are those of the rows, here and below, if `fit` learned from
        `calibration_groups`.
        """
        if self._is_multilabel:
            return np.asarray(self.predict_proba(X, groups=groups) >= 0.5, np.int64)
        if self.keep_labels:
            predict = self._calibrator_of_one("predict").predict
            return np.asarray(self.classes_[self._call(predict, X, groups=groups)])
        labels = self.predict_proba(X, groups=groups).argmax(axis=1)
        return np.asarray(self.classes_[labels])

    def predict_proba(self, X: object, *, groups: object = None) -> FloatArray:
        """Calibrated probabilities (n, classes), columns in the order of `classes_`.

        Of several labels, the probability (n, labels) of each.
        """
        validation.check_is_fitted(self, "models_")
        return np.asarray(self._call(self.calibrator_.predict_proba, X, groups=groups))

    def predict_confidence(self, X: object, *, groups: object = None) -> FloatArray:
        """The probability (n,) that each predicted label is right; (n, labels) of
        several.
        """
        if self._is_multilabel:
            proba = self.predict_proba(X, groups=groups)
            return np.maximum(proba, 1.0 - proba)
        if self.keep_labels:
            calibrator = self._calibrator_of_one("predict_confidence")
            predict = calibrator.predict_confidence
            return np.asarray(self._call(predict, X, groups=groups))
        return np.asarray(self.predict_proba(X, groups=groups).max(axis=1))

    def predict_uncalibrated(self, X: object) -> FloatArray:
        """The estimator's own probabilities (n, classes): softmaxes of decision scores.

        Of an ensemble, the mean of those of its models; of several classifiers, of
        those that are needed; of several labels (n, labels).
        """
        validation.check_is_fitted(self, "models_")
        with self._warned.once():
            if self._pool is not None:
                return self._pool.uncalibrated(X)
            proba = [fold.uncalibrated(X, self.classes_) for fold in self.models_]
        return np.asarray(np.mean(proba, axis=0))

    def is_of_fit(self, X: object) -> bool:
        """Whether too many rows have the values of rows of the fit."""
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

        It predicts without this model and its estimator from their scores:
        `load(path).predict_proba(model.predict_scores(X))`. The estimator is not in the
        file: `joblib.dump` stores it too.
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
        """Store held-out rows as evidence for `predict_or_abstain` and `predict_set`.

        Rows of `fit` are refused, unless `reused="ignore"` accepts identical rows.
        `cluster` and `counts` are those of `Calibrator.certify`; several labels take no
        `counts`.
        """
        check_flag("counts", counts)
        X, labels = check_examples(self, X, y, sample_weight, groups)
        if counts and self._is_multilabel:
            raise TypeError(
                "`counts` must be False where rows have several labels; got True. "
                'Repeat the rows, with `reused="ignore"`.'
            )
        scores = self.predict_scores(X)
        fingerprints.refuse_rows_of_fit(self.is_of_fit(X), "X", reused)
        if not self._is_multilabel:
            labels = class_index(labels, self.classes_, "y")
        self.calibrator_.certify(
            scores,
            labels,
            sample_weight,
            groups=groups,
            cluster=cluster,
            reused=reused,
            **({"counts": True} if counts else {}),
        )
        if self._differs_from_folds:
            calibrator = self._calibrator_of_one("estimate_shift")
            self.reference_calibrator_ = calibrator.with_shift_reference(
                scores, labels, sample_weight, groups=groups, cluster=cluster
            )
        return self

    @property
    def _differs_from_folds(self) -> bool:
        """Whether one model predicts that is none of those that scored the fit's rows."""
        if self._is_multilabel or self._averages:
            return False
        return not self._is_prefit(self._read_members())

    def predict_set(
        self,
        X: object,
        *,
        coverage: float = 0.9,
        delta: float | None = None,
        by: BySet | ByLabel | None = None,
        kind: SetKind = "smallest",
        pooled: bool = False,
        penalty: float = 0.0,
        free_ranks: int = 0,
        allow_empty: bool = False,
        groups: object = None,
    ) -> PredictionSets | LabelSets:
        """The labels that each row may have, by name.

        Options are those of `Calibrator.predict_set`, where `by` is "all" by default.
        Of several labels, `coverage`, `delta` and `by` are those of
        `MultilabelCalibrator.predict_set`, where it is "row", and there are no others.
        Call `certify` first, as for `predict_or_abstain`.
        """
        validation.check_is_fitted(self, "models_")
        options: dict[str, Any] = {"coverage": coverage, "delta": delta}
        if by is not None:
            options["by"] = by
        of_classes = {
            "kind": kind,
            "pooled": pooled,
            "penalty": penalty,
            "free_ranks": free_ranks,
            "allow_empty": allow_empty,
        }
        if self._is_multilabel:
            _refuse_set_options(of_classes)
        else:
            options |= of_classes
        sets: PredictionSets | LabelSets = self._call(
            self.calibrator_.predict_set, X, groups=groups, **options
        )
        if isinstance(sets, LabelSets):
            return sets
        return replace(sets, classes=self.classes_.tolist())

    def predict_or_abstain(
        self,
        X: object,
        *,
        risk: float = 0.05,
        delta: float = 0.1,
        by: Literal["all", "group", "new group"] = "all",
        groups: object = None,
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see
        `Calibrator.predict_or_abstain`.

        Call `certify` first: held-out folds are scored by other models than the final
        one, and do not prove what it does. Only a fitted estimator with
        `decision_function` needs none. Labels and confidence are those of `predict` and
        `predict_confidence`. Where a method such as Hoki keeps the estimator's label
        and another class is more likely, nothing is accepted.
        """
        calibrator = self._calibrator_of_one("predict_or_abstain")
        selected: SelectivePrediction = self._call(
            calibrator.predict_or_abstain,
            X,
            groups=groups,
            risk=risk,
            delta=delta,
            by=by,
        )
        if not self.keep_labels and calibrator.rule_.preserves_labels:
            proba = self.predict_proba(X, groups=groups)
            labels = proba.argmax(axis=1)
            # The certified labels are the estimator's: a changed one has no proof.
            selected = replace(
                selected,
                labels=labels,
                confidence=proba.max(axis=1),
                accepted=selected.accepted & (labels == selected.labels),
            )
        return replace(selected, labels=self.classes_[selected.labels])

    def predict_interval(
        self,
        X: object,
        *,
        delta: float = 0.05,
        label: object = None,
        groups: object = None,
    ) -> FloatArray:
        """An interval (n, 2) for the accuracy of labels with a similar score; see
        `Calibrator.predict_interval`.

        With `label`, one of `classes_`, for the probability of that class. Call
        `certify` first, as for `predict_or_abstain`.
        """
        calibrator = self._calibrator_of_one("predict_interval")
        options: dict[str, Any] = {"delta": delta}
        if label is not None:
            options["label"] = self._column_of(label)
        return np.asarray(
            self._call(calibrator.predict_interval, X, groups=groups, **options)
        )

    def detect(
        self,
        X: object,
        label: object,
        *,
        recall: float = 0.95,
        delta: float | None = None,
        by: Literal["all", "new group"] = "all",
        groups: object = None,
    ) -> Detections:
        """Flag rows that may be of one class, so that few of its examples are missed.

        `label` is one of `classes_`; the options are those of `Calibrator.detect`. Call
        `certify` first.
        """
        calibrator = self._calibrator_of_one("detect")
        column = self._column_of(label)
        detections: Detections = self._call(
            calibrator.detect,
            X,
            column,
            groups=groups,
            recall=recall,
            delta=delta,
            by=by,
        )
        return detections

    def _column_of(self, label: object) -> int:
        """The column of a label in `predict_proba`."""
        return int(class_index(np.array([label], object), self.classes_, "label")[0])

    def _call(
        self,
        method: Callable[..., Any],
        X: object,
        *arguments: object,
        groups: object,
        **options: Any,
    ) -> Any:
        """The result of a calibrator's method for rows of the estimator."""
        if groups is not None:  # calibrators of several labels predict without
            options["groups"] = groups
        scores = self.predict_scores(X)
        try:
            return method(scores, *arguments, **options)
        except NoEvidenceError as error:
            raise error.with_call("certify(X, y)") from error

    def _calibrator_of_one(self, method: str) -> Calibrator:
        """The calibrator of one label per row; `method` is named where it has several."""
        validation.check_is_fitted(self, "models_")
        if isinstance(self.calibrator_, MultilabelCalibrator):
            raise TypeError(
                f"`{method}` is for one label per row; this model has several. Use "
                "`predict_proba`, or `predict_set(X, coverage=0.9)` after `certify`."
            )
        return self.calibrator_

    def predict_action(
        self,
        X: object,
        costs: object,
        *,
        positive: object = None,
        groups: object = None,
    ) -> Decisions:
        """The action of least expected cost for each row, and that cost.

        `costs` are those of `Calibrator.predict_action`, of true classes in the order of
        `classes_` or by label; of `{"fp": 1, "fn": 10}` the class is `positive`, one of
        `classes_`, by default the second: of texts, whose order is that of the alphabet,
        a warning says which. Actions are labels if there is a column for each, else
        column numbers; a mapping names them.
        """
        self._calibrator_of_one("predict_action")
        n_classes = self.classes_.size
        classes = self.classes_.tolist()
        event = None
        if positive is not None:
            event = int(
                class_index(np.array([positive], object), self.classes_, "positive")[0]
            )
        table, names = cost_table(costs, n_classes, event, classes)
        if positive is None and are_of_errors(costs, n_classes):
            _warn_of_event(classes)
        proba = self.predict_proba(X, groups=groups)
        decisions = decide(proba, costs, n_classes, event, classes)
        if names or table.shape[1] != n_classes:
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
        those of the folds: rows are compared with those of `certify`, if these are a
        hundred or more, of all classes. Otherwise "not label shift" may be a false
        alarm, as a warning says.
        """
        calibrator = self._calibrator_of_one("estimate_shift")
        needed_groups = groups if calibrator.schema_.saw_groups else None
        logits = self._logits_of_one(X, needed_groups)
        reference = self.reference_calibrator_
        if self.single_calibrator_ is not None:
            calibrator = self.single_calibrator_
        elif reference is not None:
            calibrator = reference
        estimate = calibrator.estimate_shift(
            logits, sample_weight=sample_weight, delta=delta, groups=groups
        )
        if self._averages:
            estimate = estimate.of_single_models()
        elif not estimate.holds and reference is None and self._differs_from_folds:
            warn_user(_FALSE_SHIFT)
        return estimate.for_classifier(self, class_names(self.classes_))

    def reweight_classes(self, frequencies: object) -> Self:
        """A copy for other class frequencies, which are known; see
        `Calibrator.reweight_classes`.

        They are in the order of `classes_`, or a mapping of labels to frequencies.
        """
        self._calibrator_of_one("reweight_classes")
        if isinstance(frequencies, Mapping):
            frequencies = in_order(frequencies, self.classes_.tolist())
        return self._with_calibrators(
            lambda calibrator: calibrator.reweight_classes(frequencies)
        )

    def reweighted(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is `weights` (classes,) times as
        frequent.
        """
        return self._with_calibrators(lambda calibrator: calibrator.reweighted(weights))

    def _with_calibrators(self, change: Callable[[Any], Any]) -> Self:
        """A copy whose calibrators are changed."""
        changed = copy(self)
        changed.calibrator_ = change(self.calibrator_)
        if self.reference_calibrator_ is not None:
            changed.reference_calibrator_ = change(self.reference_calibrator_)
        if self.single_calibrator_ is not None:
            changed.single_calibrator_ = change(self.single_calibrator_)
        else:
            changed.models_ = [replace(self.models_[0], calibrator=changed.calibrator_)]
        return changed

    @property
    def _pool(self) -> CalibratedPool | None:
        """The pooled members, if there are several classifiers."""
        model = self.models_[0]
        return model if isinstance(model, CalibratedPool) else None

    @property
    def _averages(self) -> bool:
        """Whether predictions are means over the models of the folds."""
        if self._pool is not None:
            return self._pool.n_folds > 1
        return self.single_calibrator_ is not None

    def predict_scores(self, X: object) -> FloatArray | Ensemble:
        """The scores that `calibrator_` takes.

        They are logits (n, classes), of several labels log-odds (n, labels), or the
        logits of all models of an ensemble. Of several classifiers, they are an
        `Ensemble` of the logits of those that are needed, by name.
        """
        validation.check_is_fitted(self, "models_")
        self._check_columns(X)
        with self._warned.once():
            if self.single_calibrator_ is None:
                scores: FloatArray | Ensemble = self.models_[0].logits(X)
                return scores
            return Ensemble(
                [fold.all_logits(X, self.classes_) for fold in self.models_]
            )

    def _check_columns(self, X: object) -> None:
        """Raise if the names of columns are not those of the fit; their number is for
        the estimator to check.
        """
        validation.validate_data(
            self, X, reset=False, skip_check_array=True, ensure_2d=False
        )

    def _logits_of_one(self, X: object, groups: object) -> FloatArray | Ensemble:
        """The log-probabilities of each row by one model of an ensemble.

        Copies of a row have the same model. Without an ensemble, the logits.
        """
        if not self._averages:
            return self.predict_scores(X)
        self._check_columns(X)
        draws = example_hashes(X)
        if self._fit_rows.has_twins:
            draws = fingerprints.row_draws(0, draws.size)
        with self._warned.once():
            if self._pool is not None:
                return self._pool.logits_of_one(X, draws)
            proba = np.stack(
                [
                    fold.spread(fold.logits(X), self.classes_, groups)
                    for fold in self.models_
                ]
            )
        folds = (draws * len(proba)).astype(np.int64)
        return log_of_mean([proba[folds, np.arange(draws.size)]])

    def _new_calibrator(self, data: ClassifierExamples) -> Any:
        """An unfitted calibrator of the scores, if it can use these examples."""
        if data.is_multilabel:
            self._check_multilabel(data)
            return MultilabelCalibrator()
        method = self.method
        if isinstance(method, str):  # scikit-learn's names
            sigmoid = "platt" if np.unique(data.y).size <= 2 else "vecs"
            method = {"sigmoid": sigmoid, "isotonic": "irova_ts"}.get(method, method)
        calibrator = new_calibrator(method)
        if data.groups is not None and not calibrator.method.learns_groups:
            raise ValueError(
                "`method` must be one that learns from groups where "
                f"`calibration_groups` are given; got {self.method!r}. Use the default, "
                '"auto", or leave the groups out.'
            )
        if isinstance(calibrator, AutoCalibrator):
            calibrator.set_params(keep_labels=bool(self.keep_labels))
        return calibrator

    def _check_multilabel(self, data: ClassifierExamples) -> None:
        """Raise if a parameter is for one label per row."""
        if data.groups is not None:
            raise ValueError(
                "`calibration_groups` must be None where `y` has several labels in a "
                "row: their calibrators do not learn from groups. Leave them out."
            )
        if not isinstance(new_calibrator(self.method), AutoCalibrator):
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
        """The routing of scikit-learn's metadata to the estimator's `fit` and the
        splitter.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        members = self._read_members()
        if members is None:
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
        if data.is_multilabel:
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
        prefit: bool,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parameters of the estimator's `fit`, and of the splitter.

        Those of several classifiers are by name.
        """
        if get_config()["enable_metadata_routing"]:
            if weights is not None:
                params = params | {"sample_weight": weights}
            routed = process_routing(self, "fit", **params)
            split_params = dict(routed.splitter.split)
            if members is None:
                return dict(routed.estimator.fit), split_params
            return {name: routed[name].fit for name in members.names}, split_params
        fit_params = dict(params)
        split_params = {}
        if "groups" in fit_params:
            split_params["groups"] = fit_params.pop("groups")
        if members is not None:
            return members.split_params(fit_params, weights), split_params
        if weights is not None and self._takes_weights(prefit):
            fit_params["sample_weight"] = weights
        return fit_params, split_params

    def _takes_weights(self, prefit: bool) -> bool:
        """Whether the estimator's `fit` is given weights, with a warning if not."""
        takes_weights = validation.has_fit_parameter(self.estimator, "sample_weight")
        if takes_weights and not prefit:
            return True
        reason = "is fitted already" if prefit else "does not take it in `fit`"
        warn_user(
            f"`sample_weight` was not used: {type(self.estimator).__name__} {reason}. "
            "Pass the weights of a step of a Pipeline as `step__sample_weight`, "
            "and those of the calibration as `calibration_weight`."
        )
        return False

    @property
    def _is_multilabel(self) -> bool:
        """Whether rows have several labels."""
        validation.check_is_fitted(self, "models_")
        return isinstance(self.calibrator_, MultilabelCalibrator)

    def _is_prefit(self, members: MemberClassifiers | None) -> bool:
        """Whether the estimator, or every one of several, is fitted already."""
        if members is not None:
            return members.prefit
        if isinstance(self.estimator, FrozenEstimator):
            return True
        return isinstance(self.cv, str) and self.cv == "prefit"

    def _is_ensemble(self, plan: FitPlan) -> bool:
        """Whether the models of the folds predict, rather than one of all the data."""
        if self.ensemble not in (True, False, "auto"):
            raise ValueError(
                f'`ensemble` must be True, False or "auto"; got {self.ensemble!r}.'
            )
        one_model = plan.prefit or self.keep_labels or plan.data.is_multilabel
        if one_model and self.ensemble not in (False, "auto"):
            raise ValueError(
                "`ensemble` must not be True where there is one model; got "
                f"{self.ensemble!r}. Leave it out for a fitted estimator, with "
                "`keep_labels` and for several labels in a row."
            )
        if self.ensemble == "auto":
            return not one_model and len(plan.data.y) >= _MIN_ENSEMBLE
        return bool(self.ensemble)

    def _split(self, plan: FitPlan) -> list[Split]:
        """The rows of each fold to train on, and those to be scored."""
        calibrates = plan.calibrates
        if plan.prefit:
            return [(None, np.flatnonzero(calibrates))]
        data = plan.data
        rows = np.arange(len(data.y))
        splitter = check_cv(self.cv, data.y, classifier=True)
        # A splitter may give masks.
        return [
            (rows[train], rows[test][calibrates[test]])
            for train, test in splitter.split(data.X, data.y, **plan.split_params)
        ]

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
            delayed(data.hold_out)(estimator, train, test, keep_model=keep_models)
            for data, estimator in jobs
            for train, test in splits
        )
        starts = range(0, len(scores), len(splits))
        by_job = [scores[start : start + len(splits)] for start in starts]
        n_all = sum(test.size for _, test in splits)
        self.n_calibration_ = sum(fold.rows.size for fold in by_job[0])
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
        return [[fold for fold in folds if fold.rows.size] for folds in by_job]

    def _calibrate_members(
        self, calibrator: Calibrator, members: Sequence[HeldOutMember], plan: FitPlan
    ) -> Calibrator:
        """The pool of the members and a calibrator of it, from their held-out scores."""
        rows = plan.data.take_held_out(members[0].folds)
        fitted: Calibrator = clone(calibrator).fit(
            pool_scores(members),
            class_index(rows.labels, self.classes_, "y"),
            rows.weights,
            groups=rows.groups,
            classes=class_names(self.classes_),
            most_members=self.most_members,
        )
        if not plan.prefit or any(member.lowest > -math.inf for member in members):
            fitted.forget_examples()  # for the reasons of `_calibrate_fold`
        return fitted

    def _calibrate_mean(
        self,
        folds: Sequence[CalibratedFold],
        held_out: Sequence[HeldOutScores],
        data: ClassifierExamples,
    ) -> Calibrator:
        """A calibrator of the scores of all models, which predicts their mean.

        Another one, for `estimate_shift`, is of the probabilities of single models.
        """
        proba = [
            fold.spread(
                scores.scores, self.classes_, data.take_held_out([scores]).groups
            )
            for fold, scores in zip(folds, held_out, strict=True)
        ]
        logits = log_of_mean([np.vstack(proba)])
        rows = data.take_held_out(held_out)
        labels = class_index(rows.labels, self.classes_, "y")
        self.single_calibrator_ = make("temps").fit(logits, labels, rows.weights)
        calibrator = make("uncalibrated").fit(
            logits, labels, rows.weights, classes=class_names(self.classes_)
        )
        calibrator.forget_examples()
        if data.groups is not None:
            calibrator.note_groups()  # its models may have used them
        members = CalibratedMembers(
            tuple(fold.member(self.classes_) for fold in folds), self.classes_.size
        )
        schema = replace(calibrator.schema_, members=members)
        return calibrator.with_predictor(replace(calibrator.fitted, schema=schema))

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
class FitPlan:
    """Checked arguments of a fit.

    Attributes
    ----------
    data : the examples, their weights and groups for the calibrator
    calibrates : (n,), whether a row may be used for calibration
    split_params : the parameters of the splitter
    prefit : whether the estimator has been fitted on other data
    """

    data: ClassifierExamples
    calibrates: BoolArray
    split_params: dict[str, Any]
    prefit: bool


@dataclass(frozen=True, eq=False)
class CalibratedFold:
    """A fitted classifier, and a calibrator of its logits.

    The calibrator raises log-probabilities below `lowest`.
    """

    model: Any
    calibrator: Calibrator
    lowest: float

    def logits(self, X: object) -> FloatArray:
        """The classifier's logits (n, classes)."""
        return read_scores(self.model, X, multilabel=False)

    def all_logits(self, X: object, classes: AnyArray) -> FloatArray:
        """Logits (n, classes): -inf for classes that the model lacks."""
        return spread_scores(self.logits(X), classes_of(self.model), classes)

    def member(self, classes: AnyArray) -> CalibratedMember:
        """Its calibrator, as that of a member of an ensemble."""
        columns = class_index(classes_of(self.model), classes, "y")
        predictor = self.calibrator.fitted
        return CalibratedMember(predictor.schema, predictor.rule, columns)

    def uncalibrated(self, X: object, classes: AnyArray) -> FloatArray:
        """Probabilities (n, classes) before calibration."""
        logits = as_logits(self.logits(X))
        proba = predict_on_host(UncalibratedRule(), "proba", logits)
        return spread_scores(proba, classes_of(self.model), classes, missing=0.0)

    def spread(
        self, logits: FloatArray, classes: AnyArray, groups: object = None
    ) -> FloatArray:
        """Calibrated probabilities (n, classes), 0 for classes that the model lacks."""
        proba = np.asarray(self.calibrator.predict_proba(logits, groups=groups))
        return spread_scores(proba, classes_of(self.model), classes, missing=0.0)


@dataclass(frozen=True, eq=False)
class MultilabelFold:
    """A fitted classifier of several labels, and a calibrator of its log-odds.

    The calibrator raises log-odds below `lowest`.
    """

    model: Any
    calibrator: MultilabelCalibrator
    lowest: float

    def logits(self, X: object) -> FloatArray:
        """The classifier's log-odds (n, labels)."""
        return read_scores(self.model, X, multilabel=True)

    def uncalibrated(self, X: object, labels: AnyArray) -> FloatArray:
        """Probabilities (n, labels) before calibration."""
        return self.calibrator.uncalibrated(self.logits(X))


def _refuse_set_options(options: Mapping[str, object]) -> None:
    """Raise if an option of sets of classes is changed, where rows have several
    labels.
    """
    defaults = {field.name: field.default for field in fields(SetOptions)}
    for name, value in options.items():
        if value != defaults[name]:
            raise ValueError(
                f"`{name}` must be {defaults[name]!r} where rows have several labels; "
                f"got {value!r}. It is for sets of classes: leave it out."
            )


def _warn_of_event(classes: Sequence[object]) -> None:
    """Warn that the alphabet decides which of two labels is the event."""
    first, second = classes
    if isinstance(second, str):
        warn_user(
            f"`costs` take {second!r}, the second label of the alphabet, for the event: "
            f"a false positive is a row of {first!r} that is called {second!r}. Say "
            f"which it is: `positive={second!r}` or `positive={first!r}`.",
            cause="the event of costs",
        )


def _is_positive(weights: FloatArray | None, n_rows: int) -> BoolArray:
    """Whether rows (n,) have a weight above 0."""
    return np.ones(n_rows, np.bool_) if weights is None else weights > 0.0


def _calibrate_fold(
    model: Any,
    calibrator: Calibrator,
    held_out: Sequence[HeldOutScores],
    plan: FitPlan,
) -> CalibratedFold:
    """The model, and a calibrator that is fitted on held-out scores."""
    rows = plan.data.take_held_out(held_out)
    classes = classes_of(model)
    labels = class_index(rows.labels, classes, "y")
    logits = np.concatenate([fold.logits(classes) for fold in held_out])
    lowest = -math.inf
    fit_logits = as_logits(logits)
    if not hasattr(model, "decision_function"):
        lowest = resolution([fold.scores for fold in held_out], classes.size)
        fit_logits = clip_log_probabilities(fit_logits, lowest)
    fitted: Calibrator = clone(calibrator).fit(
        fit_logits.values, labels, rows.weights, groups=rows.groups
    )
    fitted.set_columns((), class_names(classes))
    if lowest > -math.inf:
        unclipped = fitted.fitted.schema.read(logits, rows.groups)
        examples = Examples(unclipped, labels, rows.weights)
        fitted = clip_inputs(fitted, lowest, examples)
    if not plan.prefit or lowest > -math.inf:
        # Scores of the models of folds, or raised to a limit that these very examples
        # set, are not independent examples of what the final model does.
        fitted.forget_examples()
    return CalibratedFold(model, fitted, lowest)


def _calibrate_labels(
    model: Any,
    calibrator: MultilabelCalibrator,
    held_out: Sequence[HeldOutScores],
    data: ClassifierExamples,
) -> MultilabelFold:
    """A model of several labels, and a calibrator that is fitted on held-out scores."""
    rows = data.take_held_out(held_out)
    scores = np.concatenate([fold.scores for fold in held_out])
    if not hasattr(model, "predict_proba"):
        calibrator.fit(scores, rows.labels, rows.weights)
        return MultilabelFold(model, calibrator, -math.inf)
    # Log-odds of probabilities of 0 and 1 depend on rounding alone.
    size = np.abs(scores)
    largest = size.max(where=size < _CERTAIN_LOG_ODDS, initial=0.0)
    limit = math.log(2.0) + float(largest)
    calibrator.fit(np.clip(scores, -limit, limit), rows.labels, rows.weights)
    calibrator.rule_ = calibrator.rule_.clipped(limit)
    return MultilabelFold(model, calibrator, -limit)


def clip_inputs(
    calibrator: Calibrator, lowest: float, examples: Examples
) -> Calibrator:
    """A calibrator that raises log-probabilities to `lowest`, from one fitted on raised
    ones.

    `examples` are those of its fit, not raised.
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
    """X in a form that can be indexed by rows, and labels (n,), or (n, labels) of
    several.
    """
    if y is None:
        name = type(owner).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    reading.pair_rows(X, y, sample_weight, groups, ("X", "y"))
    truth = reading.to_numpy(y, "y")
    reading.refuse(
        reading.is_missing(truth),
        truth,
        "`y` must have a label in every row",
        "Drop such rows.",
    )
    check_classification_targets(y)
    is_multilabel = type_of_target(y) == "multilabel-indicator"
    if truth.ndim == 2 and truth.shape[1] > 1 and not is_multilabel:
        raise ValueError(
            "`y` should be a 1d array of labels, or (n, labels) of 0 and 1 for several "
            f"labels; got shape {truth.shape}. Votes are for fits on scores: "
            "`hokical.auto(from_probabilities(model.predict_proba(X)), votes)`."
        )
    X, labels = indexable(X, truth if is_multilabel else column_or_1d(y, warn=True))
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
    """Whether inputs are numbers of several columns, one of which differs between
    nearly all distinct rows.
    """
    if issparse(X) or np.ndim(X) != 2:
        return False
    table = np.asarray(X)
    if table.dtype.kind not in "fiu":
        return False
    n_values = np.array([np.unique(column).size for column in table.T])
    n_varying = int((n_values > 1).sum())
    return n_varying > 1 and int(n_values.max()) >= _CONTINUOUS_SHARE * n_distinct


def example_hashes(X: Any) -> FloatArray:
    """A number in [0, 1) for each row (n,) of a table, sparse matrix or list, by its
    contents.
    """
    if issparse(X):
        entries = X.tocoo()
        row_words = np.zeros(entries.shape[0], np.uint64)
        entry_words = fingerprints.number_words(entries.data, entries.col)
        np.add.at(row_words, entries.row, entry_words)
        return fingerprints.scatter(row_words)
    try:
        table = np.asarray(X)
    except ValueError:  # rows of different lengths
        table = np.fromiter(X, object)
    if table.dtype.kind in "fiub":
        return fingerprints.number_hashes(table.reshape(len(table), -1))
    texts = (repr(row).encode(errors="replace") for row in table.tolist())
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return fingerprints.scatter(np.frombuffer(digests, np.uint64))
