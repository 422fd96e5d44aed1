"""Compiled loops: which rows they compute, and how they are compiled.

Modules of kernels import numba, so they are imported where an `if has_kernels(...)` needs them. A
kernel rounds differently from NumPy, so the number of classes alone decides between the two: never
the number of rows, nor what was compiled before.
"""

from collections.abc import Callable, Collection
from functools import cache
from importlib import import_module
from typing import Any

# Sums may be reordered and fused, so that loops vectorise; the order is fixed at compile time, so
# results are reproducible. Infinities stay legal (masked classes).
_FAST = ("reassoc", "contract", "nsz", "arcp")
#: For loops that take maxima, which vectorise only if NaN may be ignored; checked logits have none.
MAXIMA = ("nnan", "nsz")
#: Up to this many classes NumPy computes: it takes at most about twice as long as a kernel, and a
#: fresh process is done before numba would have been imported.
FEW_CLASSES = 16


def kernel(
    function: Callable[..., Any], *, fastmath: Collection[str] = _FAST
) -> Callable[..., Any]:
    """Compile at the first call, without the GIL, and keep on disk where that is possible."""
    njit: Any = import_module("numba").njit
    options = {"nogil": True, "fastmath": {*fastmath}, "error_model": "numpy"}
    try:
        compiled: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError:  # no writable cache directory, as in a container
        compiled = njit(**options)(function)
    return compiled


@cache
def has_compiler() -> bool:
    """Whether numba is installed and can be imported, with this NumPy for example."""
    try:
        import_module("numba")
    except Exception:  # whatever its own or its dependencies' trouble is, NumPy does as well
        return False
    return True


def has_kernels(logits: Any) -> bool:
    """Whether compiled kernels compute these rows: NumPy's, with more than a few classes."""
    return logits.is_numpy and logits.n_columns > FEW_CLASSES and has_compiler()
