"""Tensors whose memory, or whose values, cannot be looked at: in graphs and under `torch.func`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

_functorch = torch._C._functorch
#: A scope in which tensors are what they are, not wrapped again.
outside_transformations: Callable[[], AbstractContextManager[None]] = torch._C._DisableFuncTorch


def is_in_graph(tensor: Tensor) -> bool:
    """Whether a graph is being recorded, or shapes alone are computed."""
    if torch.compiler.is_compiling() or tensor.is_meta:
        return True
    plain = type(tensor) is Tensor and not torch._is_functional_tensor(tensor)  # most are: be quick
    return not (plain and not is_wrapped(tensor)) and is_fake(tensor)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether the tensor is one of `torch.func`: of `vmap`, `grad` or `jacrev`."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))


def unwrap(tensor: Tensor) -> Tensor:
    """The tensor itself, as it was before any transformation."""
    while is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def is_batched(tensor: Tensor) -> bool:
    """Whether `vmap` is at work on any level: the values of a row are then unknown."""
    while is_wrapped(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def asks_gradient(*numbers: float | Tensor) -> bool:
    """Whether autograd records what is computed of one of these."""
    tensors = [x for x in numbers if isinstance(x, Tensor)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
