"""Examples of scores that are linear in their coefficients, in blocks of rows, and sums over them.

Structured scaling is fitted on these.

Features, scores and probabilities stay in the library and on the device of the logits. What has
(classes, classes + 1) numbers comes to the host. NumPy's blocks run on our threads, and are added
in order, so that the number of threads changes no result; a device has one block.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, Backend, Namespace
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.likelihood import exp_in_place, row_dots, row_sums

Found = TypeVar("Found")

#: NumPy's rows are cut into at most this many blocks, each of at least that many numbers.
MAX_BLOCKS = 8
MIN_BLOCK_SIZE = 1 << 16


def block_rows(n_rows: int, n_classes: int) -> int:
    """Rows per block: few blocks, for each has a (classes, classes) sum, and none tiny."""
    return max(-(-n_rows // MAX_BLOCKS), MIN_BLOCK_SIZE // n_classes, 1)


@dataclass(frozen=True, eq=False)
class LinearBlock(ABC):
    """Some rows, all of one library.

    `inputs` (rows, classes + 1) features and a column of ones, `possible` (rows, classes) or None
    where every class is, `labels` (rows,), `weights` (rows, 1).
    """

    inputs: Array
    possible: Array | None
    labels: Array
    weights: Array
    backend: Backend

    @property
    def xp(self) -> Namespace:
        return self.backend.namespace(self.inputs)

    @cached_property
    def _rows(self) -> IntArray:
        return np.arange(self.inputs.shape[0])

    def replace_true(self, table: Array, others: Array | float) -> Array:
        """A table (rows, classes) with `others` at the label."""
        columns = self.backend.from_host(np.arange(table.shape[1]), self.inputs)
        return self.xp.where(columns[None, :] == self.labels[:, None], others, table)

    def at_true(self, table: Array) -> Array:
        """The entry (rows,) of each row of a table (rows, classes) at its label."""
        if isinstance(table, np.ndarray):
            return table[self._rows, self.labels]
        return self.xp.take_along_axis(table, self.labels[:, None], axis=1)[:, 0]

    def mask(self, scores: Array) -> Array:
        """Scores (rows, classes), -inf where the class is impossible."""
        every = self.possible is None
        return scores if every else self.xp.where(self.possible, scores, -self.xp.inf)

    @abstractmethod
    def scores(self, coef: Array) -> Array:
        """Scores (rows, classes) by coefficients."""

    @abstractmethod
    def change(self, direction: Array) -> Array:
        """What a change of the coefficients changes in the scores, (rows, classes)."""

    @abstractmethod
    def transpose_product(self, table: Array) -> Array:
        """Sums of a table (rows, classes) times what the coefficients are multiplied with."""

    @abstractmethod
    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs, and times their squares, (2, ...)."""

    def probabilities(self, coef: Array) -> tuple[Array, Array]:
        """Probabilities (rows, classes), and the sum of the weighted log losses, ()."""
        xp, scores = self.xp, self.mask(self.scores(coef))
        below = scores - xp.max(scores, axis=1, keepdims=True)
        own = self.at_true(below)
        proba = exp_in_place(below, xp)
        total = row_sums(proba, xp)
        proba /= total[:, None]
        return proba, xp.sum(self.weights[:, 0] * (xp.log(total) - own))

    def slope(self, proba: Array) -> Array:
        """Derivative of the log loss, of the shape of the coefficients."""
        if isinstance(proba, np.ndarray):
            residual = proba.copy()
            residual[self._rows, self.labels] -= 1.0
        else:
            residual = self.replace_true(proba, proba - 1.0)
        residual *= self.weights
        return self.transpose_product(residual)

    def curvature(self, proba: Array, direction: Array) -> Array:
        """Its Hessian times `direction`."""
        change = self.change(direction)
        change -= row_dots(change, proba, self.xp)[:, None]
        change *= proba
        change *= self.weights
        return self.transpose_product(change)


@dataclass(frozen=True, eq=False)
class LinearExamples:
    """What a fit sees, and the sums over it that the solver asks for.

    `blocks` of rows, `labels` (n,) and `weights` (n,) that sum to 1.
    """

    blocks: Sequence[LinearBlock]
    labels: IntArray
    weights: FloatArray
    n_classes: int

    @property
    def rows(self) -> list[slice]:
        """The rows of every block."""
        ends = np.cumsum([0] + [block.inputs.shape[0] for block in self.blocks]).tolist()
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def probabilities(self, coef: FloatArray) -> tuple[list[Array], float]:
        """Probabilities (rows, classes) by blocks, and the mean log loss."""
        there = self._on_device(coef)
        found = self.map(lambda block: block.probabilities(there))
        return [proba for proba, _ in found], sum(float(loss) for _, loss in found)

    def slope(self, proba: list[Array]) -> FloatArray:
        """Derivative of the mean log loss, of the shape of the coefficients."""
        return self.total(lambda block, part: block.slope(part), proba)

    def curvature(self, proba: list[Array], direction: FloatArray) -> FloatArray:
        """Its Hessian times `direction`."""
        there = self._on_device(direction)
        return self.total(lambda block, part: block.curvature(part, there), proba)

    def moments(self, proba: list[Array]) -> FloatArray:
        """Sums of each class's variance times inputs, and times their squares, (2, ...)."""
        return self.total(lambda block, part: block.moments(part), proba)

    def _on_device(self, array: NDArray[Any]) -> Array:
        first = self.blocks[0]
        return first.backend.from_host(array, first.inputs)

    def map(self, work: Callable[..., Found], *columns: list[Any]) -> list[Found]:
        """`work(block, ...)` of every block and what goes with it."""
        items = list(zip(self.blocks, *columns, strict=True))
        numpy = isinstance(self.blocks[0].inputs, np.ndarray)
        return map_slices(lambda place: work(*items[place.start]), len(items), 1, threads=numpy)

    def total(self, work: Callable[..., Array], *columns: list[Array]) -> FloatArray:
        """The sum of `work` over the blocks, on the host, in their order."""
        to_host = self.blocks[0].backend.to_host
        total, *rest = (to_host(part) for part in self.map(work, *columns))
        for part in rest:
            total = total + part
        return np.asarray(total)
