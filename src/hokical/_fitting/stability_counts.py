"""Counting examples by their label stability, the one pass over the logits that Hoki needs."""

import operator
from functools import partial

import numpy as np

from hokical._core.bins import bin_index
from hokical._core.blocks import per_row
from hokical._fitting.examples import Examples, Partition
from hokical._fitting.row_sample import ExampleStats, reduce_with_stats
from hokical.rules._hoki import HokiRule
from hokical.stability import _gumbel as gumbel
from hokical.stability._table import StabilityTable


def count_with_stats(
    examples: Partition, rule: HokiRule, n_starts: int
) -> tuple[StabilityTable, ExampleStats]:
    """The table of all examples, and their statistics, in one pass."""
    count = partial(count_stability, rule=rule, n_starts=n_starts)
    table, stats = reduce_with_stats(examples, count, operator.add)
    if not table.weight.any():
        raise ValueError("`sample_weight` must not be zero everywhere. Give some a weight.")
    return table, stats


def count_stability(block: Examples, rule: HokiRule, n_starts: int) -> StabilityTable:
    """The examples by their level; and, if `n_starts` is above 1, by the bin of their softmax."""
    logits, start = block.logits, None
    if n_starts > 1:
        start = bin_index(logits.to_host(gumbel.stability(logits, 1.0)), n_starts)
    return StabilityTable.from_examples(
        per_row(rule.on_device_of(logits).level, logits).astype(np.int64),
        block.correct,
        levels=rule.levels,
        sample_weight=block.weights,
        start=start,
        n_starts=n_starts,
    )
