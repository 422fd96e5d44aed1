"""Checked logits, and work on blocks of their rows: logits are validated here, and
nowhere else.

`as_logits` returns `Logits`: the array in its own library and on its own device
(without a copy where possible, so a memory-mapped file stays on disk), with its row
maxima. One reduction finds NaN, +inf and rows without a finite value, because all three
show in the row's maximum.

`by_blocks` works on blocks of rows: bounded memory, several threads, results in the
order of the rows. Every row is computed independently, so results do not depend on
blocks or threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import (
    NUMPY,
    AnyArray,
    Array,
    Backend,
    BoolArray,
    FloatArray,
    IntArray,
    backend_of,
)
from hokical._core.checks import check_count, check_flag, show
from hokical._core.reading import (
    first_true,
    infer_numbers,
    one_per_row,
    refuse,
    to_numpy,
)
from hokical._core.runtime import cut_rows, map_slices
from hokical._core.special import FEW_ROWS, clip, first_marks, pick, row_argmax

#: NumPy's tables of at most this many columns are stored column by column: sums and
#: maxima over short rows are several times as fast that way.
FEW_COLUMNS = 32
#: Margins are clipped here: practically infinite, but products with 0 and gradients
#: stay finite.
MAX_MARGIN = 1e150


@dataclass(frozen=True, eq=False)
class Tail:
    """Equal classes without a column: `count` (n,) of them, each `margin` (n,) below
    the top.

    Where there are none, the margin is infinite.
    """

    margin: FloatArray
    count: FloatArray

    def __getitem__(self, rows: Any) -> Tail:
        return Tail(self.margin[rows], self.count[rows])

    def scaled_margin(self, width: float) -> FloatArray:
        """The margin in units of noise of that width, (n,), at most MAX_MARGIN."""
        with np.errstate(over="ignore"):
            return np.minimum(self.margin / width, MAX_MARGIN)


@dataclass(eq=False)
class Logits:
    """Checked logits: `values` (n, classes) of some library and `top`, their row maxima
    (n,).

    Here every class has a column. In the subclass `TopK` some classes have none; sums
    over classes are then sums over the columns and over the `tail`. `codes` (n,
    columns) are those of the rows' groups (`GroupCoding`), and `member_labels` (n,) the
    labels of the first member of an ensemble, for rules that need them.
    What is found of the rows on demand (`labels`, `margins`, ...) is kept, so ask for
    tables on blocks of rows.
    """

    values: Array
    top: Array
    backend: Backend = NUMPY
    codes: Any = None
    member_labels: Any = None
    #: The classes without a column; None if every class has one.
    tail: ClassVar[Tail | None] = None

    def __post_init__(self) -> None:
        """Note what is asked for again and again."""
        self.is_numpy = self.backend is NUMPY
        #: The namespace of the array API standard for the values.
        self.xp: Any = np if self.is_numpy else self.backend.namespace(self.values)
        #: None (unknown) while an ONNX graph is traced.
        self.n_rows: int = self.values.shape[-2]
        #: Number of logits stored per row.
        self.n_columns: int = self.values.shape[-1]
        self.n_classes: int = self.n_columns
        #: The memory order of NumPy's tables, whatever that of the values is. It
        #: decides how a sum over classes is rounded; an operation on tables of both
        #: orders gives either, by size.
        self.order: Any = "F" if self.n_columns <= FEW_COLUMNS else "C"
        #: Caches of the properties of these names.
        self._labels: Array = None
        self._margins: Array = None
        self._entries: tuple[IntArray, IntArray] | None = None
        self._possible: Array = None
        self._all_possible: bool | None = None
        #: Where NumPy's margins may be written, see `offer_room`.
        self._room: Array = None

    def __getstate__(self) -> dict[str, Any]:
        """For pickling, without the namespace."""
        return {name: value for name, value in vars(self).items() if name != "xp"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        vars(self)["xp"] = self.backend.namespace(self.values)

    @property
    def is_traced(self) -> bool:
        return self.backend.is_traced(self.values)

    @property
    def like(self) -> Any:
        """What they were read from: results are arrays of its library."""
        return self

    @property
    def labels(self) -> Array:
        """The classifier's own label per row, (n,): the first maximum."""
        if self._labels is None:
            self._labels = self._first_at_top()
        return self._labels

    def with_labels(self, labels: Array) -> Self:
        """Itself, with these labels (n,), also where other classes tie with them."""
        self._labels = labels
        return self

    def _first_at_top(self) -> Array:
        """The first column at the top of each row, (n,)."""
        if not self.is_numpy or self.order == "C" or self.n_rows <= FEW_ROWS:
            return self.xp.argmax(self.values, axis=1)
        if self._margins is not None and self._all_possible:  # none is NaN
            return first_marks(self._margins == 0.0)
        return row_argmax(np.asfortranarray(self.values), np)

    #: The column of each row's label, (n,).
    label_columns = labels

    @property
    def margins(self) -> Array:
        """Distance of every logit below its row's top, (n, columns) float64, 0 to
        MAX_MARGIN.
        """
        if self._margins is None and self.is_numpy:
            self._margins = self.new_margins()
            if self._margins.max() <= MAX_MARGIN:
                self._all_possible = True
            else:
                self._margins.clip(0.0, MAX_MARGIN, out=self._margins)
        elif self._margins is None:
            # 1e308 above -1e308 overflows: as good as masked.
            with arrays.ignore_overflow(self.xp):
                self._margins = clip(
                    self.top[:, None] - self.values, None, MAX_MARGIN, self.xp
                )
        return self._margins

    def with_margins(self) -> Self:
        """Itself, with `margins` that blocks of its rows need not find again."""
        self._margins = self.margins
        return self

    def new_margins(self, factor: Array = 1.0, out: FloatArray | None = None) -> Array:
        """`margins` times a factor, in an array that may be overwritten; NumPy's up
        to infinity, in `out` if there is one.
        """
        if not self.is_numpy:
            return self.margins * factor
        below = self._room if out is None else out
        self._room = None
        if below is None:
            below = np.empty(self.values.shape, order=self.order)
        values = self.values
        in_order = values.flags.f_contiguous or self.order == "C"
        if not in_order or values.dtype != np.float64:  # quicker than mixed
            np.copyto(below, values)
            values = below
        with np.errstate(over="ignore"):
            np.subtract(self.top[:, None], values, out=below)
            return below if factor == 1.0 else np.multiply(below, factor, out=below)

    def offer_room(self, out: FloatArray) -> None:
        """Let the next `new_margins` be in `out` (n, columns), if it suits."""
        if self.order == "C" and self.tail is None and out.dtype == np.float64:
            self._room = out

    @property
    def possible(self) -> Array:
        """Which classes are possible (above -inf), (n, columns)."""
        if self._possible is None and self.is_numpy:
            self._possible = np.greater(self.values, -np.inf, order=self.order)
        elif self._possible is None:
            self._possible = self.values > -self.xp.inf
        return self._possible

    @property
    def all_possible(self) -> bool:
        """Whether every class is known to be possible: a look at NumPy's values."""
        if self._all_possible is None:
            self._all_possible = self.is_numpy and bool(self.values.min() > -np.inf)
        return self._all_possible

    @property
    def possible_counts(self) -> Array:
        """Number of possible classes of each row, (n,) float64."""
        if self.all_possible:
            counts = np.full(self.n_rows, float(self.n_columns))
        else:
            counts = self.xp.sum(self.xp.astype(self.possible, self.xp.float64), axis=1)
        return counts if self.tail is None else counts + self.tail.count

    @property
    def gaps(self) -> Array:
        """Gap between the two largest logits, (n,); inf where all others are masked."""
        xp = self.xp
        with arrays.ignore_overflow(xp):
            masked_label = xp.full_like(self.values[:, :1], -xp.inf)
            other_values = self.put_at_label(
                self.values.copy() if self.is_numpy else self.values, masked_label
            )
            return self.top - xp.max(other_values, axis=1)

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,) float64 on the host."""
        values = pick(self.values, self.from_host(classes), self.xp)
        return self.to_host(values).astype(np.float64, copy=False)

    def from_host(self, array: AnyArray) -> Array:
        """A NumPy array in the library and on the device of the logits."""
        return array if self.is_numpy else self.backend.from_host(array, self.values)

    def to_host(self, array: Array) -> AnyArray:
        """An array of this library as a NumPy array."""
        return np.asarray(array) if self.is_numpy else self.backend.to_host(array)

    def take(self, rows: AnyArray | slice) -> Self:
        """Rows selected by number or by a mask (host arrays), or by a slice."""
        labels = self.member_labels
        if isinstance(rows, slice) or self.is_numpy:
            values = self.values[rows, ...]
            top = self.top[rows]
            labels = None if labels is None else labels[rows]
        else:
            where = self.from_host(
                np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
            )
            values, top, labels = (
                None if array is None else self.xp.take(array, where, axis=0)
                for array in (self.values, self.top, labels)
            )
        codes = None if self.codes is None else self.codes[rows]
        selected = type(self)(values, top, self.backend, codes, labels)
        if isinstance(rows, slice):
            self._hand_on(selected, rows)
        return selected

    def _hand_on(self, block: Logits, rows: slice) -> None:
        """Tell consecutive rows what is known of all."""
        if self._labels is not None:
            block._labels = self._labels[rows]
        if self.is_numpy and self._margins is not None:
            block._margins = np.asarray(self._margins[rows], order=self.order)
        if self._all_possible:
            block._all_possible = True

    def without_gradient(self) -> Self:
        """The same values, detached from any gradient graph."""
        if self.is_numpy:
            return self
        values, top = map(self.backend.without_gradient, (self.values, self.top))
        return self if values is self.values else replace(self, values=values, top=top)

    def with_every_class(self, caller: str, remedy: str) -> Logits:
        """Itself, or an error if some class has no column, which `caller` needs."""
        return self

    def label_mask(self) -> Array:
        """(n, columns), true at the label."""
        columns = self.from_host(np.arange(self.n_columns))[None, :]
        labels = self.label_columns[:, None]
        return (
            np.equal(columns, labels, order=self.order)
            if self.is_numpy
            else columns == labels
        )

    def at_label(self, table: Array) -> Array:
        """The entry (n,) of each row of a table (n, columns) at its label."""
        if self.is_numpy:
            return table[self._label_entries]
        xp = self.xp
        return xp.sum(xp.where(self.label_mask(), table, xp.zeros_like(table)), axis=1)

    def in_order(self, table: Array) -> Array:
        """A table (n, columns) in the memory order of NumPy's others: sums then round
        alike, and operations on tables of both orders take several times as long.
        """
        return np.asarray(table, order=self.order) if self.is_numpy else table

    def put_masked(self, table: Array, value: float) -> Array:
        """Overwrite a NumPy table (n, columns) with `value` for masked classes.

        Tables of other libraries stay as they are: use the result.
        """
        if self.all_possible:
            return table
        if self.is_numpy:
            np.copyto(table, value, where=~self.possible)
            return table
        return self.xp.where(self.possible, table, value)

    def put_at_label(self, table: Array, values: Array) -> Array:
        """Overwrite a NumPy table (n, columns) with `values` (n, 1) at the labels.

        Tables of other libraries stay as they are: use the result.
        """
        if self.is_numpy:
            table[self._label_entries] = values[:, 0]
            return table
        return self.xp.where(self.label_mask(), values, table)

    def clear_label(self, table: Array) -> Array:
        """Overwrite a NumPy table (n, columns) with 0 at the labels; use the result."""
        if self.is_numpy:
            table[self._label_entries] = 0.0
            return table
        return self.put_at_label(table, 0.0 * table[:, :1])

    @property
    def _label_entries(self) -> tuple[IntArray, IntArray]:
        """Row and column of every label, as an index of NumPy's tables."""
        if self._entries is None:
            self._entries = np.arange(self.n_rows), self.label_columns
        return self._entries


