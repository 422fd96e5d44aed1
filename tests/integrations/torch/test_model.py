"""A network and its calibrator as one module."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hokical
from tests.integrations.torch.examples import fitted

torch = pytest.importorskip("torch")

from hokical.integrations.torch import CalibratedModel, as_module  # noqa: E402


class Returning(torch.nn.Module):
    """A linear layer whose output is wrapped in something."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.layer, self.wrap = torch.nn.Linear(4, 5), wrap

    def forward(self, inputs: torch.Tensor, *, scale: float = 1.0) -> Any:
        return self.wrap(scale * self.layer(inputs))


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: z,
        lambda z: {"loss": None, "logits": z},
        lambda z: SimpleNamespace(logits=z, hidden=None),
        lambda z: (z, "attention"),
    ],
)
def test_logits_are_found_in_what_a_network_returns(
    wrap: Any, inputs: torch.Tensor
) -> None:
    network = Returning(wrap)
    output = CalibratedModel(network, fitted("hoki gaussian"))(inputs, scale=2.0)
    logits = 2.0 * network.layer(inputs)
    torch.testing.assert_close(output.logits, logits)
    expected = fitted("hoki gaussian").predict_confidence(logits.detach().numpy())
    np.testing.assert_allclose(output.confidence.detach(), expected, atol=1e-6)
    assert torch.equal(output.labels, logits.argmax(dim=1))


def test_get_logits_says_where_else_they_are(inputs: torch.Tensor) -> None:
    network = Returning(lambda z: {"scores": z})
    with pytest.raises(TypeError, match=r"a network's output must be .* got dict"):
        CalibratedModel(network, fitted("temps"))(inputs)
    model = CalibratedModel(
        network, fitted("temps"), get_logits=lambda out: out["scores"]
    )
    assert model(inputs).confidence.shape == (6,)


@pytest.mark.parametrize("name", ["hoki gaussian", "vecs"])
def test_images_and_tokens_keep_their_shape(name: str) -> None:
    module = as_module(fitted(name))
    images = torch.randn(2, 3, 4, 6)
    segment = torch.nn.Conv2d(3, 5, 1)
    output = CalibratedModel(segment, fitted(name), class_axis=1)(images)
    assert output.logits.shape == (2, 5, 4, 6)
    assert output.labels.shape == output.confidence.shape == (2, 4, 6)
    wanted = module(segment(images).permute(0, 2, 3, 1).reshape(-1, 5))
    assert torch.equal(output.confidence.reshape(-1), wanted.confidence)
    tokens = CalibratedModel(torch.nn.Linear(3, 5), fitted(name))(torch.randn(2, 7, 3))
    assert tokens.confidence.shape == (2, 7)
    with pytest.raises(ValueError, match="`class_axis` must be an axis"):
        CalibratedModel(torch.nn.Linear(3, 5), fitted(name), class_axis=2)(
            torch.randn(2, 3)
        )


def test_probabilities_have_the_shape_of_the_logits(inputs: torch.Tensor) -> None:
    cal = fitted("temps")
    flat = CalibratedModel(torch.nn.Identity(), cal)
    logits = torch.randn(2, 5, 4, 3)
    proba = CalibratedModel(torch.nn.Identity(), cal, class_axis=1).predict_proba(
        logits
    )
    rows = logits.movedim(1, -1).reshape(-1, 5)
    assert proba.shape == logits.shape
    torch.testing.assert_close(
        proba.movedim(1, -1).reshape(-1, 5), flat.predict_proba(rows)
    )
    assert flat.predict_proba(rows[:0]).shape == (0, 5)


def test_modes_and_gradients_of_the_network_are_untouched(inputs: torch.Tensor) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5))
    network.train()
    network[1].eval()
    model = CalibratedModel(network, fitted("temps"))
    assert (model.training, network.training, network[1].training) == (
        True,
        True,
        False,
    )
    model(inputs).confidence.sum().backward()
    assert network[0].weight.grad is not None
    assert not model.eval().model.training


