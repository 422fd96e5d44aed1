"""Parquet files or a pyarrow Dataset as one source, a batch at a time (extra `parquet`)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.logits import Logits
from hokical._core.types import AnyArray
from hokical.io._arrow import (
    IN_MEMORY,
    KIND,
    ArrowTable,
    arrow_library,
    scan_files,
    scan_options,
    to_column,
)
from hokical.io._chunks import Chunk, block_rows
from hokical.io._convention import Columns
from hokical.io._errors import DataFileError, report_damage, report_file
from hokical.io._examples import Labelled, RowReader, rows_of_part
from hokical.io._kinds import settle_kind
from hokical.io._reading import OpenedFile
from hokical.io._sources import ChunkSource

#: Rows that are looked at before the others. Batches of one row would take seconds to cut.
_HEAD_ROWS = 1024


class TableSource(ChunkSource):
    """The rows of a pyarrow Dataset, in order; with a `path` those of its files."""

    def __init__(self, data: Any, wanted: Columns, path: Path | None = None) -> None:
        super().__init__(self._read_chunks)
        self.path, self._data = path, data
        self.column_names = data.schema.names
        name = path or IN_MEMORY
        roles = OpenedFile.of(ArrowTable(name, data), wanted).roles
        with report_damage(name, KIND):
            options = {"batch_size": _HEAD_ROWS, **scan_options(data)}
            head = data.head(_HEAD_ROWS, columns=list(roles.scores), **options)
        scores, _ = ArrowTable(name, head).read(roles.scores, ())
        with report_file(name):
            kind = settle_kind(scores, roles, wanted)
        if kind == "confidence":
            raise DataFileError(
                name, "expected logits or probabilities; found confidences.", "Read the file whole."
            )
        self._rows = block_rows(scores.shape[1] if scores.ndim == 2 else 1)
        self.classes = wanted.classes or roles.classes
        # The part is chosen here, as a batch may have no row of it.
        own = replace(roles, split=None)
        labelled: Labelled = "none" if roles.labels is None else "all"
        self._reader, self._roles = RowReader(own, replace(wanted, kind=kind), labelled), roles
        if roles.split is None:
            with report_damage(name, KIND):
                self.n_rows = int(data.count_rows())

    def _read_chunks(self) -> Iterator[Chunk]:
        columns = list(dict.fromkeys((*self._roles.scores, *self._roles.others)))
        for path, numbers, table in self._batches(columns):
            if not numbers.size:
                continue
            rows = ArrowTable(path, table, numbers)
            labels = self._roles.labels
            found = self._reader.read(rows, None if labels is None else (rows, labels))
            assert isinstance(found.scores, Logits)
            yield Chunk(found.scores.values, found.labels, found.weights)

    def _batches(self, columns: list[str]) -> Iterator[tuple[Path, AnyArray, Any]]:
        """Rows of the part: their file, their numbers in it, and a table of the columns."""
        whole = self.path is None  # which may have a filter
        make = arrow_library(IN_MEMORY, "pyarrow").Table.from_batches
        for path, first, part in [(IN_MEMORY, 0, self._data)] if whole else scan_files(self._data):
            own = {} if whole else {"schema": self._data.schema}
            if not whole:
                self._check_columns(path, part)
            with report_damage(path, KIND):
                options = {"batch_size": self._rows, **scan_options(self._data), **own}
                for batch in part.to_batches(columns=columns, **options):
                    table = make([batch])
                    rows = self._rows_of_part(table)
                    yield path, first + rows, table.take(rows) if len(rows) < len(table) else table
                    first += len(table)

    def _rows_of_part(self, table: Any) -> AnyArray:
        name = self._roles.split
        columns = {} if name is None else {name: to_column(table.column(name))}
        return rows_of_part(self._roles, columns, len(table))

    def _check_columns(self, path: Path, part: Any) -> None:
        missing = sorted({*self._roles.scores} - {*part.physical_schema.names})
        if missing:
            expected = Path(self._data.files[0]).name
            raise DataFileError(
                path, f"expected the columns of {expected}; `{missing[0]}` is missing."
            )

    def _read_columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        scores = [name for name in names if name in self._roles.scores]
        if scores:
            raise ValueError(f"`groups` must be columns that are no scores; got `{scores[0]}`.")
        split = [] if self._roles.split is None else [self._roles.split]
        found = [table for _, _, table in self._batches([*dict.fromkeys([*names, *split])])]
        return {n: np.concatenate([to_column(table.column(n)) for table in found]) for n in names}
