"""Stability, the profile and the softmax score of every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hokical.guarantees import scores
from hokical.integrations.torch.kernels import gaussian as gaussian_kernel
from hokical.integrations.torch.kernels import gumbel as gumbel_kernel
from hokical.integrations.torch.kernels import profile as profile_kernel
from hokical.integrations.torch.kernels import sampled as sampled_kernel
from hokical.integrations.torch.kernels import scores as scores_kernel
from hokical.integrations.torch.kernels import uniform as uniform_kernel
from hokical.integrations.torch.tensors import TensorLogits, to_host
from hokical.noise import Noise
from hokical.selection import stability_sums
from hokical.stability import gaussian, gumbel, profile, sampled, uniform
from hokical.stability.sampled import Draws

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@gumbel.stability.register
def _gumbel(logits: TensorLogits, scale: float) -> FloatArray:
    return to_host(gumbel_kernel.stability(logits.values, scale))


@gaussian.stability.register
def _gaussian(logits: TensorLogits, scale: float) -> FloatArray:
    return to_host(gaussian_kernel.stability(logits.values, scale))


@uniform.stability.register
def _uniform(logits: TensorLogits, width: float) -> FloatArray:
    return to_host(uniform_kernel.stability(logits.values, width))


_KERNELS = {
    "gaussian": gaussian_kernel.stability,
    "uniform": uniform_kernel.stability,
    "gumbel": gumbel_kernel.stability,
}


@stability_sums.register
def _stability_sums(
    logits: TensorLogits, noise: Noise, correct: NDArray[np.bool_], weights: FloatArray | None
) -> FloatArray:
    """On the device, so that six numbers are all that comes to the host."""
    gamma = _KERNELS[noise.family](logits.values, noise.width)
    each = torch.ones_like(gamma) if weights is None else logits.beside(weights)
    right = logits.beside(correct) * each
    switched = 1.0 - gamma
    weighted = torch.stack([each, each * gamma, each * switched, right * gamma, right * switched])
    sums = weighted.sum(dim=1)
    mean = sums[1] / sums[0].clamp(min=torch.finfo(torch.float64).tiny)
    squares = (each * (gamma - mean).square()).sum()
    return to_host(torch.cat([sums, squares[None]]))


@sampled.survivals.register
def _survivals(logits: TensorLogits, draws: Draws) -> IntArray:
    return to_host(sampled_kernel.survivals(logits.values, draws))


@profile.log_odds_and_profile.register
def _profile(
    logits: TensorLogits, temperature: float, scales: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    log_odds, chances = profile_kernel.log_odds_and_profile(logits.values, temperature, scales)
    return to_host(log_odds), to_host(chances)


@scores.label_log_odds.register
def _label_log_odds(logits: TensorLogits) -> FloatArray:
    return to_host(scores_kernel.label_log_odds(logits.values))


@gumbel.distribution.register
def _gumbel_distribution(logits: TensorLogits, scale: float) -> Any:
    return gumbel_kernel.distribution(logits.values, scale)


@gaussian.distribution.register
def _gaussian_distribution(logits: TensorLogits, scale: float) -> Any:
    return gaussian_kernel.distribution(logits.values, scale)


@uniform.distribution.register
def _uniform_distribution(logits: TensorLogits, width: float) -> Any:
    raise TypeError(
        "the label distribution under uniform noise is computed on the host: pass `logits.cpu()`, "
        "or use Gaussian noise of the same deviation, `Gaussian(width / 12 ** 0.5)`."
    )
