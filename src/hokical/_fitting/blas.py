"""BLAS on one thread while our own threads work."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_LOCK = Lock()
#: The limit that is in force, once for every context that is open, in whatever thread.
_OPEN: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS has one thread, until the last of those in it leaves.

    Blocks of rows run on our threads. BLAS threads would change the order of sums, and on a busy
    machine they mostly wait for each other.
    """
    with _LOCK:
        _OPEN.append(_OPEN[0] if _OPEN else _find_libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            limit = _OPEN.pop()
            if not _OPEN:
                limit.restore_original_limits()


@cache
def _find_libraries() -> Any:
    """The BLAS libraries of NumPy and SciPy; finding them takes as long as a small fit."""
    import scipy.linalg  # noqa: F401  (its BLAS is found once it is loaded)
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()
