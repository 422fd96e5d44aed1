"""Logits whose differences exceed the largest number: every method answers, without
overflow.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hokical import make
from hokical.calibrators import method_names

LOGITS = np.array([[1e308, -1e308, 0.0], [-1.7e308, 1.7e308, 1.0]] * 20)
LABELS = np.array([0, 1] * 19 + [1, 0])


@pytest.mark.parametrize(
    "name", [name for name in method_names(2) if "odir" not in name]
)
def test_spreads_above_the_largest_number(name: str) -> None:
    calibrator = make(name)
    columns = slice(2) if calibrator.method.binary_only else slice(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the data
        warnings.simplefilter("error", RuntimeWarning)
        calibrator.fit(LOGITS[:, columns], LABELS)
        confidence = calibrator.predict_confidence(LOGITS[:, columns])
        proba = calibrator.predict_proba(LOGITS[:, columns])
    assert ((confidence >= 0.0) & (confidence <= 1.0)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
