"""Held-out probabilities of the default's candidates, and the weights of their average."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.portable import uniform_draws
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.floor import ROUGH_TOLERANCE
from hokical._fitting.likelihood import WeightedExamples
from hokical._fitting.linear_problem import LinearPoint
from hokical._fitting.newton_cg import minimize_newton_cg, solve_cg
from hokical._fitting.simplex import AverageLoss, best_weights
from hokical._fitting.solution import Solution
from hokical._fitting.structured import StructuredFit
from hokical._fitting.structured_blocks import StructuredBlock, make_blocks
from hokical._fitting.temperature import best_temperature, log_step
from hokical.rules._auto import LEAST, PARTS, as_log_proba, average
from hokical.rules._probabilities import softmax
from hokical.rules._structured import mix_evenly
from hokical.stability._api import draw_seed

#: Candidates are weighed on evenly spaced rows of at most about this many logits, at least so many
#: rows: the weights are few, and known well enough by then.
WEIGHED_SIZE, WEIGHED_ROWS = 1 << 20, 5000
#: A fit without a fold is one Newton step from the whole fit, unless that promises more than this
#: in mean log loss; then it goes on until a step promises no more than the second.
ONE_STEP, FOLD_TOLERANCE = 2.5e-3, 3e-4
#: Both are less where the mean log loss is below this.
SMALL_LOSS = 0.1
#: Likewise for the temperature: the longest step in its logarithm that is the only one.
ONE_TEMPERATURE_STEP = 0.05
#: How exactly the one Newton step is solved: what is left of the squared residual.
CG_ACCURACY = 1e-2
#: Most Newton steps of a fit without a fold.
MAX_ITER = 50
#: Candidates with less weight are left out.
LEAST_WEIGHT = 0.01


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Examples, with what candidates say who have not seen them.

    `weights` (n,) sum to 1, and are those of `n_examples`; `probabilities` (n, classes) are those
    by each of `PARTS`, and `probabilities` (n, 3) those of the true class.
    """

    logits: Logits
    labels: IntArray
    weights: FloatArray
    n_examples: float
    probabilities: tuple[Array, ...]
    converged: bool = True

    @cached_property
    def chances(self) -> FloatArray:
        truth = self.logits.from_host(self.labels)[:, None]
        take = self.logits.xp.take_along_axis
        own = [self.logits.to_host(take(part, truth, axis=1)) for part in self.probabilities]
        return np.asarray(np.maximum(np.concatenate(own, axis=1), LEAST))

    @property
    def losses(self) -> FloatArray:
        """Mean log loss of each candidate."""
        return np.asarray(-self.weights @ np.log(self.chances))

    def best_weights(self) -> FloatArray:
        """The weights (3,) of least log loss, those of no account left out."""
        loss = AverageLoss(self.chances, self.weights)
        found = best_weights(loss, np.full(len(PARTS), 1.0 / len(PARTS)))
        found = np.where(found < LEAST_WEIGHT, 0.0, found)
        return np.asarray(found / found.sum())

    def average(self, weights: FloatArray) -> Logits:
        """The average's log-probabilities of all examples, as logits."""
        mixed = average(self.probabilities, self.logits.from_host(weights), self.logits)
        return as_log_proba(mixed, self.logits)


