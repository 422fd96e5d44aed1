"""Scores, labels and weights as NumPy arrays, from array-likes and from tables of any
Arrow engine.

Labels and weights are one of each per row of logits, on the host. Columns of tables are
named.
"""

import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from hokical._core.arrays import (
    AnyArray,
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    backend_of,
    is_from,
)
from hokical._core.runtime import FitDataWarning, warn_user

#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53
_ARRAYS = ("__array__", "__array_interface__", "__dlpack__", "shape")
#: The libraries of frames, and the attribute in which each has the names of columns.
_COLUMN_ATTRIBUTES = {
    "pandas": "columns",
    "polars": "columns",
    "modin": "columns",
    "cudf": "columns",
    "dask": "columns",
    "narwhals": "columns",
    "pyarrow": "column_names",
}
#: What may stand before the name or number of a class in that of its column.
_PREFIX = re.compile(
    r"\s*(?:logit_|prob(?:a|ability)?_|z_?(?=\d+$))(?=.)", re.IGNORECASE
)
_STREAMS = (
    "Files, datasets and chunks go through `hokical.streams`: "
    "`hokical.streams.fit(calibrator, source)`, `hokical.streams.predict(calibrator, "
    "source)`."
)
_MAPPING = (
    "Several evaluations of each example, by name, are a `hokical.Ensemble(...)`."
)
_SIGNALS = "Several signals are columns: pass `pandas.DataFrame(confidence)`."


