"""Softmaxes of affine functions of the log-probabilities: vecs, ms_odir, dir_odir."""

from __future__ import annotations

import numpy as np

from hokical.calibrators import DirichletODIR, VectorScaling
from hokical.calibrators.odir import ODIRCalibrator
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Outcome, Rows


def vecs(calibrator: VectorScaling, rows: Rows, probabilities: bool) -> Outcome:
    log_proba = -rows.margins - rows.weights(1.0).sum().log()
    known = rows.possible.where(log_proba, 0.0)
    return _softmax(rows, known * calibrator.scale_ + calibrator.bias_, probabilities)


def odir(calibrator: ODIRCalibrator, rows: Rows, probabilities: bool) -> Outcome:
    """An impossible class counts as the least likely of the possible ones."""
    below = rows.possible.where(-rows.margins, 0.0)
    if isinstance(calibrator, DirichletODIR):
        offset = rows.weights(1.0).sum().log()
    else:
        offset = below.sum() / rows.n_possible
    features = rows.possible.where(-rows.margins, below.min()) - offset
    scores = features @ np.ascontiguousarray(calibrator.weight_.T) + calibrator.bias_
    return _softmax(rows, scores, probabilities)


def _softmax(rows: Rows, scores: Value, probabilities: bool) -> Outcome:
    """Of scores (n, classes), impossible classes left out; the label is the new maximum."""
    scores = rows.possible.where(scores, -np.inf)
    weights = (scores - scores.max()).exp()
    proba = weights / weights.sum()
    return Outcome(proba.argmax(), proba.max(), proba if probabilities else None)
