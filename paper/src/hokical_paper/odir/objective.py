"""The penalised log loss of `ms_odir` and `dir_odir`, and how its minimum is found.

Both give softmax(W x + b) and minimise

    mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)

(Kull et al., 2019). In here the features carry a last column of ones and are multiplied
by the inverse temperature t that suits them, so W and b are one matrix `coef` (classes,
classes + 1) whose natural value is the identity, and the penalty is a matrix of the
same shape.

The diagonal of W is not penalised in the paper, so its optimum can be infinite. Two
additions make it exist and be unique:

- DIAGONAL_RIDGE * mean((W_kk / t - 1)^2), which shows only where W_kk is thousands of
  times t.
- A class without examples would want its probability gone at any price, and on
  log-probabilities, which are all negative, its W_kk infinite: useless for the examples
  of it that are still to come, those of a left-out fold among them. Its row of W is
  held at t times the identity's, and its bias, with a penalty of at most ABSENT_MU
  instead of mu, takes the probability away.
"""

from dataclasses import replace

import numpy as np

from hokical_paper.core.fitting import ClassBlocks, Solution, cg_steps, minimize_newton
from hokical_paper.odir.examples import MatrixExamples
from hokical_paper.types import BoolArray, FloatArray, IntArray

#: Weight of mean((W_kk / t - 1)^2).
DIAGONAL_RIDGE = 1e-10
#: Most that stands for mu where a class has no examples: leaves it about 1e-4 in all
#: examples.
ABSENT_MU = 1e-5
#: Weight that holds its row of W.
ABSENT_HOLD = 1e9
#: Penalties are kept where their products with anything else are finite and not 0.
PENALTY_RANGE = (1e-30, 1e30)
#: The ridge is reported where it is more than this much of the objective.
RIDGE_TO_REPORT = 1e-5


def identity(n_classes: int) -> FloatArray:
    """The `coef` (classes, classes + 1) of temperature scaling: W = 1, b = 0."""
    return np.eye(n_classes, n_classes + 1)


def penalty_matrix(
    absent: BoolArray, strength: tuple[float, float], scale: float
) -> FloatArray:
    """R (classes, classes + 1) with penalty = sum(R * (coef - identity)^2) / 2.

    `absent` (classes,) says which classes have no example. `strength` is (lambda, mu)
    for the user's W = scale * coef, so lambda is multiplied by scale^2.
    """
    n_classes = absent.size
    lambda_, mu = strength
    matrix = np.empty((n_classes, n_classes + 1))
    matrix[:] = 2.0 * lambda_ * scale * scale / (n_classes * (n_classes - 1))
    np.fill_diagonal(matrix, 2.0 * DIAGONAL_RIDGE / n_classes)
    matrix[absent, :-1] = 2.0 * ABSENT_HOLD / n_classes
    matrix[:, -1] = 2.0 * np.where(absent, min(mu, ABSENT_MU), mu) / n_classes
    return np.clip(matrix, *PENALTY_RANGE)


def minimize_penalised(
    examples: MatrixExamples,
    penalty: FloatArray,
    start: FloatArray,
    *,
    tol: float,
    max_iter: int,
) -> Solution[FloatArray]:
    """The `coef` (classes, classes + 1) of least penalised log loss, from `start`."""
    neutral = identity(examples.n_classes)
    solution = minimize_newton(
        examples.objective(penalty).evaluate,
        (start - neutral).ravel(),
        cg_steps(lambda point: ClassBlocks(point).solve, tol=tol),
        tol=tol,
        max_iter=max_iter,
    )
    return replace(solution, x=solution.x.reshape(neutral.shape) + neutral)


def held_by_ridge(coef: FloatArray) -> IntArray:
    """The classes whose diagonals DIAGONAL_RIDGE holds at a price that shows; mostly
    none.
    """
    price = DIAGONAL_RIDGE * np.square(np.diag(coef) - 1.0) / coef.shape[0]
    total = float(price.sum())
    return (
        np.flatnonzero(price > 0.1 * total)
        if total > RIDGE_TO_REPORT
        else np.empty(0, np.int64)
    )


def describe_problem(
    examples: MatrixExamples, fit: Solution[FloatArray], max_iter: int
) -> str | None:
    """Why the fit is not the minimum that it should be, and the remedy; None where
    it is.
    """
    if examples.all_right(np.diag(fit.x)):  # only DIAGONAL_RIDGE holds the fit
        return (
            "has no finite optimum on these examples: scaling alone gets every one of "
            "them right, so confidence would keep growing, and only a tiny ridge holds "
            "it. Fit on more examples, on some that the classifier gets wrong."
        )
    if not fit.converged:
        return (
            f"did not converge in {max_iter} iterations: its log loss is higher than "
            "it need be. Raise `max_iter` or `tol`, or use larger `lambdas`."
        )
    held = held_by_ridge(fit.x)
    if held.size:
        names = ", ".join(str(name) for name in held[:10]) + (
            ", ..." if held.size > 10 else ""
        )
        return (
            f"found no optimum within reach for the diagonal of class {names}: a tiny "
            "ridge holds it, at a price that shows in the log loss. Fit on more "
            "examples of it, or use smaller `mus`."
        )
    return None
