"""Structured scaling as a rule: a conditional logit on smoothed, tempered log-probabilities.

Class k gets the score

    scale_k z_k + bias_k + sum_j cross_kj z_j
        + shape . [log(1 - p_k), p_k, log(1 - p_k at three times the temperature)],

where p is the softmax of log(softmax(logits) + floor) / temperature and z its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits, put_at_label, put_masked
from hokical._core.special import FAR, at_least, at_most, contract, exponential
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array, store_float, store_temperature
from hokical.rules._probabilities import smoothed_logs, softmax

#: The third shape term is taken at this many temperatures.
SOFTER = 3.0
#: Least probability of another class that the shape terms distinguish from 0.
LEAST_REST = 1e-12


@dataclass(frozen=True, eq=False)
class StructuredRule(Rule):
    """`shape` (3,), `scale` and `bias` (classes,), `cross` (classes, classes) or (0, 0) for none.

    `even` is the share of the uniform distribution over the possible classes in the probabilities.
    """

    name: ClassVar[str] = "structured"
    preserves_labels: ClassVar[bool] = False

    floor: float
    temperature: float
    shape: FloatArray
    scale: FloatArray
    bias: FloatArray
    cross: FloatArray
    even: float

    def __post_init__(self) -> None:
        store_float(self, "floor", 0.0, 1.0)
        store_temperature(self)
        check_array("shape", self.shape, (3,))
        check_array("scale", self.scale, (None,))
        size = self.scale.shape[0]
        check_array("bias", self.bias, (size,))
        without = isinstance(self.cross, np.ndarray) and self.cross.size == 0
        check_array("cross", self.cross, (0, 0) if without else (size, size))
        store_float(self, "even", 0.0, 1.0)

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        return self.proba_from(structured_features(logits, self.floor, self.temperature), logits)

    def proba_from(self, features: tuple[Array, ...], logits: Logits) -> Array:
        """Probabilities (n, classes) from `structured_features`."""
        xp = logits.xp
        z, *shapes = features
        scores = z * self.scale[None, :] + self.bias[None, :]
        terms = [term * self.shape[place] for place, term in enumerate(shapes)]
        if self.cross.shape[0]:
            terms.append(contract(z, xp.permute_dims(self.cross, (1, 0)), xp))
        for term in terms:  # in place, which keeps the memory order, and so the rounding of sums
            scores = np.add(scores, term, out=scores) if logits.is_numpy else scores + term
        return mix_evenly(softmax(scores, logits), self.even, logits)


def mix_evenly(proba: Array, even: Array, logits: Logits) -> Array:
    """Probabilities (n, classes) mixed with a share `even` of uniform ones on possible classes."""
    xp = logits.xp
    if logits.all_possible:
        return (1.0 - even) * proba + even * (1.0 / logits.n_classes)
    uniform = xp.astype(logits.possible, xp.float64) / logits.possible_counts[:, None]
    return (1.0 - even) * proba + even * uniform


def structured_features(
    logits: Logits, floor: Array, temperature: Array
) -> tuple[Array, Array, Array, Array]:
    """z and the three shape terms of a block, each (n, classes) and finite.

    A masked class counts as the least likely of the possible ones, so that cross terms stay
    finite; its own probability is 0 anyway.
    """
    return shape_features(floored_margins(logits, floor), logits, temperature)


def floored_margins(logits: Logits, floor: Array) -> Array:
    """The distance of log(p + floor) below the label's, (n, classes)."""
    if logits.is_numpy and floor == 0.0:
        return logits.margins
    smoothed = smoothed_logs(logits, floor)
    return logits.xp.max(smoothed, axis=1, keepdims=True) - smoothed


def shape_features(
    below: Array, logits: Logits, temperature: Array
) -> tuple[Array, Array, Array, Array]:
    """The same from `floored_margins` (n, classes).

    The second shape term is the softmax at the temperature, 0 for a masked class.
    """
    xp = logits.xp
    if not logits.all_possible:
        below = xp.where(logits.possible, below, xp.zeros_like(below))
        below = xp.where(logits.possible, below, xp.max(below, axis=1, keepdims=True))
    margins = at_most(below / temperature, FAR, xp)
    softer = exponential(margins * (-1.0 / SOFTER), xp)
    p, norm, miss = _softmax_parts(softer * softer * softer, logits)
    return -(margins + norm), miss, p, _softmax_parts(softer, logits)[2]


def _softmax_parts(odds: Array, logits: Logits) -> tuple[Array, Array, Array]:
    """Probabilities, minus the log of the label's (n, 1), and log(1 - probabilities).

    From the odds (n, classes) of every class to the label. The label's 1 - p is the sum of the
    others, which is precise where p is near 1.
    """
    xp = logits.xp
    rivals = put_at_label(odds, 0.0 * odds[:, :1], logits)
    rivals = put_masked(rivals, 0.0, logits)
    rest = xp.sum(rivals, axis=1, keepdims=True)
    norm, share = xp.log1p(rest), 1.0 / (1.0 + rest)
    p = put_at_label(rivals * share, share, logits)
    miss = xp.log(at_least(1.0 - p, LEAST_REST, xp))
    own = xp.log(at_least(rest, LEAST_REST, xp)) - norm
    return p, norm, put_at_label(miss, own, logits)
