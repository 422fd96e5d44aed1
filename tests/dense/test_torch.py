"""Dense outputs in torch tensors: answers are tensors, and what is on a device stays
there.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hokical import Gaussian, Gumbel, Hoki, streams
from hokical.calibrators import make
from hokical.dense import Dense
from tests.conftest import quiet_fit
from tests.dense.test_dense import counting, maps
from tests.integrations.torch.examples import torch_backend
from tests.same_fits import assert_same_fit

torch = pytest.importorskip("torch")

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA GPU"
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_KERNEL_BLOCKS", 1)
    monkeypatch.setattr(streams, "_FLOATS_BESIDE", 1000)


@pytest.fixture
def as_on_a_device(monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> None:
    """Tensors of this machine are treated as if they were on another device."""
    monkeypatch.setattr(type(torch_backend()), "host_view", lambda self, array: None)


def channels_first(
    logits: np.ndarray, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    return torch.from_numpy(logits).to(dtype).permute(0, 3, 1, 2)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_tensors_are_answered_with_tensors(dtype) -> None:
    logits, labels = maps()
    given = channels_first(logits, dtype)
    array = given.double().permute(0, 2, 3, 1).numpy()
    cal = quiet_fit(
        Dense(class_axis=1, ignore_label=255), given, torch.from_numpy(labels)
    )
    flat = quiet_fit(Dense(ignore_label=255), array, labels)
    confidence, expected = cal.predict_confidence(given), flat.predict_confidence(array)
    assert confidence.dtype == (
        torch.float64 if dtype == torch.float64 else torch.float32
    )
    assert_allclose(confidence.numpy(), expected, rtol=0, atol=1e-5)
    assert cal.predict(given).dtype == torch.int64
    assert_array_equal(cal.predict(given).numpy(), flat.predict(array))
    proba = cal.predict_proba(given)
    assert proba.shape == given.shape
    assert_allclose(
        proba.permute(0, 2, 3, 1).numpy(), flat.predict_proba(array), atol=1e-5
    )


@pytest.mark.usefixtures("small_blocks")
def test_masks_of_tensors() -> None:
    logits, labels = maps()
    given, mask = channels_first(logits), torch.from_numpy(labels != 255)
    cal = Dense("temps", class_axis=1)
    cal.fit(given, torch.from_numpy(labels), mask=mask, sample_weight=torch.ones(6))
    flat = make("temps").fit(*counting(logits, labels))
    assert_allclose(cal.calibrator_.temperature_, flat.temperature_, rtol=1e-10)
    confidence = cal.predict_confidence(given, mask=mask)
    assert confidence[~mask].isnan().all()
    assert (confidence[mask] > 0.0).all()
    assert (cal.predict(given, mask=mask)[~mask] == -1).all()


@pytest.mark.parametrize("noise", [Gaussian(4.0), Gumbel(3.0)])
def test_gradients_pass_through(noise) -> None:
    logits, labels = maps(n=2, h=5, w=6)
    cal = Dense(Hoki(noise=noise), class_axis=1, ignore_label=255)
    quiet_fit(cal, *_pair(logits, labels))
    given = channels_first(logits).clone().requires_grad_()
    inside = torch.from_numpy(labels != 255)
    cal.predict_proba(given, mask=inside)[:, 0][inside].sum().backward()
    assert torch.isfinite(given.grad).all()
    assert (given.grad != 0).any()
    assert (given.grad.permute(0, 2, 3, 1)[~inside] == 0).all()


def _pair(logits, labels):
    return channels_first(logits), torch.from_numpy(labels)


def test_a_data_loader_is_batches() -> None:
    logits, labels = maps()
    given = channels_first(logits)
    pairs = torch.utils.data.TensorDataset(given, torch.from_numpy(labels))
    loader = torch.utils.data.DataLoader(pairs, batch_size=4)
    cal = quiet_fit(Dense(class_axis=1, ignore_label=255), loader)
    whole = quiet_fit(Dense(ignore_label=255), logits, labels)
    assert_same_fit(cal.calibrator_, whole.calibrator_)
    assert [part.shape for part in cal.predict(loader)] == [(4, 20, 25), (2, 20, 25)]


METHODS = ["uncalibrated", "temps", "ets", "hoki"]


@pytest.mark.usefixtures("as_on_a_device")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batched", [False, True])
def test_fits_on_a_device_are_those_of_the_host(name, batched) -> None:
    logits, labels = maps()
    given, truth = _pair(logits, labels)
    dense = Dense(name, class_axis=1, ignore_label=255)
    parts = [(given[:2], truth[:2]), (given[2:], truth[2:])]
    quiet_fit(dense, parts) if batched else quiet_fit(dense, given, truth)
    rows, flat_labels = counting(logits, labels)
    flat = quiet_fit(make(name), rows, flat_labels)
    found = dense.calibrator_.predict_confidence(rows)
    assert_allclose(found, flat.predict_confidence(rows), rtol=0, atol=1e-8)


@pytest.mark.usefixtures("as_on_a_device")
def test_hoki_with_a_given_noise_takes_tensors_block_by_block() -> None:
    """From an iterator, too, which can be read once."""
    logits, labels = maps()
    given, truth = _pair(logits, labels)
    dense = Dense(Hoki(noise=Gaussian(4.0)), class_axis=1, ignore_label=255)
    quiet_fit(dense, iter([(given[:2], truth[:2]), (given[2:], truth[2:])]))
    flat = quiet_fit(Hoki(noise=Gaussian(4.0)), *counting(logits, labels))
    flat.forget_examples()
    assert_same_fit(dense.calibrator_, flat)


@pytest.mark.usefixtures("as_on_a_device")
def test_a_device_is_measured_and_certified_too() -> None:
    logits, labels = maps(n=60)
    given, truth = _pair(logits, labels)
    dense = Dense("temps", class_axis=1, ignore_label=255).fit(given, truth)
    host = Dense("temps", ignore_label=255).fit(logits, labels)
    assert_allclose(dense.score(given, truth), host.score(logits, labels), rtol=1e-8)
    dense.certify(1.0625 * given, truth)
    host.certify(1.0625 * logits, labels)
    accepted = dense.predict_or_abstain(given, risk=0.2).accepted
    assert accepted.dtype == torch.bool
    assert_array_equal(
        accepted.numpy(), host.predict_or_abstain(logits, risk=0.2).accepted
    )


@pytest.mark.usefixtures("as_on_a_device")
def test_bad_logits_on_a_device_are_named_by_their_position() -> None:
    logits, labels = maps()
    logits[4, 7, 9, 3] = np.nan
    with pytest.raises(ValueError, match=r"position \(4, 7, 9\)"):
        Dense("temps", class_axis=1, ignore_label=255).fit(*_pair(logits, labels))


@needs_cuda
@pytest.mark.parametrize("name", METHODS)
def test_on_a_gpu(name) -> None:
    logits, labels = maps()
    given, truth = (part.cuda() for part in _pair(logits, labels))
    dense = quiet_fit(Dense(name, class_axis=1, ignore_label=255), given, truth)
    host = quiet_fit(Dense(name, ignore_label=255), logits, labels)
    confidence = dense.predict_confidence(given)
    assert confidence.device == given.device
    assert_allclose(
        confidence.cpu().numpy(), host.predict_confidence(logits), rtol=0, atol=1e-5
    )
