"""Structured scaling at a given floor and temperature: solve, and make the rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical.core.types import FloatArray
from hokical.fitting.likelihood import CountedExamples, count_block
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
    """The rule, its mean log loss on the examples, and how the solver ended."""

    rule: StructuredRule
    log_loss: float
    minimum: Minimum


def count_possible(block: Block) -> tuple[CountedExamples, float]:
    """The examples that count and whose true class is possible, and how many they are."""
    counted = count_block(block)
    keep = np.flatnonzero(counted.weights)
    n_examples = float(block.counts[keep].sum())
    return counted.take(keep) if keep.size < block.n_rows else counted, n_examples


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
    start: FloatArray | None = None,
) -> StructuredFit:
    """Minimise from `start` (p,), a solution for similar examples, or from temperature scaling."""
    problem = StructuredProblem(
        examples, floor, temperature, crossed=crossed, strength=strength / n_examples
    )
    # Blocks of rows run on our threads; BLAS with threads of its own would do other sums.
    with threadpool_limits(1, user_api="blas"):
        begin = problem.start if start is None else start
        found = minimize_newton_cg(problem.evaluate, begin, tol=tol, max_iter=max_iter)
        even = 1.0 / (n_examples + 1.0)
        log_loss = problem.log_loss(problem.evaluate(found.x), even)
    w, v, b, m = problem.split(found.x)
    return StructuredFit(
        StructuredRule(floor, temperature, w, 1.0 + v, b, m, even), log_loss, found
    )
