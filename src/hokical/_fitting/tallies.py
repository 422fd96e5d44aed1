"""How much weight lies between the edges of isotonic regressions, and the largest key there.

Keys are sorted where they are; what lies below an edge can then be read off at its place, so a few
numbers per edge come to the host. Weights are whole units, whose sums do not depend on an order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, Namespace
from hokical._core.logits import Logits
from hokical._core.types import IntArray

KeyArray = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EdgeTally:
    """What lies below the first edge, then between each edge and the next: all of (edges + 1,).

    `mass` is the weight of the entries and `last` the largest of them, -inf if there is none.
    """

    mass: IntArray
    last: KeyArray

    def __add__(self, other: EdgeTally) -> EdgeTally:
        return EdgeTally(self.mass + other.mass, np.maximum(self.last, other.last))


def tally_rows(
    keys: Array, units: Array | None, edges: list[KeyArray], logits: Logits
) -> list[EdgeTally]:
    """Cut each row of keys (k, m) at rising edges of its own.

    `units` (m,) are what entries weigh, the same in every row; None stands for 1. Keys and units
    are beside the logits, edges on the host.
    """
    closed = [np.append(part, np.float32(np.inf)) for part in edges]  # all keys lie below inf
    sizes = [part.size for part in closed]
    first = np.repeat(np.arange(len(closed)) * keys.shape[1], sizes)
    found = _below_edges(
        keys, units, logits.from_host(first), logits.from_host(np.concatenate(closed)), logits.xp
    )
    place, weight, largest = (np.split(logits.to_host(part), np.cumsum(sizes)) for part in found)
    return [_between(*parts) for parts in zip(place[:-1], weight[:-1], largest[:-1], strict=True)]


def _between(place: IntArray, weight: IntArray, largest: KeyArray) -> EdgeTally:
    """The tally of a row from what lies below its edges."""
    any_there = np.diff(place, prepend=0) > 0
    last = np.where(any_there, largest, np.float32(-np.inf))
    return EdgeTally(np.diff(weight, prepend=0), last.astype(np.float32))


def _below_edges(
    keys: Array, units: Array | None, first: Array, edges: Array, xp: Namespace
) -> tuple[Array, Array, Array]:
    """For every edge: how many keys of its row lie below, what they weigh, the largest of them.

    `first` is where its row begins in the flat array.
    """
    size = int(keys.shape[1])
    if units is None:
        flat = xp.reshape(xp.sort(keys, axis=1), (-1,))
    else:
        order = xp.argsort(keys, axis=1)
        flat = xp.reshape(xp.take_along_axis(keys, order, axis=1), (-1,))
        units = xp.reshape(xp.take(units, xp.reshape(order, (-1,))), keys.shape)
    alone = keys.shape[0] == 1
    place = xp.searchsorted(flat, edges) if alone else _count_below(flat, first, size, edges, xp)
    last = first + xp.clip(place - 1, 0, None)
    largest = xp.take(flat, last)
    if units is None:
        return place, place, largest
    reached = xp.take(xp.reshape(xp.cumulative_sum(units, axis=1), (-1,)), last)
    return place, xp.where(place > 0, reached, xp.zeros_like(reached)), largest


def _count_below(flat: Array, first: Array, size: int, x: Array, xp: Namespace) -> Array:
    """How many of flat[first : first + size], which rise, lie below each x: by bisection."""
    found = xp.zeros_like(first)
    step = 1 << (size.bit_length() - 1)
    while step:
        trial = xp.clip(found + step, None, size)
        found = xp.where(xp.take(flat, first + trial - 1) < x, trial, found)
        step >>= 1
    return found
