"""Tables (extra `parquet`): Parquet files or a pyarrow Dataset as one source, a batch at a time."""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.conversion import from_binary_scores, from_probabilities
from hokical._core.types import AnyArray
from hokical.io._arrow import KIND, ArrowTable, scan_options, to_column, to_scores
from hokical.io._chunks import Chunk, block_rows, read_ahead
from hokical.io._convention import PARTS, Columns, FileSplit, Names, find_roles
from hokical.io._errors import DataFileError, report_damage, report_file
from hokical.io._kinds import settle_kind
from hokical.io._labels import encode_labels, tidy_labels
from hokical.io._sources import ChunkSource

#: How a dataset is called in errors.
_DATASET = Path("pyarrow dataset")
#: Rows that are looked at before the others. Batches of one row would take seconds to cut.
_HEAD_ROWS = 1024


def from_dataset(data: Any, split: FileSplit, wanted: Columns) -> ChunkSource:
    """A pyarrow Dataset, with its filter and partitions, or anything that gives an Arrow stream."""
    arrow = import_module("pyarrow.dataset")
    if not isinstance(data, arrow.Dataset):
        data = arrow.dataset(import_module("pyarrow").table(data))
    return TableSource([(_DATASET, data)], split, wanted)


class TableSource(ChunkSource):
    """Rows of pyarrow datasets that have the same columns, in order; errors name their paths.

    `split` says which rows, where a column `split` distinguishes them; `wanted` which columns.
    """

    def __init__(
        self, pieces: Sequence[tuple[Path, Any]], split: FileSplit, wanted: Columns
    ) -> None:
        self.split, self.pieces, self.wanted = split, list(pieces), wanted
        path, first = self.pieces[0]
        self.path = None if path is _DATASET else path
        self.column_names = first.schema.names
        self.roles = find_roles(Names(path, self.column_names), wanted)
        self._columns = [*self.roles.scores, *self.roles.others]
        self.classes = wanted.classes or self.roles.classes
        with report_damage(path, KIND):
            options = {"batch_size": _HEAD_ROWS, **scan_options(first)}
            head = first.head(_HEAD_ROWS, columns=list(self.roles.scores), **options)
        scores = to_scores(path, head, self.roles.scores)
        with report_file(path):
            self.kind = settle_kind(scores, self.roles, wanted)
        self._width = scores.shape[1] if scores.ndim == 2 else 1
        if self.kind == "confidence":
            raise DataFileError(
                path, "expected logits or probabilities; found confidences.", "Read the file whole."
            )
        if self.roles.split is None:
            self.n_rows = sum(map(_count_rows, self.pieces))

    def chunks(self) -> Iterator[Chunk]:
        pieces = (self._read(path, dataset) for path, dataset in self.pieces)
        return read_ahead(chain.from_iterable(pieces))

    def by_file(self) -> Iterator[tuple[Path, ChunkSource]]:
        one = partial(type(self), split=self.split, wanted=self.wanted)
        return ((piece[0], one([piece])) for piece in self.pieces if self.path)

    def read_columns(self, names: str | Sequence[str]) -> dict[str, AnyArray]:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        found: list[dict[str, AnyArray]] = []
        split = () if self.roles.split is None else (self.roles.split,)
        for path, dataset in self.pieces:
            for name in wanted:
                if name not in dataset.schema.names or name in self.roles.scores:
                    why = "is a score" if name in self.roles.scores else "is not there"
                    raise DataFileError(path, f"expected a column of groups `{name}`; it {why}.")
            columns = ArrowTable(path, dataset).columns([*wanted, *split])
            rows = self._in_part(columns[split[0]]) if split else slice(None)
            found.append({name: columns[name][rows] for name in wanted})
        return {name: np.concatenate([part[name] for part in found]) for name in wanted}

    def _in_part(self, split: AnyArray) -> AnyArray:
        parts = [str(part).strip().lower() for part in split.tolist()]
        return np.isin(parts, PARTS[self.split])

    def _read(self, path: Path, dataset: Any) -> Iterator[Chunk]:
        missing = sorted(set(self._columns) - set(dataset.schema.names))
        if missing:
            expected = self.pieces[0][0].name
            raise DataFileError(
                path, f"expected the columns of {expected}; `{missing[0]}` is missing."
            )
        table = import_module("pyarrow").Table
        with report_damage(path, KIND):
            rows = block_rows(self._width)
            whole = path is _DATASET  # which may have a filter
            for part in [dataset] if whole else _cut_by_groups(dataset, rows):
                own = scan_options(dataset) | ({} if whole else {"schema": dataset.schema})
                for batch in part.to_batches(columns=self._columns, batch_size=rows, **own):
                    yield self._chunk(path, table.from_batches([batch]))

    def _chunk(self, path: Path, table: Any) -> Chunk:
        roles = self.roles
        if not table.num_rows:
            return Chunk(np.empty((0, self._width)))
        scores = to_scores(path, table, roles.scores)
        if self.kind == "probabilities":
            scores = from_probabilities(scores, zeros=self.wanted.zeros)
        elif scores.ndim == 1:
            scores = from_binary_scores(scores)
        columns = {name: to_column(table.column(name)) for name in roles.others}
        labels = None if roles.labels is None else tidy_labels(columns[roles.labels])
        labels = None if labels is None else encode_labels(labels, self.classes)
        weights = None if roles.weights is None else columns[roles.weights]
        chunk = Chunk(scores, labels, weights)
        return chunk if roles.split is None else chunk.rows(self._in_part(columns[roles.split]))


def _count_rows(piece: tuple[Path, Any]) -> int:
    with report_damage(piece[0], KIND):
        return int(piece[1].count_rows())


def _cut_by_groups(dataset: Any, rows: int) -> Iterator[Any]:
    """Parts of a file of at least this many rows, where that is possible.

    Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
    """
    for fragment in dataset.get_fragments():
        groups, held = [], 0
        for group in getattr(fragment, "row_groups", ()):
            groups.append(group.id)
            held += group.num_rows
            if held >= rows:
                yield fragment.subset(row_group_ids=groups)
                groups, held = [], 0
        if groups or not hasattr(fragment, "row_groups"):
            yield fragment.subset(row_group_ids=groups) if groups else fragment
