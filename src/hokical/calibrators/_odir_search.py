"""Choosing the penalties of the ODIR methods: cross-validation along paths of falling strength."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from hokical.calibrators._odir_objective import Examples, identity, penalty_matrix
from hokical.calibrators._odir_solver import minimise
from hokical.logits import Logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
#: Rows (n,) to learn from and rows to test on.
Split = tuple[BoolArray, BoolArray]

#: Half decades from a scale per class alone to a full logistic regression.
QUICK_LAMBDAS = tuple(10.0 ** (k / 2) for k in range(12, -5, -1))
#: From hardly any bias to a free one.
QUICK_MUS = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Scores need not be exact to be compared: the solver's tolerance while cross-validating.
SEARCH_TOL = 1e-6
#: Up to this many classes the coarse grid is cheap, and every setting of it is tried.
FEW_CLASSES = 20
#: With more, a falling lambda ends where the log loss is above its least by this share of it and
#: by this much: that is overfitting, which still smaller lambdas make worse and dear. A plateau,
#: with its small ups and downs, ends nothing.
CLEARLY_WORSE = (0.05, 0.01)


@dataclass(frozen=True, eq=False)
class Trial:
    """One cross-validated setting; `coefs` are its fits, one per fold, to start the next from."""

    strength: tuple[float, float]
    log_loss: float
    converged: bool
    coefs: list[FloatArray]


@singledispatch
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


def splits_from_indices(pairs: Sequence[Any], n_rows: int, keep: IntArray) -> list[Split]:
    """The user's (train, test) row indices, checked, for the rows in `keep`.

    Pairs with nothing left on one side are dropped.
    """
    splits = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"`cv` must hold pairs (train, test) of row indices; got {pair!r} as item {number}."
            )
        train, test = (_row_mask(indices, n_rows, number) for indices in pair)
        if (train & test).any():
            raise ValueError(
                "`cv` must keep the rows it tests on apart from those it learns from; got "
                f"{int((train & test).sum())} rows in both parts of item {number}, the first "
                f"{int(np.argmax(train & test))}."
            )
        splits.append((train[keep], test[keep]))
    usable = [(train, test) for train, test in splits if train.any() and test.any()]
    if not usable:
        raise ValueError(
            "`cv` must hold at least one pair (train, test) with examples that count on both "
            f"sides; got {len(splits)} pairs, none of them such."
        )
    return usable


def _row_mask(indices: Any, n_rows: int, number: int) -> BoolArray:
    """True (n_rows,) at the user's row indices, part of item `number` of `cv`."""
    rows = np.asarray(indices)
    if rows.ndim == 1 and rows.dtype == np.bool_ and rows.size == n_rows:
        return rows
    if rows.ndim != 1 or not (rows.size == 0 or np.issubdtype(rows.dtype, np.integer)):
        raise ValueError(
            f"`cv` must hold pairs of 1-D arrays of row indices; got {indices!r} in item {number}."
        )
    outside = rows[(rows < 0) | (rows >= n_rows)]
    if outside.size:
        raise ValueError(
            f"`cv` must index rows from 0 to {n_rows - 1}; got {outside[0]} in item {number}."
        )
    mask = np.zeros(n_rows, np.bool_)
    mask[rows.astype(np.int64)] = True
    return mask


class PenaltySearch:
    """Cross-validated log loss of settings (lambda, mu), each fit started from another's.

    `trials` holds what was tried, in order; `best` is the first of those with the least log loss.
    """

    def __init__(
        self, examples: Examples, splits: list[Split], scale: float, max_iterations: int
    ) -> None:
        self.examples = examples
        self.splits = splits
        self.scale = scale
        self.max_iterations = max_iterations
        self.trials: list[Trial] = []
        self.best: Trial | None = None

    def exhaustive(self, lambdas: Sequence[float], mus: Sequence[float]) -> Trial:
        """Try every lambda with every mu, each from the largest; the best."""
        return self._along(lambdas, mus, lambda trial, least: False)

    def tied(self, strengths: Sequence[float]) -> Trial:
        """Try lambda = mu = each of `strengths`; the best."""
        last = None
        for strength in strengths:
            last = self._try((strength, strength), last)
        return self._found()

    def coarse_to_fine(self, lambdas: Sequence[float], mus: Sequence[float]) -> Trial:
        """Try every second lambda with every second mu, then what lies around the best."""
        many = self.examples.n_classes > FEW_CLASSES
        share, least_rise = CLEARLY_WORSE

        def ends(trial: Trial, least: float) -> bool:
            return many and trial.log_loss > least + max(share * least, least_rise)

        best = self._along(lambdas[::2], mus[::2], ends)
        while True:
            for strength in self._untried_around(best, lambdas, mus):
                self._try(strength, best)
            if self._found() is best:
                return best
            best = self._found()

    def _along(
        self,
        lambdas: Sequence[float],
        mus: Sequence[float],
        ends: Callable[[Trial, float], bool],
    ) -> Trial:
        """Try falling lambdas for each of the falling mus until one `ends` them; the best."""
        first = None
        for mu in mus:
            first = last = self._try((lambdas[0], mu), first)
            least = first.log_loss
            for strength in lambdas[1:]:
                last = self._try((strength, mu), last)
                if ends(last, least):
                    break
                least = min(least, last.log_loss)
        return self._found()

    def _untried_around(
        self, best: Trial, lambdas: Sequence[float], mus: Sequence[float]
    ) -> list[tuple[float, float]]:
        """The next larger and smaller lambda and mu, one of them changed at a time."""
        tried = {trial.strength for trial in self.trials}
        lambda_, mu = best.strength
        around = [(near, mu) for near in _neighbours(lambdas, lambda_)]
        around += [(lambda_, near) for near in _neighbours(mus, mu)]
        return [strength for strength in around if strength not in tried]

    def _found(self) -> Trial:
        assert self.best is not None
        return self.best

    def _try(self, strength: tuple[float, float], near: Trial | None) -> Trial:
        total, counted, converged = 0.0, 0.0, True
        coefs: list[FloatArray] = []
        for train, test in self.splits:
            part = self.examples.take(train)
            start = identity(part.n_classes) if near is None else near.coefs[len(coefs)]
            fit = minimise(
                part,
                penalty_matrix(part.absent, strength, self.scale),
                start,
                tol=SEARCH_TOL,
                max_iterations=self.max_iterations,
            )
            coefs.append(fit.coef)
            converged &= fit.converged
            total += self._held_out_loss(test, fit.coef)
            counted += float(self.examples.weights[test].sum())
        trial = Trial(strength, total / counted, converged, coefs)
        self.trials.append(replace(trial, coefs=[]))
        if self.best is None or trial.log_loss < self.best.log_loss:
            self.best = trial
        return trial

    def _held_out_loss(self, rows: BoolArray, coef: FloatArray) -> float:
        """The rows' part of the mean log loss over all examples."""
        part = self.examples.take(rows)
        _, loss = part.probabilities(part.scores(coef))
        return float(self.examples.weights[rows] @ loss)


def _neighbours(values: Sequence[float], value: float) -> list[float]:
    """The entries before and after `value`, where there are any."""
    place = values.index(value)
    return [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]


def paper_grid(n_classes: int) -> tuple[list[float], list[float]]:
    """Lambdas and mus of the authors' published experiments.

    Powers of ten up to 10^6 from 10^-5 (at most 10 classes) or 10^-2, and for lambda also a half
    and a quarter of each.
    """
    powers = [10.0**k for k in range(-5 if n_classes <= 10 else -2, 7)]
    return [power * part for power in powers for part in (1.0, 0.5, 0.25)], powers