def test_state_dict_round_trip(inputs: torch.Tensor) -> None:
    source = CalibratedModel(torch.nn.Linear(4, 5), fitted("irm"))
    target = CalibratedModel(torch.nn.Linear(4, 5), fitted("irm", seed=1))
    assert source.fitted is fitted("irm")
    target.load_state_dict(source.state_dict())
    assert torch.equal(target(inputs).confidence, source(inputs).confidence)
    assert repr(target.fitted) == repr(source.fitted)


def test_numbers_of_the_network_alone_leave_the_calibrator(
    inputs: torch.Tensor,
) -> None:
    model = CalibratedModel(torch.nn.Linear(4, 5), fitted("irm"))
    others = {
        f"model.{key}": value
        for key, value in torch.nn.Linear(4, 5).state_dict().items()
    }
    model.load_state_dict(others, strict=False)
    assert model.fitted is fitted("irm")
    expected = fitted("irm").predict_confidence(model.model(inputs).detach().numpy())
    np.testing.assert_allclose(model(inputs).confidence.detach(), expected, atol=1e-6)


def test_calibrator_follows_the_logits(
    inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CalibratedModel(torch.nn.Linear(4, 5), fitted("temps"))
    wanted = model(inputs).confidence
    kept = dict(as_module(fitted("temps")).named_buffers())
    model.calibrator.to(
        "meta"
    )  # the one other device there is everywhere; it holds no numbers
    moves = []

    def to(self: Any, device: Any) -> None:
        moves.append(device)
        self._buffers.update(kept)

    monkeypatch.setattr(type(model.calibrator), "to", to)
    for _ in range(2):
        assert torch.equal(model(inputs).confidence, wanted)
    assert moves == [inputs.device]


def test_plain_tuples_on_request(inputs: torch.Tensor) -> None:
    network = torch.nn.Linear(4, 5)
    named = CalibratedModel(network, fitted("temps"))(inputs)
    plain = CalibratedModel(network, fitted("temps"), as_tuple=True)(inputs)
    assert type(plain) is tuple
    assert all(torch.equal(one, other) for one, other in zip(plain, named, strict=True))


def test_copies_pickles_and_half_precision(inputs: torch.Tensor) -> None:
    model = CalibratedModel(torch.nn.Linear(4, 5), fitted("hoki gaussian"))
    wanted = model(inputs).confidence
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(inputs).confidence, wanted)
    half = copy.deepcopy(model).half()
    output = half(inputs.half())
    assert (output.logits.dtype, output.confidence.dtype) == (
        torch.float16,
        torch.float32,
    )
    expected = fitted("hoki gaussian").predict_confidence(
        output.logits.detach().numpy()
    )
    np.testing.assert_allclose(output.confidence.detach(), expected, atol=1e-7)


def test_confidence_under_autocast_is_that_of_its_logits(inputs: torch.Tensor) -> None:
    model = CalibratedModel(torch.nn.Linear(4, 5), fitted("hoki gaussian"))
    with torch.autocast("cpu", torch.bfloat16):
        output = model(inputs)
    assert output.logits.dtype == torch.bfloat16
    expected = fitted("hoki gaussian").predict_confidence(
        output.logits.detach().float().numpy()
    )
    np.testing.assert_allclose(output.confidence.detach(), expected, atol=1e-7)


def test_evaluate_names_the_calibrator_that_a_model_holds(inputs: torch.Tensor) -> None:
    model = CalibratedModel(Returning(lambda z: z), fitted("temps"))
    with pytest.raises(TypeError, match=r"got CalibratedModel, .*`evaluate\(model\.fi"):
        hokical.evaluate(model, inputs, np.zeros(6, dtype=int))


def test_model_must_be_a_module() -> None:
    with pytest.raises(
        TypeError, match=r"must be a network, an nn\.Module; got function"
    ):
        CalibratedModel(lambda x: x, fitted("temps"))
