"""Vector scaling: one scale and one bias per class (Guo et al., 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical._warnings import warn_user
from hokical.calibrators._newton import Evaluation, Minimum, minimize_convex
from hokical.calibrators.base import Calibrator
from hokical.calibrators.temps import check_iterations, fit_temperature
from hokical.likelihood import Examples, countable_examples, sum_over_blocks
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Above this many classes the Hessian costs more than the iterations it saves.
DENSE_CLASSES = 1000
#: In how many parts the Hessian is summed: the most threads it can use, and its memory in copies.
PARTS = 4


class VectorScaling(Calibrator):
    """Scale and shift every class's log-probability: softmax(scale_k log p_k + bias_k).

    Chosen by maximum likelihood with a tiny ridge. The most likely class can change.

    Guo et al. scale raw logits, which gives other probabilities when a constant is added to all
    logits of an example although the classifier means the same. Here p is the softmax of the
    logits, so constants do not matter.

    Parameters
    ----------
    ridge : float, above 0
        Penalty ridge/2 * sum_k ((scale_k T - 1)^2 + bias_k^2) on the mean log loss, with T the
        fitted temperature: it pulls towards plain temperature scaling. The default is too small to
        be felt where the data say anything. Without it the answer need not exist: the bias of a
        class that never occurs in the validation set would go to minus infinity. It also makes
        the biases sum to 0.
    max_iterations : int
        Most steps of the solver.

    Attributes
    ----------
    scale_, bias_ : (n_classes,)
    log_loss_ : mean log loss (nats) on the validation set, without the penalty
    n_iterations_, converged_ : how the fit ended

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.vecs import VectorScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 3))
    >>> shifted = logits + [1.0, 0.0, 0.0]
    >>> labels = np.argmax(shifted + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = VectorScaling().fit(logits, labels)
    >>> bool(abs(cal.bias_[0] - cal.bias_[1] - 1.0) < 0.2)
    True
    """

    name = "vecs"
    reference = "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, 2017"
    cost = "about ten Newton steps of n * classes^2 operations each"
    preserves_labels = False

    def __init__(self, *, ridge: float = 1e-8, max_iterations: int = 200) -> None:
        self.ridge = ridge
        self.max_iterations = max_iterations

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        examples = countable_examples(logits, labels, weights)
        problem = _Problem(examples, self.ridge, _base_temperature(examples))
        found = problem.solve(self.max_iterations)
        deviation, bias = np.split(found.x, 2)
        self.scale_ = (1.0 + deviation) / problem.temperature
        self.bias_ = bias - bias.mean()  # the solver leaves a constant of no effect undetermined
        self.log_loss_ = found.value - 0.5 * self.ridge * float(found.x @ found.x)
        self.n_iterations_ = found.n_iterations
        self.converged_ = found.converged
        if not found.converged:
            warn_user(
                f"VectorScaling did not converge in {found.n_iterations} iterations. Raise "
                "`max_iterations`, or raise `ridge` if the validation set is small or all right.",
                ConvergenceWarning,
            )

    def _check_parameters(self) -> None:
        check_iterations(self.max_iterations)
        if not (isinstance(self.ridge, (int, float)) and 0.0 < self.ridge < math.inf):
            raise ValueError(
                f"`ridge` must be a finite number above 0; got {self.ridge!r}. Use 1e-8 for a "
                "penalty that is hardly felt."
            )

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)
        offset = log_sums(logits)

        def work(rows: slice) -> None:
            features, masked = log_probabilities(logits, offset, rows)
            out[rows] = _softmax(features * self.scale_ + self.bias_, masked)[0]

        for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
        return out

    def _state(self) -> dict[str, Any]:
        return {
            "scale": self.scale_,
            "bias": self.bias_,
            "log_loss": self.log_loss_,
            "n_iterations": self.n_iterations_,
            "converged": self.converged_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.scale_, self.bias_ = np.asarray(state["scale"]), np.asarray(state["bias"])
        if self.scale_.shape != (self.n_classes_,) or self.bias_.shape != (self.n_classes_,):
            raise ValueError(f"scale and bias must have one entry per class, {self.n_classes_}")
        self.log_loss_ = state["log_loss"]
        self.n_iterations_ = state["n_iterations"]
        self.converged_ = state["converged"]


def log_sums(logits: Logits) -> FloatArray:
    """log sum_i exp z_i of every row, (n,): what turns logits into log-probabilities."""
    out = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        out[rows] = logits.top[rows] + np.log(np.exp(-logits.margins(rows)).sum(axis=1))

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
    return out


def log_probabilities(
    logits: Logits, offset: FloatArray, rows: slice
) -> tuple[FloatArray, NDArray[np.bool_] | None]:
    """Log-probabilities of a block (rows, classes), 0 where masked, and the mask if there is one.

    A masked class must stay masked whatever its scale, and -inf * 0 is not a number.
    """
    out = logits.values[rows].astype(np.float64)
    out -= offset[rows, None]
    masked = out == -np.inf
    if not masked.any():
        return out, None
    out[masked] = 0.0
    return out, masked


def _softmax(scores: FloatArray, masked: NDArray[np.bool_] | None) -> tuple[FloatArray, FloatArray]:
    """Softmax of the scores, made in place, and the log of each row's sum, (rows,)."""
    if masked is not None:
        scores[masked] = -np.inf
    highest = scores.max(axis=1)
    scores -= highest[:, None]
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    scores /= sums[:, None]
    return scores, highest + np.log(sums)


def _base_temperature(examples: Examples) -> float:
    """The temperature to start from and to shrink towards; 1 where there is none."""
    found = fit_temperature(examples.logits, examples.labels, examples.weights)
    return found.temperature if found.converged else 1.0


@dataclass(eq=False)
class _Sums:
    """Weighted sums over rows: `firsts` of [p x, p, log sum], `squares` of p x^2, `products`."""

    firsts: FloatArray  # (2 classes + 1,)
    squares: FloatArray  # (classes,)
    products: FloatArray  # (2 classes, 2 classes), of [p x, p] with itself

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.firsts + other.firsts,
            self.squares + other.squares,
            self.products + other.products,
        )


