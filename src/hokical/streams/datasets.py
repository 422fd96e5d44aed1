"""Parquet datasets (extra `parquet`): many files as one source, read a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hokical.files.columns import find_layout
from hokical.files.errors import DataFileError, damage_reported
from hokical.files.names import PARTS, Split, first_known, normal
from hokical.files.parquet import parquet_library, table_columns
from hokical.files.reading import tidy_labels
from hokical.streams.chunks import Chunk, block_rows, read_ahead, skipped
from hokical.streams.sources import Source, file_identity

_KIND = "a Parquet table"
#: Rows read at a time where one column holds lists, whose length is not known before.
_ROWS_OF_LISTS = 4096
_WEIGHTS = ("sample_weight", "weight", "weights")


class ParquetSource(Source):
    """Rows of Parquet files in the order of the files.

    Parameters
    ----------
    files : list of paths, or pyarrow Dataset
    split : {"val", "test"}
        Which rows, where a column `split` tells them apart.
    weights : str, optional
        The column of weights; by default one called `sample_weight`, `weight` or `weights`.
    """

    def __init__(self, files: Any, *, split: Split = "val", weights: str | None = None) -> None:
        self.files = [Path(file) for file in getattr(files, "files", files)]
        if not self.files:
            raise ValueError("`files` must name at least one Parquet file; got none.")
        self.split = split
        names = _column_names(self.files[0])
        self.weights = first_known(names, _WEIGHTS) if weights is None else weights
        self._names = [name for name in names if name != self.weights]
        self._layout = find_layout(self.files[0], self._names)
        if self._layout.split is None:
            self.n_rows = sum(_row_count(file) for file in self.files)

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return read_ahead(self._from_row(start))

    def identity(self) -> dict[str, Any]:
        about = [file_identity(file) for file in self.files]
        return super().identity() | {"files": about, "split": self.split}

    def _from_row(self, start: int) -> Iterator[Chunk]:
        for file in self.files:
            if self._layout.split is None and start >= (count := _row_count(file)):
                start -= count
                continue
            seen = 0
            for chunk in self._of_file(file):
                yield from skipped([chunk], max(0, start - seen))
                seen += chunk.n_rows
            start = max(0, start - seen)

    def _of_file(self, file: Path) -> Iterator[Chunk]:
        layout = self._layout
        columns = [self._names[index] for index in layout.all()]
        columns += [] if self.weights is None else [self.weights]
        missing = sorted(set(columns) - set(_column_names(file)))
        if missing:
            raise DataFileError(
                file, f"expected the columns of {self.files[0].name}; `{missing[0]}` is missing."
            )
        listed = len(layout.logits) == 1
        size = _ROWS_OF_LISTS if listed else block_rows(len(layout.logits))
        with damage_reported(file, _KIND):
            stored = parquet_library(file).ParquetFile(file)
            for batch in stored.iter_batches(batch_size=size, columns=columns):
                yield self._chunk(file, import_module("pyarrow").Table.from_batches([batch]))

    def _chunk(self, file: Path, table: Any) -> Chunk:
        logits, labels, parts = table_columns(file, table, self._layout, self._names)
        weights = None if self.weights is None else table.column(self.weights).to_numpy()
        chunk = Chunk(logits, None if labels is None else tidy_labels(labels), weights)
        if parts is None:
            return chunk
        kept = np.isin([normal(str(part)) for part in parts], PARTS[self.split])
        return chunk.rows(kept)


def _column_names(file: Path) -> list[str]:
    parquet = parquet_library(file)
    with damage_reported(file, _KIND):
        return list(parquet.read_schema(file).names)


def _row_count(file: Path) -> int:
    parquet = parquet_library(file)
    with damage_reported(file, _KIND):
        return int(parquet.read_metadata(file).num_rows)
