"""Hoki on transformed inputs, and on a mix of input and logit stability: the paper's future work.

Input stability is the share of an image's zoom-outs that keep its label. It takes the place of
gamma in Hoki's recursion, alone or as (1 - weight) x logit stability + weight x input stability.
The weight is the one with the lowest Brier score on the validation set; 0 is plain Hoki.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical.recursion import Curve, Schedule, learn_schedule
from hokical.table import EXACT_LEVELS, StabilityTable, stability_levels

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WEIGHTS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, eq=False)
class StabilityCalibrator:
    """Hoki's recursion on any stability in [0, 1], kept on a grid of `levels` steps."""

    schedule: Schedule
    levels: int
    accuracy: float

    @classmethod
    def fit(
        cls, stability: FloatArray, correct: BoolArray, *, levels: int, n_bins: int = 15
    ) -> StabilityCalibrator:
        """Learn from the stability (n,) of validation examples and whether they are right (n,).

        >>> stability = np.repeat([0.2, 1.0], 50)
        >>> correct = np.arange(100) % 10 < np.repeat([5, 9], 50)
        >>> found = StabilityCalibrator.fit(stability, correct, levels=20)
        >>> found.confidence(np.array([0.2, 1.0])).round(3).tolist()
        [0.5, 0.9]
        """
        level = stability_levels(stability, levels)
        table = StabilityTable.from_examples(level, correct, levels=levels)
        return cls(learn_schedule(table, n_bins, 100), levels, table.accuracy)

    def confidence(self, stability: FloatArray) -> FloatArray:
        """Calibrated confidence (n,) of examples with that stability (n,)."""
        curve = Curve(self.schedule, self.levels, self.accuracy)
        return curve.confidence[stability_levels(stability, self.levels)]


@dataclass(frozen=True, eq=False)
class Mix:
    """The chosen weight of the inputs, and the calibrator of the mixed stability."""

    weight: float
    calibrator: StabilityCalibrator

    def confidence(self, on_logits: FloatArray, on_inputs: FloatArray) -> FloatArray:
        return self.calibrator.confidence(mixed(on_logits, on_inputs, self.weight))


def input_stability(kept: BoolArray) -> FloatArray:
    """Share (n,) of the views (n, views) that keep the label.

    >>> input_stability(np.array([[True, True], [True, False]])).tolist()
    [1.0, 0.5]
    """
    return np.asarray(kept.mean(axis=1))


def mixed(on_logits: FloatArray, on_inputs: FloatArray, weight: float) -> FloatArray:
    """The weighted mean of two stabilities, (n,)."""
    return (1.0 - weight) * on_logits + weight * on_inputs


def fit_inputs(kept: BoolArray, correct: BoolArray) -> StabilityCalibrator:
    """Hoki on input stability alone: as many levels as there are views."""
    return StabilityCalibrator.fit(input_stability(kept), correct, levels=kept.shape[1])


def fit_mix(on_logits: FloatArray, on_inputs: FloatArray, correct: BoolArray) -> Mix:
    """Choose the weight on the validation set; ties go to the plainer, smaller weight."""
    found: list[tuple[float, Mix]] = []
    for weight in WEIGHTS:
        stability = mixed(on_logits, on_inputs, weight)
        calibrator = StabilityCalibrator.fit(stability, correct, levels=EXACT_LEVELS)
        brier = float(((calibrator.confidence(stability) - correct) ** 2).mean())
        found.append((brier, Mix(weight, calibrator)))
    return min(found, key=lambda pair: pair[0])[1]
