"""Functions of logits that are computed again for the gradient, block by block.

Recorded, uniform stability would keep some 100,000 numbers per row, and the sums behind Gaussian
stability as many arrays of the size of the logits as there are degrees.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits
from hokical.integrations.torch.kernels._tracing import is_wrapped

Number = float | Tensor


def is_recorded(logits: Logits, number: Number) -> bool:
    """Whether autograd, and not `torch.func` or a graph, records what is computed."""
    values = logits.values
    if not isinstance(values, Tensor) or logits.is_traced or is_wrapped(values):
        return False
    parts = [x for x in (values, number) if isinstance(x, Tensor)]
    return torch.is_grad_enabled() and any(part.requires_grad for part in parts)


def recompute(
    function: Callable[[Logits, Number], Tensor], logits: Logits, number: Number, per_row: int
) -> Tensor:
    """`function(logits, number)`, which records so many numbers per row while it is computed."""
    backend = logits.backend

    def solve(values: Tensor, top: Tensor) -> Tensor:
        return function(Logits(values, top, backend), number)

    def work(block: Logits) -> Tensor:
        return checkpoint(solve, block.values, block.top, use_reentrant=False)

    return by_blocks(work, logits, per_row)