def as_logits(
    logits: Any,
    *,
    name: str = "logits",
    n_classes: int | None = None,
    owner: str = "",
    late: bool = False,
) -> Logits:
    """Checked logits (n, classes), with their row maxima.

    They are an array of any library that follows the array API standard (NumPy in any
    order, memory-mapped or not, torch, JAX, CuPy), or anything with `__array__` or
    `__dlpack__`, and stay on their device; or a `TopK`. -inf marks a masked class.
    Errors call them `name`. With `n_classes` they must have that many columns, which
    `owner` was fitted on. With `late`, the caller calls `check_rows` when the work on
    them is under way.

    >>> checked = as_logits([[2.0, 1.0, -float("inf")]])
    >>> checked.n_classes, checked.possible.tolist()
    (3, [[True, True, False]])
    """
    if isinstance(logits, Logits):
        _check_width((logits.n_rows, logits.n_classes), name, n_classes, owner)
        if isinstance(logits, TopK) and not logits.hidden.any():
            return logits.fill()
        return logits
    with arrays.float64_scope(logits):
        values, backend = as_float_matrix(logits, name)
        _check_width(tuple(values.shape), name, n_classes, owner)
        data = Logits(values, row_maxima(values, backend), backend)
        if data.is_numpy or not (late and backend.queues_work(values)):
            check_rows(data, name)
    return data


