"""Fingerprints of rows, so that the rows of a fit are not taken for fresh ones.

A row has a hash, which is the same in any batch, library and type. Of the hashes of all
rows the smallest are kept, with how often each was seen: a `RowSketch`. Sketches of
parts can be joined in any order, and the share of new rows that is among those of the
fit can be estimated. The same hashes draw rows at random without a generator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import AnyArray, FloatArray, IntArray
from hokical._core.checks import ArrayOf, check_choice
from hokical._core.groups import read_columns, take_rows
from hokical._core.logits import Logits, TopK
from hokical._core.reading import Rows, as_clusters
from hokical._core.runtime import FitDataWarning, warn_user
from hokical._core.special import clip
from hokical._core.storage import pack_array, storable

#: What to do about rows that look like those of the fit.
Reused = Literal["refuse", "ignore"]
#: How many hashes are kept, and how many columns of a row they are made of.
_KEPT = 512
_COLUMNS = 8
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def scatter(numbers: NDArray[np.uint64]) -> FloatArray:
    """Numbers in [0, 1) that look random, the same for equal ones (SplitMix64, 53
    bits).
    """
    bits = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53


def row_draws(first: int, n_rows: int) -> FloatArray:
    """A number in [0, 1) for each row (n,) by its place alone, `first` that of the
    first.
    """
    return scatter(np.arange(first + 1, first + 1 + n_rows, dtype=np.uint64))


def one_of_each(rows: Rows, cluster: object) -> Rows:
    """One row of each cluster (n,), drawn by their places, of those of weight above
    0.
    """
    codes = as_clusters(cluster, len(rows.labels))
    draws = row_draws(0, len(rows.labels))
    if rows.weights is not None:
        draws = draws + 2.0 * (rows.weights == 0.0)
    order = np.lexsort((draws, codes))
    chosen = np.sort(order[np.unique(codes[order], return_index=True)[1]])
    if rows.groups is not None:
        columns = read_columns(rows.groups, len(rows.labels))
        return replace(rows.take(chosen), groups=take_rows(columns, chosen))
    return rows.take(chosen)


def row_hashes(logits: Logits) -> FloatArray:
    """A number in [0, 1) for each row (n,), from a few margins in steps of 1/4096.

    So a row has the same one in any batch, library and type, after a log-softmax, and
    after a constant is added.
    """
    # Not all columns, which would move a device's logits.
    columns = np.unique(
        np.linspace(0, logits.n_columns - 1, _COLUMNS + 1).astype(np.int64)
    )
    xp = logits.xp
    # Overflow: of logits farther apart than the largest number.
    with logits.backend.in_float64(), np.errstate(over="ignore"):
        sampled = xp.take(logits.values, logits.from_host(columns), axis=1)
        margins = clip(logits.top[:, None] - sampled, None, 1e12, xp)
        # As `rint`, in a fifth of the time.
        steps = margins * 4096.0 + 2.0**52 - 2.0**52
        table = logits.to_host(xp.astype(steps, xp.float32))
    if isinstance(logits, TopK):
        table = np.hstack([table, logits.indices[:, columns]])
    return number_hashes(table)


def number_words(numbers: AnyArray, columns: IntArray) -> NDArray[np.uint64]:
    """Numbers as words of the same shape, in single precision; 0 is the word 0.

    Each word has a factor of its column's, so that equal numbers in other columns count
    otherwise.
    """
    odd = np.full(columns.max(initial=0) + 1, np.uint64(0x9E3779B97F4A7C15))
    with np.errstate(over="ignore", invalid="ignore"):
        words = (
            (numbers.astype(np.float32, copy=False) + 0.0)
            .view(np.uint32)
            .astype(np.uint64)
        )
    return words * np.multiply.accumulate(odd)[columns]


def number_hashes(table: AnyArray) -> FloatArray:
    """A number in [0, 1) for each row (n,) of numbers (n, columns), from all of
    them.
    """
    # So many rows at a time, as each number takes some 25 bytes.
    step = max(1, (1 << 19) // max(table.shape[1], 1))
    columns = np.arange(table.shape[1])
    cuts = range(0, len(table), step)
    return scatter(
        np.concatenate(
            [number_words(table[k : k + step], columns).sum(axis=1) for k in cuts]
        )
    )


@storable("rows")
@dataclass(frozen=True, eq=False)
class RowSketch:
    """The smallest `hashes` (k,) of rows, rising, and their `counts` (k,)."""

    hashes: Annotated[FloatArray, ArrayOf(("rows",), 0.0, 1.0, rising=True)]
    counts: Annotated[IntArray, ArrayOf(("rows",), 1, 1 << 62, np.int64)]

    @classmethod
    def from_hashes(cls, hashes: FloatArray) -> Self:
        """From hashes (n,) in any order."""
        distinct, counts = np.unique(hashes, return_counts=True)
        return cls(distinct[:_KEPT], counts[:_KEPT].astype(np.int64))

    def __add__(self, second: Self) -> Self:
        """Of both lots of rows."""
        distinct, index = np.unique(
            np.append(self.hashes, second.hashes), return_inverse=True
        )
        counts = np.bincount(
            index, np.append(self.counts, second.counts), distinct.size
        )
        return type(self)(distinct[:_KEPT], counts[:_KEPT].astype(np.int64))

    def to_stored(self) -> dict[str, Any]:
        return {"hashes": pack_array(self.hashes), "counts": pack_array(self.counts)}

    @property
    def share_of_twins(self) -> float:
        """How often a row comes again by itself (Good and Turing)."""
        return float(
            1.0 - np.count_nonzero(self.counts == 1) / max(self.counts.sum(), 1)
        )

    @property
    def has_twins(self) -> bool:
        """Whether equal rows are no copies of one another, because rows have few
        values.
        """
        return self.share_of_twins > 0.05

    def holds_too_many(self, hashes: FloatArray) -> bool:
        """Whether more of the rows with these hashes (n,) are of the fit than of fresh
        ones.

        Rows of few distinct values come again by themselves: as often as a row of the
        fit has a twin (Good and Turing). Beyond that, 5 % and four standard errors of
        the difference are attributed to coincidence.
        """
        if self.hashes.size == _KEPT:  # beyond the last one nothing is known
            hashes = hashes[hashes <= self.hashes[-1]]
        if not hashes.size or not self.hashes.size:
            return False
        share_found = np.isin(hashes, self.hashes).mean()
        twins = self.share_of_twins
        n_once, n_twice = ((self.counts == k).sum() for k in (1, 2))
        n = float(self.counts.sum())
        spread = (
            n_once * (1.0 - n_once / n) + 2.0 * n_twice
        ) / n**2 + 0.25 / hashes.size
        return bool(share_found > twins + 0.05 + 4.0 * np.sqrt(spread))


def warn_of_rows_of_fit(reused: bool, name: str | None = None) -> None:
    """Warn if rows of the fit were `reused` in data that are to measure it, or in
    their file.
    """
    if reused:
        warn_user(
            f"{name or 'the test set'} holds the examples that the calibrator was "
            "fitted on, so it looks better than it is. Use other examples, or "
            "`hokical.evaluate(method, x, y, folds=10)`.",
            FitDataWarning,
        )


def refuse_rows_of_fit(is_of_fit: bool, name: str, reused: Reused) -> None:
    """Raise if rows in the argument `name` are of the fit (`is_of_fit`), unless
    `reused` allows it.
    """
    check_choice("reused", reused, Reused)
    if is_of_fit and reused == "refuse":
        raise ValueError(
            f"`{name}` must be of examples that were not used in `fit`; got rows of "
            "the fit, which look better than new ones. Fit on one part of the "
            "examples and certify on the other. "
            'If new rows happen to be identical, pass `reused="ignore"` (--look-alike).'
        )
