"""How metrics read their examples: from arrays, from chunks, or from Dask arrays.

A chunk is (proba, labels) or (proba, labels, sample_weight). A list of them, an iterator, or a
function that returns one replaces the first argument: `ece(chunks, n_bins=10)`. Dask arrays are
passed as arrays are. Both become sums that add up.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hokical._core.arrays import backend_of
from hokical._core.reading import to_numpy
from hokical.metrics._examples import as_examples
from hokical.metrics._levels import Levels, LevelSums

Sums = TypeVar("Sums")
_ARRAYS = ("__array__", "__dlpack__", "shape")


def level_sums(proba: Any, labels: Any, sample_weight: Any = None) -> LevelSums:
    """Counts by level of confidence, of the arrays of one chunk."""
    return LevelSums.from_rows(as_examples(proba, labels, sample_weight))


def read_levels(proba: Any, labels: Any, sample_weight: Any) -> Levels:
    """The table of levels, from a metric's arguments."""
    return add_chunks(level_sums, proba, labels, sample_weight).levels


def add_chunks(make: Callable[..., Sums], *columns: Any) -> Sums:
    """The sums `make(*columns)` of arrays; of chunks or Dask arrays, added up."""
    if not is_chunked(columns[0]):
        return make(*columns)
    found: Sums | None = None
    shapes = set[int]()
    make_if_any = partial(sums_if_any, make)
    backend = backend_of(columns[0])
    if backend is not None and backend.is_lazy:
        found = backend.reduce_rows(make_if_any, plus, columns)
    else:
        if any(other is not None for other in columns[1:]):
            raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
        for chunk in columns[0]() if callable(columns[0]) else columns[0]:
            if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
                raise TypeError(
                    "a chunk must be (proba, labels) or (proba, labels, sample_weight); got "
                    f"{type(chunk).__name__}."
                )
            shapes.add(np.ndim(chunk[0]))
            if len(shapes) > 1:
                raise ValueError(
                    "chunks must all have probabilities (n, classes), or all confidences (n,); got "
                    "both."
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
    backend = backend_of(data)
    if backend is not None and backend.is_lazy:
        return True
    if isinstance(data, (list, tuple)):
        # The columns of a chunk are arrays; a row of probabilities holds numbers.
        head = data[0] if data else None
        return isinstance(head, (list, tuple)) and len(head) > 0 and np.ndim(head[0]) > 0
    streams = callable(data) or isinstance(data, Iterable)
    return streams and not any(hasattr(data, name) for name in _ARRAYS)
