"""Hoki: stability to a level, the level to a confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_edges, bin_index
from hokical.calibrators import Hoki
from hokical.integrations.onnx import gaussian, uniform
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Outcome, Rows
from hokical.integrations.onnx.sampled import survivals
from hokical.integrations.onnx.search import place
from hokical.integrations.onnx.sharing import share_rest
from hokical.recursion import Schedule

FloatArray = NDArray[np.float64]


def cheap_probabilities(calibrator: Hoki) -> bool:
    """Under Gumbel noise they are a softmax; otherwise they cost more than the stability."""
    return calibrator.noise_.family == "gumbel"


def hoki(calibrator: Hoki, rows: Rows, probabilities: bool) -> Outcome:
    levels = calibrator.table_.levels
    if calibrator.draws_ is None:
        level = (_stability(calibrator, rows) * float(levels)).rounded()
    else:
        level = survivals(rows, calibrator.draws_)
    schedule = calibrator._curve.schedule
    if calibrator.init_ == "accuracy":
        confidence = _on_curve(rows, level, schedule, levels, calibrator.accuracy_)
    else:
        confidence = _replayed(rows, level / float(levels), schedule)
    proba = share_rest(rows, confidence, calibrator.noise_) if probabilities else None
    return Outcome(rows.labels, confidence, proba)


def _stability(calibrator: Hoki, rows: Rows) -> Value:
    noise = calibrator.noise_
    if noise.family == "gumbel":
        return 1.0 / rows.weights(noise.width).sum()
    if noise.family == "uniform":
        return uniform.stability(rows, noise.width)
    return gaussian.stability(rows, noise.width)


def _on_curve(rows: Rows, level: Value, schedule: Schedule, levels: int, start: float) -> Value:
    """Confidence (n, 1) of examples that all start in one place: linear in runs of levels."""
    first, alpha, beta = runs_of_levels(schedule, levels, start)
    run = place(rows.graph, first[1:].astype(np.float64), level)
    slope, base = rows.graph.take(alpha - beta, run), rows.graph.take(beta, run)
    return (slope * (level / float(levels)) + base).clipped(0.0, 1.0)


def runs_of_levels(
    schedule: Schedule, levels: int, start: float
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """The first level of each run, and its last alpha and beta; the start where there is none.

    Two levels whose confidences were set by the same bin of the same steps lie in one run.
    """
    stability = np.arange(levels + 1) / levels
    alpha, beta = np.full(levels + 1, start), np.full(levels + 1, start)
    confidence = np.full(levels + 1, start)
    for alphas, betas in zip(schedule.alpha, schedule.beta, strict=True):
        bins = bin_index(confidence, schedule.n_bins)
        set_here = ~np.isnan(alphas[bins])
        alpha = np.where(set_here, alphas[bins], alpha)
        beta = np.where(set_here, betas[bins], beta)
        confidence = np.clip((alpha - beta) * stability + beta, 0.0, 1.0)
    changes = (np.diff(alpha) != 0.0) | (np.diff(beta) != 0.0)
    first = np.append(0, 1 + np.flatnonzero(changes))
    return first, alpha[first], beta[first]


def _replayed(rows: Rows, stability: Value, schedule: Schedule) -> Value:
    """Algorithm 2 from the softmax confidence, step by step, (n, 1)."""
    confidence = 1.0 / rows.weights(1.0).sum()
    edges = bin_edges(schedule.n_bins)[1:-1]
    for alpha, beta in zip(schedule.alpha, schedule.beta, strict=True):
        known = ~np.isnan(alpha)
        if known.any():
            bins = place(rows.graph, edges, confidence)
            slope = rows.graph.take(np.where(known, alpha - beta, 0.0), bins)
            base = rows.graph.take(np.where(known, beta, 0.0), bins)
            updated = (slope * stability + base).clipped(0.0, 1.0)
            confidence = rows.graph.take(known, bins).where(updated, confidence)
    return confidence
