"""The losses that ensemble temperature scaling minimises, at a given temperature.

A mixture is p = w_1 softmax(beta z) + w_2 softmax(z) + w_3 uniform. For a given beta both losses
are convex in the weights w; this module gives value, gradient and Hessian there, and the
derivatives by s = log beta. With x_i = beta (top - z_i), and m and v the mean and the variance of x
under a = softmax(beta z): da_i/ds = a_i (m - x_i), and dm/ds = m - v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.blocks import by_blocks, per_row
from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.special import FAR
from hokical._core.types import FloatArray
from hokical._fitting import likelihood
from hokical._fitting.likelihood import Moments, WeightedExamples
from hokical._fitting.simplex import QuadraticModel

Loss = Literal["mse", "log"]

_TINY = 1e-300  # keeps the log of an impossible truth finite


@dataclass(frozen=True, eq=False)
class JointModel(QuadraticModel):
    """A loss around weights w: by w alone, and by s = log beta."""

    slope: float
    curvature: float
    mixed: FloatArray  # (3,), derivative of the gradient by s


def mixture_loss(
    examples: WeightedExamples, loss: Loss, beta: float
) -> Callable[[FloatArray], JointModel]:
    """The loss at one temperature, as a function of the weights (3,).

    One pass over the logits for the squared distance; for the log loss one for all weights.
    """
    if loss == "log":
        return partial(_log_model, examples, beta)
    sums = examples.keep(MixturePart).square_sums(beta)
    gram, true = np.zeros((3, 3, 3)), np.zeros((3, 3))
    gram[:, 0, 0], gram[:, 0, 1], true[:, 0] = sums[:9].reshape(3, 3)
    gram[:, 1, 0] = gram[:, 0, 1]
    gram[0, 1, 1], with_uniform, true[0, 1] = sums[9:]
    # Any distribution over the possible classes has this product with the uniform one.
    gram[0, 2, :] = gram[0, :, 2] = true[0, 2] = with_uniform
    return partial(_square_model, gram, true)


def _log_model(examples: WeightedExamples, beta: float, weights: FloatArray) -> JointModel:
    """Mean log loss around the weights."""
    sums = examples.keep(MixturePart).log_sums(beta, weights)
    value, slope, curvature = sums[:3].tolist()
    return JointModel(value, sums[3:6], sums[9:].reshape(3, 3), slope, curvature, sums[6:9])


def _square_model(gram: FloatArray, true: FloatArray, weights: FloatArray) -> JointModel:
    """Mean squared distance to the one-hot truth: w' gram w - 2 true' w + 1.

    `gram` (3, 3, 3) and `true` (3, 3) hold the value and the two derivatives by s along their
    first axis.
    """
    product = gram @ weights  # (3 derivatives, 3)
    value, slope, curvature = ((product - 2.0 * true) @ weights).tolist()
    gradient, mixed, _ = 2.0 * (product - true)
    return JointModel(1.0 + value, gradient, 2.0 * gram[0], slope, curvature, mixed)


class MixturePart:
    """Examples in memory, and what does not depend on the temperature."""

    def __init__(self, examples: WeightedExamples) -> None:
        self.examples = examples
        self._latest: tuple[float, Moments] | None = None

    @cached_property
    def uniform(self) -> FloatArray:
        """1 / number of possible classes, (n,)."""
        return np.asarray(1.0 / per_row(lambda block: block.possible_counts, self.examples.logits))

    @cached_property
    def plain_true(self) -> FloatArray:
        """softmax(z) of the true class, (n,)."""
        return np.asarray(np.exp(-self.examples.true_margins) / self._plain_sums[0])

    @cached_property
    def _plain_sums(self) -> tuple[FloatArray, FloatArray]:
        """sum_i exp(-d_i) and sum_i exp(-2 d_i), (n,) each."""
        logits = self.examples.logits
        once, twice = by_blocks(_plain_sums, logits)
        return logits.to_host(once), logits.to_host(twice)

    def log_sums(self, beta: float, weights: FloatArray) -> FloatArray:
        """The log loss's value, slope, curvature, gradient, mixed derivative and Hessian, (18,)."""
        counts = self.examples.weights
        parts, own_first, own_second = self._true_parts(beta)
        p = np.maximum(weights @ parts, _TINY)
        relative = parts / p
        first = weights[0] * own_first / p
        counted = relative * counts
        mixed = counted @ first
        mixed[0] -= np.sum(counts * own_first / p)
        value = -np.sum(counts * np.log(p))
        slope = -np.sum(counts * first)
        curvature = np.sum(counts * (first**2 - weights[0] * own_second / p))
        gradient, hessian = -counted.sum(axis=1), counted @ relative.T
        return np.concatenate([[value, slope, curvature], gradient, mixed, hessian.ravel()])

    def _true_parts(self, beta: float) -> Moments:
        """The true class's probability under each part (3, n), and derivatives of the first by s.

        One pass over the logits; the latest is kept, as weights are tried on it in turn.
        """
        if self._latest is None or self._latest[0] != beta:
            logits = self.examples.logits
            moments = by_blocks(lambda block: likelihood.moment_sums(block, beta), logits)
            zeroth, first, second = (logits.to_host(part) for part in moments)
            true = _true_class(self.examples.true_margins, beta, (zeroth, first, second), np)
            parts = np.stack([true[0], self.plain_true, self.uniform])
            self._latest = (beta, (parts, true[1], true[2]))
        return self._latest[1]

    def square_sums(self, beta: float) -> FloatArray:
        """Sums of a.a, a.q, a_true with their derivatives by s; of q.q, the uniform, q_true; (12,).

        a = softmax(beta z), q = softmax(z).
        """
        weights, true_margins, plain_sum = self._on_device

        def work(rows: slice, block: Logits) -> Array:
            xp = block.xp
            sums = product_sums(block, beta)
            products = _softmax_products(sums, plain_sum[rows])
            true = _true_class(true_margins[rows], beta, sums[0], xp)
            return xp.sum(xp.stack([*products, *true], axis=0) * weights[rows], axis=1)

        return np.concatenate([self.examples.sum_over_blocks(work), self._constants])

    @cached_property
    def _on_device(self) -> tuple[Array, Array, Array]:
        """Weights, true margins and sums of exp(-d), (n,), in the library of the logits."""
        move = self.examples.logits.from_host
        true_margins, plain_sum = move(self.examples.true_margins), move(self._plain_sums[0])
        return self.examples.weights_on_device, true_margins, plain_sum

    @cached_property
    def _constants(self) -> FloatArray:
        """What of the squares does not depend on the temperature, (3,)."""
        weights = self.examples.weights
        zeroth, doubled = self._plain_sums
        rows = (doubled / zeroth**2, self.uniform, self.plain_true)
        return np.array([np.sum(weights * row) for row in rows])


