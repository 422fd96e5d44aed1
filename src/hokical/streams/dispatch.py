"""What is not an array in memory: sources, iterators, files, datasets, Zarr, Dask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from sklearn.utils.validation import check_is_fitted

from hokical._tensors import is_tensor, predict_tensor
from hokical.logits import Logits
from hokical.streams.blocks import Blocks, StreamBlocks
from hokical.streams.checking import checked_logits
from hokical.streams.chunks import Chunk
from hokical.streams.opening import open_source
from hokical.streams.sources import Source, from_arrays, from_chunks

Method = TypeVar("Method", bound=Callable[..., Any])

_ARRAYS = ("__array__", "__dlpack__", "shape")
_SLICED = ("zarr", "h5py")


def as_blocks(logits: Any, labels: Any = None, sample_weight: Any = None) -> Blocks | None:
    """Blocks of what is not in memory; None for arrays, which are."""
    if _library(logits) == "dask":
        from hokical.integrations.dask import DaskBlocks

        return DaskBlocks.from_arrays(logits, labels, sample_weight)
    chunks_in_a_list = isinstance(logits, (list, tuple)) and labels is None
    source = from_chunks(logits) if chunks_in_a_list else as_source(logits, labels, sample_weight)
    return None if source is None else StreamBlocks(source)


def as_source(data: Any, labels: Any = None, sample_weight: Any = None) -> Source | None:
    """A source of chunks, or None for what is an array, or reads like one."""
    if _library(data) in _SLICED:
        return from_arrays(data, labels, sample_weight)
    source = _chunked(data)
    if source is not None and not (labels is None and sample_weight is None):
        raise TypeError(
            "labels and weights come with the chunks of a source, as (logits, labels, "
            "sample_weight); they cannot be given beside it."
        )
    return source


def _chunked(data: Any) -> Source | None:
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, os.PathLike)) or _library(data) == "pyarrow":
        return open_source(data)
    if isinstance(data, (list, tuple)):
        return from_chunks(data) if _holds_chunks(data) else None
    if any(hasattr(data, name) for name in _ARRAYS):
        return None
    return from_chunks(data) if callable(data) or isinstance(data, Iterable) else None


def _holds_chunks(items: Sequence[Any]) -> bool:
    """Whether a list is one of chunks: its first has a matrix, where a row would have a number."""
    first = items[0] if items else None
    if isinstance(first, (Chunk, Mapping)):
        return True
    logits = first[0] if isinstance(first, (list, tuple)) and first else first
    return isinstance(logits, Logits) or len(getattr(logits, "shape", ())) == 2


def _library(data: Any) -> str:
    return type(data).__module__.split(".")[0]


def also_out_of_core(method: Method) -> Method:
    """Let a calibrator's `predict...` take what is not in memory as well.

    Of chunks it then gives an iterator of results, one per chunk; of a Dask array, a Dask array;
    of a tensor, a tensor.
    """

    @wraps(method)
    def call(self: Any, logits: Any, *args: Any, **options: Any) -> Any:
        if _library(logits) == "dask":
            from hokical.integrations.dask import predict_lazily

            return predict_lazily(self, method.__name__, logits)
        if is_tensor(logits):
            return predict_tensor(self, method.__name__, logits, **options)
        source = as_source(logits)
        if source is None:
            return method(self, logits, *args, **options)
        check_is_fitted(self, "n_classes_")
        return predicted_chunks(self, method.__name__, source)

    return cast(Method, call)


def predicted_chunks(calibrator: Any, method: str, source: Source, start: int = 0) -> Iterator[Any]:
    """A method's result for every chunk of a source from row `start` on."""
    predict = getattr(calibrator, method)
    for chunk in source.chunks(start):
        if chunk.n_rows:
            yield predict(checked_logits(chunk, start, calibrator))
            start += chunk.n_rows
