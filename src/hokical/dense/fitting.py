"""Fitting a calibrator on the positions that count, on the host or where the tensors are."""

from __future__ import annotations

from hokical._tensors import is_tensor
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.hoki import Hoki
from hokical.dense.sources import gathered_rows
from hokical.streams.sources import Source


def fit_source(calibrator: BaseCalibrator, source: Source) -> None:
    """Fit on a source that has labels."""
    if is_tensor(source.first_chunk().logits) and not _streams_tensors(calibrator):
        calibrator.fit(*gathered_rows(source))
    else:
        calibrator.fit(source)


def _streams_tensors(calibrator: BaseCalibrator) -> bool:
    """Whether a fit takes tensors a block at a time.

    Hoki with a given noise keeps nothing of a block but counts. Other fits take a sample of the
    logits along, or go through them often; what they see is gathered, on the device.
    """
    return isinstance(calibrator, Hoki) and calibrator.noise != "auto"
