"""A scale and a bias for each of many classes, shrunk twice: by a ridge, and by held-out log loss.

With x = margins / temperature, the scores are -x (1 + v) + b. The objective is the mean log loss
plus strength K / (2 n) (|v|^2 + |b|^2), for n examples of K classes, minimised by Newton steps with
one (2, 2) block of the Hessian per class: what ties classes together fades as they become many.
The same blocks give the scores of each example by a fit without it. A share of (v, b) is used: the
one of least held-out log loss.
"""

from __future__ import annotations

import numpy as np

from hokical._core.arrays import Array
from hokical._core.types import FloatArray
from hokical._fitting.averaging import BaseFit, weighing_step
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.newton import minimize_newton
from hokical._fitting.softmax_objective import (
    ClassBlocks,
    FeatureBlock,
    SoftmaxObjective,
    SoftmaxPoint,
    make_blocks,
)
from hokical._fitting.temperature import choose_base, sharpen_without_each
from hokical.rules._auto import ClassScaling, as_scores
from hokical.rules._probabilities import softmax

#: Strength of the ridge, in examples.
STRENGTH = 0.3
#: The fit ends with a step that promises no more than this in mean log loss.
TOLERANCE, MAX_ITER = 3e-4, 20
#: Before any example is seen, so many speak against a scale and a bias; a share below is left out.
PRIOR_EXAMPLES, LEAST_SHARE = 6.0, 0.01
#: Scales stay above this, so that the order of a class's margins is kept.
LEAST_SCALE = 0.05


def fit_class_scaling(examples: Examples) -> BaseFit:
    """Fit a floor, the temperature, and then scales and biases."""
    base = choose_base(examples, for_noise=False)  # the row correction is
    floored, temperature = base.examples, base.temperature.x
    logits, xp, n_examples = floored.logits, floored.logits.xp, examples.effective_size
    objective = class_objective(floored, temperature, STRENGTH * examples.n_classes / n_examples)
    start = np.zeros(objective.penalty.size)
    found = minimize_newton(objective.evaluate, start, class_step, tol=TOLERANCE, max_iter=MAX_ITER)
    # Without scales and biases: the temperature that suits all other examples.
    sharper = logits.from_host(sharpen_without_each(floored, temperature) / temperature)
    plain = logits.margins * -sharper[:, None]
    scaled = xp.concat(scores_left_out(found.point, found.x), axis=0)
    share = best_share(floored, plain, scaled, PRIOR_EXAMPLES / n_examples)
    values = plain if share == 0.0 else plain + share * (scaled - plain)
    v, bias = share * found.x.reshape(-1, 2).T
    return BaseFit(
        ClassScaling(temperature, np.maximum(1.0 + v, LEAST_SCALE), bias),
        base.floor,
        examples,
        as_scores(values, logits),
        {"temps": 1.0 - share} | ({"class scaling": share} if share > 0.0 else {}),
        {},
        base.temperature.converged,
    )


def class_objective(examples: Examples, temperature: float, penalty: float) -> SoftmaxObjective:
    """The objective of (v_k, b_k) for each class k, (2 classes,)."""
    blocks = make_blocks(
        examples, lambda block: (block.margins * (-1.0 / temperature),), cross_terms=False
    )
    return SoftmaxObjective(blocks, np.full(2 * examples.n_classes, penalty))


def class_step(point: SoftmaxPoint) -> tuple[FloatArray, bool]:
    return -ClassBlocks(point).solve(point.gradient), True


def scores_left_out(point: SoftmaxPoint, coef: FloatArray) -> list[Array]:
    """Scores (rows, classes) by blocks, of each example by a fit without it."""
    about = ClassBlocks(point)
    square, cross, count = about.second[:, 0], about.first[:, 0], about.second[:, 1]
    inverse = np.stack([count, -2.0 * cross, square]) / (square * count - cross * cross)

    def work(block: FeatureBlock, proba: Array) -> Array:
        a, b, c = block.from_host(inverse)
        spread = ((block.z * a + b) * block.z + c) * block.weights
        change = spread * block.residual(proba) / (1.0 - spread * (proba - proba * proba))
        return block.scores(block.from_host(coef)) + change

    return point.objective.map(work, point.proba)


def best_share(examples: Examples, plain: Array, scaled: Array, prior: float) -> float:
    """The share of the class terms, 0 to 1, of least held-out log loss, with a prior for 0."""
    logits = examples.logits
    step = weighing_step(logits)
    if step >= 2:
        rows = spaced_rows(0, examples.n_rows, step)
        there = logits.from_host(rows)
        examples = examples.take(rows)
        plain, scaled = (logits.xp.take(table, there, axis=0) for table in (plain, scaled))
    logits, change, share = examples.logits, scaled - plain, 0.5
    xp, weights = logits.xp, logits.from_host(examples.share)
    truth = logits.from_host(examples.labels)[:, None]
    own = xp.take_along_axis(change, truth, axis=1)[:, 0]
    for _ in range(MAX_ITER):
        proba = softmax(plain + share * change, logits)
        mean = xp.sum(proba * change, axis=1)
        variance = xp.sum(proba * change * change, axis=1) - mean * mean
        slope = float(xp.sum(weights * (mean - own))) + prior / (1.0 - share)
        curvature = float(xp.sum(weights * variance)) + prior / (1.0 - share) ** 2
        before = share
        share = min(max(share - slope / curvature, 0.1 * share), 0.9 + 0.1 * share)
        if abs(share - before) <= 0.1 * LEAST_SHARE:
            break
    return share if share >= LEAST_SHARE else 0.0
