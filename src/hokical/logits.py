"""The public edge: what users hand in is read, checked and named here, and nowhere else.

`as_logits` returns a `Logits` object: the array as it came (no copy when none is needed, so a
memory-mapped file stays on disk) with its row maxima. One reduction finds NaN, +inf and rows
without a finite value, because a row's maximum shows all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hokical._tensors import is_tensor

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: About how many bytes of float64 a block of rows may take while it is being converted.
BLOCK_BYTES = 1 << 21


class Fitted(Protocol):
    """A fitted calibrator, as far as its input is concerned."""

    n_classes_: int


@dataclass(frozen=True, eq=False)
class Tail:
    """Equal classes that have no column: `count` (n,) of them, each `margin` (n,) below the top."""

    margin: FloatArray
    count: FloatArray


@dataclass(frozen=True, eq=False)
class Logits:
    """Checked logits: `values` (n, classes) float16/32/64 and `top`, their row maxima (n,).

    Here every class has a column. In the subclass `TopK` some classes have none; sums over classes
    are then sums over the columns and over the `tail`.
    """

    values: NDArray[Any]
    top: FloatArray

    @property
    def n_rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_classes(self) -> int:
        return self.n_columns

    @property
    def n_columns(self) -> int:
        """How many logits are stored per row."""
        return int(self.values.shape[1])

    @property
    def size(self) -> int:
        """How many logits are stored in all."""
        return self.n_rows * self.n_columns

    @property
    def tail(self) -> Tail | None:
        """What stands for the classes without a column, None where all have one."""
        return None

    @cached_property
    def labels(self) -> IntArray:
        """The classifier's own label per row: the first maximum."""
        out = np.empty(self.n_rows, np.int64)
        for rows in self.row_blocks():
            out[rows] = np.argmax(self.values[rows], axis=1)
        return out

    @cached_property
    def single_choice(self) -> NDArray[np.bool_]:
        """Rows in which every class but one is impossible (-inf), (n,)."""
        out = np.zeros(self.n_rows, np.bool_)
        for rows in self.row_blocks():
            masked = np.min(self.values[rows], axis=1) == -np.inf
            if masked.any():
                out[rows] = self.possible_counts(rows) == 1
        return out

    @property
    def rows_per_block(self) -> int:
        """How many rows are worked on at a time in sums over rows."""
        return rows_per_block(self.n_columns)

    @property
    def gaps(self) -> FloatArray:
        """How far the second largest logit lies below the largest in every row, (n,)."""
        return np.concatenate([self.runner_up_gaps(rows) for rows in self.row_blocks()])

    def row_blocks(self) -> Iterator[slice]:
        """Slices that cut the rows into blocks small enough to convert one at a time."""
        return iter_row_blocks(self.n_rows, self.n_columns)

    def block(self, rows: slice) -> NDArray[Any]:
        """A block of rows as C-contiguous native float32 or float64 (float16 is widened)."""
        part = self.values[rows]
        dtype = np.float64 if part.dtype.itemsize == 8 else np.float32
        return np.ascontiguousarray(part, dtype=dtype)

    def margins(self, rows: slice) -> FloatArray:
        """Distance of every logit below its row's top, (rows, classes) float64, all >= 0."""
        with np.errstate(over="ignore"):  # 1e308 above -1e308: as good as impossible
            return self.top[rows, None] - self.values[rows].astype(np.float64, order="C")

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,) float64."""
        return self.values[np.arange(self.n_rows), classes].astype(np.float64)

    def possible_counts(self, rows: slice) -> IntArray:
        """How many classes of each row are possible (above -inf), (rows,)."""
        return np.asarray(np.count_nonzero(self.values[rows] > -np.inf, axis=1))

    def runner_up_gaps(self, rows: slice) -> FloatArray:
        """How far the second largest logit lies below the largest, (rows,)."""
        part = np.partition(self.block(rows), self.n_columns - 2, axis=1)
        return self.top[rows] - part[:, -2].astype(np.float64)

    def take(self, rows: slice | IntArray) -> Logits:
        """The same for some of the rows."""
        return Logits(self.values[rows], self.top[rows])

    def simplified(self) -> Logits:
        """The same with one column per class, if that is known for all of them."""
        return self

    def with_every_class(self, who: str, remedy: str) -> Logits:
        """Itself, or an error if some class has no column; `who` needs them all."""
        return self


def rows_per_block(floats_per_row: int) -> int:
    """How many rows of that many float64 make a block of about BLOCK_BYTES."""
    return max(1, BLOCK_BYTES // (8 * max(1, floats_per_row)))


def iter_row_blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Cut `n_rows` into slices of about BLOCK_BYTES of float64 each."""
    step = rows_per_block(n_classes)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def as_logits(logits: Any, *, name: str = "logits", fitted_by: Fitted | None = None) -> Logits:
    """Check logits and return them with their row maxima.

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
        NumPy array (any order, memory-mapped or not), torch tensor, or anything with `__array__`
        or `__dlpack__`. -inf marks an impossible class. `TopK` where only the best are known.
        A tensor on the host is read where it lies; one on another device stays there.
    name : str
        How the argument is called in error messages.
    fitted_by : optional
        A fitted calibrator, whose number of classes the columns must match.
    """
    if isinstance(logits, Logits):
        check_column_count((logits.n_rows, logits.n_classes), name, fitted_by)
        return logits.simplified()
    if is_tensor(logits) and logits.device.type != "cpu":
        from hokical.integrations.torch.tensors import checked_tensor_logits

        return checked_tensor_logits(logits, name, fitted_by)
    values = as_float_matrix(logits, name)
    check_column_count(values.shape, name, fitted_by)
    return Logits(values, checked_row_maxima(values, name))


