"""Methods by name, with their metadata."""

from dataclasses import dataclass
from typing import Any

from hokical.calibrators._base import BaseCalibrator
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import load_estimator_class, method_names
from hokical.calibrators._estimator import clone
from hokical.calibrators._fitted import FittedCalibrator
from hokical.calibrators._predictions import check_plain_logits


@dataclass(frozen=True)
class MethodInfo:
    """Metadata of a method."""

    name: str
    title: str
    kind: type[BaseCalibrator]
    reference: str
    parameters: dict[str, Any]
    changes_labels: bool
    accepts_top_k: bool
    binary_only: bool
    cost: str


def make(name: str, **parameters: Any) -> BaseCalibrator:
    """Create a calibrator by its registry name; "auto" is the automatic choice.

    >>> make("hoki", n_bins=10)
    Hoki(n_bins=10)
    """
    kind = load_estimator_class(name)
    known = kind().get_params(deep=False)
    for parameter in parameters:
        if parameter not in known:
            raise TypeError(f"{name!r} has no parameter {parameter!r}; it has {list(known)}.")
    made: BaseCalibrator = kind(**parameters)
    return made


def make_seeded(name: str, seed: int, **parameters: Any) -> BaseCalibrator:
    """`make`, with the seed as `random_state` if the method has one."""
    calibrator = make(name, **parameters)
    if calibrator.has_seed:
        calibrator.set_params(random_state=seed)
    return calibrator


def new_estimator(method: Any, *, argument: str = "method", **parameters: Any) -> BaseCalibrator:
    """An unfitted calibrator for logits alone: by its name, or a copy of the one given."""
    made: BaseCalibrator
    if isinstance(method, str):
        load_estimator_class(method, argument)
        made = make(method, **parameters)
    elif not isinstance(method, Calibrator):
        raise TypeError(
            f"`{argument}` must be a method's name or a calibrator; got {type(method).__name__}. "
            'For example "hoki".'
        )
    elif parameters:
        raise TypeError(
            f"options {sorted(parameters)} go with a method's name; set them on the calibrator "
            "itself."
        )
    else:
        made = clone(method.estimator() if isinstance(method, FittedCalibrator) else method)
    check_plain_logits(made, argument)
    return made


def table() -> list[MethodInfo]:
    """Every method: name, class, reference, parameters, capabilities, cost.

    >>> [info.name for info in table()][0]
    'uncalibrated'
    """
    own = ("name", "title", "reference", "accepts_top_k", "binary_only", "cost")
    return [
        MethodInfo(
            kind=kind,
            parameters=kind().get_params(deep=False),
            changes_labels=not kind().preserves_labels,
            **{name: getattr(kind, name) for name in own},
        )
        for kind in map(load_estimator_class, method_names())
    ]
