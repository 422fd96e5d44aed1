"""Held-out probabilities of the default's candidates, and the weights of their average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.portable import uniform_draws
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.floor import ROUGH_TOLERANCE, with_floor
from hokical.fitting.folds import split_by_folds
from hokical.fitting.likelihood import CountedExamples
from hokical.fitting.simplex import AverageLoss, best_weights
from hokical.fitting.structured_fit import StructuredFit, fit_structured
from hokical.fitting.temperature import best_temperature
from hokical.rules.auto import (
    LEAST,
    PARTS,
    as_log_proba,
    average,
    candidate_probabilities,
)
from hokical.rules.structured import StructuredRule
from hokical.stability.api import draw_seed

#: Candidates are weighed on evenly spaced rows of at most about this many logits, at least so many
#: rows: the weights are few, and known well enough by then.
WEIGHED_SIZE, WEIGHED_ROWS = 1 << 20, 5000
#: Fits on folds start from the solution of the whole, and end with a Newton step that promises no
#: more than this in mean log loss; what such a step leaves is far less.
FOLD_TOLERANCE = 3e-4
#: Candidates with less weight are left out.
LEAST_WEIGHT = 0.01


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Examples in the order of their folds, with what candidates say who have not seen them.

    `chances` (n, candidates) are those of the true class; `weights` (n,) sum to 1, and are those of
    `n_examples`; `probabilities` are kept by folds, each with its logits, for the average's sake.
    """

    chances: FloatArray
    labels: IntArray
    weights: FloatArray
    n_examples: float
    probabilities: list[tuple[Logits, tuple[Array, ...]]]

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
        made = [
            as_log_proba(average(parts, logits.beside(weights), logits), logits)
            for logits, parts in self.probabilities
        ]
        xp = made[0].xp
        values = xp.concat([part.values for part in made], axis=0)
        return Logits(values, xp.concat([part.top for part in made], axis=0), made[0].backend)


def hold_out(
    examples: CountedExamples,
    n_examples: float,
    fit: StructuredFit,
    *,
    n_folds: int,
    random_state: Any,
) -> HeldOut:
    """What candidates say when fitted without the fold that they are asked about.

    `fit` is the structured one on all examples.
    """
    step = min(examples.logits.size // WEIGHED_SIZE, examples.logits.n_rows // WEIGHED_ROWS)
    some = examples if step < 2 else examples.every(step)
    n_some = n_examples * some.logits.n_rows / examples.logits.n_rows
    splits = split_by_folds(assign_folds(some.labels, n_folds, draw_seed(random_state)))
    chances, found = [], []
    for others, rows in splits:
        share = float(some.weights[others].sum())
        seen = some.take(np.flatnonzero(others))
        seen = replace(seen, weights=seen.weights / share)
        logits = some.logits.take(np.flatnonzero(rows))
        refit = _refit(fit, seen, n_some * share).beside(logits)
        parts = candidate_probabilities(refit, logits)
        truth = logits.beside(some.labels[rows])[:, None]
        own = [logits.xp.take_along_axis(part, truth, axis=1)[:, 0] for part in parts]
        chances.append(np.stack([logits.on_host(part) for part in own], axis=1))
        found.append((logits, parts))
    order = np.concatenate([np.flatnonzero(rows) for _, rows in splits])
    held = np.maximum(np.concatenate(chances), LEAST)
    return HeldOut(held, some.labels[order], some.weights[order], n_some, found)


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


def _refit(fit: StructuredFit, examples: CountedExamples, n_examples: float) -> StructuredRule:
    """The same fit of other examples, from its solution; the floor stays."""
    rule = fit.rule
    floored = with_floor(examples, rule.floor)
    found = fit_structured(
        examples,
        n_examples,
        rule.floor,
        best_temperature(floored, tol=ROUGH_TOLERANCE, start=rule.temperature).temperature,
        crossed=rule.cross.size > 0,
        tol=FOLD_TOLERANCE,
        max_iter=20,
        start=fit.minimum.x,
    )
    return found.rule
