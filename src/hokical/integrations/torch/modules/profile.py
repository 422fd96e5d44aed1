"""The module of `profile`: stability at several widths, and a logistic model of it."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.calibrators.profile import LARGEST_LOG_ODDS, LEAST_LOG, StabilityProfile
from hokical.integrations.torch.kernels import gumbel, profile, rows
from hokical.integrations.torch.modules.base import CalibratorModule
from hokical.integrations.torch.modules.sharing import share_rest


class ProfileModule(CalibratorModule):
    """Log-odds of temperature scaling plus a correction, trusted as far as it was seen."""

    free_sizes = frozenset({"widths", "coef", "centre", "precision"})
    temperature: Tensor
    widths: Tensor
    intercept: Tensor
    coef: Tensor
    limits: Tensor
    centre: Tensor
    precision: Tensor
    reach: Tensor

    def __init__(self, calibrator: StabilityProfile) -> None:
        super().__init__(calibrator)
        self._keep("temperature", calibrator.temperature_)
        self._keep("widths", calibrator.widths_)
        self._keep("intercept", calibrator.intercept_)
        self._keep("coef", calibrator.coef_)
        self._keep("limits", calibrator.range_)
        self._keep("centre", calibrator.familiar_.centre)
        self._keep("precision", calibrator.familiar_.precision)
        self._keep("reach", calibrator.familiar_.reach)

    @property
    def _floats_per_row(self) -> int:
        return 1  # the kernel sees to it

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        features = self._features(values)
        correction = (features * self.coef).sum(dim=1) + self.intercept
        correction = correction.clamp(self.limits[0], self.limits[1])
        log_odds = features[:, 0] + correction * self._trust(features)
        return torch.sigmoid(log_odds.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))

    def _features(self, values: Tensor) -> Tensor:
        """(n, 1 + 2 W): see `StabilityProfile._features`."""
        log_odds, chances = profile.log_odds_and_profile(values, self.temperature, self.widths)
        bounded = log_odds.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        return torch.cat([bounded[:, None], chances.clamp(min=LEAST_LOG)], dim=1)

    def _trust(self, features: Tensor) -> Tensor:
        """1 within what was seen, then falling with the squared distance, (n,)."""
        apart = features - self.centre
        squared = ((apart[:, :, None] * self.precision).sum(dim=1) * apart).sum(dim=1)
        squared = torch.maximum(squared, self.reach)
        return torch.where(squared > 0.0, self.reach / squared, 1.0)

    def _proba(self, values: Tensor) -> Tensor:
        confidence = self._confidence(values, rows.labels(values))
        shares = gumbel.distribution(values, self.temperature)
        return share_rest(values, confidence, shares, self.temperature)
