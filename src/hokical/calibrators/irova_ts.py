"""Temperature scaling, then isotonic regression one class against all (Zhang et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._isotonic import (
    IDENTITY_SHARE,
    Curve,
    as_key,
    checked_curve,
    count_rows,
    fit_curve,
    log_norm_of,
    log_norms,
    sum_hits,
    tally,
)
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.temps import (
    BOUNDS,
    check_bounds,
    fit_temperature,
)
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rows calibrated at a time, at least: each class is one call of the interpolation per block.
_ROWS_AT_LEAST = 512


class IsotonicOneVsAllTS(BaseCalibrator):
    """A rising function per class, fitted to the temperature-scaled probabilities of that class.

    For class c, isotonic regression of "the true class is c" on the probability of c; rows are
    then scaled to sum 1, which the authors leave out. **The most likely class can change**, and
    with it the accuracy: `predict` gives the new one. The regressions are exact, with
    log-probabilities compared as float32, and linear in the log-probability between two steps.

    Two things follow from fitting classes one by one. A class that is absent from the validation
    set has the function 0; `absent_classes_` lists them, and more validation examples mend it. A
    row can get 0 from all its functions. As in the authors' code 1e-9 of the temperature-scaled
    probability is mixed into every value, so no possible class gets exactly 0, and such a row
    falls back to the temperature-scaled one.

    Parameters
    ----------
    bounds : (float, float)
        Smallest and largest temperature allowed, as in `TemperatureScaling`.
    max_iterations : int
        Most passes over the validation set for the temperature.

    Attributes
    ----------
    temperature_ : of the temperature scaling
    knots_, values_ : the functions of all classes one after the other: log-probabilities, rising
        within a class, and the values there
    offsets_ : (classes + 1,), class c owns the knots from offsets_[c] to offsets_[c + 1]
    absent_classes_ : classes without a validation example
    converged_, message_ : how the fit of the temperature ended

    Notes
    -----
    A class that a row masks (-inf) takes no part in the fit and gets 0. Memory: a block of
    columns at a time, and 2 copies of float32 logits for what `predict_proba` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.irova_ts import IsotonicOneVsAllTS
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicOneVsAllTS().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03)
    True
    """

    name = "irova_ts"
    reference = "Zhang, Kailkhura, Han: Mix-n-Match, 2020"
    cost = "temperature scaling, then one pass per class over its column"
    preserves_labels = False

    def __init__(self, *, bounds: tuple[float, float] = BOUNDS, max_iterations: int = 100) -> None:
        self.bounds = bounds
        self.max_iterations = max_iterations

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        bounds = check_bounds(self.bounds)
        count = check_count(self.max_iterations, name="max_iterations")
        logits, labels, weights = count_rows(logits, labels, weights)
        found = fit_temperature(logits, labels, weights, bounds=bounds, max_iterations=count)
        curves = fit_columns(logits, labels, weights, found.temperature)
        self._keep(found.temperature, curves)
        self.converged_, self.message_ = found.converged, found.message
        self.absent_classes_ = np.setdiff1d(np.arange(logits.n_classes), labels)
        if not found.converged:
            warn_user(
                f"The temperature of IsotonicOneVsAllTS did not converge: {found.message}",
                ConvergenceWarning,
            )

    def _keep(self, temperature: float, curves: list[Curve]) -> None:
        self.temperature_ = temperature
        self.knots_ = np.concatenate([curve.knots for curve in curves])
        self.values_ = np.concatenate([curve.values for curve in curves])
        self.offsets_ = np.cumsum([0] + [curve.knots.size for curve in curves])

    def _curve(self, column: int) -> Curve:
        part = slice(self.offsets_[column], self.offsets_[column + 1])
        return Curve(self.knots_[part], self.values_[part])

    def _proba(self, logits: Logits) -> FloatArray:
        return self._by_blocks(logits, lambda block: block, np.empty(logits.values.shape))

    def _confidence(self, logits: Logits) -> FloatArray:
        return self._by_blocks(logits, lambda block: block.max(axis=1), np.empty(logits.n_rows))

    def _labels(self, logits: Logits) -> IntArray:
        out = np.empty(logits.n_rows, np.int64)
        return self._by_blocks(logits, lambda block: block.argmax(axis=1), out)

    def _by_blocks(
        self, logits: Logits, view: Callable[[FloatArray], NDArray[Any]], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Fill `out` with what `view` makes of each block of calibrated rows."""

        def work(rows: slice) -> None:
            out[rows] = view(self._block(logits, rows))

        step = max(_ROWS_AT_LEAST, rows_per_block(logits.n_classes))
        for_row_blocks(work, logits.n_rows, step)
        return out

    def _block(self, logits: Logits, rows: slice) -> FloatArray:
        """Calibrated rows, (rows, classes)."""
        margins = logits.margins(rows) / self.temperature_
        log_proba = -(margins + log_norm_of(margins, logits.labels[rows])[:, None])
        keys = np.ascontiguousarray(as_key(log_proba).T)
        values = np.exp(log_proba, out=log_proba)
        values *= IDENTITY_SHARE
        for column, column_keys in enumerate(keys):
            values[:, column] += (1.0 - IDENTITY_SHARE) * self._curve(column)(column_keys)
        values[margins == np.inf] = 0.0
        return np.asarray(values / values.sum(axis=1, keepdims=True))

    def _state(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature_,
            "converged": self.converged_,
            "message": self.message_,
            "absent_classes": self.absent_classes_,
            "knots": self.knots_,
            "values": self.values_,
            "offsets": self.offsets_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        temperature, offsets = float(state["temperature"]), state["offsets"]
        if not 0.0 < temperature < np.inf:
            raise ValueError(f"temperature must be finite and above 0; got {temperature}")
        if offsets.shape != (self.n_classes_ + 1,):
            raise ValueError(f"there are not {self.n_classes_} functions, one per class")
        parts = [slice(*ends) for ends in pairwise(offsets.tolist())]
        knots, values = state["knots"], state["values"]
        self._keep(temperature, [checked_curve(knots[part], values[part]) for part in parts])
        self.converged_, self.message_ = state["converged"], state["message"]
        self.absent_classes_ = state["absent_classes"]


@singledispatch
def fit_columns(
    logits: Logits, labels: IntArray, weights: FloatArray | None, temperature: float
) -> list[Curve]:
    """One curve per class; columns are read in blocks because rows lie together in memory."""
    log_norm = log_norms(logits, temperature)
    curves = [Curve(np.zeros(1), np.zeros(1))] * logits.n_classes

    def work(columns: slice) -> None:
        part = logits.values[:, columns].astype(np.float64)
        margins = (logits.top[:, None] - part) / temperature
        keys = np.ascontiguousarray(as_key(-(margins + log_norm[:, None])).T)
        for column in range(columns.start, columns.stop):
            true = np.flatnonzero(labels == column)
            curves[column] = _fit_column(keys[column - columns.start], true, weights)

    for_row_blocks(work, logits.n_classes, rows_per_block(logits.n_rows))
    return curves


def _fit_column(keys: NDArray[np.float32], true: IntArray, weights: FloatArray | None) -> Curve:
    """The curve of one class from its keys (n,) and the rows of which it is the true class."""
    edges, hits = sum_hits(keys[true], None if weights is None else weights[true])
    return fit_curve(edges, hits, tally(keys, weights, edges))
