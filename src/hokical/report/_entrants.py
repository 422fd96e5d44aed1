"""Which methods take part in a comparison: names, estimators, fitted calibrators."""

from collections.abc import Iterable, Mapping
from typing import Any

from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical.calibrators import Calibrator
from hokical.calibrators._catalog import make, method_names
from hokical.calibrators._checks import check_plain_logits
from hokical.calibrators._estimator import clone

Methods = Iterable[Any] | Mapping[str, Any] | None


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
        yield str(given) if changed else calibrator.name, calibrator


def _as_calibrator(given: Any, random_state: int) -> Calibrator:
    """A new estimator, or the given calibrator if it is fitted."""
    if isinstance(given, str):
        made = make(given)
        seeded = "random_state" in made.get_params(deep=False)
        return made.set_params(random_state=random_state) if seeded else made
    if isinstance(given, type) and issubclass(given, Calibrator):
        return given()
    if not isinstance(given, Calibrator):
        raise TypeError(
            f"`methods` must hold names or calibrators; got {type(given).__name__}. Use a name of "
            "`hokical.calibrators.method_names()`; for the probabilities of other models, "
            "`hokical.metrics.summary`."
        )
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
