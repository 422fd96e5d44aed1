"""Fits that run at the same time share the limit on BLAS."""

from __future__ import annotations

from threadpoolctl import threadpool_info

from hokical.fitting.blas import one_blas_thread


def test_fits_in_several_threads_leave_blas_as_it_was() -> None:
    def blas_threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]

    before, first, second = blas_threads(), one_blas_thread(), one_blas_thread()
    with one_blas_thread():
        alone = blas_threads()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == alone
    second.__exit__(None, None, None)
    assert blas_threads() == before
