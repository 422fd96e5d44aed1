"""Calibrators answer tensors with tensors, through the core or through their modules."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest

from hokical.calibrators import make
from tests.torch.examples import NAMES, awkward, fitted, given, synthetic_logits

torch = pytest.importorskip("torch")

from hokical.integrations.torch import predicting  # noqa: E402
from hokical.integrations.torch.predicting import predict_tensors  # noqa: E402

METHODS = ("predict", "predict_confidence", "predict_proba")


def asked(name: str, method: str, logits: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """The core's answer, and what it was given beside the logits, as tensors."""
    calibrator = fitted(name)
    extra = {} if method == "predict" else given(calibrator, logits)
    answer = getattr(calibrator, method)(logits, **extra)
    return answer, {key: torch.tensor(value) for key, value in extra.items()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_both_ways_give_what_the_core_gives(name: str, method: str) -> None:
    logits = awkward(synthetic_logits(30, 5, seed=9)[0])
    wanted, extra = asked(name, method, logits)
    host = predict_tensors(fitted(name), method, torch.tensor(logits), **extra)
    np.testing.assert_array_equal(host, wanted)
    tensor = torch.tensor(logits, requires_grad=True)
    through_module = predict_tensors(fitted(name), method, tensor, **extra)
    np.testing.assert_allclose(through_module.detach(), wanted, rtol=0.0, atol=1e-10)
    assert host.dtype == through_module.dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_types_of_answers(dtype: torch.dtype, method: str) -> None:
    logits = torch.tensor(synthetic_logits(10, 5, seed=9)[0]).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for tensor in (logits, logits.clone().requires_grad_()):
        answer = predict_tensors(fitted("hoki gaussian"), method, tensor)
        assert answer.dtype == (torch.int64 if method == "predict" else wide)
        assert answer.device == logits.device


def test_calibrators_take_tensors_and_keep_gradients() -> None:
    logits = torch.tensor(synthetic_logits(10, 5, seed=9)[0])
    calibrator = fitted("temps")
    confidence = calibrator.predict_confidence(logits)
    assert isinstance(confidence, torch.Tensor)
    moving = calibrator.predict_confidence(logits.clone().requires_grad_())
    assert moving.requires_grad
    torch.testing.assert_close(moving.detach(), confidence, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert not calibrator.predict_confidence(logits.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize("grad", [False, True])
def test_bad_rows_are_errors_either_way(grad: bool) -> None:
    logits = torch.tensor(synthetic_logits(10, 5, seed=9)[0])
    logits[3, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN in row 3, column 1"):
        predict_tensors(fitted("temps"), "predict_confidence", logits.requires_grad_(grad))
    with pytest.raises(ValueError, match="expecting 5"):
        predict_tensors(fitted("temps"), "predict", torch.zeros(2, 4, requires_grad=grad))
    sound = torch.zeros(10, 5, requires_grad=grad)
    transformed = torch.stack([logits.detach(), logits.detach()])
    with pytest.raises(ValueError, match=r"transformed\[0\].*NaN in row 3"):
        predict_tensors(fitted("recal"), "predict_confidence", sound, transformed=transformed)


def test_a_refit_makes_a_new_module() -> None:
    logits, labels = synthetic_logits(300, 5, seed=0)
    calibrator = make("temps").fit(logits, labels)
    tensor = torch.tensor(logits[:5], requires_grad=True)
    first = predict_tensors(calibrator, "predict_confidence", tensor)
    module = predicting._module_on(calibrator, tensor.device)
    assert predicting._module_on(calibrator, tensor.device) is module
    calibrator.fit(2.0 * logits, labels)
    second = predict_tensors(calibrator, "predict_confidence", tensor)
    assert not torch.equal(first, second)
    np.testing.assert_allclose(second.detach(), calibrator.predict_confidence(logits[:5]))


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_made_once(name: str) -> None:
    calibrator = copy.deepcopy(fitted(name))
    first = predicting._module_on(calibrator, torch.device("cpu"))
    assert predicting._module_on(calibrator, torch.device("cpu")) is first


def test_calibrators_are_forgotten() -> None:
    logits, labels = synthetic_logits(100, 5, seed=0)
    calibrator = make("temps").fit(logits, labels)
    predict_tensors(calibrator, "predict_confidence", torch.tensor(logits, requires_grad=True))
    watch = weakref.ref(calibrator)
    del calibrator
    gc.collect()
    assert watch() is None
