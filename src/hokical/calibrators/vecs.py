"""Vector scaling: one scale and one bias per class (Guo et al., 2017)."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._log_loss import LogLossCalibrator
from hokical.calibrators._newton import Evaluation, Minimum, minimize_convex
from hokical.calibrators._vector_sums import (
    Shape,
    Sums,
    VectorPart,
    log_probabilities,
    log_sums,
    masked_softmax,
    vector_part,
)
from hokical.calibrators.temps import best_temperature
from hokical.likelihood import (
    FARTHEST,
    ExampleSet,
    Parts,
    typical_spread,
)
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Above this many classes the Hessian costs more than the iterations it saves.
DENSE_CLASSES = 1000
#: Spreads of log-probabilities below this are near their rounding errors.
_LEAST_SPREAD = 1e-6
#: The base temperature is sought between these multiples of the spread: a wild example or two can
#: ask for a very high one.
_TEMPERATURES = (1e-5, 1e30)


class VectorScaling(LogLossCalibrator):
    """Scale and shift every class's log-probability: softmax(scale_k log p_k + bias_k).

    Chosen by maximum likelihood with a tiny ridge. The most likely class can change.

    Guo et al. scale raw logits, which gives other probabilities when a constant is added to all
    logits of an example although the classifier means the same. Here p is the softmax of the
    logits, so constants do not matter.

    The objective is

        mean log loss + ridge/2 * sum_k (min(T, u)^2 (scale_k - 1/T)^2 + bias_k^2).

    T is the temperature of least log loss, and u the spread of the logits: the weighted median
    over examples of the mean distance of the possible classes' logits below the top one (examples
    where all are equal set aside), and at least 1e-6. A few wild examples can make T huge, but not
    u, so they do not change what the penalty means. T is sought between 1e-5 u and 1e30 u; where
    the log loss falls down to the first, T is 1, kept within a factor of 1000 of u.

    Parameters
    ----------
    ridge : float, above 0
        Weight of the penalty, which pulls towards plain temperature scaling. The default is too
        small to be felt where the data say anything. Without it the answer need not exist: the
        bias of a class that never occurs in the validation set would go to minus infinity. It also
        makes the biases sum to 0.
    max_iterations : int
        Most steps of the solver.

    Attributes
    ----------
    scale_, bias_ : (n_classes,)
    log_loss_ : mean log loss (nats) on the validation set, without the penalty
    n_iterations_, converged_ : how the fit ended
    message_ : the same in words

    Notes
    -----
    Where a class's examples are told from all others without a doubt, as on a validation set that
    is all right, the likelihood has no finite optimum, and the ridge alone decides how sharp the
    answer is. That is so if a class's part of the penalty is at least its loss, its own mean log
    loss against all other classes. Then `converged_` is False, with a warning. A class that does
    not occur in the validation set is no reason for it: it gets a probability near 0, and the
    other classes are fitted as if it did not exist.

    Memory beyond the input, whatever the number of examples: four Hessians of (2 classes)^2
    float64 up to 1000 classes (128 MB there), about 10 MB of blocks per thread, and for less than
    a million logits all margins in float64 (up to 8 MB).

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

    def _fit_examples(self, examples: ExampleSet) -> None:
        spread = max(typical_spread(examples), _LEAST_SPREAD)
        temperature = _base_temperature(examples, spread)
        problem = _Problem(examples, float(self.ridge), temperature, min(temperature, spread))
        found = problem.solve(self.max_iterations)
        self.scale_ = problem.scale(found.x)
        bias = found.x[self.scale_.size :]
        self.bias_ = bias - bias.mean()  # the solver leaves a constant of no effect undetermined
        self.log_loss_, class_losses = problem.losses(found.x)
        self.n_iterations_ = found.n_iterations
        separated = problem.separated_classes(found.x, class_losses)
        self.message_ = _message(found, self.max_iterations, separated)
        self.converged_ = self.message_ == "converged"
        if not self.converged_:
            warn_user(f"VectorScaling did not converge: {self.message_}", ConvergenceWarning)

    def _check_parameters(self) -> None:
        check_count(self.max_iterations, name="max_iterations")
        number = isinstance(self.ridge, numbers.Real) and not isinstance(self.ridge, bool)
        if not (number and 0.0 < self.ridge < math.inf):
            raise ValueError(
                f"`ridge` must be a finite number above 0; got {self.ridge!r}. Use 1e-8 for a "
                "penalty that is hardly felt."
            )

    def _proba(self, logits: Logits) -> FloatArray:
        out = np.empty(logits.values.shape)
        offset = log_sums(logits)

        def work(rows: slice) -> None:
            features, masked = log_probabilities(logits, offset, rows)
            out[rows] = masked_softmax(features * self.scale_ + self.bias_, masked)[0]

        for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
        return out

    def _state(self) -> dict[str, Any]:
        return {
            "scale": self.scale_,
            "bias": self.bias_,
            "log_loss": self.log_loss_,
            "n_iterations": self.n_iterations_,
            "converged": self.converged_,
            "message": self.message_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.scale_, self.bias_ = np.asarray(state["scale"]), np.asarray(state["bias"])
        if self.scale_.shape != (self.n_classes_,) or self.bias_.shape != (self.n_classes_,):
            raise ValueError(f"scale and bias must have one entry per class, {self.n_classes_}")
        self.log_loss_ = state["log_loss"]
        self.n_iterations_ = state["n_iterations"]
        self.converged_ = state["converged"]
        self.message_ = state["message"]


def _message(found: Minimum, max_iterations: int, separated: IntArray) -> str:
    """How the fit ended, and what to do if it did not end well."""
    if not found.converged and found.n_iterations >= max_iterations:
        return f"no answer in {found.n_iterations} iterations. Raise `max_iterations`."
    if separated.size:
        some = ", ".join(str(k) for k in separated[:5]) + (", ..." if separated.size > 5 else "")
        return (
            f"the validation examples of {separated.size} classes ({some}) are told from all "
            "others without a doubt, so the log loss falls for ever as their scales grow, and "
            "only the ridge kept them finite. Use more validation examples, some of which are "
            "wrong, or raise `ridge`, for example to 0.01."
        )
    if not found.converged:
        return (
            "rounding errors hide the optimum. Look for examples with extreme logits or hardly "
            "any differences between them, or raise `ridge`."
        )
    return "converged"


def _base_temperature(examples: ExampleSet, spread: float) -> float:
    """The temperature to start from and to shrink towards; near 1 where there is none."""
    low, high = _TEMPERATURES[0] * spread, min(_TEMPERATURES[1] * spread, FARTHEST)
    found = best_temperature(examples, bounds=(low, high))
    if found.converged or found.temperature == high:
        return found.temperature
    return min(max(1.0, spread / 1e3), spread * 1e3)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Penalised mean log loss as a function of theta = (unit (scale - 1/T), bias), (2 classes,).

    Its features x are log-probabilities divided by the unit.
    """

    examples: ExampleSet
    ridge: float
    temperature: float
    unit: float

    @property
    def shape(self) -> Shape:
        return Shape(self.temperature, self.unit)

    def solve(self, max_iterations: int) -> Minimum:
        start = np.zeros(2 * self.examples.n_classes)
        # Blocks of rows go to threads of ours; BLAS threads on top would fight them for cores.
        with threadpool_limits(1, user_api="blas"):
            if self.examples.n_classes <= DENSE_CLASSES:
                return minimize_convex(self.evaluate, start, max_iterations)
            options = {"maxiter": max_iterations, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-8}
            found = minimize(
                self.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
            )
        return Minimum(found.x, float(found.fun), int(found.nit), bool(found.success))

    def scale(self, theta: FloatArray) -> FloatArray:
        """What multiplies the log-probabilities, (classes,)."""
        return np.asarray(1.0 / self.temperature + theta[: theta.size // 2] / self.unit)

    @cached_property
    def parts(self) -> Parts[VectorPart]:
        return self.examples.prepared(partial(vector_part, shape=self.shape))

    @cached_property
    def observed(self) -> FloatArray:
        """Weighted sums of the true classes' features, and of the classes, (2 classes,)."""
        return self.parts.total(lambda part: part.observed())

    @property
    def class_weights(self) -> FloatArray:
        """How much of the weight each class has, (classes,)."""
        return self.observed[self.examples.n_classes :]

    def evaluate(self, theta: FloatArray) -> Evaluation:
        """Value, gradient (p,) and Hessian (p, p), p = 2 classes."""
        total = Sums(self.parts.total(lambda part: part.second_sums(theta).flat), theta.size // 2)
        value, gradient = self._value_and_gradient(theta, total.firsts)
        return value, gradient, self._hessian(total)

    def value_and_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The same without the Hessian, for very many classes."""
        return self._value_and_gradient(
            theta, self.parts.total(lambda part: part.first_sums(theta))
        )

    def losses(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The mean log loss, and each class's against all others, (classes,)."""
        total = self.parts.total(lambda part: part.class_losses(theta))
        return float(total[-1]), total[:-1]

    def separated_classes(self, theta: FloatArray, class_losses: FloatArray) -> IntArray:
        """Classes that occur and whose part of the penalty is at least their loss."""
        penalty = 0.5 * self.ridge * (theta.reshape(2, -1) ** 2).sum(axis=0)
        return np.flatnonzero((penalty >= class_losses) & (self.class_weights > 0.0))

    def _value_and_gradient(self, theta: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
        """From the sums of [p x, p] and of the log losses."""
        value = float(sums[-1]) + 0.5 * self.ridge * float(theta @ theta)
        return value, sums[:-1] - self.observed + self.ridge * theta

    def _hessian(self, total: Sums) -> FloatArray:
        """Mean of diag(p) - p p' with features multiplied in, plus the ridge. Takes `products`."""
        count = total.squares.size
        hessian = np.negative(total.products, out=total.products)
        scale, bias = np.arange(count), np.arange(count, 2 * count)
        hessian[scale, scale] += total.squares + self.ridge
        hessian[bias, bias] += total.firsts[bias] + self.ridge
        hessian[scale, bias] += total.firsts[scale]
        hessian[bias, scale] += total.firsts[scale]
        return hessian