@dataclass(frozen=True, eq=False)
class Rows:
    """Scores and what belongs to each: what every reader of arrays, files and chunks
    returns.

    Attributes
    ----------
    scores : logits (n, classes), or confidences (n,) if `kind` is "confidence"
    labels : class indices (n,); of confidences, 1 if right and 0 if wrong; of a file,
        -1 where there is none
    weights, groups : the weight and the groups of each row
    ids : the item that each row belongs to
    columns, classes : names of the columns of scores, if each class has one, and of the
        classes
    about : what later files and tables need to be read in the same way
    used : whether a row of the file (all rows,) has a score, and so is one of the n
        rows
    part : "val" or "test" if the file has parts
    kept : other columns of the file (all rows,), by name
    unused : columns that are used for nothing, though they might hold scores

    None, or nothing, is what is not given.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.io import Rows
    >>> rows = Rows(np.zeros((3, 2)), np.array([0, 1, 1]))
    >>> rows.n_rows, rows.n_classes, rows.take(slice(1, 3)).labels.tolist()
    (3, 2, [1, 1])
    """

    scores: Any
    labels: Any = None
    weights: Any = None
    groups: Any = None
    ids: Any = None
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["logits", "confidence"] = "logits"
    used: Any = None
    part: Literal["val", "test"] | None = None
    kept: Mapping[str, AnyArray] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        return int(getattr(self.scores, "n_rows", None) or self.scores.shape[0])

    @property
    def n_classes(self) -> int:
        """Of logits."""
        return int(getattr(self.scores, "n_classes", None) or self.scores.shape[1])

    @property
    def n_dropped(self) -> int:
        return 0 if self.used is None else int((~self.used).sum())

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the rows, by a slice, a mask or by number: scores, labels and
        weights.
        """
        scores = self.scores
        selected = scores.take(rows) if hasattr(scores, "n_rows") else scores[rows]
        beside = (self.labels, self.weights)
        labels, weights = (
            None if column is None else column[rows] for column in beside
        )
        return type(self)(selected, labels, weights)

    def fill(self, values: AnyArray) -> AnyArray:
        """Values (n, ...) in their places among all rows of the file; the others are
        empty.
        """
        if not self.n_dropped:
            return values
        shape = (len(self.used), *values.shape[1:])
        if values.dtype.kind == "f":
            filled = np.full(shape, np.nan, values.dtype)
        else:
            filled = np.full(shape, None, object)
        filled[self.used] = values
        return filled


def pair_rows(
    scores: Any,
    labels: Any,
    weights: Any,
    groups: Any,
    names: Sequence[str] = ("logits", "labels"),
) -> Rows:
    """Rows of one order; errors call scores and labels by these names."""
    if type(scores) is np.ndarray:  # has neither an index nor names
        return Rows(scores, labels, weights, groups)
    for name, data in (
        (names[1], labels),
        ("sample_weight", weights),
        ("groups", groups),
    ):
        for column in data.values() if isinstance(data, Mapping) else (data,):
            check_row_order(scores, column, name, names[0])
    return Rows(scores, labels, weights, groups, columns=column_names(scores))


def to_numpy(data: Any, name: str) -> AnyArray:
    """An array-like as a NumPy array, without a copy where possible."""
    if type(data) is np.ndarray:  # what follows would load `np.ma`
        return infer_numbers(data)
    if data is None:
        raise TypeError(f"`{name}` must be an array; got None.")
    if isinstance(data, np.ma.MaskedArray):
        hint = " (logits: `.filled(-np.inf)`)" if name == "logits" else ""
        raise TypeError(f"`{name}` must not be a masked array; fill it first{hint}.")
    if isinstance(data, np.ndarray):
        return infer_numbers(np.asarray(data))
    backend = backend_of(data)
    if backend is not None:
        return backend.to_host(backend.check(data, name))
    columns = frame_columns(data) if is_from(data, "pyarrow") else ()
    if columns:
        return np.column_stack([data.column(column).to_numpy() for column in columns])
    _refuse_no_array(data, name)
    try:
        if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
            return np.from_dlpack(data)
        return infer_numbers(np.asarray(data))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        message = (
            f"`{name}` of type {type(data).__name__} cannot be read as a NumPy array"
        )
        cause = str(error).rstrip(".")
        raise TypeError(f"{message}: {cause}. {_STREAMS}") from error


def _refuse_no_array(data: object, name: str) -> None:
    """Raise for sparse matrices, paths, datasets (rows with labels, not a matrix),
    iterators and functions.
    """
    kind = type(data).__name__
    if is_from(data, "scipy") and hasattr(data, "toarray"):
        raise TypeError(
            f"`{name}` must be dense; got a sparse {kind}. Sparse data was passed, but "
            "dense data is required: use `.toarray()`."
        )
    is_array_like = isinstance(data, (Sequence, Number)) or any(
        hasattr(data, attribute) for attribute in _ARRAYS
    )
    is_text = isinstance(data, (str, bytes, os.PathLike))
    is_dataset = is_from(data, "pyarrow") and hasattr(data, "schema")
    if is_text or is_dataset or not is_array_like:
        by_name = _SIGNALS if name == "confidence" else _MAPPING
        remedy = by_name if isinstance(data, Mapping) else _STREAMS
        raise TypeError(f"`{name}` must be an array; got {kind}. {remedy}")


def infer_numbers(array: AnyArray) -> AnyArray:
    """Objects that are all numbers, or all booleans, as such; other arrays as they are.

    So are the floats of `ml_dtypes`, bfloat16 among them, which NumPy does not know.

    >>> infer_numbers(np.array([1, 2], object)).dtype.kind
    'i'
    """
    if array.dtype != object:
        is_foreign = array.dtype.type.__module__ == "ml_dtypes"
        is_float = is_foreign and "float" in array.dtype.name
        return array.astype(np.float32) if is_float else array
    try:
        numbers = np.array(array.tolist())
    except ValueError:  # lists of different lengths
        return array
    is_same = numbers.shape == array.shape and numbers.dtype.kind in "biuf"
    return numbers if is_same else array


def is_missing(array: AnyArray) -> BoolArray:
    """Which entries stand for a missing value: None, NaN, NaT, and NA of pandas.

    >>> is_missing(np.array([1.0, None, float("nan"), "a"], object)).tolist()
    [False, True, True, False]
    """
    if array.dtype.kind in "biuSU":
        return np.zeros(array.shape, np.bool_)
    if array.dtype.kind in "fcmM":
        return np.isnan(array)
    missing = map(is_missing_value, array.ravel().tolist())
    return np.fromiter(missing, np.bool_, array.size).reshape(array.shape)


def is_missing_value(value: object) -> bool:
    """Whether a value stands for a missing one."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # NA of pandas is neither equal to itself nor unequal
        return True


