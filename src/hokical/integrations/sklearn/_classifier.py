"""A scikit-learn classifier with calibrated confidence.

The scores of all held-out folds are pooled, one calibrator is fitted on them, and the estimator is
fitted again on all the data. So there is one model, as fast as the estimator alone. The price: it
has seen more data than the models of the folds, so its confidence tends to be slightly too low
rather than too high. An ensemble instead keeps the models of the folds, each with a calibrator.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self

import joblib
import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from hokical._core.conversion import Zeros, check_zeros
from hokical._core.files import replace_file
from hokical._core.groups import read_columns, take_rows
from hokical._core.labels import as_weights
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.calibrators._base import BaseCalibrator
from hokical.calibrators._registry import new_estimator
from hokical.calibrators._shift_predictions import in_order
from hokical.guarantees._decisions import Decisions, Detections, decide
from hokical.guarantees._row_sketch import RowSketch
from hokical.guarantees._selective import SelectivePrediction
from hokical.guarantees._sets import PredictionSets
from hokical.guarantees._shift import ShiftEstimate
from hokical.integrations.sklearn import _held_out as held_out
from hokical.integrations.sklearn._held_out import CalibratedModel, HeldOutScores


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a classifier so that its confidence is calibrated.

    Logits are the estimator's `decision_function`, or the logarithm of its `predict_proba`. There,
    a probability of 0 shows the estimator's resolution (no tree voted for the class), not
    certainty: zeros are raised to half the smallest probability seen on held-out data, or to
    2.2e-16 if that is more. The most likely class of the calibrated probabilities is predicted, as
    by scikit-learn's own; `keep_labels=True` predicts the estimator's.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Needs `decision_function` or `predict_proba`. May be a Pipeline or a search.
    method : str or BaseCalibrator
        A name in the registry, or a calibrator.
    cv : int, splitter, iterable of (train, test) or "prefit"
        How to hold out data; an int is a number of stratified folds, not shuffled. Every held-out
        prediction counts once, so splits may overlap or omit examples. With "prefit", or if the
        estimator is a `FrozenEstimator`, the estimator has been fitted on other data, and all the
        data is used to calibrate. Prefer `FrozenEstimator`: it survives `clone`, and so a search.
    zeros : {"unlikely", "impossible"}
        What a probability of 0 means: as above, or that the class is impossible, which gets
        probability 0 (see `hokical.from_probabilities`).
    keep_labels : bool
        True: `predict` gives the estimator's own label, the class of its largest score, with every
        method that preserves labels (see `hokical.calibrators._registry.table`), and
        `predict_confidence` the probability of that label. Another class can then have the largest
        entry of `predict_proba`, whose probabilities are the same either way.
    ensemble : bool
        True: the models of the folds, each with a calibrator of its own, answer together, by the
        mean of their probabilities. Often a little sharper, and as many times as slow.
    n_jobs : int, optional
        How many folds to fit in parallel, as in scikit-learn.

    Attributes
    ----------
    classes_ : (classes,), the labels, in the order of the columns of `predict_proba`
    models_ : what answers, one pair of `model` and `calibrator`, or one per fold
    estimator_ : the estimator, fitted on all the data; not of an ensemble, nor are the next two
    calibrator_ : the calibrator, fitted on `n_calibration_` held-out predictions
    lowest_logit_ : logits are raised to this; -inf if they come from `decision_function`
    n_features_in_, feature_names_in_ : those of the estimator

    Notes
    -----
    An example whose class does not occur in the training part of its fold is not used to calibrate,
    with a warning: the final model would not make that mistake. For the other examples of the fold
    that class is impossible (-inf), as it was for the fold's model. A fold whose training part has
    only one class is not used at all.

    `sample_weight` goes to the calibrator, and to the estimator if its `fit` (or that of the last
    step of a Pipeline) takes it. There is no `decision_function`: it would rank examples by raw
    scores, unlike `predict_proba`.

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
        method: str | BaseCalibrator = "auto",
        cv: int | Literal["prefit"] | Any = 5,
        zeros: Zeros = "unlikely",
        keep_labels: bool = False,
        ensemble: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.zeros = zeros
        self.keep_labels = keep_labels
        self.ensemble = ensemble
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        calibration_groups: Any = None,
        **params: Any,
    ) -> Self:
        """Fit the estimator and calibrate it on held-out data.

        `X` (n, features) is whatever the estimator takes: arrays, data frames, sparse matrices,
        lists. `y` (n,) are labels, numbers or text. `sample_weight` (n,) says how much each example
        counts. `params` are those of the estimator's `fit`, such as `cat_features` or `eval_set`,
        cut by fold where they have an entry per row; `groups` (n,) is the splitter's. With
        scikit-learn's metadata routing they go to whom they are requested by.

        `calibration_groups` (n,), or several columns, are groups of people, sites, subjects that
        the calibrator learns from, see `AutoCalibrator.fit`; the estimator does not see them. If
        they clearly help, predictions need them, as `groups`: `predict_proba(X, groups=...)`.
        """
        check_zeros(self.zeros)
        self._check_ensemble()
        calibrator = new_estimator(self.method)
        if self.method == "auto":
            calibrator.set_params(keep_labels=bool(self.keep_labels))
        X, labels = held_out.check_examples(self, X, y)
        weights = as_weights(sample_weight, labels.size)
        people = self._check_groups(calibration_groups, calibrator, labels.size)
        own, of_splits = self._route(params)
        final = self._fit_estimator(X, labels, weights, own)
        self.classes_ = np.unique(labels) if self.ensemble else held_out.classes_of(final)
        parts = self._hold_out(X, labels, weights, final, own, of_splits)
        self.n_calibration_ = sum(part.rows.size for part in parts)
        known = (labels, weights, people)
        hashes = held_out.example_hashes(X)
        self._fit_rows = RowSketch.from_hashes(hashes if weights is None else hashes[weights > 0.0])
        self.models_ = [
            self._calibrate(some[0].model if final is None else final, calibrator, some, *known)
            for some in ([[part] for part in parts] if self.ensemble else [parts])
        ]
        one = self.models_[0]
        fitted = {
            "estimator_": one.model,
            "calibrator_": one.calibrator,
            "lowest_logit_": one.lowest,
        }
        for name, value in fitted.items():
            if not self.ensemble:
                setattr(self, name, value)
            elif hasattr(self, name):
                delattr(self, name)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.models_[0].model, name):
                setattr(self, name, getattr(self.models_[0].model, name))
            elif hasattr(self, name):  # of an earlier fit, on a frame
                delattr(self, name)
        if not hasattr(self, "feature_names_in_"):
            _check_feature_names(self, X, reset=True)
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Where scikit-learn's metadata go: to the estimator's `fit`, and to the splitter."""
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        return router.add(estimator=self.estimator, method_mapping=to_fit).add(
            splitter=self.cv, method_mapping=to_split
        )

    def _route(self, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the estimator's `fit` is given, and the splitter."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **params)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        own = {name: value for name, value in params.items() if name != "groups"}
        return own, {name: params[name] for name in params if name == "groups"}

    @staticmethod
    def _check_groups(groups: Any, calibrator: BaseCalibrator, n_rows: int) -> Any:
        """Columns of groups by name, if there are any, and if the calibrator learns from them."""
        if groups is None:
            return None
        if not calibrator.learns_groups:
            raise ValueError(
                f"`calibration_groups` must be None with `method={calibrator.name!r}`; got some. "
                'Only the default learns from groups: use `method="auto"`, or leave them out.'
            )
        return read_columns(groups, n_rows)

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
        self._check_columns(X)
        found = [pair.proba(X, self.classes_, groups) for pair in self.models_]
        return found[0] if len(found) == 1 else np.asarray(np.mean(found, axis=0))

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
        logits = self._logits(X)
        if hasattr(self, "_fit_rows"):  # not in a pickle of an earlier version
            self._fit_rows.refuse(held_out.example_hashes(X), "X")
        self.calibrator_.certify(logits, truth, sample_weight, groups=groups)
        return self

    def predict_set(self, X: Any, *, groups: Any = None, **options: Any) -> PredictionSets:
        """The labels that each row may have, by name; options are those of Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        logits = self._logits(X)
        with _in_own_words():
            found: PredictionSets = self.calibrator_.predict_set(logits, groups=groups, **options)
        return replace(found, classes=self.classes_.tolist())

    def predict_or_abstain(
        self, X: Any, *, risk: float = 0.05, delta: float = 0.1, groups: Any = None
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong; see Calibrator.

        Call `certify` first: held-out folds are scored by other models than the final one, and are
        no proof of what it does. Only a fitted estimator with `decision_function` needs none.
        Labels are those of `calibrator_`. An ensemble has no such guarantee.
        """
        logits = self._logits(X)
        with _in_own_words():
            calibrator: BaseCalibrator = self.calibrator_
            found = calibrator.predict_or_abstain(logits, risk=risk, delta=delta, groups=groups)
        return replace(found, labels=self.classes_[found.labels])

    def predict_interval(self, X: Any, *, delta: float = 0.05, groups: Any = None) -> FloatArray:
        """An interval (n, 2) for the accuracy of labels with a similar score; see Calibrator.

        Call `certify` first, as for `predict_or_abstain`.
        """
        logits = self._logits(X)
        with _in_own_words():
            found = self.calibrator_.predict_interval(logits, delta=delta, groups=groups)
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
            self._logits(X),
            int(held_out.class_index(np.array([label]), self.classes_)[0]),
        )
        with _in_own_words():
            calibrator: BaseCalibrator = self.calibrator_
            found = calibrator.detect(logits, index, recall=recall, delta=delta, groups=groups)
        return replace(
            found, guarantee=found.guarantee.replace(f"class {index}", f"class {label}", 1)
        )

    def predict_action(
        self, X: Any, costs: Any, *, actions: Any = None, groups: Any = None
    ) -> Decisions:
        """The action of least expected cost for each row, with what it is expected to cost.

        `costs` (classes, actions), rows in the order of `classes_`; `actions` are their names. By
        default they are the labels if there is a column for each, else column numbers.
        """
        found = decide(self.predict_proba(X, groups=groups), costs, self.classes_.size)
        n_actions = np.shape(costs)[1]
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

        `adapt()` of what is found is a classifier like this one. It compares rows with held-out
        predictions of the fit; those of folds are of other models than the final one, which is
        surer: with much data hold some of it out instead, and fit with `cv="prefit"`.
        """
        calibrator = self._one_calibrator()
        found = calibrator.estimate_shift(
            self._logits(X), sample_weight, delta=delta, groups=groups
        )
        own: dict[str, Any] = {
            "class_names": tuple(map(str, self.classes_.tolist())),
            "_calibrator": self._with_calibrator(calibrator.without_groups()),
        }
        parts = {name: replace(part, **own) for name, part in found.by_group.items()}
        return replace(found, by_group=parts, **own)

    def with_balance(self, balance: Any) -> Self:
        """A copy for another balance of classes, which is known; see `Calibrator.with_balance`.

        `balance` are shares in the order of `classes_`, or a mapping of labels to shares.
        """
        calibrator = self._one_calibrator()
        if isinstance(balance, Mapping):
            balance = in_order(balance, self.classes_.tolist())
        return self._with_calibrator(calibrator.with_balance(balance))

    def reweight_classes(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is so many times commoner, (classes,)."""
        return self._with_calibrator(self._one_calibrator().reweight_classes(weights))

    def _with_calibrator(self, calibrator: BaseCalibrator) -> Self:
        twin = copy(self)
        twin.calibrator_ = calibrator
        twin.models_ = [replace(self.models_[0], calibrator=calibrator)]
        return twin

    @property
    def _prefit(self) -> bool:
        named = isinstance(self.cv, str) and self.cv == "prefit"
        return named or isinstance(self.estimator, FrozenEstimator)

    def _check_ensemble(self) -> None:
        if self.ensemble and self._prefit:
            raise ValueError(
                "`ensemble` must be False if the estimator is fitted already; got True. There is "
                "one model then: leave it out, or pass the estimator unfitted."
            )
        if self.ensemble and self.keep_labels:
            raise ValueError(
                "`keep_labels` must be False with `ensemble=True`; got True. Several models have "
                "no common label of their own: leave out one of the two."
            )

    def _fit_estimator(
        self, X: Any, y: AnyArray, weights: FloatArray | None, params: dict[str, Any]
    ) -> Any:
        """The one estimator to predict with: as given, or fitted on all the data. None if many."""
        held_out.check_estimator(self.estimator)
        if self._prefit:
            return self.estimator
        if np.unique(y).size < 2:
            raise ValueError(
                f"`y` must hold at least two classes; got 1 class, {y[0]!r}, in all {y.size} "
                "examples. There is nothing to calibrate."
            )
        if weights is not None and held_out.weight_keyword(self.estimator) is None:
            kind = type(self.estimator).__name__
            warn_user(
                f"`sample_weight` was used for calibration only: {kind} does not take it in "
                "`fit`. Use an estimator that does, or omit it.",
                UserWarning,
            )
        if self.ensemble:
            return None
        return held_out.fit_clone(self.estimator, X, y, weights, params)

    def _hold_out(
        self,
        X: Any,
        y: AnyArray,
        weights: FloatArray | None,
        final: Any,
        params: dict[str, Any],
        of_splits: dict[str, Any],
    ) -> list[HeldOutScores]:
        """Scores of examples that the model giving them has not seen, one part per fold."""
        # Examples of weight 0 are not used, not even for the smallest probability seen.
        counts = np.ones(y.size, np.bool_) if weights is None else weights > 0.0
        if self._prefit:
            rows, scores = np.flatnonzero(counts), held_out.read_scores(final, X)
            return [HeldOutScores(rows, self.classes_, scores[rows])]
        splits = [(train, test[counts[test]]) for train, test in self._splits(X, y, of_splits)]
        given = (weights, params)
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(held_out.hold_out)(self.estimator, X, y, *given, split, bool(self.ensemble))
            for split in splits
        )
        held_out.warn_of_lost_rows(parts, sum(test.size for _, test in splits))
        return [part for part in parts if part.rows.size]

    def _splits(
        self, X: Any, y: AnyArray, params: dict[str, Any]
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Row numbers of the training and the held-out part of each fold."""
        if isinstance(self.cv, str):
            raise ValueError(
                '`cv` must be a number of folds, a splitter, an iterable of splits or "prefit"; '
                f"got {self.cv!r}."
            )
        every = np.arange(y.size)
        for train, test in check_cv(self.cv, y, classifier=True).split(X, y, **params):
            yield every[train], every[test]  # a splitter may give masks

    def _calibrate(
        self,
        model: Any,
        calibrator: BaseCalibrator,
        parts: list[HeldOutScores],
        labels: AnyArray,
        weights: FloatArray | None,
        groups: Any,
    ) -> CalibratedModel:
        """The model, and a calibrator that was fitted on the pooled held-out scores."""
        lowest, classes = -math.inf, held_out.classes_of(model)
        if self.zeros == "unlikely" and not hasattr(model, "decision_function"):
            lowest = held_out.resolution([part.scores for part in parts], classes.size)
        rows = np.concatenate([part.rows for part in parts])
        logits = np.concatenate([part.logits(classes, lowest) for part in parts])
        truth = held_out.class_index(labels[rows], classes)
        own = None if weights is None else weights[rows]
        given = {} if groups is None else {"groups": take_rows(groups, rows)}
        fitted = clone(calibrator).fit(logits, truth, own, **given)
        if not self._prefit or lowest > -math.inf:
            # Scores of the models of folds, or raised to a limit that these very examples set, are
            # not independent examples of what the final model does.
            fitted.forget_examples()
        return CalibratedModel(model, fitted, lowest)

    def _logits(self, X: Any) -> FloatArray:
        """The estimator's logits (n, classes), raised to the lowest."""
        self._check_columns(X)
        self._one_calibrator()
        return self.models_[0].logits(X)

    def _one_calibrator(self) -> BaseCalibrator:
        check_is_fitted(self, "models_")
        if self.ensemble:
            raise ValueError(
                "`ensemble` must be False for a guarantee, and for a new balance; got True. Fit "
                "with `ensemble=False`: both are of one calibrator of one model."
            )
        return self.models_[0].calibrator

    def _check_columns(self, X: Any) -> None:
        """Refuse a frame whose columns are not those of the fit, in their order."""
        check_is_fitted(self, "models_")
        if not type(self.models_[0].model).__module__.startswith("sklearn."):  # which look
            _check_feature_names(self, X, reset=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.non_deterministic = inner.non_deterministic
        if inner.classifier_tags is not None:
            tags.classifier_tags = inner.classifier_tags
        return tags


@contextmanager
def _in_own_words() -> Iterator[None]:
    """Errors of the calibrator that name `certify` as the wrapper has it."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace("certify(logits, labels", "certify(X, y")
        raise ValueError(text) from error
