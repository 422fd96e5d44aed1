"""How torch tensors are used: on their device, in float64, and through NumPy where that is faster.

Everything above is written against the array API. Here is what torch does in a way of its own:
gradients, graphs whose values are unknown, types that NumPy lacks. It also calls the
fused kernels, see `kernels`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import array_api_compat.torch
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from hokical._core.arrays import Backend, Kernels, Kind, Namespace
from hokical._core.logits import Logits, by_blocks
from hokical.integrations.torch.kernels import fused
from hokical.integrations.torch.kernels import fused as _fused
from hokical.stability import gaussian, uniform

#: Float types that can be computed with as they are; of these NumPy has all but bfloat16.
_KNOWN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Numbers that are recorded per class, or node and rival, while a block is computed again.
_RECORDED = 32
#: Tables up to this many numbers are kept on the devices to which they were brought.
_KEPT_UP_TO = 1 << 13


class _Standard:
    """The array API in torch, but for a few functions.

    On a GPU every operation costs a launch, and those of `array_api_compat` see to negative indices
    too, which there are none of here; `take_along_axis` would also fix the number of rows of an
    exported graph.
    """

    def __init__(self) -> None:
        # As attributes of its own: a `__getattr__` would take as long as a small operation.
        names = vars(array_api_compat.torch).keys() - vars(type(self)).keys()
        vars(self).update({name: getattr(array_api_compat.torch, name) for name in names})

    def clip(self, x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
        if isinstance(max, float) and (min is None or isinstance(min, float)):
            return torch.clamp(x, min, max)
        return array_api_compat.torch.clip(x, min, max)

    def take(self, x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
        if x.ndim == 1:  # the same, in less time
            return torch.gather(x, 0, indices)
        return torch.index_select(x, axis, indices)

    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
        return torch.gather(x, axis, indices)

    def isfinite(self, x: Tensor, /) -> Tensor:
        return torch.abs(x) < torch.inf

    def sort(self, x: Tensor, /, *, axis: int = -1) -> Tensor:
        return torch.sort(x, dim=axis).values

    def searchsorted(self, x1: Tensor, x2: Tensor, /, *, side: str = "left") -> Tensor:
        return torch.searchsorted(x1, x2.contiguous(), side=side)


_standard = _Standard()


class TorchKernels(Kernels):
    """Triton's kernels on a GPU; and less memory where a gradient is recorded."""

    def erfcx(self, y: Tensor) -> Tensor:
        # Recorded step by step, the portable form would keep some fifty arrays for a gradient.
        return torch.special.erfcx(y)

    def stability(self, family: str, logits: Any, width: Any) -> Tensor | None:
        if family == "uniform" and _is_recorded(logits, width):
            rivals = min(logits.n_columns - 1, uniform.NEAREST)
            per_row = _RECORDED * rivals * rivals
            return _recompute(uniform.portable_stability, logits, width, per_row)
        return _fused.stability(family, logits, width)

    def chebyshev_moments(self, logits: Any, step: Any) -> Tensor | None:
        if not _is_recorded(logits, step):
            return None
        return _recompute(gaussian.portable_moments, logits, step, _RECORDED * logits.n_columns)

    def label_distances(self, logits: Any) -> Any:
        return _fused.label_distances(logits)


class TorchBackend(Backend):
    """Tensors on any device that has float64."""

    kernels = TorchKernels()

    #: 25,000 rows of 1000 classes are one block: on a GPU each one more costs launches.
    block_size = 1 << 25

    def namespace(self, array: Tensor) -> Namespace:
        return _standard

    def check(self, array: Tensor, name: str) -> Tensor:
        """Dense, on a device with float64; float8 and the like are widened to float32."""
        if array.is_nested or array.layout != torch.strided or array.is_quantized:
            raise TypeError(
                f"`{name}` must be a dense tensor; got a nested, sparse or quantised one. Use "
                "`.to_padded_tensor(float('-inf'))`, `.to_dense()` or `.dequantize()`."
            )
        if not array.is_floating_point():
            return array
        if array.device.type == "mps":
            raise TypeError(
                f"`{name}` must be on a device with float64; got {array.device}. Pass `.cpu()`."
            )
        return array if array.dtype in _KNOWN else array.float()

    def kind(self, array: Tensor) -> Kind:
        if array.is_floating_point():
            return "float"
        if array.is_complex():
            return "complex"
        return "bool" if array.dtype == torch.bool else "integer"

    def to_host(self, array: Tensor) -> NDArray[Any]:
        with fused.outside_transformations():
            plain = fused.unwrap(array).detach()
            if plain.dtype == torch.bfloat16:  # NumPy has none
                plain = plain.float()
            return np.asarray(plain.cpu().resolve_neg().resolve_conj().numpy())

    def from_host(self, array: NDArray[Any], like: Tensor) -> Tensor:
        if self.is_traced(like):  # a constant of the graph
            return torch.tensor(array, device=like.device)
        if like.device.type == "cpu":
            return _share(array)
        if array.size > _KEPT_UP_TO:
            return _share(array).to(like.device)
        return _table(array.tobytes(), array.dtype.str, array.shape, like.device)

    def host_view(self, array: Tensor) -> NDArray[Any] | None:
        """None for tensors with a gradient to keep, on another device, or without known values."""
        tracked = array.requires_grad and torch.is_grad_enabled()
        if (
            array.device.type != "cpu"
            or tracked
            or fused.is_wrapped(array)
            or self.is_traced(array)
        ):
            return None
        if unpack_dual(array).tangent is not None:  # type: ignore[no-untyped-call]  # forward mode
            return None
        return self.to_host(array)

    def is_traced(self, array: Tensor) -> bool:
        return fused.is_in_graph(array) or fused.is_batched(array)

    def queues_work(self, array: Tensor) -> bool:
        return array.is_cuda

    def without_gradient(self, array: Tensor) -> Tensor:
        return array.detach() if array.requires_grad else array

    def follow(self, rounded: Tensor, smooth: Tensor) -> Tensor:
        if not smooth.requires_grad:
            return rounded
        return rounded.detach() + (smooth - smooth.detach())


def _is_recorded(logits: Logits, number: float | Tensor) -> bool:
    """Whether autograd, and not `torch.func` or a graph, records what is computed."""
    values = logits.values
    if not isinstance(values, Tensor) or logits.is_traced or fused.is_wrapped(values):
        return False
    return fused.asks_gradient(values, number)


def _recompute(
    function: Callable[[Logits, float | Tensor], Tensor],
    logits: Logits,
    number: float | Tensor,
    per_row: int,
) -> Tensor:
    """`function(logits, number)`, which records so many numbers per row while it is computed."""
    backend = logits.backend

    def solve(values: Tensor, top: Tensor) -> Tensor:
        return function(Logits(values, top, backend), number)

    def work(block: Logits) -> Tensor:
        return checkpoint(solve, block.values, block.top, use_reentrant=False)

    return by_blocks(work, logits, per_row)


def _share(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the memory of an array, if the array may be written to."""
    whole = np.asarray(array, order="C")
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy())


@lru_cache(256)
def _table(content: bytes, dtype: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A small array on a device. Known by its content, so that changes in place are seen.

    Made outside of inference mode, or it could not take part in a gradient later.
    """
    with torch.inference_mode(False):
        return _share(np.frombuffer(content, dtype).reshape(shape)).to(device)


BACKEND = TorchBackend()
