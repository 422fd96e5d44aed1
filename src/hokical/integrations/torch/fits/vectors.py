"""Sums over examples that vector scaling is fitted from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._vector_sums import (
    Shape,
    Sums,
    VectorPart,
    log_sums,
    vector_part_of,
)
from hokical.integrations.torch.fits.likelihood import per_row
from hokical.integrations.torch.kernels.rows import CHUNK_SIZE
from hokical.integrations.torch.tensors import TensorLogits, to_device, to_host
from hokical.likelihood import Examples

FloatArray = NDArray[np.float64]

#: Temporaries of (rows, classes) that are alive at a time.
_TEMPORARIES = 8


class _Block(NamedTuple):
    """Some rows: features x and probabilities (rows, classes), log losses and weights (rows,)."""

    rows: slice
    features: Tensor
    proba: Tensor
    loss: Tensor
    weights: Tensor


class TensorVectorPart(VectorPart):
    """`VectorPart` with the logits on their device; sums alone come to the host."""

    def __init__(self, logits: TensorLogits, examples: Examples, shape: Shape) -> None:
        super().__init__(examples, shape)
        self._logits = logits
        self._device_offset, self._true, self._weights, self._labels = (
            to_device(part, logits.device)
            for part in (self.offset, self.true_features, examples.weights, examples.labels)
        )

    def second_sums(self, theta: FloatArray) -> Sums:
        count = self._logits.n_classes
        firsts, squares, products = self._zeros(2 * count + 1, count, (2 * count, 2 * count))
        for block in self._blocks(theta):
            joined = torch.cat([block.proba * block.features, block.proba], dim=1)
            firsts += _append(block.weights @ joined, block.weights @ block.loss)
            squares += block.weights @ (block.features * joined[:, :count])
            joined *= block.weights.sqrt()[:, None]
            products.addmm_(joined.T, joined)
        return Sums(to_host(torch.cat([firsts, squares, products.reshape(-1)])), count)

    def first_sums(self, theta: FloatArray) -> FloatArray:
        (total,) = self._zeros(theta.size + 1)
        for block in self._blocks(theta):
            shares = block.weights @ (block.proba * block.features), block.weights @ block.proba
            total += _append(torch.cat(shares), block.weights @ block.loss)
        return to_host(total)

    def class_losses(self, theta: FloatArray) -> FloatArray:
        (others,) = self._zeros(self._logits.n_classes)
        losses = []
        for block in self._blocks(theta):
            chance = block.proba.scatter_(1, self._labels[block.rows, None], 0.0)
            others -= block.weights @ torch.log1p(-chance.clamp_(max=1.0 - 1e-16))
            losses.append(block.loss)
        weighted = self.examples.weights * to_host(torch.cat(losses))
        own = np.bincount(self.examples.labels, weighted, self._logits.n_classes)
        return np.append(to_host(others) + own, weighted.sum())

    def _zeros(self, *shapes: int | tuple[int, ...]) -> tuple[Tensor, ...]:
        options = {"dtype": torch.float64, "device": self._logits.device}
        return tuple(torch.zeros(shape, **options) for shape in shapes)  # type: ignore[call-overload]

    def _blocks(self, theta: FloatArray) -> Iterator[_Block]:
        deviation, bias = to_device(theta, self._logits.device).chunk(2)
        slope = self.shape.unit / self.shape.temperature + deviation
        step = max(1, CHUNK_SIZE // (_TEMPORARIES * self._logits.n_classes))
        for start in range(0, self._logits.n_rows, step):
            rows = slice(start, start + step)
            below = self._logits.values[rows].double() - self._logits.device_top[rows, None]
            features = below - self._device_offset[rows, None]
            masked = features == -torch.inf
            features = features.masked_fill_(masked, 0.0) / self.shape.unit
            scores = (features * slope + bias).masked_fill_(masked, -torch.inf)
            log_sum = torch.logsumexp(scores, dim=1)
            labels = self._labels[rows]
            loss = log_sum - (self._true[rows] * slope[labels] + bias[labels])
            proba = torch.softmax(scores, dim=1)
            yield _Block(rows, features, proba, loss, self._weights[rows])


def _append(numbers: Tensor, last: Tensor) -> Tensor:
    return torch.cat([numbers, last[None]])


@vector_part_of.register
def _vector_part(logits: TensorLogits, examples: Examples, shape: Shape) -> VectorPart:
    return TensorVectorPart(logits, examples, shape)


@log_sums.register
def _log_sums(logits: TensorLogits) -> FloatArray:
    return to_host(per_row(logits, lambda margins: torch.logsumexp(-margins, dim=1)))
