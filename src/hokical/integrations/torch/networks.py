"""Networks: what wraps them, where they are, and the mode of their parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature

import torch
from torch import nn

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def check_network(model: object, remedy: str) -> None:
    """Raise unless a model is a network."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            "`model` must be a network, an nn.Module; got "
            f"{type(model).__name__}. {remedy}"
        )


def bare(model: nn.Module) -> nn.Module:
    """The network within `DataParallel`, `DistributedDataParallel` and
    `torch.compile`.
    """
    while True:
        wraps = isinstance(model, _WRAPPERS)
        inner = model.module if wraps else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def device_of(model: nn.Module) -> torch.device:
    """The device of a network: that of its first parameter or buffer, else the host."""
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def takes_one_argument(model: nn.Module) -> bool:
    """Whether a network has one positional argument, so that a batch has one input."""
    parameters = signature(bare(model).forward).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    positional = [kind for kind in kinds if kind <= Parameter.VAR_POSITIONAL]
    return len(positional) == 1 and positional[0] < Parameter.VAR_POSITIONAL


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """A network in evaluation mode; every part has its own mode back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
