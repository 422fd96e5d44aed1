"""Parquet files, and tables of pyarrow (extra `parquet`): whole, or a batch at a time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.optional import import_optional
from hokical._core.reading import Rows, to_column
from hokical._core.types import AnyArray
from hokical._core.warn import FitDataWarning, warn_user
from hokical.io._chunks import Chunk, ChunkSource, block_rows
from hokical.io._convention import Columns, Kind, Roles, find_roles, options_from
from hokical.io._errors import DataFileError, report_damage, report_file
from hokical.io._examples import about, make_examples, settle_kind
from hokical.io._tables import Loaded, Table

_KIND = "a Parquet table"
#: How a table that is not a file is called in errors.
_TABLE = Path("table")
#: Rows that are looked at before the others. Batches of one row would take seconds to cut.
_HEAD_ROWS = 1024
#: Imports a module of pyarrow.
import_arrow = partial(import_optional, extra="parquet")


def open_parquet(files: Sequence[Path], **options: Any) -> Any:
    """Files as one pyarrow Dataset."""
    arrow = import_arrow("pyarrow.dataset")
    with report_damage(files[0], _KIND):
        data = arrow.dataset([str(file) for file in files], format="parquet", **options)
        _ = data.schema.names  # damaged ones cannot be decoded
    return data


def as_dataset(data: Any) -> Any:
    """A pyarrow Dataset as it is, and of anything that gives an Arrow stream."""
    arrow = import_arrow("pyarrow.dataset")
    if isinstance(data, arrow.Dataset):
        return data
    return arrow.dataset(import_arrow("pyarrow").table(data))


class ArrowTable(Table):
    """Columns of a pyarrow Dataset or Table, of which `first` rows of the file come before it."""

    def __init__(self, path: Path, data: Any, first: int = 0) -> None:
        super().__init__(path, data.schema.names)
        self.data, self.first_row = data, first

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        with report_damage(self.path, _KIND):
            names, data = list(dict.fromkeys((*scores, *others))), self.data
            scan = hasattr(data, "to_table")
            table = data.to_table(names, **_scan_options(data)) if scan else data.select(names)
        found = [to_scores(self.path, table, [name]) for name in scores]
        return found, {name: to_column(table.column(name)) for name in others}

    def place(self, row: int) -> str:
        return f"row {self.first_row + row}"

    def numeric(self, names: Iterable[str]) -> tuple[str, ...]:
        kinds = import_arrow("pyarrow").types
        types = {field.name: field.type for field in self.data.schema}
        number = (kinds.is_floating, kinds.is_integer, kinds.is_decimal)
        return tuple(name for name in names if any(is_kind(types[name]) for is_kind in number))


def _scan_options(data: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead and compares checksums."""
    arrow = import_arrow("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(data, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def to_scores(path: Path, table: Any, names: Sequence[str]) -> AnyArray:
    """Scores (n, classes) from a column per class or a column of lists; nulls are NaN."""
    columns = [table.column(name) for name in names]
    if len(columns) == 1 and "list" in str(columns[0].type):
        return _from_lists(path, columns[0])
    found = [np.asarray(column.to_numpy()) for column in columns]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


def _from_lists(path: Path, column: Any) -> AnyArray:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or lengths & {None, 0}:
        raise DataFileError(
            path,
            f"expected as many scores in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop these rows.",
        )
    width = lengths.pop() if lengths else 0
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)


class TableSource(ChunkSource):
    """The rows of a pyarrow Dataset, in order; with a `path` those of its files."""

    def __init__(self, data: Any, wanted: Columns, path: Path | None = None) -> None:
        super().__init__(self._read_chunks)
        self.path, self._data, name = path, data, path or _TABLE
        self.column_names = data.schema.names
        self._roles = find_roles(ArrowTable(name, data), wanted)
        with report_damage(name, _KIND):
            options = {"batch_size": _HEAD_ROWS, **_scan_options(data)}
            head = data.head(_HEAD_ROWS, columns=list(self._roles.scores), **options)
            self.n_rows = int(data.count_rows())
        scores, _ = ArrowTable(name, head).read(self._roles.scores, ())
        with report_file(name):
            kind = settle_kind(scores, self._roles, wanted)
        self._rows = block_rows(scores.shape[1] if scores.ndim == 2 else 1)
        self.classes, self.about = self._roles.classes, about(wanted, kind)
        self.columns = self._roles.columns
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
            with report_damage(path, _KIND):
                options = {"batch_size": self._rows, **_scan_options(self._data), **own}
                for batch in part.to_batches(columns=columns, **options):
                    if batch.num_rows:
                        yield path, first, make([batch])
                    first += batch.num_rows

    def _parts(self) -> Iterator[tuple[Path, int, Any]]:
        """Groups of rows: their file, the rows before them there, and the group.

        Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
        """
        if self.path is None:  # it may have a filter
            yield _TABLE, 0, self._data
            return
        for fragment in self._data.get_fragments():
            first, path = 0, Path(fragment.path)
            with report_damage(path, _KIND):
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


def read_table(
    table: Any,
    labels: str,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    kind: Kind | None = None,
    classes: Sequence[str] = (),
    score_columns: Sequence[str] = (),
    fitted_by: Any = None,
) -> Rows:
    """Checked rows of a table in memory, with the columns that a file of it would have.

    A table is anything with `__arrow_c_stream__`, or a lazy frame of Polars. `labels` is the name
    of a column; weights and groups may be such, or arrays.
    """
    lazy = hasattr(table, "collect") and not hasattr(table, "__arrow_c_stream__")
    data = ArrowTable(_TABLE, import_arrow("pyarrow").table(table.collect() if lazy else table))
    named = [groups] if isinstance(groups, str) else groups
    by_name = isinstance(named, (list, tuple)) and {*map(str, named)} <= {*data.names}
    known = {} if fitted_by is None else options_from(fitted_by.metadata_)
    wanted = Columns(
        kind=kind or known.get("kind"), score_columns=tuple(score_columns), label_column=labels,
        weight_column=sample_weight if isinstance(sample_weight, str) else None,
        groups=tuple(named) if by_name else (), classes=tuple(classes), labelled="all",
        fitted_by=None if kind == "confidence" else fitted_by,
    )  # fmt: skip
    try:
        roles = find_roles(data, wanted)
        found = make_examples(data, roles, wanted, (data, data.require(labels, "`labels`")))
    except DataFileError as error:  # in the words of Python
        text = str(error).removeprefix(f"{_TABLE}: ").replace("--label-column", "`labels`")
        raise ValueError(re.sub("--([a-z]+)-columns", r"`\1_columns`", text)) from error
    if fitted_by is None:
        _tell_of_columns(roles, sample_weight)
    weights = found.weights if wanted.weight_column or sample_weight is None else sample_weight
    beside = found.groups if by_name else groups
    about = {k: v for k, v in found.about.items() if k != "scores" or v != "logits"}
    return Rows(found.scores, found.labels, weights, beside, found.columns, found.classes, about)


def _tell_of_columns(roles: Roles, sample_weight: Any) -> None:
    """Warn of numbers that are used for nothing, and of weights that nobody asked for."""
    if roles.unused:
        warn_user(
            f"columns of the table that are not used: {', '.join(roles.unused[:6])}. Scores are in "
            f"{', '.join(roles.scores[:6])}; name others in `score_columns`.",
            FitDataWarning,
        )
    if roles.weights is not None and sample_weight is None:
        warn_user(
            f"rows count by the column `{roles.weights}` of the table. Name it as `sample_weight`, "
            "or rename it if it holds no weights.",
            FitDataWarning,
        )
