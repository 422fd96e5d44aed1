"""Rules for two classes, functions of the log-odds of class 1; and isotonic regression.

Isotonic regression has rising functions of log-probabilities, linear between knots.
These are compared as float32, in the fit and here: values that agree to 6e-8 of their
size are one, so rows that differ by rounding alone count as the ties they are.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from hokical._core import checks
from hokical._core.arrays import (
    Array,
    FloatArray,
    IntArray,
    Namespace,
    ignore_overflow,
    to_float64,
)
from hokical._core.checks import ArrayOf, Coefficient, Temperature, Within
from hokical._core.logits import Logits
from hokical.rules.base import Rule, log_probabilities, probabilities_and_logs, softmax

#: Scores are compared as float32, in the fit and in predictions: rows that differ by
#: rounding tie.
LARGEST_KEY = float(np.finfo(np.float32).max)


def binary_log_odds(logits: Logits) -> Array:
    """The score of class 1 above that of class 0, (n,)."""
    return logits.margins[:, 0] - logits.margins[:, 1]


class LogisticRule(Rule):
    """Base of the rules that give log-odds of class 1."""

    preserves_labels: ClassVar[bool] = False
    binary_only: ClassVar[bool] = True

    def score(self, logits: Logits) -> Array:
        """The calibrated log-odds, (n,)."""
        raise TypeError(f"{type(self).__name__} has no predictions.")

    def proba(self, logits: Logits) -> Array:
        score = self.score(logits)
        return softmax(
            logits.xp.stack([logits.xp.zeros_like(score), score], axis=1), logits
        )


@dataclass(frozen=True)
class PlattRule(LogisticRule):
    """Log-odds `slope` times the score plus `intercept`."""

    name: ClassVar[str] = "platt"

    slope: Coefficient
    intercept: Coefficient

    def score(self, logits: Logits) -> Array:
        return binary_log_odds(logits) * self.slope + self.intercept


@dataclass(frozen=True)
class BetaRule(LogisticRule):
    """Log-odds a log p - b log(1 - p) + c of a probability p of class 1; a and b are
    not negative.

    They are called `rise`, `fall` and `intercept`.
    """

    name: ClassVar[str] = "beta"

    rise: Annotated[float, Within(0.0)]
    fall: Annotated[float, Within(0.0)]
    intercept: Coefficient

    def score(self, logits: Logits) -> Array:
        logs = log_probabilities(logits)
        return logs[:, 1] * self.rise - logs[:, 0] * self.fall + self.intercept


@dataclass(frozen=True, eq=False)
class VennAbersRule(Rule):
    """Two rising step functions of the score with steps at `knots` (k,).

    `lower` and `upper` (k + 1,) are the probabilities of class 1 if an example with
    that score was added to the fit as one of class 0, and of class 1. `lower` takes its
    step at a knot, `upper` behind it.
    """

    name: ClassVar[str] = "venn_abers"
    preserves_labels: ClassVar[bool] = False
    binary_only: ClassVar[bool] = True

    knots: Annotated[
        FloatArray, ArrayOf((None,), -LARGEST_KEY, LARGEST_KEY, rising=True)
    ]
    lower: Annotated[FloatArray, ArrayOf(("steps",), 0.0, 1.0 - 2.0**-53)]
    upper: Annotated[FloatArray, ArrayOf(("steps",), 1e-300, 1.0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_array("lower", self.lower, (self.knots.size + 1,))
        for steps in (self.lower, self.upper):
            if not (np.diff(steps) >= 0.0).all():
                raise ValueError("`lower` and `upper` must not fall.")
        if (self.lower[1:] > self.upper[:-1]).any() or self.lower[-1] > self.upper[-1]:
            raise ValueError("`lower` must not be above `upper`.")

    def proba(self, logits: Logits) -> Array:
        """Of class 1: upper / (1 - lower + upper), the minimax choice for log loss."""
        xp = logits.xp
        lower, upper = self._ends(logits)
        shares = xp.stack([1.0 - lower, upper], axis=1)
        shares = xp.where(logits.possible, shares, xp.zeros_like(shares))
        return shares / xp.sum(shares, axis=1, keepdims=True)

    def interval(self, logits: Logits, label: int | None = None) -> tuple[Array, Array]:
        """p0 and p1 of the label or a class; 0 or 1 where the other or it alone is
        possible.
        """
        xp, (lower, upper) = logits.xp, self._ends(logits)
        label_of_row = (
            self.labels(logits) if label is None else xp.full_like(logits.labels, label)
        )
        alone = logits.possible_counts == 1.0
        is_label = xp.astype(logits.labels == label_of_row, lower.dtype)
        low = xp.where(label_of_row == 1, lower, 1.0 - upper)
        high = xp.where(label_of_row == 1, upper, 1.0 - lower)
        return xp.where(alone, is_label, low), xp.where(alone, is_label, high)

    def _ends(self, logits: Logits) -> tuple[Array, Array]:
        """Both functions, (n,) each."""
        xp = logits.xp
        key = xp.astype(
            xp.clip(binary_log_odds(logits), -LARGEST_KEY, LARGEST_KEY), xp.float32
        )
        key = to_float64(key, xp)
        lower = xp.take(self.lower, xp.searchsorted(self.knots, key, side="right"))
        upper = xp.take(self.upper, xp.searchsorted(self.knots, key, side="left"))
        return lower, upper


#: Share of the probability mixed into every fitted value. It keeps classes apart that
#: fall on the same step, and leaves the probabilities themselves in a row whose fitted
#: values are all 0.
IDENTITY_SHARE = 1e-9
#: Classes below the label end at least this share below it: a gap that survives
#: float32.
GAP = 2.0**-20
#: Blocks of fewer rows are interpolated for all classes at once, others class by class.
_MANY_ROWS = 64
Knots = Annotated[FloatArray, ArrayOf(("knots",), -LARGEST_KEY, 0.0)]
Heights = Annotated[FloatArray, ArrayOf(("knots",), 0.0, 1.0)]


def as_key(log_proba: Array, xp: Namespace) -> Array:
    """Log-probabilities as they are compared, float32; -inf where they are below
    -3.4e38.
    """
    with ignore_overflow(xp):
        return xp.astype(log_proba, xp.float32)


@dataclass(frozen=True, eq=False)
class PooledIsotonicRule(Rule):
    """One function for all classes: `values` (k,) at the log-probabilities `knots`
    (k,).

    Rows are scaled to sum 1 if `normalize`; otherwise entries are the fitted
    probabilities.
    """

    name: ClassVar[str] = "irm"

    knots: Knots
    values: Heights
    normalize: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_curves(self.knots, self.values)

    def proba(self, logits: Logits) -> Array:
        proba, log_proba = probabilities_and_logs(logits, 1.0)
        fitted = _with_identity(self._curve(log_proba, logits), proba, logits)
        xp = logits.xp
        most = logits.at_label(fitted)[:, None] * (1.0 - GAP)
        fitted = xp.where(logits.margins > 0.0, xp.minimum(fitted, most), fitted)
        return _sum_to_one(fitted, logits) if self.normalize else fitted

    def _curve(self, log_proba: Array, logits: Logits) -> Array:
        """The function at log-probabilities (n, classes)."""
        keys = as_key(log_proba, logits.xp)
        if logits.is_numpy:
            return np.interp(keys, self.knots, self.values)
        xp = logits.xp
        size = self.knots.shape[0]
        x = xp.reshape(to_float64(keys, xp), (-1,))
        count = xp.searchsorted(self.knots, x, side="right")
        values = between_knots(self.knots, self.values, count, 0, size, x, xp)
        return xp.reshape(values, (-1, logits.n_columns))


@dataclass(frozen=True, eq=False)
class ClasswiseIsotonicRule(Rule):
    """A function for each class, of log-probabilities at `temperature`; rows are scaled
    to sum 1.

    Class c has the `knots` and `values` from offsets[c] to offsets[c + 1]; `offsets`
    are (classes + 1,) integers.
    """

    name: ClassVar[str] = "irova_ts"
    preserves_labels: ClassVar[bool] = False

    temperature: Temperature
    knots: Knots
    values: Heights
    offsets: Annotated[IntArray, ArrayOf((None,), 0, dtype=np.int64, rising=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offsets[0] != 0 or self.offsets[-1] != self.knots.size:
            raise ValueError(
                f"`offsets` must go from 0 to the number of knots, {self.knots.size}."
            )
        _check_curves(self.knots, self.values, self.offsets[1:-1])

    @property
    def n_classes(self) -> int:
        return int(self.offsets.size) - 1

    def proba(self, logits: Logits) -> Array:
        proba, log_proba = probabilities_and_logs(logits, self.temperature)
        keys = as_key(log_proba, logits.xp)
        many = logits.is_numpy and logits.n_rows >= _MANY_ROWS
        curves = self._by_class(keys) if many else self._curves(keys, logits)
        return _sum_to_one(_with_identity(curves, proba, logits), logits)

    def _curves(self, keys: Array, logits: Logits) -> Array:
        """The functions at keys (n, classes), all at once."""
        xp = logits.xp
        sizes = np.diff(self.offsets)
        none = xp.zeros_like(keys, dtype=xp.int64)
        first, size = (
            xp.reshape(none + logits.from_host(row)[None, :], (-1,))
            for row in (self.offsets[:-1], sizes)
        )
        x = xp.reshape(to_float64(keys, xp), (-1,))
        count = _count_at_most(self.knots, first, size, int(sizes.max()), x, xp)
        values = between_knots(self.knots, self.values, count, first, size, x, xp)
        return xp.reshape(values, (-1, logits.n_columns))

    def _by_class(self, keys: NDArray[np.float32]) -> FloatArray:
        """The same, quicker in NumPy for many rows, to the bit."""
        out = np.empty(keys.shape)
        by_class = np.ascontiguousarray(keys.T, dtype=np.float64)
        for column, (start, stop) in enumerate(pairwise(self.offsets.tolist())):
            knots = self.knots[start:stop]
            values = self.values[start:stop]
            out[:, column] = np.interp(by_class[column], knots, values)
        return out


def _count_at_most(
    knots: Array, first: Array, size: Array, largest: int, x: Array, xp: Namespace
) -> Array:
    """How many of knots[first : first + size], which rise, are at most each number of x
    (m,).

    `first` and `size` (m,) are integers, sizes from 1 to `largest`. Bisection in steps
    that are powers of two, the same for all, so that no value decides what is done
    next.
    """
    count = xp.zeros_like(first)
    step = 1 << (largest.bit_length() - 1)
    while step:
        trial = xp.minimum(count + step, size)
        count = xp.where(xp.take(knots, first + trial - 1) <= x, trial, count)
        step >>= 1
    return count


def between_knots(
    knots: Array,
    values: Array,
    count: Array,
    first: Array,
    size: Array,
    x: Array,
    xp: Namespace,
) -> Array:
    """The function of knots[first : first + size] at x (m,), `count` (m,) of which are
    at most x.

    Linear between knots, constant outside. The same operations as `np.interp`, in its
    order.
    """
    left = first + xp.clip(count - 1, 0, None)
    right = first + xp.where(count < size, count, size - 1)
    start = xp.take(values, left)
    low = xp.take(knots, left)
    rise = xp.take(values, right) - start
    run = xp.take(knots, right) - low
    inside = run > 0.0
    slope = rise / xp.where(inside, run, xp.ones_like(run))
    return slope * xp.where(inside, x - low, xp.zeros_like(x)) + start


def _with_identity(fitted: Array, proba: Array, logits: Logits) -> Array:
    """A trace of the probability mixed in, and 0 for masked classes, (n, classes)."""
    return logits.put_masked(fitted + IDENTITY_SHARE * (proba - fitted), 0.0)


def _sum_to_one(fitted: Array, logits: Logits) -> Array:
    """Rows scaled to sum 1."""
    return fitted / logits.xp.sum(fitted, axis=1, keepdims=True)


def _check_curves(
    knots: FloatArray, values: FloatArray, starts: IntArray | tuple[()] = ()
) -> None:
    """Rising functions, one after the other; all but the first begin at the knots
    `starts`.

    Knots must be float32 numbers, as keys are: so far apart that no slope can overflow.
    """
    within = np.ones(knots.size - 1, np.bool_)
    within[np.asarray(starts, np.int64) - 1] = False
    if (
        not (np.diff(knots)[within] > 0.0).all()
        or not (np.diff(values)[within] >= 0.0).all()
    ):
        raise ValueError(
            "`knots` must rise, and `values` must not fall, within a function."
        )
    if (knots != knots.astype(np.float32)).any():
        raise ValueError(
            "`knots` must be float32 numbers, as log-probabilities are compared."
        )
