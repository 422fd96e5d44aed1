"""The same numbers from the same logits, whatever the type and the byte order that
they are stored in: all is computed in float64, with one floor.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hokical import Calibrator, from_probabilities, make
from hokical.calibrators import method_names
from hokical.metrics import log_loss
from hokical.rules.base import LEAST, LEAST_IN_FLOAT32
from tests.conftest import QUICK, synthetic_logits

METHODS = sorted({*method_names(2), *method_names(4), "auto"})
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning"
)


@cache
def fitted(name: str) -> tuple[Calibrator, np.ndarray]:
    """A calibrator, and rows of whole numbers, which every float type holds: near ones,
    such as are far apart, and masked classes.
    """
    n_classes = 4 if name in method_names(4) or name == "auto" else 2
    logits, labels = synthetic_logits(300, n_classes, seed=5, stretch=2.0)
    calibrator = make(name, **QUICK.get(name, {})).fit(logits, labels)
    rng = np.random.default_rng(6)
    near = rng.integers(-6, 7, (40, n_classes)).astype(np.float64)
    far = rng.integers(-1000, 1001, (40, n_classes)).astype(np.float64)
    rows = np.concatenate([near, far, near])
    rows[::7, 0] = -np.inf
    return calibrator, rows


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", ">i4", "<f4", "<f2", "g"])
@pytest.mark.parametrize("name", METHODS)
def test_types_and_byte_orders_agree(name: str, dtype: str) -> None:
    calibrator, rows = fitted(name)
    if dtype.endswith("i4"):
        rows = np.maximum(rows, -2000.0)
    stored = rows.astype(dtype)
    expected = calibrator.predict_proba(rows)
    proba = calibrator.predict_proba(stored)
    assert proba.dtype == np.float64
    if np.dtype(dtype).itemsize >= 8 or dtype.endswith("i4"):
        np.testing.assert_array_equal(proba, expected)
    np.testing.assert_allclose(proba, expected, rtol=1e-6)
    np.testing.assert_array_equal(calibrator.predict(stored), calibrator.predict(rows))
    native = rows.astype(np.dtype(dtype).newbyteorder("="))
    np.testing.assert_array_equal(proba, calibrator.predict_proba(native))


def test_bfloat16_of_numpy_is_read() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    calibrator, rows = fitted("temps")
    stored = rows.astype(ml_dtypes.bfloat16)
    expected = calibrator.predict_proba(stored.astype(np.float64))
    np.testing.assert_array_equal(calibrator.predict_proba(stored), expected)
    proba = expected[:, :2] / expected[:, :2].sum(axis=1, keepdims=True)
    narrow = proba.astype(ml_dtypes.bfloat16)
    labels = np.zeros(len(proba), np.int64)
    wide = narrow.astype(np.float64)
    assert log_loss(narrow, labels) == log_loss(wide, labels)
    np.testing.assert_allclose(from_probabilities(narrow), from_probabilities(wide))


def test_records_are_refused_by_name() -> None:
    calibrator, rows = fitted("temps")
    records = np.rec.fromarrays(rows.T)
    with pytest.raises(TypeError, match="`logits` must be floating point; got dtype"):
        calibrator.predict_proba(records)


@pytest.mark.parametrize("name", ["uncalibrated", "temps", "hoki", "auto"])
def test_one_floor_for_all_types(name: str) -> None:
    calibrator, rows = fitted(name)
    for dtype in (np.float64, np.float32, np.float16):
        proba = calibrator.predict_proba(rows.astype(dtype))
        assert LEAST <= proba[rows > -np.inf].min() < LEAST_IN_FLOAT32
    narrow = calibrator.predict_proba(rows, dtype="float32")
    assert narrow[rows > -np.inf].min() == np.float32(LEAST_IN_FLOAT32)
    np.testing.assert_array_equal(narrow == 0.0, rows == -np.inf)


@pytest.mark.parametrize("name", ["uncalibrated", "temps", "hoki", "auto"])
@pytest.mark.parametrize("name_of_dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("portable", [False, True])
def test_torch_agrees(name: str, name_of_dtype: str, *, portable: bool) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    dtype = getattr(torch, name_of_dtype)
    calibrator, rows = fitted(name)
    expected = calibrator.predict_proba(rows)
    tensor = torch.from_numpy(rows).to(dtype).requires_grad_(portable)
    if dtype != torch.float64:
        expected = np.where(
            expected > 0.0, np.maximum(expected, LEAST_IN_FLOAT32), expected
        )
    for proba in (
        calibrator.predict_proba(tensor),
        as_module(calibrator).proba(tensor),
    ):
        assert proba.dtype == (dtype if dtype == torch.float64 else torch.float32)
        numbers = proba.detach().double().numpy()
        np.testing.assert_allclose(numbers, expected, rtol=2e-6)
        np.testing.assert_array_equal(numbers == 0.0, rows == -np.inf)
