"""Temperature scaling: one number that divides all logits (Guo et al., 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._log_loss import LogLossCalibrator
from hokical.calibrators._newton import Point, descend
from hokical.likelihood import Examples, ExampleSet, countable_examples, softmax_moments
from hokical.logits import Logits
from hokical.stability import gumbel
from hokical.stability.bounds import gumbel_bounds
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Temperatures are sought between these two unless told otherwise.
BOUNDS = (1e-5, 1e5)
#: The last step's relative length. Newton squares the error, so what is left is about 1e-13.
TOLERANCE = 1e-6
#: Longest step in log temperature: far from the solution the slope says little.
_LONGEST_STEP = 4.0
#: exp of more overflows.
_LARGEST_LOG = 709.0


@dataclass(frozen=True)
class TemperatureFit:
    """A fitted temperature, its mean log loss in nats, and how the search ended."""

    temperature: float
    log_loss: float
    n_iterations: int
    converged: bool
    message: str


class TemperatureScaling(LogLossCalibrator):
    """Divide all logits by one temperature, chosen by maximum likelihood.

    The most likely class stays what it was. The fit works on the logits as they are, with sums in
    float64, by a safeguarded Newton method on the log of the temperature.

    Parameters
    ----------
    bounds : (float, float)
        Smallest and largest temperature allowed. A validation set on which every label is right
        has its optimum at temperature 0, one on which labels are worse than chance at infinity;
        the fit then ends at a bound, with `converged_` False and a warning.
    max_iterations : int
        Most passes over the validation set.

    Attributes
    ----------
    temperature_ : above 1 for an overconfident classifier
    log_loss_ : mean log loss (nats) on the validation set at that temperature
    n_iterations_, converged_ : how the fit ended
    message_ : the same in words

    Notes
    -----
    Memory beyond the input, whatever the number of examples: blocks of 2 MB float64, about 6 MB
    per thread, and for less than a million logits all margins in float64 (up to 8 MB); and a few
    float64 per example. That is several copies of an input of a few MB, and a small part of a
    large one.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.temps import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(5000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = TemperatureScaling().fit(3 * logits, labels)
    >>> round(cal.temperature_, 1)
    3.0
    """

    name = "temps"
    reference = "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, 2017"
    cost = "about four softmax passes"
    accepts_top_k = True

    def __init__(self, *, bounds: tuple[float, float] = BOUNDS, max_iterations: int = 100) -> None:
        self.bounds = bounds
        self.max_iterations = max_iterations

    def _check_parameters(self) -> None:
        check_bounds(self.bounds)
        check_count(self.max_iterations, name="max_iterations")

    def _fit_examples(self, examples: ExampleSet) -> None:
        bounds = check_bounds(self.bounds)
        found = best_temperature(examples, bounds=bounds, max_iterations=self.max_iterations)
        self._keep(found)
        if not found.converged:
            warn_user(
                f"TemperatureScaling did not converge: {found.message}",
                ConvergenceWarning,
            )

    def _keep(self, found: TemperatureFit) -> None:
        self.temperature_ = found.temperature
        self.log_loss_ = found.log_loss
        self.n_iterations_ = found.n_iterations
        self.converged_ = found.converged
        self.message_ = found.message

    def _proba(self, logits: Logits) -> FloatArray:
        return settle_ties(gumbel.distribution(logits, self.temperature_), logits.labels)

    def _confidence(self, logits: Logits) -> FloatArray:
        return gumbel.stability(logits, self.temperature_)

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        return gumbel_bounds(logits, self.temperature_)

    def _state(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature_,
            "log_loss": self.log_loss_,
            "n_iterations": self.n_iterations_,
            "converged": self.converged_,
            "message": self.message_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        temperature = float(state["temperature"])
        if not 0.0 < temperature < math.inf:
            raise ValueError(f"temperature must be finite and above 0; got {temperature}")
        self._keep(TemperatureFit(**state))


def fit_temperature(
    logits: Logits,
    labels: IntArray,
    weights: FloatArray | None,
    *,
    bounds: tuple[float, float] = BOUNDS,
    max_iterations: int = 100,
    tolerance: float = TOLERANCE,
) -> TemperatureFit:
    """The temperature of least log loss.

    With margins d_i = top - z_i, the log loss is stationary in beta = 1/T where the mean margin
    of the true class equals the mean margin that the softmax of beta z expects. The expected one
    falls with beta, so there is one solution and its side is always known. Newton's method runs on
    the log of both sides as a function of log beta, which is close to a straight line.

    Examples whose true class has logit -inf are left out with a RuntimeWarning. A fit that did
    not converge is returned as such, without a warning.
    """
    examples = countable_examples(logits, labels, weights)
    return best_temperature(
        examples, bounds=bounds, max_iterations=max_iterations, tolerance=tolerance
    )


def best_temperature(
    examples: ExampleSet,
    *,
    bounds: tuple[float, float] = BOUNDS,
    max_iterations: int = 100,
    tolerance: float = TOLERANCE,
) -> TemperatureFit:
    """`fit_temperature` for examples that all count.

    The last step is at most `tolerance` long, relative to the temperature; as Newton's method
    squares the error, about a tenth of its square is left.
    """
    if examples.mean_true_margin == 0.0:
        return _fit_without_mistakes(examples, bounds)
    start = 0.0
    coarse = examples.coarse()
    if coarse is not None and coarse.mean_true_margin > 0.0:
        start = -math.log(_search(coarse, start, bounds, max_iterations, tolerance).temperature)
    return _search(examples, start, bounds, max_iterations, tolerance)


def settle_ties(proba: FloatArray, labels: IntArray) -> FloatArray:
    """Make the label the first maximum of its row (n, classes), in place, by one rounding unit.

    At a large temperature, classes with different logits can come out with the same number.
    """
    rows = np.flatnonzero(proba.argmax(axis=1) != labels)
    proba[rows, labels[rows]] = np.nextafter(proba[rows].max(axis=1), np.inf)
    return proba


def _point(examples: ExampleSet, log_beta: float, tolerance: float) -> Point:
    """The log loss at log beta, and the step towards equal margins."""
    beta = math.exp(min(log_beta, _LARGEST_LOG))
    log_sum, expected, variance = softmax_moments(examples, beta)
    observed = beta * examples.mean_true_margin
    slope = observed - expected
    step = _step(expected, observed, variance)
    done = abs(step) <= tolerance
    return Point(log_beta, log_sum + observed, slope, slope + variance, step, done)


def _step(expected: float, observed: float, variance: float) -> float:
    """Newton's step in log beta towards expected = observed, both in units of 1/beta."""
    if observed == 0.0:  # all has underflowed: much too flat
        return _LONGEST_STEP
    if expected == 0.0:  # the softmax is all on the top class: much too sharp
        return -_LONGEST_STEP
    ahead = math.log(expected) - math.log(observed)  # their ratio might underflow
    if variance <= 0.0:  # rounded away, and only the side is known
        return math.copysign(_LONGEST_STEP, ahead)
    return min(max(ahead * (expected / variance), -_LONGEST_STEP), _LONGEST_STEP)


def _search(
    examples: ExampleSet,
    start: float,
    bounds: tuple[float, float],
    max_iterations: int,
    tolerance: float,
) -> TemperatureFit:
    low, high = bounds
    found = descend(
        lambda log_beta: _point(examples, log_beta, tolerance),
        start,
        (-math.log(high), -math.log(low)),
        max_iterations,
    )
    point, count = found.point, found.n_iterations
    if found.ending == "converged":
        temperature = min(max(math.exp(-point.at - point.step), low), high)
        return TemperatureFit(temperature, point.value_after_step, count, True, "converged")
    temperature = {"low": high, "high": low, "limit": math.exp(-point.at)}[found.ending]
    message = ending_message(found.ending, bounds, count)
    return TemperatureFit(temperature, point.value, count, False, message)


def ending_message(ending: str, bounds: tuple[float, float], n_iterations: int) -> str:
    """Why a search over log(1/temperature) did not converge, and what to do."""
    if ending == "low":
        return (
            f"the loss still falls at the largest temperature allowed, {bounds[1]:g}: the "
            "labels are hardly better than chance, or the logits are very large. Check that "
            "`labels` index the columns of `logits`, or raise the upper of the `bounds`."
        )
    if ending == "high":
        return (
            f"the loss still falls at the smallest temperature allowed, {bounds[0]:g}: mistakes "
            "have tiny margins, or the logits are very small. Lower the lower of the `bounds`."
        )
    return f"no answer in {n_iterations} iterations. Raise `max_iterations`."


def _fit_without_mistakes(examples: ExampleSet, bounds: tuple[float, float]) -> TemperatureFit:
    """Every label has the top logit: no temperature above 0 is best."""
    if not examples.total(_differing).any():
        loss = softmax_moments(examples, 1.0)[0]
        message = (
            "the possible classes of each example have equal logits, so every temperature fits "
            "alike and 1 was taken. Use examples on which the logits differ."
        )
        return TemperatureFit(min(max(1.0, bounds[0]), bounds[1]), loss, 2, False, message)
    loss = softmax_moments(examples, 1.0 / bounds[0])[0]
    message = (
        "every validation label has the top logit, so the log loss falls all the way to "
        f"temperature 0; the smallest allowed, {bounds[0]:g}, was taken. Use more validation "
        "examples, some of which are wrong, or raise the lower of the `bounds`."
    )
    return TemperatureFit(bounds[0], loss, 2, False, message)


def _differing(examples: Examples) -> FloatArray:
    """1 if two possible classes of an example that counts have different logits, else 0, (1,)."""
    return np.array([float((uneven_rows(examples.logits) & (examples.weights > 0.0)).any())])


@singledispatch
def uneven_rows(logits: Logits) -> NDArray[np.bool_]:
    """Rows in which two possible classes have different logits, (n,)."""
    out = np.empty(logits.n_rows, np.bool_)
    for rows in logits.row_blocks():
        margins = logits.margins(rows)
        out[rows] = ((margins > 0.0) & (margins < np.inf)).any(axis=1)
    return out


def check_bounds(bounds: Any) -> tuple[float, float]:
    """The two bounds on the temperature, checked."""
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not 0.0 < low < high < math.inf:
        raise ValueError(
            "`bounds` must be two finite temperatures, the smaller first, both above 0; got "
            f"{bounds!r}. The default is {BOUNDS}."
        )
    return low, high
