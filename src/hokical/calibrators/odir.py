"""The estimator that `ms_odir` and `dir_odir` share; they differ in the features they see."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from functools import singledispatch
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical._warnings import warn_user
from hokical.calibrators._odir_objective import (
    Examples,
    identity,
    penalty_matrix,
    softmax_in_place,
)
from hokical.calibrators._odir_search import (
    QUICK_LAMBDAS,
    QUICK_MUS,
    PenaltySearch,
    Split,
    Trial,
    fold_numbers,
    paper_grid,
    splits_from_folds,
    splits_from_indices,
)
from hokical.calibrators._odir_solver import (
    Fit,
    has_no_finite_minimum,
    held_by_ridge,
    inverse_temperature,
    minimise,
)
from hokical.calibrators.base import BaseCalibrator
from hokical.logits import Logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


#: What `cv` may be beside a number.
CV_FORMS = "a list of (train, test) row indices or a scikit-learn splitter"


class ODIRCalibrator(BaseCalibrator):
    """Base of `MatrixScalingODIR` and `DirichletODIR`, which say what the features are."""

    preserves_labels = False

    weight_: FloatArray
    bias_: FloatArray

    def __init__(
        self,
        *,
        lambdas: Literal["quick", "paper"] | float | Sequence[float] = "quick",
        mus: float | Sequence[float] | None = None,
        cv: Any = 3,
        tol: float = 1e-10,
        max_iterations: int = 100,
        random_state: Any = 0,
    ) -> None:
        self.lambdas = lambdas
        self.mus = mus
        self.cv = cv
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state

    def _row_offset(self, below: FloatArray) -> FloatArray:
        """What to subtract (rows, 1) from logits relative to their top to get the features."""
        raise TypeError(f"{type(self).__name__} does not say what its features are.")

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        weights = np.ones(logits.n_rows) if weights is None else weights
        keep = _usable_rows(logits, labels, weights)
        splits = self._own_splits(logits, labels, keep)
        if keep.size < logits.n_rows:
            logits, labels, weights = logits.take(keep), labels[keep], weights[keep]
        examples, scale = self._prepare(logits, labels, weights)
        # Blocks of rows run on our threads. BLAS with threads of its own would do other sums, and
        # on a busy machine its threads wait for each other most of the time.
        with threadpool_limits(1, user_api="blas"):
            strength = self._choose(
                examples, scale, lambda: self._folds(logits, labels) if splits is None else splits
            )
            penalty = penalty_matrix(examples.absent, strength, scale)
            start = identity(examples.n_classes)
            fit = minimise(
                examples, penalty, start, tol=self.tol, max_iterations=self.max_iterations
            )
        self.lambda_, self.mu_ = strength
        self._keep(fit, scale)
        problem = _problem(examples, fit, self.max_iterations)
        self.converged_ = problem is None
        if problem is not None:
            warn_user(f"{type(self).__name__} {problem}", ConvergenceWarning)

    def _keep(self, fit: Fit, scale: float) -> None:
        self.weight_ = np.ascontiguousarray(scale * fit.coef[:, :-1])
        self.bias_ = fit.coef[:, -1].copy()
        self.n_iterations_ = fit.n_iterations

    def _check_parameters(self) -> None:
        _check_strengths(self.lambdas, "lambdas", ("quick", "paper"))
        if self.mus is not None:
            _check_strengths(self.mus, "mus", ())
        if isinstance(self.cv, str) or not (_is_list(self.cv) or hasattr(self.cv, "split")):
            _check_count(self.cv, "cv", 2, f"or {CV_FORMS}")
        if _is_list(self.cv) and not len(self.cv):
            raise ValueError(
                f"`cv` must be an integer of at least 2 or {CV_FORMS}; got {self.cv!r}."
            )
        _check_count(self.max_iterations, "max_iterations", 1)
        if not isinstance(self.tol, Real) or self.tol is True or not 0.0 < float(self.tol) < np.inf:
            raise ValueError(f"`tol` must be a finite number above 0; got {self.tol!r}.")

    def _prepare(
        self, logits: Logits, labels: IntArray, weights: FloatArray
    ) -> tuple[Examples, float]:
        """The examples with features multiplied by their inverse temperature, and that number."""
        examples = odir_examples(logits, self, labels, weights / weights.sum())
        scale = inverse_temperature(examples)
        examples.multiply_features(scale)
        return examples, scale

    def features(self, logits: Logits, rows: slice) -> tuple[FloatArray, BoolArray]:
        """Features (rows, classes), all finite, and which classes are impossible.

        An impossible class counts as the least likely of the possible ones: it must say something
        finite to the others, and its own probability is set to 0 anyway.
        """
        below = -logits.margins(rows)
        features = below - self._row_offset(below)
        masked = below == -np.inf
        if masked.any():
            least = np.min(features, axis=1, keepdims=True, where=~masked, initial=np.inf)
            features = np.where(masked, least, features)
        return features, masked

    def _own_splits(self, logits: Logits, labels: IntArray, keep: IntArray) -> list[Split] | None:
        """The user's splits of all rows, for those in `keep`; None where `cv` is a number."""
        if isinstance(self.cv, Integral):
            return None
        pairs = self.cv if _is_list(self.cv) else list(self.cv.split(logits.values, labels))
        return splits_from_indices(pairs, logits.n_rows, keep)

    def _folds(self, logits: Logits, labels: IntArray) -> list[Split]:
        return splits_from_folds(fold_numbers(logits, labels, int(self.cv), self.random_state))

    def _choose(
        self, examples: Examples, scale: float, make_splits: Callable[[], list[Split]]
    ) -> tuple[float, float]:
        """(lambda, mu) with the least cross-validated log loss; a single setting is not scored."""
        lambdas, mus = self._grid(examples.n_classes)
        trials: list[Trial] = []
        strength = (lambdas[0], lambdas[0] if mus is None else mus[0])
        if len(lambdas) > 1 or (mus is not None and len(mus) > 1):
            splits = make_splits()
            if splits:  # else all examples are copies of one: keep the largest penalties
                search = PenaltySearch(examples, splits, scale, self.max_iterations)
                best = self._search(search, lambdas, mus)
                strength, trials = best.strength, search.trials
                if not best.converged:
                    warn_user(_unsure_choice_message(type(self).__name__, best), ConvergenceWarning)
        self.cv_results_ = {
            "lambda": np.array([trial.strength[0] for trial in trials]),
            "mu": np.array([trial.strength[1] for trial in trials]),
            "log_loss": np.array([trial.log_loss for trial in trials]),
            "converged": np.array([trial.converged for trial in trials], np.bool_),
        }
        return strength

    def _grid(self, n_classes: int) -> tuple[list[float], list[float] | None]:
        """Lambdas and mus from the largest to the smallest; no mus: each goes with its lambda."""
        lambdas, mus = self.lambdas, self.mus
        if isinstance(lambdas, str):
            quick = lambdas == "quick"
            lambdas, default = (QUICK_LAMBDAS, QUICK_MUS) if quick else paper_grid(n_classes)
            mus = default if mus is None else mus
        return _falling(lambdas), None if mus is None else _falling(mus)

    def _search(
        self, search: PenaltySearch, lambdas: list[float], mus: list[float] | None
    ) -> Trial:
        if mus is None:
            return search.tied(lambdas)
        if isinstance(self.lambdas, str) and self.lambdas == "quick":
            return search.coarse_to_fine(lambdas, mus)
        return search.exhaustive(lambdas, mus)

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)
        for rows in logits.row_blocks():
            features, masked = self.features(logits, rows)
            np.matmul(features, self.weight_.T, out=out[rows])
            out[rows] += self.bias_
            softmax_in_place(out[rows], masked)
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """As `BaseCalibrator.save`; a splitter in `cv`, which is code, becomes the default."""
        twin = copy.copy(self)
        if not isinstance(self.cv, Integral) and not _is_list(self.cv):
            twin.cv = 3
        super(ODIRCalibrator, twin).save(path)

    def _state(self) -> dict[str, Any]:
        names = ("weight", "bias", "lambda", "mu", "cv_results", "n_iterations", "converged")
        return {name: getattr(self, f"{name}_") for name in names}

    def _restore(self, state: dict[str, Any]) -> None:
        n_classes = self.n_classes_
        self.weight_ = state["weight"].reshape(n_classes, n_classes)
        self.bias_ = state["bias"].reshape(n_classes)
        self.lambda_, self.mu_ = float(state["lambda"]), float(state["mu"])
        self.cv_results_ = dict(state["cv_results"])
        self.n_iterations_ = int(state["n_iterations"])
        self.converged_ = bool(state["converged"])