def shape_of(data: object) -> tuple[int, ...]:
    """The shape of an array of any library, of a table, or of nested lists."""
    try:
        return tuple(np.shape(cast(ArrayLike, data)))
    except ValueError as error:
        raise ValueError(
            "scores and labels must be arrays; got lists of different lengths."
        ) from error


def to_floats(
    data: object, name: str, kinds: str = "fiu", remedy: str = ""
) -> FloatArray:
    """Real numbers of any shape, as float64; "b" among the `kinds` of dtypes allows
    booleans.
    """
    array = to_numpy(data, name)
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"`{name}` must be real numbers; got dtype {array.dtype}. Use "
            f"`.astype(float)`{remedy}."
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


def refuse(
    bad: AnyArray,
    values: Any,
    rule: str,
    remedy: str = "",
    first_row: int = 0,
    beside: Sequence[AnyArray] = (),
) -> None:
    """Raise for the first value at which `bad` is true.

    `{}` or `{0}` in the remedy is that value; `{1}`, ... are what stands there in the
    arrays `beside` it.

    >>> refuse(
    ...     np.array([False, True]),
    ...     np.array([0, 7]),
    ...     "`labels` must be 0 or 1",
    ...     "Drop {}.",
    ... )
    Traceback (most recent call last):
    ValueError: `labels` must be 0 or 1; got 7 in row 1. Drop 7.
    """
    if index := first_true(bad):
        value = values[index]
        value = value.item() if isinstance(value, np.generic) else value
        value = repr(value) if isinstance(value, str) else value
        where = f"row {first_row + index[0]}" + "".join(
            f", column {k}" for k in index[1:]
        )
        advice = remedy.format(value, *(numbers[index] for numbers in beside))
        raise ValueError(f"{rule}; got {value} in {where}. {advice}".rstrip())


def check_length(array: Any, n_rows: int, name: str, remedy: str = "") -> None:
    """Raise unless an array has one entry per row."""
    shape = tuple(array.shape)
    if shape != (n_rows,):
        message = (
            f"`{name}` must be 1-D with one entry per row ({n_rows}); got shape "
            f"{shape}. {remedy}"
        )
        raise ValueError(message.rstrip())


def one_per_row(
    numbers: object,
    n_rows: int,
    name: str,
    remedy: str,
    kinds: str = "fiu",
    of_kind: str = "",
) -> FloatArray:
    """Real numbers (n,), or one for all rows; the remedies are for other lengths,
    and kinds.
    """
    array = to_floats(numbers, name, kinds, of_kind)
    array = np.full(n_rows, array) if array.ndim == 0 else array
    check_length(array, n_rows, name, remedy)
    return array


def column_names(data: object) -> tuple[str, ...]:
    """The columns of a frame, if all have text or a number for a name; none of anything
    else.

    Nor of a frame whose columns are merely numbered 0, 1, ..., in this order.
    """
    names = _given_names(data)
    return () if names == (*range(len(names)),) else tuple(map(str, names))


def frame_columns(data: object) -> tuple[Any, ...]:
    """The names of the columns of a frame of any library; none of other data."""
    for library, attribute in _COLUMN_ATTRIBUTES.items():
        if is_from(data, library):
            return tuple(getattr(data, attribute, ()))
    return ()


def _given_names(data: object) -> tuple[str | int, ...]:
    """The columns of a frame, if all have text or a number for a name."""
    names = frame_columns(data)
    are_plain = all(isinstance(name, (str, int, np.integer)) for name in names)
    return names if are_plain else ()