def _check_width(
    shape: tuple[int, ...], name: str, n_classes: int | None, owner: str
) -> None:
    """Raise unless there are columns of the fit's classes, or of at least two."""
    if n_classes is not None and shape[1] != n_classes:
        raise ValueError(
            f"`{name}` must have one column per class, in the order used in `fit`: X "
            f"has {shape[1]} features, but {owner} is expecting {n_classes} features "
            "as input."
        )
    if shape[1] < 2:
        raise ValueError(
            f"`{name}` must have at least two columns, one per class: found array with "
            f"{shape[1]} feature(s) (shape={shape}) while a minimum of 2 is required. "
            "For binary scores use `from_binary_scores`."
        )


def as_float_matrix(logits: Any, name: str) -> tuple[Array, Backend]:
    """A real 2-D float array with at least one row, not copied if it is one; and its
    backend.
    """
    backend = backend_of(logits) or NUMPY
    if backend is NUMPY:
        array = logits if type(logits) is np.ndarray else to_numpy(logits, name)
        if array.dtype.kind == "V":
            array = infer_numbers(array)
        if array.dtype == object:
            array = _objects_to_floats(array, name)
    else:
        array = backend.check(logits, name)
        host = backend.host_view(array)
        if host is not None:  # NumPy's kernels are the fastest
            array = host
            backend = NUMPY
    kind = backend.kind(array)
    shape = tuple(array.shape)
    if kind == "complex":
        raise ValueError(f"`{name}` must be real. Complex data not supported.")
    if kind not in ("float", "integer"):
        raise TypeError(
            f"`{name}` must be floating point; got dtype {array.dtype}. Convert it to "
            "float32."
        )
    if len(shape) != 2:
        remedy = (_FOR_SCORES if len(shape) == 1 else _FOR_MAPS).format(name)
        raise ValueError(
            f"`{name}` must be 2-D (n, classes); got shape {shape}. {remedy}"
        )
    if shape[0] == 0:
        raise ValueError(
            f"`{name}` must have at least one row: found array with 0 sample(s) "
            f"(shape={shape}) while a minimum of 1 is required."
        )
    long_double = backend is NUMPY and array.dtype.itemsize not in (2, 4, 8)
    if kind == "integer" or long_double:
        xp = backend.namespace(array)
        array = xp.astype(array, xp.float64)
    elif backend is NUMPY and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array, backend


