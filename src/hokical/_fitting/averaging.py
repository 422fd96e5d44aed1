"""Few classes: three candidates, averaged with weights of least held-out log loss (stacking)."""

from dataclasses import replace

import numpy as np

from hokical._core.arrays import Array
from hokical._core.types import FloatArray
from hokical._fitting.base_fit import BaseFit
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.leave_one_out import scores_left_out
from hokical._fitting.likelihood import WeightedExamples, effective_size
from hokical._fitting.linear_problem import LinearPoint
from hokical._fitting.simplex import AverageLoss, best_weights
from hokical._fitting.structured import StructuredFit, fit_structured_base
from hokical._fitting.structured_blocks import StructuredBlock, make_blocks
from hokical._fitting.temperature import steps_without_each
from hokical.rules._auto import PARTS, Average, as_log_proba
from hokical.rules._probabilities import LEAST, softmax
from hokical.rules._structured import mix_evenly

#: Candidates are weighed, and rows corrected, on rows of at most about this many logits, at least
#: this many rows: few numbers are chosen, and known well enough by then.
WEIGHED_SIZE, WEIGHED_ROWS = 1 << 17, 2500
#: The weights begin with examples that speak for structured scaling of two classes; or, of more,
#: for temperature scaling, by the class beyond two, and at most.
FOR_STRUCTURED, FOR_TEMPERATURE, MOST_FOR_TEMPERATURE = 2.0, 0.25, 6.0
#: The probability that other candidates give to such an example.
_UNLIKELY = 1e-9
#: Candidates with less weight are left out.
LEAST_WEIGHT = 0.01
#: The fit ends with a Newton step that promises no more than this in mean log loss; less where that
#: is below the second, down to 1 %. About a hundredth of it is left.
TOLERANCE, SMALL_LOSS, MAX_ITER = 1e-4, 0.1, 200


def fit_average(examples: WeightedExamples) -> BaseFit:
    """Fit structured scaling and the weights of the candidates."""
    _, fit = fit_structured_base(
        examples,
        cross_terms=True,
        tol=lambda loss: TOLERANCE * min(max(loss / SMALL_LOSS, 0.01), 1.0),
        max_iter=MAX_ITER,
    )
    some, parts = _hold_out(examples, fit)
    logits = some.logits
    truth = logits.from_host(some.labels)[:, None]
    own = [logits.to_host(logits.xp.take_along_axis(part, truth, axis=1)) for part in parts]
    chances = np.maximum(np.concatenate(own, axis=1), LEAST)
    n_examples = effective_size(some.weights)
    weights = _best_weights(chances, some.weights, _prior(examples.n_classes) / n_examples)
    mixed = sum(part * weight for part, weight in zip(parts, weights.tolist(), strict=True))
    losses = dict(zip(PARTS, (-some.weights @ np.log(chances)).tolist(), strict=True))
    losses["average"] = float(-some.weights @ np.log(chances @ weights))
    return BaseFit(
        Average(weights, fit.rule),
        0.0,
        some,
        n_examples,
        as_log_proba(mixed, logits),
        {PARTS[i]: float(weight) for i, weight in enumerate(weights) if weight > 0.0},
        losses,
        fit.minimum.converged,
    )


def _prior(n_classes: int) -> FloatArray:
    """Examples (3,) that speak for one of `PARTS` before any is seen."""
    if n_classes == 2:
        return np.array([0.0, 0.0, FOR_STRUCTURED])
    return np.array([0.0, min(FOR_TEMPERATURE * (n_classes - 2.0), MOST_FOR_TEMPERATURE), 0.0])


def _best_weights(chances: FloatArray, counts: FloatArray, prior: FloatArray) -> FloatArray:
    """The weights (3,) of least log loss, small ones left out.

    `chances` (n, 3) are the candidates' probabilities of the true classes, `counts` (n,) sum to 1,
    and `prior` (3,) are more examples, each for one candidate alone.
    """
    biased = np.flatnonzero(prior)
    chances = np.vstack([chances, np.maximum(np.eye(len(PARTS)), _UNLIKELY)[biased]])
    counts = np.append(counts, prior[biased])
    loss = AverageLoss(chances, counts / counts.sum())
    found = best_weights(loss, np.full(len(PARTS), 1.0 / len(PARTS)))
    found = np.where(found < LEAST_WEIGHT, 0.0, found)
    return np.asarray(found / found.sum())


def _hold_out(
    examples: WeightedExamples, fit: StructuredFit
) -> tuple[WeightedExamples, tuple[Array, ...]]:
    """Some examples, and the probabilities (n, classes) of candidates fitted on all others.

    Where only some rows are used, their curvature is taken for that of all. The floor, and the
    temperature inside structured scaling, stay those of the whole.
    """
    logits = examples.logits
    step = min(logits.size // WEIGHED_SIZE, logits.n_rows // WEIGHED_ROWS)
    some, point, problem = examples, fit.minimum.point, fit.minimum.point.problem
    with one_blas_thread():
        if step >= 2:
            some, rule = examples.every(step), fit.rule
            data = make_blocks(some, rule.temperature, problem.cross_terms, floor=rule.floor)
            problem = replace(problem, examples=data)
            point = problem.evaluate(fit.minimum.x)
        share = some.logits.n_rows / logits.n_rows
        scores = scores_left_out(problem, point, fit.minimum.x, share)
        even = 1.0 / effective_size(examples.weights)
        return some, _evaluate(point, some, scores, _sharpen(point, some, share), even)


def _sharpen(point: LinearPoint, some: WeightedExamples, share: float) -> FloatArray:
    """What z is to be multiplied with for temperature scaling without each example, (n,)."""
    by_block = point.problem.examples.map(StructuredBlock.margin_moments)
    moments = np.concatenate([some.logits.to_host(part) for part in by_block], axis=1)
    return steps_without_each(moments, some.weights, share)


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
