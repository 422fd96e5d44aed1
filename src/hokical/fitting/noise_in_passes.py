"""Choosing the noise on any partition: the same search as in memory, a pass for each setting.

Few enough logits are gathered and searched in memory. Of more, the same evenly spaced rows are
taken to locate the width, and it is refined on all rows, so the noise that is found is the same as
if all of them were in memory (but for ties in the last bit).
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from hokical.core.logits import Logits
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.noise_search import scout_rows, search_in_memory, search_widths
from hokical.fitting.noise_trials import NoiseSelection
from hokical.fitting.partitions import Block, Partition, State, join_states
from hokical.stability.noise import family_named

#: What is considered unless something else is asked for.
FAMILIES = ("gaussian", "uniform")
#: Up to this many logits and rows are gathered.
_MOST_LOGITS, _MOST_ROWS = 4_000_000, 50_000
_WHO = 'Hoki with noise="auto"'


def choose_noise(examples: Partition, *, progress: bool | None = None) -> NoiseSelection:
    """`select_noise` for a partition: up to about ten passes over the data."""
    kinds = [family_named(name) for name in FAMILIES]
    if examples.in_memory:
        return search_in_memory(examples.gather(_WHO), kinds, progress)
    first_rows, n_rows, counting = examples.reduce(_count, _join)
    few = n_rows.sum() * examples.n_classes <= _MOST_LOGITS and n_rows.sum() <= _MOST_ROWS
    if few:
        return search_in_memory(examples.gather(_WHO), kinds, progress)
    before = dict(zip(first_rows.tolist(), (np.cumsum(counting) - counting).tolist(), strict=True))
    wanted = scout_rows(int(counting.sum()))
    taken = examples.reduce(partial(_take, wanted=wanted, before=before), _join)
    return search_widths(_as_block(*taken), examples, kinds, progress)


def _count(block: Block) -> State:
    """First row, rows, and rows that count, of each block."""
    numbers = (block.first_row, block.n_rows, np.count_nonzero(block.counting))
    return tuple(np.array([number]) for number in numbers)


def _take(block: Block, wanted: IntArray, before: dict[int, int]) -> State:
    """The wanted rows of a block; `wanted` numbers the rows that count."""
    rows = np.flatnonzero(block.counting)
    inside = wanted - before[block.first_row]
    taken = block.take(rows[inside[(inside >= 0) & (inside < rows.size)]])
    logits = taken.logits
    return logits.on_host(logits.values), logits.on_host(logits.top), taken.labels, taken.counts


def _join(left: State, right: State) -> State:
    return join_states([left, right])


def _as_block(
    values: NDArray[np.floating], top: FloatArray, labels: IntArray, counts: FloatArray
) -> Block:
    return Block(Logits(values, top), labels, None if (counts == 1.0).all() else counts)
