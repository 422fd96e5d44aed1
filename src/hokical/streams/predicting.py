"""Results of a whole source into a file that may be larger than memory, and resumes if killed."""

from __future__ import annotations

import glob
import io
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hokical.files.writing import check_output
from hokical.storage import write_text_atomically
from hokical.streams.checkpoint import CheckpointError, remove_half_written, source_identity
from hokical.streams.dispatch import as_source, predicted_chunks
from hokical.streams.sources import Source, from_chunks
from hokical.streams.stamps import calibrator_stamp
from hokical.streams.witness import WitnessedSource

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator

What = Literal["confidence", "labels", "proba"]
_METHODS = {"confidence": "predict_confidence", "labels": "predict", "proba": "predict_proba"}


def predict_to(
    calibrator: BaseCalibrator,
    source: Any,
    path: str | os.PathLike[str],
    *,
    what: What = "confidence",
) -> int:
    """Write what a calibrator predicts for every row of a source to a `.npy` file, in order.

    The file appears under its name when it is complete. Until then the results are beside it, in
    `NAME.part`, with a note of how many rows are done: after a crash, the same call goes on from
    there, and other data are refused. (A one-shot iterator must be given from its beginning again;
    its first rows are skipped.)

    Parameters
    ----------
    calibrator : a fitted BaseCalibrator
    source : Source, path, or chunks
    path : path that ends in .npy
    what : {"confidence", "labels", "proba"}
        Numbers (n,), class indices (n,), or probabilities (n, classes).

    Returns
    -------
    n_rows : how many rows were written in all

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import from_arrays, predict_to
    >>> rng = np.random.default_rng(0)
    >>> logits, labels = rng.normal(size=(1000, 3)), rng.integers(3, size=1000)
    >>> cal = make("uncalibrated").fit(logits, labels)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "confidence.npy"
    >>> predict_to(cal, from_arrays(logits), path)
    1000
    >>> bool((np.load(path) == cal.predict_confidence(logits)).all())
    True
    """
    check_is_fitted(calibrator, "n_classes_")
    if what not in get_args(What):
        raise ValueError(f"`what` must be one of {list(get_args(What))}; got {what!r}.")
    target = Path(path)
    check_output(target, suffix=".npy")
    known = as_source(source)
    rows = from_chunks(source) if known is None else known
    return _Writer(calibrator, rows, target, what).run()


class _Writer:
    """Appends to a file whose header is put right at the end, when the rows have been counted."""

    def __init__(
        self, calibrator: BaseCalibrator, source: Source, target: Path, what: What
    ) -> None:
        self.calibrator, self.source, self.target, self.what = calibrator, source, target, what
        self.hashes = target.with_name(target.name + ".part.rows")
        self.part = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        dtype = np.int64 if what == "labels" else np.float64
        self.dtype = np.dtype(dtype)
        self.columns = (calibrator.n_classes_,) if what == "proba" else ()
        self.identity = {
            "what": what,
            "calibrator": calibrator_stamp(calibrator),
            **source_identity(source),
        }

    def run(self) -> int:
        rows = self._rows_done()
        if not rows:  # a note that outlived its file must not vouch for a new one
            self._forget()
        with self.part.open("r+b" if rows else "wb") as stream:
            stream.truncate(self._position(rows))
            stream.seek(self._position(rows))
            method = _METHODS[self.what]
            for found in predicted_chunks(self.calibrator, method, self._compared(), rows):
                stream.write(np.ascontiguousarray(found, self.dtype).data)
                rows += len(found)
                self._keep(stream, rows)
            self._check_count(rows)
            stream.seek(0)
            stream.write(self._header(rows))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(self.part, self.target)
        self._forget()
        return rows

    def _forget(self) -> None:
        self.note.unlink(missing_ok=True)
        self.hashes.unlink(missing_ok=True)
        remove_half_written(self.note.parent, glob.escape(self.note.name))

    def _compared(self) -> Source:
        """Rows that no file vouches for, compared with those of the earlier call."""
        return self.source if self.source.identified else WitnessedSource(self.source, self.hashes)

    def _rows_done(self) -> int:
        """Rows of an earlier call that was cut short, if it was the same one."""
        if not (self.part.exists() and self.note.exists()):
            return 0
        rows, identity = self._noted()
        if identity != json.loads(json.dumps(self.identity)):
            raise CheckpointError(
                f"{self.part} was begun with another calibrator or other data. Delete it to start "
                "afresh, or choose another `path`."
            )
        whole = self.part.stat().st_size >= self._position(rows)
        return rows if whole else 0

    def _noted(self) -> tuple[int, Any]:
        """Rows and identity of the earlier call."""
        try:
            noted = json.loads(self.note.read_text(encoding="utf-8"))
            return int(noted["rows"]), noted["identity"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.note}, which says how far {self.part} is, cannot be read: {error!r}. "
                "Delete both to start afresh."
            ) from error

    def _keep(self, stream: IO[bytes], rows: int) -> None:
        """Rows count as done once they are on the disk."""
        stream.flush()
        os.fsync(stream.fileno())
        noted = {"rows": rows, "identity": self.identity}
        write_text_atomically(self.note, json.dumps(noted))

    def _check_count(self, rows: int) -> None:
        if rows == 0:
            raise ValueError("a source must have at least one row; got none.")
        if self.source.n_rows not in (None, rows):
            raise ValueError(
                f"the source said that it has {self.source.n_rows} rows, and gave {rows}."
            )

    def _position(self, rows: int) -> int:
        return len(self._header(rows)) + rows * self.dtype.itemsize * int(np.prod(self.columns))

    def _header(self, rows: int) -> bytes:
        """NumPy pads it so that its length does not depend on the number of rows."""
        stream = io.BytesIO()
        about = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, *self.columns)}
        np.lib.format.write_array_header_1_0(stream, about)
        return stream.getvalue()
