"""Which calibrators there are, how to make one by name, and how a saved one comes back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hokical.calibrators.automatic import Calibrator
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.dir_odir import DirichletODIR
from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.irm import IsotonicMulticlass
from hokical.calibrators.irova_ts import IsotonicOneVsAllTS
from hokical.calibrators.ms_odir import MatrixScalingODIR
from hokical.calibrators.profile import StabilityProfile
from hokical.calibrators.recal import ReCal
from hokical.calibrators.temps import TemperatureScaling
from hokical.calibrators.uncalibrated import Uncalibrated
from hokical.calibrators.vecs import VectorScaling
from hokical.storage import CalibratorFileError, read_document

CALIBRATORS: dict[str, type[BaseCalibrator]] = {
    kind.name: kind
    for kind in (
        Uncalibrated,
        TemperatureScaling,
        VectorScaling,
        MatrixScalingODIR,
        DirichletODIR,
        EnsembleTemperatureScaling,
        IsotonicMulticlass,
        IsotonicOneVsAllTS,
        ReCal,
        Hoki,
        StabilityProfile,
    )
}

#: Everything that has a name: the methods, and what chooses among them.
KINDS: dict[str, type[BaseCalibrator]] = {**CALIBRATORS, Calibrator.name: Calibrator}


@dataclass(frozen=True)
class MethodInfo:
    """What `table` tells of a method."""

    name: str
    kind: type[BaseCalibrator]
    reference: str
    parameters: dict[str, Any]
    changes_labels: bool
    cost: str


def make(name: str, **parameters: Any) -> BaseCalibrator:
    """Build a calibrator by its registry name.

    >>> make("hoki", n_bins=10)
    Hoki(n_bins=10)
    """
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"`name` must be one of {list(KINDS)}; got {name!r}.")
    known = KINDS[name]().get_params(deep=False)
    for parameter in parameters:
        if parameter not in known:
            raise TypeError(f"{name!r} has no parameter {parameter!r}; it has {list(known)}.")
    return KINDS[name](**parameters)


def make_seeded(name: str, seed: int, **parameters: Any) -> BaseCalibrator:
    """`make`, with the seed as `random_state` where the method has one."""
    calibrator = make(name, **parameters)
    if "random_state" in calibrator.get_params(deep=False):
        calibrator.set_params(random_state=seed)
    return calibrator


def table() -> list[MethodInfo]:
    """Every method: name, class, reference, parameters, whether it may change a label, cost.

    >>> [info.name for info in table()][0]
    'uncalibrated'
    """
    return [
        MethodInfo(
            name=name,
            kind=kind,
            reference=kind.reference,
            parameters=kind().get_params(deep=False),
            changes_labels=not kind.preserves_labels,
            cost=kind.cost,
        )
        for name, kind in CALIBRATORS.items()
    ]


def methods_without_extra_input() -> list[str]:
    """The methods that need nothing but logits and labels."""
    return [name for name, kind in CALIBRATORS.items() if not kind.needs_transformed]


def load(path: str | os.PathLike[str]) -> BaseCalibrator:
    """Read a calibrator that `save` wrote. Raises CalibratorFileError for anything else."""
    document = read_document(path)
    kinds = {kind.__name__: kind for kind in KINDS.values()}
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise CalibratorFileError(f"{path} holds a {kind!r}; this version knows {sorted(kinds)}.")
    try:
        calibrator = kinds[kind](**document["parameters"])
        calibrator._remember_classes(_class_count(document["n_classes"]))
        calibrator._restore(document["state"])
        calibrator._restore_scores(document.get("guarantees"))
    except (KeyError, TypeError, ValueError, LookupError, AttributeError, MemoryError) as error:
        raise CalibratorFileError(f"{path} does not hold a usable {kind}: {error}") from error
    return calibrator


def _class_count(stored: Any) -> int:
    if not isinstance(stored, int) or stored < 2:
        raise ValueError(f"n_classes must be an integer of at least 2; got {stored!r}")
    return stored
