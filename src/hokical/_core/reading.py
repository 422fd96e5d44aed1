"""Array-likes as NumPy arrays."""

import os
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from hokical._core.arrays import backend_of, library_of
from hokical._core.types import AnyArray, FloatArray
from hokical._core.warn import FitDataWarning, warn_user

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__", "shape")
_STREAMS = (
    "Files, datasets and chunks go through `hokical.streams`: "
    "`hokical.streams.fit(calibrator, source)`, `hokical.streams.predict(calibrator, source)`."
)


def to_numpy(data: Any, name: str) -> AnyArray:
    """An array-like as a NumPy array, without a copy where possible."""
    if type(data) is np.ndarray:  # what follows would load `np.ma`
        return data
    if data is None:
        raise TypeError(f"`{name}` must be an array; got None.")
    if isinstance(data, np.ma.MaskedArray):
        hint = " (logits: `.filled(-np.inf)`)" if name == "logits" else ""
        raise TypeError(f"`{name}` must not be a masked array; fill it first{hint}.")
    if isinstance(data, np.ndarray):
        return np.asarray(data) if isinstance(data, np.matrix) else data
    backend = backend_of(data)
    if backend is not None:
        return backend.to_host(backend.check(data, name))
    if library_of(data) == "scipy" and hasattr(data, "toarray"):
        raise TypeError(
            f"`{name}` must be dense; got a sparse {type(data).__name__}. Sparse data was passed, "
            "but dense data is required: use `.toarray()`."
        )
    if is_arrow_table(data) and data.num_columns:
        return np.column_stack([data.column(name).to_numpy() for name in data.column_names])
    if _is_stream(data):
        raise TypeError(f"`{name}` must be an array; got {type(data).__name__}. {_STREAMS}")
    try:
        if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
            return np.from_dlpack(data)
        return np.asarray(data)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"`{name}` of type {type(data).__name__} cannot be read as a NumPy array: {error}. "
            f"{_STREAMS}"
        ) from error


def to_floats(data: Any, name: str, kinds: str = "fiu") -> FloatArray:
    """Real numbers of any shape, as float64; "b" among the `kinds` of dtypes allows booleans."""
    array = to_numpy(data, name)
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"`{name}` must be real numbers; got dtype {array.dtype}. Use `.astype(float)`."
        )
    return array.astype(np.float64)


def first_true(mask: AnyArray) -> tuple[int, ...]:
    """The place of the first true entry; () if there is none.

    >>> first_true(np.array([[False, False], [True, True]]))
    (1, 0)
    """
    if not mask.any():
        return ()
    return tuple(int(i) for i in np.unravel_index(mask.argmax(), mask.shape))


def column_names(data: Any) -> tuple[str, ...]:
    """The columns of a frame, if all have text for a name; none of anything else."""
    names: tuple[Any, ...] = ()
    if library_of(data) in ("pandas", "polars"):
        names = tuple(data.columns)
    elif is_arrow_table(data):
        names = tuple(data.column_names)
    return names if all(isinstance(name, str) for name in names) else ()


def is_arrow_table(data: Any) -> bool:
    """Whether it is a table or a record batch of pyarrow."""
    return library_of(data) == "pyarrow" and hasattr(data, "column_names")


def order_columns(data: Any, name: str, known: tuple[str, ...], *, strict: bool = True) -> Any:
    """A frame with its columns in the order `known` from the fit; other data as they are.

    A frame with other names is refused if `strict`.
    """
    own = column_names(data)
    if own == known or not own or not known:
        return data
    if sorted(own) == sorted(known):
        return data.select(known) if is_arrow_table(data) else data[list(known)]
    if not strict:
        return data
    want, got = (", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (known, own))
    raise ValueError(
        f"`{name}` must have the columns used in `fit`, {want}; got {got}. Rename them, or pass "
        f"`{name}.to_numpy()` if they are the same columns in the same order."
    )


def check_row_order(first: Any, second: Any, name: str, of: str = "logits") -> None:
    """Refuse pandas' rows `name` whose index has the values of the other's in another order.

    Rows are paired by place. Where one index merely counts rows, it is a warning.
    """
    if library_of(first) != "pandas" or library_of(second) != "pandas":
        return
    left, right = first.index, second.index
    if left.equals(right) or not left.sort_values().equals(right.sort_values()):
        return
    message = (
        f"`{name}` must have its rows in the order of `{of}`, with which they are paired by "
        f"place; got an index with the same values in another order. Use `{name}.loc[{of}.index]`"
        f", or `{name}.to_numpy()` if the order is right."
    )
    if any(type(index).__name__ == "RangeIndex" for index in (left, right)):
        warn_user(message, FitDataWarning)
    else:
        raise ValueError(message)


def _is_stream(data: Any) -> bool:
    """Whether it is a path, a dataset, an iterator or a function instead of an array."""
    if isinstance(data, (str, bytes, os.PathLike)):
        return True
    if library_of(data) == "pyarrow" and hasattr(data, "schema"):  # rows with labels, not a matrix
        return True
    return not isinstance(data, (Sequence, Number)) and not any(hasattr(data, a) for a in _ARRAYS)
