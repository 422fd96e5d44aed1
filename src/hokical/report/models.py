"""Whole models, evaluated from their inputs: any classifier with `predict_proba`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.conversion import check_probability_rows
from hokical._core.votes import Votes, read_votes
from hokical.calibrators.stored import StoredEstimator
from hokical.guarantees.sets import PredictionSets


@runtime_checkable
class ProbabilityModel(Protocol):
    """A classifier with probabilities; fitted, it has `classes_`."""

    def predict_proba(self, X: object) -> object: ...


@runtime_checkable
class LabelModel(Protocol):
    """A classifier that says itself which class it predicts."""

    def predict(self, X: object) -> object: ...


@runtime_checkable
class CalibratedProbabilityModel(Protocol):
    """A classifier that also says what its probabilities were before calibration."""

    def predict_proba(self, X: object, *, groups: object = None) -> object: ...

    def predict(self, X: object, *, groups: object = None) -> object: ...

    def predict_uncalibrated(self, X: object) -> object: ...

    def predict_set(
        self, X: object, *, groups: object = None, coverage: float
    ) -> PredictionSets: ...

    def is_of_fit(self, X: object) -> bool: ...


#: A classifier of either kind.
Model = ProbabilityModel | CalibratedProbabilityModel


def is_model(value: object) -> bool:
    """Whether it predicts from inputs, as calibrators do from scores.

    It can be fitted, or it says what its classes are. Raises for a classifier without
    probabilities.
    """
    if isinstance(value, (StoredEstimator, type)):
        return False
    is_classifier = hasattr(value, "fit") or hasattr(value, "classes_")
    # A pipeline has the methods of its last step.
    if is_classifier and hasattr(value, "predict_proba"):
        return True
    if is_classifier and hasattr(value, "decision_function"):
        raise TypeError(
            "a model must have `predict_proba`; got "
            f"{value!r}, whose `decision_function` is no probability. Wrap it: "
            "`CalibratedClassifier(model)`."
        )
    return is_classifier and isinstance(value, ProbabilityModel)  # some once fitted


def name_models(
    models: Iterable[ProbabilityModel] | Mapping[str, ProbabilityModel],
) -> dict[str, ProbabilityModel]:
    """Models by name: the keys of a mapping, or the names of their classes."""
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    named: dict[str, ProbabilityModel] = {}
    for model in models:
        name = type(model).__name__
        if name in named:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them "
                "in a dict, such as {'first': model, ...}."
            )
        named[name] = model
    return named


def classes_of(model: Model, name: str) -> AnyArray:
    """The classes of a fitted model, in the order of its probabilities."""
    if not hasattr(model, "classes_"):
        raise ValueError(
            f"`{name}` must be fitted, with `classes_` in the order of its "
            f"probabilities; got {model!r}. Call its `fit` first."
        )
    classes = np.asarray(model.classes_)
    if classes.ndim != 1 or classes.size < 2:
        raise _several_labels(name, f"`classes_` of shape {classes.shape}")
    return classes


def _several_labels(name: str, found: str) -> ValueError:
    return ValueError(
        f"`{name}` must have one label per row, of at least two classes; got {found}. "
        "Of several labels evaluate the calibrator: `evaluate(model.calibrator_, "
        "model.predict_scores(X), y)`."
    )


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """What a model predicts: labels (n,) as columns, probabilities (n, classes)."""

    labels: IntArray
    proba: FloatArray

    @classmethod
    def of(cls, model: Model, X: object, name: str, groups: object = None) -> Self:
        """The predictions of a fitted model for inputs."""
        classes = classes_of(model, name)
        if isinstance(model, CalibratedProbabilityModel):
            proba = model.predict_proba(X, groups=groups)
            labels = model.predict(X, groups=groups)
        else:
            proba = model.predict_proba(X)
            labels = model.predict(X) if isinstance(model, LabelModel) else None
        shape = () if labels is None else reading.shape_of(labels)
        if len(shape) == 2:
            raise _several_labels(name, f"predictions of shape {shape}")
        read = read_proba(proba, classes.size, f"{name}.predict_proba(X)")
        if labels is None:
            return cls(read.argmax(axis=1), read)
        of_labels = f"{name}.predict(X)"
        columns = reading.class_index(
            reading.to_numpy(labels, of_labels), classes, of_labels
        )
        return cls(columns, read)

    @classmethod
    def uncalibrated(cls, model: Model, X: object) -> Self | None:
        """Those before calibration, of a model that has them."""
        if not isinstance(model, CalibratedProbabilityModel):
            return None
        name = "model.predict_uncalibrated(X)"
        proba = read_proba(model.predict_uncalibrated(X), None, name)
        return cls(proba.argmax(axis=1), proba)

    def take(self, rows: IntArray) -> Self:
        """Those for some of the rows, by number."""
        return type(self)(self.labels[rows], self.proba[rows])

    @property
    def confidence(self) -> FloatArray:
        """The probability (n,) of each predicted label."""
        rows = np.arange(self.labels.size)
        return np.asarray(self.proba[rows, self.labels])


def read_proba(proba: object, n_classes: int | None, name: str) -> FloatArray:
    """Checked probabilities (n, classes), float64."""
    array = reading.to_numpy(proba, name)
    if array.ndim != 2 or n_classes not in (None, array.shape[1]):
        columns = "classes" if n_classes is None else n_classes
        raise ValueError(
            f"`{name}` must be probabilities of shape (n, {columns}); got shape "
            f"{array.shape}."
        )
    values = array.astype(np.float64)
    check_probability_rows(values, name)
    return np.minimum(values, 1.0)


@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """Inputs of models with the true labels (n,), or votes (n, classes) as they were
    given, and the rows' weights.
    """

    X: object
    y: Any
    weights: FloatArray | None = None
    groups: object = None

    @classmethod
    def read(
        cls,
        X: object,
        y: object,
        sample_weight: object = None,
        groups: object = None,
    ) -> Self:
        """Inputs with as many labels as rows."""
        reading.pair_rows(X, y, sample_weight, groups, ("X", "y"))
        labels = reading.to_numpy(y, "y")
        if labels.ndim not in (1, 2) or not labels.size:
            raise ValueError(
                "`y` must be labels (n,), one of each row, or votes (n, classes); got "
                f"shape {labels.shape}."
            )
        weights = reading.as_weights(sample_weight, len(labels))
        return cls(X, labels if labels.ndim == 1 else y, weights, groups)

    @property
    def n_rows(self) -> int:
        return int(reading.shape_of(self.y)[0])

    def check_count(self, predictions: ModelPredictions) -> None:
        """Raise unless there is a label for each predicted row."""
        if predictions.labels.size != self.n_rows:
            raise ValueError(
                f"`y` must have one label per row of `X`; got {self.n_rows:,} labels "
                f"of {predictions.labels.size:,} rows. Cut both in the same way."
            )

    def truth(self, classes: AnyArray) -> Votes:
        """The true labels as columns of the probabilities, each a vote."""
        names = tuple(map(str, classes.tolist()))
        shape = reading.shape_of(self.y)
        if len(shape) == 1:
            labels = reading.class_index(self.y, classes, "y")
            return Votes(np.arange(labels.size), labels, np.ones(labels.size))
        votes = read_votes(self.y, self.n_rows, classes.size, "y", names=(names,))
        if votes is None:
            raise ValueError(
                f"`y` must be labels (n,), or votes (n, {classes.size}) for the classes "
                f"of the model; got shape {shape}. Of a column use `.ravel()`."
            )
        return votes
