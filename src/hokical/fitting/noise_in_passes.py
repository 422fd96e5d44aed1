"""Choosing the noise on any partition: the same rows as in memory are gathered.

So the noise that is found is the same as if all rows were in memory.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from hokical.core.logits import Logits
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.noise_search import (
    sample_places,
    search_in_memory,
    search_widths,
    take_places,
)
from hokical.fitting.noise_trials import NoiseSelection
from hokical.fitting.partitions import Block, Partition, State, join_states
from hokical.stability.noise import family_named

#: What is considered unless something else is asked for.
DEFAULT_FAMILIES = ("gaussian", "uniform")
_WHO = 'Hoki with noise="auto"'


def choose_noise(examples: Partition, *, progress: bool | None = None) -> NoiseSelection:
    """`select_noise` for a partition: at most two passes over the data."""
    kinds = [family_named(name) for name in DEFAULT_FAMILIES]
    if examples.in_memory:
        return search_in_memory(examples.gather(_WHO), kinds, progress)
    first_rows, counting, weights = examples.reduce(_count, _join)
    starts = np.cumsum(weights) - weights
    before = dict(zip(first_rows.tolist(), starts.tolist(), strict=True))
    places = sample_places(int(counting.sum()), float(weights.sum()), examples.n_classes)
    taken = examples.reduce(partial(_take, places=places, before=before), _join)
    return search_widths(_as_block(*taken), kinds, progress)


def _count(block: Block) -> State:
    """First row, number of rows that count, and sum of their weights, of each block."""
    numbers = (block.first_row, np.count_nonzero(block.counting), np.sum(block.counts))
    return tuple(np.array([number]) for number in numbers)


def _take(block: Block, places: FloatArray | None, before: dict[int, float]) -> State:
    """The rows of a block at some places, or all that count."""
    if places is None:
        taken = block.without_weightless()
    else:
        taken = take_places(block, places, before[block.first_row])
    logits = taken.logits
    return logits.on_host(logits.values), logits.on_host(logits.top), taken.labels, taken.counts


def _join(left: State, right: State) -> State:
    return join_states([left, right])


def _as_block(
    values: NDArray[np.floating], top: FloatArray, labels: IntArray, counts: FloatArray
) -> Block:
    return Block(Logits(values, top), labels, None if (counts == 1.0).all() else counts)
