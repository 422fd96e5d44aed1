"""What a noise setting is worth: the spread of the confidences that it gives with one bin.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). Six sums
over the examples are all that is needed; they are made where the logits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
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

    def __init__(self, block: Examples, after_each: Callable[[], None] = lambda: None) -> None:
        self.block, self.after_each = block, after_each
        self.trials: list[Trial] = []
        self._made: dict[tuple[str, float], Trial] = {}
        self._asked: set[tuple[str, float]] = set()

    def __call__(self, noise: Noise, draws: Draws | None = None) -> Trial:
        """The trial of one setting, with exact stability unless there are draws."""
        if draws is None:
            return self.together([noise])[0]
        logits, xp = self.block.logits, self.block.logits.xp
        stability = xp.astype(survivals(logits, draws), xp.float64) / float(draws.n_draws)
        return self._note(*self._try([noise], stability[None, :]))

    def together(self, noises: Sequence[Noise], ahead: Iterable[Noise] = ()) -> list[Trial]:
        """The trials of settings of one family, by one pass over the examples for all new ones.

        Settings that differ in their mean alone share one trial, as it moves no label. Another
        device than the host takes longer to be asked than to answer: settings `ahead`, which may
        be asked for next, are then part of the pass, and trials once they are asked for.
        """
        keys = [(noise.family, noise.width) for noise in noises]
        if not self._made.keys() >= set(keys):
            given = noises if self.block.logits.is_numpy else (*noises, *ahead)
            new = {n.width: n for n in given if (n.family, n.width) not in self._made}
            stability = type(noises[0]).stabilities(self.block.logits, np.array([*new]))
            for trial in self._try([*new.values()], stability):
                self._made[trial.noise.family, trial.noise.width] = trial
        for key in keys:
            if key not in self._asked:
                self._asked.add(key)
                self._note(self._made[key])
        return [replace(self._made[key], noise=n) for key, n in zip(keys, noises, strict=True)]

    def _try(self, noises: Sequence[Noise], stability: Array) -> list[Trial]:
        return _trials(noises, _sums_of_block(self.block, stability), self.block.n_rows)

    def _note(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self.after_each()
        return trial


def one_bin_trial(noise: Noise, stability: FloatArray, correct: NDArray[np.bool_]) -> Trial:
    """alpha, beta and sigma_hat with all examples in one bin (Equations 1 to 4 of the paper)."""
    sums = _one_bin_sums(stability[None, :], None, correct.astype(np.float64))
    return _trials([noise], sums, stability.shape[0])[0]


def _sums_of_block(block: Examples, stability: Array) -> FloatArray:
    hits = block.counts * block.correct
    return _one_bin_sums(block.logits.to_host(stability), block.weights, hits)


def _one_bin_sums(
    stability: FloatArray, weight: FloatArray | None, right: FloatArray
) -> FloatArray:
    """Sums over the examples of stability (m, n), (6, m): of the weight, of what is kept and what
    is switched, of both for the correct ones alone, and of the squared deviations of stability.
    """

    def add_up(part: FloatArray, weight: FloatArray | None = weight) -> FloatArray:
        return np.asarray(np.sum(part if weight is None else weight * part, axis=1))

    switched = 1.0 - stability
    parts = (stability, switched)
    sums = [*map(add_up, parts), *(add_up(part, right) for part in parts)]
    count = stability.shape[1] if weight is None else np.sum(weight)
    total = np.zeros_like(sums[0]) + count
    squares = add_up((stability - (sums[0] / total)[:, None]) ** 2)
    return np.stack([total, *sums, squares])


def _trials(noises: Sequence[Noise], sums: FloatArray, n_examples: int) -> list[Trial]:
    """One trial for each column of the sums (6, m)."""
    total, kept, switched, kept_right, switched_right, squares = sums
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    spread = np.abs(alpha - beta) * np.sqrt(squares / total)
    columns = zip(noises, alpha.tolist(), beta.tolist(), spread.tolist(), strict=True)
    return [Trial(noise, a, b, sigma_hat, n_examples) for noise, a, b, sigma_hat in columns]
