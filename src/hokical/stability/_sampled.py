"""Sampled stability, the paper's: the share of M fixed noise draws that keep the label.

The same draws serve every example, at design time and at run time. They are stored as a seed and a
shape, and drawn again, bit for bit the same, wherever they are needed.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from hokical._core import portable
from hokical._core.accelerate import accelerated
from hokical._core.arrays import Array, ignore_overflow, to_float64
from hokical._core.bins import check_count
from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits
from hokical._core.storage import storable
from hokical.stability._noise import Noise

MOST_DRAWS = 10**7
#: More noise than this, 1 GB, is a mistake, or a file that asks for too much memory.
_MOST_NUMBERS = 1 << 27
#: While a graph is traced: draws per step, and at most so many steps.
_TRACED_STEP, _TRACED_STEPS = 64, 256


@storable("draws")
@dataclass(frozen=True)
class Draws:
    """M noise vectors: who they are is (noise, seed, n_draws, n_classes).

    `values` (n_draws, n_classes) float64 is the noise without its shift, which moves no label.
    """

    noise: Noise
    seed: int
    n_draws: int
    n_classes: int
    values: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Noise):
            raise ValueError(f"`noise` must be a noise; got {self.noise!r}.")
        check_count(self.seed, name="seed", least=0, most=2**64 - 1)
        check_count(self.n_draws, name="n_draws", most=MOST_DRAWS)
        most = _MOST_NUMBERS // self.n_draws
        check_count(self.n_classes, name="n_classes", least=2, most=most)
        centred = type(self.noise).of_width(self.noise.width)
        uniform = portable.uniform_draws(self.seed, (self.n_draws, self.n_classes))
        object.__setattr__(self, "values", centred.from_uniform(uniform))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the draws are made from, not the draws."""
        return type(self), (self.noise, self.seed, self.n_draws, self.n_classes)

    def to_stored(self) -> dict[str, Any]:
        """What makes them, with the SHA-256 of the draws to prove that they come out the same."""
        names = ("noise", "seed", "n_draws", "n_classes")
        return {name: getattr(self, name) for name in names} | {"sha256": self._fingerprint()}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Draw again what `to_stored` described, or refuse."""
        given = dict(stored)
        expected = given.pop("sha256")
        draws = cls(**given)
        if draws._fingerprint() != expected:
            raise ValueError("the noise re-drawn from the seed is not the noise of the fit")
        return draws

    def _fingerprint(self) -> str:
        return hashlib.sha256(self.values.astype("<f8").tobytes()).hexdigest()


@accelerated
def survivals(logits: Logits, draws: Draws) -> Array:
    """How many of the draws keep the label of each row, (n,) integers in [0, M].

    Logits are taken relative to their row's top, and the sum logit + noise in float64 for float64
    logits, else in float32; of equals the first class wins.
    """
    logits = logits.with_every_class("draws", "Use exact stability, `draws=None`")
    values = draws.values
    noise = logits.from_host(values) if isinstance(values, np.ndarray) else values

    def work(block: Logits) -> Array:
        xp, below = block.xp, below_top(block)
        step, kept = _draws_per_step(block, draws.n_draws), None
        for start in range(0, draws.n_draws, step):
            some = xp.astype(noise[start : min(start + step, draws.n_draws), ...], below.dtype)
            winners = xp.argmax(below[:, None, :] + some[None, :, :], axis=2)
            stays = xp.astype(winners == block.labels[:, None], xp.int64)
            count = xp.sum(stays, axis=1)
            kept = count if kept is None else kept + count
        return kept

    return by_blocks(work, logits)


def below_top(logits: Logits) -> Array:
    """Logits minus their row's top, (n, classes), so that a constant per row changes nothing."""
    xp = logits.xp
    dtype = xp.float64 if logits.values.dtype == xp.float64 else xp.float32
    with ignore_overflow(xp):
        return xp.astype(to_float64(logits.values, xp) - logits.top[:, None], dtype)


def _draws_per_step(block: Logits, n_draws: int) -> int:
    if block.is_traced:
        return max(_TRACED_STEP, -(-n_draws // _TRACED_STEPS))
    return max(1, block.backend.block_size // max(1, block.size))
