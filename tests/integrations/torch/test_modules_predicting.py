"""Calibrators answer tensors with tensors: through NumPy, or where the tensors are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Gumbel, Hoki, Uniform, label_distribution, label_stability
from hokical.calibrators import make
from tests.integrations.torch.examples import (
    NAMES,
    awkward,
    fitted,
    synthetic_logits,
)

torch = pytest.importorskip("torch")

METHODS = ("predict", "predict_confidence", "predict_proba")
LOGITS, LABELS = synthetic_logits(300, 5, seed=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_both_ways_give_what_the_core_gives(name: str, method: str) -> None:
    logits = awkward(synthetic_logits(30, 5, seed=9)[0])
    calibrator = fitted(name)
    wanted = getattr(calibrator, method)(logits)
    host = getattr(calibrator, method)(torch.tensor(logits))
    assert isinstance(host, torch.Tensor)
    np.testing.assert_array_equal(host, wanted)
    there = getattr(calibrator, method)(torch.tensor(logits, requires_grad=True))
    np.testing.assert_allclose(there.detach(), wanted, rtol=0.0, atol=1e-10)
    assert host.dtype == there.dtype


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
@pytest.mark.parametrize("method", METHODS)
def test_types_of_answers(dtype: torch.dtype, method: str) -> None:
    logits = torch.tensor(synthetic_logits(10, 5, seed=9)[0]).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for tensor in (logits, logits.clone().requires_grad_()):
        answer = getattr(fitted("hoki gaussian"), method)(tensor)
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
        assert not calibrator.predict_confidence(
            logits.clone().requires_grad_()
        ).requires_grad


@pytest.mark.parametrize("grad", [False, True])
def test_bad_rows_are_errors_either_way(grad: bool) -> None:
    logits = torch.tensor(synthetic_logits(10, 5, seed=9)[0])
    logits[3, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN in row 3, column 1"):
        fitted("temps").predict_confidence(logits.requires_grad_(grad))
    with pytest.raises(ValueError, match="expecting 5"):
        fitted("temps").predict(torch.zeros(2, 4, requires_grad=grad))


def test_a_refit_is_seen_at_once() -> None:
    calibrator = make("temps").fit(LOGITS, LABELS)
    tensor = torch.tensor(LOGITS[:5], requires_grad=True)
    first = calibrator.predict_confidence(tensor)
    calibrator.fit(2.0 * LOGITS, LABELS)
    second = calibrator.predict_confidence(tensor)
    assert not torch.equal(first, second)
    np.testing.assert_allclose(
        second.detach(), calibrator.predict_confidence(LOGITS[:5])
    )


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-3.0, 3.0), Gumbel(1.5)])
def test_stability_answers_with_tensors(noise: Any) -> None:
    expected = label_stability(LOGITS, noise)
    for tensor in (torch.from_numpy(LOGITS), torch.tensor(LOGITS, requires_grad=True)):
        found = label_stability(tensor, noise)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.detach(), expected, atol=1e-9)
        drawn = label_stability(tensor, noise, draws=50, random_state=1)
        wanted = label_stability(LOGITS, noise, draws=50, random_state=1)
        np.testing.assert_array_equal(drawn.detach(), wanted)
        shares = label_distribution(tensor, noise).detach()
        np.testing.assert_allclose(shares, label_distribution(LOGITS, noise), atol=1e-9)


def test_other_methods_answer_with_tensors() -> None:
    tensor = torch.from_numpy(LOGITS)
    cal = Hoki(noise=Gaussian(2.0)).fit(LOGITS, LABELS)
    np.testing.assert_array_equal(cal.stability(tensor), cal.stability(LOGITS))
    np.testing.assert_array_equal(
        cal.predict_interval(tensor), cal.predict_interval(LOGITS)
    )
    found = cal.predict_or_abstain(tensor, risk=0.3)
    expected = cal.predict_or_abstain(LOGITS, risk=0.3)
    assert found.accepted.dtype == torch.bool
    np.testing.assert_array_equal(found.labels_or(-7), expected.labels_or(-7))
    assert str(found) == str(expected)
