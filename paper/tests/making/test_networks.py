"""The paper's networks: shapes, published sizes, one step of learning."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from hokical_paper.making.networks import NETWORKS, count_parameters, make_network  # noqa: E402
from hokical_paper.making.networks.imagenet import IMAGENET_NETWORKS, imagenet_network  # noqa: E402

#: Exact for LeNet-5 (LeCun et al.'s layers, fully connected); the others' papers round:
#: DenseNet-40 (k = 12) 1.0 M, ResNet-110 1.7 M, WRN-28-10 36.5 M.
PUBLISHED = {
    "lenet5": (62_006, 0.0),
    "densenet40": (1.0e6, 0.05),
    "resnet110": (1.7e6, 0.05),
    "resnet110_sd": (1.7e6, 0.05),
    "wrn28_10": (36.5e6, 0.005),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameter_count_is_near_the_published_one(name: str) -> None:
    published, tolerance = PUBLISHED[name]
    count = count_parameters(make_network(name, 10))
    assert abs(count - published) <= tolerance * published


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("small", [True, False])
def test_output_has_a_logit_for_each_class(name: str, small: bool) -> None:
    network = make_network(name, 7, small=small).eval()
    with torch.no_grad():
        logits = network(torch.zeros(1, 3, 32, 32))
    assert logits.shape == (1, 7)
    assert logits.dtype == torch.float32


def test_one_channel_is_enough_for_digits() -> None:
    assert make_network("lenet5", 10, channels=1)(torch.zeros(2, 1, 32, 32)).shape == (
        2,
        10,
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_one_step_lowers_the_loss(name: str) -> None:
    network = make_network(name, 10)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 32, 32, generator=generator)
    labels = torch.tensor([0, 3])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    before = F.cross_entropy(network(images), labels)
    before.backward()
    optimiser.step()
    with torch.no_grad():
        after = F.cross_entropy(network(images), labels)
    assert after < before


def test_weights_come_from_the_seed_and_from_nothing_else() -> None:
    torch.manual_seed(5)
    untouched = torch.get_rng_state()
    first = make_network("resnet110", 10, seed=1, small=True).state_dict()
    assert torch.equal(torch.get_rng_state(), untouched)
    torch.manual_seed(6)
    second = make_network("resnet110", 10, seed=1, small=True).state_dict()
    other = make_network("resnet110", 10, seed=2, small=True).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["stem.weight"], other["stem.weight"])


def test_stochastic_depth_skips_closed_blocks_and_scales_at_inference() -> None:
    network = make_network("resnet110_sd", 10, small=True)
    np.testing.assert_allclose(network.survival, [5 / 6, 4 / 6, 0.5], rtol=1e-6)
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network.gates.zero_()
    closed = network(images)
    for block in network.blocks:  # whatever closed blocks compute, it is not used
        torch.nn.init.normal_(
            block.second.weight, generator=torch.Generator().manual_seed(3)
        )
    assert torch.equal(network(images), closed)
    network.gates.fill_(1.0)
    assert not torch.allclose(network(images), closed)
    network.eval()
    scaled = network(images)
    network.survival.fill_(1.0)
    assert not torch.allclose(network(images), scaled)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"one of lenet5, densenet40.*got 'alexnet'"):
        make_network("alexnet", 10)


@pytest.mark.parametrize("name", IMAGENET_NETWORKS)
def test_torchvision_knows_the_imagenet_networks(name: str) -> None:
    models = pytest.importorskip("torchvision").models
    kind = IMAGENET_NETWORKS[name]
    assert kind.builder in models.list_models()
    assert models.get_weight(kind.weights) is not None


def test_imagenet_networks_say_when_torchvision_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)
    with pytest.raises(ImportError, match="pip install torchvision"):
        imagenet_network("resnet152")
