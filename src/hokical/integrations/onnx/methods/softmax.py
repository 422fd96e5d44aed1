"""Softmaxes at a temperature: uncalibrated, temps, ets."""

from __future__ import annotations

from hokical.calibrators import EnsembleTemperatureScaling, TemperatureScaling, Uncalibrated
from hokical.integrations.onnx.rows import Outcome, Rows


def uncalibrated(calibrator: Uncalibrated, rows: Rows, probabilities: bool) -> Outcome:
    return _softmax(rows, 1.0, probabilities)


def temps(calibrator: TemperatureScaling, rows: Rows, probabilities: bool) -> Outcome:
    return _softmax(rows, calibrator.temperature_, probabilities)


def _softmax(rows: Rows, temperature: float, probabilities: bool) -> Outcome:
    weights = rows.weights(temperature)
    total = weights.sum()
    proba = rows.first_maximum(weights / total) if probabilities else None
    return Outcome(rows.labels, 1.0 / total, proba)


def ets(calibrator: EnsembleTemperatureScaling, rows: Rows, probabilities: bool) -> Outcome:
    """The mixture of both softmaxes and the uniform distribution over the possible classes."""
    scaled, plain, uniform = (float(weight) for weight in calibrator.weights_)
    hot, cold = rows.weights(calibrator.temperature_), rows.weights(1.0)
    hot_share, cold_share = scaled / hot.sum(), plain / cold.sum()
    even_share = uniform / rows.n_possible
    proba = None
    if probabilities:
        even = rows.possible.where(even_share, 0.0)
        proba = rows.first_maximum(hot * hot_share + cold * cold_share + even)
    return Outcome(rows.labels, hot_share + cold_share + even_share, proba)
