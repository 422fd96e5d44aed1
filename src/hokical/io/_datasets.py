"""Tables (extra `parquet`): Parquet files or a pyarrow Dataset as one source, a batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np

from hokical.io import _names as spelling
from hokical.io._chunks import Chunk, block_rows, read_ahead, skip_rows
from hokical.io._columns import KIND, find_columns, parquet_library, table_rows
from hokical.io._errors import DataFileError, report_damage
from hokical.io._identities import file_identity
from hokical.io._names import PARTS, WEIGHT_ARRAY, FileSplit, Wanted, normalize
from hokical.io._reading import tidy_labels
from hokical.io._sources import ChunkSource

#: How a dataset is called in errors.
_DATASET = Path("pyarrow dataset")


class TableSource(ChunkSource):
    """Batches of tables that have the same columns, `names`; errors call the table `path`.

    `split` says which rows, where a column `split` distinguishes them; columns called `classes`, in
    this order, are the logits. One called `sample_weight`, `weight` or `weights` counts rows.
    """

    def __init__(
        self, path: Path, names: Sequence[str], split: FileSplit, classes: tuple[str, ...]
    ) -> None:
        self.split = split
        self._names = list(names)
        layout = find_columns(path, self._names, Wanted(classes=classes, keep=None))
        self._layout, self.set_aside = replace(layout, kept={}), tuple(layout.kept)
        self.classes = classes or layout.classes
        self._columns = [self._names[index] for index in self._layout.all()]
        self._logit_columns = [self._names[index] for index in self._layout.logits]

    def _chunk(self, path: Path, batch: Any) -> Chunk:
        table = import_module("pyarrow").Table.from_batches([batch])
        rows, parts = table_rows(path, table, self._layout, self._names)
        labels = None if rows["labels"] is None else tidy_labels(rows["labels"])
        chunk = Chunk(rows["logits"], labels, rows[WEIGHT_ARRAY])
        if parts is None:
            return chunk
        names = [normalize(str(part)) for part in parts]
        return chunk.rows(np.isin(names, PARTS[self.split]))


class ParquetSource(TableSource):
    """Rows of Parquet files, a list of paths, in the order of the files."""

    identified = True

    def __init__(
        self, files: Sequence[Any], *, split: FileSplit = "val", classes: tuple[str, ...] = ()
    ) -> None:
        self.files = [Path(file) for file in files]
        if not self.files:
            raise ValueError("`files` must name at least one Parquet file; got none.")
        super().__init__(self.files[0], _facts(self.files[0])[0], split, classes)
        if self._layout.split is None:
            self.n_rows = sum(_facts(file)[1] for file in self.files)

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return read_ahead(self._from_row(start))

    def by_file(self) -> Iterator[tuple[Path, ChunkSource]]:
        one = partial(ParquetSource, split=self.split, classes=self.classes)
        return ((file, one([file])) for file in self.files)

    def identity(self) -> dict[str, Any]:
        about = [file_identity(file) for file in self.files]
        return super().identity() | {"files": about, "split": self.split}

    def _from_row(self, start: int) -> Iterator[Chunk]:
        for file in self.files:
            if self._layout.split is None and start >= (count := _facts(file)[1]):
                start -= count
                continue
            seen = 0
            for chunk in self._of_file(file):
                yield from skip_rows([chunk], max(0, start - seen))
                seen += chunk.n_rows
            start = max(0, start - seen)

    def _of_file(self, file: Path) -> Iterator[Chunk]:
        missing = sorted(set(self._columns) - set(_facts(file)[0]))
        if missing:
            raise DataFileError(
                file, f"expected the columns of {self.files[0].name}; `{missing[0]}` is missing."
            )
        logits = self._logit_columns
        with report_damage(file, KIND):
            stored = parquet_library(file).ParquetFile(file, page_checksum_verification=True)
            size = _batch_rows(logits, stored.iter_batches(batch_size=1, columns=logits))
            # One group at a time: of all together, pyarrow keeps the bytes until the end.
            for group in range(stored.num_row_groups):
                for batch in stored.iter_batches(size, [group], self._columns):
                    yield self._chunk(file, batch)


class DatasetSource(TableSource):
    """Rows of a pyarrow Dataset, with its filter and the columns of its partitions, or a Table."""

    def __init__(
        self,
        data: Any,
        *,
        split: FileSplit = "val",
        path: Path | None = None,
        classes: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        arrow, sets = import_module("pyarrow"), import_module("pyarrow.dataset")
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        if not isinstance(data, (sets.Dataset, arrow.Table)):
            raise TypeError(
                "of pyarrow, a Dataset, a Table or a RecordBatch is a source; got "
                f"{type(data).__name__}. Read it into a Table with `.read_all()`, or name files."
            )
        self.dataset = data = sets.dataset(data) if isinstance(data, arrow.Table) else data
        super().__init__(path or _DATASET, _column_names(data), split, classes)
        if self._layout.split is None:
            self.n_rows = int(data.count_rows())

    @classmethod
    def from_folder(cls, folder: Path, files: list[Path], **options: Any) -> Self:
        """The Parquet files of a folder whose subfolders are called `name=value`."""
        parquet_library(folder)
        dataset = import_module("pyarrow.dataset").dataset(
            [str(file) for file in files],
            format="parquet",
            partitioning="hive",
            partition_base_dir=str(folder),
        )
        return cls(dataset, path=folder, **options)

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return read_ahead(skip_rows(self._all(), start))

    def _all(self) -> Iterator[Chunk]:
        logits = self._logit_columns
        with report_damage(self.path or _DATASET, "a table"):
            frugal = _frugal(self.dataset)
            head = self.dataset.head(1, columns=logits, batch_size=1, **frugal).to_batches()
            size = _batch_rows(logits, iter(head))
            for batch in self.dataset.to_batches(columns=self._columns, batch_size=size, **frugal):
                yield self._chunk(self.path or _DATASET, batch)


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


def _frugal(dataset: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead, where pyarrow would hold many groups of rows."""
    arrow = import_module("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(dataset, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def _batch_rows(logits: list[str], rows: Iterator[Any]) -> int:
    """As many rows as make a block; of lists, the first row tells how long they are."""
    if len(logits) > 1:
        return block_rows(len(logits))
    first = next((batch.column(0)[0].as_py() for batch in rows if batch.num_rows), None)
    return block_rows(len(first) if isinstance(first, list) and first else 1)


def _facts(file: Path) -> tuple[list[str], int]:
    """The names of its columns, and the number of its rows."""
    with report_damage(file, KIND):
        known = parquet_library(file).read_metadata(file)
        return known.schema.to_arrow_schema().names, known.num_rows
