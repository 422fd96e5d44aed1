"""All examples, and a random part of them that fits into memory many times over.

What a few thousand rows tell well enough (a floor, a temperature, the weights of candidates, a
first answer) is found on the part; what needs every example goes through all of them in passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hokical._core.grouped_logits import code_groups
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import IntArray
from hokical._fitting.likelihood import (
    ExampleSet,
    WeightedExamples,
    count_block,
    effective_size,
    leave_out_impossible,
    scale_weights,
)
from hokical._fitting.partitions import Block, Partition, State
from hokical._fitting.streamed_examples import StreamedExamples
from hokical.guarantees._row_sketch import row_draws

#: Examples of more logits than this are gone through in passes: on the host, and on a device, where
#: a pass by small blocks takes longer than one by large ones.
WHOLE_SIZE, WHOLE_SIZE_ON_DEVICE = 1 << 22, 1 << 27
#: The part has about as many logits as this, and as many rows for every class.
PART_SIZE, ROWS_PER_CLASS = 1 << 21, 8
#: Numbers of rows that are drawn at once, as there can be more rows than memory.
DRAWN_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class SampledExamples:
    """Examples that count, `n_rows` that are worth `n_examples` of equal weight, and a `part`.

    `whole` is the part itself where that is everything.
    """

    whole: ExampleSet
    part: WeightedExamples
    n_rows: int

    @property
    def is_whole(self) -> bool:
        return self.whole is self.part

    @property
    def n_examples(self) -> float:
        """By the weights of the part."""
        return effective_size(self.part.weights) * self.n_rows / self.part.labels.size


def sample_examples(examples: Partition, caller: str) -> SampledExamples:
    """Examples without those of weight 0 or an impossible truth; few ones are gathered.

    Where there are groups, the part has `GroupedLogits`.
    """
    n_classes = examples.n_classes
    if (
        examples.in_memory
        or not examples.repeatable
        or (n_rows := examples.count_rows()) * n_classes <= WHOLE_SIZE
    ):
        block = examples.gather(caller)
        logits = code_groups(block.logits, examples.groups, block.counting, slice(None))
        return _sample_block(replace(block, logits=logits))
    whole, share = StreamedExamples(examples), _share(n_rows, n_classes)
    values, labels, counts, counting = examples.collect(
        partial(_take_drawn, share=share), int(8 * n_classes * share) + 2, caller
    )
    logits = Logits(values, values.max(axis=1).astype(np.float64))
    rows = _draw_rows(0, n_rows, share)
    drawn = Block(code_groups(logits, examples.groups, counting, rows), labels, counts)
    weights, _ = leave_out_impossible(drawn)
    part = _leave_out(scale_weights(drawn, weights, float(weights.sum())))
    return SampledExamples(whole, part, whole.n_counting)


def _sample_block(block: Block) -> SampledExamples:
    counted, logits = count_block(block), block.logits
    whole = _leave_out(counted)
    n_rows = whole.labels.size
    if logits.size <= (WHOLE_SIZE if logits.is_numpy else WHOLE_SIZE_ON_DEVICE):
        return SampledExamples(whole, whole, n_rows)
    rows = _draw_rows(0, block.n_rows, _share(block.n_rows, logits.n_classes))
    part = _leave_out(counted.take(rows))
    return SampledExamples(whole, replace(part, weights=part.weights / part.weights.sum()), n_rows)


def _leave_out(counted: WeightedExamples) -> WeightedExamples:
    """The examples that have a weight."""
    keep = np.flatnonzero(counted.weights)
    return counted.take(keep) if keep.size < counted.labels.size else counted


def _share(n_rows: int, n_classes: int) -> float:
    wanted = max(PART_SIZE / n_classes, ROWS_PER_CLASS * n_classes)
    return min(wanted / n_rows, 1.0)


def _draw_rows(first_row: int, n_rows: int, share: float) -> IntArray:
    """Which rows are in the part: by a number of their own, wherever blocks begin."""
    found = [np.empty(0, np.int64)]
    for rows in cut_rows(n_rows, DRAWN_AT_ONCE):
        draws = row_draws(first_row + rows.start, rows.stop - rows.start)
        found.append(rows.start + np.flatnonzero(draws < share))
    return np.concatenate(found)


def _take_drawn(block: Block, share: float) -> State:
    """Logits, labels and weights of the rows drawn, and whether each row counts."""
    rows = _draw_rows(block.first_row, block.n_rows, share)
    values = block.logits.to_host(block.logits.take(rows).values)
    return values, block.labels[rows], block.counts[rows], block.counting
