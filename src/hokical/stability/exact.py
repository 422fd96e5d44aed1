"""Exact stability for checked logits: the family decides which integral is solved."""

from types import ModuleType

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.topk import TopK
from hokical.stability import gaussian, gumbel, uniform
from hokical.stability.bounds import BOUNDS
from hokical.stability.noise import Noise

_SOLVERS: dict[str, ModuleType] = {"gaussian": gaussian, "uniform": uniform, "gumbel": gumbel}


def exact_stability(logits: Logits, noise: Noise) -> Array:
    """gamma of every row, (n,) float64; the midpoint of its bounds where classes are hidden."""
    if isinstance(logits, TopK):
        lower, upper = exact_bounds(logits, noise)
        return 0.5 * (lower + upper)
    return _SOLVERS[noise.family].stability(logits, noise.width)


def exact_bounds(logits: Logits, noise: Noise) -> tuple[Array, Array]:
    """The least and the greatest gamma of every row, (n,) each; equal where no class is hidden."""
    if isinstance(logits, TopK):
        return BOUNDS[noise.family](logits, noise.width)
    gamma = exact_stability(logits, noise)
    return gamma, gamma + 0.0  # two arrays: what is done to one must not change the other


def exact_distribution(logits: Logits, noise: Noise) -> Array:
    """pi of every row and class, (n, classes) float64; rows sum to 1.

    Hidden classes are taken as equals, and the label's chance is then not the midpoint.
    """
    dense = logits.fill() if isinstance(logits, TopK) else logits
    return _SOLVERS[noise.family].distribution(dense, noise.width)
