"""Structured scaling of examples of any number: what a part leaves open is settled in passes.

A random part gives the floor and the temperature. Without cross terms, features of a good many
examples can be held as float32, and are fitted at once. Of more, a fit on the part gives the start
and the preconditioner; a few passes over all examples, with features made anew each time, then
reach the minimum of a fit that holds everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from hokical._core.arrays import Array
from hokical._core.jit import has_kernels
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.floor import choose_base, with_floor
from hokical._fitting.likelihood import ExampleSet, WeightedExamples, effective_size
from hokical._fitting.linear_problem import LinearPoint
from hokical._fitting.newton_cg import Product, minimize_newton_cg
from hokical._fitting.part_of_examples import SampledExamples
from hokical._fitting.solution import Solution
from hokical._fitting.structured import STRENGTH, StructuredFit, StructuredProblem, fit_structured
from hokical._fitting.structured_blocks import StructuredBlock, make_block, rows_at_a_time

#: Features of at most so many logits are held: 0.6 GB with the probabilities.
HELD_SIZE = 25 << 20
#: Coefficients, and the slope of the mean log loss there.
Place = tuple[FloatArray, FloatArray]


def fit_structured_base(
    examples: SampledExamples,
    *,
    cross_terms: bool,
    strength: float = STRENGTH,
    tol: Callable[[float], float],
    max_iter: int,
) -> tuple[Solution[float], StructuredFit]:
    """Temperature scaling of the part, and structured scaling of all examples upon it.

    `tol` is asked with the log loss of temperature scaling.
    """
    floor, base, floored = choose_base(examples.part)
    ending: dict[str, Any] = {"tol": tol(base.value), "max_iter": max_iter}
    options = {"cross_terms": cross_terms, "strength": strength, **ending}
    whole = examples.whole
    if not (examples.is_whole or cross_terms) and _can_hold(whole):
        del floored
        sizes = (examples.n_examples, floor, base.x)
        return base, fit_structured(whole, *sizes, **options, narrow=True)
    sizes = (effective_size(floored.weights), floor, base.x)
    first = fit_structured(floored, *sizes, **options)
    return base, first if examples.is_whole else _finish(first, examples, **ending)


def _can_hold(examples: ExampleSet) -> TypeGuard[WeightedExamples]:
    if not isinstance(examples, WeightedExamples):
        return False
    logits = examples.logits
    return has_kernels(logits) and logits.size <= HELD_SIZE and logits.all_possible


@dataclass(frozen=True, eq=False)
class StructuredPasses:
    """What the solver asks of `LinearExamples`; every answer is a pass."""

    examples: ExampleSet
    n_classes: int
    floor: float
    temperature: float
    cross_terms: bool

    def probabilities(self, coef: FloatArray) -> tuple[Place, float]:
        """The place, and the mean log loss there."""
        found = self._total(partial(_loss_and_slope, coef=coef))
        return (coef, found[1:]), float(found[0])

    def slope(self, place: Place) -> FloatArray:
        return place[1]

    def curvature(self, place: Place, direction: FloatArray) -> FloatArray:
        return self._total(partial(_curvature, coef=place[0], direction=direction))

    def moments(self, place: Place) -> FloatArray:
        return self._total(partial(_moments, coef=place[0]))

    def _total(self, work: Callable[[StructuredBlock], Array]) -> FloatArray:
        return self.examples.total(partial(self._sum_blocks, work=work))

    def _sum_blocks(
        self, examples: WeightedExamples, work: Callable[[StructuredBlock], Array]
    ) -> FloatArray:
        logits = examples.logits

        def on_rows(rows: slice) -> FloatArray:
            some = with_floor(examples.take(rows), self.floor)
            return logits.to_host(work(make_block(some, self.temperature, self.cross_terms)))

        step = rows_at_a_time(logits, self.cross_terms)
        parts = map_slices(on_rows, logits.n_rows, step, threads=logits.is_numpy)
        return np.asarray(np.sum(parts, axis=0))


def _loss_and_slope(block: StructuredBlock, coef: FloatArray) -> Array:
    xp = block.xp
    proba, loss = block.probabilities(block.backend.from_host(coef, block.inputs))
    return xp.concat([xp.reshape(xp.asarray(loss), (1,)), block.slope(proba)])


def _curvature(block: StructuredBlock, coef: FloatArray, direction: FloatArray) -> Array:
    there, along = (block.backend.from_host(array, block.inputs) for array in (coef, direction))
    return block.curvature(block.probabilities(there)[0], along)


def _moments(block: StructuredBlock, coef: FloatArray) -> Array:
    return block.moments(block.probabilities(block.backend.from_host(coef, block.inputs))[0])


@dataclass(frozen=True, eq=False)
class _ProblemInPasses(StructuredProblem):
    """The objective of all examples; a small Hessian is that of the part."""

    of_part: Product

    def invert_hessian(self, point: LinearPoint) -> Product:
        if self.is_small:
            return self.of_part
        return self._invert_by_class(*self.examples.moments(point.proba))


def _finish(
    first: StructuredFit, examples: SampledExamples, *, tol: float, max_iter: int
) -> StructuredFit:
    """The fit of all examples, from that of a part."""
    start, rule, whole = first.minimum, first.rule, examples.whole
    n_examples = effective_size(examples.part.weights), examples.n_examples
    part: StructuredProblem = start.point.problem
    part = replace(part, penalty=part.penalty * (n_examples[0] / n_examples[1]))
    passes: Any = StructuredPasses(
        whole, whole.n_classes, rule.floor, rule.temperature, part.cross_terms
    )
    problem = _ProblemInPasses(
        passes, part.penalty, part.centre, part.cross_terms, start.precondition
    )
    with one_blas_thread():
        found = minimize_newton_cg(problem.evaluate, start.x, tol=tol, max_iter=max_iter)
    away = found.x - part.centre
    log_loss = found.value - 0.5 * float(np.vdot(found.point.penalty_gradient, away))
    even = 1.0 / (n_examples[1] + 1.0)
    rule = part.rule(found.x, rule.floor, rule.temperature, even)
    return StructuredFit(rule, log_loss, found)
