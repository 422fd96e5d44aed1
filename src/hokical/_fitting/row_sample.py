"""The rows that a method is fitted on: all of them, or a uniform sample of a large number.

One pass over the examples checks every row, notes what guarantees need (`ExampleStats`), and keeps
the rows whose hashed row numbers are smallest. The sample depends on the row numbers alone: it is
the same for arrays, files, iterators and Dask arrays, for any size of the chunks, without a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
    kept, stats = reduce_with_stats(
        examples,
        partial(_keep_block, grouped=examples.groups is not None, rows_per_class=rows_per_class),
        partial(_join, refusal=refusal),
    )
    if not kept.n_counting:
        raise ValueError("`sample_weight` must not be zero everywhere. Give some example a weight.")
    kept.refuse(refusal)
    block, rows = kept.finish()
    if examples.groups is not None:
        block = _add_groups(block, examples.groups, np.concatenate(kept.counting), rows)
    return replace(block, sampled_from=None if rows is None else kept.n_counting), stats


def sample_block(block: Examples) -> Examples:
    """The rows of a block that a method would be fitted on."""
    return _keep_block(block).finish()[0]


def _add_groups(
    block: Examples, groups: Any, counting: BoolArray, rows: IntArray | None
) -> Examples:
    """The block with `GroupedLogits`; groups are coded by all rows that count."""
    if isinstance(block.logits, TopK):
        raise TypeError(
            "`logits` must be (n, classes) where there are `groups`; got a TopK. Leave the groups "
            "out, or pass all logits."
        )
    chosen = slice(None) if rows is None else rows
    return replace(block, logits=code_groups(block.logits, groups, counting, chosen))


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of a block: their hashed numbers (n,), their numbers (n,), and the rows themselves."""

    keys: FloatArray
    rows: IntArray
    block: Examples


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is kept of the rows read so far: those that can be in the sample, in order."""

    n_rows: int
    n_counting: int
    parts: tuple[_Part, ...]
    counting: tuple[BoolArray, ...]
    rows_per_class: int

    @property
    def _whole(self) -> int:
        """The largest number of rows that is used as a whole."""
        logits = self.parts[0].block.logits
        more = min(self.rows_per_class * logits.n_classes * logits.n_columns, MOST_FOR_CLASSES)
        return max(1, max(MOST_LOGITS, more) // logits.n_columns)

    @property
    def _wanted(self) -> int:
        return self._whole if self.n_counting <= self._whole else min(MOST_ROWS, self._whole)

    @property
    def is_whole(self) -> bool:
        return self.n_rows <= self._whole

    def refuse(self, refusal: str | None) -> None:
        if refusal and not self.is_whole:
            raise ValueError(refusal)

    def pruned(self) -> _Kept:
        """The same without rows that cannot be in the sample, once there are many of them."""
        if self.is_whole or sum(part.keys.size for part in self.parts) <= 2 * self._wanted:
            return self
        return replace(self, parts=(self._cut(),))

    def _cut(self) -> _Part:
        """The rows with a weight whose keys are smallest, as many as are wanted."""
        keys = np.concatenate([part.keys for part in self.parts])
        size = min(self._wanted, np.count_nonzero(keys < _NEVER))
        chosen = np.sort(np.argsort(keys, kind="stable")[:size])
        rows = np.concatenate([part.rows for part in self.parts])
        block = _join_blocks([part.block for part in self.parts])
        return _Part(keys[chosen], rows[chosen], block.take(chosen))

    def finish(self) -> tuple[Examples, IntArray | None]:
        """The sample, and the numbers (n,) of its rows; None if that is all of them."""
        if self.is_whole:
            return _join_blocks([part.block for part in self.parts]), None
        sample = self._cut()
        return sample.block, sample.rows


def _keep_block(block: Examples, grouped: bool = False, rows_per_class: int = 0) -> _Kept:
    counting = block.counting
    keys = np.where(counting, row_draws(block.first_row, block.n_rows), _NEVER)
    part = _Part(keys, block.first_row + np.arange(block.n_rows), block)
    counts = (counting,) if grouped else ()
    return _Kept(block.n_rows, int(counting.sum()), (part,), counts, rows_per_class).pruned()


def _join(left: _Kept, right: _Kept, refusal: str | None) -> _Kept:
    found = _Kept(
        left.n_rows + right.n_rows,
        left.n_counting + right.n_counting,
        left.parts + right.parts,
        left.counting + right.counting,
        left.rows_per_class,
    )
    found.refuse(refusal)
    return found.pruned()


def _join_blocks(blocks: list[Examples]) -> Examples:
    """Blocks one below the other."""
    if len(blocks) == 1:
        return blocks[0]
    logits = [block.logits for block in blocks]
    xp = logits[0].xp
    values, top = (
        xp.concat([getattr(part, name) for part in logits]) for name in ("values", "top")
    )
    weights = [block.weights for block in blocks if block.weights is not None]
    if weights and len(weights) < len(blocks):
        raise ValueError("`weights` must be in every chunk or in none; some chunks lack them.")
    return Examples(
        Logits(values, top, logits[0].backend),
        np.concatenate([block.labels for block in blocks]),
        np.concatenate(weights) if weights else None,
    )
