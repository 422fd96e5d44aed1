"""A fit with a checkpoint that kills its own process after some chunks; run by the tests.

python killed_fit.py METHOD CHECKPOINT OUTPUT CHUNKS_BEFORE_DEATH
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import numpy as np

from hokical.calibrators import make
from hokical.io import _chunks as chunks
from hokical.stability._noise import Gaussian
from hokical.streams import fit, from_chunks

N_CHUNKS, CHUNK_ROWS = 16, 250


def main(method: str, checkpoint: str, output: str, death: str) -> None:
    chunks._KERNEL_BLOCKS, chunks._FLOATS_BESIDE = 1, 1000  # blocks of 261 rows
    given = 0

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        nonlocal given
        for seed in range(N_CHUNKS):
            given += 1
            if given == int(death):
                os.kill(os.getpid(), signal.SIGKILL)
            rng = np.random.default_rng(seed)
            labels = rng.integers(4, size=CHUNK_ROWS)
            yield 3 * (rng.normal(size=(CHUNK_ROWS, 4)) + 2 * np.eye(4)[labels]), labels

    options = {"noise": Gaussian(4.0)} if method == "hoki" else {}
    fit(make(method, **options), from_chunks(batches), checkpoint=checkpoint).save(output)
    print(given)


if __name__ == "__main__":
    main(*sys.argv[1:])
