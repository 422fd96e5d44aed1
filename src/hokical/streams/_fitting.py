"""Fits on data that do not fit into memory: a checkpoint, a progress bar, chunks that come once."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from hokical._core.groups import as_groups, count_rows, read_columns, take_rows
from hokical._core.version import VERSION
from hokical.calibrators._base import BaseCalibrator
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._hoki import Hoki
from hokical.io._checkpoint import Journal
from hokical.io._chunks import block_rows, reblock
from hokical.io._opening import as_source
from hokical.io._sources import ChunkSource, spool_chunks
from hokical.streams._partition import StreamedPartition, check_block, report_files

Estimator = TypeVar("Estimator", bound=BaseCalibrator)
Location = str | os.PathLike[str]


def fit(
    calibrator: Estimator,
    source: Any,
    *,
    checkpoint: Location | None = None,
    every: float = 0.0,
    spool: bool = False,
    progress: bool | None = None,
    groups: Any = None,
) -> Estimator:
    """Fit a calibrator on a source, and return it; with a checkpoint, a killed fit can go on.

    Parameters
    ----------
    calibrator : estimator
        Of any method; the same object is returned, fitted.
    source : ChunkSource, path, pyarrow Dataset or Table, or chunks
        Chunks are (logits, labels) or (logits, labels, sample_weight), in a sequence, an iterator,
        or a function that returns one. See `from_arrays`, `from_chunks` and `open_source`.
    checkpoint : folder, optional
        If it has a checkpoint of the same fit, the fit goes on from there and ends with the same
        numbers, to the bit; one of another fit (other parameters, other data) is refused. Files
        are compared by size and time, and rows of functions and iterators by their hashes, for
        which they are read once more. One process can use it at a time. Delete it in the end.
    every : float
        Seconds between two writes of the checkpoint. 0 writes after every block of about 30 MB, so
        at most one block is lost (all for methods that gather).
    spool : bool
        Keep the chunks of an iterator in a temporary file, for methods that need several passes.
        Needs as much disk as the chunks have bytes.
    progress : bool, optional
        Show a progress bar for every pass; None shows one on a terminal once a second has passed.
    groups : array-like of shape (n,), or several columns, or names of columns, optional
        For the default: those of all rows, in order, see `AutoCalibrator.fit`; or, of Parquet files
        and datasets, the column's name, or several names. Of examples that are gone through in
        passes, a random part tells about groups.

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
    >>> round(fit(make("temps"), batches(), spool=True).temperature_)
    2
    """
    chunks = as_source(source)
    if checkpoint is not None and spool:
        raise ValueError(
            "`checkpoint` and `spool` exclude each other: what was spooled is lost with the "
            "process. Write the chunks to files and give those."
        )
    spooled = spool_chunks(chunks) if spool and not chunks.repeatable else nullcontext(chunks)
    with spooled as kept:
        groups = chunks.read_groups(groups)
        noted = (
            nullcontext()
            if checkpoint is None
            else _journal(calibrator, kept, checkpoint, every, groups)
        )
        with noted as journal, report_files(kept):
            partition = StreamedPartition(kept, journal=journal, progress=progress)
            partition.groups = groups
            if journal is not None:
                journal.compare_rows()
            calibrator.fit_partition(partition)
    if not chunks.independent:  # they prove nothing about new examples
        calibrator.forget_examples()
    return calibrator


def partial_fit(calibrator: Hoki, source: Any, *, progress: bool | None = None) -> Hoki:
    """Add the examples of a source to a fitted `Hoki`: equal to one fit on all of them."""
    chunks = as_source(source)
    calibrator.partial_fit_partition(StreamedPartition(chunks, progress=progress))
    if not chunks.independent:
        calibrator.forget_examples()
    return calibrator


def certify(calibrator: Calibrator, source: Any, *, groups: Any = None) -> Calibrator:
    """`Calibrator.certify` with the examples of a source, a chunk at a time.

    Of each example four numbers are kept. `groups` are those of all rows, or columns, as in `fit`.

    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import certify, from_arrays
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=900)
    >>> logits = rng.normal(size=(900, 3)) + 2 * np.eye(3)[labels]
    >>> cal = make("temps").fit(logits[:300], labels[:300])
    >>> cal = certify(cal, from_arrays(logits[300:], labels[300:]))
    >>> cal.predict_set(logits, coverage=0.9).sizes.shape
    (900,)
    """
    chunks = as_source(source)
    if not chunks.independent:
        raise ValueError(
            "positions of the same items are not independent, and certify nothing. Use "
            "`Dense.certify`, or `max_positions_per_item=1`."
        )

    groups = chunks.read_groups(groups)
    columns = None if groups is None else read_columns(groups, count_rows(groups))

    def parts() -> Iterator[tuple[Any, ...]]:
        first = 0
        for chunk in reblock(chunks.chunks(), block_rows(calibrator.n_classes_)):
            with report_files(chunks):
                block = check_block(chunk, first, calibrator.n_classes_)
            rows = slice(first, first + block.n_rows)
            own = None if columns is None else take_rows(columns, rows)
            yield block.logits, block.labels, block.weights, own
            first = rows.stop
        if columns is not None:
            read_columns(columns, first)  # which raises if there are more

    return calibrator.certify_parts(parts())


def _journal(
    calibrator: BaseCalibrator, source: ChunkSource, folder: Location, every: float, groups: Any
) -> AbstractContextManager[Journal]:
    if not every >= 0.0:
        raise ValueError(f"`every` must be a number of seconds, 0 or more; got {every!r}.")
    parameters = calibrator.get_params(deep=False)
    seed = parameters.get("random_state")
    drawn = calibrator.has_seed and parameters.get("draws", 0) is not None
    if drawn and not isinstance(seed, (int, np.integer)):
        raise ValueError(
            "`random_state` must be an integer for a fit with a checkpoint, so that the same noise "
            f"is drawn again; got {seed!r}."
        )
    identity = {
        "calibrator": type(calibrator).__name__,
        "parameters": {name: repr(value) for name, value in sorted(parameters.items())},
        "version": VERSION,
    }
    if groups is not None:
        names = repr(as_groups(groups, count_rows(groups)))
        identity["groups"] = hashlib.sha256(names.encode()).hexdigest()
    return Journal.open(folder, source, identity, every=every)
