"""Matrix scaling and Dirichlet calibration with ODIR penalties (Kull et al., 2019).

ODIR is off-diagonal and intercept regularisation. The two methods share their fit and
differ in the features they see.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np

from hokical.calibrators import Calibrator, Examples, Fit, MethodInfo
from hokical.rules import Logits
from hokical_paper.core import (
    ConvergenceWarning,
    check_count,
    check_positive,
    one_blas_thread,
    per_row,
    warn_user,
)
from hokical_paper.core.fitting import base_temperature
from hokical_paper.odir import folds, objective
from hokical_paper.odir import search as penalties
from hokical_paper.odir.examples import MatrixExamples
from hokical_paper.odir.folds import FoldSplit
from hokical_paper.odir.rule import DirichletRule, MatrixRule
from hokical_paper.types import Array, IntArray

#: Features are assumed to have a mean size within these limits.
_SIZES = (1e-90, 1e100)
#: The temperature is searched between these multiples of the size.
_REACH = (1e-3, 1e3)


_ABOUT = (
    "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach: Beyond temperature "
    "scaling: Obtaining well-calibrated multiclass probabilities with Dirichlet "
    "calibration, NeurIPS 2019, arXiv:1910.12656",
    "a few dozen Newton fits of classes^2 parameters to choose the penalties, then one",
)


class ODIRCalibrator(Calibrator):
    """Base of `MatrixScalingODIR` and `DirichletODIR`, whose rules define the
    features.
    """

    def __init__(
        self,
        *,
        lambdas: Literal["quick", "paper"] | float | Sequence[float] = "quick",
        mus: float | Sequence[float] | None = None,
        cv: Any = 3,
        tol: float = 1e-10,
        max_iter: int = 200,
        random_state: Any = 0,
    ) -> None:
        self.lambdas = lambdas
        self.mus = mus
        self.cv = cv
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        penalties.check_strengths(self.lambdas, "lambdas", penalties.GRIDS)
        if self.mus is not None:
            penalties.check_strengths(self.mus, "mus", ())
        folds.check_cv(self.cv)
        check_count("max_iter", self.max_iter)
        check_positive("tol", self.tol, "The default is 1e-10.")

    def _fit(self, examples: Examples) -> Fit:
        if folds.is_list(self.cv) and examples.sampled_from is not None:
            raise ValueError(
                "`cv` must be a number or a splitter for more than 4 million logits, "
                f"of which a sample is used; got a list of {len(self.cv)} pairs. Use "
                "`cv=3`, or fewer rows."
            )
        counted = examples.learnable
        splits = self._own_splits(
            examples, np.flatnonzero(examples.counting & ~examples.masked_truth)
        )
        size = min(max(self._feature_size(counted), _SIZES[0]), _SIZES[1])
        scale = (
            1.0
            / base_temperature(counted, size, (_REACH[0] * size, _REACH[1] * size)).x
        )
        data = MatrixExamples.of(counted, self.method.rule.features, scale)
        with one_blas_thread():
            strength, trials = self._choose(
                data, scale, lambda: self._folds(counted) if splits is None else splits
            )
            penalty = objective.penalty_matrix(data.absent, strength, scale)
            start = objective.identity(data.n_classes)
            limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
            solution = objective.minimize_penalised(data, penalty, start, **limits)
        problem = objective.describe_problem(data, solution, self.max_iter)
        if problem is not None:
            warn_user(f"{type(self).__name__} {problem}", ConvergenceWarning)
        weight = np.ascontiguousarray(scale * solution.x[:, :-1])
        report = {
            "lambda": strength[0],
            "mu": strength[1],
            "cv_results": penalties.tabulate(trials),
            "n_iter": solution.n_iter,
            "converged": problem is None,
        }
        return Fit(self.method.rule(weight, solution.x[:, -1].copy()), report)

    def _feature_size(self, counted: Examples) -> float:
        """Mean absolute value of a feature, by weight."""

        def mean_size(block: Logits) -> Array:
            return block.xp.mean(block.xp.abs(self.method.rule.features(block)), axis=1)

        return float(counted.share @ per_row(mean_size, counted.logits))

    def _own_splits(self, examples: Examples, keep: IntArray) -> list[FoldSplit] | None:
        """The user's splits, restricted to the rows in `keep`; None if `cv` is a
        number.
        """
        if isinstance(self.cv, Integral):
            return None
        pairs = self.cv
        if not folds.is_list(self.cv):
            pairs = list(self.cv.split(examples.logits.values, examples.labels))
        return folds.split_by_indices(pairs, examples.n_rows, keep)

    def _folds(self, counted: Examples) -> list[FoldSplit]:
        examples = (counted.logits, counted.labels)
        return folds.split_by_folds(
            folds.fold_numbers(*examples, int(self.cv), self.random_state)
        )

    def _choose(
        self,
        examples: MatrixExamples,
        scale: float,
        make_splits: Callable[[], list[FoldSplit]],
    ) -> tuple[tuple[float, float], list[penalties.PenaltyTrial]]:
        """(lambda, mu) with the lowest cross-validated log loss, and the trials.

        A single setting is not scored.
        """
        lambdas, mus = penalties.make_grid(self.lambdas, self.mus, examples.n_classes)
        strength = (lambdas[0], lambdas[0] if mus is None else mus[0])
        if len(lambdas) == 1 and (mus is None or len(mus) == 1):
            return strength, []
        splits = make_splits()
        if not splits:  # all examples are copies of one: use the largest penalties
            return strength, []
        search = penalties.PenaltySearch(examples, splits, scale, self.max_iter)
        quick = isinstance(self.lambdas, str) and self.lambdas == "quick"
        best = search.find_best(lambdas, mus, quick=quick)
        if not best.converged:
            warn_user(
                f"{type(self).__name__} chose lambda {best.strength[0]:.3g} and mu "
                f"{best.strength[1]:.3g} by cross-validation in which some fits with "
                "them did not converge: others may be better. Raise `max_iter` or use "
                "larger `lambdas`.",
                ConvergenceWarning,
            )
        return best.strength, search.trials

    def _storable_parameters(self) -> dict[str, Any]:
        """Replace a splitter in `cv`, which is code, by the default."""
        stored = super()._storable_parameters()
        by_number = isinstance(self.cv, Integral) or folds.is_list(self.cv)
        return stored if by_number else stored | {"cv": 3}


class MatrixScalingODIR(ODIRCalibrator):
    """Softmax of W x + b, x the logits less their row's mean.

    W and b minimise

        mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)
        + 1e-10 * mean((W_kk / t - 1)^2)

    with t the inverse temperature of least log loss, searched within a factor of 1000
    of the features' mean size (near 1 if there is none, as when every example is
    right). The last term, a ridge that the paper does not have, guarantees that an
    optimum exists. Large penalties leave a scale per class, small ones a full logistic
    regression; cross-validated log loss decides. Labels can change.

    For a class k without examples the paper's optimum can be infinite, which would give
    it probability 0. Here its row of W stays that of temperature scaling (W_kk = t, the
    rest 0), and its part of the bias term uses min(mu, 1e-5) instead of mu: the bias
    makes its probability small, but not 0.

    The paper uses raw logits, and so depends on constants added to a row, which the
    softmax does not; here each row's mean (over the possible classes) is subtracted
    first.

    Parameters
    ----------
    lambdas : {"quick", "paper"}, number or sequence of numbers
        "quick" tries lambdas from 10^6 to 10^-2 and mus from 10 to 10^-3 together:
        whole decades of lambda with every second mu, then half decades and all mus
        around the best until no neighbour is better. With more than 20 classes,
        decreasing lambdas end where the log loss is 5 % (and 0.01) above its minimum.
        "paper" tries every lambda of the authors' experiments with every mu: 1, 0.5 and
        0.25 times powers of ten up to 10^6, from 10^-2, or from 10^-5 for at most 10
        classes. That is 243 or 432 settings, each fitted once per fold, about ten times
        as many as "quick" needs, including the slow ones: seconds with 3 classes, very
        long with 100. Given numbers are all tried; a single one is used without
        cross-validation.
    mus : number or sequence of numbers, optional
        None: 10 to 0.001 for "quick", the powers of ten above for "paper", and for
        numbers mu is lambda itself. With numbers for both, all combinations are tried.
    cv : int, list of (train, test) row indices, or scikit-learn splitter
        Number of folds, or the splits themselves. Folds are stratified by class and
        keep copies of an example together. A splitter is called with the logits and
        labels, and not saved. The default is 3, not the 5 of `AutoCalibrator`, as
        another number chooses other penalties than in the documented results.
    tol : float
        The fit ends when a step is expected to lower the penalised log loss by less
        than this.
    max_iter : int
        Maximum number of Newton steps of a fit.
    random_state : int, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    weight_ : (classes, classes), W
    bias_ : (classes,), b
    lambda_, mu_ : the penalties in use
    cv_results_ : dict of arrays "lambda", "mu", "log_loss" and "converged" of the
        settings tried, empty if there was only one
    n_iter_ : Newton steps of the last fit
    converged_ : False if the solver ended early, or if only the ridge keeps W finite:
        scaling alone gets every example right, or the ridge exceeds 1e-5 of log loss

    Notes
    -----
    Examples whose true class is impossible (-inf) are left out of the fit with a
    warning. Another impossible class gets probability 0, and as a feature it has the
    value of the least likely possible class. A weight of 2 equals repetition, in the
    choice of the penalties too.

    A fit takes about seven (n, classes) float64 arrays and a dozen (classes, classes)
    ones.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical_paper.odir import MatrixScalingODIR
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=2000)
    >>> logits = 3 * (rng.normal(size=(2000, 5)) + 2 * np.eye(5)[labels])
    >>> cal = MatrixScalingODIR().fit(logits[:1000], labels[:1000])
    >>> right = cal.predict(logits[1000:]) == labels[1000:]
    >>> bool(abs(cal.predict_confidence(logits[1000:]).mean() - right.mean()) < 0.03)
    True
    """

    method = MethodInfo(
        MatrixRule, "Matrix scaling with ODIR", *_ABOUT, changes_labels=True
    )


class DirichletODIR(ODIRCalibrator):
    """Softmax of W x + b, x the log-probabilities log softmax(logits).

    The same as `MatrixScalingODIR`, with its objective, parameters and attributes, on
    other features. They differ by a constant per row, which the diagonal of W scales
    differently for each class: a different model unless all diagonal entries are equal.

    Log-probabilities are all negative, so without the ridge the optimal W_kk could be
    large for a rare class and infinite for an absent one. The published code
    (dirichletcal) fixes the last class's row as a reference, so its penalty treats the
    classes differently; here all are treated alike, as in the paper's formula.

    >>> import numpy as np
    >>> from hokical_paper.odir import DirichletODIR
    >>> logits = np.random.default_rng(0).normal(size=(500, 3))
    >>> cal = DirichletODIR(lambdas=1e6).fit(logits, logits.argmax(axis=1) % 2)
    >>> bool(cal.predict_proba(logits)[:, 2].max() < 0.1)
    True
    """

    method = MethodInfo(
        DirichletRule, "Dirichlet calibration with ODIR", *_ABOUT, changes_labels=True
    )
