"""A scikit-learn classifier with calibrated confidence.

An ensemble keeps the models of the folds, each with a calibrator that was fitted on the held-out
part of its fold, and averages their probabilities. Without it, the scores of all held-out parts are
pooled, one calibrator is fitted on them, and the estimator is fitted again on all the data: one
model, as fast as the estimator alone. It has seen more data than the models of the folds, so its
scores are of another scale than those that the calibrator was fitted on.
"""

import math
from typing import Any, Literal, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_feature_names, _check_n_features, has_fit_parameter

from hokical._core.groups import read_columns
from hokical._core.labels import as_weights
from hokical._core.types import BoolArray, FloatArray
from hokical._core.warn import warn_user
from hokical.calibrators._automatic import AutoCalibrator
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make, new_calibrator
from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.guarantees._row_sketch import RowSketch
from hokical.integrations.sklearn import _held_out as held_out
from hokical.integrations.sklearn._held_out import (
    CalibratedModel,
    CalibrationExamples,
    HeldOutScores,
    TrainingData,
)
from hokical.integrations.sklearn._predictions import ClassifierPredictions

_ENSEMBLE_FROM = 500  # examples: with five folds, a hundred for each calibrator


class CalibratedClassifier(
    ClassifierPredictions,
    ClassifierMixin,  # type: ignore[misc]
    MetaEstimatorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Wrap a classifier so that its confidence is calibrated.

    Logits are the estimator's `decision_function`, or the logarithm of its `predict_proba`. There,
    a probability of 0 shows the estimator's resolution (no tree voted for the class): zeros are
    raised to half the smallest probability seen on held-out data, or to 2.2e-16 if that is more.
    The most likely class of the calibrated probabilities is predicted, as by scikit-learn's own;
    `keep_labels=True` predicts the estimator's.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Needs `decision_function` or `predict_proba`. May be a Pipeline or a search.
    method : str or Calibrator
        A name in the registry, or a calibrator.
    cv : int, splitter, iterable of (train, test) or "prefit"
        How to hold out data; an int is a number of stratified folds, not shuffled. Every held-out
        prediction counts once, so splits may overlap or omit examples. With "prefit", or if the
        estimator is a `FrozenEstimator`, the estimator has been fitted on other data, and all the
        data is used to calibrate. Prefer `FrozenEstimator`: it survives `clone`, and so a search.
    keep_labels : bool
        True: `predict` gives the estimator's own label, the class of its largest score, with every
        method that preserves labels (see `hokical methods`), and
        `predict_confidence` the probability of that label. Another class can then have the largest
        entry of `predict_proba`, whose probabilities are the same either way. It takes precedence
        over the `keep_labels` of an `AutoCalibrator` that is given as `method`.
    ensemble : bool or "auto"
        True: the mean of the calibrated probabilities of the models of the folds, as in
        scikit-learn; "auto" is True with at least 500 examples, unless the estimator is fitted
        already, or with `keep_labels`: a fold of fewer is too small for a calibrator of its own.
        False: one model, fitted on all the data, as fast as the estimator alone.
    n_jobs : int, optional
        How many folds to fit in parallel, as in scikit-learn.

    Attributes
    ----------
    classes_ : (classes,), the labels, in the order of the columns of `predict_proba`; of several
        labels, their column numbers
    models_ : what predicts, one pair of `model` and `calibrator`, or one per fold
    calibrator_ : the calibrator, fitted on `n_calibration_` held-out predictions; of an ensemble,
        one that takes the logarithms of the mean probabilities, for guarantees
    reason_ : what the default chose, and why
    estimator_ : the estimator, fitted on all the data; not of an ensemble, nor is the next
    lowest_logit_ : logits are raised to this; -inf if they come from `decision_function`
    n_features_in_, feature_names_in_ : those of the estimator

    Notes
    -----
    An example whose class does not occur in the training part of its fold is not used to calibrate,
    with a warning: the final model would not make that mistake. For the other examples of the fold
    that class is masked (-inf), as it was for the fold's model. A fold whose training part has
    only one class is not used at all.

    `sample_weight` trains the estimator, if its `fit` (or that of the last step of a Pipeline)
    takes it, and the calibrator goes by `calibration_weight` alone: class weights in training would
    otherwise make probabilities of a population in which classes are as common as weighted. There
    is no `decision_function`: it would rank examples by raw scores, unlike `predict_proba`.

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
        method: str | Calibrator = "auto",
        cv: int | Literal["prefit"] | Any = 5,
        keep_labels: bool = False,
        ensemble: bool | Literal["auto"] = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.keep_labels = keep_labels
        self.ensemble = ensemble
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        calibration_weight: Any = None,
        calibration_groups: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the estimator and calibrate it on held-out data.

        `X` (n, features) is whatever the estimator takes: arrays, data frames, sparse matrices,
        lists. `y` (n,) are labels, numbers or text; or (n, labels) of 0 and 1, labels that do not
        exclude each other, for which probabilities are (n, labels). `sample_weight` (n,) says how
        much each example counts in training, `calibration_weight` (n,) how much it counts in the
        calibration; rows of weight 0 calibrate nothing. `params` are those of the estimator's
        `fit`, such as `cat_features` or `eval_set`, cut by fold where they have an entry per row;
        `groups` (n,) is the splitter's. With scikit-learn's metadata routing they go to whom they
        are requested by.

        `calibration_groups` (n,), or several columns, are groups of people, sites, subjects that
        the calibrator learns from, see `AutoCalibrator.fit`; the estimator does not see them. If
        they clearly help, predictions need them, as `groups`: `predict_proba(X, groups=...)`.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:  # of an earlier fit
            delattr(self, name)
        held_out.check_estimator(self.estimator)
        X, labels = held_out.check_examples(self, X, y)
        _check_feature_names(self, X, reset=True)
        _check_n_features(self, X, reset=True)
        weights = as_weights(sample_weight, len(labels))
        known = as_weights(calibration_weight, len(labels), name="calibration_weight")
        groups = calibration_groups
        groups = None if groups is None else read_columns(groups, len(labels))
        truth = CalibrationExamples(labels, known, groups)
        calibrator = self._new_calibrator(truth)
        own, of_splits = self._route(params, weights)
        data = TrainingData(X, labels, own)
        used = np.ones(len(labels), np.bool_) if weights is None else weights > 0.0
        counts = used if known is None else used & (known > 0.0)
        final, averages = None, not truth.several and self._is_ensemble(len(labels))
        if not averages:
            final = self.estimator if self._prefit else data.fit(self.estimator)
        if truth.several:
            self.classes_ = np.arange(labels.shape[1])
        else:
            self.classes_ = np.unique(labels) if averages else held_out.classes_of(final)
        parts = self._hold_out(data, final, of_splits, counts)
        self.n_calibration_ = sum(part.rows.size for part in parts)
        self._fit_rows = RowSketch.from_hashes(held_out.example_hashes(X)[used])
        self.models_ = [
            self._calibrate(some[0].model if averages else final, calibrator, some, truth)
            for some in ([[part] for part in parts] if averages else [parts])
        ]
        self.calibrator_ = self.models_[0].calibrator
        if averages:
            self.calibrator_ = self._calibrate_mean(parts, truth)
        else:
            self.estimator_, self.lowest_logit_ = final, self.models_[0].lowest
        reasons = [getattr(pair.calibrator, "reason_", "") for pair in self.models_]
        if any(reasons):
            self.reason_ = "; ".join(dict.fromkeys(reasons))
        return self

    def _new_calibrator(self, truth: CalibrationExamples) -> Any:
        """What is fitted on the scores, if it can use these examples."""
        calibrator = new_calibrator(self.method)
        is_default = isinstance(calibrator, AutoCalibrator)
        grouped = truth.groups is not None
        if (truth.several and (grouped or not is_default)) or (
            grouped and not calibrator.method.learns_groups
        ):
            raise ValueError(
                '`method` must be "auto" with `calibration_groups`, or several labels, but not '
                f"both; got {self.method!r}. Use the default, or leave the groups out."
            )
        if is_default:
            calibrator.set_params(keep_labels=bool(self.keep_labels))
        return MultilabelCalibrator() if truth.several else calibrator

    def get_metadata_routing(self) -> MetadataRouter:
        """Where scikit-learn's metadata go: to the estimator's `fit`, and to the splitter."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def _route(
        self, params: dict[str, Any], weights: FloatArray | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the estimator's `fit` is given, and the splitter."""
        given = {} if weights is None else {"sample_weight": weights}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given, **params)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        if given and (self._prefit or not has_fit_parameter(self.estimator, "sample_weight")):
            why = "is fitted already" if self._prefit else "does not take it in `fit`"
            given = {}
            warn_user(
                f"`sample_weight` was not used: {type(self.estimator).__name__} {why}. Pass the "
                "weights of a step of a Pipeline as `step__sample_weight`, and those of the "
                "calibration as `calibration_weight`.",
                UserWarning,
            )
        groups = {name: params.pop(name) for name in ("groups",) if name in params}
        return params | given, groups

    @property
    def _prefit(self) -> bool:
        named = isinstance(self.cv, str) and self.cv == "prefit"
        return named or isinstance(self.estimator, FrozenEstimator)

    def _is_ensemble(self, n_examples: int) -> bool:
        one = "fitted already" if self._prefit else "to keep its labels" if self.keep_labels else ""
        if self.ensemble not in (True, False, "auto") or (self.ensemble is True and one):
            raise ValueError(
                '`ensemble` must be True, False or "auto", and not True if the estimator is '
                f"{one or 'fitted already'}: there is one model then; got {self.ensemble!r}. Leave "
                "it out."
            )
        if self.ensemble == "auto":
            return not one and n_examples >= _ENSEMBLE_FROM
        return bool(self.ensemble)

    def _hold_out(
        self, data: TrainingData, final: Any, of_splits: dict[str, Any], counts: BoolArray
    ) -> list[HeldOutScores]:
        """Scores of examples that count and that the model giving them has not seen, by fold."""
        every, splits = np.arange(len(data.y)), [(None, counts)]
        if not self._prefit:
            splits = check_cv(self.cv, data.y, classifier=True).split(data.X, data.y, **of_splits)
        # A splitter may give masks.
        parts = [(None if a is None else every[a], every[b][counts[b]]) for a, b in splits]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(held_out.hold_out)(self.estimator, data, *part, keep_model=final is None)
            for part in parts
        )
        held_out.warn_of_lost_rows(found, sum(test.size for _, test in parts))
        return [part for part in found if part.rows.size]

    def _calibrate(
        self, model: Any, calibrator: Any, parts: list[HeldOutScores], truth: CalibrationExamples
    ) -> CalibratedModel:
        """The model, and a calibrator that was fitted on the pooled held-out scores."""
        labels, weights, groups = truth.take(np.concatenate([part.rows for part in parts]))
        if truth.several:
            scores, lowest = np.concatenate([part.scores for part in parts]), -math.inf
            if hasattr(model, "predict_proba"):  # of 0 and 1, log-odds are what rounding makes them
                size = np.abs(scores)
                lowest = -math.log(2.0) - float(size.max(where=size < 36.0, initial=0.0))
            fitted = calibrator.fit(np.clip(scores, lowest, -lowest), labels, weights)
            return CalibratedModel(model, fitted, lowest)
        lowest, classes = -math.inf, held_out.classes_of(model)
        if not hasattr(model, "decision_function"):
            lowest = held_out.resolution([part.scores for part in parts], classes.size)
        logits = np.concatenate([part.logits(classes, lowest) for part in parts])
        labels = held_out.class_index(labels, classes)
        fitted = clone(calibrator).fit(logits, labels, weights, groups=groups)
        if not self._prefit or lowest > -math.inf:
            # Scores of the models of folds, or raised to a limit that these very examples set, are
            # not independent examples of what the final model does.
            fitted.forget_examples()
        return CalibratedModel(model, fitted, lowest)

    def _calibrate_mean(self, parts: list[HeldOutScores], truth: CalibrationExamples) -> Any:
        """A calibrator that keeps probabilities as they are, of which guarantees can be made."""
        found = []
        for part, pair in zip(parts, self.models_, strict=True):
            logits = part.logits(held_out.classes_of(pair.model), pair.lowest)
            found.append(pair.spread(logits, self.classes_, truth.take(part.rows)[2]))
        labels, weights, _ = truth.take(np.concatenate([part.rows for part in parts]))
        labels = held_out.class_index(labels, self.classes_)
        logits = held_out.log_of_mean([np.concatenate(found)])
        fitted: Any = make("uncalibrated").fit(logits, labels, weights)
        fitted.forget_examples()
        if truth.groups is not None:
            fitted.groups_ = []  # its models may have used them
        return fitted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.non_deterministic = inner.non_deterministic
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        return tags
