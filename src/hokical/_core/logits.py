"""Checked logits, and work on blocks of their rows: logits are validated here, and nowhere else.

`as_logits` returns `Logits`: the array in its own library and on its own device (without a copy
where possible, so a memory-mapped file stays on disk), with its row maxima. One reduction finds
NaN, +inf and rows without a finite value, because all three show in the row's maximum.

`by_blocks` works on blocks of rows: bounded memory, several threads, results in the order of the
rows. Every row is computed independently, so results do not depend on blocks or threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Self, TypeVar

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    AnyArray,
    Array,
    Backend,
    FloatArray,
    IntArray,
    backend_of,
    ignore_overflow,
    to_float64,
    to_host,
)
from hokical._core.lazy import cached_property
from hokical._core.parallel import cut_rows, map_slices
from hokical._core.reading import first_true, order_columns, to_numpy
from hokical._core.special import at_most

#: NumPy's tables of at most this many columns are stored column by column: sums and maxima over
#: short rows are several times as fast that way.
FEW_COLUMNS = 32
#: Margins are clipped here: practically infinite, but products with 0 and gradients stay finite.
MAX_MARGIN = 1e150


@dataclass(frozen=True, eq=False)
class Tail:
    """Equal classes without a column: `count` (n,) of them, each `margin` (n,) below the top."""

    margin: FloatArray
    count: FloatArray

    def scaled_margin(self, width: float) -> FloatArray:
        """The margin in units of noise of that width, (n,); MAX_MARGIN where there is no class."""
        some = self.count > 0.0
        margin = np.where(some, self.margin, 0.0)
        with np.errstate(over="ignore"):
            return np.asarray(np.where(some, np.minimum(margin / width, MAX_MARGIN), MAX_MARGIN))


@dataclass(frozen=True, eq=False)
class Logits:
    """Checked logits: `values` (n, classes) of some library and `top`, their row maxima (n,).

    Here every class has a column. In the subclass `TopK` some classes have none; sums over classes
    are then sums over the columns and over the `tail`. `codes` (n, columns) are those of the rows'
    groups (`GroupCoding`), for rules that need them.
    """

    values: Array
    top: Array
    backend: Backend = NUMPY
    codes: Any = None
    is_numpy: bool = field(init=False)
    #: None (unknown) while an ONNX graph is traced.
    n_rows: int = field(init=False)
    #: Number of logits stored per row.
    n_columns: int = field(init=False)

    def __post_init__(self) -> None:
        """Note what is asked for again and again."""
        rows, columns = self.values.shape
        vars(self).update(is_numpy=self.backend is NUMPY, n_rows=rows, n_columns=columns)

    @property
    def xp(self) -> Any:
        """The namespace of the array API standard for the values."""
        return np if self.is_numpy else self.backend.namespace(self.values)

    @property
    def n_classes(self) -> int:
        return self.n_columns

    @property
    def is_traced(self) -> bool:
        return self.backend.is_traced(self.values)

    @property
    def tail(self) -> Tail | None:
        """The classes without a column; None if every class has one."""
        return None

    @cached_property
    def labels(self) -> Array:
        """The classifier's own label per row, (n,): the first maximum."""
        return self.xp.argmax(self.values, axis=1)

    @property
    def label_columns(self) -> Array:
        """The column of each row's label, (n,)."""
        return self.labels

    @cached_property
    def margins(self) -> Array:
        """Distance of every logit below its row's top, (n, columns) float64, 0 to MAX_MARGIN.

        Cached, so compute it on blocks of rows.
        """
        with ignore_overflow(self.xp):  # 1e308 above -1e308 overflows: as good as masked
            return at_most(new_margins(self), MAX_MARGIN, self.xp)

    @cached_property
    def possible(self) -> Array:
        """Which classes are possible (above -inf), (n, columns)."""
        if self.is_numpy:
            return np.greater(self.values, -np.inf, order=table_order(self))
        return self.values > -self.xp.inf

    @cached_property
    def all_possible(self) -> bool:
        """Whether every class is known to be possible: a look at NumPy's values."""
        return self.is_numpy and bool(self.values.min() > -np.inf)

    @cached_property
    def possible_counts(self) -> Array:
        """Number of possible classes of each row, (n,) float64."""
        if self.all_possible:
            counts = np.full(self.n_rows, float(self.n_columns))
        else:
            counts = self.xp.sum(self.xp.astype(self.possible, self.xp.float64), axis=1)
        return counts if self.tail is None else counts + self.tail.count

    @cached_property
    def gaps(self) -> Array:
        """Gap between the two largest logits, (n,); inf where all others are masked."""
        xp = self.xp
        with ignore_overflow(xp):
            own = xp.full_like(self.values[:, :1], -xp.inf)
            others = put_at_label(self.values.copy() if self.is_numpy else self.values, own, self)
            return self.top - to_float64(xp.max(others, axis=1), xp)

    def group_column(self, k: int) -> Array:
        """The codes (n,) of a column of groups, where the values are."""
        own = self.codes[:, k]
        return self.from_host(own) if isinstance(own, np.ndarray) else own

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,) float64 on the host."""
        column = self.from_host(classes)[:, None]
        found = self.xp.take_along_axis(self.values, column, axis=1)[:, 0]
        return self.to_host(to_float64(found, self.xp))

    def from_host(self, array: AnyArray) -> Array:
        """A NumPy array in the library and on the device of the logits."""
        return self.backend.from_host(array, self.values)

    def to_host(self, array: Array) -> AnyArray:
        """An array of this library as a NumPy array."""
        return self.backend.to_host(array)

    def take(self, rows: AnyArray | slice) -> Self:
        """Rows selected by number or by a mask (host arrays), or by a slice."""
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return self._take(rows)

    def _take(self, rows: Any) -> Self:
        """Rows by a slice or by their numbers on the host."""
        if isinstance(rows, slice) or self.is_numpy:
            values, top = self.values[rows, ...], self.top[rows]
        else:
            xp, where = self.xp, self.from_host(rows)
            values, top = (xp.take(array, where, axis=0) for array in (self.values, self.top))
        twin = type(self)(
            values, top, self.backend, None if self.codes is None else self.codes[rows]
        )
        if isinstance(rows, slice) and "labels" in self.__dict__:
            twin.__dict__["labels"] = self.labels[rows]
        return twin

    def without_gradient(self) -> Self:
        """The same values, detached from any gradient graph."""
        values, top = map(self.backend.without_gradient, (self.values, self.top))
        return self if values is self.values else replace(self, values=values, top=top)

    def _simplify(self) -> Logits:
        """Logits with one column per class if all classes are known, else itself."""
        return self

    def with_every_class(self, caller: str, remedy: str) -> Logits:
        """Itself, or an error if some class has no column, which `caller` needs."""
        return self


def table_order(logits: Logits) -> Any:
    """The memory order of NumPy's tables, whatever that of the values is.

    The order decides how a sum over classes is rounded. All tables have the same, as an operation
    on tables of both orders gives the one or the other by their size.
    """
    return "F" if logits.n_columns <= FEW_COLUMNS else "C"


def new_margins(logits: Logits) -> Array:
    """`Logits.margins` that may be overwritten, up to infinity; warnings are the caller's."""
    if not logits.is_numpy:
        return logits.top[:, None] - to_float64(logits.values, logits.xp)
    below = vars(logits).pop("_room", None)
    if below is None:
        below = np.empty(logits.values.shape, order=table_order(logits))
    np.copyto(below, logits.values)
    return np.subtract(logits.top[:, None], below, out=below)


