"""Choosing the penalties of the ODIR methods: cross-validation along paths of falling strength."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from hokical.calibrators._odir_objective import (
    Examples,
    identity,
    linear_scores,
    penalty_matrix,
    softmax_in_place,
)
from hokical.calibrators._odir_solver import minimise
from hokical.logits import Logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
#: Rows (n,) to learn from and rows to test on.
Split = tuple[BoolArray, BoolArray]

#: Half decades; a path ends early, so the small ones cost only where they are useful.
QUICK_LAMBDAS = tuple(10.0 ** (k / 2) for k in range(12, -5, -1))
#: The first keeps the bias out while lambda is chosen.
QUICK_MUS = (10.0, 1.0, 0.1, 0.01, 0.001)
#: A path of falling penalties ends after this many settings without a better score.
PATIENCE = 2
#: Scores need not be exact to be compared: the solver's tolerance while cross-validating.
SEARCH_TOL = 1e-6


@dataclass(frozen=True, eq=False)
class Trial:
    """One cross-validated setting; `coefs` are its fits, one per fold, to start the next from."""

    strength: tuple[float, float]
    log_loss: float
    converged: bool
    coefs: list[FloatArray]


def distinct_examples(logits: Logits, labels: IntArray) -> IntArray:
    """A number (n,) per example, the same for copies, counted by first appearance.

    Rows are compared relative to their top and in float32, so neither a shift of the row nor the
    precision it was stored in tells copies apart.
    """
    numbers: dict[bytes, int] = {}
    out = np.empty(logits.n_rows, np.int64)
    for rows in logits.row_blocks():
        with np.errstate(over="ignore"):
            below = logits.margins(rows).astype(np.float32)
        for row, example, label in zip(
            range(rows.start, rows.stop), below, labels[rows], strict=True
        ):
            key = hashlib.blake2b(example.tobytes(), digest_size=16, salt=label.tobytes()).digest()
            out[row] = numbers.setdefault(key, len(numbers))
    return out


def fold_numbers(logits: Logits, labels: IntArray, n_folds: int, random_state: Any) -> IntArray:
    """The fold (n,) of every example: each class spread evenly, copies together.

    Weight 2 and a repeated row give the same folds, and so does renumbering the classes: these are
    taken in the order in which a shuffle meets them.
    """
    group = distinct_examples(logits, labels)
    n_groups = int(group.max()) + 1
    group_label = np.empty(n_groups, np.int64)
    group_label[group] = labels
    shuffled = check_random_state(random_state).permutation(n_groups)
    _, met, which = np.unique(group_label[shuffled], return_index=True, return_inverse=True)
    by_class = shuffled[np.argsort(met[which], kind="stable")]
    fold = np.empty(n_groups, np.int64)
    fold[by_class] = np.arange(n_groups) % n_folds
    return np.asarray(fold[group])


def splits_from_folds(folds: IntArray) -> list[Split]:
    """One split per fold, which is tested on what the others learned; none with a single fold."""
    numbers = np.unique(folds)
    return [(folds != fold, folds == fold) for fold in numbers] if numbers.size > 1 else []


def splits_from_indices(
    pairs: Sequence[tuple[Any, Any]], n_rows: int, keep: IntArray
) -> list[Split]:
    """The user's (train, test) row indices, for the rows in `keep`; empty ones are dropped."""
    splits = []
    for pair in pairs:
        masks = []
        for indices in pair:
            mask = np.zeros(n_rows, np.bool_)
            mask[np.asarray(indices)] = True
            masks.append(mask[keep])
        if all(mask.any() for mask in masks):
            splits.append((masks[0], masks[1]))
    return splits


class PenaltySearch:
    """Cross-validated log loss along paths of falling penalties, with warm starts.

    `trials` holds what was tried, in order.
    """

    def __init__(
        self, examples: Examples, splits: list[Split], scale: float, max_iterations: int
    ) -> None:
        self.examples = examples
        self.splits = splits
        self.scale = scale
        self.max_iterations = max_iterations
        self.trials: list[Trial] = []

    def walk(self, path: Sequence[tuple[float, float]], start: Trial | None = None) -> Trial:
        """Try the settings in order until they stop helping; the best of them and of `start`."""
        best = last = start
        worse = 0
        for strength in path:
            last = self._try(strength, last)
            if best is None or last.log_loss < best.log_loss:
                best, worse = last, 0
            else:
                worse += 1
            if worse >= PATIENCE:
                break
        assert best is not None
        return best

    def _try(self, strength: tuple[float, float], near: Trial | None) -> Trial:
        n_classes = self.examples.n_classes
        penalty = penalty_matrix(n_classes, strength, self.scale)
        total, counted, converged = 0.0, 0.0, True
        coefs: list[FloatArray] = []
        for train, test in self.splits:
            start = identity(n_classes) if near is None else near.coefs[len(coefs)]
            fit = minimise(
                self.examples.take(train),
                penalty,
                start,
                tol=SEARCH_TOL,
                max_iterations=self.max_iterations,
            )
            coefs.append(fit.coef)
            converged &= fit.converged
            total += self._held_out_loss(test, fit.coef)
            counted += float(self.examples.weights[test].sum())
        self.trials.append(Trial(strength, total / counted, converged, []))
        return Trial(strength, total / counted, converged, coefs)

    def _held_out_loss(self, rows: BoolArray, coef: FloatArray) -> float:
        """The rows' part of the mean log loss over all examples."""
        part = self.examples.take(rows)
        loss = softmax_in_place(linear_scores(part, coef), part.masked, part.labels)
        return float(self.examples.weights[rows] @ loss)


def paper_grid(n_classes: int) -> tuple[list[float], list[float]]:
    """Lambdas and mus of the authors' published experiments.

    Powers of ten up to 10^6 from 10^-5 (at most 10 classes) or 10^-2, and for lambda also a half
    and a quarter of each.
    """
    powers = [10.0**k for k in range(-5 if n_classes <= 10 else -2, 7)]
    return [power * part for power in powers for part in (1.0, 0.5, 0.25)], powers
