"""A decorator that lets metrics take chunks and Dask arrays.

Chunks are (confidence, correct) or (confidence, correct, sample_weight); for `_full` metrics
(proba, labels). A list of them, an iterator, or a function that returns one replaces the first
argument: `ece(chunks, n_bins=10)`. Dask arrays are passed as arrays are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np

from hokical.core.arrays import backend_of

Metric = TypeVar("Metric", bound=Callable[..., Any])

#: How a metric is computed from the chunks, the arguments beside them, and options, by its name.
#: Filled by `streamed.py`.
READERS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {}

_ARRAYS = ("__array__", "__dlpack__", "shape")


def takes_chunks(metric: Metric) -> Metric:
    """Let a metric take chunks and Dask arrays too."""
    known = list(signature(metric).parameters)
    first, *second = known[:2]
    columns = [*(name for name in second if name != "sample_weight"), "sample_weight"]

    @wraps(metric)
    def call(*args: Any, **options: Any) -> Any:
        data = args[0] if args else options.get(first)
        if not is_chunked(data):
            return metric(*args, **options)
        for name in options:
            if name not in known:
                raise TypeError(f"{metric.__name__}() has no option `{name}`; it has {known}.")
        options.pop(first, None)
        beside = [options.pop(name, None) for name in columns]
        others = (*args[1:], *beside[len(args[1:]) :])
        return READERS[metric.__name__](data, others, options)

    return cast(Metric, call)


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
