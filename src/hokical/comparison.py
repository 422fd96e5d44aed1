"""Fit several calibrators on one validation set and measure them on one test set."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hokical.calibrators.base import Calibrator
from hokical.calibrators.registry import make
from hokical.logits import as_labels, as_logits
from hokical.metrics import brier, ece, log_loss
from hokical.progress import track

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method on the test set: what it says, how often it is right, and its scores."""

    name: str
    calibrator: Calibrator
    fit_seconds: float
    confidence: FloatArray
    correct: NDArray[np.bool_]
    notes: tuple[str, ...]

    @property
    def mean_confidence(self) -> float:
        return float(self.confidence.mean())

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def ece(self) -> float:
        """Equal-width ECE of 15 bins."""
        return ece(self.confidence, self.correct)

    @property
    def ece_mass(self) -> float:
        """ECE of 15 bins of equal mass, which few well-placed confidences cannot flatter."""
        return ece(self.confidence, self.correct, bins="mass")

    @property
    def brier(self) -> float:
        return brier(self.confidence, self.correct)

    @property
    def log_loss(self) -> float:
        return log_loss(self.confidence, self.correct)


def compare(
    validation: tuple[Any, Any],
    test: tuple[Any, Any],
    methods: Sequence[str],
    *,
    progress: bool | None = None,
) -> list[MethodResult]:
    """Fit each named method on `validation` (logits, labels) and measure it on `test`.

    Examples
    --------
    >>> from hokical.demo import demo_logits
    >>> val, test = demo_logits()
    >>> before, after = compare(val, test, ["uncalibrated", "hoki"])
    >>> before.ece > after.ece
    True
    """
    val_logits = as_logits(validation[0])
    val_labels = as_labels(validation[1], val_logits.n_rows, val_logits.n_classes)
    logits = as_logits(test[0])
    labels = as_labels(test[1], logits.n_rows, logits.n_classes)
    results = []
    for name in track(methods, "Fitting", len(methods), progress):
        calibrator, seconds, notes = _timed_fit(make(name), val_logits, val_labels)
        correct = calibrator.predict(logits) == labels
        confidence = calibrator.predict_confidence(logits)
        results.append(MethodResult(name, calibrator, seconds, confidence, correct, notes))
    return results


def _timed_fit(
    calibrator: Calibrator, logits: Any, labels: Any
) -> tuple[Calibrator, float, tuple[str, ...]]:
    """Fit, and keep convergence warnings as notes beside the result."""
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        calibrator.fit(logits, labels)
    return calibrator, time.perf_counter() - begun, tuple(str(w.message) for w in caught)
