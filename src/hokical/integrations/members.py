"""Several scikit-learn classifiers of the same classes, which are pooled.

The scores of the classifiers are the members of a `hokical.Ensemble`. On rows that were
held out, each member has been scored by the models of its folds. On new rows its
scores are the mean of those of its models, or those of one model of all the data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from hokical._core.arrays import AnyArray, FloatArray
from hokical._core.ensembles import Ensemble
from hokical._core.logits import as_logits
from hokical._core.reading import class_index
from hokical._core.runtime import warn_user
from hokical.calibrators.calibrator import Calibrator
from hokical.integrations.held_out import (
    ClassifierExamples,
    HeldOutScores,
    check_estimator,
    classes_of,
    log_of_mean,
    read_scores,
    resolution,
    spread_scores,
)
from hokical.rules.base import UncalibratedRule, predict_on_host

#: Name of the splitter among those that metadata are routed to.
SPLITTER = "splitter"
_DROPPED = "drop"  # as in scikit-learn's own ensembles


@dataclass(frozen=True)
class NamedClassifier:
    """A classifier that is a member, and the parameters of its `fit`."""

    name: str
    estimator: BaseEstimator
    params: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberClassifiers:
    """The classifiers whose scores are pooled.

    Attributes
    ----------
    members : in the order of the ensemble
    prefit : whether all of them have been fitted, on other data
    classes : the classes as a fitted `VotingClassifier` knows them
    encodes : whether members know the classes by number, as those of a
        `VotingClassifier` do
    """

    members: tuple[NamedClassifier, ...]
    prefit: bool
    classes: AnyArray | None = None
    encodes: bool = False

    @classmethod
    def read(
        cls, estimator: object, cv: object, reserved: Collection[str]
    ) -> Self | None:
        """The members of a list or of a `VotingClassifier`; None of other classifiers.

        No member may have a name that is `reserved`.
        """
        prefit = isinstance(cv, str) and cv == "prefit"
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
            prefit = True
        if isinstance(estimator, VotingClassifier):
            members = _check_members(estimator.estimators, reserved)
            return cls._of_votes(estimator, members, prefit)
        if not isinstance(estimator, list):
            return None
        members = _check_members(estimator, reserved)
        return cls(members, prefit or _all_frozen(members))

    @classmethod
    def _of_votes(
        cls,
        voting: VotingClassifier,
        members: tuple[NamedClassifier, ...],
        prefit: bool,
    ) -> Self:
        if not prefit:
            is_frozen = _all_frozen(members)
            return cls(members, is_frozen, encodes=not is_frozen)
        check_is_fitted(voting, "estimators_")
        fitted = tuple(
            replace(member, estimator=estimator)
            for member, estimator in zip(members, voting.estimators_, strict=True)
        )
        return cls(fitted, prefit, np.asarray(voting.classes_), encodes=True)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def add_to(self, router: MetadataRouter) -> MetadataRouter:
        """A router of metadata that knows the `fit` of each member."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        members = {member.name: member.estimator for member in self.members}
        return router.add(**members, method_mapping=mapping)

    def combine_tags(self, tags: Tags) -> Tags:
        """The tags of a classifier that takes what all members take."""
        members = [get_tags(member.estimator) for member in self.members]
        inputs = [member.input_tags for member in members]
        tags.input_tags = replace(
            inputs[0],
            sparse=all(member.sparse for member in inputs),
            allow_nan=all(member.allow_nan for member in inputs),
        )
        tags.non_deterministic = any(member.non_deterministic for member in members)
        return tags

    def with_params(self, params: Mapping[str, Mapping[str, object]]) -> Self:
        """A copy with the parameters of `fit` of each member, by name."""
        members = tuple(
            replace(member, params=dict(params[member.name])) for member in self.members
        )
        return replace(self, members=members)

    def split_params(
        self, params: Mapping[str, object], weights: FloatArray | None
    ) -> dict[str, dict[str, object]]:
        """The parameters of `fit` by member, from those called NAME__PARAMETER.

        Weights are for all members that take them.
        """
        by_name: dict[str, dict[str, object]] = {name: {} for name in self.names}
        for key, value in params.items():
            name, _, parameter = key.partition("__")
            if name not in by_name or not parameter:
                raise TypeError(
                    "parameters of `fit` must be called NAME__PARAMETER, with a name "
                    f"among {', '.join(self.names)}; got {key!r}."
                )
            by_name[name][parameter] = value
        if weights is not None:
            self._give_weights(by_name, weights)
        return by_name

    def _give_weights(
        self, by_name: dict[str, dict[str, object]], weights: FloatArray
    ) -> None:
        without = []
        for member in self.members:
            takes = has_fit_parameter(member.estimator, "sample_weight")
            if self.prefit or not takes:
                without.append(member.name)
            else:
                by_name[member.name].setdefault("sample_weight", weights)
        if without:
            reason = "are fitted already" if self.prefit else "do not take it in `fit`"
            warn_user(
                f"`sample_weight` was not used for {', '.join(without)}: they {reason}. "
                "Pass the weights of a step of a Pipeline as "
                "`name__step__sample_weight`, and those of the calibration as "
                "`calibration_weight`."
            )

    def read_classes(self, labels: AnyArray) -> AnyArray:
        """The labels (classes,) that members can predict."""
        if not self.prefit:
            return np.unique(labels)
        if self.classes is not None:
            return self.classes
        return classes_of(self.members[0].estimator)

    def model_classes(self, classes: AnyArray) -> AnyArray:
        """The classes as the models know them."""
        return np.arange(classes.size) if self.encodes else classes

    def examples_of(
        self, member: NamedClassifier, data: ClassifierExamples, classes: AnyArray
    ) -> ClassifierExamples:
        """The examples that a member is fitted on."""
        labels = class_index(data.y, classes, "y") if self.encodes else data.y
        return replace(data, y=labels, params=member.params)


