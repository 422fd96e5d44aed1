"""Arrays of any library that follows the Python array API standard.

The rest of the package computes with the namespace `xp` of its input: NumPy arrays,
torch tensors, JAX and CuPy arrays, or a graph that is being traced. Where a library
deviates from the standard, it has a `Backend`. Backends are declared by the name of
their library and imported when the first array of that library is seen.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj
from numpy.typing import NDArray

#: NumPy's arrays, for signatures.
AnyArray = NDArray[Any]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


#: An array of any library.
Array = Any
#: A namespace of the array API standard.
Namespace = Any
Kind = Literal["float", "integer", "bool", "complex", "other"]
#: As the standard calls them.
_KINDS: dict[Kind, str] = {
    "float": "real floating",
    "integer": "integral",
    "bool": "bool",
    "complex": "complex floating",
}
_NUMPY_KINDS: dict[str, Kind] = {
    "f": "float",
    "i": "integer",
    "u": "integer",
    "b": "bool",
    "c": "complex",
}


class Kernels:
    """Faster ways of a library to what else is computed by the standard; None
    without one.
    """

    def erfcx(self, y: Array) -> Array | None:
        """exp(y^2) erfc(y)."""
        return None

    def stability(self, kernel: str, logits: Any, width: Any) -> Array | None:
        """Label stability (n,) by the fused kernel of this name, or (m, n) of widths
        (m,).
        """
        return None

    def recompute(
        self,
        function: Callable[[Any, Any], Array],
        logits: Any,
        number: Any,
        floats_per_row: int,
    ) -> Array | None:
        """`function(logits, number)`, which is computed again for the gradient rather
        than kept; `floats_per_row` is the size of what would be kept.
        """
        return None

    def label_distances(self, logits: Any) -> tuple[Array, Array, Array] | None:
        """The sum of exp(-margin) over the other classes, the margin of the second
        class and the mean margin, (n,) each.
        """
        return None


class Lazy(Protocol):
    """What works on arrays that are not in memory, block by block."""

    def partition(self, logits: Array, labels: Any, sample_weight: Any) -> Any:
        """Examples in blocks, a `Partition`."""

    def map_rows(self, work: Callable[[Array], Array], array: Array) -> Array:
        """What `work` makes of blocks of rows, computed when asked for."""

    def reduce_rows(self, make: Callable[..., Any], combine: Any, arrays: Any) -> Any:
        """What `make` finds in each block of the arrays, combined."""


class Backend:
    """Arrays of a library: what they are, where, and how to convert them, as in the
    standard.
    """

    #: Approximate number of elements that a temporary array of a block may have.
    block_size = 1 << 24
    kernels = Kernels()
    #: For arrays that are not in memory; None if they are.
    lazy: Lazy | None = None
    #: Makes a context in which the library has float64.
    in_float64: Callable[[], AbstractContextManager[Any]] = nullcontext

    def namespace(self, array: Array) -> Namespace:
        return array_namespace(array)

    def check(self, array: Array, name: str) -> Array:
        """Return the array, or raise an error with the argument's name if it cannot
        be used.
        """
        return array

    def kind(self, array: Array) -> Kind:
        """The kind of its dtype."""
        return _kind_of(self.namespace(array), array.dtype)

    def to_host(self, array: Array) -> AnyArray:
        """As a NumPy array."""
        return (
            np.asarray(array) if hasattr(array, "__array__") else np.from_dlpack(array)
        )

    def from_host(self, array: AnyArray, like: Array) -> Array:
        """A NumPy array in this library, on the device of `like`."""
        return self.namespace(like).asarray(array, device=device(like))

    def host_view(self, array: Array) -> AnyArray | None:
        """A NumPy view without a copy if NumPy may compute on it, else None."""
        return None

    def is_traced(self, array: Array) -> bool:
        """Whether values are unknown because a graph is being recorded."""
        return False

    def queues_work(self, array: Array) -> bool:
        """Whether a look at a value waits for all work on it, as on a GPU."""
        return False

    def without_gradient(self, array: Array) -> Array:
        return array

    def follow(self, rounded: Array, smooth: Array) -> Array:
        """The rounded values, with the gradient of the smooth ones if there is one."""
        return rounded


@lru_cache(256)
def _kind_of(xp: Namespace, dtype: Any) -> Kind:
    return next(
        (kind for kind, name in _KINDS.items() if xp.isdtype(dtype, name)), "other"
    )


class NumpyBackend(Backend):
    """NumPy: blocks small enough for the cache, shared by threads."""

    block_size = 1 << 16  # 512 kB of float64

    def __reduce__(self) -> str:
        return "NUMPY"  # code asks for it by identity, after pickling as well

    def namespace(self, array: Array) -> Namespace:
        return np

    def kind(self, array: Array) -> Kind:
        return _NUMPY_KINDS.get(array.dtype.kind, "other")

    def from_host(self, array: AnyArray, like: Array) -> Array:
        return array

    def host_view(self, array: Array) -> AnyArray | None:
        return np.asarray(array)


NUMPY = NumpyBackend()
_STANDARD = Backend()
_backends: dict[str, Backend | str] = {"numpy": NUMPY}


def announce_backend(library: str, home: str) -> None:
    """Declare the module that has the `BACKEND` of a library; it is imported on
    first use.
    """
    _backends.setdefault(library, home)


def is_from(data: object, library: str) -> bool:
    """Whether the type of data, or a type that it extends, is of this library.

    >>> is_from(np.ma.masked_array([1.0]), "numpy"), is_from([1.0], "numpy")
    (True, False)
    """
    return library in _homes(type(data))  # type: ignore[arg-type]  # as below


def backend_of(data: Any) -> Backend | None:
    """The backend of an array; None for what is not an array of a library."""
    if type(data) is np.ndarray:
        return NUMPY
    homes = _homes(type(data))  # type: ignore[arg-type]  # classes are hashable
    library = next((home for home in homes if home in _backends), "")
    backend = _backends.get(library)
    if isinstance(backend, str):
        backend = _backends[library] = import_module(backend).BACKEND
    if backend is not None:
        return backend if hasattr(data, "shape") else None
    return _STANDARD if is_array_api_obj(data) else None


def lazy_arrays(data: object) -> Lazy | None:
    """What works on an array block by block; None for arrays in memory and other
    data.
    """
    backend = backend_of(data)
    return None if backend is None else backend.lazy


@lru_cache(256)
def _homes(kind: Any) -> tuple[str, ...]:
    """Packages of a type and its bases: a subclass is an array of its base's
    library.
    """
    return tuple(base.__module__.partition(".")[0] for base in kind.__mro__)


def to_host(array: Array) -> AnyArray:
    """An array of any library as a NumPy array: numbers per row, or sums."""
    backend = backend_of(array)
    return np.asarray(array) if backend is None else backend.to_host(array)


def to_float64(array: Array, xp: Namespace) -> Array:
    """As float64, without a copy if it already is."""
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def ignore_overflow(xp: Namespace = np) -> AbstractContextManager[Any]:
    """Suppress warnings about intended infinities. Torch gives none, and cannot
    trace this.
    """
    if xp.__name__.endswith("torch"):
        return nullcontext()
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")


def to_input_library(values: Array, like: Any) -> Array:
    """Convert predictions to the library, device and precision of the input.

    Floats are float64 for NumPy arrays and array-likes; for other libraries float32,
    unless the input was float64.
    """
    backend = backend_of(like)
    if backend is None or backend is NUMPY:
        return values
    if isinstance(values, np.ndarray):
        values = backend.from_host(values, like)
    xp = backend.namespace(like)
    if backend.kind(values) != "float" or like.dtype == xp.float64:
        return values
    narrow = backend.kind(like) == "float"
    return xp.astype(values, xp.float32 if narrow else xp.float64)


def float64_scope(data: Any) -> AbstractContextManager[Any]:
    """A context in which the library of an array, or of `Logits`, has float64."""
    backend = getattr(data, "backend", None)
    return (
        backend if isinstance(backend, Backend) else backend_of(data) or NUMPY
    ).in_float64()
