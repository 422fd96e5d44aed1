"""Which positions of an item are taken where not all are: by its number and a seed, evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.core.types import BoolArray

KeyArray = NDArray[np.uint64]

#: Weyl step and multipliers of the SplitMix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def choose_positions(counting: BoolArray, most: int, seed: int, first_item: int) -> BoolArray:
    """At most `most` of the positions of each item that count, drawn evenly.

    `counting` (items, positions) says which positions count; `first_item` is the first item's
    number. The choice depends on nothing but the seed, the item's number and its row.

    >>> everything = np.ones((3, 5), bool)
    >>> choose_positions(everything, 2, seed=0, first_item=0).sum(axis=1).tolist()
    [2, 2, 2]
    """
    if counting.shape[1] <= most:
        return counting
    items, positions = (np.arange(length, dtype=np.uint64) for length in counting.shape)
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    own = _mix(start + (items + np.uint64(first_item)) * _STEP)
    # Every position gets a random key; those of the smallest keys are taken.
    keys = _mix(own[:, None] + positions * _STEP)  # one to one, so an item's keys differ
    keys[~counting] = np.iinfo(np.uint64).max
    last = np.partition(keys, most - 1, axis=1)[:, most - 1 : most]
    return (keys <= last) & counting


def _mix(numbers: KeyArray) -> KeyArray:
    """The finalizer of SplitMix64: one to one, and every bit depends on every other."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))