def _check_members(
    pairs: Sequence[object], reserved: Collection[str]
) -> tuple[NamedClassifier, ...]:
    """Pairs of a name and a classifier, without those that are dropped."""
    members = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                "`estimator` must be a classifier or a list of pairs (name, "
                f"classifier); got {pair!r} in the list."
            )
        members.append(NamedClassifier(*pair))
    _check_names([member.name for member in members], {*reserved, SPLITTER})
    used = [
        member
        for member in members
        if not isinstance(member.estimator, str) or member.estimator != _DROPPED
    ]
    if not used:
        raise ValueError(
            "`estimator` must have at least one pair (name, classifier) that is not "
            f'"{_DROPPED}"; got {list(pairs)}.'
        )
    for member in used:
        if not hasattr(member.estimator, "get_params"):
            raise ValueError(
                f"`estimator` must be pairs (name, classifier); got "
                f"{member.estimator!r} for {member.name!r}."
            )
        check_estimator(member.estimator)
    return tuple(used)


def _check_names(names: Sequence[str], reserved: Collection[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not name or "__" in name:
            raise ValueError(
                "the names of several estimators must be texts without `__`, which "
                f"separates a name from a parameter; got {name!r}."
            )
        if name in reserved:
            raise ValueError(
                "the names of several estimators must differ from the parameters of "
                f"CalibratedClassifier; got {name!r}. Choose another name."
            )
    if len({*names}) < len(names):
        raise ValueError(
            f"the names of several estimators must be distinct; got {list(names)}."
        )


def _all_frozen(members: Sequence[NamedClassifier]) -> bool:
    return all(isinstance(member.estimator, FrozenEstimator) for member in members)


@dataclass(frozen=True, eq=False)
class FittedMember:
    """The fitted models of a member, one for each fold or one.

    Its logits are the mean of their decision scores, or the logarithm of the mean of
    their probabilities, raised to `lowest`, which is -inf for decision scores.
    """

    models: tuple[BaseEstimator, ...]
    lowest: float

    def logits(self, X: object, classes: AnyArray) -> FloatArray:
        """Logits (n, classes): -inf for classes that no model knows."""
        scores = [
            spread_scores(
                read_scores(model, X, multilabel=False), classes_of(model), classes
            )
            for model in self.models
        ]
        if len(scores) == 1:
            return raise_to(scores[0], self.lowest)
        if self.lowest > -math.inf:
            proba = [
                np.exp(raise_to(model_scores, self.lowest)) for model_scores in scores
            ]
            return raise_to(log_of_mean(proba), self.lowest)
        return mean_of_known(scores)


def raise_to(logits: FloatArray, lowest: float) -> FloatArray:
    """Logits raised to `lowest`; masked classes stay.

    >>> raise_to(np.array([[-np.inf, -50.0, -1.0]]), -3.0).tolist()
    [[-inf, -3.0, -1.0]]
    """
    return np.where(np.isneginf(logits), logits, np.maximum(logits, lowest))


def mean_of_known(scores: Sequence[FloatArray]) -> FloatArray:
    """The mean (n, classes) of the scores of the models that know a class.

    >>> mean_of_known([np.array([[1.0, -np.inf]]), np.array([[3.0, 4.0]])]).tolist()
    [[2.0, 4.0]]
    """
    values = np.stack(scores)
    is_known = ~np.isneginf(values)
    total = np.sum(values, axis=0, where=is_known)
    count = is_known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), -np.inf)


