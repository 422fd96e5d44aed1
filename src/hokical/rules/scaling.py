"""Softmaxes of scaled logits: temperature, vector, ensemble and structured scaling.

Structured scaling is a conditional logit on smoothed, tempered log-probabilities: class k gets the
score

    scale_k z_k + bias_k + sum_j cross_kj z_j
        + shape . [log(1 - p_k), p_k],

where p is the softmax of log(softmax(logits) + floor) / temperature and z its logarithm. Without
shape terms, z is log(p / p of the label).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from hokical._core.arrays import Array, FloatArray
from hokical._core.checks import ArrayOf, Share, Temperature, check_array
from hokical._core.logits import Logits, put_at_label, put_masked
from hokical._core.special import FAR, at_least, contract, logarithm, plus, times
from hokical.rules.base import (
    Rule,
    are_apart,
    first_maximum,
    floored_margins,
    log_probabilities,
    softmax,
)
from hokical.stability import gumbel

#: How far from 1 rounding to float32, as of a state dict, may put the sum of the weights.
_ROUNDING = 1e-6
PerClass = Annotated[FloatArray, ArrayOf(("classes",))]


class SoftmaxRule(Rule):
    """The softmax of logits divided by a temperature."""

    accepts_top_k: ClassVar[bool] = True
    temperature: float

    def confidence(self, logits: Logits) -> Array:
        return gumbel.stability(logits, self.temperature)

    def proba(self, logits: Logits) -> Array:
        found = gumbel.softmax(logits, self.temperature)
        return found if are_apart(logits, self.temperature) else first_maximum(found, logits)


@dataclass(frozen=True)
class UncalibratedRule(SoftmaxRule):
    """The classifier's own softmax."""

    name: ClassVar[str] = "uncalibrated"
    temperature: ClassVar[float] = 1.0  # type: ignore[misc]


@dataclass(frozen=True)
class TemperatureRule(SoftmaxRule):
    """The softmax of logits divided by `temperature`."""

    name: ClassVar[str] = "temps"

    temperature: Temperature


@dataclass(frozen=True, eq=False)
class VectorRule(Rule):
    """softmax(`scale` * log-probabilities + `bias`), both (classes,)."""

    name: ClassVar[str] = "vecs"
    preserves_labels: ClassVar[bool] = False

    scale: PerClass
    bias: PerClass

    @property
    def n_parameters(self) -> int:
        return 2 * self.n_classes

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        features = log_probabilities(logits)
        return softmax(features * self.scale[None, :] + self.bias[None, :], logits)


