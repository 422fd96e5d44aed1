"""How torch tensors are used: on their device, in float64, and through NumPy where that
is faster.

Everything above is written against the array API. Here is what torch does in a way of
its own: gradients, graphs whose values are unknown, types that NumPy lacks.

`TorchKernels` also calls the fused kernels for CUDA devices in `kernels`, which are
loaded only once there is something for them to do. They have no part on other devices,
in gradients and graphs, with HOKICAL_TRITON=0 in the environment, and for good once a
launch has failed (Triton compiles a launcher of its own, which needs a C compiler). The
portable functions then go on in plain torch, as they do for a family of noise that has
no kernel.
"""

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import array_api_compat.torch
import numpy as np
import torch
from torch import Tensor, _is_functional_tensor
from torch._C import _DisableFuncTorch, _functorch
from torch._subclasses.fake_tensor import is_fake
from torch.autograd.forward_ad import unpack_dual
from torch.utils.checkpoint import checkpoint

from hokical._core.arrays import AnyArray, Backend, Kernels, Namespace
from hokical._core.logits import Logits, by_blocks
from hokical._core.runtime import warn_user

#: Float types that can be computed with as they are; of these NumPy has all but
#: bfloat16.
_KNOWN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Numbers that autograd records per number of a block which is computed again: about as
#: many operations are made of it.
_RECORDED = 32
#: Numbers, 64 kB: a table of no more stays on the devices to which it was brought.
_LARGEST_SHARED_TABLE = 1 << 13


def is_in_graph(tensor: Tensor) -> bool:
    """Whether a graph is being recorded, or shapes alone are computed."""
    if torch.compiler.is_compiling() or tensor.is_meta:
        return True
    is_plain = type(tensor) is Tensor and not _is_functional_tensor(tensor)
    if is_plain and not is_wrapped(tensor):  # most are: be quick
        return False
    return is_fake(tensor)


def is_wrapped(tensor: Tensor) -> bool:
    """Whether the tensor is one of `torch.func`: of `vmap`, `grad` or `jacrev`."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))


def _levels(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor, and what transformations of `torch.func` wrapped, down to the
    tensor itself.
    """
    yield tensor
    while is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
        yield tensor


