"""Parquet files or a pyarrow Dataset as one source, a batch at a time (extra `parquet`)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.tables import to_column
from hokical.io._arrow import IN_MEMORY, KIND, ArrowTable, import_arrow, scan_options
from hokical.io._chunks import Chunk, block_rows
from hokical.io._convention import Columns, find_roles
from hokical.io._errors import DataFileError, report_damage, report_file
from hokical.io._examples import about, make_examples
from hokical.io._kinds import settle_kind
from hokical.io._sources import ChunkSource

#: Rows that are looked at before the others. Batches of one row would take seconds to cut.
_HEAD_ROWS = 1024


class TableSource(ChunkSource):
    """The rows of a pyarrow Dataset, in order; with a `path` those of its files."""

    def __init__(self, data: Any, wanted: Columns, path: Path | None = None) -> None:
        super().__init__(self._read_chunks)
        self.path, self._data, name = path, data, path or IN_MEMORY
        self.column_names = data.schema.names
        self._roles = find_roles(ArrowTable(name, data), wanted)
        with report_damage(name, KIND):
            options = {"batch_size": _HEAD_ROWS, **scan_options(data)}
            head = data.head(_HEAD_ROWS, columns=list(self._roles.scores), **options)
            self.n_rows = int(data.count_rows())
        scores, _ = ArrowTable(name, head).read(self._roles.scores, ())
        with report_file(name):
            kind = settle_kind(scores, self._roles, wanted)
        self._rows = block_rows(scores.shape[1] if scores.ndim == 2 else 1)
        self.classes, self.about = self._roles.classes, about(wanted, kind)
        self._wanted = replace(wanted, kind=kind)

    def _read_chunks(self) -> Iterator[Chunk]:
        roles, labels = self._roles, self._roles.labels
        columns = [*dict.fromkeys((*roles.scores, *roles.others(with_labels=True)))]
        for path, first, table in self._batches(columns):
            rows = ArrowTable(path, table, first)
            where = None if labels is None else (rows, labels)
            found = make_examples(rows, roles, self._wanted, where)
            yield Chunk(found.logit_values(path), found.labels, found.weights)

    def _batches(self, columns: list[str]) -> Iterator[tuple[Path, int, Any]]:
        """Tables of the columns, each after its file and the number of rows before it there."""
        make = import_arrow("pyarrow").Table.from_batches
        for path, first, part in self._parts():
            own = {} if part is self._data else {"schema": self._data.schema}
            with report_damage(path, KIND):
                options = {"batch_size": self._rows, **scan_options(self._data), **own}
                for batch in part.to_batches(columns=columns, **options):
                    if batch.num_rows:
                        yield path, first, make([batch])
                    first += batch.num_rows

    def _parts(self) -> Iterator[tuple[Path, int, Any]]:
        """Groups of rows: their file, the rows before them there, and the group.

        Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
        """
        if self.path is None:  # it may have a filter
            yield IN_MEMORY, 0, self._data
            return
        for fragment in self._data.get_fragments():
            first, path = 0, Path(fragment.path)
            with report_damage(path, KIND):
                groups = fragment.split_by_row_group()
            missing = sorted({*self._roles.scores} - {*fragment.physical_schema.names})
            if missing:
                expected = Path(self._data.files[0]).name
                raise DataFileError(
                    path, f"expected the columns of {expected}; `{missing[0]}` is missing."
                )
            for group in groups:
                yield path, first, group
                first += group.count_rows()

    def read_groups(self, groups: Any) -> Any:
        """The groups, or the columns that are named, alone, in a tuple or in a list."""
        names = [groups] if isinstance(groups, str) else groups
        if not isinstance(names, (tuple, list)) or not set(map(str, names)) <= {*self.column_names}:
            return super().read_groups(groups)
        scores = [name for name in names if name in self._roles.scores]
        if scores:
            raise ValueError(f"`groups` must be columns that are no scores; got `{scores[0]}`.")
        found = [table for _, _, table in self._batches([*dict.fromkeys(names)])]
        return {n: np.concatenate([to_column(table.column(n)) for table in found]) for n in names}
