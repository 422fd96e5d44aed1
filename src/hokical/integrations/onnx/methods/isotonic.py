"""Functions of log-probabilities, linear between knots: irm, irova_ts."""

from __future__ import annotations

import numpy as np

from hokical.calibrators import IsotonicMulticlass, IsotonicOneVsAllTS
from hokical.calibrators._isotonic import IDENTITY_SHARE
from hokical.calibrators.irm import GAP
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Outcome, Rows
from hokical.integrations.onnx.search import interpolate


def irm(calibrator: IsotonicMulticlass, rows: Rows, probabilities: bool) -> Outcome:
    log_proba = -(rows.margins + rows.log_norm(1.0))
    offsets = np.array([0, calibrator.knots_.size])
    values = _curves(rows, log_proba, calibrator.knots_, calibrator.values_, offsets)
    top = rows.of_label(values)
    values = (rows.margins > 0.0).where(values.at_most(top * (1.0 - GAP)), values)
    if calibrator.normalize_:
        total = values.sum()
        values, top = values / total, top / total
    return Outcome(rows.labels, top, values if probabilities else None)


def irova_ts(calibrator: IsotonicOneVsAllTS, rows: Rows, probabilities: bool) -> Outcome:
    temperature = float(calibrator.temperature_)
    log_proba = -(rows.margins / temperature + rows.log_norm(temperature))
    values = _curves(
        rows, log_proba, calibrator.knots_, calibrator.values_, np.asarray(calibrator.offsets_)
    )
    proba = values / values.sum()
    return Outcome(proba.argmax(), proba.max(), proba if probabilities else None)


def _curves(
    rows: Rows, log_proba: Value, knots: np.ndarray, values: np.ndarray, offsets: np.ndarray
) -> Value:
    """Fitted values (n, classes), 0 for impossible classes.

    Log-probabilities are rounded to float32 first, as they were compared in the fit.
    """
    keys = log_proba.cast(np.float32).as_float()
    fitted = interpolate(rows.graph, knots, values, offsets, keys)
    mixed = fitted * (1.0 - IDENTITY_SHARE) + log_proba.exp() * IDENTITY_SHARE
    return rows.possible.where(mixed, 0.0)