def asks_gradient(*numbers: float | Tensor) -> bool:
    """Whether autograd records what is computed of one of these."""
    tensors = [x for x in numbers if isinstance(x, Tensor)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


class _Standard:
    """The array API in torch, but for a few functions.

    On a GPU every operation costs a launch, and those of `array_api_compat` see to
    negative indices too, which there are none of here; `take_along_axis` would also fix
    the number of rows of an exported graph.
    """

    def __init__(self) -> None:
        # As attributes of its own: a `__getattr__` would take as long as a small
        # operation.
        names = vars(array_api_compat.torch).keys() - vars(type(self)).keys()
        vars(self).update(
            {name: getattr(array_api_compat.torch, name) for name in names}
        )

    def clip(self, x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
        if isinstance(max, float) and (min is None or isinstance(min, float)):
            return torch.clamp(x, min, max)
        return array_api_compat.torch.clip(x, min, max)

    def take(self, x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Tensor:
        if x.ndim == 1:  # the same, in less time
            return torch.gather(x, 0, indices)
        return torch.index_select(x, axis, indices)

    def take_along_axis(
        self, x: Tensor, indices: Tensor, /, *, axis: int = -1
    ) -> Tensor:
        return torch.gather(x, axis, indices)

    def isfinite(self, x: Tensor, /) -> Tensor:
        return torch.abs(x) < torch.inf

    def sort(self, x: Tensor, /, *, axis: int = -1) -> Tensor:
        return torch.sort(x, dim=axis).values

    def searchsorted(self, x1: Tensor, x2: Tensor, /, *, side: str = "left") -> Tensor:
        if torch.onnx.is_in_onnx_export():  # which has no operator for it
            return bisect(x1, x2, right=side == "right")
        return torch.searchsorted(x1, x2.contiguous(), side=side)


def bisect(edges: Tensor, values: Tensor, *, right: bool) -> Tensor:
    """How many of the rising `edges` (k,) lie below `values`, or at them if `right`.

    >>> edges = torch.tensor([1.0, 2.0, 2.0, 4.0, 8.0])
    >>> bisect(edges, torch.tensor([0.0, 2.0, 9.0]), right=True)
    tensor([0, 3, 5])
    """
    step = 1 << (edges.shape[0].bit_length() - 1)
    beyond = edges.new_full((2 * step - edges.shape[0],), torch.inf)
    padded = torch.cat([edges, beyond])
    count = torch.zeros_like(values, dtype=torch.int64)
    while step:
        edge = padded[count + step - 1]
        reached = edge <= values if right else edge < values
        count = torch.where(reached, count + step, count)
        step //= 2
    return torch.clamp(count, max=edges.shape[0])


_standard = _Standard()
_has_triton = find_spec("triton") is not None
_broken = False


def usable(values: Tensor, *numbers: Any) -> bool:
    """Whether this can go through Triton: on CUDA, with no graph captured and no
    gradient asked.
    """
    if not values.is_cuda or is_in_graph(values) or not values.numel():
        return False
    if _broken or not _has_triton or os.environ.get("HOKICAL_TRITON") == "0":
        return False
    if any(is_wrapped(x) for x in (values, *numbers) if isinstance(x, Tensor)):
        return False  # tensors of torch.func, which have no memory to point at
    return not asks_gradient(values, *numbers)


def _launch(kernel: str, logits: Logits, *numbers: Any) -> Tensor | None:
    """What a kernel makes of logits, numbers and tables (m,); None if it cannot, or if
    there is none of this name.
    """
    global _broken
    values = logits.values
    if not usable(values, *numbers):
        return None
    arguments = [_on_device(number, values.device) for number in numbers]
    try:
        # A kernel that is not there says nothing about the others.
        work = getattr(import_module(f"{__package__}.kernels"), kernel, None)
        if work is None:
            return None
        with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
            return work(values, logits.top, *arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _broken = True
        warn_user(
            f"Triton could not run a kernel ({type(error).__name__}: "
            f"{str(error)[:200]}); hokical goes on in plain torch, slower. Triton "
            "needs a C compiler; HOKICAL_TRITON=0 in the environment silences this.",
            RuntimeWarning,
        )
        return None


def _on_device(number: Any, device: torch.device) -> Tensor:
    """Float64 beside the logits: as plain arguments, kernels take float32 alone."""
    if isinstance(number, Tensor):
        return number if number.ndim else number.to(device, torch.float64)
    if np.ndim(number):
        # From pageable memory: taken over before the call returns, so nothing has to be
        # waited for.
        return torch.from_numpy(number).to(device, non_blocking=True)
    return _number(float(number), device)


@lru_cache(1024)
def _number(number: float, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((), number, dtype=torch.float64, device=device)


class TorchKernels(Kernels):
    """Triton's kernels on a GPU; and less memory where a gradient is recorded."""

    def erfcx(self, y: Tensor) -> Tensor:
        # Recorded step by step, the portable form would keep some fifty arrays for a
        # gradient.
        return torch.special.erfcx(y)

    def stability(self, kernel: str, logits: Any, width: Any) -> Tensor | None:
        return _launch(kernel, logits, width)

    def recompute(
        self,
        function: Callable[[Logits, Any], Tensor],
        logits: Logits,
        number: Any,
        floats_per_row: int,
    ) -> Tensor | None:
        """None unless autograd, and not `torch.func` or a graph, records what is
        computed.
        """
        if (
            not asks_gradient(logits.values, number)
            or logits.is_traced
            or is_wrapped(logits.values)
        ):
            return None

        def solve(values: Tensor, top: Tensor) -> Tensor:
            return function(Logits(values, top, BACKEND), number)

        def work(block: Logits) -> Tensor:
            return checkpoint(solve, block.values, block.top, use_reentrant=False)

        return by_blocks(work, logits, _RECORDED * floats_per_row)

    def label_distances(self, logits: Any) -> Any:
        return _launch("label_distances", logits)


class TorchBackend(Backend):
    """Tensors on any device that has float64."""

    kernels = TorchKernels()

    #: 25,000 rows of 1000 classes are one block: on a GPU each one more costs launches.
    block_size = 1 << 25

    def namespace(self, array: Tensor) -> Namespace:
        return _standard

    def check(self, array: Tensor, name: str) -> Tensor:
        """Dense, on a device with float64; float8 and the like are widened to
        float32.
        """
        if array.is_nested or array.layout != torch.strided or array.is_quantized:
            raise TypeError(
                f"`{name}` must be a dense tensor; got a nested, sparse or quantised "
                "one. Use `.to_padded_tensor(float('-inf'))`, `.to_dense()` or "
                "`.dequantize()`."
            )
        if not array.is_floating_point():
            return array
        if array.device.type == "mps":
            raise TypeError(
                f"`{name}` must be on a device with float64; got {array.device}. Pass "
                "`.cpu()`."
            )
        return array if array.dtype in _KNOWN else array.float()

    def to_host(self, array: Tensor) -> AnyArray:
        with _DisableFuncTorch():  # tensors are what they are, and not wrapped again
            *_, inner = _levels(array)
            plain = inner.detach()
            if plain.dtype == torch.bfloat16:  # NumPy has none
                plain = plain.float()
            return np.asarray(plain.cpu().resolve_neg().resolve_conj().numpy())

    def from_host(self, array: AnyArray, like: Tensor) -> Tensor:
        if self.is_traced(like):  # a constant of the graph
            return torch.tensor(array, device=like.device)
        if like.device.type == "cpu" or array.size > _LARGEST_SHARED_TABLE:
            return _share(array).to(like.device)
        return _table(array.tobytes(), array.dtype.str, array.shape, like.device)

    def host_view(self, array: Tensor) -> AnyArray | None:
        """None for tensors with a gradient to keep, on another device, or without
        known values.
        """
        if not array.is_cpu or asks_gradient(array):
            return None
        if is_wrapped(array) or self.is_traced(array):
            return None
        tangent = unpack_dual(array).tangent  # type: ignore[no-untyped-call]  # forward mode
        return None if tangent is not None else self.to_host(array)

    def is_traced(self, array: Tensor) -> bool:
        """In a graph, and under `vmap` on any level: the values of a row are then
        unknown.
        """
        if is_in_graph(array):
            return True
        return is_wrapped(array) and any(
            map(_functorch.is_batchedtensor, _levels(array))
        )

    def queues_work(self, array: Tensor) -> bool:
        return array.is_cuda

    def without_gradient(self, array: Tensor) -> Tensor:
        return array.detach() if array.requires_grad else array

    def follow(self, rounded: Tensor, smooth: Tensor) -> Tensor:
        if not smooth.requires_grad:
            return rounded
        return rounded.detach() + (smooth - smooth.detach())


def _share(array: AnyArray) -> Tensor:
    """A tensor that shares the memory of an array, if the array may be written to."""
    contiguous = np.asarray(array, order="C")
    writeable = contiguous if contiguous.flags.writeable else contiguous.copy()
    return torch.from_numpy(writeable)


@lru_cache(256)
def _table(
    content: bytes, dtype: str, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """A small array on a device. Known by its content, so that changes in place are
    seen.

    Made outside of inference mode, or it could not take part in a gradient later.
    """
    with torch.inference_mode(False):
        return _share(np.frombuffer(content, dtype).reshape(shape)).to(device)


BACKEND = TorchBackend()