def hold_out(
    examples: WeightedExamples,
    n_examples: float,
    fit: StructuredFit,
    *,
    n_folds: int,
    random_state: Any,
) -> HeldOut:
    """What candidates say when fitted without the fold that they are asked about.

    `fit` is the structured one on all examples. Where only some rows are asked about, fits without
    a fold of them still have all other rows, whose curvature is taken to be that of the some. The
    floor, and the temperature inside structured scaling, stay those of the whole.
    """
    step = min(examples.logits.size // WEIGHED_SIZE, examples.logits.n_rows // WEIGHED_ROWS)
    some, floored, whole = examples, fit.examples, fit.minimum.point
    with one_blas_thread():
        if step >= 2:
            some, floored = examples.every(step), floored.every(step)
            data = make_blocks(floored, fit.rule.temperature, whole.problem.crossed)
            whole = replace(whole.problem, examples=data).evaluate(fit.minimum.x)
        share = some.logits.n_rows / examples.logits.n_rows
        fold = assign_folds(some.labels, n_folds, draw_seed(random_state))
        kept = [np.where(fold == number, 1.0 - share, 1.0) for number in range(n_folds)]
        fits = [_leave_out(whole, part, fit.minimum) for part in kept]
        sharper = _sharpen(whole, floored, kept, fit.rule.temperature)
        counts = np.array([n_examples * float(some.weights @ part) for part in kept])
        found = _evaluate(whole, some, fold, [x for x, _ in fits], sharper, 1.0 / (counts + 1.0))
    converged = all(ended for _, ended in fits)
    return HeldOut(some.logits, some.labels, some.weights, n_examples * share, found, converged)


def _leave_out(
    whole: LinearPoint, kept: FloatArray, found: Solution[FloatArray]
) -> tuple[FloatArray, bool]:
    """The coefficients (p,) with weights multiplied by `kept` (n,), and whether they are final."""
    problem = whole.problem
    others = replace(problem, examples=problem.examples.weigh(kept))
    point = replace(whole, problem=others)
    residual = whole.gradient - point.gradient
    direction, _ = solve_cg(
        point.curvature_along, found.precondition, residual, relative=CG_ACCURACY
    )
    if 0.5 * float(residual @ direction) <= tighten(ONE_STEP, whole.value):
        return found.x + direction, True
    again = minimize_newton_cg(
        others.evaluate,
        found.x + direction,
        tol=tighten(FOLD_TOLERANCE, whole.value),
        max_iter=MAX_ITER,
        precondition=found.precondition,
    )
    return again.x, again.converged


def tighten(tolerance: float, loss: float) -> float:
    """A tolerance in mean log loss, down to 1 % of it where the log loss itself is small."""
    return tolerance * min(max(loss / SMALL_LOSS, 0.01), 1.0)


def _sharpen(
    whole: LinearPoint, floored: WeightedExamples, kept: list[FloatArray], temperature: float
) -> FloatArray:
    """What z is to be multiplied with for temperature scaling without each fold, (folds,)."""
    data = whole.problem.examples
    by_block = [floored.logits.to_host(part) for part in data.map(StructuredBlock.margin_moments)]
    moments = floored.weights * np.concatenate(by_block, axis=1)
    found = []
    for part in kept:
        step = log_step(*(moments @ part))
        if abs(step) > ONE_TEMPERATURE_STEP:
            others = floored.take(np.flatnonzero(part == 1.0))
            exact = best_temperature(
                replace(others, weights=others.weights / others.weights.sum()),
                bounds=(1e-3 * temperature, 1e3 * temperature),
                tol=ROUGH_TOLERANCE,
                start=temperature,
            )
            step = np.log(temperature / exact.x)
        found.append(step)
    return np.exp(found)


def _evaluate(
    whole: LinearPoint,
    some: WeightedExamples,
    fold: IntArray,
    coefs: list[FloatArray],
    sharper: FloatArray,
    even: FloatArray,
) -> tuple[Array, ...]:
    """Probabilities (n, classes) by each of `PARTS`, of every row by the fit without its fold."""

    def work(block: StructuredBlock, rows: slice) -> tuple[Array, Array, Array]:
        logits = some.logits.part(rows)
        xp, which = logits.xp, fold[rows]
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(1, len(coefs)))
        parts = [
            block.take(own).scores(logits.from_host(coef))
            for own, coef in zip(np.split(order, ends), coefs, strict=True)
        ]
        back = logits.from_host(np.argsort(order))
        scores = xp.take(xp.concat(parts, axis=0), back, axis=0)
        scaled = block.z * logits.from_host(sharper[which])[:, None]
        uniform = logits.from_host(even[which])[:, None]
        own, scaled = softmax(-logits.margins, logits), softmax(scaled, logits)
        return own, scaled, mix_evenly(softmax(scores, logits), uniform, logits)

    parts = whole.problem.examples.map(work, whole.problem.examples.rows)
    return tuple(some.logits.xp.concat(list(part), axis=0) for part in zip(*parts, strict=True))


def assign_folds(labels: IntArray, n_folds: int, seed: int) -> IntArray:
    """The fold (n,) of every example, each class spread evenly.

    Equal rows go to any fold: classifiers that know few different answers, such as nearest
    neighbours, give many.
    """
    shuffled = np.argsort(uniform_draws(seed, (labels.size, 1))[:, 0], kind="stable")
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(labels.size, np.int64)
    fold[order] = np.arange(labels.size) % n_folds
    return fold
