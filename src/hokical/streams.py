"""Data that do not fit into memory: a chunk at a time, from files, tables, iterators or
functions.

Arrays go to the methods of a calibrator, Dask's included. Everything else goes through
here: each function takes a source, which is what `open_source` gives or takes. So does
`hokical.evaluate`.

Passes over a source: fits, held-out examples, predictions and frequencies, block by
block. Nothing is checked in chunks beyond shapes that do not match: blocks are checked
when a fit sees them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, Array, is_from, to_host
from hokical._core.checks import check_choice, check_count, show
from hokical._core.ensembles import Ensemble
from hokical._core.groups import count_rows, read_columns, take_rows
from hokical._core.logits import Logits, as_logits, rows_per_block
from hokical._core.reading import Rows
from hokical._core.runtime import cut_rows, track
from hokical._core.storage import as_path, replace_file
from hokical._fitting.examples import Examples, Partition
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.hoki import Hoki
from hokical.calibrators.stored import StoredEstimator
from hokical.guarantees.fingerprints import Reused, row_draws
from hokical.guarantees.shift import MOST_NUMBERS, ShiftEstimate
from hokical.io import examples, tables
from hokical.io.tables import NO_NAME, PARQUET, TABLE, DataFileError, FileSplit
from hokical.rules.base import OF_CLASSES, Output

__all__ = [
    "certify",
    "estimate_shift",
    "fit",
    "open_source",
    "partial_fit",
    "predict",
    "predict_to",
]

Fitted = TypeVar("Fitted", bound=Calibrator)

_RULE = "a chunk must be logits (n, classes)"
#: The arrays of a chunk, by what they may be called.
CHUNK_NAMES = (examples.LOGITS, examples.LABELS, examples.WEIGHTS)
_BESIDE = ("labels", "sample_weight")
#: Rows that are looked at before the others. Batches of one row would take seconds to
#: cut.
_HEAD_ROWS = 1024
_NO_ROWS = "a source must have at least one row; got none."
#: A block of a stream is this many blocks of a kernel, so that every thread gets some
#: of it.
_KERNEL_BLOCKS = 16
#: Numbers that a fit may keep per row beside the logits.
_FLOATS_BESIDE = 8


def _check_fitted(calibrator: object, name: str) -> None:
    """Raise unless an argument of this name is a fitted calibrator."""
    if not isinstance(calibrator, StoredEstimator):
        raise TypeError(
            f"`{name}` must be a fitted calibrator; got {show(calibrator)}."
        )
    calibrator.check_fitted()


def open_source(
    data: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    split: FileSplit = "val",
    kind: examples.ScoreKind | None = None,
    score_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    chunk_rows: int | None = None,
    fitted_by: Any = None,
) -> ChunkSource:
    """A source of examples that need not fit into memory, read a chunk at a time.

    Parameters
    ----------
    data : path or paths, table, array or chunks
        `.npy` files, which are mapped into memory; `.parquet`: one file, a list of
        them, a folder, or a pattern such as "scores/*.parquet", where subfolders called
        `name=value` are columns; other formats are read at once. A pyarrow Dataset, or
        anything with `__arrow_c_stream__`. An array (n, classes) that can be sliced,
        such as HDF5, Zarr or a memory map. Chunks: (logits, labels), (logits, labels,
        sample_weight) or logits alone, in a sequence or an iterator, or given by a
        function, which returns a new iterator whenever it is called.
    labels : array-like of shape (n,), path or str, optional
        Those of an array or frame; of a file, another file that has them; of a table,
        the name of their column.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows of an array or frame.
    split, kind, score_columns, label_column, classes
        Which rows and columns of files and tables, as in `hokical.io.read_examples`.
    chunk_rows : int, optional
        Rows of an array that are read at a time, by default 4 to 8 MB in float64.
    fitted_by : Calibrator, optional
        Columns of files and tables are put in the order of its fit.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "val_logits.npy", np.zeros((10, 3)))
    >>> np.save(folder / "val_labels.npy", np.zeros(10, int))
    >>> open_source(folder / "val_logits.npy").n_rows
    10
    >>> source = open_source(np.zeros((10, 3)), np.zeros(10, int), chunk_rows=4)
    >>> [chunk.n_rows for chunk in source]
    [4, 4, 2]
    """
    if fitted_by is not None:
        _check_fitted(fitted_by, "fitted_by")
    fit_columns = () if fitted_by is None else fitted_by.schema_.columns
    columns = examples.Columns(
        kind, score_columns, label_column, classes, fitted_by=fitted_by
    )
    is_path = isinstance(data, (str, os.PathLike))
    is_table = is_from(data, "pyarrow") or hasattr(data, "__arrow_c_stream__")
    if is_table and not (labels is None or isinstance(labels, str)):
        rows = reading.pair_rows(data, labels, sample_weight, None)
        source = _cut_frame(rows, fit_columns, chunk_rows)
    elif not is_table and hasattr(data, "shape"):
        source = _cut_array(data, labels, sample_weight, chunk_rows)
    elif sample_weight is not None or (
        labels is not None and not (is_path or is_table)
    ):
        raise TypeError(
            "labels and weights cannot stand beside such a source: give them in "
            "columns, or in chunks of (logits, labels, sample_weight)."
        )
    elif is_table:
        columns = replace(columns, label_column=labels or label_column)
        source = TableSource(_as_dataset(data), columns)
    elif is_path:
        source = _open_path(as_path(data), split, labels, columns)
    elif isinstance(data, ChunkSource):
        _check_column_order(data.columns, fit_columns)
        source = data
    elif _is_list_of_paths(data):
        files = [*map(Path, data)]
        source = TableSource(tables.open_parquet(files), columns, files[0])
    elif callable(data) or isinstance(data, Iterable):
        source = ChunkSource(data, columns=fit_columns)
    else:
        raise TypeError(
            "a source must be files, a table, an array, chunks or a function that "
            f"returns them; got {type(data).__name__}. See `streams.open_source`."
        )
    return source


def _is_list_of_paths(data: object) -> bool:
    paths = data if isinstance(data, (list, tuple)) else ()
    return bool(paths) and all(isinstance(path, (str, os.PathLike)) for path in paths)


def _as_dataset(table: Any) -> Any:
    """A pyarrow Dataset, of whatever gives an Arrow stream."""
    arrow = tables.import_arrow("pyarrow.dataset")
    if isinstance(table, arrow.Dataset):
        return table
    try:
        return arrow.dataset(tables.import_arrow("pyarrow").table(table))
    except (TypeError, ValueError) as error:
        raise TypeError(
            "a source of columns must be a table; got "
            f"{type(table).__name__}, of which no table can be made."
        ) from error


def _cut_frame(
    rows: Rows, fit_columns: tuple[str, ...], chunk_rows: int | None
) -> ChunkSource:
    """Slices of a frame that holds scores alone, in the order of the fit."""
    ordered = reading.order_columns(rows.scores, "logits", fit_columns)
    values = reading.to_numpy(ordered, "logits")
    source = _cut_array(values, rows.labels, rows.weights, chunk_rows)
    source.columns = fit_columns or rows.columns
    return source


def _check_column_order(columns: Sequence[str], fit_columns: Sequence[str]) -> None:
    """Raise unless a source that is open already has the columns of the fit in order."""
    indices = reading.match_columns(columns, fit_columns)
    if indices is None or indices == sorted(indices):
        return
    wanted, got = (", ".join(names[:6]) for names in (fit_columns, columns))
    raise ValueError(
        f"a source must have its columns in the order of the fit, {wanted}; got {got}. "
        "Open it by `open_source(..., fitted_by=calibrator)`."
    )


def _open_path(
    path: Path, split: FileSplit, labels: Any, columns: examples.Columns
) -> ChunkSource:
    """A source of a file, of the Parquet files of a folder, or of those that match a
    pattern.
    """
    if (
        path.is_dir()
        or tables.is_pattern(path)
        or tables.find_format(path) == "parquet"
    ):
        # In a folder, subfolders called `name=value` are columns.
        hive = (
            {"partitioning": "hive", "partition_base_dir": str(path)}
            if path.is_dir()
            else {}
        )
        return TableSource(
            tables.open_parquet(tables.list_files(path), **hive), columns, path
        )
    table = tables.open_table(path, split)
    layout = examples.Layout(table, columns)
    label_source = layout.find_labels(labels, columns.label_column)
    # A mapped array stays on disk.
    if table.names == [NO_NAME] and layout.kind == "logits":
        truth = label_source and examples.encode_labels(
            label_source[0].read_column(label_source[1]), ()
        )
        with tables.report_file(path):
            source = _cut_array(table.read_column(NO_NAME), truth)
    else:
        rows = layout.read_logits(table, label_source)
        source = _cut_array(rows.scores, rows.labels, rows.weights)
        source.columns = rows.columns
        source.classes = rows.classes
        source.about = rows.about
    source.path = path
    return source


@dataclass(eq=False)
class ChunkSource:
    """Chunks of (logits, labels, weights), the last two where there are any.

    Attributes
    ----------
    chunks : an iterable, or a function that returns one
    columns : names of the columns of the logits, where each class has one
    n_rows : rows in all, where that is known without reading
    path : the file or folder to name in errors, if there is one
    classes, about : names of the classes, and what later files need to be read in the
        same way
    column_names : names of all columns, where rows are those of a table
    repeatable : whether there can be more than one pass over the chunks
    """

    chunks: Any
    columns: tuple[str, ...] = ()
    n_rows: int | None = None
    path: Path | None = None
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    column_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.repeatable = not isinstance(self.chunks, Iterator)
        self._next_pass: Iterator[Rows] | None = None

    def __iter__(self) -> Iterator[Rows]:
        """The chunks, in order."""
        started = self._next_pass
        self._next_pass = None
        return started or self._new_pass()

    @property
    def n_classes(self) -> int:
        """Columns of the logits, from the first chunk."""
        return self.first_chunk().n_classes

    def first_chunk(self) -> Rows:
        """The first chunk with rows; it begins the next pass, so that none is read
        twice.
        """
        chunks = iter(self)
        for chunk in chunks:
            if chunk.n_rows:
                self._next_pass = itertools.chain([chunk], chunks)
                return chunk
        raise ValueError(_NO_ROWS)

    def read_groups(self, groups: Any) -> Any:
        """The groups of all rows as they are given; names of columns are for tables."""
        if isinstance(groups, str):
            names = ", ".join(self.column_names[:8]) or "this source has none"
            raise ValueError(
                f"`groups` must be arrays, or names of columns ({names}); got "
                f"{groups!r}. Pass the groups of all rows."
            )
        return groups

    def _new_pass(self) -> Iterator[Rows]:
        if (chunks := self.chunks) is None:
            raise ValueError(
                "an iterator of chunks can be used once, and it has been. Give a "
                "function that returns a new iterator, a list of chunks, arrays or "
                "files."
            )
        self.chunks = chunks if self.repeatable else None
        for item in chunks() if callable(chunks) else chunks:
            yield item if isinstance(item, Rows) else self._as_chunk(item)

    def _as_chunk(self, item: Any) -> Rows:
        """A chunk from an array, a tuple or a mapping; columns of frames in the
        source's order.
        """
        logits, labels, weights = split_parts(item, CHUNK_NAMES, _RULE)
        if isinstance(logits, Logits):
            raise TypeError(
                f"{_RULE}; got {type(logits).__name__}, which can be used in memory "
                "only: `fit(top_k, labels)`, `predict(top_k)`."
            )
        if isinstance(logits, Ensemble):
            self.columns = self.columns or logits.columns
            ordered = logits.order_columns(self.columns, strict=True)
            return self._with_beside(ordered, labels, weights)
        self.columns = self.columns or reading.column_names(logits)
        values = reading.to_numpy(
            reading.order_columns(logits, "logits", self.columns), "logits"
        )
        if values.ndim != 2:
            raise ValueError(f"{_RULE}; got shape {values.shape}.")
        reading.pair_rows(logits, labels, weights, None)
        return self._with_beside(values, labels, weights)

    def _with_beside(
        self, scores: AnyArray | Ensemble, labels: Array, weights: Array
    ) -> Rows:
        """A chunk of scores with its labels and weights."""
        named_arrays = zip(
            _BESIDE, _columns_beside(len(scores), labels, weights), strict=True
        )
        truth, counts = (
            None if e is None else reading.to_numpy(e, name) for name, e in named_arrays
        )
        # Names of these.
        if truth is not None and truth.dtype.kind in "UTO" and not self.classes:
            self.classes = tuple(map(reading.class_of_column, self.columns))
        return Rows(scores, truth, counts)


def _columns_beside(n_rows: int, labels: Array, weights: Array) -> list[Any]:
    """Labels and weights (n_rows,) as arrays that can be sliced, or None."""
    arrays = list[Any]()
    for name, array in zip(_BESIDE, (labels, weights), strict=True):
        sliced = array is None or (
            hasattr(array, "shape") and not hasattr(array, "iloc")
        )
        arrays.append(array if sliced else reading.to_numpy(array, name))
        if array is not None:
            reading.check_length(arrays[-1], n_rows, name)
    return arrays


def _cut_array(
    logits: Any, labels: Any, weights: Any = None, chunk_rows: int | None = None
) -> ChunkSource:
    """Slices of arrays: in memory, memory-mapped, HDF5, anything with `shape` and
    slices.
    """
    if len(logits.shape) != 2:
        raise ValueError(
            f"`logits` must have a shape (n, classes); got {tuple(logits.shape)}."
        )
    n_rows, n_classes = map(int, logits.shape)
    arrays = (logits, *_columns_beside(n_rows, labels, weights))
    step = rows_per_chunk(n_classes) if chunk_rows is None else chunk_rows
    check_count("chunk_rows", step)

    def slices() -> Iterator[Any]:
        for rows in cut_rows(n_rows, step):
            yield tuple(None if array is None else array[rows] for array in arrays)

    return ChunkSource(slices, n_rows=n_rows)


class TableSource(ChunkSource):
    """The rows of a pyarrow Dataset, in order; with a `path` those of its files."""

    def __init__(
        self, data: Any, columns: examples.Columns, path: Path | None = None
    ) -> None:
        name = path or TABLE
        self._layout = layout = examples.Layout(tables.arrow_table(name, data), columns)
        with tables.report_damage(name, PARQUET):
            options = {"batch_size": _HEAD_ROWS, **tables.scan_options(data)}
            head = data.head(_HEAD_ROWS, columns=[*layout.scores], **options)
            n_rows = int(data.count_rows())
        scores, _ = tables.arrow_table(name, head).read(layout.scores, ())
        with tables.report_file(name):
            kind = layout.settle_kind(scores)
        layout.wanted = replace(columns, kind=kind)
        super().__init__(
            self._read_chunks,
            columns=layout.columns,
            n_rows=n_rows,
            path=path,
            classes=layout.classes,
            about=layout.about(kind),
            column_names=data.schema.names,
        )
        self._rows = rows_per_chunk(scores.shape[1] if scores.ndim == 2 else 1)
        self._data = data

    def _read_chunks(self) -> Iterator[Rows]:
        layout = self._layout
        for path, first, table in self._batches([*layout.scores, *layout.others]):
            yield layout.read_logits(tables.arrow_table(path, table, first))

    def _batches(self, columns: Sequence[str]) -> Iterator[tuple[Path, int, Any]]:
        """Tables of the columns, each after its file and the number of rows before it
        there.

        Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used
        fast enough.
        """
        data = self._data
        make = tables.import_arrow("pyarrow").Table.from_batches
        options = {"batch_size": self._rows, **tables.scan_options(data)}
        options |= {"columns": [*dict.fromkeys(columns)]}
        for fragment in [data] if self.path is None else data.get_fragments():
            # which may have a filter
            first = 0
            path = TABLE
            groups = [data]
            if self.path is not None:
                path = Path(fragment.path)
                options["schema"] = data.schema
                with tables.report_damage(path, PARQUET):
                    groups = fragment.split_by_row_group()
                if missing := sorted(
                    {*self._layout.scores} - {*fragment.physical_schema.names}
                ):
                    raise DataFileError(
                        path,
                        f"expected the columns of {Path(data.files[0]).name}; "
                        f"`{missing[0]}` is missing.",
                    )
            with tables.report_damage(path, PARQUET):
                for batch in itertools.chain.from_iterable(
                    g.to_batches(**options) for g in groups
                ):
                    if batch.num_rows:
                        yield path, first, make([batch])
                    first += batch.num_rows

    def read_groups(self, groups: Any) -> Any:
        """The groups, or the columns that are named, alone, in a tuple or in a list."""
        names = examples.named_columns(groups, self.column_names)
        if not names:
            return super().read_groups(groups)
        if scores := [name for name in names if name in self._layout.scores]:
            raise ValueError(
                f"`groups` must be columns that are no scores; got `{scores[0]}`."
            )
        batches = [table for _, _, table in self._batches(names)]
        columns = (
            [reading.to_column(table.column(name)) for table in batches]
            for name in names
        )
        return dict(zip(names, map(np.concatenate, columns), strict=True))


def split_parts(item: Any, names: Sequence[tuple[str, ...]], message: str) -> list[Any]:
    """The arrays of a chunk or batch, one for each of the names, None for those it has
    not.

    Names are spellings in a mapping; a tuple has logits, labels and weights in this
    order. The `message` says what an array alone must be.
    """
    if isinstance(item, Mapping):
        keys = [
            next((name for name in spellings if name in item), None)
            for spellings in names
        ]
        if keys[0] is not None:
            return [None if key is None else item[key] for key in keys]
    elif isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return [*item, None, None][: len(names)]
    elif (
        isinstance(item, (Logits, Ensemble))
        or hasattr(item, "shape")
        or hasattr(item, "__dlpack__")
    ):
        return [item, *[None] * (len(names) - 1)]
    message += (
        ", or a tuple (logits, labels) or (logits, labels, sample_weight), or a "
        "mapping of "
    )
    message += ", ".join(spellings[0] for spellings in names)
    raise TypeError(f"{message}; got {type(item).__name__}.")


def rows_per_chunk(n_classes: int) -> int:
    """Rows of a stream's block: up to 8 MB in float64, however many chunks and
    threads.
    """
    return _KERNEL_BLOCKS * rows_per_block(n_classes + _FLOATS_BESIDE)


def reblock(chunks: Iterable[Rows], rows: int) -> Iterator[Rows]:
    """The same rows in chunks of `rows` each, the last one possibly shorter.

    Sums over them are then the same to the bit, however the rows were cut before.

    >>> parts = reblock([Rows(np.zeros((3, 2))), Rows(np.zeros((4, 2)))], rows=5)
    >>> [part.n_rows for part in parts]
    [5, 2]
    """
    pending: list[Rows] = []
    count = 0
    for chunk in chunks:
        start = 0
        while chunk.n_rows - start >= rows - count:
            stop = start + rows - count
            yield join_chunks([*pending, chunk.take(slice(start, stop))])
            pending = []
            count = 0
            start = stop
        if start < chunk.n_rows:
            pending.append(chunk.take(slice(start, None)))
            count += chunk.n_rows - start
    if pending:
        yield join_chunks(pending)


def join_chunks(chunks: list[Rows]) -> Rows:
    """Chunks one below the other."""
    if len(chunks) == 1:
        return chunks[0]
    if len(widths := {chunk.n_classes for chunk in chunks}) > 1:
        raise ValueError(
            f"all chunks must have the same classes; got {sorted(widths)} columns."
        )
    scores = [chunk.scores for chunk in chunks]
    if isinstance(scores[0], Ensemble):
        joined: Any = scores[0].append(scores[1:])
    else:
        joined = _join_column("scores", scores)
    return Rows(
        scores=joined,
        labels=_join_column("labels", [chunk.labels for chunk in chunks]),
        weights=_join_column("sample_weight", [chunk.weights for chunk in chunks]),
        groups=_join_column("groups", [chunk.groups for chunk in chunks]),
        ids=_join_column("ids", [chunk.ids for chunk in chunks]),
    )


def _join_column(name: str, arrays: list[Any]) -> AnyArray | None:
    """Arrays one below the other; None if no chunk has any."""
    present = [to_host(array) for array in arrays if array is not None]
    if present and len(present) < len(arrays):
        raise ValueError(
            f"`{name}` must be in every chunk or in none; some chunks lack it."
        )
    return np.concatenate(present) if present else None


def check_row_count(rows: int, expected: int | None) -> None:
    """A pass over a source must give rows, and as many as are expected."""
    if expected not in (None, rows):
        raise ValueError(
            "a source must give the same rows in every pass; got "
            f"{rows} after {expected}. A function given as a source must return a new "
            "iterator whenever it is called."
        )
    if not rows:
        raise ValueError(_NO_ROWS)


def check_block(
    chunk: Rows,
    first: int,
    n_classes: int,
    classes: Sequence[str] = (),
    fitted: Calibrator | None = None,
) -> Examples:
    """Check a chunk's rows; errors say where in the source they are, counted from the
    `first`.

    Labels may be names of the classes. Ensembles are pooled by the `fitted` calibrator.
    """
    with tables.report_file(None, first):
        if chunk.labels is None:
            raise ValueError(
                "labels are needed: give `labels`, or chunks of (logits, labels)."
            )
        logits = _as_block(chunk.scores, fitted)
        if (width := logits.n_classes) != n_classes:
            raise ValueError(
                f"all chunks must have the same classes; got {width} columns after "
                f"{n_classes}."
            )
        labels = reading.as_labels(
            chunk.labels, logits.n_rows, n_classes, classes=classes
        )
        weights = reading.as_weights(chunk.weights, logits.n_rows, of_block=True)
        return Examples(logits, labels, weights, first)


def _as_block(scores: AnyArray | Ensemble, fitted: Calibrator | None) -> Logits:
    """Checked logits of a chunk."""
    if not isinstance(scores, Ensemble):
        return as_logits(scores)
    if fitted is None:
        raise TypeError(
            "chunks of an Ensemble cannot be fitted on, as the weights of its members "
            "need all rows at once: `fit(ensemble, labels)` in memory, on a sample."
        )
    return fitted.fitted.read(scores)


def checked_blocks(
    source: ChunkSource, n_classes: int, fitted: Any = None
) -> Iterator[Examples]:
    """The rows of a source in blocks, each checked when it is asked for."""
    first = 0
    names = () if fitted is None else fitted.class_names
    for chunk in reblock(source, rows_per_chunk(n_classes)):
        with tables.report_file(source.path):
            classes = names or source.classes
            block = check_block(chunk, first, n_classes, classes, fitted)
        yield block
        first += chunk.n_rows


class StreamedPartition(Partition):
    """Blocks of a source, one after the other on this machine, with threads inside a
    block.
    """

    def __init__(self, source: ChunkSource, *, progress: bool | None = None) -> None:
        self.source = source
        self.n_classes = source.n_classes
        self.progress = progress
        self._n_rows = source.n_rows
        self.repeatable = source.repeatable

    def reduce(self, work: Callable[[Examples], Any]) -> Any:
        state: Any = None
        rows = 0
        expected_rows = self._n_rows
        count = (
            1
            if expected_rows is None
            else -(-expected_rows // rows_per_chunk(self.n_classes))
        )
        blocks = checked_blocks(self.source, self.n_classes)
        for block in track(blocks, "Reading the data", count, self.progress):
            result = work(block)
            state = result if state is None else state + result
            rows += block.n_rows
        check_row_count(rows, expected_rows)
        self._n_rows = rows
        return state


def check_calibrator(calibrator: object) -> None:
    """Raise unless it is a calibrator of logits, fitted or not."""
    if isinstance(calibrator, Calibrator):
        return
    remedy = "Confidences and several labels are fitted in memory."
    if isinstance(calibrator, str):
        remedy = f"Use `hokical.make({calibrator!r})`."
    raise TypeError(
        f"`calibrator` must be a calibrator of logits; got {calibrator!r}. {remedy}"
    )


def fit(
    calibrator: Fitted, source: Any, *, progress: bool | None = None, groups: Any = None
) -> Fitted:
    """Fit a calibrator on a source, and return it.

    The source is read once. Of more than 4 million logits, a uniform sample of rows is
    used: at most 4 million logits and 200,000 rows, chosen by their row numbers. It is
    the same for arrays, files and iterators, however they are cut into chunks. All rows
    are checked, and counted for guarantees. `Hoki` uses all rows; with `noise="auto"`
    it reads a large source twice.

    Parameters
    ----------
    calibrator : estimator
        Of any method; the same object is returned, fitted.
    source : ChunkSource, path, pyarrow Dataset or Table, or chunks
        Chunks are (logits, labels) or (logits, labels, sample_weight), in a sequence,
        an iterator, or a function that returns one. See `open_source`.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.
    groups : array-like of shape (n,), or several columns, or names of columns, optional
        For the default: those of all rows, in order, see `AutoCalibrator.fit`; or, of
        Parquet files and datasets, the column's name, or several names.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import fit
    >>> def batches():
    ...     for seed in range(4):
    ...         rng = np.random.default_rng(seed)
    ...         logits = rng.normal(size=(500, 3))
    ...         yield 2 * logits, np.argmax(logits + rng.gumbel(size=(500, 3)), axis=1)
    >>> round(fit(make("temps"), batches()).temperature_)
    2
    """
    check_calibrator(calibrator)
    chunks = open_source(source)
    partition = StreamedPartition(chunks, progress=progress)
    partition.groups = chunks.read_groups(groups)
    calibrator.fit_partition(
        partition,
        columns=chunks.columns,
        class_names=chunks.classes,
        origin=chunks.about,
    )
    return calibrator


def partial_fit(calibrator: Hoki, source: Any, *, progress: bool | None = None) -> Hoki:
    """Add the examples of a source to a fitted `Hoki`: equal to one fit on all of them.

    >>> from hokical import Gumbel, Hoki
    >>> from hokical.demo import demo_logits
    >>> logits, labels = demo_logits()[0]
    >>> cal = Hoki(noise=Gumbel(1.0)).fit(logits[:3000], labels[:3000])
    >>> whole = Hoki(noise=Gumbel(1.0)).fit(logits, labels)
    >>> partial_fit(cal, [(logits[3000:], labels[3000:])]).accuracy_ == whole.accuracy_
    True
    """
    if not isinstance(calibrator, Hoki):
        raise TypeError(
            "`partial_fit` needs a Hoki, to whose counts examples are added; got "
            f"{calibrator!r}. Fit it on all chunks at once: `streams.fit`."
        )
    if not calibrator.is_fitted:
        return fit(calibrator, source, progress=progress)
    chunks = open_source(source, fitted_by=calibrator)
    calibrator.partial_fit_partition(StreamedPartition(chunks, progress=progress))
    return calibrator


def certify(
    calibrator: Calibrator,
    source: Any,
    *,
    groups: Any = None,
    reused: Reused = "refuse",
) -> Calibrator:
    """`Calibrator.certify` with the examples of a source, a chunk at a time.

    Of each example four numbers are kept. `groups` are those of all rows, or columns,
    as in `fit`.

    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import certify, open_source
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=900)
    >>> logits = rng.normal(size=(900, 3)) + 2 * np.eye(3)[labels]
    >>> cal = make("temps").fit(logits[:300], labels[:300])
    >>> cal = certify(cal, open_source(logits[300:], labels[300:]))
    >>> cal.predict_set(logits, coverage=0.9).sizes.shape
    (900,)
    """
    check_calibrator(calibrator)
    calibrator.check_fitted()
    chunks = open_source(source, fitted_by=calibrator)
    blocks = checked_blocks(chunks, calibrator.n_classes_, calibrator)
    pairs = _pair_groups(blocks, chunks.read_groups(groups))
    blocks_with_groups = (
        (block.logits, block.labels, block.weights, block_groups)
        for block, _, block_groups in pairs
    )
    return calibrator.certify_parts(blocks_with_groups, reused=reused)


def _pair_groups(chunks: Iterable[Any], groups: Any) -> Iterator[tuple[Any, int, Any]]:
    """Chunks, the number of their first row, and their groups, of which those of all
    are given.
    """
    columns = None if groups is None else read_columns(groups, count_rows(groups))
    start = stop = 0
    for chunk in chunks:
        start = stop
        stop = stop + chunk.n_rows
        if columns is not None and count_rows(columns) < stop:
            break
        yield (
            chunk,
            start,
            None if columns is None else take_rows(columns, slice(start, stop)),
        )
    if columns is not None:
        read_columns(columns, stop)  # which raises if there are more, or fewer


def predict(
    calibrator: Calibrator,
    source: Any,
    *,
    what: Output = "confidence",
    groups: Any = None,
) -> Iterator[AnyArray]:
    """What a calibrator predicts for a source: an array for every chunk, in order.

    `source` is as in `fit`, but logits alone are enough. `what` is "confidence"
    (rows,), "labels" (rows,), "proba" (rows, classes) or, of a calibrator `with_sets`,
    "members" (rows, classes). `groups` are for a calibrator that learned from groups:
    those of all rows, in order, or names of columns, as in `fit`.

    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import predict
    >>> chunks = [np.eye(3), np.eye(3)[:2]]
    >>> cal = make("uncalibrated").fit(chunks[0], [0, 1, 2])
    >>> [labels.tolist() for labels in predict(cal, chunks, what="labels")]
    [[0, 1, 2], [0, 1]]
    """
    check_choice("what", what, Output)
    check_calibrator(calibrator)
    calibrator.check_fitted()
    chunks = open_source(source, fitted_by=calibrator)
    groups = chunks.read_groups(groups)
    predictor = calibrator.fitted
    by_group = calibrator.schema_.groups is not None

    def results() -> Iterator[AnyArray]:
        for chunk, first, chunk_groups in _pair_groups(
            chunks, groups if by_group else None
        ):
            if chunk.n_rows:
                with tables.report_file(chunks.path, first):
                    values = to_host(
                        predictor.predict(what, chunk.scores, chunk_groups)
                    )
                yield values

    return results()


def predict_to(
    calibrator: Calibrator,
    source: Any,
    path: str | os.PathLike[str],
    *,
    what: Output = "confidence",
    groups: Any = None,
) -> int:
    """Write predictions for all rows of a source to a `.npy` file, in order; return
    their number.

    `source`, `what` and `groups` are as in `predict`. The file appears under its name
    when it is complete.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import open_source, predict_to
    >>> cal = make("uncalibrated").fit(np.eye(3), [0, 1, 2])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.npy"
    >>> (
    ...     predict_to(cal, open_source(np.eye(3)), path, what="labels"),
    ...     np.load(path).tolist(),
    ... )
    (3, [0, 1, 2])
    """
    target = as_path(path)
    tables.check_output(target, suffix=".npy")
    rows = open_source(source, fitted_by=calibrator)
    results = predict(calibrator, rows, what=what, groups=groups)
    dtype = np.dtype({"labels": np.int64, "members": np.bool_}.get(what, np.float64))
    columns = (calibrator.n_classes_,) if what in OF_CLASSES else ()
    done = 0
    header = {"descr": dtype.str, "fortran_order": False}
    with replace_file(target) as stream:
        np.lib.format.write_array_header_1_0(stream, header | {"shape": (0, *columns)})
        for values in results:
            stream.write(np.ascontiguousarray(values, dtype).data)
            done += len(values)
        check_row_count(done, rows.n_rows)
        # The header is as long for any number of rows, as NumPy pads it.
        stream.seek(0)
        np.lib.format.write_array_header_1_0(
            stream, header | {"shape": (done, *columns)}
        )
    return done


def estimate_shift(
    calibrator: Calibrator, source: Any, *, delta: float = 0.05
) -> ShiftEstimate:
    """`Calibrator.estimate_shift` for rows that do not fit into memory, in one pass.

    `source` is as in `fit`, but logits alone are enough. At most 2^24 / classes rows
    are kept, chosen by their numbers: the same as of an array, however the source is
    cut.

    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> from hokical.streams import estimate_shift, open_source
    >>> (val_logits, val_labels), (logits, _) = demo_logits()
    >>> cal = make("temps").fit(val_logits, val_labels)
    >>> estimate_shift(cal, open_source(logits)).verdict
    'no change'
    """
    check_calibrator(calibrator)
    calibrator.check_fitted()
    max_rows = MOST_NUMBERS // calibrator.n_classes_
    first = 0
    sampled: list[tuple[AnyArray, Rows]] = []
    for chunk in open_source(source, fitted_by=calibrator):
        weights = (
            np.ones(chunk.n_rows)
            if chunk.weights is None
            else np.asarray(chunk.weights)
        )
        rows = Rows(chunk.scores, weights=weights)
        sampled.append((row_draws(first, chunk.n_rows), rows))
        first += chunk.n_rows
        if sum(len(draws) for draws, _ in sampled) > 2 * max_rows:
            sampled = [_smallest(sampled, max_rows)]
    check_row_count(first, None)
    _, rows = _smallest(sampled, max_rows)
    return calibrator.estimate_shift(
        rows.scores, sample_weight=rows.weights, delta=delta
    )


def _smallest(
    samples: list[tuple[AnyArray, Rows]], max_rows: int
) -> tuple[AnyArray, Rows]:
    """The smallest draws and their rows, in their order."""
    draws = np.concatenate([draws for draws, _ in samples])
    chosen = np.sort(np.argsort(draws, kind="stable")[:max_rows])
    return draws[chosen], join_chunks([rows for _, rows in samples]).take(chosen)