def _objects_to_floats(array: AnyArray, name: str) -> FloatArray:
    """Objects that are numbers, or text of numbers, as float64."""
    for index, value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError) as error:
            where = f"row {index[0]}" if index else "it"
            if len(index) > 1:
                where += f", column {index[1]}"
            raise TypeError(
                f"`{name}` must be numbers; got {show(value)} in {where}. Drop rows without "
                "a score: every entry's argument must be a string or a number."
            ) from error
    return array.astype(np.float64)


#: For arrays that are not 2-D: of one dimension, and of more.
_FOR_SCORES = (
    "For probabilities of class 1 use `from_probabilities`, for its scores (log-odds) "
    "`from_binary_scores`, for confidences that a label is right "
    "`calibrate_confidence`. Reshape your data if it is one example: `{}[None, :]`."
)
_FOR_MAPS = (
    "For several evaluations of each example (members, n, classes) use "
    "`hokical.Ensemble({})`; for maps and tokens `hokical.Dense` (`ignore_label=-100` "
    "leaves out labels of -100)."
)


def row_maxima(values: Array, backend: Backend) -> Array:
    """Row maxima (n,) float64, for `check_rows`."""
    if backend is NUMPY:
        if values.shape[1] > FEW_COLUMNS:
            return np.maximum.reduce(values, axis=1).astype(np.float64, copy=False)
        top = np.empty(values.shape[0])
        step = NUMPY.block_size // FEW_COLUMNS
        for start in range(0, top.size, step):
            block = np.asfortranarray(values[start : start + step])
            top[start : start + step] = np.maximum.reduce(block, axis=1)
        return top
    xp = backend.namespace(values)
    with arrays.ignore_overflow(xp):
        return arrays.to_float64(xp.max(values, axis=1), xp)