def lend_room(logits: Logits, room: FloatArray) -> None:
    """Give the next `new_margins` a place, (n, columns) of NumPy: where predictions will be."""
    if logits.tail is None and table_order(logits) == "C":
        vars(logits)["_room"] = room


def kernel_rows(logits: Logits) -> AnyArray:
    """The values, C-contiguous in native float32 or float64 (float16 is widened)."""
    dtype = np.float64 if logits.values.dtype.itemsize == 8 else np.float32
    return np.ascontiguousarray(logits.values, dtype=dtype)


def label_mask(logits: Logits) -> Array:
    """(n, columns), true at the label."""
    columns, labels = column_numbers(logits)[None, :], logits.label_columns[:, None]
    if logits.is_numpy:
        return np.equal(columns, labels, order=table_order(logits))
    return columns == labels


def column_numbers(logits: Logits) -> Array:
    """0, 1, ... (columns,), on the device of the values."""
    return logits.from_host(np.arange(logits.n_columns))


def at_label(table: Array, logits: Logits) -> Array:
    """The entry (n,) of each row of a table (n, columns) at its label."""
    if logits.is_numpy:
        return table[np.arange(logits.n_rows), logits.label_columns]
    xp = logits.xp
    return xp.sum(xp.where(label_mask(logits), table, xp.zeros_like(table)), axis=1)


def put_masked(table: Array, value: float, logits: Logits) -> Array:
    """A table (n, columns) with `value` for masked classes; NumPy's is overwritten."""
    if logits.all_possible:
        return table
    if logits.is_numpy:
        np.copyto(table, value, where=~logits.possible)
        return table
    return logits.xp.where(logits.possible, table, value)


def put_at_label(table: Array, own: Array, logits: Logits) -> Array:
    """A table (n, columns) with `own` (n, 1) at the labels; NumPy's is overwritten."""
    if logits.is_numpy:
        table[np.arange(logits.n_rows), logits.label_columns] = own[:, 0]
        return table
    return logits.xp.where(label_mask(logits), own, table)


