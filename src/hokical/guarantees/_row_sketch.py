"""A small fingerprint of the rows of a fit, so that the same rows are not taken for fresh ones.

Of the hashes of all rows the smallest are kept, with how often each was seen. Sketches of parts can
be joined in any order, and the share of given rows that is among those of the fit can be estimated.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import to_float64
from hokical._core.bins import check_choice
from hokical._core.groups import read_columns, take_rows
from hokical._core.labels import as_clusters
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.reading import Rows
from hokical._core.special import at_most
from hokical._core.storage import pack_array, storable
from hokical._core.topk import TopK
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical._core.warn import FitDataWarning, warn_user

#: What to do about rows that look like those of the fit.
Reused = Literal["refuse", "ignore"]
#: How many hashes are kept, and how many columns of a row they are made of.
_KEPT, _COLUMNS = 512, 8
#: Steps of a margin that tell rows apart, and the largest margin that does.
_PER_UNIT, _FARTHEST = 4096.0, 1e12
#: The share of equal rows in a fit up to which they are copies.
_FEW_TWINS = 0.05
#: Added to a number from 0 to itself it leaves the nearest whole one.
_ROUNDER = 2.0**52
#: Rows that are hashed at a time, as each takes some 200 bytes.
_AT_A_TIME = 1 << 16
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def scatter(numbers: NDArray[np.uint64]) -> FloatArray:
    """Numbers in [0, 1) that look random, the same for equal ones (SplitMix64, 53 bits)."""
    word = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    word = (word ^ (word >> np.uint64(27))) * _MIX[1]
    return ((word ^ (word >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_draws(first: int, n_rows: int) -> FloatArray:
    """A number in [0, 1) for each row (n,) by its place alone, `first` that of the first."""
    return scatter(np.arange(first + 1, first + 1 + n_rows, dtype=np.uint64))


def one_of_each(rows: Rows, cluster: Any) -> Rows:
    """One row of each cluster (n,), drawn by their places, of those of weight above 0."""
    codes, draws = as_clusters(cluster, len(rows.labels)), row_draws(0, len(rows.labels))
    if rows.weights is not None:
        draws = draws + 2.0 * (rows.weights == 0.0)
    order = np.lexsort((draws, codes))
    kept = np.sort(order[np.unique(codes[order], return_index=True)[1]])
    scores, groups = rows.scores, rows.groups
    if groups is not None and not isinstance(groups, np.ndarray):
        groups = take_rows(read_columns(groups, len(rows.labels)), kept)
    elif groups is not None:
        groups = groups[kept]
    return rows._replace(
        scores=scores.take(kept) if isinstance(scores, Logits) else scores[kept],
        labels=rows.labels[kept],
        weights=None if rows.weights is None else rows.weights[kept],
        groups=groups,
    )


def row_hashes(logits: Logits) -> FloatArray:
    """A number in [0, 1) for each row (n,), from a few margins in steps of 1/4096.

    So a row has the same one in any batch, library and type, after a log-softmax, and after a
    constant is added.
    """
    # Not all columns, which would move a device's logits.
    places = np.unique(np.linspace(0, logits.n_columns - 1, _COLUMNS + 1).astype(np.int64))
    xp = logits.xp
    # Overflow: of logits farther apart than the largest number.
    with logits.backend.in_float64(), np.errstate(over="ignore"):
        few = to_float64(xp.take(logits.values, logits.from_host(places), axis=1), xp)
        margins = at_most(to_float64(logits.top, xp)[:, None] - few, _FARTHEST, xp)
        steps = margins * _PER_UNIT + _ROUNDER - _ROUNDER  # as `rint`, in a fifth of the time
        table = logits.to_host(xp.astype(steps, xp.float32))
    if isinstance(logits, TopK):
        table = np.hstack([table, logits.indices[:, places]])
    return number_hashes(table)


def odd_powers(n: int) -> NDArray[np.uint64]:
    """A factor (n,) for each column, so that equal numbers in other columns count otherwise."""
    return np.multiply.accumulate(np.full(n, _ODD))


def number_words(numbers: AnyArray) -> NDArray[np.uint64]:
    """Numbers as words of the same shape, in single precision; 0 is the word 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (numbers.astype(np.float32, copy=False) + 0.0).view(np.uint32).astype(np.uint64)


