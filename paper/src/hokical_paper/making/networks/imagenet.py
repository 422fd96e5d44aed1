"""The paper's four ImageNet networks, with torchvision's weights and data loader."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage


class ImageNetNetwork(NamedTuple):
    """The title, and torchvision's names of the network and of its weights."""

    title: str
    builder: str
    weights: str


#: The accuracies in the paper are those of torchvision's first weights.
IMAGENET_NETWORKS = {
    "densenet161": ImageNetNetwork(
        "DenseNet-161", "densenet161", "DenseNet161_Weights.IMAGENET1K_V1"
    ),
    "mobilenet_v2": ImageNetNetwork(
        "MobileNetV2", "mobilenet_v2", "MobileNet_V2_Weights.IMAGENET1K_V1"
    ),
    "resnet152": ImageNetNetwork(
        "ResNet-152", "resnet152", "ResNet152_Weights.IMAGENET1K_V1"
    ),
    "wrn101_2": ImageNetNetwork(
        "WRN-101-2", "wide_resnet101_2", "Wide_ResNet101_2_Weights.IMAGENET1K_V1"
    ),
}
N_CLASSES = 1000


def imagenet_network(
    name: str, weights_file: Path | None = None
) -> tuple[nn.Module, Any]:
    """A trained network in inference mode, and the transformation for its images.

    The weights come from `weights_file` (.pth), else from torchvision's cache or a
    download.
    """
    if name not in IMAGENET_NETWORKS:
        names = ", ".join(IMAGENET_NETWORKS)
        raise ValueError(f"`name` must be one of {names}; got {name!r}.")
    torchvision = _torchvision()
    kind = IMAGENET_NETWORKS[name]
    weights = torchvision.models.get_weight(kind.weights)
    network: nn.Module
    if weights_file is None:
        network = torchvision.models.get_model(kind.builder, weights=weights)
    else:
        network = torchvision.models.get_model(kind.builder)
        with report_damage(weights_file, f"torchvision's weights of {kind.title}"):
            network.load_state_dict(
                torch.load(weights_file, map_location="cpu", weights_only=True)
            )
    return network.eval(), weights.transforms()


def weight_facts(name: str, weights_file: Path | None = None) -> dict[str, Any]:
    """The weights of a network and the versions of torch and torchvision, for the
    manifest.
    """
    facts: dict[str, Any] = {
        "name": IMAGENET_NETWORKS[name].weights,
        "file": None,
        "sha256": None,
    }
    if weights_file is not None:
        with weights_file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        facts = {"name": None, "file": weights_file.name, "sha256": sha256}
    versions = {"torch": torch.__version__, "torchvision": _torchvision().__version__}
    return facts | {key: version.split("+")[0] for key, version in versions.items()}


def imagenet_images(folder: Path, transform: Any) -> Any:
    """The validation images with their labels, as a torchvision data set.

    `folder` is torchvision's (with `meta.bin`, or ImageNet's archives), or one with
    `val/<class>/*.JPEG`, or that folder `val`.
    """
    datasets = _torchvision().datasets
    if (folder / "meta.bin").exists() or list(folder.glob("ILSVRC2012_devkit*")):
        return datasets.ImageNet(str(folder), split="val", transform=transform)
    home = folder / "val" if (folder / "val").is_dir() else folder
    n_folders = sum(path.is_dir() for path in home.iterdir()) if home.is_dir() else 0
    if n_folders != N_CLASSES:
        raise DataFileError(
            home,
            f"expected ImageNet's validation images, a folder for each of {N_CLASSES} "
            f"classes; found {n_folders} folders.",
            "Unpack the archives as described in torchvision's documentation of "
            "ImageNet.",
        )
    return datasets.ImageFolder(str(home), transform=transform)


def _torchvision() -> Any:
    try:
        torchvision = import_module("torchvision")
    except ImportError as error:
        raise ImportError(
            "ImageNet networks need torchvision, which is not installed: pip install "
            "torchvision, in the version that matches your torch."
        ) from error
    return torchvision
