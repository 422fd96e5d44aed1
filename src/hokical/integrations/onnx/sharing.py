"""Whole probability vectors from a confidence, as `hokical.calibrators._sharing` makes them."""

from __future__ import annotations

import numpy as np

from hokical.integrations.onnx import gaussian
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Rows
from hokical.noise import Noise, Uniform

#: Shares that sum to less have lost their digits.
_LEAST_TOTAL = {np.dtype(np.float64): 1e-290, np.dtype(np.float32): 1e-30}


def share_rest(rows: Rows, confidence: Value, noise: Noise) -> Value:
    """(n, classes): the confidence for the label, the rest by the switches of noise."""
    shares = softmax_shares(rows, noise.width * _deviations(noise))
    if noise.family != "gumbel":
        chances = gaussian.distribution(rows, noise.width * _deviations(noise))
        switches = rows.without_label(chances)
        total = switches.sum()
        lost = total < _LEAST_TOTAL[rows.graph.precision]
        shares = lost.where(shares, switches / lost.where(1.0, total))
    own = rows.single_choice.where(1.0, confidence)
    return rows.is_label.where(own, shares * (1.0 - own))


def _deviations(noise: Noise) -> float:
    """The scale of the unbounded noise that stands in for uniform noise, per width."""
    return noise.unit_deviation if isinstance(noise, Uniform) else 1.0


def softmax_shares(rows: Rows, scale: float) -> Value:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    gap = rows.single_choice.where(0.0, rows.gap)
    weights = rows.without_label(((gap - rows.margins) / float(scale)).exp())
    return weights / rows.single_choice.where(1.0, weights.sum())
