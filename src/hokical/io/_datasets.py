"""Tables (extra `parquet`): Parquet files or a pyarrow Dataset as one source, a batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from hokical._core.types import AnyArray
from hokical.io import _names as spelling
from hokical.io._chunks import Chunk, block_rows, read_ahead
from hokical.io._columns import KIND, arrow_columns, find_columns, parquet_library, table_rows
from hokical.io._errors import DataFileError, report_damage
from hokical.io._names import PARTS, WEIGHT_ARRAY, FileSplit, Wanted, normalize
from hokical.io._sources import ChunkSource

#: How a dataset is called in errors.
_DATASET = Path("pyarrow dataset")
_HEAD_ROWS = 1024


class TableSource(ChunkSource):
    """Rows of pyarrow datasets that have the same columns, in order; errors name their paths.

    `split` says which rows, where a column `split` distinguishes them; columns called `classes`, in
    this order, are the logits. One called `sample_weight`, `weight` or `weights` counts rows.
    """

    def __init__(
        self,
        pieces: Sequence[tuple[Path, Any]],
        *,
        split: FileSplit = "val",
        classes: tuple[str, ...] = (),
    ) -> None:
        self.split, self.pieces = split, list(pieces)
        path, first = self.pieces[0]
        self.path = None if path is _DATASET else path
        self.column_names = _column_names(first)
        layout = find_columns(path, self.column_names, Wanted(classes=classes, keep=None))
        self._layout, self.set_aside = replace(layout, kept={}), tuple(layout.kept)
        self.classes = classes or layout.classes
        self._columns = [self.column_names[index] for index in self._layout.all()]
        if layout.split is None:
            self.n_rows = sum(map(_count_rows, self.pieces))

    @classmethod
    def of_files(cls, files: Sequence[Any], folder: Path | None = None, **options: Any) -> Self:
        """Parquet files, of a folder if its subfolders called `name=value` are columns too."""
        if not files:
            raise ValueError("`files` must name at least one Parquet file; got none.")
        pieces = []
        for file in map(Path, files):
            parquet_library(file)
            parts = {"partitioning": "hive", "partition_base_dir": str(folder)} if folder else {}
            with report_damage(file, KIND):
                found = import_module("pyarrow.dataset").dataset(
                    [str(file)], format="parquet", **parts
                )
            pieces.append((file, found))
        return cls(pieces, **options)

    @classmethod
    def of_dataset(cls, data: Any, **options: Any) -> Self:
        """A pyarrow Dataset, with its filter and the columns of its partitions, or a Table."""
        arrow, sets = import_module("pyarrow"), import_module("pyarrow.dataset")
        if not isinstance(data, (sets.Dataset, arrow.Table, arrow.RecordBatch)):
            raise TypeError(
                "of pyarrow, a Dataset, a Table or a RecordBatch is a source; got "
                f"{type(data).__name__}. Read it into a Table with `.read_all()`, or name files."
            )
        dataset = data if isinstance(data, sets.Dataset) else sets.dataset(data)
        return cls([(_DATASET, dataset)], **options)

    def chunks(self) -> Iterator[Chunk]:
        pieces = (self._read(path, dataset) for path, dataset in self.pieces)
        return read_ahead(chain.from_iterable(pieces))

    def by_file(self) -> Iterator[tuple[Path, ChunkSource]]:
        one = partial(type(self), split=self.split, classes=self.classes)
        return ((piece[0], one([piece])) for piece in self.pieces if self.path)

    def read_columns(self, names: str | Sequence[str]) -> dict[str, AnyArray]:
        wanted = (names,) if isinstance(names, str) else names
        scores = {self.column_names[index] for index in self._layout.logits}
        parts = () if self._layout.split is None else (self.column_names[self._layout.split],)
        tables = []
        for path, dataset in self.pieces:
            for name in wanted:
                if name not in dataset.schema.names or name in scores:
                    why = (
                        "is taken for a class: name the `classes`"
                        if name in scores
                        else "is not there"
                    )
                    raise DataFileError(path, f"expected a column of groups `{name}`; it {why}.")
            with report_damage(path, KIND):
                table = dataset.to_table(columns=[*wanted, *parts])
            if parts:
                own = [normalize(str(part)) for part in table[parts[0]].to_pylist()]
                table = table.filter(np.isin(own, PARTS[self.split]))
            tables.append(table)
        whole = import_module("pyarrow").concat_tables(tables, promote_options="permissive")
        return {name: whole[name].to_numpy() for name in wanted}

    def _read(self, path: Path, dataset: Any) -> Iterator[Chunk]:
        missing = sorted(set(self._columns) - set(dataset.schema.names))
        if missing:
            expected = self.pieces[0][0].name
            raise DataFileError(
                path, f"expected the columns of {expected}; `{missing[0]}` is missing."
            )
        table = import_module("pyarrow").Table
        logits = [self.column_names[index] for index in self._layout.logits]
        with report_damage(path, KIND):
            frugal = _frugal(dataset)
            rows = block_rows(_row_length(dataset, logits, frugal))
            whole = path is _DATASET  # which may have a filter
            for part in [dataset] if whole else _cut_by_groups(dataset, rows):
                own = frugal if whole else {**frugal, "schema": dataset.schema}
                for batch in part.to_batches(columns=self._columns, batch_size=rows, **own):
                    yield self._chunk(path, table.from_batches([batch]))

    def _chunk(self, path: Path, table: Any) -> Chunk:
        column = arrow_columns(path, table, self.column_names, self._layout)
        rows, parts = table_rows(path, self._layout, column)
        labels = None if rows["labels"] is None else spelling.tidy_labels(rows["labels"])
        chunk = Chunk(rows["logits"], labels, rows[WEIGHT_ARRAY])
        if parts is None:
            return chunk
        names = [normalize(str(part)) for part in parts]
        return chunk.rows(np.isin(names, PARTS[self.split]))


def _count_rows(piece: tuple[Path, Any]) -> int:
    with report_damage(piece[0], KIND):
        return int(piece[1].count_rows())


def _column_names(dataset: Any) -> list[str]:
    """Of the fields of its partitions, such as a day, only those that no column stands for."""
    fields = getattr(getattr(dataset, "partitioning", None), "schema", ())
    parts = {normalize(field.name): field.name for field in fields}
    names = [name for name in dataset.schema.names if name not in parts.values()]
    columns = set(map(normalize, names))
    for words in (("split",), spelling.LABELS, spelling.WEIGHTS):
        found = spelling.first_known(parts, words)
        if found is not None and columns.isdisjoint(words):
            names.append(parts[found])
    return names


def _cut_by_groups(dataset: Any, rows: int) -> Iterator[Any]:
    """Parts of a file of at least so many rows, where that is possible.

    Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
    """
    for fragment in dataset.get_fragments():
        groups, held = [], 0
        for group in fragment.row_groups:
            groups.append(group.id)
            held += group.num_rows
            if held >= rows:
                yield fragment.subset(row_group_ids=groups)
                groups, held = [], 0
        if groups:
            yield fragment.subset(row_group_ids=groups)


def _frugal(dataset: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead, where pyarrow would hold many groups of rows."""
    arrow = import_module("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(dataset, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def _row_length(dataset: Any, logits: list[str], frugal: dict[str, Any]) -> int:
    """Logits of a row; of a column of lists, the first row tells how long they are."""
    if len(logits) > 1:
        return len(logits)
    # Rows of a batch are cut out one batch after the other, so a batch of one row takes seconds.
    head = dataset.head(1, columns=logits, batch_size=_HEAD_ROWS, **frugal)
    first = head.column(0)[0].as_py() if head.num_rows else None
    return len(first) if isinstance(first, list) and first else 1
