"""Data that do not fit into memory: a chunk at a time, from files, tables, iterators or functions.

Arrays go to the methods of a calibrator, Dask's included. Everything else goes through here: each
function takes a source, which is what `open_source` gives or takes. So does
`hokical.evaluate`.

Passes over a source: fits, held-out examples, predictions and frequencies, block by block.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hokical._core.arrays import AnyArray, FloatArray, IntArray, to_host
from hokical._core.checks import check_choice
from hokical._core.groups import count_rows, read_columns, take_rows
from hokical._core.logits import as_logits
from hokical._core.messages import progress_bar
from hokical._core.reading import Rows, as_labels, as_weights
from hokical._core.storage import replace_file
from hokical._fitting.examples import Examples, Partition, Result
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.hoki import Hoki
from hokical.guarantees.calibration_data import Reused, row_draws
from hokical.guarantees.shift import MOST_NUMBERS, ShiftEstimate
from hokical.io.chunks import ChunkSource, check_row_count, reblock, rows_per_chunk
from hokical.io.reading import open_source
from hokical.io.tables import check_output, count_from, report_file
from hokical.rules.base import OF_CLASSES, Output

__all__ = [
    "certify", "estimate_shift", "fit", "open_source", "partial_fit", "predict", "predict_to",
]  # fmt: skip

Estimator = TypeVar("Estimator", bound=Calibrator)


def check_block(
    chunk: Rows,
    first_row: int,
    n_classes: int,
    path: Path | None = None,
    classes: Sequence[str] = (),
) -> Examples:
    """Check a chunk's rows; errors say where in the source, and in which file, they are.

    Labels may be names of the classes.
    """
    with report_file(path, count_from(first_row)):
        if chunk.labels is None:
            raise ValueError(
                "labels are needed: `open_source(logits, labels)` or chunks of (logits, labels)."
            )
        logits = as_logits(chunk.scores)
        if logits.n_classes != n_classes:
            raise ValueError(
                f"all chunks must have the same classes; got {logits.n_classes} columns after "
                f"{n_classes}."
            )
        labels = as_labels(chunk.labels, logits.n_rows, n_classes, classes=classes)
        weights = as_weights(chunk.weights, logits.n_rows, of_block=True)
        return Examples(logits, labels, weights, first_row)


def checked_blocks(
    source: ChunkSource, n_classes: int, fitted_by: Any = None
) -> Iterator[Examples]:
    """The rows of a source in blocks, each checked when it is asked for."""
    first, names = 0, getattr(fitted_by, "class_names", ())
    for chunk in reblock(source, rows_per_chunk(n_classes)):
        yield check_block(chunk, first, n_classes, source.path, names or source.classes)
        first += chunk.n_rows


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
        rows, known = 0, self._n_rows
        count = 1 if known is None else -(-known // rows_per_chunk(self.n_classes))
        with progress_bar("Reading the data", count, self.progress) as advance:
            for block in checked_blocks(self.source, self.n_classes):
                found = work(block)
                state = found if state is None else combine(state, found)
                rows += block.n_rows
                advance()
        check_row_count(rows, known)
        self._n_rows = rows
        assert state is not None  # as there are rows
        return state


def fit(
    calibrator: Estimator, source: Any, *, progress: bool | None = None, groups: Any = None
) -> Estimator:
    """Fit a calibrator on a source, and return it.

    The source is read once. Of more than 4 million logits, a uniform sample of rows is used: at
    most 4 million logits and 200,000 rows, chosen by their row numbers. It is the same for arrays,
    files and iterators, however they are cut into chunks. All rows are checked, and counted for
    guarantees. `Hoki` uses all rows; with `noise="auto"` it reads a large source twice.

    Parameters
    ----------
    calibrator : estimator
        Of any method; the same object is returned, fitted.
    source : ChunkSource, path, pyarrow Dataset or Table, or chunks
        Chunks are (logits, labels) or (logits, labels, sample_weight), in a sequence, an iterator,
        or a function that returns one. See `open_source`.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.
    groups : array-like of shape (n,), or several columns, or names of columns, optional
        For the default: those of all rows, in order, see `AutoCalibrator.fit`; or, of Parquet files
        and datasets, the column's name, or several names.

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
    chunks = open_source(source)
    partition = StreamedPartition(chunks, progress=progress)
    partition.groups = chunks.read_groups(groups)
    calibrator._fit_partition(partition)
    calibrator._columns = chunks.columns
    calibrator._name_classes(chunks.classes)
    calibrator.metadata_ = dict(chunks.about)
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
    chunks = open_source(source, fitted_by=calibrator)
    calibrator._partial_fit_partition(StreamedPartition(chunks, progress=progress))
    return calibrator


