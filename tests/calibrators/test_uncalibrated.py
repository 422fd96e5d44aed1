"""The softmax as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from hokical.calibrators import Uncalibrated, load
from tests.conftest import synthetic_logits


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_it_is_the_softmax(dtype: str) -> None:
    logits, labels = synthetic_logits(200, 7, seed=0)
    logits = logits.astype(dtype)
    cal = Uncalibrated().fit(logits, labels)
    expected = softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(cal.predict_proba(logits), expected, atol=1e-14)
    np.testing.assert_allclose(
        cal.predict_confidence(logits), expected.max(axis=1), atol=1e-14
    )
    np.testing.assert_array_equal(cal.predict(logits), logits.argmax(axis=1))


def test_masked_classes_get_nothing() -> None:
    cal = Uncalibrated().fit([[0.0, -np.inf, 0.0]], [0])
    np.testing.assert_array_equal(
        cal.predict_proba([[1.0, -np.inf, 1.0]]), [[0.5, 0.0, 0.5]]
    )


def test_the_number_of_classes_is_all_it_learns(tmp_path: Path) -> None:
    cal = Uncalibrated().fit(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="expecting 3 features"):
        cal.predict(np.eye(4))
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert (loaded.n_classes_, loaded.rule_.numbers()) == (3, {})
