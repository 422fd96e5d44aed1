"""Predictions for every row of a source: chunk by chunk, or into a file."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import check_choice
from hokical._core.files import replace_file
from hokical._core.grouped_logits import with_codes
from hokical._core.types import AnyArray, IntArray
from hokical.calibrators._calibrator import Calibrator
from hokical.io._chunks import ChunkSource, check_row_count
from hokical.io._errors import count_from, report_file
from hokical.io._reading import open_source
from hokical.io._writing import check_output
from hokical.rules._predicting import OF_CLASSES, Output


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
            logits: Any = chunk.logits
            with report_file(source.path, count_from(first_row)):
                if codes is not None:
                    _check_groups(codes, rows.stop)
                    logits = with_codes(logits, codes[rows], calibrator.rule_.needed_groups)
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
