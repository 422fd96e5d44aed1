"""Modules of the methods that scale logits: the softmax, temps, ets and vecs."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.calibrators.ets import EnsembleTemperatureScaling
from hokical.calibrators.temps import TemperatureScaling
from hokical.calibrators.uncalibrated import Uncalibrated
from hokical.calibrators.vecs import VectorScaling
from hokical.integrations.torch.kernels import gumbel, rows
from hokical.integrations.torch.modules.base import CalibratorModule
from hokical.integrations.torch.modules.sharing import settle_ties


class TemperatureModule(CalibratorModule):
    """The softmax at a temperature; at 1 it is the classifier's own."""

    temperature: Tensor

    def __init__(self, calibrator: TemperatureScaling | Uncalibrated) -> None:
        super().__init__(calibrator)
        self._keep("temperature", getattr(calibrator, "temperature_", 1.0))

    @property
    def _floats_per_row(self) -> int:
        return 1  # the kernel sees to it

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        return gumbel.stability(values, self.temperature)

    def _proba(self, values: Tensor) -> Tensor:
        return settle_ties(gumbel.distribution(values, self.temperature), values)


class EnsembleModule(CalibratorModule):
    """The softmax at a temperature, the plain one and the uniform distribution, mixed."""

    temperature: Tensor
    weights: Tensor

    def __init__(self, calibrator: EnsembleTemperatureScaling) -> None:
        super().__init__(calibrator)
        self._keep("temperature", calibrator.temperature_)
        self._keep("weights", calibrator.weights_)

    @property
    def _floats_per_row(self) -> int:
        return 1

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        scaled, plain, uniform = self.weights
        return (
            scaled * gumbel.stability(values, self.temperature)
            + plain * gumbel.stability(values, 1.0)
            + uniform / rows.possible_counts(values)
        )

    def _proba(self, values: Tensor) -> Tensor:
        scaled, plain, uniform = self.weights
        flat = uniform / rows.possible_counts(values)[:, None]
        mixed = (
            scaled * gumbel.distribution(values, self.temperature)
            + plain * gumbel.distribution(values, 1.0)
            + torch.where(values > -torch.inf, flat, 0.0)
        )
        return settle_ties(mixed, values)


class VectorModule(CalibratorModule):
    """A scale and a bias for each class's log-probability."""

    preserves_labels = False
    scale: Tensor
    bias: Tensor

    def __init__(self, calibrator: VectorScaling) -> None:
        super().__init__(calibrator)
        self._keep("scale", calibrator.scale_)
        self._keep("bias", calibrator.bias_)

    def _proba(self, values: Tensor) -> Tensor:
        margins = rows.margins(values)
        masked = margins == torch.inf
        log_proba = -torch.where(masked, 0.0, margins) - log_total(margins)
        scores = log_proba * self.scale + self.bias
        return torch.softmax(torch.where(masked, -torch.inf, scores), dim=1)


def log_total(margins: Tensor) -> Tensor:
    """Log of the sum of exp(-margin) over each row, (n, 1)."""
    return torch.log(torch.exp(-margins).sum(dim=1, keepdim=True))
