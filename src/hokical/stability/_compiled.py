"""Compiled forms for NumPy arrays; the portable functions are their reference implementations."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hokical._core.blocks import by_blocks, rows_per_block
from hokical._core.jit import has_compiler, has_kernels
from hokical._core.logits import Logits
from hokical._core.parallel import for_row_blocks
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.stability import _compiled_kernels as kernels
from hokical.stability import _gaussian as gaussian
from hokical.stability import _gumbel as gumbel
from hokical.stability import _sampled as sampled
from hokical.stability import _uniform as uniform
from hokical.stability._sampled import Draws, below_top
from hokical.stability._softmax_kernels import softmax_of_rows, softmax_of_top
from hokical.stability._tables import REACH, Quadrature

#: Noisy logits from which counting survivals is compiled. Both ways count the same.
_MANY_COMPARISONS = 30_000_000
#: Rows at a time: few enough to stay in cache while a tile of noise is used on all of them.
_SAMPLED_ROWS = 128


def _every_class_has_a_column(logits: Logits, *_: Any) -> bool:
    return has_kernels(logits) and logits.tail is None


@gaussian.log_products.register(has_kernels)
def _log_products(logits: Logits, scale: float, rule: Quadrature) -> FloatArray:
    out = np.empty((logits.n_rows, rule.nodes.size))
    step = 2.0 / (REACH * scale)
    kernels.gaussian_log_products(logits.block(), logits.top, step, rule.series, out)
    return out


@gaussian.chances_from_powers.register(has_kernels)
def _chances_from_powers(logits: Logits, scale: float, powers: FloatArray) -> FloatArray:
    out = np.empty((logits.n_rows, logits.n_columns))
    kernels.chances_of_powers(logits.block(), logits.top, scale, REACH, powers, out)
    return out


@gumbel.stability.register(_every_class_has_a_column)
def _gumbel_stability(logits: Logits, scale: float) -> Any:
    def work(block: Logits) -> FloatArray:
        out = np.empty(block.n_rows)
        softmax_of_top(block.block(), block.top, 1.0 / scale, out)
        return out

    return by_blocks(work, logits)


@gumbel.distribution.register(_every_class_has_a_column)
def _gumbel_distribution(logits: Logits, scale: float) -> FloatArray:
    out = np.empty((logits.n_rows, logits.n_columns))

    def fill(rows: slice) -> None:
        _fill_distribution(logits.take(rows), scale, 0.0, out[rows])

    for_row_blocks(fill, logits.n_rows, rows_per_block(logits.n_columns))
    return out


@gumbel.fill_distribution.register(_every_class_has_a_column)
def _fill_distribution(logits: Logits, scale: float, least: float, out: AnyArray) -> IntArray:
    tied = np.empty(logits.n_rows, np.bool_)
    softmax_of_rows(logits.block(), logits.top, 1.0 / scale, least, out, tied)
    return np.flatnonzero(tied)


@uniform.stability.register(has_kernels)
def _uniform_stability(logits: Logits, width: float) -> Any:
    def work(block: Logits) -> FloatArray:
        out = np.empty(block.n_rows)
        kernels.uniform_stability(block.block(), block.top, 1.0 / width, out)
        return np.clip(out, 0.0, 1.0)

    return by_blocks(work, logits, 4 * logits.n_columns)


@uniform.distribution.register(has_kernels)
def _uniform_distribution(logits: Logits, width: float) -> Any:
    def work(block: Logits) -> FloatArray:
        margins = np.minimum(block.margins / width, 1.0)
        order = np.argsort(margins, axis=1)
        shares = kernels.uniform_shares(np.take_along_axis(margins, order, axis=1))
        out = np.empty_like(shares)
        np.put_along_axis(out, order, shares, axis=1)
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    return by_blocks(work, logits, 4 * logits.n_columns)


def _sampled_usable(logits: Logits, draws: Draws) -> bool:
    many = logits.is_numpy and logits.size * draws.n_draws >= _MANY_COMPARISONS
    return many and logits.tail is None and has_compiler()


@sampled.survivals.register(_sampled_usable)
def _survivals(logits: Logits, draws: Draws) -> IntArray:
    tiles, extremes = _noise_tiles(draws, logits.take(slice(0, 1)).block().dtype)

    def work(block: Logits) -> IntArray:
        out = np.empty(block.n_rows, np.int64)
        near = np.ascontiguousarray(below_top(block))
        kernels.count_survivals(near, block.labels, tiles, draws.n_draws, extremes, out)
        return out

    per_row = max(8 * logits.n_columns, logits.backend.block_size // _SAMPLED_ROWS)
    counts: IntArray = by_blocks(work, logits, per_row)
    return counts


#: The noise as the kernel reads it, by type, while the draws are in use.
_tiles: WeakKeyDictionary[Draws, dict[str, tuple[NDArray[Any], ...]]] = WeakKeyDictionary()


def _noise_tiles(draws: Draws, dtype: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
    """The noise (tiles, classes, TILE), draws innermost, padded with zeros; and its extremes."""
    known = _tiles.setdefault(draws, {})
    if dtype.name not in known:
        noise = draws.values.astype(dtype)
        n_tiles = -(-draws.n_draws // kernels.TILE)
        padded = np.zeros((n_tiles * kernels.TILE, draws.n_classes), dtype)
        padded[: draws.n_draws] = noise
        tiles = padded.reshape(n_tiles, kernels.TILE, draws.n_classes).transpose(0, 2, 1)
        extremes = np.stack([noise.max(axis=0), noise.min(axis=0)])
        known[dtype.name] = (np.ascontiguousarray(tiles), extremes)
    return known[dtype.name]
