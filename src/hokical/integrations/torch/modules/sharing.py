"""Whole rows of probabilities from a confidence, as `hokical.calibrators._sharing` has them."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import rows
from hokical.integrations.torch.modules.base import at

#: Shares that sum to less have lost their digits.
_LEAST_TOTAL = 1e-290


def share_rest(values: Tensor, confidence: Tensor, shares: Tensor, width: Tensor) -> Tensor:
    """The confidence for the label, and what it leaves as `shares` (n, classes) have it.

    Where no other class is within reach, they share as a softmax of that width would; where one
    class alone is possible it gets 1.
    """
    labels = rows.labels(values)[:, None]
    alone = rows.possible_counts(values) == 1
    own = torch.where(alone, 1.0, confidence)[:, None]
    shares = shares.scatter(1, labels, 0.0)
    total = shares.sum(dim=1, keepdim=True)
    lost = (total < _LEAST_TOTAL) & ~alone[:, None]
    shares = torch.where(lost, _softmax_shares(values, labels, width), shares)
    total = torch.where(lost | alone[:, None], 1.0, total)
    return (shares * ((1.0 - own) / total)).scatter(1, labels, own)


def _softmax_shares(values: Tensor, labels: Tensor, width: Tensor) -> Tensor:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    margins = rows.finite_margins(values)
    others = margins.scatter(1, labels, torch.inf)
    weights = torch.exp((others.amin(dim=1, keepdim=True) - others) / width)
    weights = torch.where(values == -torch.inf, 0.0, weights)
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def settle_ties(proba: Tensor, values: Tensor) -> Tensor:
    """Make the label the first maximum of its row, by one rounding unit.

    At a large temperature, classes with different logits can come out with the same number.
    """
    labels = rows.labels(values)
    own = at(proba, labels)
    fixed = proba.detach()
    above = torch.nextafter(fixed.amax(dim=1), fixed.new_tensor(torch.inf))
    lift = torch.where(fixed.argmax(dim=1) == labels, 0.0, above - own.detach())
    return proba.scatter(1, labels[:, None], (own + lift)[:, None])
