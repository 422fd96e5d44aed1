"""Vector scaling: a scale and a bias for each class's log-probability, with a tiny ridge.

The features are log-probabilities at the base temperature T, so the objective's v and b are
scale = (1 + v) / T and bias = b. The ridge is on unit (scale - 1 / T) and on the biases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.newton import TIGHT, Solution, cg_steps, dense_step, minimize_newton
from hokical._fitting.softmax_moments import typical_spread
from hokical._fitting.softmax_objective import (
    FeatureBlock,
    SoftmaxObjective,
    SoftmaxPoint,
    class_preconditioner,
    make_blocks,
)
from hokical._fitting.temperature import base_temperature
from hokical.rules._probabilities import log_probabilities

#: Above this many classes, conjugate gradients cost less than the Hessian; the last step then
#: promises no more than this.
DENSE_CLASSES, _MANY_CLASSES_TOLERANCE = 300, 1e-9
#: Spreads of log-probabilities below the first are near their rounding errors; those above the
#: second leave no room for temperatures.
_SPREADS = (1e-6, 1e100)
#: The base temperature is sought between these multiples of the spread: a wild example or two can
#: ask for a very high one.
_REACH = (1e-5, 1e30)
#: Probabilities this close to 1 are cut, so that the log of the rest is finite.
_ALMOST_ONE = 1.0 - 1e-16


@dataclass(frozen=True, eq=False)
class VectorFit:
    """Scales and biases (classes,), the mean log loss, the classes that are perfectly separated
    from all others, and how the search ended.
    """

    scale: FloatArray
    bias: FloatArray
    log_loss: float
    separated: IntArray
    solution: Solution[FloatArray]


def fit_vector(examples: Examples, ridge: float, max_iter: int) -> VectorFit:
    spread = min(max(typical_spread(examples), _SPREADS[0]), _SPREADS[1])
    temperature = base_temperature(examples, spread, _REACH)
    unit = min(temperature, spread)
    objective = vector_objective(examples, temperature, unit, ridge)
    dense = examples.n_classes <= DENSE_CLASSES
    tol = TIGHT if dense else _MANY_CLASSES_TOLERANCE
    steps = _dense_step if dense else cg_steps(class_preconditioner, tol=tol)
    start, units = np.zeros(objective.penalty.size), np.sqrt(ridge / objective.penalty)
    with one_blas_thread():
        found = minimize_newton(
            objective.evaluate, start, steps, tol=tol, max_iter=max_iter, units=units
        )
    v, bias = found.x.reshape(-1, 2).T
    losses = objective.total(_class_losses, found.point.proba)
    penalty = 0.5 * (objective.penalty * found.x**2).reshape(-1, 2).sum(axis=1)
    present = np.bincount(examples.labels, minlength=examples.n_classes) > 0
    separated = np.flatnonzero((penalty >= losses) & present)
    # A constant added to all biases has no effect.
    return VectorFit(
        (1.0 + v) / temperature, bias - bias.mean(), found.point.log_loss, separated, found
    )


def vector_objective(
    examples: Examples, temperature: float, unit: float, ridge: float
) -> SoftmaxObjective:
    """The objective of (v_k, b_k) for each class k, (2 classes,)."""

    def features(block: Logits) -> tuple[Array]:
        z = log_probabilities(block) / temperature
        return (z if block.all_possible else block.xp.where(block.possible, z, 0.0 * z),)

    penalty = ridge * np.tile([(unit / temperature) ** 2, 1.0], examples.n_classes)
    return SoftmaxObjective(make_blocks(examples, features, cross_terms=False), penalty)


def _dense_step(point: SoftmaxPoint) -> tuple[FloatArray, bool]:
    return dense_step(point.gradient, point.hessian())


def _class_losses(block: FeatureBlock, proba: Array) -> Array:
    """The sum (classes,) of each class's log loss against all others."""
    xp = block.xp
    against = -xp.log1p(-xp.clip(proba, None, _ALMOST_ONE))
    own = -xp.log(xp.clip(proba, 1e-300, None))
    return xp.sum(block.weights * block.replace_true(against, own), axis=0)
