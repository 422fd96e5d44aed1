"""Compiled sums over classes for NumPy arrays; the portable functions are their slow twins."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hokical.core.jit import Kernel
from hokical.core.logits import Logits
from hokical.fitting import ensemble, likelihood
from hokical.fitting.kernels import margin_moments, margin_products


def _worthwhile(kernel: Kernel) -> Callable[..., bool]:
    """Whether a kernel is the faster way to go through the logits."""
    return lambda logits, *_: logits.is_numpy and kernel.worthwhile(logits.work)


@likelihood.column_moments.register(_worthwhile(margin_moments))
def _column_moments(logits: Logits, beta: float) -> Any:
    out = np.empty((3, logits.n_rows))
    margin_moments(logits.block(), logits.top, beta, likelihood.FAR, out)
    return tuple(out)


@ensemble.column_products.register(_worthwhile(margin_products))
def _column_products(logits: Logits, beta: float, plain: Callable[[], Any]) -> Any:
    out = np.empty((3, 3, logits.n_rows))
    margin_products(logits.block(), logits.top, beta, likelihood.FAR, out)
    return out
