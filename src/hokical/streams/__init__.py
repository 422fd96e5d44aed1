"""Data that do not fit into memory: a chunk at a time, from files, iterators or a cluster.

`fit`, `predict`, `predict_confidence` and `predict_proba` of every calibrator take a source made
here (and paths, iterators of chunks, Zarr and Dask arrays as they are). `fit` here adds a
checkpoint from which a killed fit goes on, and `predict_to` writes results that do not fit into
memory either.

>>> import numpy as np
>>> from hokical import Hoki
>>> from hokical.noise import Gaussian
>>> from hokical.streams import from_chunks
>>> def batches():
...     for seed in range(4):
...         rng = np.random.default_rng(seed)
...         labels = rng.integers(3, size=500)
...         yield 3 * (rng.normal(size=(500, 3)) + 2 * np.eye(3)[labels]), labels
>>> cal = Hoki(noise=Gaussian(4.0)).fit(from_chunks(batches))
>>> [chunk.shape for chunk in cal.predict_confidence(from_chunks(batches))]
[(500,), (500,), (500,), (500,)]
"""

from hokical.streams.checkpoint import CheckpointError
from hokical.streams.evaluation import evaluate
from hokical.streams.fitting import fit
from hokical.streams.opening import open_source
from hokical.streams.predicting import predict_to
from hokical.streams.sources import Source, from_arrays, from_chunks

__all__ = [
    "CheckpointError",
    "Source",
    "evaluate",
    "fit",
    "from_arrays",
    "from_chunks",
    "open_source",
    "predict_to",
]
