"""Uniform stability with a gradient, computed again for it.

Recorded, it would keep some 100,000 numbers per row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits
from hokical.integrations.torch.kernels._tracing import is_wrapped
from hokical.stability import _uniform as uniform

#: Numbers per node and rival that are recorded while a block is computed again.
_RECORDED = 32


def is_recorded(logits: Logits, width: float | Tensor) -> bool:
    """Whether autograd, and not `torch.func` or a graph, takes down what is computed."""
    values = logits.values
    if not isinstance(values, Tensor) or logits.is_traced or is_wrapped(values):
        return False
    parts = [x for x in (values, width) if isinstance(x, Tensor)]
    return torch.is_grad_enabled() and any(part.requires_grad for part in parts)


def stability(logits: Logits, width: float | Tensor) -> Tensor:
    """Uniform stability (n,), computed again block by block for the gradient."""
    backend = logits.backend

    def solve(values: Tensor, top: Tensor) -> Tensor:
        return uniform.portable_stability(Logits(values, top, backend), width)

    def work(block: Logits) -> Tensor:
        return checkpoint(solve, block.values, block.top, use_reentrant=False)

    rivals = min(logits.n_columns - 1, uniform.NEAREST)
    return by_blocks(work, logits, _RECORDED * rivals * rivals)
