"""The losses that ensemble temperature scaling minimises, at a given temperature.

A mixture is p = w_1 softmax(beta z) + w_2 softmax(z) + w_3 uniform. For a given beta both losses
are convex in the weights w; this module gives value, gradient and Hessian there, and the
derivatives by s = log beta. With x_i = beta (top - z_i), and m and v the mean and the variance of x
under a = softmax(beta z): da_i/ds = a_i (m - x_i), and dm/ds = m - v.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, singledispatch

import numpy as np
from numpy.typing import NDArray

from hokical.likelihood import (
    FAR,
    Examples,
    ExampleSet,
    Parts,
    moment_sums,
    scaled_margins,
    sum_over_blocks,
)
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]

_TINY = 1e-300  # keeps the log of an impossible truth finite


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A loss around weights w: by w alone, and by s = log beta."""

    value: float
    gradient: FloatArray  # (3,)
    hessian: FloatArray  # (3, 3)
    slope: float
    curvature: float
    mixed: FloatArray  # (3,), derivative of the gradient by s


class Slice(ABC):
    """A loss at one temperature, as a function of the weights."""

    @abstractmethod
    def around(self, weights: FloatArray) -> Quadratic:
        """Value and derivatives at the weights."""


@dataclass(frozen=True, eq=False)
class LogSlice(Slice):
    """Mean log loss, summed over the examples for all weights anew."""

    parts: Parts[MixturePart]
    beta: float

    def around(self, weights: FloatArray) -> Quadratic:
        sums = self.parts.total(lambda part: part.log_rows(self.beta).sums(weights))
        value, slope, curvature = sums[:3].tolist()
        return Quadratic(value, sums[3:6], sums[9:].reshape(3, 3), slope, curvature, sums[6:9])


@dataclass(frozen=True, eq=False)
class LogRows:
    """Per example: `parts` (3, n), the true class's probability under each part of the mixture."""

    parts: FloatArray
    first: FloatArray  # (n,), derivative of parts[0] by s
    second: FloatArray  # (n,)
    counts: FloatArray  # (n,), weights of the examples

    def sums(self, weights: FloatArray) -> FloatArray:
        """The loss's value, slope, curvature, gradient, mixed derivative and Hessian, (18,)."""
        p = np.maximum(weights @ self.parts, _TINY)
        relative = self.parts / p
        first = weights[0] * self.first / p
        counted = relative * self.counts
        mixed = counted @ first
        mixed[0] -= np.sum(self.counts * self.first / p)
        value = -np.sum(self.counts * np.log(p))
        slope = -np.sum(self.counts * first)
        curvature = np.sum(self.counts * (first**2 - weights[0] * self.second / p))
        gradient, hessian = -counted.sum(axis=1), counted @ relative.T
        return np.concatenate([[value, slope, curvature], gradient, mixed, hessian.ravel()])


@dataclass(frozen=True, eq=False)
class SquareSlice(Slice):
    """Mean squared distance to the one-hot truth: w' gram w - 2 true' w + 1.

    `gram` (3, 3, 3) and `true` (3, 3) hold the value and the two derivatives by s along their
    first axis.
    """

    gram: FloatArray
    true: FloatArray

    def around(self, weights: FloatArray) -> Quadratic:
        pull = self.gram @ weights  # (3 derivatives, 3)
        value, slope, curvature = ((pull - 2.0 * self.true) @ weights).tolist()
        gradient, mixed, _ = 2.0 * (pull - self.true)
        return Quadratic(1.0 + value, gradient, 2.0 * self.gram[0], slope, curvature, mixed)


class Mixture:
    """The losses of all examples, at any temperature."""

    def __init__(self, examples: ExampleSet) -> None:
        self.examples = examples
        self._parts = examples.prepared(MixturePart)

    def log_slice(self, beta: float) -> LogSlice:
        """A pass over the logits, for as many weights as one likes while in memory."""
        return LogSlice(self._parts, beta)

    def square_slice(self, beta: float) -> SquareSlice:
        """One pass over the logits."""
        sums = self._parts.total(lambda part: part.square_sums(beta))
        gram, true = np.zeros((3, 3, 3)), np.zeros((3, 3))
        gram[:, 0, 0], gram[:, 0, 1], true[:, 0] = sums[:9].reshape(3, 3)
        gram[:, 1, 0] = gram[:, 0, 1]
        gram[0, 1, 1], with_uniform, true[0, 1] = sums[9:]
        # Any distribution over the possible classes has this product with the uniform one.
        gram[0, 2, :] = gram[0, :, 2] = true[0, 2] = with_uniform
        return SquareSlice(gram, true)