@singledispatch
def odir_examples(
    logits: Logits, calibrator: ODIRCalibrator, labels: IntArray, weights: FloatArray
) -> Examples:
    """The features of logits, with labels (n,) and weights (n,) that sum to 1."""
    inputs = np.ones((logits.n_rows, logits.n_classes + 1))
    masked = np.zeros(logits.values.shape, np.bool_)
    for rows in logits.row_blocks():
        inputs[rows, :-1], masked[rows] = calibrator.features(logits, rows)
    return Examples(inputs, masked if masked.any() else None, labels, weights)


def _usable_rows(logits: Logits, labels: IntArray, weights: FloatArray) -> IntArray:
    """Indices of the examples that count and whose true class is possible.

    The others have no weight, or no finite loss whatever is learned.
    """
    counts = weights > 0.0
    possible = logits.of_class(labels) > -np.inf
    lost = int((counts & ~possible).sum())
    keep = np.flatnonzero(counts & possible)
    if keep.size == 0:
        raise ValueError(
            "`logits` must leave the true class possible in some example; got -inf for the true "
            f"class in all {lost} that count. Check that `labels` index the columns of `logits`."
        )
    if lost:
        warn_user(
            f"{lost} of {logits.n_rows} examples have -inf as the logit of their true class: their "
            "log loss is infinite whatever is learned, so they are left out of the fit.",
            RuntimeWarning,
        )
    return keep


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _falling(strengths: float | Sequence[float]) -> list[float]:
    return sorted({float(item) for item in np.atleast_1d(np.asarray(strengths))}, reverse=True)