def check_rows(logits: Logits, name: str = "logits") -> None:
    """Raise an error that names the first row without a finite maximum.

    While a graph is traced the values are unknown, and nothing is checked.
    """
    xp = logits.xp
    top = logits.top
    backend = logits.backend
    if logits.is_numpy and np.isfinite(top).all():
        return
    with arrays.ignore_overflow(xp):
        # On a GPU a sum is the quickest look at all of them. It can overflow, so it
        # only clears.
        if logits.is_traced or isfinite(float(xp.sum(backend.without_gradient(top)))):
            return
    if row_index := first_true(~np.isfinite(backend.to_host(top))):
        row_values = backend.to_host(logits.values[row_index[0], ...])
        problem = f"row {row_index[0]} has no finite value: every class is -inf"
        for number, is_bad in (("+inf", np.isposinf), ("NaN", np.isnan)):
            if column := first_true(is_bad(row_values)):
                problem = (
                    f"must not hold NaN or +inf; got {number} in row {row_index[0]}, "
                    f"column {column[0]}"
                )
        raise ValueError(
            f"`{name}` {problem}. Fix or drop the row; only -inf is allowed, for a "
            "masked class."
        )


def rows_per_block(floats_per_row: int) -> int:
    """Number of rows per block of NumPy's, for that many float64 per row."""
    return max(1, NUMPY.block_size // max(1, floats_per_row))


def row_slices(n_rows: int, floats_per_row: int) -> list[slice]:
    """Slices of consecutive rows, about 0.5 MB of float64 each."""
    return cut_rows(n_rows, rows_per_block(floats_per_row))


#: Elements of NumPy's buffers: operations on tables and columns take twice as long with
#: its 8192, into which it copies the columns.
_BUFFER = 512
#: Takes the only row twice.
_TWICE = np.zeros(2, np.int64)


def by_blocks(
    work: Callable[[Any], Any],
    logits: Any,
    floats_per_row: int | None = None,
    *,
    out: FloatArray | None = None,
) -> Any:
    """Apply `work` to consecutive blocks of rows; concatenate its results (rows, ...).

    `work` turns `Logits` into an array with one entry per row, or a tuple of such
    arrays. It needs `floats_per_row` temporary floats per row, by default as many as
    there are columns. The results are written into `out` (rows, columns), a NumPy array,
    if it is given; the margins of a block may be there before.
    """
    if not logits.is_numpy and logits.is_traced:
        return work(logits)
    step = max(1, logits.backend.block_size // (floats_per_row or logits.n_columns))
    if logits.n_rows <= step:
        return _on_block(work, logits, out)

    def run_block(rows: slice) -> Array | tuple[Array, ...]:
        return _on_block(work, logits.take(rows), None if out is None else out[rows])

    results = map_slices(run_block, logits.n_rows, step, threads=logits.is_numpy)
    if out is not None:
        return out
    concat = logits.xp.concat
    if isinstance(results[0], tuple):
        return tuple(concat(column, axis=0) for column in zip(*results, strict=True))
    return concat(results, axis=0)


def _on_block(
    work: Callable[[Any], Array | tuple[Array, ...]],
    logits: Logits,
    out: FloatArray | None,
) -> Array | tuple[Array, ...]:
    """The result of `work` for all the rows at once, in `out` if there is one."""
    # NumPy adds up the columns of several rows one after the other, those of one row in
    # pairs.
    alone = logits.is_numpy and logits.n_rows == 1 and logits.n_columns <= FEW_COLUMNS
    block = logits.take(_TWICE) if alone else logits
    is_few = block.n_rows * block.n_columns <= _BUFFER
    default = None if out is None or is_few else np.setbufsize(_BUFFER)
    if out is not None:
        block.offer_room(out)
    try:
        result = work(block)
    finally:
        if default is not None:
            np.setbufsize(default)
    if alone and isinstance(result, tuple):
        result = tuple(array[:1] for array in result)
    elif alone:
        result = result[:1]
    if out is None or result is out:
        return result
    out[...] = result
    return out


def per_row(work: Callable[[Any], Any], logits: Any) -> AnyArray:
    """`by_blocks` with the results on the host: for a few numbers per row."""
    numbers = by_blocks(work, logits)
    return numbers if logits.is_numpy else arrays.to_host(numbers)


def map_blocks(
    work: Callable[..., Any], logits: Any, floats: int | None = None
) -> list[Any]:
    """`work(rows, block)` of consecutive blocks of rows, in order; see `by_blocks`."""
    step = max(1, logits.backend.block_size // (floats or logits.n_columns))
    if logits.n_rows <= step:  # its margins may be known already
        return [work(slice(0, logits.n_rows), logits)]

    def part(rows: slice) -> Any:
        return work(rows, logits.take(rows))

    return map_slices(part, logits.n_rows, step, threads=logits.is_numpy)


#: Marks an unused slot in the `indices` of `TopK`, in rows with fewer seen classes than
#: others.
EMPTY = -1
#: Tolerance for probabilities and their logs: rounding, storage as float16.
SLACK = 1e-2
#: Smallest rest that can be derived from log-probabilities in single precision.
_PRECISION = 1e-7


class TopK(Logits):
    """The best logits of each row, and which classes they belong to.

    Many systems keep only the k best logits: an API returns the 20 most likely tokens
    of 100,000. The others are still bounded: no hidden logit is above the smallest one
    seen. It is accepted wherever logits are, and no array with a column per class is
    created.

    In sums over classes, such as a softmax, the hidden classes are replaced by as many
    equal ones (`tail`). Their sum of exponentials is `rest` where that is known. Where
    it is not, they are placed so that the softmax confidence is the midpoint of its
    possible range.

    Rows of `values` and `indices` are kept sorted by descending value, ties by class.
    `labels` (n,) are the uncalibrated ones, the first of each row; `hidden` (n,) counts
    the hidden classes.

    Parameters
    ----------
    values : array-like of shape (n, k)
        The seen logits or log-probabilities, in any order. -inf marks a masked class.
    indices : array-like of shape (n, k)
        The class of each value, each once per row. -1 marks an unused slot, for rows in
        which fewer are known; its value is ignored.
    n_classes : int
        Number of classes, seen and hidden.
    ceiling : array-like of shape (n,), optional
        The largest value that a hidden logit can have; by default the smallest seen.
    rest : array-like of shape (n,), optional
        The log of the sum of the exponentials of the hidden logits, where known.
        `from_log_probabilities` and `from_logits` compute it.

    Examples
    --------
    >>> from hokical import Gaussian, TopK, label_stability
    >>> top = TopK([[1.0, 5.0, 0.5]], [[7, 3, 0]], n_classes=1000)
    >>> top.labels, top.hidden
    (array([3]), array([997]))
    >>> label_stability(top, Gaussian(1.5)).round(2)
    array([0.9])
    """

    indices: IntArray
    hidden: IntArray
    ceiling: FloatArray
    rest: FloatArray | None
    _tail: Tail | None = None

    def __init__(
        self,
        values: object,
        indices: object,
        n_classes: int,
        *,
        ceiling: object = None,
        rest: object = None,
    ) -> None:
        numbers, _ = as_float_matrix(to_numpy(values, "values"), "values")
        count = check_count("n_classes", n_classes, least=2)
        if not 1 <= numbers.shape[1] <= count:
            raise ValueError(
                f"`values` must have from 1 to n_classes = {count} columns; got shape "
                f"{numbers.shape}."
            )
        classes = _read_indices(indices, numbers.shape, count)
        numbers = np.where(classes == EMPTY, numbers.dtype.type(-np.inf), numbers)
        self.top = row_maxima(numbers, NUMPY)
        check_rows(Logits(numbers, self.top), "values")
        self.values, self.indices = _sort_columns(numbers, classes)
        has_class = self.indices != EMPTY
        self.hidden = count - np.count_nonzero(has_class, axis=1)
        limit = self._read_ceiling(ceiling, has_class)
        self.rest = None if rest is None else self._read_rest(rest, limit)
        self.ceiling = np.where(self.hidden > 0, limit, -np.inf)
        self.__post_init__()
        self.n_classes = count

    def _read_ceiling(self, ceiling: object, has_class: BoolArray) -> FloatArray:
        """The checked ceiling (n,), by default the smallest value that is seen."""
        values = self.values.astype(np.float64)
        if ceiling is None:
            return np.asarray(np.min(values, axis=1, initial=np.inf, where=has_class))
        remedy = "Or pass a number for all."
        limit = one_per_row(ceiling, self.top.size, "ceiling", remedy)
        smallest = np.min(values, axis=1, initial=np.inf, where=values > -np.inf)
        refuse(
            ~(limit <= smallest),
            limit,
            "`ceiling` must be at most the smallest seen value of its row",
            "The smallest seen is {1:g}; larger logits would have been seen.",
            beside=(smallest,),
        )
        return limit

    def _read_rest(self, rest: object, ceiling: FloatArray) -> FloatArray:
        """The checked log of the sum of the exponentials of hidden logits, (n,)."""
        hidden = self.hidden
        with np.errstate(divide="ignore"):
            largest = np.log(hidden) + np.where(hidden > 0, ceiling, 0.0)
        remedy = "Or pass a number for all."
        log_rest = one_per_row(rest, self.top.size, "rest", remedy)
        refuse(
            (hidden > 0) & ~(log_rest <= largest + SLACK),
            log_rest,
            "`rest` must be the log of the sum of the exponentials of the hidden "
            "logits, at most log(hidden classes) + ceiling, as none lies above the "
            "smallest seen",
            "Here that is log({1}) + {2:g} = {3:g}.",
            beside=(hidden, ceiling, largest),
        )
        return np.asarray(np.minimum(log_rest, largest))

    @classmethod
    def from_log_probabilities(
        cls, values: object, indices: object, n_classes: int
    ) -> Self:
        """From log-probabilities of the best classes, whose sum gives the mass of the
        others.

        Only for probabilities over exactly the `n_classes` classes. If they are over a
        larger set, such as a vocabulary that contains the classes, use `TopK`. For
        probabilities take their logarithms; a class with probability 0 gets the index
        -1, and so a share of the rest.

        >>> top = TopK.from_log_probabilities(
        ...     np.log([[0.7, 0.2]]), [[4, 2]], n_classes=10
        ... )
        >>> np.exp(top.rest).round(3)
        array([0.1])
        """
        top_k = cls(values, indices, n_classes)
        sums = np.exp(np.minimum(top_k.values.astype(np.float64), 1.0)).sum(axis=1)
        left = 1.0 - sums
        most = top_k.hidden * np.exp(top_k.ceiling)
        rule = (
            "`values` must be log-probabilities over all classes: their exponentials "
            "sum to at most 1, and the hidden classes can hold what is left"
        )
        remedy = (
            "The {1} hidden classes can hold {2:.6g} at most. For logits, or "
            "probabilities of more classes, use `TopK`."
        )
        bad = (left < -SLACK) | (left > most + SLACK)
        refuse(bad, sums, rule, remedy, beside=(top_k.hidden, most))
        with np.errstate(divide="ignore"):
            rest = np.log(np.clip(left, np.minimum(_PRECISION, most), most))
        return cls(top_k.values, top_k.indices, n_classes, rest=rest)

    @classmethod
    def from_logits(cls, logits: object, k: int, *, keep_rest: bool = True) -> Self:
        """The `k` best of dense logits (n, classes), with one number for the rest of
        each row.

        >>> TopK.from_logits([[1.0, 4.0, 2.0]], 2).indices
        array([[1, 2]])
        """
        if isinstance(logits, Logits):
            dense_logits = logits.with_every_class("from_logits", "Give it all logits")
            logits = dense_logits.to_host(dense_logits.values)
        check_flag("keep_rest", keep_rest)
        dense = as_logits(to_numpy(logits, "logits"))
        k = min(check_count("k", k), dense.n_classes)
        indices = np.empty((dense.n_rows, k), np.int64)
        rest = np.full(dense.n_rows, -np.inf)
        for rows in row_slices(dense.n_rows, dense.n_classes):
            order = np.argsort(-dense.values[rows], axis=1, kind="stable")
            indices[rows] = order[:, :k]
            if k < dense.n_classes:
                hidden_values = np.take_along_axis(
                    dense.values[rows], order[:, k:], axis=1
                )
                rest[rows] = np.logaddexp.reduce(
                    hidden_values.astype(np.float64), axis=1
                )
        values = np.take_along_axis(dense.values, indices, axis=1)
        return cls(values, indices, dense.n_classes, rest=rest if keep_rest else None)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> Self:
        """Rows selected by a slice, a mask or row numbers."""
        return self.take(rows if isinstance(rows, slice) else np.atleast_1d(rows))

    def __array__(self, dtype: Any = None, copy: Any = None) -> AnyArray:
        raise TypeError(
            "a TopK has no logit for its hidden classes, so it cannot become an array. "
            "Use `TopK.to_dense(fill=...)`."
        )

    def __repr__(self) -> str:
        return (
            f"TopK({self.n_rows} rows, the best {self.n_columns} of {self.n_classes} "
            f"classes, the rest {'unknown' if self.rest is None else 'known in sum'})"
        )

    @property
    def labels(self) -> IntArray:
        """The classifier's own label per row: the best class, on ties the first."""
        return self.indices[:, 0].copy()

    @property
    def label_columns(self) -> IntArray:
        """The best comes first."""
        return np.zeros(self.n_rows, np.int64)

    @property
    def tail(self) -> Tail:  # type: ignore[override]
        """Equal classes in place of the hidden ones; see the class."""
        if self._tail is not None:
            return self._tail
        with np.errstate(over="ignore"):
            # The least distance of hidden logits; inf if there are none.
            gap = self.top - self.ceiling
        possible = gap < np.inf if self.rest is None else self.rest > -np.inf
        count = np.where(possible, self.hidden, 0).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rest is not None:
                # Up to rounding.
                margin = np.maximum(self.top - self.rest + np.log(count), gap)
            else:
                seen_sum = np.exp(-self.margins).sum(axis=1)
                margin = gap + np.log(2.0 + count * np.exp(-gap) / seen_sum)
        self._tail = Tail(np.where(count > 0.0, margin, np.inf), count)
        return self._tail

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,); for a hidden class that of the tail."""
        is_column = self.indices == classes[:, None]
        seen_values = np.max(self.values, axis=1, initial=-np.inf, where=is_column)
        below = self.top - self.tail.margin
        return np.asarray(
            np.where(is_column.any(axis=1), seen_values.astype(np.float64), below)
        )

    @property
    def gaps(self) -> FloatArray:
        """Gap between the two largest logits, (n,); the least possible if one is
        hidden.
        """
        second = (
            self.ceiling
            if self.n_columns == 1
            else self.values[:, 1].astype(np.float64)
        )
        with np.errstate(over="ignore"):
            return np.asarray(self.top - second)

    def take(self, rows: Any) -> Self:
        selected = object.__new__(type(self))
        for name in ("values", "top", "indices", "hidden", "ceiling", "rest", "_tail"):
            array = getattr(self, name)
            vars(selected)[name] = None if array is None else array[rows]
        selected.__post_init__()
        selected.n_classes = self.n_classes
        return selected

    def with_every_class(self, caller: str, remedy: str) -> Logits:
        raise ValueError(
            f"`{caller}` needs the logit of every class; got the best {self.n_columns} "
            f"of {self.n_classes}. {remedy}, or fill in the rest: "
            "`TopK.to_dense(fill=...)`."
        )

    def fill(self) -> Logits:
        """Plain logits (n, classes), with the tail's value for the hidden classes."""
        dense = Logits(self.to_dense(), self.top)
        return dense.with_labels(self.labels)  # also where a hidden class ties

    def to_dense(self, *, fill: object = None) -> AnyArray:
        """An array (n, classes) with `fill`, a number or one per row, for the hidden
        classes.

        None uses the value of the `tail`, which shares the rest evenly.

        >>> TopK([[2.0, 1.0]], [[3, 1]], n_classes=4).to_dense(fill=-np.inf)
        array([[-inf,   1., -inf,   2.]])
        """
        below = self.top - self.tail.margin
        if fill is not None:
            remedy = "Give one number, or one for each row."
            below = one_per_row(fill, self.n_rows, "fill", remedy)
        dtype = np.float64 if self.hidden.any() else self.values.dtype
        dense = np.empty((self.n_rows, self.n_classes), dtype)
        dense[:] = np.broadcast_to(below, (self.n_rows,))[:, None]
        row, column = np.nonzero(self.indices != EMPTY)
        dense[row, self.indices[row, column]] = self.values[row, column]
        return dense

    def mark_seen(self) -> AnyArray:
        """Which classes have a column, (n, classes) bool."""
        return ~np.isnan(self.to_dense(fill=np.nan))


def _read_indices(indices: object, shape: tuple[int, ...], n_classes: int) -> IntArray:
    """The checked classes (n, k) of the values of a `TopK`."""
    classes = to_numpy(indices, "indices")
    if classes.shape != shape:
        raise ValueError(
            f"`indices` must have the shape of `values`, {shape}; got shape "
            f"{classes.shape}."
        )
    if classes.dtype.kind not in "iu":
        raise TypeError(
            "`indices` must be integers, the class of each value; got dtype "
            f"{classes.dtype}. Convert with `.astype(int)`."
        )
    refuse(
        (classes < EMPTY) | (classes >= n_classes),
        classes,
        f"`indices` must lie in [0, {n_classes - 1}], or be -1 for an unused slot",
        "Check `n_classes`.",
    )
    classes = classes.astype(np.int64)
    ranked = np.sort(classes, axis=1)
    repeats = (ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] != EMPTY)
    refuse(
        repeats.any(axis=1),
        classes,
        "`indices` must name each class once per row",
        "Keep the larger value, or combine them with `np.logaddexp`.",
    )
    return classes


def _sort_columns(values: AnyArray, classes: IntArray) -> tuple[AnyArray, IntArray]:
    """Values and classes (n, k) by descending value, ties by class, unused slots
    last.
    """
    class_or_last = np.where(classes == EMPTY, np.iinfo(np.int64).max, classes)
    order = np.lexsort((class_or_last, -values), axis=1)
    return (
        np.take_along_axis(values, order, axis=1),
        np.take_along_axis(classes, order, axis=1),
    )