def as_rows(rows: object, n_rows: int) -> AnyArray:
    """A mask (n,) or numbers of rows (m,), checked.

    >>> as_rows([2, 0], 3).tolist()
    [2, 0]
    """
    array = to_numpy(rows, "rows")
    if array.shape == (0,):
        array = array.astype(np.int64)
    is_mask = array.dtype == np.bool_ and array.shape == (n_rows,)
    are_numbers = array.dtype.kind in "iu" and array.ndim == 1
    if not (is_mask or are_numbers):
        raise TypeError(
            f"`rows` must be a slice, a mask ({n_rows},) or row numbers (m,); got dtype "
            f"{array.dtype} and shape {array.shape}."
        )
    if are_numbers and not ((-n_rows <= array) & (array < n_rows)).all():
        raise IndexError(f"`rows` must be numbers of the {n_rows} rows.")
    return array


def iterate(source: object, name: str) -> Iterable[Any]:
    """The chunks of an iterable, or of a function that returns one."""
    chunks = source() if callable(source) else source
    if not isinstance(chunks, Iterable):
        raise TypeError(
            f"`{name}` must be an iterable of chunks, or a function that returns one; "
            f"got {type(chunks).__name__}."
        )
    return chunks


def select_rows(data: Array, rows: AnyArray | slice) -> Array:
    """Some rows of an array, a frame or nested lists, by number or by a slice.

    A frame stays one, with the names of its columns.
    """
    if hasattr(data, "iloc"):
        return data.iloc[rows]
    if backend_of(data) is None and not frame_columns(data):
        return np.asarray(data)[rows]
    if is_from(data, "pyarrow"):
        return data.take(np.arange(data.num_rows)[rows])  # which takes no rows below 0
    return data[rows]


def is_named_probability(column: str) -> bool:
    """Whether the name of a column says that it holds probabilities of a class."""
    return column.lower().startswith("prob") and class_of_column(column) != column