@dataclass(frozen=True, eq=False)
class HeldOutMember:
    """The held-out scores of a member, by fold, and what it is fitted on.

    `classes` are the labels as its models know them.
    """

    name: str
    data: ClassifierExamples
    estimator: BaseEstimator
    folds: tuple[HeldOutScores, ...]
    classes: AnyArray

    def refit(self) -> tuple[BaseEstimator]:
        """One model of all the data."""
        return (self.data.fit(self.estimator),)

    @property
    def models(self) -> tuple[BaseEstimator, ...]:
        """The models of the folds."""
        return tuple(fold.model for fold in self.folds)

    @property
    def lowest(self) -> float:
        """The value that smaller log-probabilities are raised to."""
        if self.folds[0].are_decisions:
            return -math.inf
        return resolution([fold.scores for fold in self.folds], self.classes.size)

    def logits(self) -> FloatArray:
        """The scores (n, classes) of all folds."""
        scores = np.concatenate([fold.logits(self.classes) for fold in self.folds])
        return raise_to(scores, self.lowest)


def pool_scores(members: Sequence[HeldOutMember]) -> Ensemble:
    """The held-out scores as an ensemble."""
    first = members[0]
    for member in members[1:]:
        for fold, first_fold in zip(member.folds, first.folds, strict=True):
            classes = fold.model_classes
            first_classes = first_fold.model_classes
            if not np.array_equal(classes, first_classes):
                raise ValueError(
                    "the classifiers of `estimator` must know the same classes, those "
                    f"of `y`; {first.name!r} knows {first_classes.tolist()} and "
                    f"{member.name!r} knows {classes.tolist()}."
                )
    return Ensemble({member.name: member.logits() for member in members})


@dataclass(frozen=True, eq=False)
class CalibratedPool:
    """The fitted members that are needed, and a calibrator of their `Ensemble`.

    `classes` are the labels as the models know them.
    """

    model: dict[str, FittedMember]
    calibrator: Calibrator
    classes: AnyArray

    @property
    def n_folds(self) -> int:
        """How many models each member has."""
        return len(next(iter(self.model.values())).models)

    def logits(self, X: object) -> Ensemble:
        """The logits of the members."""
        return Ensemble(
            {
                name: member.logits(X, self.classes)
                for name, member in self.model.items()
            }
        )

    def logits_of_one(self, X: object, draws: FloatArray) -> Ensemble:
        """The logits of the members, each row scored by the models of one fold.

        Its draw (n,) in [0, 1) selects the fold.
        """
        folds = (draws * self.n_folds).astype(np.int64)
        rows = np.arange(draws.size)
        return Ensemble(
            {
                name: np.stack(
                    [
                        replace(member, models=(model,)).logits(X, self.classes)
                        for model in member.models
                    ]
                )[folds, rows]
                for name, member in self.model.items()
            }
        )

    def uncalibrated(self, X: object) -> FloatArray:
        """The mean (n, classes) of the members' probabilities before calibration."""
        proba = [
            predict_on_host(UncalibratedRule(), "proba", as_logits(logits))
            for logits in self.logits(X).members
        ]
        return np.asarray(np.mean(proba, axis=0))
