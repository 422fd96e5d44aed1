"""Modules, models and calibrators on a GPU: the same numbers, and nothing leaves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.integrations.torch.examples import NAMES, awkward, fitted, synthetic_logits

torch = pytest.importorskip("torch")

from hokical.integrations.torch import CalibratedModel, as_module, calibrate  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"
)


def on_both(dtype: Any = torch.float64) -> tuple[Any, Any]:
    """Logits on the host and on the GPU."""
    logits = torch.tensor(awkward(synthetic_logits(60, 5, seed=9)[0])).to(dtype)
    return logits, logits.cuda()


@pytest.mark.parametrize("name", NAMES)
def test_module_gives_the_numbers_of_the_host(name: str) -> None:
    here, there = on_both()
    module = as_module(fitted(name))
    wanted, proba = module(here), module.proba(here)
    module = module.cuda()
    got = module(there)
    assert got.labels.is_cuda
    assert got.confidence.is_cuda
    np.testing.assert_array_equal(got.labels.cpu(), wanted.labels)
    torch.testing.assert_close(
        got.confidence.cpu(), wanted.confidence, rtol=0, atol=1e-10
    )
    torch.testing.assert_close(module.proba(there).cpu(), proba, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_calibrators_answer_on_the_gpu(name: str, dtype: Any) -> None:
    here, there = on_both(dtype)
    confidence = fitted(name).predict_confidence(there)
    assert confidence.is_cuda
    assert confidence.dtype == (
        torch.float64 if dtype == torch.float64 else torch.float32
    )
    wanted = fitted(name).predict_confidence(here)
    np.testing.assert_allclose(confidence.cpu(), wanted, rtol=0.0, atol=1e-5)
    assert fitted(name).predict(there).is_cuda


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore")  # the compiler remarks on its own choices
@pytest.mark.parametrize("name", ["hoki gaussian", "hoki sampled", "vecs"])
def test_modules_are_compiled_on_the_gpu(name: str) -> None:
    _, there = on_both()
    module = as_module(fitted(name)).cuda()
    compiled = torch.compile(module, fullgraph=True)
    got, wanted = compiled(there), module(there)
    torch.testing.assert_close(got.confidence, wanted.confidence, rtol=0, atol=1e-4)


def test_calibrator_follows_a_network_that_moves_alone() -> None:
    network = torch.nn.Linear(4, 5).cuda()
    model = CalibratedModel(network, fitted("hoki gaussian"))
    inputs = torch.randn(6, 4)
    there = model(inputs.cuda()).confidence
    network.cpu()  # as Lightning does when training has ended
    with torch.inference_mode():
        here = model(inputs).confidence
    torch.testing.assert_close(here, there.cpu(), rtol=0, atol=1e-4)
    assert not any(buffer.is_inference() for buffer in model.buffers())


def test_networks_are_calibrated_on_the_gpu() -> None:
    torch.manual_seed(0)
    network = torch.nn.Linear(5, 5).cuda()
    inputs, labels = synthetic_logits(400, 5, seed=0)
    batches = [(torch.tensor(inputs).float(), torch.tensor(labels))]
    model = calibrate(network, batches, "hoki")
    with torch.autocast("cuda", torch.bfloat16):
        output = model(batches[0][0].cuda())
    assert all(part.is_cuda for part in output)
    assert output.logits.dtype == torch.bfloat16
    again = CalibratedModel(network, model.fitted)
    assert all(tensor.is_cuda for tensor in again.state_dict().values())
