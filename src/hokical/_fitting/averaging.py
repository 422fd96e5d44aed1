"""What the default's candidates say of examples they have not seen, and how they are weighed."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.leave_one_out import scores_left_out
from hokical._fitting.likelihood import WeightedExamples, effective_size
from hokical._fitting.linear_problem import LinearPoint
from hokical._fitting.simplex import AverageLoss, best_weights
from hokical._fitting.structured import StructuredFit
from hokical._fitting.structured_blocks import StructuredBlock, make_blocks
from hokical.rules._auto import PARTS, as_log_proba, average
from hokical.rules._probabilities import LEAST, softmax
from hokical.rules._structured import mix_evenly

#: Candidates are weighed on evenly spaced rows of at most about this many logits, at least so many
#: rows: the weights are few, and known well enough by then.
WEIGHED_SIZE, WEIGHED_ROWS = 1 << 17, 2500
#: Longest step in the logarithm of the temperature without an example.
_LONGEST_STEP = 4.0
#: What a candidate says to an example that speaks for another.
_UNLIKELY = 1e-9
#: Candidates with less weight are left out.
LEAST_WEIGHT = 0.01


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Examples, with what candidates say who have not seen them.

    `weights` (n,) sum to 1, and are those of `n_examples`; `probabilities` (n, classes) are those
    by each of `PARTS`, and `chances` (n, 3) those of the true class.
    """

    logits: Logits
    labels: IntArray
    weights: FloatArray
    n_examples: float
    probabilities: tuple[Array, ...]

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

    def best_weights(self, prior: FloatArray) -> FloatArray:
        """The weights (3,) of least log loss, those of no account left out.

        `prior` (3,) are examples, more than the given ones, that speak for one candidate alone.
        """
        biased = np.flatnonzero(prior)
        chances = np.vstack([self.chances, np.maximum(np.eye(len(PARTS)), _UNLIKELY)[biased]])
        counts = np.append(self.weights, prior[biased] / self.n_examples)
        loss = AverageLoss(chances, counts / counts.sum())
        found = best_weights(loss, np.full(len(PARTS), 1.0 / len(PARTS)))
        found = np.where(found < LEAST_WEIGHT, 0.0, found)
        return np.asarray(found / found.sum())

    def average(self, weights: FloatArray) -> Logits:
        """The average's log-probabilities of all examples, as logits."""
        mixed = average(self.probabilities, self.logits.from_host(weights), self.logits)
        return as_log_proba(mixed, self.logits)


def hold_out(examples: WeightedExamples, fit: StructuredFit) -> HeldOut:
    """What candidates say of an example when fitted on all others.

    `fit` is the structured one on all examples. Where only some rows are asked about, their
    curvature is taken for that of all. The floor, and the temperature inside structured scaling,
    stay those of the whole.
    """
    n_examples = effective_size(examples.weights)
    step = min(examples.logits.size // WEIGHED_SIZE, examples.logits.n_rows // WEIGHED_ROWS)
    some, point, problem = examples, fit.minimum.point, fit.minimum.point.problem
    with one_blas_thread():
        if step >= 2:
            some, rule = examples.every(step), fit.rule
            data = make_blocks(some, rule.temperature, problem.cross_terms, floor=rule.floor)
            problem = replace(problem, examples=data)
            point = problem.evaluate(fit.minimum.x)
        share = some.logits.n_rows / examples.logits.n_rows
        scores = scores_left_out(problem, point, fit.minimum.x, share)
        found = _evaluate(point, some, scores, _sharpen(point, some, share), 1.0 / n_examples)
    return HeldOut(some.logits, some.labels, some.weights, n_examples * share, found)


def _sharpen(point: LinearPoint, some: WeightedExamples, share: float) -> FloatArray:
    """What z is to be multiplied with for temperature scaling without each example, (n,).

    One Newton step in log(1/temperature), towards equal margins; see `best_temperature`.
    """
    by_block = point.problem.examples.map(StructuredBlock.margin_moments)
    moments = some.weights * np.concatenate([some.logits.to_host(part) for part in by_block], 1)
    others = np.maximum(moments.sum(axis=1, keepdims=True) - share * moments, 0.0)
    expected, observed, variance = others
    with np.errstate(divide="ignore", invalid="ignore"):  # all others are right, or all sure
        steps = (np.log(expected) - np.log(observed)) * expected / variance
    return np.asarray(np.exp(np.clip(np.nan_to_num(steps), -_LONGEST_STEP, _LONGEST_STEP)))


def _evaluate(
    point: LinearPoint,
    some: WeightedExamples,
    scores: list[Array],
    sharper: FloatArray,
    even: float,
) -> tuple[Array, ...]:
    """Probabilities (n, classes) by each of `PARTS`, of every row by the fit without it."""

    def work(block: StructuredBlock, part: Array, rows: slice) -> tuple[Array, Array, Array]:
        logits = some.logits.take(rows)
        scaled = softmax(block.z * logits.from_host(sharper[rows])[:, None], logits)
        corrected = mix_evenly(softmax(part, logits), even, logits)
        return softmax(-logits.margins, logits), scaled, corrected

    data = point.problem.examples
    parts = data.map(work, scores, data.rows)
    return tuple(some.logits.xp.concat(list(part), axis=0) for part in zip(*parts, strict=True))
