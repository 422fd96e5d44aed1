"""Array-likes as NumPy arrays, and tables of any Arrow engine, whose columns are named instead."""

import os
import re
from collections.abc import Mapping, Sequence
from numbers import Number
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import backend_of, library_of
from hokical._core.types import AnyArray, FloatArray
from hokical._core.warn import FitDataWarning, warn_user

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__", "shape")
#: What may stand before the name or number of a class in that of its column.
_PREFIX = re.compile(r"\s*(?:logit_|prob(?:a|ability)?_|z_?(?=\d+$))(?=.)", re.IGNORECASE)
_STREAMS = (
    "Files, datasets and chunks go through `hokical.streams`: "
    "`hokical.streams.fit(calibrator, source)`, `hokical.streams.predict(calibrator, source)`."
)


class Rows(NamedTuple):
    """Scores, and the label, weight and groups of each row, None where they are not given.

    Of a frame or table also the names of its `columns` of scores and of their `classes`, and
    `about` them what later tables need to be read in the same way.
    """

    scores: Any
    labels: Any = None
    weights: Any = None
    groups: Any = None
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = MappingProxyType({})


def pair_rows(
    scores: Any, labels: Any, weights: Any, groups: Any, names: Sequence[str] = ("logits", "labels")
) -> Rows:
    """Rows of one order; errors call scores and labels by these names."""
    for name, part in ((names[1], labels), ("sample_weight", weights), ("groups", groups)):
        for each in part.values() if isinstance(part, Mapping) else (part,):
            check_row_order(scores, each, name, names[0])
    return Rows(scores, labels, weights, groups, column_names(scores))


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
    """The columns of a frame, if all have text or a number for a name; none of anything else.

    Nor of a frame whose columns are merely numbered 0, 1, ..., in this order.
    """
    names = _given_names(data)
    return () if names == (*range(len(names)),) else tuple(map(str, names))


def _given_names(data: Any) -> tuple[str | int, ...]:
    names: tuple[Any, ...] = ()
    if library_of(data) in ("pandas", "polars"):
        names = tuple(getattr(data, "columns", ()))
    elif is_arrow_table(data):
        names = tuple(data.column_names)
    return names if all(isinstance(name, (str, int, np.integer)) for name in names) else ()


def match_columns(own: Sequence[str], known: Sequence[str]) -> list[int] | None:
    """The place of each known name among one's own; None if they are other names.

    Names are equal with or without what files write before the name of a class.

    >>> match_columns(["logit_dog", "logit_cat"], ["cat", "dog"])
    [1, 0]
    """
    for change in (str, class_of_column):
        place = {change(name): k for k, name in enumerate(own)}
        wanted = [*map(change, known)]
        if len(own) == len(known) == len(place) and {*wanted} == {*place}:
            return [place[name] for name in wanted]
    return None


def class_of_column(name: str) -> str:
    """The name of a class, from that of its column.

    >>> class_of_column("logit_cat")
    'cat'
    """
    return _PREFIX.sub("", name, count=1)


def order_names(given: Sequence[str], known: Any) -> tuple[str, ...]:
    """Names of columns in the order that a calibrator knows, by them or by the classes' names.

    Numbered columns are in the order of the numbers, where the classes alone have names. Others are
    refused.
    """
    own = [known._columns, known.class_names]
    for names in own:
        if names and (places := match_columns(given, names)) is not None:
            return tuple(given[k] for k in places)
    if not any(own):
        return tuple(given)
    numbers = [class_of_column(name) for name in given]
    if not own[0] and sorted(numbers) == sorted(map(str, range(len(numbers)))):
        return tuple(given[numbers.index(str(k))] for k in range(len(numbers)))
    raise ValueError(
        f"columns must be {describe_columns(given, own[0] or own[1])}. Rename them, or pass one "
        "column of lists in the order of the fit."
    )


def describe_columns(own: Sequence[str], known: Sequence[str]) -> str:
    """That columns must be those known, and which are missing, or too many."""

    def listed(names: Sequence[str]) -> str:
        return ", ".join(names[:6]) + ", ..." * (len(names) > 6)

    parts = {
        "missing": [name for name in known if name not in own],
        "not in the fit": [name for name in own if name not in known],
    }
    told = "; ".join(f"{what}: {listed(names)}" for what, names in parts.items() if names)
    return f"the columns used in `fit`, {listed(known)}; got {listed(own)} ({told})"


def is_arrow_table(data: Any) -> bool:
    """Whether it is a table or a record batch of pyarrow."""
    return library_of(data) == "pyarrow" and hasattr(data, "column_names")


def order_columns(data: Any, name: str, known: tuple[str, ...], *, strict: bool = True) -> Any:
    """A frame with its columns in the order `known` from the fit; other data as they are.

    A frame with other names is refused if `strict`. Where no names are known, columns that are
    numbered 0, 1, ... in any order are put in this one.
    """
    given = _given_names(data)
    if not given:
        return data
    own, numbers = [*map(str, given)], [*map(str, range(len(given)))]
    places = match_columns(own, known)
    if places is None and sorted(own) == sorted(numbers) and not (known and strict):
        places = [own.index(number) for number in numbers]
    if places is not None and places != [*range(len(own))]:
        names = [given[k] for k in places]
        return data.select(names) if is_arrow_table(data) else data[names]
    if places is not None or not (strict and known and column_names(data)):
        return data
    raise ValueError(
        f"`{name}` must have {describe_columns(own, known)}. Rename them, or pass "
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


def to_column(column: Any) -> AnyArray:
    """A column of Arrow (n,); with nulls it holds objects, so that whole numbers stay whole."""
    if column.null_count:
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())
