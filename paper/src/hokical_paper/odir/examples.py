"""Examples whose scores are a matrix times their features, in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.likelihood import absent_classes
from hokical._fitting.linear_examples import LinearBlock, LinearExamples, block_rows


@dataclass(frozen=True, eq=False)
class MatrixBlock(LinearBlock):
    """Some rows; the coefficients are (classes, classes + 1)."""

    def take(self, rows: IntArray) -> Self:
        """Rows by number."""
        where = self.backend.from_host(rows, self.inputs)
        columns = (self.inputs, self.labels, self.weights)
        inputs, labels, weights = (self.xp.take(column, where, axis=0) for column in columns)
        possible = None if self.possible is None else self.xp.take(self.possible, where, axis=0)
        return replace(self, inputs=inputs, possible=possible, labels=labels, weights=weights)

    def scores(self, coef: Array) -> Array:
        return self.inputs @ coef.T

    def change(self, direction: Array) -> Array:
        return self.scores(direction)

    def transpose_product(self, table: Array) -> Array:
        return table.T @ self.inputs

    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs, and times their squares, (2, C, C + 1)."""
        variance = proba * (1.0 - proba)
        variance *= self.weights
        across, inputs = variance.T, self.inputs
        return self.xp.stack([across @ inputs, across @ (inputs * inputs)], axis=0)

    def all_right(self, diagonal: Array, present: Array) -> Array:
        """Whether features times `diagonal` (classes,) alone get every row right, ().

        The scores of classes that are not `present` do not grow with the others: 0 stands for them.
        """
        xp = self.xp
        scores = self.inputs[:, :-1] * diagonal
        scores = self.mask(xp.where(present[None, :], scores, xp.zeros_like(scores)))
        others = xp.max(self.replace_true(scores, -xp.inf), axis=1)
        return xp.all(self.at_true(scores) > others)


@dataclass(frozen=True, eq=False)
class MatrixExamples(LinearExamples):
    """What a fit sees, and the sums over it that the solver asks for."""

    blocks: Sequence[MatrixBlock]

    @classmethod
    def from_logits(
        cls,
        logits: Logits,
        labels: IntArray,
        weights: FloatArray,
        features: Callable[[Logits], Array],
        scale: float = 1.0,
    ) -> MatrixExamples:
        """The features of logits, multiplied by a scale; the weights (n,) are made to sum to 1."""
        weights = weights / weights.sum()
        n_rows, n_classes = logits.n_rows, logits.n_classes
        step = block_rows(n_rows, n_classes) if logits.is_numpy else n_rows

        def make(rows: slice) -> MatrixBlock:
            block = logits.take(rows)
            xp, x = block.xp, features(block)
            inputs = xp.concat([x * scale, xp.ones_like(x[:, :1])], axis=1)
            every = bool(xp.all(block.possible))
            return MatrixBlock(
                inputs,
                None if every else block.possible,
                block.from_host(labels[rows]),
                block.from_host(weights[rows])[:, None],
                block.backend,
            )

        blocks = map_slices(make, n_rows, step, threads=logits.is_numpy)
        return cls(blocks, labels, weights, n_classes)

    @property
    def absent(self) -> BoolArray:
        """Which classes have no examples, (classes,)."""
        return absent_classes(self.labels, self.n_classes)

    def take(self, rows: BoolArray) -> MatrixExamples:
        """Some of the rows (n,), with weights that sum to 1 again."""
        weights = self.weights[rows]
        parts = [
            block.take(np.flatnonzero(rows[own]))
            for block, own in zip(self.blocks, self.rows, strict=True)
            if rows[own].any()
        ]
        total = float(weights.sum())
        blocks = [replace(part, weights=part.weights / total) for part in parts]
        return MatrixExamples(blocks, self.labels[rows], weights / total, self.n_classes)

    def all_right(self, diagonal: FloatArray) -> bool:
        """Whether a scale per class (classes,) alone gets every example right."""
        first = self.blocks[0]
        given = diagonal, ~self.absent
        there, present = (first.backend.from_host(array, first.inputs) for array in given)
        return all(bool(right) for right in self.map(lambda b: b.all_right(there, present)))
