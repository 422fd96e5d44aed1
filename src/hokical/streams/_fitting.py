"""Fits on data that do not fit into memory."""

from collections.abc import Iterator
from typing import Any, TypeVar

from hokical._core.groups import count_rows, read_columns, take_rows
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._hoki import Hoki
from hokical.guarantees._row_sketch import Reused
from hokical.io._chunks import block_rows, reblock
from hokical.io._reading import open_source
from hokical.streams._partition import StreamedPartition, check_block

Estimator = TypeVar("Estimator", bound=Calibrator)


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
    """Add the examples of a source to a fitted `Hoki`: equal to one fit on all of them."""
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
        for chunk in reblock(chunks, block_rows(calibrator.n_classes_)):
            block = check_block(chunk, first, calibrator.n_classes_, chunks.path)
            rows = slice(first, first + block.n_rows)
            own = None if columns is None else take_rows(columns, rows)
            yield block.logits, block.labels, block.weights, own
            first = rows.stop
        if columns is not None:
            read_columns(columns, first)  # which raises if there are more

    return calibrator._certify_parts(parts(), reused=reused)
