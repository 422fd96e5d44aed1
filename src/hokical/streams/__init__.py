"""Data that do not fit into memory: a chunk at a time, from files, tables, iterators or functions.

Arrays go to the methods of a calibrator, Dask's included. Everything else goes through here: each
function takes a source, which is what `open_source` gives or takes. So does
`hokical.evaluate`.
"""

from hokical.io._chunks import ChunkSource as ChunkSource
from hokical.io._reading import open_source
from hokical.streams._passes import certify, estimate_shift, fit, partial_fit, predict, predict_to

__all__ = [
    "certify", "estimate_shift", "fit", "open_source", "partial_fit", "predict", "predict_to",
]  # fmt: skip