@dataclass(frozen=True, eq=False)
class _Problem:
    """Penalised mean log loss as a function of (scale T - 1, bias), (2 classes,)."""

    examples: Examples
    ridge: float
    temperature: float

    def solve(self, max_iterations: int) -> Minimum:
        start = np.zeros(2 * self.examples.logits.n_classes)
        # Blocks of rows go to threads of ours; BLAS threads on top would fight them for cores.
        with threadpool_limits(1, user_api="blas"):
            if self.examples.logits.n_classes <= DENSE_CLASSES:
                return minimize_convex(self.evaluate, start, max_iterations)
            options = {"maxiter": max_iterations, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-8}
            found = minimize(
                self.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
            )
        return Minimum(found.x, float(found.fun), int(found.nit), bool(found.success))

    @cached_property
    def offset(self) -> FloatArray:
        return log_sums(self.examples.logits)

    @cached_property
    def observed(self) -> FloatArray:
        """Weighted sums of the true classes' scaled log-probabilities, and of the classes."""
        labels, weights = self.examples.labels, self.examples.weights
        values = self.examples.logits.values[np.arange(labels.size), labels].astype(np.float64)
        features = (values - self.offset) / self.temperature
        count = self.examples.logits.n_classes
        first = np.bincount(labels, weights * features, count)
        return np.concatenate([first, np.bincount(labels, weights, count)])

    def evaluate(self, theta: FloatArray) -> Evaluation:
        """Value, gradient (p,) and Hessian (p, p), p = 2 classes."""
        n_rows = self.examples.logits.n_rows
        # As many parts whatever the threads, so that sums always add up in the same order.
        step = max(-(-n_rows // PARTS), self._rows_per_block)
        parts: list[_Sums | None] = [None] * -(-n_rows // step)

        def work(rows: slice) -> None:
            parts[rows.start // step] = self._sum_rows(theta, rows)

        for_row_blocks(work, n_rows, step)
        total = reduce(_Sums.__add__, (part for part in parts if part is not None))
        value, gradient = self._value_and_gradient(theta, total.firsts)
        return value, gradient, self._hessian(total)

    def _sum_rows(self, theta: FloatArray, rows: slice) -> _Sums:
        count = theta.size // 2
        total = _Sums(np.zeros(theta.size + 1), np.zeros(count), np.zeros((theta.size, theta.size)))
        for start in range(rows.start, rows.stop, self._rows_per_block):
            block = slice(start, min(start + self._rows_per_block, rows.stop))
            features, joined, log_sum = self._predict(theta, block)
            weights = self.examples.weights[block]
            total.firsts[:-1] += weights @ joined
            total.firsts[-1] += weights @ log_sum
            features *= joined[:, :count]
            total.squares += weights @ features
            joined *= np.sqrt(weights)[:, None]
            total.products += joined.T @ joined
        return total

    @property
    def _rows_per_block(self) -> int:
        return rows_per_block(2 * self.examples.logits.n_classes)

    def value_and_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The same without the Hessian, for very many classes."""

        def work(rows: slice) -> FloatArray:
            _, joined, log_sum = self._predict(theta, rows)
            weights = self.examples.weights[rows]
            return np.append(weights @ joined, weights @ log_sum)

        return self._value_and_gradient(
            theta, sum_over_blocks(self.examples.logits, theta.size + 1, work)
        )

    def _predict(self, theta: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features x (rows, classes), [p x, p] (rows, 2 classes), and the log of the sums."""
        deviation, bias = np.split(theta, 2)
        features, masked = log_probabilities(self.examples.logits, self.offset, rows)
        features /= self.temperature
        proba, log_sum = _softmax(features * (1.0 + deviation) + bias, masked)
        return features, np.concatenate([proba * features, proba], axis=1), log_sum

    def _value_and_gradient(self, theta: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
        """From the sums of [p x, p] and of the log of the softmax's denominators."""
        count = theta.size // 2
        # The true classes' scores are linear in theta, so their sum needs no pass.
        score = float(self.observed[:count].sum() + self.observed @ theta)
        value = float(sums[-1]) - score + 0.5 * self.ridge * float(theta @ theta)
        return value, sums[:-1] - self.observed + self.ridge * theta

    def _hessian(self, total: _Sums) -> FloatArray:
        """Mean of diag(p) - p p' with features multiplied in, plus the ridge."""
        count = total.squares.size
        hessian = -total.products
        scale, bias = np.arange(count), np.arange(count, 2 * count)
        hessian[scale, scale] += total.squares + self.ridge
        hessian[bias, bias] += total.firsts[bias] + self.ridge
        hessian[scale, bias] += total.firsts[scale]
        hessian[bias, scale] += total.firsts[scale]
        return hessian
