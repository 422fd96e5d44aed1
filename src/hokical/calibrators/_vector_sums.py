"""Sums over examples that vector scaling is fitted from."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce, singledispatch

import numpy as np
from numpy.typing import NDArray

from hokical.likelihood import Examples, sum_over_blocks
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: In how many parts the Hessian is summed: the most threads it can use. Each holds two Hessians.
PARTS = 2


@dataclass(frozen=True)
class Shape:
    """What theta = (unit (scale - 1/temperature), bias), (2 classes,), is measured in.

    Features x are log-probabilities divided by the unit.
    """

    temperature: float
    unit: float


class Sums:
    """Weighted sums over rows, in one flat array that they are views of.

    `firsts` (2 classes + 1,) of [p x, p, log loss], `squares` (classes,) of p x^2, and `products`
    (2 classes, 2 classes) of [p x, p] with itself.
    """

    def __init__(self, flat: FloatArray, n_classes: int) -> None:
        width = 2 * n_classes
        self.flat = flat
        self.firsts = flat[: width + 1]
        self.squares = flat[width + 1 : width + 1 + n_classes]
        self.products = flat[width + 1 + n_classes :].reshape(width, width)

    @classmethod
    def zeros(cls, n_classes: int) -> Sums:
        return cls(np.zeros(3 * n_classes + 1 + 4 * n_classes**2), n_classes)

    def __iadd__(self, other: Sums) -> Sums:
        self.flat += other.flat
        return self


class VectorPart:
    """Examples in memory, their features, and sums over them."""

    def __init__(self, examples: Examples, shape: Shape) -> None:
        self.examples, self.shape = examples, shape
        self.offset = log_sums(examples.logits)
        self.true_features = np.asarray((examples.true_margins + self.offset) / -shape.unit)

    def observed(self) -> FloatArray:
        """Weighted sums of the true classes' features, and of the classes, (2 classes,)."""
        labels, weights, count = self.examples.labels, self.examples.weights, self._n_classes
        first = np.bincount(labels, weights * self.true_features, count)
        return np.concatenate([first, np.bincount(labels, weights, count)])

    def second_sums(self, theta: FloatArray) -> Sums:
        """All sums, the products among them."""
        n_rows = self.examples.logits.n_rows
        # As many parts whatever the threads, so that sums always add up in the same order.
        step = max(-(-n_rows // PARTS), self._rows_per_block)
        parts: list[Sums | None] = [None] * -(-n_rows // step)

        def work(rows: slice) -> None:
            parts[rows.start // step] = self._sum_rows(theta, rows)

        for_row_blocks(work, n_rows, step)
        return reduce(operator.iadd, (part for part in parts if part is not None))

    def first_sums(self, theta: FloatArray) -> FloatArray:
        """Sums of [p x, p, log loss] alone, (2 classes + 1,)."""

        def work(rows: slice) -> FloatArray:
            _, joined, loss = self._predict(theta, rows)
            weights = self.examples.weights[rows]
            return np.append(weights @ joined, weights @ loss)

        return sum_over_blocks(self.examples.logits, theta.size + 1, work)

    def class_losses(self, theta: FloatArray) -> FloatArray:
        """Log loss of each class against all others, then that of the labels, (classes + 1,)."""

        def work(rows: slice) -> FloatArray:
            _, proba, loss = self._scores(theta, rows)
            weights, labels = self.examples.weights[rows], self.examples.labels[rows]
            own = (np.arange(labels.size), labels)
            proba[own] = 0.0  # its loss is added by itself
            np.log1p(-np.minimum(proba, 1.0 - 1e-16), out=proba)
            each = -(weights @ proba) + np.bincount(labels, weights * loss, proba.shape[1])
            return np.append(each, weights @ loss)

        return sum_over_blocks(self.examples.logits, self._n_classes + 1, work)

    @property
    def _n_classes(self) -> int:
        return self.examples.n_classes

    @property
    def _rows_per_block(self) -> int:
        return rows_per_block(2 * self._n_classes)

    def _sum_rows(self, theta: FloatArray, rows: slice) -> Sums:
        count = self._n_classes
        total = Sums.zeros(count)
        products = np.empty_like(total.products)
        for start in range(rows.start, rows.stop, self._rows_per_block):
            block = slice(start, min(start + self._rows_per_block, rows.stop))
            features, joined, loss = self._predict(theta, block)
            weights = self.examples.weights[block]
            total.firsts[:-1] += weights @ joined
            total.firsts[-1] += weights @ loss
            features *= joined[:, :count]
            total.squares += weights @ features
            joined *= np.sqrt(weights)[:, None]
            total.products += np.matmul(joined.T, joined, out=products)
        return total

    def _predict(self, theta: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features x (rows, classes), [p x, p] (rows, 2 classes), and the log losses (rows,)."""
        features, proba, loss = self._scores(theta, rows)
        return features, np.concatenate([proba * features, proba], axis=1), loss

    def _scores(self, theta: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features x and probabilities (rows, classes), and the log losses (rows,)."""
        deviation, bias = np.split(theta, 2)
        slope = self.shape.unit / self.shape.temperature + deviation
        features, masked = log_probabilities(self.examples.logits, self.offset, rows)
        features /= self.shape.unit
        labels = self.examples.labels[rows]
        with np.errstate(over="ignore", invalid="ignore"):  # a trial step may go much too far
            proba, log_sum = masked_softmax(features * slope + bias, masked)
            loss = log_sum - (self.true_features[rows] * slope[labels] + bias[labels])
        return features, proba, loss


def vector_part(examples: Examples, shape: Shape) -> VectorPart:
    """Examples with their features, wherever the logits are."""
    return vector_part_of(examples.logits, examples, shape)


@singledispatch
def vector_part_of(logits: Logits, examples: Examples, shape: Shape) -> VectorPart:
    """The same, given the logits."""
    return VectorPart(examples, shape)


@singledispatch
def log_sums(logits: Logits) -> FloatArray:
    """Minus the log-probability of every row's label, (n,): log sum_i exp -(top - z_i).

    Margins plus this are minus the log-probabilities. Logits themselves may lie far from 0, where
    a sum with a small number loses its digits.
    """
    out = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        out[rows] = np.log(np.exp(-logits.margins(rows)).sum(axis=1))

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
    return out


def log_probabilities(
    logits: Logits, offset: FloatArray, rows: slice
) -> tuple[FloatArray, NDArray[np.bool_] | None]:
    """Log-probabilities of a block (rows, classes), 0 where masked, and the mask if there is one.

    A masked class must stay masked whatever its scale, and -inf * 0 is not a number.
    """
    out = logits.margins(rows)
    out += offset[rows, None]
    np.negative(out, out=out)
    masked = out == -np.inf
    if not masked.any():
        return out, None
    out[masked] = 0.0
    return out, masked


def masked_softmax(
    scores: FloatArray, masked: NDArray[np.bool_] | None
) -> tuple[FloatArray, FloatArray]:
    """Softmax of the scores, made in place, and the log of each row's sum, (rows,)."""
    if masked is not None:
        scores[masked] = -np.inf
    highest = scores.max(axis=1)
    scores -= highest[:, None]
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    scores /= sums[:, None]
    return scores, highest + np.log(sums)
