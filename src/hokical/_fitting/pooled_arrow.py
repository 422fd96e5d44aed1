"""Where the parameters of groups lie, and their Hessian: an arrow, whose groups are eliminated.

All terms act through the same features, so whatever the likelihood knows is summed by *cells*, the
combinations of groups that occur. Blocks (cells, features, features) of its Hessian are laid out
as the dense part A (common terms, and all columns of groups but the one of most groups) and, for
every group of that column, its own small block C_g and its border B_g with the dense part. With the
Schur complement S = A - sum_g B_g C_g^-1 B_g' a thousand groups cost about as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical._core.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PooledLayout:
    """`n_common` features, of which the first `n_own` have coefficients of their own by group.

    `codes` (cells, columns) are the groups of a cell, -1 for none, and `sizes` the number of groups
    of each column. A vector of all parameters holds the common ones, then those of each column,
    group by group; the column of most groups comes last.
    """

    n_common: int
    n_own: int
    codes: IntArray
    sizes: tuple[int, ...]

    @cached_property
    def order(self) -> list[int]:
        """Columns in the order of the vector."""
        return sorted(range(len(self.sizes)), key=lambda k: self.sizes[k])

    @cached_property
    def starts(self) -> list[int]:
        """Where each column of `order` begins in the vector, and where it ends."""
        sizes = [self.sizes[k] * self.n_own for k in self.order]
        return [self.n_common + sum(sizes[:k]) for k in range(len(sizes) + 1)]

    @property
    def n_dense(self) -> int:
        """Parameters that are not eliminated."""
        return self.starts[-2] if self.sizes else self.n_common

    @property
    def size(self) -> int:
        return self.starts[-1]

    @property
    def last_codes(self) -> IntArray:
        """The groups (cells,) of the column that is eliminated; without columns there are none."""
        if not self.sizes:
            return np.full(self.codes.shape[0], -1)
        return self.codes[:, self.order[-1]]

    @cached_property
    def features(self) -> IntArray:
        """The feature behind each of the places, (e,)."""
        return np.append(
            np.arange(self.n_common), np.tile(np.arange(self.n_own), max(len(self.sizes) - 1, 0))
        )

    def places(self, cells: slice) -> IntArray:
        """Where the dense terms of cells lie in the vector, (cells, e); `n_dense` for none."""
        codes = self.codes[cells]
        parts = [np.broadcast_to(np.arange(self.n_common), (len(codes), self.n_common))]
        for column, start in zip(self.order[:-1], self.starts, strict=False):
            first = start + codes[:, column, None] * self.n_own
            own = first + np.arange(self.n_own)
            parts.append(np.where(codes[:, column, None] < 0, self.n_dense, own))
        return np.concatenate(parts, axis=1)

    def tables(self, vector: FloatArray) -> list[FloatArray]:
        """The parts (groups, own features) of a vector, by columns as they were given."""
        found = {
            column: vector[start:stop].reshape(-1, self.n_own)
            for column, start, stop in zip(self.order, self.starts, self.starts[1:], strict=False)
        }
        return [found[k] for k in range(len(self.sizes))]

    def coefficients(self, vector: FloatArray) -> FloatArray:
        """The coefficients (cells, features) that act in each cell."""
        found = np.tile(vector[: self.n_common], (len(self.codes), 1))
        for code, table in zip(self.codes.T, self.tables(vector), strict=True):
            found[:, : self.n_own] += np.vstack([table, np.zeros(self.n_own)])[code]
        return found

    def gradient(self, by_cell: FloatArray) -> FloatArray:
        """The gradient (size,) from that by the coefficients of the cells (cells, features)."""
        parts = [by_cell.sum(axis=0)]
        for column in self.order:
            found = np.zeros((self.sizes[column] + 1, self.n_own))
            np.add.at(found, self.codes[:, column], by_cell[:, : self.n_own])
            parts.append(found[:-1].ravel())
        return np.concatenate(parts)


class Arrow:
    """The Hessian of all parameters, from blocks of cells that are added one after the other."""

    def __init__(self, layout: PooledLayout) -> None:
        self.layout = layout
        groups = layout.sizes[layout.order[-1]] if layout.sizes else 0
        dense, own = layout.n_dense, layout.n_own
        # One place more than there are, for what has no group.
        self._dense = np.zeros((dense + 1, dense + 1))
        self._border = np.zeros((groups + 1, dense + 1, own))
        self._own = np.zeros((groups + 1, own, own))

    def add(self, cells: slice, blocks: FloatArray) -> None:
        """Add the Hessians (cells, features, features) by the coefficients of some cells."""
        layout = self.layout
        places, features = layout.places(cells), layout.features
        code, own = layout.last_codes[cells], np.arange(layout.n_own)
        spread = blocks[:, features]
        np.add.at(self._dense, (places[:, :, None], places[:, None, :]), spread[:, :, features])
        np.add.at(
            self._border,
            (code[:, None, None], places[:, :, None], own),
            spread[:, :, : layout.n_own],
        )
        np.add.at(self._own, code, blocks[:, : layout.n_own, : layout.n_own])

    def factor(self, precision: FloatArray) -> ArrowInverse:
        """The inverse, with the `precision` (size,) added to the diagonal."""
        dense, own = self.layout.n_dense, self.layout.n_own
        a, b, c = self._dense[:dense, :dense].copy(), self._border[:-1, :dense], self._own[:-1]
        a.flat[:: dense + 1] += precision[:dense]
        c = c + np.eye(own) * precision[dense:].reshape(-1, 1, own)
        inverse = _inverse(c)
        carried = inverse @ np.swapaxes(b, 1, 2)  # (groups, own, dense)
        flat = carried.reshape(-1, dense)
        complement = a - np.swapaxes(b, 1, 2).reshape(-1, dense).T @ flat
        return ArrowInverse(self.layout, _inverse(complement), inverse, carried)


@dataclass(frozen=True, eq=False)
class ArrowInverse:
    """The inverse of an arrow: S^-1 (dense, dense), C_g^-1 and C_g^-1 B_g'."""

    layout: PooledLayout
    dense: FloatArray
    own: FloatArray
    carried: FloatArray

    def solve(self, vector: FloatArray) -> FloatArray:
        """The inverse times a vector (size,)."""
        cut = self.layout.n_dense
        flat = self.carried.reshape(-1, cut)
        first = self.dense @ (vector[:cut] - flat.T @ vector[cut:])
        rest = vector[cut:].reshape(-1, self.layout.n_own, 1)
        return np.concatenate([first, (self.own @ rest).ravel() - flat @ first])

    def diagonal(self) -> FloatArray:
        """The diagonal (size,): variances of the parameters."""
        own = np.diagonal(self.own, axis1=1, axis2=2)
        passed = ((self.carried @ self.dense) * self.carried).sum(axis=2)
        return np.concatenate([np.diagonal(self.dense), (own + passed).ravel()])

    def covariance(self, cells: slice) -> FloatArray:
        """The covariance (cells, features, features) of the coefficients that act in cells."""
        layout = self.layout
        places, code = layout.places(cells), layout.last_codes[cells]
        rows, n_own = np.arange(len(code)), layout.n_own
        spread = np.zeros((len(code), layout.n_dense + 1, layout.n_common))
        spread[rows[:, None], places, layout.features] = 1.0
        spread = spread[:, :-1]
        named = code >= 0
        spread[named, :, :n_own] -= np.swapaxes(self.carried[code[named]], 1, 2)
        found = np.swapaxes(spread, 1, 2) @ (self.dense @ spread)
        found[named, :n_own, :n_own] += self.own[code[named]]
        return found


def _inverse(matrices: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.inv(matrices), np.float64)
