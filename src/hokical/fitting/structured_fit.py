"""Structured scaling at a given floor and temperature: solve, and make the rule."""

from dataclasses import dataclass

import numpy as np

from hokical.fitting.blas import one_blas_thread
from hokical.fitting.likelihood import CountedExamples, count_block, effective_size
from hokical.fitting.newton import Minimum
from hokical.fitting.newton_cg import minimize_newton_cg
from hokical.fitting.partitions import Block
from hokical.fitting.structured import StructuredProblem
from hokical.rules.structured import StructuredRule

#: Strength of the penalty, in examples.
STRENGTH = 0.3
#: Cross terms are used up to this many classes.
MOST_CROSSED = 100


@dataclass(frozen=True, eq=False)
class StructuredFit:
    """The rule, its `examples` with the floor in their logits, its mean log loss, and the end."""

    rule: StructuredRule
    examples: CountedExamples
    log_loss: float
    minimum: Minimum


def count_possible(block: Block) -> tuple[CountedExamples, float]:
    """The examples that count and whose true class is possible, and their effective number."""
    counted = count_block(block)
    keep = np.flatnonzero(counted.weights)
    counted = counted.take(keep) if keep.size < block.n_rows else counted
    return counted, effective_size(counted.weights)


def fit_structured(
    examples: CountedExamples,
    n_examples: float,
    floor: float,
    temperature: float,
    *,
    crossed: bool,
    strength: float = STRENGTH,
    tol: float,
    max_iter: int,
) -> StructuredFit:
    """Minimise, from temperature scaling. The examples have the floor in their logits."""
    problem = StructuredProblem.of(
        examples, temperature, crossed=crossed, strength=strength / n_examples
    )
    with one_blas_thread():
        found = minimize_newton_cg(
            problem.evaluate,
            problem.centre,
            tol=tol,
            max_iter=max_iter,
            rough_start=problem.is_small,
        )
        even = 1.0 / (n_examples + 1.0)
        log_loss = problem.log_loss(found.point.proba, even)
    w, v, b, m = problem.split(found.x)
    rule = StructuredRule(floor, temperature, w, 1.0 + v, b, m, even)
    return StructuredFit(rule, examples, log_loss, found)
