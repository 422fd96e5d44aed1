"""Calibration sets that say little: every method answers soundly or says what is
wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from hokical import make
from hokical.calibrators import method_names
from tests.conftest import QUICK, quiet_fit, synthetic_logits

CASES = {
    "one class seen": lambda logits, labels: (logits, np.ones_like(labels), None),
    "a class absent": lambda logits, labels: (
        logits,
        np.minimum(labels, logits.shape[1] - 2),
        None,
    ),
    "all right": lambda logits, labels: (logits, logits.argmax(axis=1), None),
    "all wrong": lambda logits, labels: (logits, logits.argmin(axis=1), None),
    "one example per class": lambda logits, labels: (
        logits[: logits.shape[1]],
        np.arange(logits.shape[1]),
        None,
    ),
    "weights on one class": lambda logits, labels: (
        logits,
        labels,
        (labels == 1).astype(float),
    ),
    "equal logits": lambda logits, labels: (np.zeros_like(logits), labels, None),
    "one example": lambda logits, labels: (logits[:1], labels[:1], None),
}


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("name", [*method_names(2), "auto"])
def test_bad_examples_give_no_nan(name: str, case: str) -> None:
    calibrator = make(name, **QUICK.get(name, {}))
    test, truth = synthetic_logits(
        60, 2 if calibrator.method.binary_only else 4, seed=5
    )
    logits, labels, weights = CASES[case](test, truth)
    quiet_fit(
        calibrator, logits, labels, weights
    )  # they may say that there is no optimum
    proba = calibrator.predict_proba(test)
    confidence = calibrator.predict_confidence(test)
    assert proba.min() > 0.0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    assert ((confidence >= 0.0) & (confidence <= 1.0)).all()


@pytest.mark.parametrize("name", method_names(2))
def test_no_examples_are_an_error(name: str) -> None:
    calibrator = make(name)
    n_classes = 2 if calibrator.method.binary_only else 3
    rows = np.zeros((2, n_classes))
    with pytest.raises(ValueError, match="`sample_weight` must not be zero everywhere"):
        calibrator.fit(rows, [0, 1], [0.0, 0.0])
    with pytest.raises(ValueError, match="at least one row"):
        calibrator.fit(rows[:0], [])
    with pytest.raises(ValueError, match="at least two columns"):
        calibrator.fit(rows[:, :1], [0, 0])
