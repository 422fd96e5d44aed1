"""Methods of other libraries under one interface, for the study and for `benchmarks/`.

A contender gets the kind of input that its library asks for (logits, probabilities,
tensors). Nothing of a library is imported before its contender is used, and nothing of
hokical at all, so that benchmarks of other libraries do not load it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Several libraries cannot take a probability of 0.
LEAST = 1e-12


@dataclass(frozen=True)
class Contender:
    """A method of a library: its name there, its input made of logits, its fit and
    its answer.
    """

    called: str
    to_input: Callable[[NDArray[Any]], Any]
    fit: Callable[[Any, NDArray[Any]], Any]
    proba: Callable[[Any, Any], Any]
    needs: tuple[str, ...] = ()
    binary_only: bool = False

    def missing(self) -> list[str]:
        """Modules that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities of at least `LEAST`, in float64."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    clipped = np.clip(weights / weights.sum(axis=1, keepdims=True), LEAST, 1.0)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


def scores_as_classifier(n_classes: int, only_probabilities: bool = False) -> Any:
    """A fitted classifier whose scores, or probabilities, are its input (n,
    classes).
    """
    from sklearn.base import BaseEstimator, ClassifierMixin

    class GivenProbabilities(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any = None, y: Any = None) -> Any:
            self.classes_ = np.arange(n_classes)
            return self

        def predict_proba(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    class GivenScores(GivenProbabilities):
        def decision_function(self, X: Any) -> Any:
            return X[:, 1] - X[:, 0] if n_classes == 2 else X

    return GivenProbabilities().fit() if only_probabilities else GivenScores().fit()


def sklearn(method: str, only_probabilities: bool = False) -> Contender:
    """`CalibratedClassifierCV` of a fitted classifier whose scores, or probabilities
    alone, are its inputs.
    """

    def fit(scores: Any, labels: Any) -> Any:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        classifier = scores_as_classifier(scores.shape[1], only_probabilities)
        model = FrozenEstimator(classifier)
        return CalibratedClassifierCV(model, method=method).fit(scores, labels)

    def answer(model: Any, scores: Any) -> Any:
        output = model.predict_proba(scores)
        if output.shape[1] == scores.shape[1]:
            return output
        proba = np.zeros(
            (output.shape[0], scores.shape[1])
        )  # classes without an example have none
        proba[:, model.classes_] = output
        return proba

    called = f'`CalibratedClassifierCV(method="{method}")`'
    return Contender(called, np.asarray, fit, answer, ("sklearn",))


def mapie(
    called: str, make: Callable[[Any, Any], Any], sums_to_one: bool = True
) -> Contender:
    """MAPIE asks a fitted classifier for its probabilities, here its inputs."""

    def fit(proba: Any, labels: Any) -> Any:
        module = import_module("mapie.calibration")
        return make(module, scores_as_classifier(proba.shape[1])).fit(proba, labels)

    def answer(model: Any, proba: Any) -> Any:
        output = model.predict_proba(proba)
        return output if sums_to_one else None

    return Contender(called, softmax, fit, answer, ("mapie",))


def mapie_venn_abers() -> Contender:
    return mapie(
        '`VennAbersCalibrator(cv="prefit")`',
        lambda module, model: module.VennAbersCalibrator(model, cv="prefit"),
    )


def netcal(package: str, name: str, **options: Any) -> Contender:
    """netcal takes probabilities, of class 1 where there are two."""

    def to_input(logits: NDArray[Any]) -> NDArray[Any]:
        proba = softmax(logits)
        return proba[:, 1] if proba.shape[1] == 2 else proba

    def fit(proba: Any, labels: Any) -> Any:
        model = getattr(import_module(f"netcal.{package}"), name)(**options)
        with redirect_stdout(StringIO()):  # it prints which classes have no example
            model.fit(proba, labels)
        return model

    def answer(model: Any, proba: Any) -> Any:
        output = np.asarray(model.transform(proba))
        if proba.ndim == 2:
            return output.reshape(proba.shape)  # it drops the axis of a single row
        return np.stack([1.0 - output.reshape(-1), output.reshape(-1)], axis=1)

    return Contender(f"`{name}`", to_input, fit, answer, ("netcal",))


def probmetrics(
    name: str, *needs: str, binary_only: bool = False, **options: Any
) -> Contender:
    def fit(proba: Any, labels: Any) -> Any:
        kind = getattr(import_module("probmetrics.calibrators"), name)
        return kind(**options).fit(proba, labels)

    def answer(model: Any, proba: Any) -> Any:
        return model.predict_proba(proba)

    return Contender(
        f"`{name}`", softmax, fit, answer, ("probmetrics", *needs), binary_only
    )


def _log_probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(np.log(softmax(logits)))


def _class_log_odds(logits: NDArray[Any]) -> NDArray[np.float64]:
    """The log-odds (n, classes) of each class against all others.

    Of two classes the difference of the columns is taken, so half of each is given.
    """
    proba = np.clip(softmax(logits), LEAST, 1.0 - LEAST)
    log_odds = np.log(proba) - np.log1p(-proba)
    return np.asarray(log_odds / 2.0 if logits.shape[1] == 2 else log_odds)


#: What the study compares with, each with its library's defaults.
PEERS = {
    # Sigmoids of probabilities are what scikit-learn 1.9 fits to a classifier that has
    # `predict_proba` alone; its pull request 34313 takes log-odds of each class.
    "sklearn:sigmoid": replace(sklearn("sigmoid", True), to_input=softmax),
    "sklearn:sigmoid_logits": replace(sklearn("sigmoid"), to_input=_class_log_odds),
    **{
        f"sklearn:{method}": replace(sklearn(method), to_input=_log_probabilities)
        for method in ("isotonic", "temperature")
    },
    "probmetrics:sms": probmetrics("SMSCalibrator", print_init_info=False),
    "probmetrics:svs": probmetrics("SVSCalibrator", print_init_info=False),
    "probmetrics:logistic": probmetrics("LogisticCalibrator"),
    "probmetrics:beta": probmetrics("BetacalCalibrator", "betacal", binary_only=True),
    "netcal:temperature": netcal("scaling", "TemperatureScaling"),
    "netcal:logistic": netcal("scaling", "LogisticCalibration"),
    "netcal:isotonic": netcal("binning", "IsotonicRegression"),
    "mapie:venn_abers": mapie_venn_abers(),
}
