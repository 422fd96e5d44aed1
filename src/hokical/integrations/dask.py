"""Dask arrays (extra `dask`): fits and metrics as reductions, predictions when asked for.

`fit(logits, labels)`, `predict...` and the metrics find their way here when they are given Dask
arrays. Every task is a pure function of its blocks, so a scheduler may run it again on another
worker when one dies: nothing is lost or counted twice. Hoki's table of unweighted rows is a sum of
whole numbers, and therefore the same to the bit however blocks are cut and wherever they are. Other
sums (fractional weights, the losses of `temps`, `vecs`, `ets`, `profile`) follow the blocks, and
agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._optional import import_optional
from hokical.logits import Logits, as_logits
from hokical.parallel import threads
from hokical.streams.blocks import Blocks, State, joined
from hokical.streams.checking import Block, checked_block
from hokical.streams.chunks import Chunk
from hokical.streams.gathering import check_room, gathered

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: How many results are combined in a task. Partial results never all meet in one place.
_FAN_IN = 8


def library(name: str = "dask") -> Any:
    """A module of Dask's."""
    return import_optional(name, "dask")


class DaskBlocks(Blocks):
    """Blocks of Dask arrays, worked on where they are."""

    def __init__(self, parts: list[tuple[Any, ...]], lengths: list[int], n_classes: int) -> None:
        self.parts, self.lengths, self.n_classes = parts, lengths, n_classes

    @classmethod
    def from_arrays(cls, logits: Any, labels: Any, sample_weight: Any = None) -> DaskBlocks:
        """Logits (n, classes), labels (n,) and weights (n,), in chunks of any sizes."""
        if labels is None:
            raise ValueError(
                "a fit requires y to be passed, but the target y is None: give `labels`, the true "
                "class of each row, beside a Dask array."
            )
        check_matrix(logits)
        columns = [labels] if sample_weight is None else [labels, sample_weight]
        arrays = aligned([logits, *columns])
        lengths = [int(length) for length in arrays[0].chunks[0]]
        parts = list(zip(*(_delayed_rows(array) for array in arrays), strict=True))
        return cls(parts, lengths, int(logits.shape[1]))

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        return tuple(np.asarray(array) for array in tree(self._results(work), combine))

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        check_room(sum(self.lengths) * row_bytes, who, f"{row_bytes} bytes of every row")
        return joined(library().compute(*self._results(work)))

    def _results(self, work: Callable[[Block], State]) -> list[Any]:
        """Delayed `work` of every block that has rows."""
        first_rows = np.cumsum([0, *self.lengths]).tolist()
        task = library().delayed(_work_on, pure=True)
        results = [
            task(work, part, first, self.n_classes)
            for part, first, length in zip(self.parts, first_rows, self.lengths, strict=False)
            if length
        ]
        if not results:
            raise ValueError("`logits` must have at least one row; got none.")
        return results

    def gather(self, who: str) -> tuple[Logits, IntArray, FloatArray | None]:
        check_room(sum(self.lengths) * (8 * self.n_classes + 24), who)
        blocks = library().compute(*self.parts)
        first_rows = np.cumsum([0, *self.lengths]).tolist()
        checked = (
            checked_block(Chunk(*block), first, self.n_classes)
            for block, first in zip(blocks, first_rows, strict=False)
            if len(block[0])
        )
        return gathered(checked, sum(self.lengths), who)

    def require_passes(self, who: str) -> None:
        """Dask computes its blocks as often as they are asked for."""


def predict_lazily(calibrator: Any, method: str, logits: Any) -> Any:
    """`method` of a fitted calibrator as a Dask array, computed block by block when asked for."""
    check_matrix(logits)
    whole = _whole_rows(logits)
    options: dict[str, Any] = {"dtype": np.int64 if method == "predict" else np.float64}
    if method == "predict_proba":
        options["meta"] = np.empty((0, 0), options["dtype"])
    else:
        options |= {"drop_axis": 1, "meta": np.empty((0,), options["dtype"])}
    as_logits(np.zeros((1, int(logits.shape[1]))), fitted_by=calibrator)  # the number of classes
    fitted = deepcopy(calibrator)  # a later fit must not change what is computed later
    return whole.map_blocks(_predict, calibrator=fitted, method=method, **options)


