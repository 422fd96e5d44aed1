"""Modules whose numbers keep their precision."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class FixedPrecision(nn.Module):
    """A module whose numbers go to other devices, and never to another dtype."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to other devices, and never to another dtype."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]