def number_hashes(table: AnyArray) -> FloatArray:
    """A number in [0, 1) for each row (n,) of numbers (n, columns), from all of them."""
    step, odd = max(1, _AT_A_TIME * _COLUMNS // max(table.shape[1], 1)), odd_powers(table.shape[1])
    cuts = cut_rows(len(table), step)
    return scatter(np.concatenate([number_words(table[rows]) @ odd for rows in cuts]))


@storable("rows")
@dataclass(frozen=True, eq=False)
class RowSketch:
    """The smallest `hashes` (k,) of rows, rising, and their `counts` (k,)."""

    hashes: FloatArray
    counts: IntArray

    def __post_init__(self) -> None:
        kinds = (self.hashes.dtype.kind, self.counts.dtype.kind)
        rising = kinds == ("f", "i") and (np.diff(self.hashes) > 0.0).all()
        if not rising or self.hashes.shape != self.counts.shape or (self.counts < 1).any():
            raise ValueError("a sketch of rows must hold rising hashes and how often each was seen")

    @classmethod
    def from_hashes(cls, hashes: FloatArray, counts: IntArray | None = None) -> Self:
        """From hashes (n,) in any order, and how often each was seen."""
        own = np.unique(hashes)[:_KEPT]
        kept = hashes <= own[-1] if own.size else np.zeros(0, np.bool_)
        place = np.searchsorted(own, hashes[kept])
        total = np.bincount(place, None if counts is None else counts[kept], own.size)
        return cls(own, total.astype(np.int64))

    def __or__(self, other: Self) -> Self:
        """Of both lots of rows."""
        pairs = zip((self.hashes, self.counts), (other.hashes, other.counts), strict=True)
        return self.from_hashes(*(np.concatenate(pair) for pair in pairs))

    def to_stored(self) -> dict[str, object]:
        return {"hashes": pack_array(self.hashes), "counts": pack_array(self.counts)}

    @property
    def share_of_twins(self) -> float:
        """How often a row comes again by itself (Good and Turing)."""
        return float(1.0 - np.count_nonzero(self.counts == 1) / max(self.counts.sum(), 1))

    @property
    def has_twins(self) -> bool:
        """Whether equal rows are no copies of one another, because rows have few values."""
        return self.share_of_twins > _FEW_TWINS

    def holds_too_many(self, hashes: FloatArray) -> bool:
        """Whether more of the rows with these hashes (n,) are of the fit than of fresh ones.

        Rows of few distinct values come again by themselves: as often as a row of the fit has a
        twin (Good and Turing). Beyond that, 5 % and four standard errors of the difference are
        attributed to coincidence.
        """
        if self.hashes.size == _KEPT:  # beyond the last one nothing is known
            hashes = hashes[hashes <= self.hashes[-1]]
        if not hashes.size or not self.hashes.size:
            return False
        found, twins = np.isin(hashes, self.hashes).mean(), self.share_of_twins
        once, twice = ((self.counts == k).sum() for k in (1, 2))
        n = float(self.counts.sum())
        spread = (once * (1.0 - once / n) + 2.0 * twice) / n**2 + 0.25 / hashes.size
        return bool(found > twins + 0.05 + 4.0 * np.sqrt(spread))


def warn_of_rows_of_fit(found: bool, name: str | None = None) -> None:
    """Warn if rows of the fit were `found` in data that are to measure it, or in their file."""
    if found:
        warn_user(
            f"{name or 'the test set'} holds the examples that the calibrator was fitted on, so it "
            "looks better than it is. Use other examples, or `hokical.evaluate(method, x, y, "
            "folds=10)`.",
            FitDataWarning,
        )


def refuse_rows_of_fit(found: bool, name: str, reused: Reused) -> None:
    """Raise if rows of the fit were `found` in the argument `name`, unless `reused` allows it."""
    check_choice("reused", reused, Reused)
    if found and reused == "refuse":
        raise ValueError(
            f"`{name}` must be of examples that were not used in `fit`; got rows of the fit. They "
            "look better than new ones, so what they certify would not hold. Split the labelled "
            "examples: fit on one part and certify on the other. If they are new and only look "
            'alike, pass `reused="ignore"` (--look-alike).'
        )
