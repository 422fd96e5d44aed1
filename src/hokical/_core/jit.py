"""Compiled kernels: compiler flags in one place, compilation on first use.

`@kernel` functions are compiled at their first call, so importing a module of kernels costs
nothing. A kernel rounds differently from NumPy, so the number of classes alone decides which of the
two answers (`has_kernels`): never the number of rows, nor what was compiled before.
"""

from collections.abc import Callable
from functools import cache, cached_property, partial, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# Sums may be reordered and fused, so that loops vectorise; the order is fixed at compile time, so
# results are reproducible. Infinities stay legal (masked classes).
_FAST = {"reassoc", "contract", "nsz", "arcp"}
# A maximum vectorises only if NaN may be ignored; validated logits have none.
_FAST_MAX = {"nnan", "nsz"}
#: Up to so many classes NumPy answers: it takes at most about twice as long as a kernel, and a
#: fresh process is done before numba would have been imported.
FEW_CLASSES = 16


class Kernel:
    """A function that is compiled at its first call, and cached on disk if possible."""

    def __init__(self, function: Callable[..., Any], fastmath: set[str]) -> None:
        self.function, self.fastmath = function, fastmath
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        numba = import_module("numba")
        scope = self.function.__globals__
        for name in self.function.__code__.co_names:
            callee = scope.get(name)  # once, as another thread may be replacing it
            if isinstance(callee, Kernel):  # numba needs its callees compiled
                scope[name] = callee.compiled
        options = {"nogil": True, "fastmath": self.fastmath, "error_model": "numpy"}
        try:
            compiled: Callable[..., Any] = numba.njit(cache=True, **options)(self.function)
        except RuntimeError:  # no writable cache directory, as in a container
            compiled = numba.njit(**options)(self.function)
        return compiled


#: Decorators: compile on first use, without the GIL; the second for loops that take maxima.
kernel, max_kernel = partial(Kernel, fastmath=_FAST), partial(Kernel, fastmath=_FAST_MAX)


@cache
def has_compiler() -> bool:
    """Whether numba is installed and can be imported, with this NumPy for example."""
    if find_spec("numba") is None:
        return False
    try:
        import_module("numba")
    except Exception:  # whatever its own or its dependencies' trouble is, NumPy does as well
        return False
    return True


def has_kernels(logits: Any, *_: Any) -> bool:
    """Whether compiled kernels answer for such rows: NumPy's, with more than a few classes."""
    return logits.is_numpy and logits.n_columns > FEW_CLASSES and has_compiler()
