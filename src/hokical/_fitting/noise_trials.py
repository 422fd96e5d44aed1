"""What a noise setting is worth: the spread of the confidences that it gives with one bin.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). Six sums
over the examples are all that is needed; they are made where the logits are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, Namespace
from hokical._core.types import FloatArray
from hokical._fitting.partitions import SUMMED_ON_HOST, Block
from hokical._fitting.recursion import survival_rates
from hokical.stability._noise import Noise
from hokical.stability._sampled import Draws, survivals


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples` examples."""

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True, repr=False)
class NoiseSelection:
    """The winner of a search, and every setting tried in the order in which it was."""

    best: Trial
    trials: tuple[Trial, ...]

    @classmethod
    def from_trials(cls, candidates: list[Trial], tried: list[Trial]) -> NoiseSelection:
        """The candidate of the largest spread, of all that were tried."""
        return cls(max(candidates, key=lambda trial: trial.sigma_hat), tuple(tried))

    @property
    def noise(self) -> Noise:
        return self.best.noise

    @property
    def alpha(self) -> float:
        return self.best.alpha

    @property
    def beta(self) -> float:
        return self.best.beta

    @property
    def sigma_hat(self) -> float:
        return self.best.sigma_hat

    def __repr__(self) -> str:
        return (
            f"NoiseSelection(noise={self.noise!r}, alpha={self.alpha:.4f}, beta={self.beta:.4f}, "
            f"sigma_hat={self.sigma_hat:.4f}, {len(self.trials)} settings tried)"
        )


class Evaluator:
    """Tries settings on examples, and remembers every one."""

    def __init__(self, block: Block, after_each: Callable[[], None] = lambda: None) -> None:
        self.block, self.after_each = block, after_each
        self.trials: list[Trial] = []
        self._known: dict[tuple[str, float], Trial] = {}

    def __call__(self, noise: Noise, draws: Draws | None = None) -> Trial:
        """A pass over the examples, with exact stability unless there are draws.

        Settings of one family that differ in their mean alone share one pass, as it moves no label.
        """
        key = (noise.family, noise.width)
        if draws is None and key in self._known:
            return replace(self._known[key], noise=noise)
        trial = _trial(noise, _sums_of_block(self.block, noise, draws), self.block.n_rows)
        self.trials.append(trial)
        self._known[key] = trial
        self.after_each()
        return trial


def one_bin_trial(noise: Noise, stability: FloatArray, correct: NDArray[np.bool_]) -> Trial:
    """alpha, beta and sigma_hat with all examples in one bin (Equations 1 to 4 of the paper)."""
    sums = _one_bin_sums(stability, np.ones_like(stability), correct.astype(np.float64), np)
    return _trial(noise, sums, stability.shape[0])


def _sums_of_block(block: Block, noise: Noise, draws: Draws | None) -> FloatArray:
    logits, xp = block.logits, block.logits.xp
    if draws is None:
        stability = noise.stability(logits)
    else:
        stability = xp.astype(survivals(logits, draws), xp.float64) / float(draws.n_draws)
    if block.n_rows <= SUMMED_ON_HOST:
        hits = block.counts * block.correct
        return np.asarray(_one_bin_sums(logits.to_host(stability), block.counts, hits, np))
    there = _one_bin_sums(stability, block.counts_beside, block.hits_beside, xp)
    return np.asarray(logits.to_host(there))


def _one_bin_sums(stability: Array, weight: Array, right: Array, xp: Namespace) -> Array:
    """Sums over the examples, (6,): of the weight, of what is kept and what is switched, of both
    for the correct ones alone, and of the squared deviations of stability from its mean.
    """
    switched = 1.0 - stability
    parts = [weight, weight * stability, weight * switched, right * stability, right * switched]
    sums = xp.sum(xp.stack(parts), axis=1)
    squares = xp.sum(weight * (stability - sums[1] / sums[0]) ** 2)
    return xp.concat([sums, xp.reshape(squares, (1,))])


def _trial(noise: Noise, sums: FloatArray, n_examples: int) -> Trial:
    total, kept, switched, kept_right, switched_right, squares = sums
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    sigma_hat = float(abs(alpha - beta)) * math.sqrt(squares / total)
    return Trial(noise, float(alpha), float(beta), sigma_hat, n_examples)
