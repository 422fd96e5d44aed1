"""Predictions for every row of a source: chunk by chunk, or into a file that survives a crash."""

import glob
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.files import remove_leftovers, sync, write_text_atomically
from hokical._core.types import AnyArray
from hokical.calibrators._calibrator import Calibrator
from hokical.io._checkpoint import CheckpointError, WitnessedSource, hold, source_identity
from hokical.io._opening import as_source
from hokical.io._sources import ChunkSource, check_row_count
from hokical.io._writing import check_output
from hokical.rules._predicting import Output
from hokical.streams._partition import report_files, report_rows


def predict(
    calibrator: Calibrator, source: Any, *, what: Output = "confidence"
) -> Iterator[AnyArray]:
    """What a calibrator predicts for a source: an array for every chunk, in order.

    `source` is as in `fit`, but logits alone are enough. `what` is "confidence" (rows,), "labels"
    (rows,) or "proba" (rows, classes).

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
    return predict_chunks(calibrator, as_source(source), what)


def predict_chunks(
    calibrator: Calibrator, source: ChunkSource, what: Output, start: int = 0
) -> Iterator[AnyArray]:
    """`predict` for the chunks of a source from row `start` on."""
    for chunk in source.chunks(start):
        if chunk.n_rows:
            with report_files(source), report_rows(start):
                found = to_host(calibrator.output(what, chunk.logits))
            yield found
            start += chunk.n_rows


def predict_to(
    calibrator: Calibrator,
    source: Any,
    path: str | os.PathLike[str],
    *,
    what: Output = "confidence",
) -> int:
    """Write predictions for all rows of a source to a `.npy` file, in order; return their number.

    `source` and `what` are as in `predict`. The file appears under its name when it is complete.
    Until then the results are beside it, in `NAME.part`, with a note of how many rows are done:
    after a crash, the same call goes on from there, and other data are refused. (An iterator must
    be given from its beginning again; the rows that are done are skipped.)

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
    with hold(target, target.with_name(target.name + ".part.lock")):
        return _Writer(calibrator, as_source(source), target, what).run()


def _check_what(what: Output) -> None:
    if what not in get_args(Output):
        raise ValueError(f"`what` must be one of {list(get_args(Output))}; got {what!r}.")


class _Writer:
    """Appends to a file, whose header is completed at the end, when the rows have been counted."""

    def __init__(
        self, calibrator: Calibrator, source: ChunkSource, target: Path, what: Output
    ) -> None:
        self.calibrator, self.source, self.target, self.what = calibrator, source, target, what
        self.part, self.note, self.hashes = (
            target.with_name(target.name + end) for end in (".part", ".part.json", ".part.rows")
        )
        self.dtype = np.dtype(np.int64 if what == "labels" else np.float64)
        about = {"what": what, "calibrator": calibrator.stamp, **source_identity(source)}
        self.identity = json.loads(json.dumps(about))
        self.columns = (calibrator.n_classes_,) if what == "proba" else ()

    def run(self) -> int:
        rows = self._rows_done()
        if not rows:  # a note that outlived its file says nothing about a new one
            self._remove_notes()
        source = self.source
        if not source.identified:  # by no file: compared with the rows of the earlier call
            source = WitnessedSource(source, self.hashes)
        with self.part.open("r+b" if rows else "wb") as stream:
            stream.truncate(self._position(rows))
            stream.seek(self._position(rows))
            for found in predict_chunks(self.calibrator, source, self.what, rows):
                stream.write(np.ascontiguousarray(found, self.dtype).data)
                rows += len(found)
                sync(stream)  # rows count as done once they are on the disk
                done = {"rows": rows, "identity": self.identity}
                write_text_atomically(self.note, json.dumps(done))
            check_row_count(rows, self.source.n_rows)
            stream.seek(0)
            stream.write(self._header(rows))
            sync(stream)
        os.replace(self.part, self.target)
        self._remove_notes()
        return rows

    def _remove_notes(self) -> None:
        self.note.unlink(missing_ok=True)
        self.hashes.unlink(missing_ok=True)
        remove_leftovers(self.note.parent, glob.escape(self.note.name))

    def _rows_done(self) -> int:
        """Rows of an earlier call that was cut short, if it was the same one."""
        if not (self.part.exists() and self.note.exists()):
            return 0
        try:
            noted = json.loads(self.note.read_text(encoding="utf-8"))
            rows, same = int(noted["rows"]), noted["identity"] == self.identity
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.note}, which says how far {self.part} is, cannot be read: {error!r}. "
                "Delete both to start over."
            ) from error
        if not same:
            raise CheckpointError(
                f"{self.part} was started with another calibrator or other data. Delete it to "
                "start over, or choose another `path`."
            )
        return rows if self.part.stat().st_size >= self._position(rows) else 0

    def _position(self, rows: int) -> int:
        return len(self._header(rows)) + rows * self.dtype.itemsize * int(np.prod(self.columns))

    def _header(self, rows: int) -> bytes:
        """NumPy pads it so that its length does not depend on the number of rows."""
        stream = io.BytesIO()
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, *self.columns)}
        np.lib.format.write_array_header_1_0(stream, about)
        return stream.getvalue()
