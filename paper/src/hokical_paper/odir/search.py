"""Choosing the penalties of the ODIR methods: cross-validation along paths of
falling strength.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical_paper.odir.examples import MatrixExamples
from hokical_paper.odir.folds import FoldSplit
from hokical_paper.odir.objective import identity, minimize_penalised, penalty_matrix
from hokical_paper.types import FloatArray

#: The grids that have a name.
GRIDS = ("quick", "paper")
#: Half decades from a scale per class alone to a full logistic regression.
QUICK_LAMBDAS = tuple(10.0 ** (k / 2) for k in range(12, -5, -1))
#: From hardly any bias to a free one.
QUICK_MUS = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Scores need not be exact to be compared: the solver's tolerance while
#: cross-validating.
SEARCH_TOL = 1e-5
#: The same where a class is missing: its bias hardly matters to the fit, and much to
#: its judge.
ABSENT_TOL = 1e-7
#: Up to this many classes the coarse grid is cheap, and every setting of it is tried.
FEW_CLASSES = 20
#: With more, a falling lambda ends where the log loss is above its least by this share
#: of it and by this much: that is overfitting, which still smaller lambdas make worse
#: and costly. A plateau, with its small ups and downs, ends nothing.
CLEARLY_WORSE = (0.05, 0.01)


@dataclass(frozen=True, eq=False)
class PenaltyTrial:
    """One cross-validated setting; `coefs` are its fits, one per fold, to start the
    next from.
    """

    strength: tuple[float, float]
    log_loss: float
    converged: bool
    coefs: list[FloatArray]


class PenaltySearch:
    """Cross-validated log loss of settings (lambda, mu), each fit started from
    another's.

    `trials` holds what was tried, in order; `best` is the first of those with the least
    log loss.
    """

    best: PenaltyTrial

    def __init__(
        self,
        examples: MatrixExamples,
        splits: list[FoldSplit],
        scale: float,
        max_iter: int,
    ) -> None:
        self.examples = examples
        self.splits = splits
        self.scale = scale
        self.max_iter = max_iter
        self.trials: list[PenaltyTrial] = []

    def find_best(
        self, lambdas: list[float], mus: list[float] | None, *, quick: bool
    ) -> PenaltyTrial:
        """The best of a grid of falling numbers, see `make_grid`; `quick` does not try
        all.

        Without `mus` each lambda is its own.
        """
        if mus is None:
            last = None
            for strength in lambdas:
                last = self._try((strength, strength), last)
        elif quick:
            self.try_coarse_to_fine(lambdas, mus)
        else:
            self._follow(lambdas, mus, lambda trial, least: False)
        return self.best

    def try_coarse_to_fine(
        self, lambdas: Sequence[float], mus: Sequence[float]
    ) -> PenaltyTrial:
        """Try every second lambda with every second mu, then what lies around the
        best.
        """
        many = self.examples.n_classes > FEW_CLASSES
        share, least_rise = CLEARLY_WORSE

        def ends(trial: PenaltyTrial, least: float) -> bool:
            return many and trial.log_loss > least + max(share * least, least_rise)

        self._follow(lambdas[::2], mus[::2], ends)
        while around := self._untried_around(self.best, lambdas, mus):
            best = self.best
            for strength in around:
                self._try(strength, best)
        return self.best

    def _follow(
        self,
        lambdas: Sequence[float],
        mus: Sequence[float],
        ends: Callable[[PenaltyTrial, float], bool],
    ) -> None:
        """Try falling lambdas for each of the falling mus until one `ends` them.

        Each starts from the same lambda at the mu before, for mu changes less; a lambda
        that ended them there is not tried again.
        """
        path: dict[float, PenaltyTrial] = {}
        for mu in mus:
            before = path
            path = {}
            last = None
            least = np.inf
            for strength in before or lambdas:
                last = self._try((strength, mu), before.get(strength, last))
                if ends(last, least):
                    break
                path[strength] = last
                least = min(least, last.log_loss)

    def _untried_around(
        self, best: PenaltyTrial, lambdas: Sequence[float], mus: Sequence[float]
    ) -> list[tuple[float, float]]:
        """The next larger and smaller lambda and mu, one of them changed at a time."""
        tried = {trial.strength for trial in self.trials}
        lambda_, mu = best.strength
        around = [(near, mu) for near in _neighbours(lambdas, lambda_)]
        around += [(lambda_, near) for near in _neighbours(mus, mu)]
        return [strength for strength in around if strength not in tried]

    def _try(
        self, strength: tuple[float, float], near: PenaltyTrial | None
    ) -> PenaltyTrial:
        total = 0.0
        counted = 0.0
        converged = True
        coefs: list[FloatArray] = []
        for train, test in self.splits:
            part = self.examples.take(train)
            fit = minimize_penalised(
                part,
                penalty_matrix(part.absent, strength, self.scale),
                identity(part.n_classes) if near is None else near.coefs[len(coefs)],
                tol=ABSENT_TOL if part.absent.any() else SEARCH_TOL,
                max_iter=self.max_iter,
            )
            coefs.append(fit.x)
            converged &= fit.converged
            weight = float(self.examples.weights[test].sum())
            total += weight * self.examples.take(test).log_loss(fit.x)
            counted += weight
        trial = PenaltyTrial(strength, total / counted, converged, coefs)
        self.trials.append(replace(trial, coefs=[]))
        if len(self.trials) == 1 or trial.log_loss < self.best.log_loss:
            self.best = trial
        return trial


def _neighbours(values: Sequence[float], value: float) -> list[float]:
    """The entries before and after `value`, where there are any."""
    place = values.index(value)
    return [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]


def paper_grid(n_classes: int) -> tuple[list[float], list[float]]:
    """Lambdas and mus of the authors' published experiments.

    Powers of ten up to 10^6 from 10^-5 (at most 10 classes) or 10^-2, and for lambda
    also a half and a quarter of each.
    """
    powers = [10.0**k for k in range(-5 if n_classes <= 10 else -2, 7)]
    return [power * part for power in powers for part in (1.0, 0.5, 0.25)], powers


def make_grid(
    lambdas: Any, mus: Any, n_classes: int
) -> tuple[list[float], list[float] | None]:
    """Lambdas and mus from the largest to the smallest; no mus: each goes with its
    lambda.
    """
    if isinstance(lambdas, str):
        quick = lambdas == "quick"
        lambdas, default = (
            (QUICK_LAMBDAS, QUICK_MUS) if quick else paper_grid(n_classes)
        )
        mus = default if mus is None else mus
    return _sort_falling(lambdas), None if mus is None else _sort_falling(mus)


def _sort_falling(strengths: float | Sequence[float]) -> list[float]:
    return sorted(
        {float(item) for item in np.atleast_1d(np.asarray(strengths))}, reverse=True
    )


def check_strengths(value: Any, name: str, words: tuple[str, ...]) -> None:
    """One of the words, a positive number, or several numbers."""
    if isinstance(value, str) and value in words:
        return
    names = "".join(f'"{word}", ' for word in words)
    rule = f"{names}a finite number above 0 or a sequence of them"
    try:
        if any(
            isinstance(item, (bool, np.bool_))
            for item in np.ravel(np.asarray(value, object))
        ):
            raise TypeError("a truth value is no number")
        numbers = np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.") from error
    if (
        numbers.ndim != 1
        or not numbers.size
        or not ((numbers > 0) & np.isfinite(numbers)).all()
    ):
        raise ValueError(
            f"`{name}` must be {rule}; got {value!r}. For hardly any penalty use 1e-9, "
            "for hardly any freedom 1e9."
        )


def tabulate(trials: list[PenaltyTrial]) -> dict[str, NDArray[Any]]:
    """Arrays over the settings that were tried."""
    return {
        "lambda": np.array([trial.strength[0] for trial in trials]),
        "mu": np.array([trial.strength[1] for trial in trials]),
        "log_loss": np.array([trial.log_loss for trial in trials]),
        "converged": np.array([trial.converged for trial in trials], np.bool_),
    }
