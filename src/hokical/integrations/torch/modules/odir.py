"""The module of `ms_odir` and `dir_odir`: softmax(W x + b)."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.calibrators.dir_odir import DirichletODIR
from hokical.calibrators.odir import ODIRCalibrator
from hokical.integrations.torch.kernels import rows
from hokical.integrations.torch.modules.base import CalibratorModule
from hokical.integrations.torch.modules.scaling import log_total


class ODIRModule(CalibratorModule):
    """W and b on logits less their mean, or on log-probabilities."""

    preserves_labels = False
    weight: Tensor
    bias: Tensor

    def __init__(self, calibrator: ODIRCalibrator) -> None:
        super().__init__(calibrator)
        self.on_log_probabilities = isinstance(calibrator, DirichletODIR)
        self._keep("weight", calibrator.weight_)
        self._keep("bias", calibrator.bias_)

    def _proba(self, values: Tensor) -> Tensor:
        margins = rows.margins(values)
        masked = margins == torch.inf
        scores = self._features(margins, masked) @ self.weight.T + self.bias
        return torch.softmax(torch.where(masked, -torch.inf, scores), dim=1)

    def _features(self, margins: Tensor, masked: Tensor) -> Tensor:
        """(n, classes), an impossible class as the least likely of the possible ones."""
        below = -torch.where(masked, 0.0, margins)
        if self.on_log_probabilities:
            offset = log_total(margins)
        else:
            offset = below.sum(dim=1, keepdim=True) / (~masked).sum(dim=1, keepdim=True)
        least = below.amin(dim=1, keepdim=True)
        return torch.where(masked, least, below) - offset
