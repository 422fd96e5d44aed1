"""The examples that a method is fitted on: recorded in the first pass, zeros raised to a floor."""

from __future__ import annotations

from functools import partial

from hokical._fitting.example_stats import N_STATS, ExampleStats, block_stats, join_stats
from hokical._fitting.floor import choose_floor, choose_floor_in_passes, floor_block
from hokical._fitting.likelihood import count_block
from hokical._fitting.partitions import Block, Combine, Partition, State, Work


class RecordingPartition(Partition):
    """The same examples; with `fits_floor`, log(p + floor) where probabilities of 0 are among them.

    `stats` and `floor` are there once the examples were gone through: the floor is 0 where they
    have no zeros and where a 0 is as good. If they are not in memory, it is chosen on a sample
    after the first pass, which is made again if there is a floor.
    """

    stats: ExampleStats
    floor = 0.0
    _recorded = False
    _block: Block | None = None

    def __init__(self, partition: Partition, *, fits_floor: bool) -> None:
        self.partition, self.fits_floor = partition, fits_floor
        self.n_classes, self.in_memory = partition.n_classes, partition.in_memory
        self.repeatable, self.groups = partition.repeatable, partition.groups

    def gather(self, caller: str) -> Block:
        if self._block is None:
            block = self.partition.gather(caller)
            if self._record(block_stats(block)):
                self.floor = choose_floor(count_block(block))
            self._block = floor_block(block, self.floor)
        return self._block

    def reduce(self, work: Work, combine: Combine) -> State:
        if self.in_memory:
            return work(self.gather(""))
        if not self._recorded:
            state = self.partition.reduce(
                partial(_with_stats, work=work),
                partial(_join_with_stats, combine=combine),
            )
            if self._record(state[:N_STATS]):
                self.floor = choose_floor_in_passes(self.partition, self.stats.n_rows)
            if self.floor == 0.0:
                return state[N_STATS:]
        return self.partition.reduce(self._floored(work), combine)

    def collect(self, work: Work, row_bytes: int, caller: str) -> State:
        if self.in_memory:
            return work(self.gather(caller))
        return self.partition.collect(self._floored(work), row_bytes, caller)

    def require_passes(self, caller: str) -> None:
        self.partition.require_passes(caller)

    def count_rows(self) -> int:
        return self.partition.count_rows()

    def _record(self, stats: State) -> bool:
        """Keep the statistics; whether a floor is to be chosen."""
        self.stats, self._recorded = ExampleStats.from_state(stats), True
        return self.fits_floor and self.stats.n_with_zeros > 0

    def _floored(self, work: Work) -> Work:
        return partial(_on_floored, work=work, floor=self.floor)


def _with_stats(block: Block, work: Work) -> State:
    return (*block_stats(block), *work(block))


def _join_with_stats(left: State, right: State, combine: Combine) -> State:
    stats = join_stats(left[:N_STATS], right[:N_STATS])
    return (*stats, *combine(left[N_STATS:], right[N_STATS:]))


def _on_floored(block: Block, work: Work, floor: float) -> State:
    return work(floor_block(block, floor))
