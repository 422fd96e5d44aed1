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

from hokical.core.arrays import backend_of
from hokical.core.bins import check_count
from hokical.core.reading import to_numpy
from hokical.core.types import FloatArray
from hokical.metrics.binned_sums import BinnedSums, Bins, gap_sums
from hokical.metrics.checks import Examples, as_examples
from hokical.metrics.sums import MetricSums

Sums = TypeVar("Sums")
_ARRAYS = ("__array__", "__dlpack__", "shape")


def read_examples(confidence: Any, correct: Any, sample_weight: Any) -> Examples:
    """The examples; those of chunks at levels of confidence, see `sums`."""
    if is_chunked(confidence):
        columns = (confidence, correct, sample_weight)
        return sum_chunks(MetricSums.from_examples, *columns).rounded_examples()
    return as_examples(confidence, correct, sample_weight)


def read_bins(
    confidence: Any, correct: Any, sample_weight: Any, n_bins: int, bins: Bins = "width"
) -> BinnedSums:
    """Per-bin sums; equal-mass bins of chunks come from the levels."""
    columns = (confidence, correct, sample_weight)
    if is_chunked(confidence) and bins == "width":
        limits = {"n_bins": check_count(n_bins), "levels": False}
        return sum_chunks(MetricSums.from_examples, *columns, **limits).binned
    return BinnedSums.from_rows(read_examples(*columns), n_bins, bins)


def read_gaps(
    confidence: Any, correct: Any, sample_weight: Any, n_bins: int, bins: Bins
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gap, weight and correct of each bin, (J,); of arrays without the other sums."""
    if is_chunked(confidence):
        sums = read_bins(confidence, correct, sample_weight, n_bins, bins)
        return sums.gap, sums.weight, sums.correct
    return gap_sums(as_examples(confidence, correct, sample_weight), check_count(n_bins), bins)


def sum_chunks(
    make: Callable[..., Sums], data: Any, second: Any, sample_weight: Any, **options: Any
) -> Sums:
    """The sums `make(..., **options)` of chunks, or of Dask arrays, where their blocks are."""
    found: Sums | None
    others = (second, sample_weight)
    make_if_any = partial(sums_if_any, partial(make, **options))
    backend = backend_of(data)
    if backend is not None and backend.is_lazy:
        found = backend.reduce_rows(make_if_any, plus, (data, *others))
    else:
        if any(other is not None for other in others):
            raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
        chunks = data() if callable(data) else data
        found = None
        for chunk in chunks:
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
