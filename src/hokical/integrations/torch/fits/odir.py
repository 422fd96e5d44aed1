"""The examples of `ms_odir` and `dir_odir` on a device; the solver is the core's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._odir_objective import Examples
from hokical.calibrators._odir_search import distinct_examples
from hokical.calibrators.dir_odir import DirichletODIR
from hokical.calibrators.odir import ODIRCalibrator, odir_examples
from hokical.integrations.torch.fits.likelihood import margin_chunks
from hokical.integrations.torch.tensors import TensorLogits, to_device, to_host

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: The two multipliers of splitmix64's finaliser and its step, as signed numbers.
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685


@dataclass(frozen=True, eq=False)
class TensorExamples(Examples):
    """`Examples` whose inputs, scores and probabilities are tensors on one device."""

    inputs: Tensor
    masked: Tensor | None

    @cached_property
    def _device_labels(self) -> Tensor:
        return to_device(self.labels, self.inputs.device)[:, None]

    @cached_property
    def _device_weights(self) -> Tensor:
        return to_device(self.weights, self.inputs.device)[:, None]

    def take(self, rows: BoolArray) -> TensorExamples:
        chosen = to_device(np.flatnonzero(rows), self.inputs.device)
        weights = self.weights[rows]
        return TensorExamples(
            self.inputs.index_select(0, chosen),
            None if self.masked is None else self.masked.index_select(0, chosen),
            self.labels[rows],
            weights / weights.sum(),
        )

    def scores(self, coef: FloatArray) -> Tensor:
        return self.inputs @ self._matrix(coef).T

    def probabilities(self, scores: Tensor) -> tuple[Tensor, FloatArray]:
        possible = scores if self.masked is None else scores.masked_fill(self.masked, -torch.inf)
        own = possible.gather(1, self._device_labels)[:, 0]
        loss = torch.logsumexp(possible, dim=1) - own
        return torch.softmax(possible, dim=1), to_host(loss)

    def slope(self, proba: Tensor) -> FloatArray:
        residual = proba.scatter_add(1, self._device_labels, -torch.ones_like(self._device_weights))
        residual *= self._device_weights
        return to_host(residual.T @ self.inputs)

    def curvature(self, proba: Tensor, direction: FloatArray) -> FloatArray:
        change = self.inputs @ self._matrix(direction).T
        change -= (change * proba).sum(dim=1, keepdim=True)
        change *= proba
        change *= self._device_weights
        return to_host(change.T @ self.inputs)

    def moments(self, proba: Tensor) -> FloatArray:
        variance = (proba * (1.0 - proba)).mul_(self._device_weights).T
        return to_host(torch.stack([variance @ self.inputs, variance @ self.inputs.square()]))

    def feature_size(self) -> float:
        return float((self._device_weights.T @ self.inputs[:, :-1].abs()).mean())

    def feature_losses(self, unit: float, size: float) -> FloatArray:
        return self.probabilities((self.inputs[:, :-1] / unit).mul_(size))[1]

    def all_right(self, diagonal: FloatArray) -> bool:
        scores = self.inputs[:, :-1] * self._matrix(diagonal)
        scores[:, self._matrix(self.absent)] = 0.0
        if self.masked is not None:
            scores.masked_fill_(self.masked, -torch.inf)
        own = scores.gather(1, self._device_labels)[:, 0]
        scores.scatter_(1, self._device_labels, -torch.inf)
        return bool((own > scores.amax(dim=1)).all())

    def _matrix(self, array: NDArray[Any]) -> Tensor:
        return to_device(array, self.inputs.device)


@odir_examples.register
def _odir_examples(
    logits: TensorLogits, calibrator: ODIRCalibrator, labels: IntArray, weights: FloatArray
) -> Examples:
    shape = (logits.n_rows, logits.n_classes + 1)
    inputs = torch.ones(shape, dtype=torch.float64, device=logits.device)
    masked = logits.values == -torch.inf
    start = 0
    for margins, _ in margin_chunks(logits):
        rows = slice(start, start + margins.shape[0])
        inputs[rows, :-1] = _features(-margins, isinstance(calibrator, DirichletODIR))
        start = rows.stop
    return TensorExamples(inputs, masked if bool(masked.any()) else None, labels, weights)


def _features(below: Tensor, log_probabilities: bool) -> Tensor:
    """Features (rows, classes), an impossible class as the least likely of the possible ones."""
    possible = below > -torch.inf
    seen = below.where(possible, 0.0)
    if log_probabilities:
        offset = torch.logsumexp(below, dim=1, keepdim=True)
    else:
        offset = seen.sum(dim=1, keepdim=True) / possible.sum(dim=1, keepdim=True)
    return seen.where(possible, seen.amin(dim=1, keepdim=True)) - offset


@distinct_examples.register
def _distinct_examples(logits: TensorLogits, labels: IntArray) -> IntArray:
    """Copies have the same 64-bit hash; that two others share one is as good as impossible."""
    hashes = torch.cat([_row_hashes(margins.float()) for margins, _ in margin_chunks(logits)])
    pairs = np.stack([to_host(hashes), labels], axis=1)
    _, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    number = np.empty(first.size, np.int64)
    number[np.argsort(first)] = np.arange(first.size)  # by first appearance
    return np.asarray(number[which.reshape(-1)])


def _row_hashes(margins: Tensor) -> Tensor:
    """A hash (rows,) int64 of float32 rows: the sum of scrambled bits, each with its column.

    Whole numbers wrap around alike in whatever order they are added.
    """
    column = torch.arange(margins.shape[1], device=margins.device) << 32
    bits = (margins.view(torch.int32).long() & 0xFFFFFFFF) | column
    bits = (bits + 1) * _STEP
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return (bits ^ _shifted(bits, 31)).sum(dim=1)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """The bits moved right as if the number had no sign."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
