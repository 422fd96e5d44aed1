"""Logits of which only the best of each row are known.

Many systems keep only the k best logits: an API returns the 20 most likely tokens of 100,000. The
others are still bounded: no hidden logit is above the smallest one seen. `TopK` holds the seen
logits, the number of hidden classes, and what is known about them; it is accepted wherever logits
are, and no array with a column per class is created.

In sums over classes, such as a softmax, the hidden classes are replaced by as many equal ones
(`tail`). Their sum of exponentials is `rest` where that is known. Where it is not, they are placed
so that the softmax confidence is the midpoint of its possible range.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hokical._core.arrays import NUMPY, AnyArray, FloatArray, IntArray
from hokical._core.checks import check_count
from hokical._core.lazy import cached_property
from hokical._core.logits import (
    Logits,
    Tail,
    as_float_matrix,
    as_logits,
    check_rows,
    row_maxima,
    row_slices,
)
from hokical._core.reading import first_true, to_floats, to_numpy

#: Marks an unused slot in `indices`, in rows with fewer seen classes than others.
EMPTY = -1
#: Tolerance for probabilities and their logs: rounding, storage as float16.
SLACK = 1e-2


def check_class_count(n_classes: Any, values: AnyArray) -> int:
    """The number of classes, at least as many as columns of `values` (n, k)."""
    count = check_count(n_classes, name="n_classes", least=2)
    if values.shape[1] == 0 or values.shape[1] > count:
        raise ValueError(
            f"`values` must have from 1 to n_classes = {count} columns; got shape {values.shape}."
        )
    return count


def check_indices(indices: ArrayLike, shape: tuple[int, ...], n_classes: int) -> IntArray:
    """The classes (n, k) of the values, each once per row, or EMPTY."""
    array = to_numpy(indices, "indices")
    if array.shape != shape:
        raise ValueError(
            f"`indices` must have the shape of `values`, {shape}; got shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"`indices` must be integers, the class of each value; got dtype {array.dtype}. "
            "Convert with `.astype(int)`."
        )
    if place := first_true((array < EMPTY) | (array >= n_classes)):
        raise ValueError(
            f"`indices` must lie in [0, {n_classes - 1}], or be -1 for an unused slot; got "
            f"{array[place]} in row {place[0]}, column {place[1]}. Check `n_classes`."
        )
    classes = array.astype(np.int64)
    ranked = np.sort(classes, axis=1)
    if place := first_true((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] != EMPTY)):
        raise ValueError(
            f"`indices` must name each class once per row; class {ranked[place]} is in row "
            f"{place[0]} twice. Keep the larger value, or combine them with `np.logaddexp`."
        )
    return classes


def best_first(values: AnyArray, classes: IntArray) -> IntArray:
    """The order (n, k) of each row: descending values, ties by class, unused slots last."""
    last = np.iinfo(np.int64).max
    return np.lexsort((np.where(classes == EMPTY, last, classes), -values), axis=1)


def check_ceiling(ceiling: ArrayLike | None, values: AnyArray, classes: IntArray) -> FloatArray:
    """The largest value of a hidden logit, (n,)."""
    seen = classes != EMPTY
    numbers = values.astype(np.float64)
    if ceiling is None:
        return np.asarray(np.min(numbers, axis=1, initial=np.inf, where=seen))
    limit = _one_per_row(ceiling, "ceiling", values.shape[0])
    possible = np.min(numbers, axis=1, initial=np.inf, where=numbers > -np.inf)
    if place := first_true(~(limit <= possible)):
        raise ValueError(
            "`ceiling` must be at most the smallest seen value of its row, as larger ones would "
            f"have been seen; got {limit[place]} above {possible[place]} in row {place[0]}."
        )
    return limit


def check_rest(rest: ArrayLike, hidden: IntArray, ceiling: FloatArray) -> FloatArray:
    """The log of the hidden sum, (n,), at most what the hidden classes can hold."""
    known = _one_per_row(rest, "rest", hidden.size)
    with np.errstate(divide="ignore"):
        most = np.log(hidden) + np.where(hidden > 0, ceiling, 0.0)
    if place := first_true((hidden > 0) & ~(known <= most + SLACK)):
        raise ValueError(
            "`rest` must be the log of the sum of the exponentials of the hidden logits, at most "
            f"log({hidden[place]}) + {ceiling[place]:g} = {most[place]:g} in row {place[0]}, as "
            f"none lies above the smallest seen; got {known[place]:g}."
        )
    return np.asarray(np.minimum(known, most))


def _one_per_row(numbers: ArrayLike, name: str, n_rows: int) -> FloatArray:
    array = to_floats(numbers, name)
    if array.shape not in ((), (n_rows,)):
        raise ValueError(
            f"`{name}` must be a number or (n,), one per row of {n_rows}; got shape {array.shape}."
        )
    return np.broadcast_to(array, (n_rows,)).copy()


#: Smallest rest that can be derived from log-probabilities in single precision.
_PRECISION = 1e-7


class TopK(Logits):
    """The best logits of each row, and which classes they belong to.

    Rows of `values` and `indices` are kept sorted by descending value, ties by class. `labels` (n,)
    are the uncalibrated ones, the first of each row; `hidden` (n,) counts the hidden classes.

    Parameters
    ----------
    values : array-like of shape (n, k)
        The seen logits or log-probabilities, in any order. -inf marks a masked class.
    indices : array-like of shape (n, k)
        The class of each value, each once per row. -1 marks an unused slot, for rows in which
        fewer are known; its value is ignored.
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
    _n_classes: int

    def __init__(
        self,
        values: ArrayLike,
        indices: ArrayLike,
        n_classes: int,
        *,
        ceiling: ArrayLike | None = None,
        rest: ArrayLike | None = None,
    ) -> None:
        numbers, _ = as_float_matrix(to_numpy(values, "values"), "values")
        classes = check_indices(indices, numbers.shape, check_class_count(n_classes, numbers))
        numbers = np.where(classes == EMPTY, numbers.dtype.type(-np.inf), numbers)
        top = row_maxima(numbers, NUMPY)
        check_rows(Logits(numbers, top), "values")
        order = best_first(numbers, classes)
        numbers, classes = (np.take_along_axis(a, order, axis=1) for a in (numbers, classes))
        hidden = int(n_classes) - np.count_nonzero(classes != EMPTY, axis=1)
        limit = check_ceiling(ceiling, numbers, classes)
        vars(self).update(
            values=numbers,
            top=top,
            indices=classes,
            hidden=hidden,
            ceiling=np.where(hidden > 0, limit, -np.inf),
            rest=None if rest is None else check_rest(rest, hidden, limit),
            _n_classes=int(n_classes),
        )
        self.__post_init__()

    @classmethod
    def from_log_probabilities(
        cls,
        values: ArrayLike,
        indices: ArrayLike,
        n_classes: int,
    ) -> Self:
        """From log-probabilities of the best classes, whose sum gives the mass of the others.

        Only for probabilities over exactly the `n_classes` classes. If they are over a larger set,
        such as a vocabulary that contains the classes, use `TopK`. For probabilities take their
        logarithms; a class with probability 0 gets the index -1, and so a share of the rest.

        >>> top = TopK.from_log_probabilities(np.log([[0.7, 0.2]]), [[4, 2]], n_classes=10)
        >>> np.exp(top.rest).round(3)
        array([0.1])
        """
        seen = cls(values, indices, n_classes)
        return cls(seen.values, seen.indices, n_classes, rest=_unseen_mass(seen))

    @classmethod
    def from_logits(cls, logits: Any, k: int, *, keep_rest: bool = True) -> Self:
        """The `k` best of dense logits (n, classes), with one number for the rest of each row.

        >>> TopK.from_logits([[1.0, 4.0, 2.0]], 2).indices
        array([[1, 2]])
        """
        if isinstance(logits, Logits):
            given = logits.with_every_class("from_logits", "Give it all logits")
            logits = given.to_host(given.values)
        dense = as_logits(to_numpy(logits, "logits"))
        k = min(check_count(k, name="k"), dense.n_classes)
        indices = np.empty((dense.n_rows, k), np.int64)
        rest = np.full(dense.n_rows, -np.inf)
        for rows in row_slices(dense.n_rows, dense.n_classes):
            order = np.argsort(-dense.values[rows], axis=1, kind="stable")
            indices[rows] = order[:, :k]
            if k < dense.n_classes:
                others = np.take_along_axis(dense.values[rows], order[:, k:], axis=1)
                rest[rows] = np.logaddexp.reduce(others.astype(np.float64), axis=1)
        values = np.take_along_axis(dense.values, indices, axis=1)
        return cls(values, indices, dense.n_classes, rest=rest if keep_rest else None)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> Self:
        """Rows selected by a slice, a mask or row numbers."""
        return self._take(rows if isinstance(rows, slice) else np.atleast_1d(rows))

    def __array__(self, dtype: Any = None, copy: Any = None) -> AnyArray:
        raise TypeError(
            "a TopK has no logit for its hidden classes, so it cannot become an array. Use "
            "`TopK.to_dense(fill=...)`."
        )

    def __repr__(self) -> str:
        return (
            f"TopK({self.n_rows} rows, the best {self.n_columns} of {self.n_classes} classes, the "
            f"rest {'unknown' if self.rest is None else 'known in sum'})"
        )

    @property
    def n_classes(self) -> int:
        return self._n_classes

    @cached_property
    def labels(self) -> IntArray:
        """The classifier's own label per row: the best class, on ties the first."""
        return self.indices[:, 0].copy()

    @property
    def label_columns(self) -> IntArray:
        """The best comes first."""
        return np.zeros(self.n_rows, np.int64)

    @cached_property
    def tail(self) -> Tail:
        """Equal classes in place of the hidden ones; see the module's docstring."""
        gap = self._ceiling_margin
        possible = gap < np.inf if self.rest is None else self.rest > -np.inf
        count = np.where(possible, self.hidden, 0).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rest is not None:
                margin = np.maximum(self.top - self.rest + np.log(count), gap)  # up to rounding
            else:
                seen = np.exp(-self.margins).sum(axis=1)
                margin = gap + np.log(2.0 + count * np.exp(-gap) / seen)
        return Tail(np.where(count > 0.0, margin, np.inf), count)

    @property
    def _ceiling_margin(self) -> FloatArray:
        """Least distance of the hidden logits below the top, (n,); inf where there are none."""
        with np.errstate(over="ignore"):
            return np.asarray(self.top - self.ceiling)

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,); for a hidden class that of the tail."""
        found = self.indices == classes[:, None]
        seen = np.max(self.values, axis=1, initial=-np.inf, where=found)
        below = self.top - self.tail.margin
        return np.asarray(np.where(found.any(axis=1), seen.astype(np.float64), below))

    @cached_property
    def gaps(self) -> FloatArray:
        """Gap between the two largest logits, (n,); the least possible if one is hidden."""
        if self.n_columns == 1:
            return self._ceiling_margin
        return np.asarray(self.top - self.values[:, 1].astype(np.float64))

    def _take(self, rows: Any) -> Self:
        part = object.__new__(type(self))
        names = ("values", "top", "indices", "hidden", "ceiling")
        vars(part).update(
            **{name: getattr(self, name)[rows] for name in names},
            rest=None if self.rest is None else self.rest[rows],
            _n_classes=self._n_classes,
        )
        part.__post_init__()
        if "tail" in self.__dict__:
            vars(part).update(tail=Tail(self.tail.margin[rows], self.tail.count[rows]))
        return part

    def _simplify(self) -> Logits:
        """Plain logits if no class is hidden, else itself."""
        return self if self.hidden.any() else self.fill()

    def with_every_class(self, caller: str, remedy: str) -> Logits:
        raise ValueError(
            f"`{caller}` needs the logit of every class; the input has the best "
            f"{self.n_columns} of {self.n_classes}. {remedy}, or fill in the rest yourself with "
            "`TopK.to_dense(fill=...)`."
        )

    def fill(self) -> Logits:
        """Plain logits (n, classes), with the tail's value for the hidden classes."""
        dense = Logits(self.to_dense(), self.top)
        dense.__dict__["labels"] = self.labels  # also where a hidden class ties
        return dense

    def to_dense(self, *, fill: ArrayLike | None = None) -> AnyArray:
        """An array (n, classes) with `fill`, a number or one per row, for the hidden classes.

        None uses the value of the `tail`, which shares the rest evenly.

        >>> TopK([[2.0, 1.0]], [[3, 1]], n_classes=4).to_dense(fill=-np.inf)
        array([[-inf,   1., -inf,   2.]])
        """
        below = self.top - self.tail.margin if fill is None else np.asarray(fill, np.float64)
        dtype = np.float64 if self.hidden.any() else self.values.dtype
        dense = np.empty((self.n_rows, self.n_classes), dtype)
        dense[:] = np.broadcast_to(below, (self.n_rows,))[:, None]
        row, place = np.nonzero(self.indices != EMPTY)
        dense[row, self.indices[row, place]] = self.values[row, place]
        return dense


def mark_seen(logits: TopK) -> AnyArray:
    """Which classes have a column, (n, classes) bool."""
    return ~np.isnan(logits.to_dense(fill=np.nan))


def _unseen_mass(seen: TopK) -> FloatArray:
    """The log of the probability left to the hidden classes, (n,)."""
    sums = np.exp(np.minimum(seen.values.astype(np.float64), 1.0)).sum(axis=1)
    most = seen.hidden * np.exp(seen.ceiling)
    left = 1.0 - sums
    if place := first_true((left < -SLACK) | (left > most + SLACK)):
        raise ValueError(
            "`values` must be log-probabilities over all classes: their exponentials sum to at "
            f"most 1, and the hidden classes can hold what is left; row {place[0]} sums to "
            f"{sums[place]:.6g}, and {seen.hidden[place]} hidden classes can hold "
            f"{most[place]:.6g} at most. For logits, or probabilities of more classes, use `TopK`."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.clip(left, np.minimum(_PRECISION, most), most)))
