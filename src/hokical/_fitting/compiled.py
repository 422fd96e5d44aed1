"""Compiled sums over classes for NumPy arrays; the portable functions are their reference implementations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical._fitting import ensemble, floor, likelihood, structured_blocks
from hokical._fitting.kernels import floor_rows, margin_moments, margin_products
from hokical._fitting.structured_kernels import shape_rows


@likelihood.column_moments.register(has_kernels)
def _column_moments(logits: Logits, beta: float) -> Any:
    out = np.empty((3, logits.n_rows))
    margin_moments(logits.block(), logits.top, beta, likelihood.FAR, out)
    return tuple(out)


@ensemble.column_products.register(has_kernels)
def _column_products(logits: Logits, beta: float, plain: Callable[[], Any]) -> Any:
    out = np.empty((3, 3, logits.n_rows))
    margin_products(logits.block(), logits.top, beta, likelihood.FAR, out)
    return out


@floor.floored_values.register(has_kernels)
def _floored_values(logits: Logits, floor: float) -> FloatArray:
    out = np.empty((logits.n_rows, logits.n_classes))
    floor_rows(logits.block(), logits.top, floor, likelihood.FAR, out)
    return out


@structured_blocks.make_features.register(lambda logits, _, every: every and has_kernels(logits))
def _make_features(logits: Logits, temperature: float, _: bool) -> tuple[FloatArray, FloatArray]:
    z = np.empty((logits.n_rows, logits.n_classes))
    shapes = np.empty((3, *z.shape))
    shape_rows(logits.block(), logits.top, logits.labels, 1.0 / (3.0 * temperature), z, shapes)
    return z, shapes.reshape(3, -1)
