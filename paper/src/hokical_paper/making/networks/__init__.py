"""The paper's networks by name, with seeded weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hokical_paper.making.networks.densenet import DenseNet
from hokical_paper.making.networks.lenet import LeNet5
from hokical_paper.making.networks.resnet import ResNet
from hokical_paper.making.networks.wide_resnet import WideResNet

__all__ = ["NETWORKS", "count_parameters", "make_network"]


@dataclass(frozen=True)
class _NetworkKind:
    title: str
    build: Callable[..., nn.Module]
    full: dict[str, float]
    small: dict[str, float]


NETWORKS = {
    "lenet5": _NetworkKind("LeNet-5", LeNet5, {}, {}),
    "densenet40": _NetworkKind(
        "DenseNet-40", DenseNet, {"depth": 40, "growth": 12}, {"depth": 10, "growth": 4}
    ),
    "resnet110": _NetworkKind("ResNet-110", ResNet, {"depth": 110}, {"depth": 8}),
    "resnet110_sd": _NetworkKind(
        "ResNet-110 SD",
        ResNet,
        {"depth": 110, "last_survival": 0.5},
        {"depth": 8, "last_survival": 0.5},
    ),
    "wrn28_10": _NetworkKind(
        "WRN-28-10", WideResNet, {"depth": 28, "widen": 10}, {"depth": 10, "widen": 1}
    ),
}


def make_network(
    name: str, n_classes: int, *, channels: int = 3, seed: int = 0, small: bool = False
) -> nn.Module:
    """Build one of the paper's networks for 32 x 32 images, with weights drawn from
    `seed`.

    Parameters
    ----------
    name : one of lenet5, densenet40, resnet110, resnet110_sd, wrn28_10
    n_classes, channels : sides of its output and input
    seed : int
        The global random state is neither used nor changed.
    small : bool
        A shallow and narrow network of the same kind, for quick tries.

    Examples
    --------
    >>> count_parameters(make_network("lenet5", 10, channels=1))
    61706
    """
    if name not in NETWORKS:
        raise ValueError(f"`name` must be one of {', '.join(NETWORKS)}; got {name!r}.")
    kind = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = kind.build(
            n_classes, channels=channels, **(kind.small if small else kind.full)
        )
        network.apply(_initialise)
    return network


def count_parameters(network: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def _initialise(module: nn.Module) -> None:
    """He's initialisation for convolutions; removes the counters of batch
    normalisation.

    The counters are not used, and each would cost a launch in every training step.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    if isinstance(module, nn.BatchNorm2d):
        module.num_batches_tracked = None
