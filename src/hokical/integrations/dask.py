"""Dask arrays (extra `dask`): fits and metrics as reductions, predictions when asked
for.

`fit(logits, labels)`, `predict...` and the metrics find their way here through
`BACKEND` when they are given Dask arrays. Every task is a pure function of its blocks,
so a scheduler may run it again on another worker when one dies: nothing is lost or
counted twice. Hoki's table of unweighted rows is a sum of whole numbers, and therefore
the same to the bit however the blocks are cut. Other methods are fitted in memory on
all rows or, of more than 4 million logits, on a sample of rows that does not depend on
the blocks.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from hokical._core.arrays import AnyArray, Array, NumpyBackend
from hokical._core.reading import Rows
from hokical._core.runtime import import_optional, threads
from hokical._fitting.examples import Examples, Partition
from hokical.streams import check_block

#: Results that a task combines, so that not all of them meet in one place.
_FAN_IN = 8
#: Imports a module of Dask's.
import_dask = partial(import_optional, extra="dask")


class DaskBackend(NumpyBackend):
    """Lazy arrays of NumPy blocks; operations without a lazy form compute them."""

    def partition(self, logits: Array, labels: Any, sample_weight: Any) -> Partition:
        return DaskPartition(logits, labels, sample_weight)

    def map_rows(self, work: Callable[[Any], Any], array: Array) -> Array:
        """The results of `work` for blocks of rows, as a Dask array."""
        _check_matrix(array)
        # One row gives the type of the results, or an error at once.
        empty = _map_block(np.zeros((1, int(array.shape[1]))), work)[:0]
        rows = _whole_rows(array)
        shape: dict[str, Any] = {"drop_axis": 1}
        if empty.ndim > 1:
            shape = {"chunks": (rows.chunks[0], empty.shape[1:])}
        return rows.map_blocks(
            _map_block, work, dtype=empty.dtype, meta=empty, empty=empty, **shape
        )

    def reduce_rows(
        self,
        make: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        arrays: Sequence[Any],
    ) -> Any:
        blocks = _align(arrays)
        return _reduce_tree([(make, *block) for block, _ in blocks], combine)


BACKEND = DaskBackend()
BACKEND.lazy = BACKEND


class DaskPartition(Partition):
    """Blocks of Dask arrays, which are read on their workers.

    `logits` (n, classes) are a Dask array; `labels` and `sample_weight` (n,), or None,
    are in chunks of any sizes, or in memory.
    """

    def __init__(self, logits: Any, labels: Any, sample_weight: Any = None) -> None:
        if labels is None:
            raise ValueError(
                "a fit requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row, beside a Dask array."
            )
        _check_matrix(logits)
        self.blocks = _align([logits, labels, sample_weight])
        self.n_classes = int(logits.shape[1])

    def reduce(self, work: Callable[[Examples], Any]) -> Any:
        blocks = [(_work_on, work, *block, self.n_classes) for block in self.blocks]
        return _reduce_tree(blocks, operator.add)


def _reduce_tree(tasks: list[tuple[Any, ...]], combine: Callable[..., Any]) -> Any:
    """The results of calls for blocks, combined in order, a few at a time."""
    if not tasks:
        raise ValueError("arrays must have at least one row; got none.")
    delayed = partial(import_dask("dask").delayed, pure=True)
    join = delayed(reduce)
    results = [delayed(_call)(*task) for task in tasks]
    while len(results) > 1:
        groups = [results[i : i + _FAN_IN] for i in range(0, len(results), _FAN_IN)]
        results = [join(combine, group) for group in groups]
    return results[0].compute()


def _align(arrays: Sequence[Any]) -> list[tuple[list[Any], int]]:
    """Delayed blocks of the arrays that are not None, and the numbers of their first
    rows.

    Blocks have the rows of the first array's, and at least one. Chunks of unknown sizes
    are counted first, which computes them.
    """
    lazy = [_with_sizes(array) for array in arrays if array is not None]
    counts = [int(array.shape[0]) for array in lazy]
    if len(set(counts)) > 1:
        raise ValueError(f"all arrays must have as many rows; got {counts}.")
    sizes = lazy[0].chunks[0]
    columns = [
        _whole_rows(array.rechunk({0: sizes})).to_delayed().reshape(-1)
        for array in lazy
    ]
    first_rows = np.cumsum([0, *sizes[:-1]]).tolist()
    blocks = map(list, zip(*columns, strict=True))
    return [
        (block, first_row)
        for block, first_row, size in zip(blocks, first_rows, sizes, strict=True)
        if size
    ]


def _with_sizes(array: Any) -> Any:
    """A Dask array whose chunks have known sizes."""
    da = import_dask("dask.array")
    lazy = array if isinstance(array, da.Array) else da.from_array(np.asarray(array))
    is_unknown = any(np.isnan(size) for sizes in lazy.chunks for size in sizes)
    return lazy.compute_chunk_sizes() if is_unknown else lazy


def _whole_rows(array: Any) -> Any:
    """The array with all columns of a row in one chunk."""
    if array.ndim == 2 and array.numblocks[1] > 1:
        return array.rechunk({1: -1})
    return array


def _check_matrix(logits: Any) -> None:
    if not isinstance(logits, import_dask("dask.array").Array):
        raise TypeError(
            f"`logits` must be a Dask array; got {type(logits).__name__} of Dask. Use "
            "`frame.to_dask_array()` for a data frame."
        )
    if logits.ndim != 2 or np.isnan(logits.shape[1]):
        raise ValueError(
            "`logits` must be 2-D (n, classes) with a known number of classes; got "
            f"shape {logits.shape}."
        )


def _call(task: Callable[..., Any], *arguments: Any) -> Any:
    with threads(1):  # Dask has a task per core already
        return task(*arguments)


def _work_on(
    work: Callable[[Examples], Any], block: Any, first_row: int, n_classes: int
) -> Any:
    return work(check_block(Rows(*block), first_row, n_classes))


def _map_block(
    block: AnyArray, work: Callable[[Any], Any], empty: Any = None
) -> AnyArray:
    if not len(block):
        return np.asarray(empty)
    with threads(1):
        return np.asarray(work(block))