def product_sums(logits: Logits, beta: float) -> tuple[Moments, ...]:
    """sum_i x_i^r e_i f_i for r = 0, 1, 2 and f = 1, e, exp(-d); three times three arrays (n,).

    e = exp(-x), over columns and tail.
    """
    sums, tail = column_products(logits, beta), logits.tail
    if tail is None:
        return sums  # type: ignore[no-any-return]
    x = logits.xp.clip(tail.margin * beta, None, FAR)
    term = logits.xp.exp(-x)
    counted = tail.count * term
    factors = (counted, counted * term, counted * logits.xp.exp(-tail.margin))
    return tuple(
        (zeroth + factor, first + factor * x, second + factor * x * x)
        for (zeroth, first, second), factor in zip(sums, factors, strict=True)
    )


def column_products(logits: Logits, beta: float) -> Any:
    """The same over the columns alone."""
    if not has_kernels(logits):
        return portable_products(logits, beta)
    from hokical._fitting.kernels import margin_products

    out = np.empty((3, 3, logits.n_rows))
    margin_products(logits.block(), logits.top, beta, FAR, out)
    return out


def portable_products(logits: Logits, beta: float) -> tuple[Moments, ...]:
    """`column_products` for arrays of any library."""
    xp = logits.xp
    minus_x = logits.margins * -beta
    term, flat = xp.exp(minus_x), xp.exp(-logits.margins)

    def sums(weighted: Array) -> Moments:
        return (
            xp.sum(weighted, axis=1),
            likelihood.row_dots(weighted, term, xp),
            likelihood.row_dots(weighted, flat, xp),
        )

    zeroth = sums(term)
    weighted = term * minus_x
    first = tuple(-part for part in sums(weighted))
    weighted *= minus_x
    return tuple(zip(zeroth, first, sums(weighted), strict=True))


def _plain_sums(logits: Logits) -> tuple[Array, Array]:
    """sum_i exp(-d_i) and sum_i exp(-2 d_i) of each row, over columns and tail, (n,) each."""
    xp, tail = logits.xp, logits.tail
    terms = xp.exp(-logits.margins)
    once, twice = xp.sum(terms, axis=1), likelihood.row_dots(terms, terms, xp)
    if tail is None:
        return once, twice
    term = xp.exp(-tail.margin)
    return once + tail.count * term, twice + tail.count * (term * term)


def _softmax_products(sums: tuple[Moments, ...], plain_sum: Array) -> tuple[Array, ...]:
    """a.a and a.q of each row, each with its two derivatives by s, (n,)."""
    (zeroth, first, second), squared, mixed = sums
    mean = first / zeroth
    change = mean - (second / zeroth - mean * mean)  # dm/ds
    own, own_first, own_second = (part / zeroth**2 for part in squared)
    own_slope = 2.0 * (mean * own - own_first)
    own_curve = 2.0 * (
        change * own + mean * own_slope - (2.0 * mean + 1.0) * own_first + 2.0 * own_second
    )
    plain, plain_first, plain_second = (part / (zeroth * plain_sum) for part in mixed)
    plain_slope = mean * plain - plain_first
    plain_curve = change * plain + mean * plain_slope - (mean + 1.0) * plain_first + plain_second
    return own, own_slope, own_curve, plain, plain_slope, plain_curve


def _true_class(margins: Array, beta: float, moments: Moments, xp: Namespace) -> Moments:
    """softmax(beta z) of the true class at these margins, with two derivatives by s, (n,) each."""
    zeroth, first, second = moments
    x = xp.clip(margins * beta, None, FAR)
    mean = first / zeroth
    variance = second / zeroth - mean * mean
    value, relative = xp.exp(-x) / zeroth, mean - x
    return value, value * relative, value * (relative * (relative + 1.0) - variance)