def match_columns(columns: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """The index among the columns of each of the names; None if they differ.

    Names are equal with or without what files write before the name of a class.

    >>> match_columns(["logit_dog", "logit_cat"], ["cat", "dog"])
    [1, 0]
    """
    if [*columns] == [*names]:  # some of which may be equal
        return [*range(len(columns))]
    for change in (str, class_of_column):
        index_of = {change(column): k for k, column in enumerate(columns)}
        changed = [*map(change, names)]
        is_distinct = len(columns) == len(names) == len(index_of)
        if is_distinct and {*changed} == {*index_of}:
            return [index_of[name] for name in changed]
    return None


def class_of_column(name: str) -> str:
    """The name of a class, from that of its column.

    >>> class_of_column("logit_cat")
    'cat'
    """
    return _PREFIX.sub("", name, count=1)


def order_names(
    names: Sequence[str], columns: Sequence[str], classes: Sequence[str]
) -> list[int]:
    """The index of each column of a fit among `names`, by its columns or its classes.

    Where it knows no columns, numbered ones are in the order of the numbers. Others are
    refused.
    """
    numbers = [*map(str, range(len(names)))] if classes else names
    for names_of_fit in (columns, classes, () if columns else numbers):
        order = match_columns(names, names_of_fit) if names_of_fit else None
        if order is not None:
            return order
    raise ValueError(
        f"columns must be {describe_columns(names, columns or classes)}. Rename them, "
        "or pass one column of lists in the order of the fit."
    )


def describe_columns(columns: Sequence[str], columns_of_fit: Sequence[str]) -> str:
    """What columns must be, and which are missing or not in the fit."""
    differences = {
        "missing": [name for name in columns_of_fit if name not in columns],
        "not in the fit": [name for name in columns if name not in columns_of_fit],
    }
    difference = "; ".join(
        f"{kind}: {_first_names(names)}" for kind, names in differences.items() if names
    )
    return (
        f"the columns used in `fit`, {_first_names(columns_of_fit)}; got "
        f"{_first_names(columns)} ({difference})"
    )


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + ", ..." * (len(names) > 6)


def order_columns(
    data: Any, name: str, columns_of_fit: tuple[str, ...], *, strict: bool = True
) -> Any:
    """A frame with its columns in the order of the fit; other data as they are.

    A frame with other names is refused if `strict`. Where the fit knows no names,
    columns that are numbered 0, 1, ... in any order are put in this one.
    """
    given_names = _given_names(data)
    if not given_names:
        return data
    columns = [*map(str, given_names)]
    numbers = [*map(str, range(len(columns)))]
    order = match_columns(columns, columns_of_fit)
    must_match = bool(columns_of_fit) and strict
    if order is None and sorted(columns) == sorted(numbers) and not must_match:
        order = [columns.index(number) for number in numbers]
    if order is not None and order != [*range(len(columns))]:
        names = [given_names[k] for k in order]
        return data.select(names) if is_from(data, "pyarrow") else data[names]
    if order is not None or not (must_match and column_names(data)):
        return data
    remedy = (
        f"Rename them, or pass `{name}.to_numpy()` if they are the same columns in the "
        "same order."
    )
    if {*columns_of_fit} <= {*columns}:
        remedy = f"Select those of the fit: `{name}[[{columns_of_fit[0]!r}, ...]]`."
    raise ValueError(
        f"`{name}` must have {describe_columns(columns, columns_of_fit)}. {remedy}"
    )


def check_row_order(first: Any, second: Any, name: str, of: str = "logits") -> None:
    """Refuse pandas' rows `name` whose index has the values of the other's in another
    order.

    Rows are paired by place. Where one index merely counts rows, it is a warning. The
    index of an ensemble is that of its first member.
    """
    if is_from(first, "hokical"):
        first = getattr(first, "like", first)
    if not (_has_index(first) and _has_index(second)):
        return
    left = first.index
    right = second.index
    if left.equals(right) or not _same_values(left, right):
        return
    message = (
        f"`{name}` must have its rows in the order of `{of}`, with which they are "
        "paired by place; got an index with the same values in another order. Use "
        f"`{name}.loc[{of}.index]`, or `{name}.to_numpy()` if the order is right."
    )
    if any(type(index).__name__ == "RangeIndex" for index in (left, right)):
        warn_user(message, FitDataWarning, cause=f"row order of {name}")
    else:
        raise ValueError(message)


def _same_values(left: Any, right: Any) -> bool:
    """Whether two indices of pandas hold the same values, in any order."""
    try:
        return bool(left.sort_values().equals(right.sort_values()))
    except TypeError:  # of numbers and texts
        return Counter(left.tolist()) == Counter(right.tolist())


def _has_index(data: object) -> bool:
    """Whether data are a frame or a series as pandas has them, not an array or
    index of it.
    """
    return hasattr(data, "iloc")


def to_column(column: Any) -> AnyArray:
    """A column of Arrow (n,); with nulls it holds objects, so that whole numbers
    stay whole.
    """
    if column.null_count:
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


#: Labels are those of other columns if they agree with the classifier less often than
#: by chance by this many standard errors.
_STANDARD_ERRORS = 4.0
#: Labels that a class has on average where all classes can be expected to occur.
_LABELS_PER_CLASS = 10
#: Share of rows that a classifier may give to classes without a label.
_MAX_SHARE_ABSENT = 0.5


def as_labels(
    labels: object,
    n_rows: int,
    n_classes: int,
    *,
    name: str = "labels",
    classes: Sequence[str] = (),
    right: bool = False,
) -> IntArray:
    """Check class indices: 1-D integers in [0, n_classes), one per row of logits.

    Where the names of the `classes` are known, labels may be such. With `right`, they
    say whether a label was right.
    """
    array = to_numpy(labels, name)
    if array.ndim == 1 and classes:
        array = _match_names(array, n_classes, classes, name)
    if right:
        remedy = "Compare the labels: `predicted == labels`; drop rows without one."
        return as_outcomes(array, n_rows, name, remedy).astype(np.int64)
    check_length(array, n_rows, name, "" if array.ndim == 1 else _ONE_LABEL)
    if array.dtype.kind not in "iub":
        array = _as_integers(array, name)
    if array.dtype.kind == "b" and n_classes > 2:
        raise TypeError(
            f"`{name}` must be integers, the class of each row; got booleans for "
            f"{n_classes} classes. Whether a label is right goes with a confidence: "
            "`calibrate_confidence`."
        )
    bad = (array < 0) | (array >= n_classes)
    if bad.any():
        remedy = (
            "Drop rows that do not count; for tokens and maps give `ignore_label={}` "
            "to `hokical.Dense` or to `calibrate`."
        )
        if array.min() >= 1 and array.max() == n_classes:
            remedy = f"Labels count from 0: pass `{name} - 1`."
        message = (
            f"`{name}` must lie in [0, {n_classes - 1}], one index per column of the "
            "logits"
        )
        refuse(bad, array, message, remedy)
    return array.astype(np.int64)


#: For labels that are not (n,).
_ONE_LABEL = (
    "For one-hot rows use `.argmax(axis=1)`, for a column `.ravel()`; votes (n, "
    "classes) are for fits, metrics, `evaluate` and `compare` of arrays, as guarantees, "
    "files and chunks need one label per row; several labels of a row are a multilabel "
    "problem, for `hokical.MultilabelCalibrator`."
)


def _match_names(
    labels: AnyArray, n_classes: int, classes: Sequence[str], name: str
) -> AnyArray:
    """Labels (n,) that are names of classes as their indices; others as they are."""
    if labels.size and isinstance(labels.tolist()[0], str):
        return class_index(labels, classes, name)
    if labels.dtype.kind in "iu" and labels.size and labels.max() >= n_classes:
        texts = labels.astype(str)  # names such as 10, 20, 30
        if {*texts.tolist()} <= {*classes}:
            return class_index(texts, classes, name)
    return labels


def as_outcomes(outcomes: object, n_rows: int, name: str, remedy: str) -> BoolArray:
    """Whether something is so (n,), of booleans or numbers; others are refused."""
    array = to_numpy(outcomes, name)
    as_column = "Pass one column, (n,)." if array.ndim > 1 else remedy
    check_length(array, n_rows, name, as_column)
    message = f"`{name}` must be True or False (1 or 0)"
    numbers = array
    if array.dtype.kind not in "biuf":
        values = array.tolist()
        if texts := [row for row, value in enumerate(values) if isinstance(value, str)]:
            got = f"got {values[texts[0]]!r} in row {texts[0]}"
            raise TypeError(f"{message}; {got}. {remedy}")
        is_number = [isinstance(value, (int, float, np.bool_)) for value in values]
        refuse(~np.array(is_number, np.bool_), array, message, remedy)
        numbers = array.astype(np.float64)
    refuse((numbers != 0) & (numbers != 1), array, message, remedy)
    return numbers.astype(np.bool_, copy=False)


def _as_integers(labels: AnyArray, name: str) -> IntArray:
    """Python's and NumPy's whole numbers (n,) of another dtype, up to 64 bits."""
    values = labels.tolist()
    are_whole = [isinstance(value, int) for value in values]
    if not all(are_whole):
        # Rather a row without a label than the first of many floats.
        unlike = (
            row
            for row, value in enumerate(values)
            if not isinstance(value, int)
            and not (isinstance(value, float) and value.is_integer())
        )
        row = next(unlike, are_whole.index(False))
        raise TypeError(
            f"`{name}` must be integers, the index of each example's class; got "
            f"{values[row]!r} in row {row} (dtype {labels.dtype}). Encode names as "
            "column indices, or name the columns: `hokical.auto(logits, labels, "
            "classes=[...])`. Pass votes or shares of each class as (n, classes), drop "
            "rows without a label, and cut a regression "
            "target into classes; whole numbers become integers by `.astype(int)`."
        )
    too_large = np.array([abs(value) >= 2**63 for value in values], np.bool_)
    remedy = "Encode ids: `numpy.unique(labels, return_inverse=True)[1]`."
    refuse(too_large, labels, f"`{name}` must be integers of 64 bits", remedy)
    return labels.astype(np.int64)


def as_partial_labels(
    labels: object, n_rows: int, n_classes: int, *, name: str = "labels", **more: Any
) -> IntArray:
    """Labels (n,) as `as_labels` checks them; -1 where they are None, NaN or -1."""
    array = to_numpy(np.full(n_rows, -1) if labels is None else labels, name)
    array = whole_numbers(np.atleast_1d(array))
    has_label = are_known(array)
    if array.shape == (n_rows,) and not has_label.all():
        if not has_label.any():
            return np.full(n_rows, -1)
        # Others are filled, so that errors name the right row.
        array = whole_numbers(np.where(has_label, array, array[has_label][0]))
    return np.where(
        has_label, as_labels(array, n_rows, n_classes, name=name, **more), -1
    )


def are_known(labels: object) -> BoolArray:
    """Which labels (n,) are known: not None, NaN, pandas' NA or -1."""
    array = np.atleast_1d(to_numpy(labels, "labels"))
    if array.dtype.kind in "iufb":
        return np.asarray((array == array) & (array != -1))
    unknown = ("None", "nan", "<NA>", "-1", "-1.0")
    return np.array([str(label) not in unknown for label in array.tolist()], bool)


def whole_numbers(labels: AnyArray) -> AnyArray:
    """Whole floats as integers, NaN as -1: files and tables hold both, and both are
    safe.
    """
    if labels.dtype.kind != "f":
        return labels
    filled = np.where(np.isnan(labels), -1.0, labels)
    are_whole = (np.abs(filled) < _EXACT) & (np.floor(filled) == filled)
    return filled.astype(np.int64) if are_whole.all() else labels


def class_index(
    labels: AnyArray, classes: Sequence[Any] | AnyArray, name: str
) -> IntArray:
    """The position of each label (n,) in `classes`."""
    names = np.asarray(classes).tolist()
    index_of = {label: index for index, label in enumerate(names)}
    listed = [x if isinstance(x, Hashable) else None for x in labels.tolist()]
    codes = np.array([index_of.get(label, -1) for label in listed], np.int64)
    rule = f"`{name}` must be names of the classes, {names[:6]}"
    refuse(codes < 0, labels, rule, "Correct the names, or drop such rows.")
    return codes


def event_index(positive: object, names: Sequence[str], n_classes: int) -> int | None:
    """The column of the event of two classes, by its name or number; None of more.

    By default it is the second. A number may be text, as in a shell, where it is not a
    name.

    >>> event_index("paid", ["paid", "default"], 2), event_index(None, [], 2)
    (0, 1)
    """
    if positive is None:
        return 1 if n_classes == 2 else None
    if n_classes != 2:
        raise ValueError(
            f"`positive` must be None for {n_classes} classes, as it names the event of "
            f"two; got {positive!r}."
        )
    choices = list(names)
    if isinstance(positive, str) and positive in choices:
        return choices.index(positive)
    if str(positive) in ("0", "1"):
        return int(str(positive))
    raise ValueError(f"`positive` must be one of {[*choices, 0, 1]}; got {positive!r}.")


def event_of_classes(
    positive: object, classes: AnyArray, names: Sequence[str] = ()
) -> int | None:
    """As `event_index`, of a classifier, whose labels come before numbers of columns.

    The labels may have other `names`.

    >>> event_of_classes(1, np.array([1, 2])), event_of_classes("2", np.array([1, 2]))
    (0, 1)
    """
    labels = classes.tolist()
    if positive in labels and len(labels) == 2:
        return int(labels.index(positive))
    return event_index(positive, names or [*map(str, labels)], len(labels))


def as_clusters(cluster: object, n_rows: int) -> IntArray:
    """The number (n,) of the cluster of each row, of names or numbers (n,)."""
    array = to_numpy(cluster, "cluster")
    remedy = "Give the id of the patient, question or item that each row belongs to."
    check_length(array, n_rows, "cluster", remedy)
    remedy = "Give rows that belong to no other an id of their own."
    refuse(is_missing(array), array, "`cluster` must be known", remedy)
    array = array.astype(str) if array.dtype == object else array
    names, codes = np.unique(array, return_inverse=True)
    if names.size < 2:
        raise ValueError(
            "`cluster` must have at least two different values; got one. Rows of one "
            "cluster say nothing about others."
        )
    return codes.ravel().astype(np.int64)


def as_weights(
    weights: object, n_rows: int, *, name: str = "sample_weight", of_block: bool = False
) -> FloatArray | None:
    """Check example weights: None, a number for all, or (n,) finite and not negative.

    Those `of_block` may all be 0, as long as those of other blocks are not.
    """
    if weights is None:
        return None
    array = one_per_row(
        weights,
        n_rows,
        name,
        "Sample weights must be 1D array or scalar.",
        kinds="fiub",
        of_kind=", and pass groups by name: `groups=...`",
    )
    bad = ~np.isfinite(array) | (array < 0)
    refuse(bad, array, f"`{name}` must be finite and >= 0", "Use 0 to ignore a row.")
    with np.errstate(over="ignore"):
        total = array.sum()
    if not (0.0 < total < np.inf or (of_block and total == 0.0)):
        raise ValueError(
            f"`{name}` must not be zero everywhere, and must have a finite sum; got "
            f"{total}. Weights are relative: divide them by their largest."
        )
    return array


def warn_of_contradiction(
    predicted: AnyArray, labels: IntArray, weights: FloatArray | None = None
) -> None:
    """Warn if labels (n,) and the classifier's own agree far less often than by chance.

    By chance: as often as labels of these frequencies that have nothing to do with each
    other.
    """
    share = np.ones(labels.size) if weights is None else weights
    share = share / share.sum()
    n_classes = int(max(predicted.max(), labels.max())) + 1
    predicted_shares, true = (
        np.bincount(classes, share, n_classes) for classes in (predicted, labels)
    )
    chance = float(predicted_shares @ true)
    agree = float(share[predicted == labels].sum())
    error = np.sqrt(max(chance * (1.0 - chance), 0.0) * (share**2).sum())
    if 0.0 < error < (chance - agree) / _STANDARD_ERRORS:
        warn_user(
            f"`labels` contradict the scores: {agree:.1%} agree with the classifier, "
            f"by chance {chance:.1%} would. Check the order of the classes (`classes`, "
            "--classes) and of the columns, and that each label stands beside its own "
            "scores.",
            FitDataWarning,
            cause="labels that contradict the scores",
        )


def warn_of_features(predicted: AnyArray, labels: IntArray, n_classes: int) -> None:
    """Warn if the largest column is mostly that of a class without a label.

    Features of examples are then taken for scores of classes. Few labels of many
    classes say nothing: classes that occur must have been seen often enough.
    """
    counts = np.bincount(labels, minlength=n_classes)
    n_present = np.count_nonzero(counts)
    if labels.size < _LABELS_PER_CLASS * n_present or n_present > n_classes / 2:
        return
    share = float((counts[predicted] == 0).mean())
    if share > _MAX_SHARE_ABSENT:
        warn_user(
            f"`logits` seem to be features, not scores of classes: {n_classes} columns, "
            f"of which {n_classes - n_present} are classes without a label, and in "
            f"{share:.0%} of the rows the largest is one of these. Pass the scores of a "
            "classifier, a column for each class; scikit-learn classifiers are "
            "calibrated by `hokical.CalibratedClassifier(estimator).fit(X, y)`.",
            FitDataWarning,
            cause="features instead of scores",
        )