def as_labels(labels: Any, n_rows: int, n_classes: int, *, name: str = "labels") -> IntArray:
    """Check class indices: 1-D integers in [0, n_classes), one per row of logits."""
    array = to_numpy(labels, name)
    if array.dtype == object:
        array = _integers_from_objects(array, name)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must be 1-D (n,); got shape {array.shape}. "
            "For one-hot rows use `.argmax(axis=1)`, for a column use `.ravel()`."
        )
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"`{name}` must be integers, the index of each example's class; got dtype "
            f"{array.dtype}, {array[:1].tolist()} in row 0. {_label_remedy(array)}"
        )
    if array.shape[0] != n_rows:
        raise ValueError(
            f"`{name}` must have one entry per row of logits; got {array.shape[0]} for {n_rows} "
            "rows."
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) >= n_classes):
        row = int(np.argmax((array < 0) | (array >= n_classes)))
        raise ValueError(
            f"`{name}` must lie in [0, {n_classes - 1}], one index per column of the logits; got "
            f"{array[row]} in row {row}."
        )
    return array.astype(np.int64)


def _label_remedy(array: NDArray[Any]) -> str:
    if array.dtype.kind != "f":
        return "Encode names as column indices, for example with sklearn's LabelEncoder."
    if not np.isfinite(array).all():
        return f"Row {int(np.argmin(np.isfinite(array)))} has no label: drop such rows."
    return "Convert with `.astype(int)`."


