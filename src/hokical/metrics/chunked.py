"""Metrics that take chunks: a decorator, and the table of how each is then computed.

Chunks are (confidence, correct) or (confidence, correct, sample_weight); for `_full` metrics
(proba, labels). A list of them, an iterator, or a function that returns one takes the place of the
first argument: `ece(chunks, n_bins=10)`. Dask arrays are given as arrays are. `streamed.py` fills
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np

Metric = TypeVar("Metric", bound=Callable[..., Any])
#: Gets the metric itself, the chunks, what was given beside them, and the options.
Reader = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

READERS: dict[str, Reader] = {}

_ARRAYS = ("__array__", "__dlpack__", "shape")


def chunks_too(metric: Metric) -> Metric:
    """Let a metric take chunks and Dask arrays as well."""
    known = list(signature(metric).parameters)
    first, *second = known[:2]
    columns = [*(name for name in second if name != "sample_weight"), "sample_weight"]

    @wraps(metric)
    def call(*args: Any, **options: Any) -> Any:
        data = args[0] if args else options.get(first)
        if not in_chunks(data):
            return metric(*args, **options)
        for name in options:
            if name not in known:
                raise TypeError(f"{metric.__name__}() has no option `{name}`; it has {known}.")
        options.pop(first, None)
        beside = [options.pop(name, None) for name in columns]
        others = (*args[1:], *beside[len(args[1:]) :])
        return READERS[metric.__name__](metric, data, others, options)

    return cast(Metric, call)


def in_chunks(data: Any) -> bool:
    """Whether an argument holds chunks, returns them, or is an array of Dask's."""
    if is_dask(data):
        return True
    if isinstance(data, (list, tuple)):
        # The columns of a chunk have many entries; a row of probabilities has numbers.
        head = data[0] if data else None
        return isinstance(head, (list, tuple)) and len(head) > 0 and np.ndim(head[0]) > 0
    streams = callable(data) or isinstance(data, Iterable)
    return streams and not any(hasattr(data, name) for name in _ARRAYS)


def is_dask(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "dask"