@dataclass(frozen=True, eq=False)
class EnsembleRule(Rule):
    """Softmax at `temperature`, plain softmax and uniform distribution, mixed by `weights` (3,)."""

    name: ClassVar[str] = "ets"
    accepts_top_k: ClassVar[bool] = True

    temperature: Temperature
    weights: Annotated[FloatArray, ArrayOf((3,), 0.0, 1.0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.weights.sum() - 1.0) > _ROUNDING:
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")

    def confidence(self, logits: Logits) -> Array:
        scaled, plain = (gumbel.stability(logits, scale) for scale in (self.temperature, 1.0))
        return self._mix(scaled, plain, 1.0 / logits.possible_counts, logits)

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        scaled, plain = (gumbel.distribution(logits, scale) for scale in (self.temperature, 1.0))
        even = xp.where(logits.possible, 1.0 / logits.possible_counts[:, None], 0.0)
        return first_maximum(self._mix(scaled, plain, even, logits), logits)

    def _mix(self, scaled: Array, plain: Array, even: Array, logits: Logits) -> Array:
        """Their mean by the weights, which rounding must not lift above 1."""
        first, second, third = (self.weights[i] for i in range(3))
        return logits.xp.clip(first * scaled + second * plain + third * even, None, 1.0)


#: How many shape terms there are. In files of earlier versions there is a third, log(1 - p_k) at
#: this many temperatures.
N_SHAPES, SOFTER = 2, 3.0
#: Least probability of another class that the shape terms distinguish from 0.
LEAST_REST = 1e-12


@dataclass(frozen=True, eq=False)
class StructuredRule(Rule):
    """`scale` and `bias` (classes,), `shape` (2,), `cross` (classes, classes); or (0,) and (0, 0).

    `even` is the share of the uniform distribution over the possible classes in the probabilities.
    """

    name: ClassVar[str] = "structured"
    preserves_labels: ClassVar[bool] = False

    floor: Share
    temperature: Temperature
    shape: FloatArray
    scale: PerClass
    bias: PerClass
    cross: FloatArray
    even: Share

    def __post_init__(self) -> None:
        super().__post_init__()
        size, n_classes = np.size(self.shape), self.scale.shape[0]
        check_array("shape", self.shape, (size if size in (0, N_SHAPES + 1) else N_SHAPES,))
        check_array("cross", self.cross, (n_classes if np.size(self.cross) else 0,) * 2)

    def __str__(self) -> str:
        parts = [f"temperature {self.temperature:.5g}", f"floor {self.floor:.3g}"]
        parts.append(f"a scale and a bias for each of {self.n_classes} classes")
        parts += ["two shape terms"] * bool(self.shape.size)
        return ", ".join(parts + ["terms between classes"] * bool(self.cross.size))

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        return mix_evenly(softmax(self.scores(logits), logits), self.even, logits)

    def scores(self, logits: Logits) -> Array:
        """Scores (n, classes), whatever where masked."""
        if self.shape.shape[0]:
            return self.scores_from(self.features(logits), logits)
        below = floored_margins(logits, self.floor)
        scaled = below * (-self.scale / self.temperature)[None, :]
        return plus(scaled, self.bias[None, :], logits.xp)

    def features(self, logits: Logits, proba: Array | None = None) -> tuple[Array, ...]:
        """z and the shape terms of a block, each (n, classes) and finite."""
        below = floored_margins(logits, self.floor, proba)
        return shape_features(below, logits, self.temperature, self.shape.shape[0])

    def scores_from(self, features: tuple[Array, ...], logits: Logits) -> Array:
        """Scores from z and the shape terms, which are overwritten in NumPy."""
        z, *shapes = features
        xp, scores = logits.xp, z * self.scale[None, :]
        scores = plus(scores, self.bias[None, :], xp)
        if self.cross.shape[0]:
            scores = plus(scores, contract(z, xp.permute_dims(self.cross, (1, 0)), xp), xp)
        for place, shape in enumerate(shapes):
            scores = plus(scores, times(shape, self.shape[place], xp), xp)
        return scores


def mix_evenly(proba: Array, even: Array, logits: Logits) -> Array:
    """Probabilities (n, classes) mixed with a share `even` of uniform ones on possible classes.

    NumPy's are overwritten.
    """
    xp = logits.xp
    if logits.is_numpy and even == 0.0:
        return proba
    uniform = 1.0 / logits.n_classes
    if not logits.all_possible:
        uniform = xp.astype(logits.possible, xp.float64) / logits.possible_counts[:, None]
    return plus(times(proba, 1.0 - even, xp), even * uniform, xp)


def shape_features(
    below: Array, logits: Logits, temperature: Array, n_shapes: int = N_SHAPES
) -> tuple[Array, ...]:
    """z and the shape terms (n, classes) from `floored_margins` (n, classes).

    A masked class counts as the least likely of the possible ones, so that cross terms stay finite;
    its own probability is 0 anyway. The second shape term is the softmax at the temperature, 0 for
    a masked class.
    """
    xp = logits.xp
    if not logits.all_possible:
        below = xp.where(logits.possible, below, xp.zeros_like(below))
        below = xp.where(logits.possible, below, xp.max(below, axis=1, keepdims=True))
    scores = at_least(below * (-1.0 / temperature), -FAR, xp)
    p, norm, miss = _softmax_parts(xp.exp(scores), logits)
    shapes = [miss, p]
    if n_shapes > N_SHAPES:
        shapes.append(_softmax_parts(xp.exp(scores * (1.0 / SOFTER)), logits)[2])
    return plus(scores, -norm, xp), *shapes


def _softmax_parts(odds: Array, logits: Logits) -> tuple[Array, Array, Array]:
    """Probabilities, minus the log of the label's (n, 1), and log(1 - probabilities).

    From the odds (n, classes) of every class to the label, which NumPy's are overwritten by. The
    label's 1 - p is the sum of the others, which is precise where p is near 1.
    """
    xp = logits.xp
    rivals = put_at_label(odds, 0.0 * odds[:, :1], logits)
    rivals = put_masked(rivals, 0.0, logits)
    rest = xp.sum(rivals, axis=1, keepdims=True)
    share = 1.0 / (1.0 + rest)
    p = put_at_label(times(rivals, share, xp), share, logits)
    others = put_at_label(1.0 - p, rest * share, logits)
    return p, xp.log1p(rest), logarithm(at_least(others, LEAST_REST, xp), xp)
