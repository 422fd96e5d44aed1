"""A source as a partition: its chunks as checked blocks, one after the other."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import as_logits
from hokical._core.progress import progress_bar
from hokical._core.types import AnyArray, FloatArray
from hokical._fitting.examples import Examples, Partition, Result
from hokical.io._chunks import Chunk, ChunkSource, block_rows, check_row_count, reblock
from hokical.io._errors import count_from, report_file


def check_block(chunk: Chunk, first_row: int, n_classes: int, path: Path | None = None) -> Examples:
    """Check a chunk's rows; errors say where in the source, and in which file, they are."""
    with report_file(path, count_from(first_row)):
        if chunk.labels is None:
            raise ValueError(
                "labels are needed: `open_source(logits, labels)` or chunks of (logits, labels)."
            )
        logits = as_logits(chunk.logits)
        if logits.n_classes != n_classes:
            raise ValueError(
                f"all chunks must have the same classes; got {logits.n_classes} columns after "
                f"{n_classes}."
            )
        labels = as_labels(chunk.labels, logits.n_rows, n_classes)
        return Examples(logits, labels, _check_weights(chunk.weights, logits.n_rows), first_row)


def _check_weights(weights: AnyArray | None, n_rows: int) -> FloatArray | None:
    """Weights of a block, which may all be 0 as long as those of other blocks are not."""
    if weights is None:
        return None
    if weights.dtype.kind in "fiub" and weights.shape == (n_rows,) and not weights.any():
        return np.zeros(n_rows)
    return as_weights(weights, n_rows)


class StreamedPartition(Partition):
    """Blocks of a source, one after the other on this machine, with threads inside a block."""

    def __init__(self, source: ChunkSource, *, progress: bool | None = None) -> None:
        self.source, self.n_classes, self.progress = source, source.n_classes, progress
        self._n_rows = source.n_rows
        self.repeatable = source.repeatable

    def reduce(
        self, work: Callable[[Examples], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        state: Result | None = None
        rows, step = 0, block_rows(self.n_classes)
        count = 1 if self._n_rows is None else -(-self._n_rows // step)
        with progress_bar("Reading the data", count, self.progress) as advance:
            for chunk in reblock(self.source, step):
                found = work(check_block(chunk, rows, self.n_classes, self.source.path))
                state = found if state is None else combine(state, found)
                rows += chunk.n_rows
                advance()
        check_row_count(rows, self._n_rows)
        self._n_rows = rows
        assert state is not None  # as there are rows
        return state
