"""Fits that run at the same time share the limit on BLAS."""

from __future__ import annotations

import subprocess
import sys

import pytest
import scipy.linalg  # noqa: F401  (so that its BLAS is among those counted before)
from threadpoolctl import threadpool_info

from hokical._core.runtime import one_blas_thread


def test_fits_in_several_threads_leave_blas_as_it_was() -> None:
    def blas_threads() -> list[int]:
        return [
            each["num_threads"]
            for each in threadpool_info()
            if each["user_api"] == "blas"
        ]

    before, first, second = blas_threads(), one_blas_thread(), one_blas_thread()
    with one_blas_thread():
        alone = blas_threads()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == alone
    second.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.slow
def test_the_library_of_scipy_is_limited_too() -> None:
    """It has a BLAS of its own, which a fit loads late."""
    code = (
        "import sys\n"
        "from threadpoolctl import threadpool_info\n"
        "from hokical._core.runtime import one_blas_thread\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "with one_blas_thread():\n"
        "    import scipy.linalg\n"
        "    print({each['num_threads'] for each in threadpool_info()})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "{1}\n"
