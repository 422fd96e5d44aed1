"""How metrics read their examples: from arrays, from chunks, or from Dask arrays.

Chunks are (confidence, correct) or (confidence, correct, sample_weight); for `_full` metrics
(proba, labels). A list of them, an iterator, or a function that returns one replaces the first
argument: `ece(chunks, n_bins=10)`. Dask arrays are passed as arrays are. Both become sums that add
up, see `sums`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hokical._core.arrays import backend_of
from hokical._core.bins import check_count
from hokical._core.reading import to_numpy
from hokical._core.types import FloatArray
from hokical.metrics._binned_sums import BinnedSums, Bins, GapSums, gap_table
from hokical.metrics._examples import Examples, as_examples
from hokical.metrics._sums import MetricSums

Sums = TypeVar("Sums")
_ARRAYS = ("__array__", "__dlpack__", "shape")


def read_examples(confidence: Any, correct: Any, sample_weight: Any) -> Examples:
    """The examples; those of chunks at levels of confidence, see `sums`."""
    if is_chunked(confidence):
        columns = (confidence, correct, sample_weight)
        return add_chunks(MetricSums.from_examples, *columns).rounded_examples()
    return as_examples(confidence, correct, sample_weight)


def read_bins(
    confidence: Any, correct: Any, sample_weight: Any, n_bins: int, bins: Bins = "width"
) -> BinnedSums:
    """Per-bin sums."""
    columns = (confidence, correct, sample_weight)
    return _add_bins(BinnedSums.from_rows, columns, n_bins, bins)


def read_gaps(
    confidence: Any, correct: Any, sample_weight: Any, n_bins: int, bins: Bins
) -> GapSums:
    """The sums that calibration errors need, and no others."""
    columns = (confidence, correct, sample_weight)
    return GapSums.from_table(_add_bins(gap_table, columns, n_bins, bins))


def _add_bins(
    make: Callable[[Examples, int, Bins], Sums], columns: tuple[Any, ...], n_bins: int, bins: Bins
) -> Sums:
    """Sums by bin; equal-mass bins depend on all examples, those of chunks on their levels."""
    n_bins = check_count(n_bins)
    if bins == "mass":
        return make(read_examples(*columns), n_bins, bins)
    return add_chunks(lambda *chunk: make(as_examples(*chunk), n_bins, bins), *columns)


def mean_of_rows(
    score: Callable[[Any], FloatArray], read: Callable[..., Any], *columns: Any
) -> float:
    """The weighted mean of a score (n,) over rows that `read` checks, of arrays or chunks."""

    def make(*chunk: Any) -> FloatArray:
        rows = read(*chunk)
        weight = rows.filled_weight()
        return np.array([(weight * score(rows)).sum(), weight.sum()])

    total, weight = add_chunks(make, *columns)
    return float(total / weight)


def add_chunks(make: Callable[..., Sums], *columns: Any, **options: Any) -> Sums:
    """The sums `make(*columns, **options)` of arrays; of chunks or Dask arrays, added up."""
    if not is_chunked(columns[0]):
        return make(*columns, **options)
    found: Sums | None = None
    make_if_any = partial(sums_if_any, partial(make, **options))
    backend = backend_of(columns[0])
    if backend is not None and backend.is_lazy:
        found = backend.reduce_rows(make_if_any, plus, columns)
    else:
        if any(other is not None for other in columns[1:]):
            raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
        for chunk in columns[0]() if callable(columns[0]) else columns[0]:
            if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
                raise TypeError(
                    "a chunk must be (confidence, correct) or (confidence, correct, sample_weight),"
                    f" with (proba, labels) for `_full` metrics; got {type(chunk).__name__}."
                )
            found = plus(found, make_if_any(*chunk))
    if found is None:
        raise ValueError("there must be at least one chunk with rows of weight above 0; got none.")
    return found


def sums_if_any(make: Callable[..., Any], first: Any, second: Any, weight: Any = None) -> Any:
    """The sums of a chunk, or None if it has no rows of weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    if weight is None:
        return make(first, second)
    weights = to_numpy(weight, "sample_weight")
    if weights.any():
        return make(first, second, weights)
    make(first, second, np.ones(weights.shape))  # still raises for bad rows
    return None


def plus(sums: Any, others: Any) -> Any:
    """Sums of two chunks, either of which may be None."""
    return others if sums is None else sums if others is None else sums + others


def is_chunked(data: Any) -> bool:
    """Whether an argument holds chunks, returns them, or is a Dask array."""
    if is_lazy(data):
        return True
    if isinstance(data, (list, tuple)):
        # The columns of a chunk are arrays; a row of probabilities holds numbers.
        head = data[0] if data else None
        return isinstance(head, (list, tuple)) and len(head) > 0 and np.ndim(head[0]) > 0
    streams = callable(data) or isinstance(data, Iterable)
    return streams and not any(hasattr(data, name) for name in _ARRAYS)


def is_lazy(data: Any) -> bool:
    """Whether it is an array whose blocks are elsewhere, such as Dask's."""
    backend = backend_of(data)
    return backend is not None and backend.is_lazy
