"""Work on blocks of rows: bounded memory, several threads, results in the order of the rows.

Every row is computed independently, so results do not depend on blocks or threads.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hokical._core.arrays import NUMPY, Array, to_host
from hokical._core.logits import FEW_COLUMNS
from hokical._core.parallel import cut_rows, map_slices
from hokical._core.types import AnyArray, FloatArray

Rows = TypeVar("Rows")


def rows_per_block(floats_per_row: int, block_size: int = NUMPY.block_size) -> int:
    """Number of rows per block, for that many float64 per row."""
    return max(1, block_size // max(1, floats_per_row))


def row_slices(n_rows: int, floats_per_row: int) -> list[slice]:
    """Slices of consecutive rows, about 2 MB of float64 each."""
    return cut_rows(n_rows, rows_per_block(floats_per_row))


def by_blocks(work: Callable[[Any], Any], logits: Any, floats_per_row: int | None = None) -> Any:
    """Apply `work` to consecutive blocks of rows; concatenate its results (rows, ...).

    `work` makes of `Logits` an array with one entry per row, or a tuple of such arrays, with so
    many temporary floats per row; by default as many as columns.
    """
    per_row = logits.n_columns if floats_per_row is None else floats_per_row
    if logits.is_traced:
        return work(logits)
    step = block_rows(logits, per_row)
    if logits.n_rows <= step:
        return work_on_rows(work, logits)
    parts = map_slices(
        lambda rows: work_on_rows(work, logits.take(rows)),
        logits.n_rows,
        step,
        threads=logits.is_numpy,
    )
    if isinstance(parts[0], tuple):
        return tuple(logits.xp.concat(list(column), axis=0) for column in zip(*parts, strict=True))
    return logits.xp.concat(parts, axis=0)


def work_on_rows(work: Callable[[Any], Any], block: Any) -> Any:
    """`work(block)`, where a single row of few columns is there twice.

    NumPy adds up the columns of several rows one after the other, but those of one row in pairs.
    """
    if not (block.is_numpy and block.n_rows == 1 and block.n_columns <= FEW_COLUMNS):
        return work(block)
    found = work(block.take(np.zeros(2, np.int64)))
    return tuple(part[:1] for part in found) if isinstance(found, tuple) else found[:1]


def block_rows(logits: Any, floats_per_row: int) -> int:
    """Rows per block of logits."""
    return rows_per_block(floats_per_row, logits.backend.block_size)


def per_row(
    work: Callable[[Any], Array], logits: Any, floats_per_row: int | None = None
) -> AnyArray:
    """`by_blocks` with the results on the host: for a few numbers per row."""
    return to_host(by_blocks(work, logits, floats_per_row))


def sum_over_blocks(logits: Any, work: Callable[[slice, Any], Any]) -> FloatArray:
    """Sum `work(rows, block)`, arrays of one shape, over all blocks in order.

    Block sums are added at the end, in order, so the number of threads changes nothing.
    """
    n_rows, step = logits.n_rows, block_rows(logits, logits.n_columns)
    if n_rows <= step:  # its margins may be known already
        return np.asarray(to_host(work(slice(0, n_rows), logits)))
    parts = map_slices(
        lambda rows: work(rows, logits.take(rows)), n_rows, step, threads=logits.is_numpy
    )
    return np.asarray(np.sum([to_host(part) for part in parts], axis=0))
