"""Data that do not fit into memory: a chunk at a time, from files, iterators or functions.

Arrays go to the methods of a calibrator, Dask's included. Everything else goes through here: `fit`,
`predict`, `predict_to` for results that do not fit into memory either, and `evaluate`.
"""

from hokical.io._opening import open_source
from hokical.io._sources import ChunkSource, from_arrays, from_chunks
from hokical.streams._evaluation import evaluate
from hokical.streams._fitting import certify, fit, partial_fit
from hokical.streams._parts import PartJob, PartResult, PartTask, apply_parts, plan_parts
from hokical.streams._predicting import predict, predict_to
from hokical.streams._shift import estimate_shift

__all__ = [
    "ChunkSource", "PartJob", "PartResult", "PartTask", "apply_parts",
    "certify", "estimate_shift", "evaluate", "fit", "from_arrays", "from_chunks", "open_source",
    "partial_fit", "plan_parts", "predict", "predict_to",
]  # fmt: skip
