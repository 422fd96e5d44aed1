"""Transformed inputs, alone and with label stability: the paper's future work.

Input stability is the share of an image's zoomed-out copies that keep its label. It
replaces gamma in Hoki's recursion, alone or as (1 - weight) x logit stability + weight
x input stability. The weight with the lowest Brier score on the validation set is
chosen; 0 is plain Hoki. Or it stands beside a calibrated confidence, whose log-odds
get a constant and a multiple of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from hokical.stability import StabilityTable
from hokical_paper.core import EXACT_LEVELS, Curve
from hokical_paper.core.fitting import learn_schedule

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WEIGHTS = tuple(step / 10 for step in range(11))
_MAX_ITERATIONS = 100
#: Confidences are kept this far away from 0 and 1 before their log-odds are taken.
_LEAST_CONFIDENCE = 1e-6
#: Newton's method on two coefficients of a convex loss needs about six steps.
_NEWTON_STEPS = 20


@dataclass(frozen=True, eq=False)
class StabilityCalibrator:
    """Hoki's recursion on any stability in [0, 1], rounded to multiples of 1 /
    `levels`.
    """

    curve: Curve
    levels: int

    @classmethod
    def fit(
        cls, stability: FloatArray, correct: BoolArray, *, levels: int, n_bins: int = 15
    ) -> StabilityCalibrator:
        """Learn from the stability (n,) of validation examples and their correctness
        (n,).

        >>> stability = np.repeat([0.2, 1.0], 50)
        >>> correct = np.arange(100) % 10 < np.repeat([5, 9], 50)
        >>> found = StabilityCalibrator.fit(stability, correct, levels=20)
        >>> found.confidence(np.array([0.2, 1.0])).round(3).tolist()
        [0.5, 0.9]
        """
        level = np.rint(stability * levels).astype(np.int64)
        table = StabilityTable.from_examples(level, correct, levels=levels)
        learned = learn_schedule(table, n_bins, _MAX_ITERATIONS)
        numbers = learned.alpha, learned.beta
        return cls(Curve.from_steps(*numbers, levels, table.accuracy), levels)

    def confidence(self, stability: FloatArray) -> FloatArray:
        """Calibrated confidence (n,) for a stability of shape (n,)."""
        return self.curve.at(
            np.rint(stability * self.levels).astype(np.int64), self.levels
        )


@dataclass(frozen=True, eq=False)
class Mix:
    """The chosen weight of the inputs, and the calibrator of the mixed stability."""

    weight: float
    calibrator: StabilityCalibrator

    def confidence(self, on_logits: FloatArray, on_inputs: FloatArray) -> FloatArray:
        """Calibrated confidence (n,) from both stabilities, (n,) each."""
        return self.calibrator.confidence(
            mix_stability(on_logits, on_inputs, self.weight)
        )


@dataclass(frozen=True)
class Beside:
    """Calibrated log-odds plus `constant` + `slope` x input stability."""

    constant: float
    slope: float

    def confidence(self, calibrated: FloatArray, stability: FloatArray) -> FloatArray:
        """Confidence (n,) from a calibrated one and the input stability, (n,) each."""
        return np.asarray(
            expit(log_odds(calibrated) + self.constant + self.slope * stability)
        )


def log_odds(confidence: FloatArray) -> FloatArray:
    """Log-odds (n,) of confidences, which are kept away from 0 and 1."""
    clipped = np.clip(confidence, _LEAST_CONFIDENCE, 1.0 - _LEAST_CONFIDENCE)
    return np.asarray(np.log(clipped / (1.0 - clipped)))


def fit_beside(
    held_out: FloatArray, stability: FloatArray, correct: BoolArray
) -> Beside:
    """Logistic regression with the held-out log-odds as offset, by Newton's method.

    A ridge of one example on both coefficients keeps them finite.

    >>> held_out = np.full(200, 0.75)
    >>> stability = np.repeat([0.0, 1.0], 100)
    >>> correct = np.arange(200) % 10 < np.repeat([6, 9], 100)
    >>> beside = fit_beside(held_out, stability, correct)
    >>> beside.confidence(np.array([0.75, 0.75]), np.array([0.0, 1.0])).round(
    ...     2
    ... ).tolist()
    [0.62, 0.88]
    """
    offset = log_odds(held_out)
    features = np.stack([np.ones_like(stability), stability], axis=1)
    coefficients = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        probability = np.asarray(expit(offset + features @ coefficients))
        gradient = features.T @ (correct - probability) - coefficients
        curvature = (features.T * (probability * (1.0 - probability))) @ features
        coefficients = coefficients + np.linalg.solve(
            curvature + np.identity(2), gradient
        )
    return Beside(*coefficients.tolist())


def input_stability(kept: BoolArray) -> FloatArray:
    """Share (n,) of the views (n, views) that keep the label.

    >>> input_stability(np.array([[True, True], [True, False]])).tolist()
    [1.0, 0.5]
    """
    return np.asarray(kept.mean(axis=1))


def mix_stability(
    on_logits: FloatArray, on_inputs: FloatArray, weight: float
) -> FloatArray:
    """The weighted mean of two stabilities, (n,)."""
    return (1.0 - weight) * on_logits + weight * on_inputs


def fit_inputs(kept: BoolArray, correct: BoolArray) -> StabilityCalibrator:
    """Hoki on input stability alone, with as many levels as there are views."""
    return StabilityCalibrator.fit(input_stability(kept), correct, levels=kept.shape[1])


def fit_mix(on_logits: FloatArray, on_inputs: FloatArray, correct: BoolArray) -> Mix:
    """Choose the weight on the validation set; of equally good weights, the
    smallest.
    """
    tried: list[tuple[float, Mix]] = []
    for weight in WEIGHTS:
        stability = mix_stability(on_logits, on_inputs, weight)
        calibrator = StabilityCalibrator.fit(stability, correct, levels=EXACT_LEVELS)
        brier = float(((calibrator.confidence(stability) - correct) ** 2).mean())
        tried.append((brier, Mix(weight, calibrator)))
    return min(tried, key=lambda pair: pair[0])[1]
