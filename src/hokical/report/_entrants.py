"""Which methods take part in a comparison: names, estimators, fitted calibrators, other models."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.labels import class_index
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import IntArray
from hokical._fitting.examples import Examples
from hokical.calibrators import Calibrator, Fit, MethodInfo
from hokical.calibrators._catalog import make_seeded, method_names
from hokical.calibrators._checks import check_plain_logits
from hokical.calibrators._estimator import clone
from hokical.rules._base import Rule

Methods = Iterable[Any] | Mapping[str, Any] | None
#: By how much rows of probabilities may miss a sum of 1, which is rounding.
_ROUNDING = 1e-3


def choose_entrants(
    methods: Methods, random_state: int, data: tuple[Logits, ...]
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the names of those that the data do not allow, with the reason."""
    found: dict[str, Calibrator] = {}
    skipped: dict[str, str] = {}
    for name, calibrator in _name_methods(methods, random_state):
        if name in found:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them in a dict, "
                f"such as {{'first': {calibrator}, ...}}."
            )
        reason = _obstacle(calibrator, data)
        if reason is None:
            found[name] = calibrator
        else:
            skipped[name] = reason
    if not found:
        raise ValueError(f"`methods` must have one that the data allow; got {skipped or 'none'}.")
    return found, skipped


def is_fitted(calibrator: Any) -> bool:
    """Whether a calibrator can predict."""
    return getattr(calibrator, "rule_", None) is not None


def _name_methods(methods: Methods, random_state: int) -> Iterable[tuple[str, Calibrator]]:
    if isinstance(methods, str):
        raise TypeError(
            f"`methods` must be a list or dict of methods; got {methods!r}. Use a list."
        )
    if isinstance(methods, Mapping):
        yield from (
            (str(name), _as_calibrator(given, random_state)) for name, given in methods.items()
        )
        return
    for given in [*method_names(2), "auto"] if methods is None else methods:
        calibrator = _as_calibrator(given, random_state)
        changed = isinstance(given, Calibrator) and "()" not in str(given)
        own = calibrator.name
        if isinstance(calibrator, ForeignMethod):
            own = type(calibrator.model).__name__
        yield str(given) if changed else own, calibrator


def _as_calibrator(given: Any, random_state: int) -> Calibrator:
    """A new estimator, or the given calibrator if it is fitted."""
    if isinstance(given, str):
        return make_seeded(given, random_state)
    if isinstance(given, type) and issubclass(given, Calibrator):
        return given()
    if not isinstance(given, Calibrator):
        if not all(callable(getattr(given, name, None)) for name in ("fit", "predict_proba")):
            raise TypeError(
                "`methods` must hold names, calibrators, or objects with `fit` and "
                f"`predict_proba`; got {type(given).__name__}. Use a name from "
                "`hokical.calibrators.method_names()`."
            )
        return ForeignMethod(given() if isinstance(given, type) else given)
    if is_fitted(given):
        return given
    fresh: Calibrator = clone(given)
    return fresh


def _obstacle(calibrator: Any, data: tuple[Logits, ...]) -> str | None:
    """Why the data do not allow a method, or None."""
    check_plain_logits(calibrator.method, "methods")
    n_classes = data[0].n_classes
    if n_classes > 2 and calibrator.method.binary_only:
        return f"for two classes, and there are {n_classes}"
    if any(isinstance(logits, TopK) for logits in data) and not calibrator.method.accepts_top_k:
        return "needs the logits of all classes"
    return None


@dataclass(frozen=True, eq=False)
class ForeignRule(Rule):
    """Predictions of a fitted `model` from logits as its features; columns are the `classes`."""

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
