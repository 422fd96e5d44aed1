"""Fused kernels in Triton for CUDA devices; loaded only once there is something for them to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

_device_of: Callable[[Tensor], AbstractContextManager[None]] = torch.cuda.device_of


def usable(values: Tensor, *parameters: float | Tensor) -> bool:
    """Whether this can go through Triton: on CUDA, with no graph captured and no gradient asked."""
    if not values.is_cuda or not values.numel() or torch.compiler.is_compiling():
        return False
    if not _installed():
        return False
    parts = (values, *(x for x in parameters if isinstance(x, Tensor)))
    return not (torch.is_grad_enabled() and any(part.requires_grad for part in parts))


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def chebyshev_sums(values: Tensor, step: Tensor) -> Tensor:
    """S_1 ... S_R of each row, (n, R) float64: see `kernels.chebyshev`."""
    from hokical.integrations.torch.kernels import triton_chebyshev as chebyshev

    with _device_of(values):
        return chebyshev.sums(values, step)


def gaussian_stability(values: Tensor, step: float | Tensor) -> Tensor:
    """gamma under Gaussian noise, (n,) float64; step = 2 / (REACH * scale)."""
    from hokical.integrations.torch.kernels import triton_chebyshev as chebyshev

    with _device_of(values):
        return chebyshev.stability(values, on_device(step, values))


def gumbel_stability(values: Tensor, scale: float | Tensor) -> Tensor:
    """gamma under Gumbel noise, (n,) float64."""
    from hokical.integrations.torch.kernels import triton_gumbel as gumbel

    with _device_of(values):
        return gumbel.stability(values, on_device(scale, values))


def uniform_stability(values: Tensor, width: float | Tensor) -> Tensor:
    """gamma under uniform noise, (n,) float64."""
    from hokical.integrations.torch.kernels import triton_uniform as uniform

    with _device_of(values):
        return uniform.stability(values, on_device(width, values))


def survivals(values: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    """How many of the draws, (draws, classes), keep the label of each row, (n,) int64."""
    from hokical.integrations.torch.kernels import triton_sampled as sampled

    with _device_of(values):
        return sampled.survivals(values, labels, noise)


def on_device(number: float | Tensor, values: Tensor) -> Tensor:
    """A 0-d float64 tensor beside the logits: as plain arguments, kernels take float32 alone."""
    if isinstance(number, Tensor):
        return number.to(device=values.device, dtype=torch.float64)
    return _number(number, values.device)


@lru_cache(1024)
def _number(number: float, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), number, dtype=torch.float64, device=device)
