"""`fit` with what a long fit wants: a checkpoint, a progress bar, chunks that come only once."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import hokical
from hokical.streams.blocks import StreamBlocks
from hokical.streams.checkpoint import FolderJournal, source_identity
from hokical.streams.dispatch import as_source
from hokical.streams.sources import Source, from_chunks
from hokical.streams.spooling import spooled
from hokical.streams.witness import WitnessedSource

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator

Kind = TypeVar("Kind", bound="BaseCalibrator")


def fit(
    calibrator: Kind,
    source: Any,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 0.0,
    spool: bool = False,
    progress: bool | None = None,
) -> Kind:
    """Fit a calibrator on a source, so that a fit that is killed can go on.

    Parameters
    ----------
    calibrator : BaseCalibrator
    source : Source, path, or chunks
        As `calibrator.fit` takes them, or a list of chunks.
    checkpoint : path, optional
        A folder for what has been summed up. If it has a checkpoint of the same fit, the fit goes
        on from there and ends with the same numbers, to the bit; one of another fit (other
        parameters, other data) is refused. Files are told by size and time; the rows of functions
        and iterators are compared, for which a fit that goes on reads them once more. Delete the
        folder when the fit is done.
    every : float
        Seconds between two writes of the checkpoint. 0 writes after every block of about 30 MB, so
        at most one block is lost (a pass for `profile`, all for methods that gather).
    spool : bool
        Keep the chunks of an iterator in a temporary file, so that methods that go through them
        several times can. Needs as much disk as the chunks have bytes.
    progress : bool, optional
        Show a progress bar for every pass; None shows one on a terminal once a second has passed.

    Returns
    -------
    calibrator : the same, fitted

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
    chunks = _as_source(source)
    with _kept(chunks, spool) as kept:
        journal = _journal(calibrator, kept, checkpoint, every, spool)
        rows = kept if journal is None else _witnessed(kept, journal)
        calibrator.fit_blocks(StreamBlocks(rows, journal=journal, progress=progress))
    return calibrator


def _witnessed(source: Source, journal: FolderJournal) -> Source:
    """The source, compared with what is known of the rows that the checkpoint is made of."""
    if source.identified:
        return source
    rows = WitnessedSource(source, journal.rows_file)
    if journal.begun:
        rows.check()
    return rows


def _as_source(data: Any) -> Source:
    source = as_source(data)
    return from_chunks(data) if source is None else source


def _kept(source: Source, spool: bool) -> AbstractContextManager[Source]:
    return spooled(source) if spool and not source.repeatable else nullcontext(source)


def _journal(
    calibrator: BaseCalibrator,
    source: Source,
    folder: str | os.PathLike[str] | None,
    every: float,
    spool: bool,
) -> FolderJournal | None:
    if folder is None:
        return None
    if spool:
        raise ValueError(
            "`checkpoint` and `spool` exclude each other: what was spooled is lost with the "
            "process. Write the chunks to files and give those."
        )
    if not every >= 0.0:
        raise ValueError(f"`every` must be a number of seconds, 0 or more; got {every!r}.")
    parameters = calibrator.get_params(deep=False)
    _check_seed(parameters)
    identity = {
        "calibrator": type(calibrator).__name__,
        "parameters": {name: repr(value) for name, value in sorted(parameters.items())},
        "version": hokical.__version__,
    }
    return FolderJournal(folder, identity | source_identity(source), every=every)


def _check_seed(parameters: dict[str, Any]) -> None:
    """Draws that are other ones after a restart would not fit those before."""
    seed = parameters.get("random_state", 0)
    drawn = parameters.get("draws", 0) is not None
    if drawn and not isinstance(seed, (int, np.integer)):
        raise ValueError(
            "`random_state` must be an integer for a fit with a checkpoint, so that the same noise "
            f"is drawn again; got {seed!r}."
        )
