"""Predictions for every row of a source: chunk by chunk, or into a file that survives a crash."""

import hashlib
import io
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.files import sync
from hokical._core.grouped_logits import with_codes
from hokical._core.types import AnyArray, IntArray
from hokical.calibrators._calibrator import Calibrator
from hokical.io._checkpoint import Journal
from hokical.io._chunks import Chunk
from hokical.io._opening import as_source
from hokical.io._sources import ChunkSource, check_row_count
from hokical.io._writing import check_output
from hokical.rules._predicting import OF_CLASSES, Output
from hokical.streams._partition import report_files, report_rows

#: The results in the folder of a journal.
_VALUES = "values.npy"


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
    _check_what(what)
    calibrator.check_fitted()
    chunks = as_source(source)
    codes = _group_codes(calibrator, chunks, groups)
    return _predict_chunks(calibrator, chunks, what, chunks.chunks(), codes)


def _group_codes(calibrator: Calibrator, source: ChunkSource, groups: Any) -> IntArray | None:
    """Codes (n, columns) of the groups, if the calibrator goes by them."""
    needed = groups is not None and calibrator.rule_.needed_groups is not None
    return calibrator.group_codes(source.read_groups(groups)) if needed else None


def _predict_chunks(
    calibrator: Calibrator,
    source: ChunkSource,
    what: Output,
    chunks: Iterable[Chunk],
    codes: IntArray | None,
    first_row: int = 0,
) -> Iterator[AnyArray]:
    """`predict` for chunks of a source, of which the first begins with a row of this number."""
    for chunk in chunks:
        if chunk.n_rows:
            rows, logits = slice(first_row, first_row + chunk.n_rows), chunk.logits
            with report_files(source), report_rows(first_row):
                if codes is not None:
                    _check_groups(codes, rows.stop)
                    logits = with_codes(logits, codes[rows], calibrator.rule_.needed_groups)
                found = to_host(calibrator.output(what, logits))
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
    complete. Until then the results are beside it, in a folder `NAME.part`, with a note of how many
    rows are done: after a crash, the same call goes on from there, and other data are refused. (An
    iterator must be given from its beginning again; the rows that are done are skipped.)

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import from_arrays, predict_to
    >>> cal = make("uncalibrated").fit(np.eye(3), [0, 1, 2])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.npy"
    >>> predict_to(cal, from_arrays(np.eye(3)), path, what="labels"), np.load(path).tolist()
    (3, [0, 1, 2])
    """
    _check_what(what)
    target = Path(path)
    check_output(target, suffix=".npy")
    rows, folder = as_source(source), target.with_name(target.name + ".part")
    codes = _group_codes(calibrator, rows, groups)
    identity = {"what": what, "calibrator": calibrator.stamp}
    if codes is not None:
        identity["groups"] = hashlib.sha256(np.ascontiguousarray(codes).data).hexdigest()
    with Journal.open(folder, rows, identity, about=_VALUES) as journal:
        done = _write(calibrator, journal, what, codes)
        os.replace(folder / _VALUES, target)
        shutil.rmtree(folder)
    return done


def _check_what(what: Output) -> None:
    if what not in get_args(Output):
        raise ValueError(f"`what` must be one of {list(get_args(Output))}; got {what!r}.")


def _write(calibrator: Calibrator, journal: Journal, what: Output, codes: IntArray | None) -> int:
    """Append to a file, whose header is completed at the end, when the rows have been counted."""
    path, source = journal.folder / _VALUES, journal.source
    dtype = np.dtype({"labels": np.int64, "members": np.bool_}.get(what, np.float64))
    columns = (calibrator.n_classes_,) if what in OF_CLASSES else ()
    header = partial(_header, dtype, columns)
    row_bytes, head = dtype.itemsize * math.prod(columns), len(header(0))
    rows = journal.recall(0)[1]
    path.touch()
    if path.stat().st_size < head + rows * row_bytes:
        rows = 0
    with path.open("r+b") as stream:
        stream.truncate(head + rows * row_bytes)
        stream.seek(0, os.SEEK_END)
        blocks = journal.blocks(rows)
        for found in _predict_chunks(calibrator, source, what, blocks, codes, rows):
            stream.write(np.ascontiguousarray(found, dtype).data)
            rows += len(found)
            sync(stream)  # rows count as done once they are on the disk
            journal.note(0, (), rows, finished=False)
        check_row_count(rows, source.n_rows)
        stream.seek(0)
        stream.write(header(rows))
        sync(stream)
    return rows


def _header(dtype: np.dtype[Any], columns: tuple[int, ...], rows: int) -> bytes:
    """NumPy pads it so that its length does not depend on the number of rows."""
    stream = io.BytesIO()
    about = {"descr": dtype.str, "fortran_order": False, "shape": (rows, *columns)}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()
