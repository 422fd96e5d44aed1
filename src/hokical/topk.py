"""Logits of which only the best of each row are known.

Many systems keep only the k best logits: an API returns the 20 most likely tokens of 100,000. What
is not seen is still bounded: no hidden logit lies above the smallest one seen. `TopK` carries the
seen logits, how many classes are hidden, and what is known of them; it is accepted wherever logits
are, and no array with a column per class is made of it.

One number has to stand for what is hidden in sums over classes, such as a softmax: as many equal
classes as are hidden (`tail`). Their sum of exponentials is `rest` where that is known. Where it is
not, they are placed so that the softmax confidence is the midpoint of what it could be.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hokical._topk_checks import (
    EMPTY,
    SLACK,
    best_first,
    checked_ceiling,
    checked_class_count,
    checked_indices,
    checked_rest,
)
from hokical.bins import check_count
from hokical.logits import Logits, Tail, as_float_matrix, as_logits, checked_row_maxima

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: What log-probabilities in single precision can tell of the rest.
_PRECISION = 1e-7


class TopK(Logits):
    """The best logits of each row, and which classes they belong to.

    Parameters
    ----------
    values : array-like of shape (n, k)
        The seen logits or log-probabilities, in any order. -inf marks an impossible class.
    indices : array-like of shape (n, k)
        The class of each value, each once per row. -1 marks an empty place, for rows in which
        fewer are known; its value is ignored.
    n_classes : int
        How many classes there are, seen and hidden.
    ceiling : array-like of shape (n,), optional
        The largest value that a hidden logit can have, at most the smallest seen. None takes the
        smallest seen.
    rest : array-like of shape (n,), optional
        The log of the sum of the exponentials of the hidden logits, where known: it makes the
        bounds tighter. `from_log_probabilities` and `from_logits` fill it in.

    Attributes
    ----------
    values, indices : (n, k), each row sorted from the best down, equals by their class
    labels : (n,), the classifier's own: the first of each row
    hidden : (n,), how many classes are not seen
    ceiling, rest : (n,), as given or found

    Examples
    --------
    >>> from hokical import TopK, label_stability
    >>> from hokical.noise import Gaussian
    >>> top = TopK([[1.0, 5.0, 0.5]], [[7, 3, 0]], n_classes=1000)
    >>> top.labels, top.hidden
    (array([3]), array([997]))
    >>> label_stability(top, Gaussian(1.0)).round(2)
    array([0.94])
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
        numbers = as_float_matrix(values, "values")
        classes = checked_indices(indices, numbers.shape, checked_class_count(n_classes, numbers))
        numbers = np.where(classes == EMPTY, numbers.dtype.type(-np.inf), numbers)
        top = checked_row_maxima(numbers, "values")
        order = best_first(numbers, classes)
        numbers, classes = (np.take_along_axis(a, order, axis=1) for a in (numbers, classes))
        hidden = int(n_classes) - np.count_nonzero(classes != EMPTY, axis=1)
        limit = checked_ceiling(ceiling, numbers, classes)
        self._store(
            values=numbers,
            top=top,
            indices=classes,
            hidden=hidden,
            ceiling=np.where(hidden > 0, limit, -np.inf),
            rest=None if rest is None else checked_rest(rest, hidden, limit),
            _n_classes=int(n_classes),
        )

    @classmethod
    def from_log_probabilities(
        cls,
        values: ArrayLike,
        indices: ArrayLike,
        n_classes: int,
        *,
        ceiling: ArrayLike | None = None,
    ) -> TopK:
        """From log-probabilities of the best classes, whose sum tells how likely the others are.

        Only for probabilities over all `n_classes` classes. Where they are over something larger,
        such as a vocabulary of which the classes are a part, use `TopK`.

        >>> top = TopK.from_log_probabilities(np.log([[0.7, 0.2]]), [[4, 2]], n_classes=10)
        >>> np.exp(top.rest).round(3)
        array([0.1])
        """
        seen = cls(values, indices, n_classes, ceiling=ceiling)
        return cls(
            seen.values, seen.indices, n_classes, ceiling=seen.ceiling, rest=_unseen_mass(seen)
        )

    @classmethod
    def from_logits(cls, logits: Any, k: int, *, keep_rest: bool = True) -> TopK:
        """The `k` best of dense logits (n, classes), with one number for the rest of each row.

        >>> TopK.from_logits([[1.0, 4.0, 2.0]], 2).indices
        array([[1, 2]])
        """
        dense = as_logits(logits)
        k = min(check_count(k, name="k"), dense.n_classes)
        indices = np.empty((dense.n_rows, k), np.int64)
        rest = np.full(dense.n_rows, -np.inf)
        for rows in dense.row_blocks():
            order = np.argsort(-dense.values[rows], axis=1, kind="stable")
            indices[rows] = order[:, :k]
            if k < dense.n_classes:
                others = np.take_along_axis(dense.values[rows], order[:, k:], axis=1)
                rest[rows] = np.logaddexp.reduce(others.astype(np.float64), axis=1)
        values = np.take_along_axis(dense.values, indices, axis=1)
        return cls(values, indices, dense.n_classes, rest=rest if keep_rest else None)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> TopK:
        """Some of the rows: a slice, a mask or row numbers."""
        return self.take(rows if isinstance(rows, slice) else np.atleast_1d(rows))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(
            "a TopK has no logit for its hidden classes, so it is no array. Use "
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
        """The classifier's own label per row: the best, the first of equals."""
        return self.indices[:, 0].copy()

    @cached_property
    def single_choice(self) -> NDArray[np.bool_]:
        """Rows in which every class but one is impossible (-inf), (n,)."""
        return np.asarray(self.possible_counts(slice(None)) == 1)

    @cached_property
    def tail(self) -> Tail:
        """Equal classes in the place of the hidden ones; see the module's text."""
        gap = self.ceiling_margin
        possible = gap < np.inf if self.rest is None else self.rest > -np.inf
        count = np.where(possible, self.hidden, 0).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rest is not None:
                margin = np.maximum(self.top - self.rest + np.log(count), gap)  # but for rounding
            else:
                seen = np.exp(-self.margins(slice(None))).sum(axis=1)
                margin = gap + np.log(2.0 + count * np.exp(-gap) / seen)
        return Tail(np.where(count > 0.0, margin, np.inf), count)

    @property
    def ceiling_margin(self) -> FloatArray:
        """How far below the top the hidden logits lie at least, (n,); inf where there are none."""
        with np.errstate(over="ignore"):
            return np.asarray(self.top - self.ceiling)

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,): that of the tail for a hidden class."""
        found = self.indices == classes[:, None]
        seen = np.max(self.values, axis=1, initial=-np.inf, where=found)
        return np.where(found.any(axis=1), seen.astype(np.float64), self.top - self.tail.margin)

    def possible_counts(self, rows: slice) -> IntArray:
        """How many classes of each row are possible (above -inf), (rows,)."""
        return super().possible_counts(rows) + self.tail.count[rows].astype(np.int64)

    def runner_up_gaps(self, rows: slice) -> FloatArray:
        """How far the second largest logit lies below the largest, (rows,), or may lie."""
        if self.n_columns == 1:
            return self.ceiling_margin[rows]
        return self.top[rows] - self.values[rows, 1].astype(np.float64)

    def take(self, rows: slice | IntArray) -> TopK:
        """The same for some of the rows."""
        part = object.__new__(TopK)
        names = ("values", "top", "indices", "hidden", "ceiling")
        part._store(
            **{name: getattr(self, name)[rows] for name in names},
            rest=None if self.rest is None else self.rest[rows],
            _n_classes=self._n_classes,
        )
        return part

    def simplified(self) -> Logits:
        """Plain logits where no class is hidden, else itself."""
        return self if self.hidden.any() else self.filled()

    def with_every_class(self, who: str, remedy: str) -> Logits:
        raise ValueError(
            f"`{who}` needs the logit of every class; the input has the best {self.n_columns} of "
            f"{self.n_classes}. {remedy}, or fill in the rest yourself with "
            "`TopK.to_dense(fill=...)`."
        )

    def filled(self) -> Logits:
        """Plain logits (n, classes) with the tail's in the place of the hidden ones."""
        dense = Logits(self.to_dense(), self.top)
        dense.__dict__["labels"] = self.labels  # a hidden equal of the label does not replace it
        return dense

    def to_dense(self, *, fill: ArrayLike | None = None) -> NDArray[Any]:
        """An array (n, classes) with `fill`, a number or one per row, for what is hidden.

        None shares what is left evenly, as the `tail` has it.

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

    def _store(self, **fields: Any) -> None:
        """Set what is fixed from now on."""
        self.__dict__.update(fields)


def _unseen_mass(seen: TopK) -> FloatArray:
    """The log of what the seen log-probabilities leave to the hidden classes, (n,)."""
    sums = np.exp(np.minimum(seen.values.astype(np.float64), 1.0)).sum(axis=1)
    most = seen.hidden * np.exp(seen.ceiling)
    left = 1.0 - sums
    off = (left < -SLACK) | (left > most + SLACK)
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            "`values` must be log-probabilities over all classes: their exponentials sum to at "
            "most 1, and the hidden classes can hold what is left; row "
            f"{row} sums to {sums[row]:.6g}, and {seen.hidden[row]} hidden classes can hold "
            f"{most[row]:.6g} at most. For logits, or probabilities over more classes, use `TopK`."
        )
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.clip(left, np.minimum(_PRECISION, most), most)))
