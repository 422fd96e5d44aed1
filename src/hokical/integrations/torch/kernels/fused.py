"""Fused kernels in Triton for CUDA devices; loaded only once there is something for them to do.

They have no part on other devices, in gradients and graphs, with HOKICAL_TRITON=0 in the
environment, and for good once a launch has failed (Triton compiles a launcher of its own, which
needs a C compiler). The portable functions then go on in plain torch. The first functions say
which tensors' memory or values cannot be looked at: in graphs and under `torch.func`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from hokical._core.arrays import FloatArray
from hokical._core.logits import Logits
from hokical._core.messages import warn_user
from hokical.stability.tables import REACH

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


Number: TypeAlias = float | Tensor

_device_of: Callable[[Tensor], AbstractContextManager[None]] = torch.cuda.device_of
_broken = False


def usable(values: Tensor, *numbers: Number) -> bool:
    """Whether this can go through Triton: on CUDA, with no graph captured and no gradient asked."""
    if not values.is_cuda or is_in_graph(values) or not values.numel():
        return False
    if _broken or not _is_installed() or os.environ.get("HOKICAL_TRITON") == "0":
        return False
    if any(is_wrapped(x) for x in (values, *numbers) if isinstance(x, Tensor)):
        return False  # tensors of torch.func, which have no memory to point at
    return not asks_gradient(values, *numbers)


@cache
def _is_installed() -> bool:
    return find_spec("triton") is not None


def launch(module: str, function: str, logits: Logits, *numbers: Number) -> Tensor | None:
    """What a kernel makes of logits, and of numbers and tables; None if it cannot."""
    global _broken
    values = logits.values
    if not usable(values, *numbers):
        return None
    given = [x if isinstance(x, Tensor) and x.ndim else _on_device(x, values) for x in numbers]
    try:
        with _device_of(values):
            return _kernel(module, function)(values, logits.top, *given)
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


@cache
def _kernel(module: str, function: str) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(import_module(f"{__package__}.{module}"), function)
    return found


def _on_device(number: Number, values: Tensor) -> Tensor:
    """A 0-d float64 tensor beside the logits: as plain arguments, kernels take float32 alone."""
    if isinstance(number, Tensor):
        return number.to(device=values.device, dtype=torch.float64)
    return _number(float(number), values.device)


@lru_cache(1024)
def _number(number: float, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), number, dtype=torch.float64, device=device)


def stability(family: str, logits: Logits, width: Number | FloatArray) -> Tensor | None:
    """Label stability (n,) on CUDA, or (m, n) of widths (m,); None if a kernel cannot."""
    if not usable(logits.values):
        return None
    argument: Any = 2.0 / (REACH * width) if family == "gaussian" else width
    if isinstance(argument, np.ndarray) and argument.ndim:
        # From pageable memory: taken over before the call returns, so nothing has to be waited for.
        argument = torch.from_numpy(argument).to(logits.values.device, non_blocking=True)
    return launch(f"triton_{family}", "stability", logits, argument)


def label_distances(logits: Logits) -> Tensor | None:
    """Rest sums, margin of the second class and mean margin (3, n) on CUDA, if a kernel can."""
    return launch("triton_gumbel", "label_distances", logits)
