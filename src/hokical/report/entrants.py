"""Who takes part in a comparison: names, estimators, classes and fitted calibrators."""

from collections.abc import Iterable, Mapping
from typing import Any

from sklearn.base import clone

from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import load_estimator_class
from hokical.calibrators.registry import make_seeded, methods_from_logits
from hokical.core.logits import Logits
from hokical.core.topk import TopK

Methods = Iterable[Any] | Mapping[str, Any] | None


def choose_entrants(
    methods: Methods, seed: int, data: tuple[Logits, ...]
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the names of those that the data do not allow, with the reason."""
    found: dict[str, Calibrator] = {}
    skipped: dict[str, str] = {}
    for name, calibrator in _name_methods(methods, seed):
        if name in found:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them in a dict, "
                f"such as {{'first': {calibrator}, ...}}."
            )
        reason = _obstacle(name, calibrator, data)
        if reason is None:
            found[name] = calibrator
        else:
            skipped[name] = reason
    if not found:
        raise ValueError(f"`methods` must have one that the data allow; got {skipped or 'none'}.")
    return found, skipped


def is_fitted(calibrator: Calibrator) -> bool:
    return getattr(calibrator, "rule_", None) is not None


def method_title(calibrator: Calibrator) -> str:
    """The method in full words, without what its title has in brackets; "" if it has none."""
    kind: Any = type(calibrator)
    if not isinstance(calibrator, BaseCalibrator):
        kind = load_estimator_class(calibrator.name)
    return str(kind.title).split(" (")[0]


def _name_methods(methods: Methods, seed: int) -> Iterable[tuple[str, Calibrator]]:
    if isinstance(methods, str):
        raise TypeError(
            f"`methods` must be a list or dict of methods; got {methods!r}. Use a list."
        )
    if isinstance(methods, Mapping):
        yield from ((str(name), _as_calibrator(given, seed)) for name, given in methods.items())
        return
    for given in [*methods_from_logits(), "auto"] if methods is None else methods:
        calibrator = _as_calibrator(given, seed)
        changed = isinstance(given, BaseCalibrator) and "()" not in str(given)
        yield str(given) if changed else calibrator.name, calibrator


def _as_calibrator(given: Any, seed: int) -> Calibrator:
    """A new estimator, or the given calibrator if it is fitted."""
    if isinstance(given, str):
        return make_seeded(given, seed)
    if isinstance(given, type) and issubclass(given, BaseCalibrator):
        return given()
    if not isinstance(given, Calibrator):
        raise TypeError(
            "`methods` must hold names, estimators or fitted calibrators; got "
            f"{type(given).__name__}. Use a name from `hokical.calibrators.table()`."
        )
    if is_fitted(given):
        return given
    fresh: Calibrator = clone(given)
    return fresh


def _obstacle(name: str, calibrator: Any, data: tuple[Logits, ...]) -> str | None:
    """Why the data do not allow a method, or None."""
    if calibrator.needs_views:
        raise ValueError(
            f"`methods` cannot hold {name!r}: it also needs the logits of transformed inputs. "
            "Fit it by itself, on `hokical.Views`."
        )
    n_classes = data[0].n_classes
    if n_classes > 2 and getattr(calibrator, "binary_only", False):
        return f"for two classes, and there are {n_classes}"
    if any(isinstance(logits, TopK) for logits in data) and not calibrator.accepts_top_k:
        return "needs the logits of all classes"
    return None
