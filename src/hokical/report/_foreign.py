"""Methods of other libraries in a comparison: anything with `fit` and `predict_proba`."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.labels import class_index
from hokical._core.logits import Logits
from hokical._core.types import IntArray
from hokical._fitting.examples import Examples
from hokical.calibrators import Calibrator, Fit, MethodInfo
from hokical.rules._base import Rule

#: By how much rows of probabilities may miss a sum of 1, which is rounding.
_ROUNDING = 1e-3


@dataclass(frozen=True, eq=False)
class ForeignRule(Rule):
    """What a fitted `model` says of logits as its features; its columns are the `classes`."""

    name: ClassVar[str] = "foreign"
    preserves_labels: ClassVar[bool] = False

    model: Any
    classes: IntArray

    def proba(self, logits: Logits) -> Array:
        found = np.asarray(
            self.model.predict_proba(logits.to_host(logits.values)), dtype=np.float64
        )
        wanted = (logits.n_rows, self.classes.size)
        sums = found.sum(axis=1, keepdims=True) if found.shape == wanted else np.zeros(1)
        if not (np.abs(sums - 1.0) < _ROUNDING).all() or found.min(initial=0.0) < 0.0:
            raise ValueError(
                f"`predict_proba` of {type(self.model).__name__} must give probabilities of shape "
                f"{wanted} whose rows sum to 1; got shape {found.shape}."
            )
        whole = np.zeros((logits.n_rows, logits.n_classes))
        whole[:, self.classes] = found / sums
        return logits.from_host(whole)


class ForeignMethod(Calibrator):
    """A copy of `model`, fitted on logits (n, classes) as its features and on labels (n,)."""

    method = MethodInfo(ForeignRule, fits_floor=False)

    def __init__(self, model: Any) -> None:
        self.model = model

    def _fit(self, examples: Examples) -> Fit:
        model = deepcopy(self.model)
        model.fit(examples.logits.to_host(examples.logits.values), examples.labels)
        known = np.asarray(getattr(model, "classes_", np.arange(examples.n_classes)))
        places = class_index(known, range(examples.n_classes), "classes_")
        return Fit(ForeignRule(model, places))
