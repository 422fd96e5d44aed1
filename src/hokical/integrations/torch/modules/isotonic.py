"""Modules of `irm` and `irova_ts`: rising functions of the log-probability."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._isotonic import IDENTITY_SHARE
from hokical.calibrators.irm import GAP, IsotonicMulticlass
from hokical.calibrators.irova_ts import IsotonicOneVsAllTS
from hokical.integrations.torch.kernels import rows
from hokical.integrations.torch.modules.base import CalibratorModule, at

FloatArray = NDArray[np.float64]


class PooledIsotonicModule(CalibratorModule):
    """One rising function for all classes."""

    free_sizes = frozenset({"knots", "values"})
    knots: Tensor
    values: Tensor

    def __init__(self, calibrator: IsotonicMulticlass) -> None:
        normalize = bool(calibrator.normalize_)
        super().__init__(calibrator, "normalised" if normalize else "not normalised")
        self.normalize = normalize
        self._keep("knots", calibrator.knots_[None])
        self._keep("values", calibrator.values_[None])

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        return at(self._proba(values), labels)

    def _proba(self, values: Tensor) -> Tensor:
        margins = rows.margins(values)
        log_proba = log_probabilities(margins, values)
        curve = interpolated(log_proba.reshape(1, -1), self.knots, self.values)
        fitted = with_identity(curve.reshape(log_proba.shape), log_proba)
        top = at(fitted, rows.labels(values))[:, None]
        held = torch.minimum(fitted, top * (1.0 - GAP))
        fitted = torch.where(margins > 0.0, held, fitted)
        return fitted / fitted.sum(dim=1, keepdim=True) if self.normalize else fitted


class ClasswiseIsotonicModule(CalibratorModule):
    """A temperature, and a rising function for each class; labels can change."""

    preserves_labels = False
    free_sizes = frozenset({"knots", "values"})
    temperature: Tensor
    knots: Tensor
    values: Tensor

    def __init__(self, calibrator: IsotonicOneVsAllTS) -> None:
        super().__init__(calibrator)
        self._keep("temperature", calibrator.temperature_)
        offsets = calibrator.offsets_
        self._keep("knots", _padded(calibrator.knots_, offsets, np.inf))
        self._keep("values", _padded(calibrator.values_, offsets, 0.0))

    def _proba(self, values: Tensor) -> Tensor:
        log_proba = log_probabilities(rows.margins(values) / self.temperature, values)
        curves = interpolated(log_proba.T.contiguous(), self.knots, self.values).T
        fitted = with_identity(curves, log_proba)
        return fitted / fitted.sum(dim=1, keepdim=True)


def log_probabilities(margins: Tensor, values: Tensor) -> Tensor:
    """(n, classes), from margins in units of the temperature; precise for those near 0."""
    odds = torch.exp(-margins).scatter(1, rows.labels(values)[:, None], 0.0)
    return -(margins + torch.log1p(odds.sum(dim=1, keepdim=True)))


def with_identity(fitted: Tensor, log_proba: Tensor) -> Tensor:
    """A trace of the probability mixed in, and 0 for impossible classes."""
    mixed = (1.0 - IDENTITY_SHARE) * fitted + IDENTITY_SHARE * torch.exp(log_proba)
    return torch.where(log_proba == -torch.inf, 0.0, mixed)


def interpolated(log_proba: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """The curves (c, k) at log-probabilities (c, m), each row of these by its own curve.

    As in the core, log-probabilities are compared as float32. Knots of +inf end a curve early.
    """
    keys = log_proba.float().double()
    place = torch.searchsorted(knots, keys.detach(), right=True)
    left = (place - 1).clamp(min=0)
    right = place.clamp(max=knots.shape[1] - 1)
    low, high = knots.gather(1, left), knots.gather(1, right)
    start, end = values.gather(1, left), values.gather(1, right)
    inside = (low <= keys) & (keys < high) & (high < torch.inf)
    slope = torch.where(inside, (end - start) / torch.where(inside, high - low, 1.0), 0.0)
    return start + slope * torch.where(inside, keys - low, 0.0)


def _padded(flat: FloatArray, offsets: NDArray[np.int64], filler: float) -> FloatArray:
    """Ragged rows as a matrix (classes, k)."""
    out = np.full((offsets.size - 1, int(np.diff(offsets).max())), filler)
    for row, (start, stop) in zip(out, pairwise(offsets.tolist()), strict=True):
        row[: stop - start] = flat[start:stop]
    return out
