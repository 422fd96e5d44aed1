"""Fused kernels in Triton for CUDA devices; loaded only once there is something for them to do.

Each gives None where Triton has no part: on other devices, for gradients and graphs, with
HOKICAL_TRITON=0 in the environment, and for good once a launch has failed (Triton compiles a
launcher of its own, which needs a C compiler). The caller then goes on in plain torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from hokical._warnings import warn_user

_device_of: Callable[[Tensor], AbstractContextManager[None]] = torch.cuda.device_of
_is_wrapped: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_broken = False


def usable(values: Tensor, *parameters: float | Tensor) -> bool:
    """Whether this can go through Triton: on CUDA, with no graph captured and no gradient asked."""
    if not values.is_cuda or not values.numel() or torch.compiler.is_compiling():
        return False
    if not _installed() or os.environ.get("HOKICAL_TRITON") == "0":
        return False
    parts = (values, *(x for x in parameters if isinstance(x, Tensor)))
    if any(_is_wrapped(part) for part in parts):  # by torch.func, which has no memory to point at
        return False
    return not (torch.is_grad_enabled() and any(part.requires_grad for part in parts))


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def chebyshev_sums(values: Tensor, step: Tensor) -> Tensor | None:
    """S_1 ... S_R of each row, (n, R) float64: see `kernels.chebyshev`."""
    return _launched("triton_chebyshev", "sums", values, step)


def gaussian_stability(values: Tensor, step: float | Tensor) -> Tensor | None:
    """gamma under Gaussian noise, (n,) float64; step = 2 / (REACH * scale)."""
    return _launched("triton_chebyshev", "stability", values, step)


def gumbel_stability(values: Tensor, scale: float | Tensor) -> Tensor | None:
    """gamma under Gumbel noise, (n,) float64."""
    return _launched("triton_gumbel", "stability", values, scale)


def uniform_stability(values: Tensor, width: float | Tensor) -> Tensor | None:
    """gamma under uniform noise, (n,) float64."""
    return _launched("triton_uniform", "stability", values, width)


def survivals(values: Tensor, noise: Tensor) -> Tensor | None:
    """How many of the draws, (draws, classes), keep the label of each row, (n,) int64."""
    return _launched("triton_sampled", "survivals", values.detach(), noise)


def _launched(module: str, function: str, values: Tensor, *more: float | Tensor) -> Tensor | None:
    """What a kernel makes of logits, and of numbers and tables beside them; or None."""
    global _broken
    if _broken or not usable(values, *more):
        return None
    beside = [x if isinstance(x, Tensor) and x.ndim else on_device(x, values) for x in more]
    try:
        with _device_of(values):
            return _kernel(module, function)(values, *beside)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _broken = True
        warn_user(
            f"Triton could not run a kernel ({type(error).__name__}: {str(error)[:200]}); hokical "
            "goes on in plain torch, slower. Triton needs a C compiler; HOKICAL_TRITON=0 in the "
            "environment silences this.",
            RuntimeWarning,
        )
        return None


def _kernel(module: str, function: str) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def on_device(number: float | Tensor, values: Tensor) -> Tensor:
    """A 0-d float64 tensor beside the logits: as plain arguments, kernels take float32 alone."""
    if isinstance(number, Tensor):
        return number.to(device=values.device, dtype=torch.float64)
    return _number(number, values.device)


@lru_cache(1024)
def _number(number: float, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), number, dtype=torch.float64, device=device)