def reduce_arrays(
    make: Callable[..., Any], combine: Callable[[Any, Any], Any], arrays: Sequence[Any]
) -> Any:
    """`make` of every block of aligned arrays, combined in order where the blocks are."""
    given = [array for array in arrays if array is not None]
    together = aligned(given)
    lengths = together[0].chunks[0]
    parts = zip(*(_delayed_rows(array) for array in together), lengths, strict=True)
    task = library().delayed(_make_from, pure=True)
    results = [task(make, *part) for *part, length in parts if length]
    if not results:
        raise ValueError("arrays must have at least one row; got none.")
    return tree(results, combine)


def tree(results: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine delayed results in their order, a few at a time, and compute the last."""
    join = library().delayed(_joined, pure=True)
    while len(results) > 1:
        groups = [results[i : i + _FAN_IN] for i in range(0, len(results), _FAN_IN)]
        results = [join(combine, group) for group in groups]
    return results[0].compute()


def aligned(arrays: Sequence[Any]) -> list[Any]:
    """The arrays with whole rows, and cut at the same rows.

    Chunks of unknown sizes are counted first, which computes what made them unknown.
    """
    known = [_counted(as_dask(array)) for array in arrays]
    rows = known[0].chunks[0]
    for array in known[1:]:
        if array.shape[0] != known[0].shape[0]:
            raise ValueError(
                "all arrays must have as many rows; got "
                f"{[int(array.shape[0]) for array in known]}."
            )
    return [_whole_rows(array.rechunk({0: rows})) for array in known]


def as_dask(array: Any) -> Any:
    """A Dask array; an array in memory becomes one."""
    da = library("dask.array")
    return array if isinstance(array, da.Array) else da.from_array(np.asarray(array))


def check_matrix(logits: Any) -> None:
    if not isinstance(logits, library("dask.array").Array):
        raise TypeError(
            f"`logits` must be a Dask array; got {type(logits).__name__} of Dask. Use "
            "`frame.to_dask_array()` for a data frame."
        )
    if logits.ndim != 2 or np.isnan(logits.shape[1]):
        raise ValueError(
            f"`logits` must be 2-D (n, classes) with a known number of classes; got shape "
            f"{logits.shape}."
        )


def _counted(array: Any) -> Any:
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        return array.compute_chunk_sizes()
    return array


def _whole_rows(array: Any) -> Any:
    """The same with all columns of a row in one chunk."""
    return array.rechunk({1: -1}) if array.ndim == 2 and array.numblocks[1] > 1 else array


def _delayed_rows(array: Any) -> list[Any]:
    return list(array.to_delayed().reshape(-1))


def _work_on(
    work: Callable[[Block], State], part: tuple[Any, ...], first_row: int, n_classes: int
) -> State:
    with threads(1):  # Dask has a task per core already
        return work(checked_block(Chunk(*part), first_row, n_classes))


def _make_from(make: Callable[..., Any], *part: NDArray[Any]) -> Any:
    with threads(1):
        return make(*part)


def _joined(combine: Callable[[Any, Any], Any], results: list[Any]) -> Any:
    return reduce(combine, results)


def _predict(block: NDArray[Any], calibrator: Any, method: str) -> NDArray[Any]:
    if len(block):
        with threads(1):
            return np.asarray(getattr(calibrator, method)(block))
    columns = (calibrator.n_classes_,) if method == "predict_proba" else ()
    return np.empty((0, *columns), np.int64 if method == "predict" else np.float64)


@contextmanager
def on_cluster(address: str) -> Iterator[Callable[[Any, list[Any]], Iterator[Any]]]:
    """A function that maps a task over jobs on the workers of a scheduler, results in order.

    Files that jobs name must be seen under the same paths by all workers.
    """
    distributed = library("distributed")
    with distributed.Client(address) as client:

        def run(task: Any, jobs: list[Any]) -> Iterator[Any]:
            # Made by a task of its own, so that it can be made again when its worker dies. Not
            # pure: whether a file is there already is for the worker to find out.
            shared = client.submit(_itself, task, pure=False)
            yield from client.gather(client.map(_call, jobs, task=shared, pure=False))

        yield run


def _itself(task: Any) -> Any:
    return task


def _call(job: Any, task: Callable[[Any], Any]) -> Any:
    with threads(1):
        return task(job)
