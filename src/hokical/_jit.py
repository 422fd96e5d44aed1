"""All compiler flags in one place. Importing this module imports numba, so do it late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered and fused, which lets loops become SIMD; the order is fixed when the
# kernel is compiled, so results repeat. Infinities stay legal (masked classes).
_FAST = {"reassoc", "contract", "nsz", "arcp"}
# A maximum becomes SIMD only if NaN may be ignored, and validated logits hold none.
_FAST_MAX = {"nnan", "nsz"}


def kernel(function: Function) -> Function:
    """Compile on first use, without the GIL, and keep the result on disk where that is allowed."""
    return _compile(function, _FAST)


def max_kernel(function: Function) -> Function:
    """`kernel` for loops that take maxima."""
    return _compile(function, _FAST_MAX)


def _compile(function: Function, fastmath: set[str]) -> Function:
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache, as in a locked-down container
        compiled = numba.njit(**options)(function)
    return compiled  # type: ignore[no-any-return]