class MixturePart:
    """Examples in memory, and what does not depend on the temperature."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self._latest: tuple[float, LogRows] | None = None

    @cached_property
    def uniform(self) -> FloatArray:
        """1 / number of possible classes, (n,)."""
        return uniform_part(self.examples.logits)

    @cached_property
    def plain_true(self) -> FloatArray:
        """softmax(z) of the true class, (n,)."""
        return np.asarray(np.exp(-self.examples.true_margins) / self._plain_sums[0])

    @cached_property
    def _plain_sums(self) -> FloatArray:
        """sum_i exp(-d_i) and sum_i exp(-2 d_i), (2, n)."""
        return plain_sums(self.examples.logits, self)

    def plain_terms(self, rows: slice) -> FloatArray:
        """exp(-d) of a block, (rows, classes), made once where that costs little memory."""
        if self.examples.small:
            return self._all_plain_terms[rows]
        return np.asarray(np.exp(-self.examples.margins(rows)))

    @cached_property
    def _all_plain_terms(self) -> FloatArray:
        return np.asarray(np.exp(-self.examples.margins(slice(0, self.examples.labels.size))))

    def log_rows(self, beta: float) -> LogRows:
        """One pass over the logits; the latest is kept, as weights are tried on it in turn."""
        if self._latest is None or self._latest[0] != beta:
            self._latest = (beta, self._new_log_rows(beta))
        return self._latest[1]

    def _new_log_rows(self, beta: float) -> LogRows:
        logits = self.examples.logits
        true = np.empty((3, logits.n_rows))

        def work(rows: slice) -> None:
            true[:, rows] = self._true_class(rows, beta, moment_sums(self.examples, rows, beta))

        for_row_blocks(work, logits.n_rows, logits.rows_per_block)
        parts = np.stack([true[0], self.plain_true, self.uniform])
        return LogRows(parts, true[1], true[2], self.examples.weights)

    def square_sums(self, beta: float) -> FloatArray:
        """Sums of a.a, a.q, a_true with their derivatives by s; of q.q, the uniform, q_true; (12,).

        a = softmax(beta z), q = softmax(z).
        """
        weights = self.examples.weights

        def work(rows: slice) -> FloatArray:
            per_row = np.concatenate(self._products(rows, beta))
            return np.asarray((per_row * weights[rows]).sum(axis=1))

        return np.concatenate([sum_over_blocks(self.examples.logits, 9, work), self._constants])

    @cached_property
    def _constants(self) -> FloatArray:
        """What of the squares does not depend on the temperature, (3,)."""
        weights = self.examples.weights
        zeroth, doubled = self._plain_sums
        rows = (doubled / zeroth**2, self.uniform, self.plain_true)
        return np.array([np.sum(weights * row) for row in rows])

    def _products(self, rows: slice, beta: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """a.a, a.q and a_true, each with its two derivatives by s, (3, rows); q = softmax(z)."""
        moments, squared, crossed = product_sums(self.examples.logits, self, rows, beta)
        mean = moments[1] / moments[0]
        change = mean - (moments[2] / moments[0] - mean * mean)  # dm/ds
        with_self, first, second = squared / moments[0] ** 2
        self_slope = 2.0 * (mean * with_self - first)
        self_curve = 2.0 * (
            change * with_self + mean * self_slope - (2.0 * mean + 1.0) * first + 2.0 * second
        )
        with_plain, first, second = crossed / (moments[0] * self._plain_sums[0, rows])
        plain_slope = mean * with_plain - first
        plain_curve = change * with_plain + mean * plain_slope - (mean + 1.0) * first + second
        return (
            np.stack([with_self, self_slope, self_curve]),
            np.stack([with_plain, plain_slope, plain_curve]),
            self._true_class(rows, beta, moments),
        )

    def _true_class(self, rows: slice, beta: float, moments: FloatArray) -> FloatArray:
        """softmax(beta z) of the true class with its two derivatives by s, (3, rows)."""
        x = np.minimum(beta * self.examples.true_margins[rows], FAR)
        mean = moments[1] / moments[0]
        variance = moments[2] / moments[0] - mean * mean
        value = np.exp(-x) / moments[0]
        relative = mean - x
        return np.stack([value, value * relative, value * (relative * (relative + 1.0) - variance)])


@singledispatch
def plain_sums(logits: Logits, part: MixturePart) -> FloatArray:
    """sum_i exp(-d_i) and sum_i exp(-2 d_i) of every example, (2, n)."""
    out = np.empty((2, logits.n_rows))
    tail = logits.tail

    def work(rows: slice) -> None:
        terms = part.plain_terms(rows)
        out[0, rows] = terms.sum(axis=1)
        out[1, rows] = np.einsum("ni,ni->n", terms, terms)
        if tail is not None:
            term = np.exp(-tail.margin[rows])
            out[:, rows] += tail.count[rows] * np.stack([term, term * term])

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_columns))
    return out


@singledispatch
def product_sums(logits: Logits, part: MixturePart, rows: slice, beta: float) -> FloatArray:
    """The sums of `plain_product_sums` over columns and tail, (3, 3, rows)."""
    if part.examples.small:
        sums = plain_product_sums(part.examples.margins(rows), part.plain_terms(rows), beta)
    else:
        sums = compiled_product_sums(logits, rows, beta)
    tail = logits.tail
    if tail is not None:
        margin = tail.margin[rows, None]
        sums += tail.count[rows] * plain_product_sums(margin, np.exp(-margin), beta)
    return sums


@singledispatch
def uniform_part(logits: Logits) -> FloatArray:
    """1 / number of possible classes per row, (n,)."""
    out = np.empty(logits.n_rows)
    for rows in logits.row_blocks():
        out[rows] = 1.0 / logits.possible_counts(rows)
    return out


def plain_product_sums(margins: FloatArray, plain: FloatArray, beta: float) -> FloatArray:
    """sum_i x_i^r e_i f_i for r = 0, 1, 2 and f = 1, e, plain, (3, 3, rows); e = exp(-x)."""
    x = scaled_margins(margins, beta)
    terms = np.exp(-x)
    term = terms.copy()
    out = np.empty((3, 3, x.shape[0]))
    for power in range(3):
        if power:
            term *= x
        out[0, power] = term.sum(axis=1)
        out[1, power] = np.einsum("ni,ni->n", term, terms)
        out[2, power] = np.einsum("ni,ni->n", term, plain)
    return out


def compiled_product_sums(logits: Logits, rows: slice, beta: float) -> FloatArray:
    """The same through the compiled kernel."""
    from hokical.calibrators._kernels import margin_products

    out = np.empty((3, 3, rows.stop - rows.start))
    margin_products(logits.block(rows), logits.top[rows], beta, FAR, out)
    return out
