"""Rows of examples for structured scaling, with their features, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array
from hokical._core.parallel import cut_rows, map_slices
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.floor import with_floor
from hokical._fitting.likelihood import WeightedExamples, row_dots
from hokical._fitting.linear_examples import LinearBlock, LinearExamples, block_rows
from hokical.rules._structured import shape_features

#: Numbers per block without M.
_BLOCK_SIZE = 1 << 16
#: Rows of a Hessian at a time: their products stay in the cache.
_HESSIAN_ROWS = 512


@dataclass(frozen=True, eq=False)
class StructuredBlock(LinearBlock):
    """Some rows; the shape terms are (3, rows * classes). Without M there is no column of ones."""

    shapes: Array
    cross_terms: bool

    @property
    def z(self) -> Array:
        """(rows, classes)"""
        return self.inputs[:, :-1] if self.cross_terms else self.inputs

    def scores(self, coef: Array) -> Array:
        return self.z + self.change(coef)

    def change(self, direction: Array) -> Array:
        xp, size = self.xp, self.z.shape[1]
        rows = xp.reshape(direction[3:], (size, -1))
        found = self.inputs @ rows.T if self.cross_terms else self.z * rows[:, 0] + rows[:, 1]
        found += xp.reshape(direction[:3] @ self.shapes, self.z.shape)
        return found

    def transpose_product(self, table: Array) -> Array:
        shaped = self.shapes @ self.xp.reshape(table, (-1,))
        return self._join(shaped, table, self.inputs)

    def _join(self, shaped: Array, table: Array, inputs: Array) -> Array:
        xp = self.xp
        if self.cross_terms:
            rows = table.T @ inputs
        else:
            rows = xp.stack([xp.sum(table * inputs, axis=0), xp.sum(table, axis=0)], axis=1)
        return xp.concat([shaped, xp.reshape(rows, (-1,))])

    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs (0 for w), and the Hessian's diagonal."""
        xp = self.xp
        variance = proba * (1.0 - proba) * self.weights
        spread = []
        for place in range(3):
            shape = xp.reshape(self.shapes[place, ...], self.z.shape)
            away = shape - row_dots(proba, shape, xp)[:, None]
            spread.append(xp.sum(proba * self.weights * shape * away))
        second = self._join(xp.stack(spread), variance, self.inputs * self.inputs)
        first = self._join(xp.zeros_like(second[:3]), variance, self.inputs)
        return xp.stack([first, second], axis=0)

    def margin_moments(self) -> Array:
        """Margins of z, expected and of the true class, and the variance, (3, rows)."""
        xp, z = self.xp, self.z
        p = xp.reshape(self.shapes[1, ...], z.shape)
        p = p if self.possible is None else xp.where(self.possible, p, xp.zeros_like(p))
        mean, top = row_dots(p, z, xp), xp.max(z, axis=1)
        variance = row_dots(p * z, z, xp) - mean * mean
        return xp.stack([top - mean, top - self.at_true(z), variance], axis=0)

    def hessian(self, proba: Array, rows: IntArray) -> FloatArray:
        """The sum (p, p) over some rows of what each adds to the Hessian; there are cross terms."""
        size = 3 + proba.shape[1] * self.inputs.shape[1]
        found = np.zeros((size, size))
        for part in cut_rows(rows.size, _HESSIAN_ROWS):
            found += self._hessian(proba, self.backend.from_host(rows[part], proba))
        return found

    def _hessian(self, proba: Array, rows: Array) -> FloatArray:
        """The mean outer product of what multiplies the coefficients, less that of its mean."""
        xp, to_host = self.xp, self.backend.to_host
        given = (self.inputs, proba, self.weights)
        inputs, proba, weights = (xp.take(array, rows, axis=0) for array in given)
        (n_rows, size), width = proba.shape, inputs.shape[1]
        shapes = xp.take(xp.reshape(self.shapes, (3, -1, size)), rows, axis=1)
        heavy = proba * weights
        drawn = shapes * heavy
        inner = xp.matmul(xp.reshape(shapes, (3, -1)), xp.reshape(drawn, (3, -1)).T)
        border = xp.matmul(xp.permute_dims(drawn, (0, 2, 1)), inputs)
        squares = xp.reshape(inputs[:, :, None] * inputs[:, None, :], (n_rows, -1))
        own = xp.reshape(xp.matmul(heavy.T, squares), (size, width, width))
        each = xp.reshape(proba[:, :, None] * inputs[:, None, :], (n_rows, -1))
        mean = xp.concat([xp.sum(shapes * proba, axis=2).T, each], axis=1) * xp.sqrt(weights)
        found = -to_host(xp.matmul(mean.T, mean))
        found[:3, :3] += to_host(inner)
        found[:3, 3:] += to_host(border).reshape(3, -1)
        found[3:, :3] = found[:3, 3:].T
        for k, block in enumerate(to_host(own)):
            here = slice(3 + k * width, 3 + (k + 1) * width)
            found[here, here] += block
        return found


def make_blocks(
    examples: WeightedExamples,
    temperature: float,
    cross_terms: bool,
    *,
    floor: float = 0.0,
) -> LinearExamples:
    """Examples cut into blocks; the `floor` is one that is not in their logits yet."""
    logits = examples.logits
    step = logits.n_rows
    if logits.is_numpy:  # with M few blocks, as products with it like many rows
        most = max(1, _BLOCK_SIZE // logits.n_classes)
        step = block_rows(logits.n_rows, logits.n_classes) if cross_terms else most

    def make(rows: slice) -> StructuredBlock:
        some = with_floor(examples.take(rows), floor)
        return make_block(some, temperature, cross_terms)

    blocks = map_slices(make, logits.n_rows, step, threads=logits.is_numpy)
    return LinearExamples(blocks, examples.labels, examples.weights, logits.n_classes)


def make_block(
    examples: WeightedExamples, temperature: float, cross_terms: bool
) -> StructuredBlock:
    """Examples with the floor in their logits, as one block."""
    logits = examples.logits
    xp = logits.xp
    every = bool(xp.min(logits.values) > -xp.inf)
    z, *shapes = shape_features(logits.margins, logits, temperature)
    return StructuredBlock(
        xp.concat([z, xp.ones_like(z[:, :1])], axis=1) if cross_terms else z,
        None if every else logits.possible,
        logits.from_host(examples.labels),
        logits.from_host(examples.weights[:, None]),
        logits.backend,
        xp.stack([xp.reshape(shape, (-1,)) for shape in shapes]),
        cross_terms,
    )
