"""The paper's four ImageNet networks, with torchvision's own weights and loader."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

#: Our name: torchvision's builder and weights. The paper's accuracies are those of the first ones.
IMAGENET_NETWORKS = {
    "densenet161": ("densenet161", "DenseNet161_Weights.IMAGENET1K_V1"),
    "mobilenet_v2": ("mobilenet_v2", "MobileNet_V2_Weights.IMAGENET1K_V1"),
    "resnet152": ("resnet152", "ResNet152_Weights.IMAGENET1K_V1"),
    "wrn101_2": ("wide_resnet101_2", "Wide_ResNet101_2_Weights.IMAGENET1K_V1"),
}


def imagenet_network(name: str) -> tuple[nn.Module, Any]:
    """A trained network in inference mode, and the transformation its images need."""
    torchvision = _torchvision()
    if name not in IMAGENET_NETWORKS:
        known = ", ".join(IMAGENET_NETWORKS)
        raise ValueError(f"`name` must be one of {known}; got {name!r}.")
    builder, weights_name = IMAGENET_NETWORKS[name]
    weights = torchvision.models.get_weight(weights_name)
    network: nn.Module = torchvision.models.get_model(builder, weights=weights)
    return network.eval(), weights.transforms()


def imagenet_batches(
    folder: Path, transform: Any, *, batch_size: int = 100, workers: int = 4
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of validation images and labels from torchvision's ImageNet folder, in order."""
    from torch.utils.data import DataLoader

    torchvision = _torchvision()
    data = torchvision.datasets.ImageNet(str(folder), split="val", transform=transform)
    yield from DataLoader(data, batch_size=batch_size, num_workers=workers)


def _torchvision() -> Any:
    try:
        torchvision = import_module("torchvision")
    except ImportError as error:
        raise ImportError(
            "ImageNet networks come from torchvision, which is not installed. Try `pip install "
            "torchvision`, in the version that fits your torch."
        ) from error
    return torchvision
