"""Choosing the noise on a stream: the same search as in memory, with a pass for each setting.

Few enough logits are gathered and searched as ever. Of more, the same evenly spaced rows are taken
to locate the width, and it is refined on all rows, so the noise that is found is the same as if all
of them were in memory (but for ties in the last bit).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits
from hokical.noise import Noise, family_named
from hokical.selection import (
    FAMILIES,
    Evaluator,
    NoiseSelection,
    Trial,
    evenly_spaced,
    few_enough,
    one_bin_sums,
    search_widths,
    select_noise,
    trial_from_sums,
)
from hokical.stability.exact import exact_stability
from hokical.streams.blocks import Blocks, State, joined
from hokical.streams.checking import Block

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def select_noise_in_passes(blocks: Blocks, *, progress: bool | None = None) -> NoiseSelection:
    """`select_noise` for blocks: up to about ten passes over the data."""
    blocks.require_passes('Hoki with noise="auto"')
    first_rows, n_rows, counting = blocks.reduce(_count, _joined)
    if few_enough(int(n_rows.sum()) * blocks.n_classes, int(counting.sum())):
        logits, labels, weights = blocks.gather('Hoki with noise="auto"')
        return select_noise(logits, labels, sample_weight=weights, progress=progress)
    before = dict(zip(first_rows.tolist(), (np.cumsum(counting) - counting).tolist(), strict=True))
    wanted = evenly_spaced(int(counting.sum()))
    scout = _as_evaluator(blocks.reduce(partial(_take, wanted=wanted, before=before), _joined))
    kinds = [family_named(name) for name in FAMILIES]
    return search_widths(_PassEvaluator(blocks), scout, kinds, progress)


def _count(block: Block) -> State:
    """First row, rows, and rows that count, of each block."""
    numbers = (block.first_row, block.n_rows, np.count_nonzero(block.counting))
    return tuple(np.array([number]) for number in numbers)


def _take(block: Block, wanted: IntArray, before: dict[int, int]) -> State:
    """The wanted rows of a block; `wanted` numbers the rows that count."""
    rows = np.flatnonzero(block.counting)
    inside = wanted - before[block.first_row]
    rows = rows[inside[(inside >= 0) & (inside < rows.size)]]
    weights = np.ones(block.n_rows) if block.weights is None else block.weights
    logits = block.logits
    return logits.values[rows], logits.top[rows], block.correct[rows], weights[rows]


def _joined(left: State, right: State) -> State:
    return joined([left, right])


def _as_evaluator(taken: State) -> Evaluator:
    values, top, correct, weights = taken
    return Evaluator(Logits(values, top), correct, None if (weights == 1.0).all() else weights)


class _PassEvaluator(Evaluator):
    """Every setting is a pass over the blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.trials = []
        self.after_each = lambda: None

    def __call__(self, noise: Noise) -> Trial:
        sums, count = self.blocks.reduce(partial(_one_bin, noise=noise), _merged)
        return self.keep(trial_from_sums(noise, sums, int(count[0])))


def _one_bin(block: Block, noise: Noise) -> State:
    stability = exact_stability(block.logits, noise)
    return one_bin_sums(stability, block.correct, block.weights), np.array([block.n_rows])


def _merged(left: State, right: State) -> tuple[Any, ...]:
    """Sums add; squared deviations from two means also gain what the means differ."""
    one, other = left[0], right[0]
    total = one + other
    w, v = one[0], other[0]
    if w > 0.0 and v > 0.0:
        total[-1] += (one[1] / w - other[1] / v) ** 2 * w * v / (w + v)
    return total, left[1] + right[1]
