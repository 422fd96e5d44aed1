"""Sampled stability, the paper's: the share of M fixed noise draws that keep the label.

The same draws serve every example, at design time and at run time. They are described by a seed and
a shape, and drawn again, bit for bit the same, wherever they are needed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical import _portable
from hokical.logits import Logits, rows_per_block
from hokical.noise import Noise
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Below this many (row, draw, class) triples the plain loop ends before a compiler is imported.
_COMPILE_FROM = 30_000_000


@dataclass(frozen=True)
class Draws:
    """M noise vectors: who they are is (noise, seed, n_draws, n_classes)."""

    noise: Noise
    seed: int
    n_draws: int
    n_classes: int

    @cached_property
    def values(self) -> FloatArray:
        """The noise, (n_draws, n_classes) float64, without its shift, which moves no label."""
        centred = type(self.noise).of_width(self.noise.width)
        shape = (self.n_draws, self.n_classes)
        return centred.from_uniform(_portable.uniform_draws(self.seed, shape))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the draws are made from, not the draws."""
        return type(self), (self.noise, self.seed, self.n_draws, self.n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Seed and number, with the SHA-256 of the draws to prove that they come out the same."""
        return {"seed": self.seed, "n_draws": self.n_draws, "sha256": self._fingerprint()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], noise: Noise, n_classes: int) -> Draws:
        """Draw again what `to_dict` described, or refuse."""
        draws = cls(noise, int(stored["seed"]), int(stored["n_draws"]), n_classes)
        if draws._fingerprint() != stored["sha256"]:
            raise ValueError("the noise re-drawn from the seed is not the noise of the fit")
        return draws

    def _fingerprint(self) -> str:
        return hashlib.sha256(self.values.astype("<f8").tobytes()).hexdigest()


@singledispatch
def survivals(logits: Logits, draws: Draws) -> IntArray:
    """How many of the draws keep the label of each row, (n,) integers in [0, M].

    Logits are taken relative to their row's top, and the sum logit + noise in float64 for float64
    logits, else in float32.
    """
    logits = logits.with_every_class("draws", "Use exact stability, `draws=None`")
    if logits.n_rows * draws.values.size < _COMPILE_FROM:
        return plain_survivals(logits, draws)
    return compiled_survivals(logits, draws)


def plain_survivals(logits: Logits, draws: Draws) -> IntArray:
    """The obvious loop over draws; the compiled kernel counts exactly the same."""
    out = np.zeros(logits.n_rows, np.int64)
    for rows in logits.row_blocks():
        block = _below_top(logits, rows)
        labels = logits.labels[rows]
        for vector in draws.values.astype(block.dtype):
            out[rows] += np.argmax(block + vector, axis=1) == labels
    return out


def compiled_survivals(logits: Logits, draws: Draws) -> IntArray:
    """The same through the compiled kernel."""
    from hokical.stability.kernels import TILE, count_survivals

    dtype = logits.block(slice(0, 1)).dtype
    noise = draws.values.astype(dtype)
    tiles = _tiles(noise, TILE)
    highest, lowest = noise.max(axis=0), noise.min(axis=0)
    labels = logits.labels
    out = np.empty(logits.n_rows, np.int64)

    def work(rows: slice) -> None:
        block = _below_top(logits, rows)
        count_survivals(block, labels[rows], tiles, draws.n_draws, highest, lowest, out[rows])

    # Few enough rows for their logits to stay in cache while a tile of noise is used on all.
    for_row_blocks(work, logits.n_rows, min(128, rows_per_block(8 * logits.n_classes)))
    return out


def _below_top(logits: Logits, rows: slice) -> NDArray[Any]:
    """Logits minus their row's top, (rows, classes), so that a constant per row changes nothing."""
    return -logits.margins(rows).astype(logits.block(slice(0, 1)).dtype)


def _tiles(noise: NDArray[Any], size: int) -> NDArray[Any]:
    """(draws, classes) as (tiles, classes, size), the draws innermost, padded with zeros."""
    n_draws, n_classes = noise.shape
    n_tiles = -(-n_draws // size)
    padded = np.zeros((n_tiles * size, n_classes), noise.dtype)
    padded[:n_draws] = noise
    return np.ascontiguousarray(padded.reshape(n_tiles, size, n_classes).transpose(0, 2, 1))
