"""A source as a partition: its blocks one after the other, with a journal of what is done."""

from collections.abc import Callable, Iterator

from hokical.core.memory import check_memory
from hokical.core.progress import progress_bar
from hokical.fitting.partitions import Block, Partition, State, join_states
from hokical.io.checkpoint import FolderJournal
from hokical.io.chunks import block_rows, reblock
from hokical.io.sources import ChunkSource
from hokical.streams.blocks import check_block, gather_blocks


class NoJournal:
    """A journal that remembers nothing."""

    def recall(self, index: int) -> tuple[State | None, int, bool]:
        return None, 0, False

    def note(self, index: int, state: State, rows: int, *, finished: bool) -> None:
        pass


class StreamedPartition(Partition):
    """Blocks of a source, one after the other on this machine, with threads inside a block."""

    def __init__(
        self,
        source: ChunkSource,
        *,
        journal: FolderJournal | None = None,
        progress: bool | None = None,
    ) -> None:
        self.source = source
        self.n_classes = source.n_classes
        self.progress = progress
        self._journal = NoJournal() if journal is None else journal
        self._index = 0
        self._n_rows: int | None = source.n_rows

    def require_passes(self, who: str) -> None:
        if not self.source.repeatable:
            raise ValueError(
                f"{who} needs several passes over the examples, and an iterator can be used once. "
                "Give a function that returns a new iterator, a list of chunks, arrays or files; "
                "or use `hokical.streams.fit(..., spool=True)`, which keeps the chunks in a "
                "temporary file."
            )

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        index, self._index = self._index, self._index + 1
        state, rows, finished = self._journal.recall(index)
        if state is not None and finished:
            self._check_count(rows)
            return state
        count = 1 if self._n_rows is None else -(-self._n_rows // block_rows(self.n_classes))
        with progress_bar(f"Pass {index + 1} over the data", count, self.progress) as advance:
            for block in self._blocks(rows):
                found = work(block)
                state = found if state is None else combine(state, found)
                rows += block.n_rows
                self._journal.note(index, state, rows, finished=False)
                advance()
        self._check_count(rows)
        if state is None:
            raise ValueError("a source must have at least one row; got none.")
        self._journal.note(index, state, rows, finished=True)
        return state

    def gather(self, who: str) -> Block:
        count = self.source.count_rows() if self._n_rows is None else self._n_rows
        return gather_blocks(self._blocks(), count, who)

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        parts: list[State] = []
        for block in self._blocks():
            needed = (self._n_rows or block.n_rows) * row_bytes if not parts else 0
            check_memory(needed, who, f"{row_bytes} bytes of every row")
            parts.append(work(block))
        return join_states(parts)

    def _blocks(self, start: int = 0) -> Iterator[Block]:
        for chunk in reblock(self.source.chunks(start), block_rows(self.n_classes)):
            yield check_block(chunk, start, self.n_classes)
            start += chunk.n_rows

    def _check_count(self, rows: int) -> None:
        if self._n_rows not in (None, rows):
            raise ValueError(
                f"a source must give the same rows in every pass; got {rows}, expected "
                f"{self._n_rows}. A function given as a source must return a new iterator."
            )
        self._n_rows = rows
