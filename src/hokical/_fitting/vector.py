"""Vector scaling: a scale and a bias for each class's log-probability, with a tiny ridge.

The features are log-probabilities at the base temperature T, so the objective's v and b are
scale = (1 + v) / T and bias = b. The ridge is on unit (scale - 1 / T) and on the biases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array
from hokical._core.parallel import one_blas_thread
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import TIGHT, Solution, cg_steps, dense_step, minimize_newton
from hokical._fitting.softmax_objective import (
    ClassBlocks,
    FeatureBlock,
    SoftmaxObjective,
    make_blocks,
)
from hokical._fitting.temperature import base_temperature, typical_spread
from hokical.rules._checks import LARGEST_TEMPERATURE
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
    bounds = _REACH[0] * spread, min(_REACH[1] * spread, LARGEST_TEMPERATURE)
    temperature = base_temperature(examples, spread, bounds).x
    unit, n_classes = min(temperature, spread), examples.n_classes
    blocks = make_blocks(
        examples, lambda block: (log_probabilities(block) / temperature,), cross_terms=False
    )
    penalty = ridge * np.tile([(unit / temperature) ** 2, 1.0], n_classes)
    objective = SoftmaxObjective(blocks, penalty)
    tol, steps = TIGHT, lambda point: dense_step(point.gradient, point.hessian())
    if n_classes > DENSE_CLASSES:
        tol = _MANY_CLASSES_TOLERANCE
        steps = cg_steps(lambda point: ClassBlocks(point).solve, tol=tol)
    start, units = np.zeros(penalty.size), np.sqrt(ridge / penalty)
    with one_blas_thread():
        found = minimize_newton(
            objective.evaluate, start, steps, tol=tol, max_iter=max_iter, units=units
        )
    v, bias = found.x.reshape(-1, 2).T
    losses = objective.total(_class_losses, found.point.proba)
    price = 0.5 * (penalty * found.x**2).reshape(-1, 2).sum(axis=1)
    present = np.bincount(examples.labels, minlength=n_classes) > 0
    separated = np.flatnonzero((price >= losses) & present)
    # A constant added to all biases has no effect.
    return VectorFit(
        (1.0 + v) / temperature, bias - bias.mean(), found.point.log_loss, separated, found
    )


def _class_losses(block: FeatureBlock, proba: Array) -> Array:
    """The sum (classes,) of each class's log loss against all others."""
    xp = block.xp
    against = -xp.log1p(-xp.clip(proba, None, _ALMOST_ONE))
    own = -xp.log(xp.clip(proba, 1e-300, None))
    return xp.sum(block.weights * block.replace_true(against, own), axis=0)