def as_logits(
    logits: Any, *, name: str = "logits", fitted_by: Any = None, late: bool = False
) -> Logits:
    """Check logits (n, classes) and return them with their row maxima.

    They are an array of any library that follows the array API standard (NumPy in any order,
    memory-mapped or not, torch, JAX, CuPy), or anything with `__array__` or `__dlpack__`, and stay
    on their device; or a `TopK`. -inf marks a masked class. Errors call them `name`; columns
    must match the `n_classes_` of the calibrator `fitted_by`, and those of a frame are put in its
    order. With `late`, the caller calls `check_rows` when the work on them is under way.

    >>> checked = as_logits([[2.0, 1.0, -float("inf")]])
    >>> checked.n_classes, checked.possible.tolist()
    (3, [[True, True, False]])
    """
    if isinstance(logits, Logits):
        _check_column_count((logits.n_rows, logits.n_classes), name, fitted_by)
        return logits._simplify()
    plain = type(logits) is np.ndarray and logits.dtype.names is None
    if fitted_by is not None and not plain:
        known, names = (getattr(fitted_by, own, ()) for own in ("_columns", "class_names"))
        logits = order_columns(logits, name, known or names, strict=bool(known))
        logits = getattr(fitted_by, "_convert_frame", lambda frame: frame)(logits)
    with (backend_of(logits) or NUMPY).in_float64():
        values, backend = as_float_matrix(logits, name)
        _check_column_count(tuple(values.shape), name, fitted_by)
        data = Logits(values, row_maxima(values, backend), backend)
        if not (late and backend.queues_work(values)):
            check_rows(data, name)
    return data


def as_float_matrix(logits: Any, name: str) -> tuple[Array, Backend]:
    """A real 2-D float array with at least one row, not copied if it is one; and its backend."""
    backend = backend_of(logits)
    if backend is None or backend is NUMPY:
        array, backend = to_numpy(logits, name), NUMPY
        if array.dtype == object:
            array = _numbers_from_objects(array, name)
    else:
        array = backend.check(logits, name)
        host = backend.host_view(array)
        if host is not None:  # NumPy's kernels are the fastest
            array, backend = host, NUMPY
    kind = backend.kind(array)
    if kind == "complex":
        raise ValueError(f"`{name}` must be real. Complex data not supported.")
    if kind not in ("float", "integer"):
        raise TypeError(
            f"`{name}` must be floating point; got dtype {array.dtype}. Convert it to float32."
        )
    _check_matrix_shape(tuple(array.shape), name)
    long = backend is NUMPY and array.dtype.itemsize not in (2, 4, 8)
    if kind == "integer" or long:
        xp = backend.namespace(array)
        array = xp.astype(array, xp.float64)
    return array, backend


def row_maxima(values: Array, backend: Backend) -> Array:
    """Row maxima (n,) float64, for `check_rows`."""
    if backend is NUMPY:
        if values.shape[1] > FEW_COLUMNS:
            return np.maximum.reduce(values, axis=1).astype(np.float64, copy=False)
        top = np.empty(values.shape[0])
        for rows in cut_rows(values.shape[0], NUMPY.block_size // FEW_COLUMNS):
            top[rows] = np.maximum.reduce(np.asfortranarray(values[rows]), axis=1)
        return top
    xp = backend.namespace(values)
    with ignore_overflow(xp):
        return to_float64(xp.max(values, axis=1), xp)


def check_rows(logits: Logits, name: str = "logits") -> None:
    """Raise an error that names the first row without a finite maximum.

    While a graph is traced the values are unknown, and nothing is checked.
    """
    xp, top, backend = logits.xp, logits.top, logits.backend
    if logits.is_numpy and np.isfinite(top).all():
        return
    with ignore_overflow(xp):
        # On a GPU a sum is the quickest look at all of them. It can overflow, so it only clears.
        if logits.is_traced or isfinite(float(xp.sum(backend.without_gradient(top)))):
            return
    if place := first_true(~np.isfinite(backend.to_host(top))):
        own = backend.to_host(to_float64(logits.values[place[0], ...], xp))
        remedy = "Fix or drop the row; only -inf is allowed, for a masked class."
        if bad := first_true(np.isnan(own) if np.isnan(own).any() else np.isposinf(own)):
            word = "NaN" if np.isnan(own[bad]) else "+inf"
            raise ValueError(
                f"`{name}` must not hold NaN or +inf; got {word} in row {place[0]}, column "
                f"{bad[0]}. {remedy}"
            )
        raise ValueError(
            f"`{name}` row {place[0]} has no finite value: every class is -inf. {remedy}"
        )


def _check_matrix_shape(shape: tuple[Any, ...], name: str) -> None:
    """Two dimensions, and at least one row."""
    if len(shape) != 2:
        hint = (
            " For probabilities of class 1 use `from_probabilities`, for its scores (log-odds) "
            "`from_binary_scores`. "
            f"Reshape your data if it is one example: `{name}[None, :]`."
            if len(shape) == 1
            else " For maps and tokens use `hokical.Dense` (`ignore_label=-100` leaves out labels "
            "of -100), or `.reshape(-1, n_classes)`."
        )
        raise ValueError(f"`{name}` must be 2-D (n, classes); got shape {shape}.{hint}")
    if shape[0] == 0:
        raise ValueError(
            f"`{name}` must have at least one row: found array with 0 sample(s) (shape={shape}) "
            "while a minimum of 1 is required."
        )


def _check_column_count(shape: tuple[Any, ...], name: str, fitted_by: Any) -> None:
    """At least two classes, and as many as the calibrator was fitted with."""
    columns = shape[1]
    if fitted_by is not None and columns != fitted_by.n_classes_:
        raise ValueError(
            f"`{name}` must have one column per class, in the order used in `fit`: X has {columns} "
            f"features, but {type(fitted_by).__name__} is expecting {fitted_by.n_classes_} "
            "features as input."
        )
    if columns < 2:
        raise ValueError(
            f"`{name}` must have at least two columns, one per class: found array with {columns} "
            f"feature(s) (shape={shape}) while a minimum of 2 is required. For binary scores use "
            "`from_binary_scores`."
        )


def _numbers_from_objects(array: AnyArray, name: str) -> AnyArray:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be numbers; got an object array with something else in it: {error}. "
            "Every entry's argument must be a string or a number."
        ) from error


