"""How each method looks as a graph, and which method is written how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hokical.calibrators import (
    BaseCalibrator,
    Calibrator,
    EnsembleTemperatureScaling,
    Hoki,
    IsotonicMulticlass,
    IsotonicOneVsAllTS,
    ReCal,
    StabilityProfile,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from hokical.calibrators.odir import ODIRCalibrator
from hokical.integrations.onnx.methods.affine import odir, vecs
from hokical.integrations.onnx.methods.hoki import cheap_probabilities, hoki
from hokical.integrations.onnx.methods.isotonic import irm, irova_ts
from hokical.integrations.onnx.methods.profile import profile
from hokical.integrations.onnx.methods.recal import recal
from hokical.integrations.onnx.methods.softmax import ets, temps, uncalibrated
from hokical.integrations.onnx.rows import Outcome, Rows

Writer = Callable[[Any, Rows, bool], Outcome]

_WRITERS: dict[type[BaseCalibrator], Writer] = {
    Uncalibrated: uncalibrated,
    TemperatureScaling: temps,
    EnsembleTemperatureScaling: ets,
    VectorScaling: vecs,
    ODIRCalibrator: odir,
    IsotonicMulticlass: irm,
    IsotonicOneVsAllTS: irova_ts,
    Hoki: hoki,
    StabilityProfile: profile,
}


def chosen_method(calibrator: BaseCalibrator) -> BaseCalibrator:
    """The method itself, where one was chosen automatically."""
    return calibrator.calibrator_ if isinstance(calibrator, Calibrator) else calibrator


def write_method(
    calibrator: BaseCalibrator, rows: Rows, views: list[Rows], probabilities: bool
) -> Outcome:
    """The nodes of a fitted calibrator; `views` are ReCal's transformed logits."""
    method = chosen_method(calibrator)
    if isinstance(method, ReCal):
        return recal(method, rows, views, probabilities)
    for kind, writer in _WRITERS.items():
        if isinstance(method, kind):
            return writer(method, rows, probabilities)
    raise TypeError(
        f"`calibrator` must be one of hokical's to be exported; got a {type(method).__name__}."
    )


def has_cheap_probabilities(calibrator: BaseCalibrator) -> bool:
    """Whether all probabilities cost little more than the confidence."""
    method = chosen_method(calibrator)
    return cheap_probabilities(method) if isinstance(method, Hoki) else True