def certify(
    calibrator: Calibrator, source: Any, *, groups: Any = None, reused: Reused = "refuse"
) -> Calibrator:
    """`Calibrator.certify` with the examples of a source, a chunk at a time.

    Of each example four numbers are kept. `groups` are those of all rows, or columns, as in `fit`.

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
    calibrator._check_fitted()
    chunks = open_source(source, fitted_by=calibrator)
    groups = chunks.read_groups(groups)
    columns = None if groups is None else read_columns(groups, count_rows(groups))

    def parts() -> Iterator[tuple[Any, ...]]:
        first = 0
        for block in checked_blocks(chunks, calibrator.n_classes_, calibrator):
            rows = slice(first, first + block.n_rows)
            own = None if columns is None else take_rows(columns, rows)
            yield block.logits, block.labels, block.weights, own
            first = rows.stop
        if columns is not None:
            read_columns(columns, first)  # which raises if there are more

    return calibrator._certify_parts(parts(), reused=reused)


def predict(
    calibrator: Calibrator, source: Any, *, what: Output = "confidence", groups: Any = None
) -> Iterator[AnyArray]:
    """What a calibrator predicts for a source: an array for every chunk, in order.

    `source` is as in `fit`, but logits alone are enough. `what` is "confidence" (rows,), "labels"
    (rows,), "proba" (rows, classes) or, of a calibrator `with_sets`, "members" (rows, classes).
    `groups` are for a calibrator that learned from groups: those of all rows, in order, or names of
    columns, as in `fit`.

    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import predict
    >>> chunks = [np.eye(3), np.eye(3)[:2]]
    >>> cal = make("uncalibrated").fit(chunks[0], [0, 1, 2])
    >>> [labels.tolist() for labels in predict(cal, chunks, what="labels")]
    [[0, 1, 2], [0, 1]]
    """
    check_choice("what", what, Output)
    calibrator._check_fitted()
    chunks = open_source(source, fitted_by=calibrator)
    codes = _group_codes(calibrator, chunks, groups)
    return _predict_chunks(calibrator, chunks, what, codes)


def _group_codes(calibrator: Calibrator, source: ChunkSource, groups: Any) -> IntArray | None:
    """Codes (n, columns) of the groups, if the calibrator goes by them."""
    needed = groups is not None and calibrator.rule_.needed_groups is not None
    return calibrator.group_codes(source.read_groups(groups)) if needed else None


def _predict_chunks(
    calibrator: Calibrator, source: ChunkSource, what: Output, codes: IntArray | None
) -> Iterator[AnyArray]:
    """`predict` for the chunks of a source."""
    first_row = 0
    for chunk in source:
        if chunk.n_rows:
            rows = slice(first_row, first_row + chunk.n_rows)
            logits: Any = chunk.scores
            with report_file(source.path, count_from(first_row)):
                if codes is not None:
                    _check_groups(codes, rows.stop)
                    logits = replace(as_logits(logits), codes=codes[rows])
                found = to_host(calibrator._output(what, logits))
            yield found
            first_row = rows.stop
    if codes is not None:
        _check_groups(codes, first_row, at_the_end=True)


def _check_groups(codes: IntArray, n_rows: int, *, at_the_end: bool = False) -> None:
    if len(codes) < n_rows or (at_the_end and len(codes) > n_rows):
        raise ValueError(f"`groups` must be of all rows; got {len(codes)} for {n_rows} or more.")


def predict_to(
    calibrator: Calibrator,
    source: Any,
    path: str | os.PathLike[str],
    *,
    what: Output = "confidence",
    groups: Any = None,
) -> int:
    """Write predictions for all rows of a source to a `.npy` file, in order; return their number.

    `source`, `what` and `groups` are as in `predict`. The file appears under its name when it is
    complete.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import open_source, predict_to
    >>> cal = make("uncalibrated").fit(np.eye(3), [0, 1, 2])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.npy"
    >>> predict_to(cal, open_source(np.eye(3)), path, what="labels"), np.load(path).tolist()
    (3, [0, 1, 2])
    """
    check_choice("what", what, Output)
    target = Path(path)
    check_output(target, suffix=".npy")
    rows = open_source(source, fitted_by=calibrator)
    codes = _group_codes(calibrator, rows, groups)
    dtype = np.dtype({"labels": np.int64, "members": np.bool_}.get(what, np.float64))
    columns = (calibrator.n_classes_,) if what in OF_CLASSES else ()
    done = 0
    with replace_file(target) as stream:
        stream.write(_header(dtype, columns, 0))
        for found in _predict_chunks(calibrator, rows, what, codes):
            stream.write(np.ascontiguousarray(found, dtype).data)
            done += len(found)
        check_row_count(done, rows.n_rows)
        stream.seek(0)
        stream.write(_header(dtype, columns, done))
    return done


def _header(dtype: np.dtype[Any], columns: tuple[int, ...], rows: int) -> bytes:
    """NumPy pads it so that its length does not depend on the number of rows."""
    stream = io.BytesIO()
    about = {"descr": dtype.str, "fortran_order": False, "shape": (rows, *columns)}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


def estimate_shift(calibrator: Calibrator, source: Any, *, delta: float = 0.05) -> ShiftEstimate:
    """`Calibrator.estimate_shift` for rows that do not fit into memory, in one pass.

    `source` is as in `fit`, but logits alone are enough. Of more than 2^24 / classes rows so many
    are kept, chosen by their numbers: the same as of an array, however the source is cut.

    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> from hokical.streams import estimate_shift, open_source
    >>> (val_logits, val_labels), (logits, _) = demo_logits()
    >>> cal = make("temps").fit(val_logits, val_labels)
    >>> estimate_shift(cal, open_source(logits)).verdict
    'no change'
    """
    calibrator._check_fitted()
    most, first = MOST_NUMBERS // calibrator.n_classes_, 0
    kept: list[tuple[FloatArray, AnyArray, FloatArray]] = []
    for chunk in open_source(source, fitted_by=calibrator):
        key = row_draws(first, chunk.n_rows)
        weights = np.ones(chunk.n_rows) if chunk.weights is None else np.asarray(chunk.weights)
        kept.append((key, chunk.scores, weights))
        first += chunk.n_rows
        if sum(len(part[0]) for part in kept) > 2 * most:
            kept = [_smallest(kept, most)]
    check_row_count(first, None)
    _, logits, weights = _smallest(kept, most)
    return calibrator.estimate_shift(logits, sample_weight=weights, delta=delta)


def _smallest(
    parts: list[tuple[FloatArray, AnyArray, FloatArray]], most: int
) -> tuple[FloatArray, AnyArray, FloatArray]:
    """Rows of the smallest keys, in their order."""
    key, logits, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = np.sort(np.argsort(key, kind="stable")[:most])
    return key[rows], logits[rows], weights[rows]