def _check_strengths(value: Any, name: str, words: tuple[str, ...]) -> None:
    if isinstance(value, str) and value in words:
        return
    names = "".join(f'"{word}", ' for word in words)
    rule = f"{names}a finite number above 0 or a sequence of them"
    try:
        if any(isinstance(item, (bool, np.bool_)) for item in np.ravel(np.asarray(value, object))):
            raise TypeError("a truth value is no number")
        numbers = np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.") from error
    if numbers.ndim != 1 or not numbers.size or not ((numbers > 0) & np.isfinite(numbers)).all():
        raise ValueError(
            f"`{name}` must be {rule}; got {value!r}. For hardly any penalty use 1e-9, for hardly "
            "any freedom 1e9."
        )


def _check_count(value: Any, name: str, least: int, other: str = "") -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        rule = f"an integer of at least {least} {other}".rstrip()
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.")


def _problem(examples: Examples, fit: Fit, max_iterations: int) -> str | None:
    """Why the fit is not the minimum that it should be, and the remedy; None where it is."""
    if has_no_finite_minimum(examples, fit.coef):
        return (
            "has no finite optimum on these examples: scaling alone gets every one of them right, "
            "so confidence would grow for ever, and a tiny ridge is all that holds it. Fit on more "
            "examples, on some that the classifier gets wrong."
        )
    if not fit.converged:
        return (
            f"did not converge in {max_iterations} iterations: its log loss is higher than it need "
            "be. Raise `max_iterations` or `tol`, or use larger `lambdas`."
        )
    held = held_by_ridge(fit.coef)
    if held.size:
        names = ", ".join(str(name) for name in held[:10]) + (", ..." if held.size > 10 else "")
        return (
            f"found no optimum within reach for the diagonal of class {names}: a tiny ridge holds "
            "it, at a price that shows in the log loss. Fit on more examples of it, or use smaller "
            "`mus`."
        )
    return None


def _unsure_choice_message(kind: str, best: Trial) -> str:
    return (
        f"{kind} chose lambda {best.strength[0]:.3g} and mu {best.strength[1]:.3g} by "
        "cross-validation in which some fits with them did not converge: others may be better. "
        "Raise `max_iterations` or use larger `lambdas`."
    )
