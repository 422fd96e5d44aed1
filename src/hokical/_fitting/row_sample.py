"""The rows that a method is fitted on: all of them, or a uniform sample of a large number.

One pass over the examples checks every row, notes what guarantees need (`ExampleStats`), and keeps
the rows whose hashed row numbers are smallest. The sample depends on the row numbers alone: it is
the same for arrays, files, iterators and Dask arrays, for any size of the chunks, without a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hokical._core.grouped_logits import code_groups
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.example_stats import ExampleStats, reduce_with_stats
from hokical._fitting.examples import Examples, Partition
from hokical.guarantees._row_sketch import row_draws

#: Above this number of logits a sample is used. It has at most as many logits, and at most this
#: many rows: with 10 classes, 200,000 rows and 1,400,000 rows gave the same log loss to 0.001.
MOST_LOGITS, MOST_ROWS = 4_000_000, 200_000
#: Methods that need so many rows for each class get more logits, up to this number.
MOST_FOR_CLASSES = 25_000_000
#: The key of rows of weight 0; those of other rows are below 1.
_NEVER = 2.0


def read_sample(
    examples: Partition, *, rows_per_class: int = 0, refusal: str | None = None
) -> tuple[Examples, ExampleStats]:
    """Read all examples once: the sample, and the statistics of all of them.

    The sample has at least `rows_per_class` times as many rows as there are classes, if possible.
    `refusal` is the message of the error for examples that are too many to use all of them.
    """
    keep = partial(_keep_block, rows_per_class=rows_per_class)
    kept, stats = reduce_with_stats(examples, keep, partial(_join, refusal=refusal))
    if not stats.n_examples:
        raise ValueError("`sample_weight` must not be zero everywhere. Give some example a weight.")
    kept.refuse(refusal)
    sample = kept.sample()
    block, rows = sample.block, slice(None) if kept.is_whole else sample.rows
    if examples.groups is not None:
        if isinstance(block.logits, TopK):
            raise TypeError(
                "`logits` must be (n, classes) where there are `groups`; got a TopK. Leave the "
                "groups out, or pass all logits."
            )
        logits = code_groups(block.logits, examples.groups, np.concatenate(kept.counting), rows)
        block = block.with_logits(logits)
    return replace(block, sampled_from=None if kept.is_whole else stats.n_examples), stats


def sample_block(block: Examples) -> Examples:
    """The rows of a block that a method would be fitted on."""
    return _keep_block(block).sample().block


@dataclass(frozen=True, eq=False)
class _Kept:
    """How many rows were read, which of them count, and those that can be in the sample, in order.

    `keys` and `rows` (k,) are the hashed numbers and the numbers of the rows in `block`.
    """

    n_rows: int
    n_counting: int
    counting: tuple[BoolArray, ...]
    keys: FloatArray
    rows: IntArray
    block: Examples
    rows_per_class: int

    @property
    def _whole(self) -> int:
        """The largest number of rows that is used as a whole."""
        logits = self.block.logits
        more = min(self.rows_per_class * logits.n_classes * logits.n_columns, MOST_FOR_CLASSES)
        return max(1, max(MOST_LOGITS, more) // logits.n_columns)

    @property
    def is_whole(self) -> bool:
        return self.n_rows <= self._whole

    def refuse(self, refusal: str | None) -> None:
        if refusal and not self.is_whole:
            raise ValueError(refusal)

    def sample(self, spare: int = 1) -> _Kept:
        """The rows with a weight whose keys are smallest, as many as are wanted.

        Itself if all rows are used, or if it has no more than `spare` times the rows wanted.
        """
        whole = self._whole
        wanted = whole if self.n_counting <= whole else min(MOST_ROWS, whole)
        if self.is_whole or (spare > 1 and self.keys.size <= spare * wanted):
            return self
        size = min(wanted, int(np.count_nonzero(self.keys < _NEVER)))
        chosen = np.sort(np.argpartition(self.keys, size - 1)[:size])
        keys, rows, block = self.keys[chosen], self.rows[chosen], self.block.take(chosen)
        return replace(self, keys=keys, rows=rows, block=block)


def _keep_block(block: Examples, rows_per_class: int = 0) -> _Kept:
    counting, rows = block.counting, block.first_row + np.arange(block.n_rows)
    keys = np.where(counting, row_draws(block.first_row, block.n_rows), _NEVER)
    n_rows, n_counting = block.n_rows, int(counting.sum())
    kept = _Kept(n_rows, n_counting, (counting,), keys, rows, block, rows_per_class)
    return kept.sample(spare=2)


def _join(left: _Kept, right: _Kept, refusal: str | None) -> _Kept:
    """The rows of both, one below the other."""
    blocks = (left.block, right.block)
    logits = [block.logits for block in blocks]
    values = logits[0].xp.concat([part.values for part in logits])
    top = logits[0].xp.concat([part.top for part in logits])
    weights = [block.weights for block in blocks if block.weights is not None]
    if len(weights) == 1:
        raise ValueError("`weights` must be in every chunk or in none; some chunks lack them.")
    found = _Kept(
        left.n_rows + right.n_rows,
        left.n_counting + right.n_counting,
        left.counting + right.counting,
        np.append(left.keys, right.keys),
        np.append(left.rows, right.rows),
        Examples(
            Logits(values, top, logits[0].backend),
            np.append(left.block.labels, right.block.labels),
            np.concatenate(weights) if weights else None,
        ),
        left.rows_per_class,
    )
    found.refuse(refusal)
    return found.sample(spare=2)