def _integers_from_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Python integers out of an object array; anything else is left to be refused."""
    for row, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, (int, np.integer)):
            raise TypeError(
                f"`{name}` must be integers, the index of each example's class; got {value!r} in "
                f"row {row}. Encode names as column indices, and drop rows without a label."
            )
    return array.astype(np.int64)


def as_weights(weights: Any, n_rows: int, *, name: str = "sample_weight") -> FloatArray | None:
    """Check example weights: None, a number for all, or (n,) finite and not negative."""
    if weights is None:
        return None
    array = np.asarray(to_numpy(weights, name))
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must be numbers; got dtype {array.dtype}.")
    array = array.astype(np.float64)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ValueError(
            f"`{name}` must be 1-D with one entry per row of logits ({n_rows}); got shape "
            f"{array.shape}. Sample weights must be 1D array or scalar."
        )
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"`{name}` must be finite and >= 0; got {array[row]} in row {row}.")
    with np.errstate(over="ignore"):
        total = array.sum()
    if not 0.0 < total < np.inf:
        raise ValueError(
            f"`{name}` must not be zero everywhere, and must have a finite sum; got {total}. "
            "Weights are relative: divide them by their largest."
        )
    return array


def from_binary_scores(scores: ArrayLike, *, name: str = "scores") -> FloatArray:
    """Logits (n, 2) from the 1-D score (log-odds) of class 1 of a binary classifier.

    >>> from_binary_scores([-1.0, 2.0])
    array([[ 0., -1.],
           [ 0.,  2.]])
    """
    array = to_numpy(scores, name)
    if array.ndim != 1:
        raise ValueError(f"`{name}` must be 1-D (n,); got shape {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers; got dtype {array.dtype}.")
    column = array.astype(np.float64)
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise ValueError(f"`{name}` must be finite; got {column[row]} in row {row}.")
    return np.stack([np.zeros_like(column), column], axis=1)


def from_probabilities(probabilities: ArrayLike, *, name: str = "probabilities") -> FloatArray:
    """Logits from probabilities: (n, classes) rows that sum to 1, or (n,) for class 1 of two.

    A probability of 0 becomes -inf, an impossible class.

    >>> from_probabilities([[0.5, 0.5, 0.0]])
    array([[-0.69314718, -0.69314718,        -inf]])
    """
    array = to_numpy(probabilities, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers; got dtype {array.dtype}.")
    proba = array.astype(np.float64)
    if proba.ndim == 1:
        proba = np.stack([1.0 - proba, proba], axis=1)
    if proba.ndim != 2 or proba.shape[0] == 0 or proba.shape[1] < 2:
        raise ValueError(
            f"`{name}` must be (n, classes) with at least one row and two classes, or (n,) for "
            f"class 1 of two; got shape {array.shape}."
        )
    _check_probability_rows(proba, name)
    with np.errstate(divide="ignore"):
        return np.log(np.minimum(proba, 1.0))


def _check_probability_rows(proba: FloatArray, name: str) -> None:
    """Entries in [0, 1] but for rounding, sums of 1 but for storage as float16."""
    inside = (proba >= 0.0) & (proba <= 1.0 + 1e-6)
    if not inside.all():
        row, column = (int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(
            f"`{name}` must lie in [0, 1]; got {proba[row, column]:g} in row {row}, column "
            f"{column}. If these are logits, use them as they are."
        )
    sums = proba.sum(axis=1)
    off = np.abs(sums - 1.0) > 1e-2
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(f"`{name}` rows must sum to 1; row {row} sums to {sums[row]:.6g}.")


def as_float_matrix(logits: Any, name: str) -> NDArray[Any]:
    """A real 2-D array with at least one row, as float16, 32 or 64, without a copy if it is so."""
    array = to_numpy(logits, name)
    if array.dtype == object:
        array = _numbers_from_objects(array, name)
    if array.dtype.kind == "c":
        raise ValueError(f"`{name}` must be real. Complex data not supported.")
    if array.dtype.kind not in "fiu":
        raise TypeError(
            f"`{name}` must be floating point; got dtype {array.dtype}. Convert with "
            "`.astype('float32')`."
        )
    check_matrix_shape(array.shape, name)
    if array.dtype.kind != "f" or array.dtype.itemsize not in (2, 4, 8):
        array = array.astype(np.float64)
    return array


def check_matrix_shape(shape: tuple[int, ...], name: str) -> None:
    """Two dimensions, and at least one row."""
    if len(shape) != 2:
        hint = (
            " For binary scores use `from_binary_scores`. "
            "Reshape your data if it is one example: `logits[None, :]`."
            if len(shape) == 1
            else " For maps and tokens use `hokical.Dense`, or `.reshape(-1, n_classes)`."
        )
        raise ValueError(f"`{name}` must be 2-D (n, classes); got shape {shape}.{hint}")
    if shape[0] == 0:
        raise ValueError(
            f"`{name}` must have at least one row: found array with 0 sample(s) (shape={shape}) "
            "while a minimum of 1 is required."
        )


def check_column_count(shape: tuple[int, ...], name: str, fitted_by: Fitted | None) -> None:
    """At least two classes; and as many as the calibrator was fitted with."""
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


def to_numpy(data: Any, name: str) -> NDArray[Any]:
    """Anything array-like as a NumPy array, without a copy where that can be."""
    if data is None:
        raise TypeError(f"`{name}` must be an array; got None.")
    if isinstance(data, np.ma.MaskedArray):
        hint = " (logits: `.filled(-np.inf)`)" if name == "logits" else ""
        raise TypeError(f"`{name}` must not be a masked array; fill it first{hint}.")
    if isinstance(data, np.ndarray):
        return np.asarray(data) if isinstance(data, np.matrix) else data
    if is_tensor(data):
        from hokical.integrations.torch.tensors import host_array

        return host_array(data, name)
    if type(data).__module__.split(".")[0] == "scipy" and hasattr(data, "toarray"):
        raise TypeError(
            f"`{name}` must be dense; got a sparse {type(data).__name__}. Sparse data was passed, "
            "but dense data is required: use `.toarray()`."
        )
    try:
        if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
            return np.from_dlpack(data)
        return np.asarray(data)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"`{name}` of type {type(data).__name__} cannot be read as a NumPy array: {error}"
        ) from error


def _numbers_from_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be numbers; got an object array with something else in it: {error}. "
            "Every entry's argument must be a string or a number."
        ) from error


def checked_row_maxima(values: NDArray[Any], name: str) -> FloatArray:
    """Row maxima as float64, or an error that names the first row that has none."""
    top = np.empty(values.shape[0], np.float64)
    with np.errstate(invalid="ignore"):
        for rows in iter_row_blocks(*values.shape):
            np.max(values[rows], axis=1, out=top[rows])
    bad = ~np.isfinite(top)
    if bad.any():
        row = int(np.argmax(bad))
        raise_bad_row(values[row], row, name)
    return top


def raise_bad_row(row_values: NDArray[Any], row: int, name: str) -> None:
    remedy = "Mend or drop the row; -inf alone is allowed, for an impossible class."
    for word, found in (("NaN", np.isnan(row_values)), ("+inf", np.isposinf(row_values))):
        if found.any():
            column = int(np.argmax(found))
            raise ValueError(
                f"`{name}` must not hold NaN or +inf; got {word} in row {row}, column {column}. "
                f"{remedy}"
            )
    raise ValueError(f"`{name}` row {row} has no finite value: every class is -inf. {remedy}")
