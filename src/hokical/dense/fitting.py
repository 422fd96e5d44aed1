"""What `Dense` fits, and the rows it is fitted on."""

from __future__ import annotations

import copy

from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.hoki import Hoki
from hokical.core.arrays import NUMPY, backend_of
from hokical.fitting.partitions import InMemory, Partition
from hokical.io.sources import ChunkSource
from hokical.streams.partition import StreamedPartition


def without_witnesses(calibrator: Calibrator) -> Calibrator:
    """A copy that does not take the positions of its fit for independent examples."""
    own = copy.deepcopy(calibrator)
    own.fit_scores_ = own.neighbours_ = None
    return own


def partition_for(calibrator: BaseCalibrator, source: ChunkSource) -> Partition:
    """The rows of a source, a block at a time; those on a device in one block, as a rule.

    Hoki with a given noise keeps nothing of a block but counts. Other fits keep a sample of the
    logits, or need many passes; what they see is gathered, on the device.
    """
    streamed = StreamedPartition(source)
    on_host = backend_of(source.first_chunk().logits) in (None, NUMPY)
    if on_host or (isinstance(calibrator, Hoki) and calibrator.noise != "auto"):
        return streamed
    return InMemory(streamed.gather(type(calibrator).__name__))