Rows = TypeVar("Rows")


def rows_per_block(floats_per_row: int, block_size: int = NUMPY.block_size) -> int:
    """Number of rows per block, for that many float64 per row."""
    return max(1, block_size // max(1, floats_per_row))


def row_slices(n_rows: int, floats_per_row: int) -> list[slice]:
    """Slices of consecutive rows, about 0.5 MB of float64 each."""
    return cut_rows(n_rows, rows_per_block(floats_per_row))


def by_blocks(work: Callable[[Any], Any], logits: Any, floats_per_row: int | None = None) -> Any:
    """Apply `work` to consecutive blocks of rows; concatenate its results (rows, ...).

    `work` makes of `Logits` an array with one entry per row, or a tuple of such arrays, with so
    many temporary floats per row; by default as many as columns.
    """
    per_row = logits.n_columns if floats_per_row is None else floats_per_row
    if not logits.is_numpy and logits.is_traced:
        return work(logits)
    step = block_rows(logits, per_row)
    if logits.n_rows <= step:
        return work_on_rows(work, logits)
    parts = map_slices(
        lambda rows: work_on_rows(work, logits.take(rows)),
        logits.n_rows,
        step,
        threads=logits.is_numpy,
    )
    if isinstance(parts[0], tuple):
        return tuple(logits.xp.concat(list(column), axis=0) for column in zip(*parts, strict=True))
    return logits.xp.concat(parts, axis=0)


def work_on_rows(work: Callable[[Any], Any], block: Any) -> Any:
    """`work(block)`, where a single row of few columns is there twice.

    NumPy adds up the columns of several rows one after the other, but those of one row in pairs.
    """
    if not (block.is_numpy and block.n_rows == 1 and block.n_columns <= FEW_COLUMNS):
        return work(block)
    found = work(block.take(np.zeros(2, np.int64)))
    return tuple(part[:1] for part in found) if isinstance(found, tuple) else found[:1]


def block_rows(logits: Any, floats_per_row: int) -> int:
    """Rows per block of logits."""
    return rows_per_block(floats_per_row, logits.backend.block_size)


def per_row(
    work: Callable[[Any], Array], logits: Any, floats_per_row: int | None = None
) -> AnyArray:
    """`by_blocks` with the results on the host: for a few numbers per row."""
    return to_host(by_blocks(work, logits, floats_per_row))


def sum_over_blocks(logits: Any, work: Callable[[slice, Any], Any]) -> FloatArray:
    """Sum `work(rows, block)`, arrays of one shape, over all blocks in order.

    Block sums are added at the end, in order, so the number of threads changes nothing.
    """
    n_rows, step = logits.n_rows, block_rows(logits, logits.n_columns)
    if n_rows <= step:  # its margins may be known already
        return np.asarray(to_host(work(slice(0, n_rows), logits)))
    parts = map_slices(
        lambda rows: work(rows, logits.take(rows)), n_rows, step, threads=logits.is_numpy
    )
    return np.asarray(np.sum([to_host(part) for part in parts], axis=0))
