"""A network's weights as one vector, and stochastic gradient descent on it.

With one vector an update takes a few launches, whatever the number of layers.
Convolutions may use their weights in half precision; updates are always in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatWeights:
    """All parameters of a network, (n,) float32, with their momentum.

    The parameters become views: of `values`, or of a copy in `dtype` for convolutions.

    Parameters
    ----------
    network : nn.Module
    dtype : torch.float32, torch.bfloat16 or torch.float16
        The data type of convolutions.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
        halves = [
            p for m in convolutions for p in m.parameters() if dtype != torch.float32
        ]
        known = {id(p) for p in halves}
        wholes = [p for p in network.parameters() if id(p) not in known]
        self.parameters = [*halves, *wholes]
        self._n_half = sum(p.numel() for p in halves)
        self._count = len(halves)
        self.values = torch.cat([_in_memory_order(p.detach()) for p in self.parameters])
        self.momentum = torch.zeros_like(self.values)
        self._slope = torch.zeros_like(self.values)
        self._half_values = self.values[: self._n_half].to(dtype)
        self._make_views(halves, self._half_values)
        self._make_views(wholes, self.values[self._n_half :])

    def update(
        self,
        gradients: Sequence[Tensor],
        rate: Tensor,
        *,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """One step of SGD with Nesterov momentum; `rate` is a tensor so that graphs
        can read it.
        """
        slope = self._flat(gradients).add_(self.values, alpha=weight_decay)
        torch.add(slope, self.momentum, alpha=momentum, out=self.momentum)
        slope.add_(self.momentum, alpha=momentum)
        self.values.addcmul_(slope, rate, value=-1.0)
        self.refresh()

    def refresh(self) -> None:
        """Copy `values` to the weights in half precision."""
        if self._n_half:
            self._half_values.copy_(self.values[: self._n_half])

    def _flat(self, gradients: Sequence[Tensor]) -> Tensor:
        """Gradients, in the order of `parameters`, as one float32 vector."""
        parts = [_in_memory_order(gradient) for gradient in gradients]
        halves = parts[: self._count]
        wholes = parts[self._count :]
        if halves:
            self._slope[: self._n_half].copy_(torch.cat(halves))
        torch.cat(wholes, out=self._slope[self._n_half :])
        return self._slope

    @staticmethod
    def _make_views(parameters: Sequence[nn.Parameter], flat: Tensor) -> None:
        start = 0
        for parameter in parameters:
            part = flat[start : start + parameter.numel()]
            start += parameter.numel()
            parameter.data = _from_memory_order(part, parameter.shape)


def _in_memory_order(tensor: Tensor) -> Tensor:
    """A flat view of a channels-last kernel; a copy if its memory layout is another."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def _from_memory_order(flat: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return flat.view(shape)
    out, into, height, width = shape
    return flat.view(out, height, width, into).permute(0, 3, 1, 2)
