"""Sums over examples that vector scaling is fitted from, on the device of the logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical.core.arrays import Array, ignore_overflow
from hokical.core.blocks import by_blocks, rows_per_block
from hokical.core.logits import Logits
from hokical.core.parallel import map_slices
from hokical.core.types import FloatArray
from hokical.fitting.likelihood import CountedExamples, exp_in_place, moment_sums

#: In how many parts NumPy sums the Hessian: the most threads it can use. Each holds two Hessians.
PARTS = 2
#: Probabilities this close to 1 are cut, so that the log of the rest is finite.
_ALMOST_ONE = 1.0 - 1e-16


@dataclass(frozen=True, eq=False)
class VectorSums:
    """Weighted sums over rows.

    `firsts` (2 classes + 1,) of [p x, p, log loss], `squares` (classes,) of p x^2, and `products`
    (2 classes, 2 classes) of [p x, p] with itself.
    """

    firsts: Array
    squares: Array
    products: Array

    @classmethod
    def from_flat(cls, flat: FloatArray, n_classes: int) -> VectorSums:
        """Views of what `VectorPart.second_sums` gives."""
        firsts, squares, products = np.split(flat, [2 * n_classes + 1, 3 * n_classes + 1])
        return cls(firsts, squares, products.reshape(2 * n_classes, 2 * n_classes))


@dataclass(frozen=True, eq=False)
class _Scored:
    """Rows with features x and probabilities p (rows, classes), log losses and weights (rows,)."""

    features: Array
    proba: Array
    loss: Array
    weights: Array


class VectorPart:
    """Examples in memory, their features, and sums over them.

    theta = (unit (scale - 1/temperature), bias), (2 classes,); features x are log-probabilities
    divided by the unit.
    """

    def __init__(self, examples: CountedExamples, temperature: float, unit: float) -> None:
        self.examples, self.temperature, self.unit = examples, temperature, unit
        logits = examples.logits
        #: Minus the log-probability of every row's label, (n,). Margins plus this are minus the
        #: log-probabilities; logits themselves may lie far from 0, where sums lose their digits.
        self._offset = by_blocks(lambda block: block.xp.log(moment_sums(block, 1.0)[0]), logits)
        self._labels = logits.beside(examples.labels)
        self.true_features = np.asarray(
            (examples.true_margins + logits.on_host(self._offset)) / -unit
        )
        self._true = logits.beside(self.true_features)
        #: Whether any class is masked. To ask a GPU for every block would stop it each time.
        self._masked = not (logits.is_numpy or bool(logits.xp.all(logits.possible)))

    def observe(self) -> FloatArray:
        """Weighted sums of the true classes' features, and of the classes, (2 classes,)."""
        labels, weights, count = (
            self.examples.labels,
            self.examples.weights,
            self.examples.n_classes,
        )
        first = np.bincount(labels, weights * self.true_features, count)
        return np.concatenate([first, np.bincount(labels, weights, count)])

    def second_sums(self, theta: FloatArray) -> FloatArray:
        """All sums, see `VectorSums`, one after the other in a flat array."""
        logits = self.examples.logits
        # As many parts whatever the threads, so that sums always add up in the same order.
        step = -(-logits.n_rows // (PARTS if logits.is_numpy else 1))
        step = max(step, self._rows_per_block)
        parts = map_slices(lambda rows: self._sum_rows(theta, rows), logits.n_rows, step)
        for part in parts[1:]:
            parts[0] += part
        return parts[0]

    def first_sums(self, theta: FloatArray) -> FloatArray:
        """Sums of [p x, p, log loss] alone, (2 classes + 1,)."""

        def work(rows: slice, block: Logits) -> Array:
            scored = self._score(theta, rows, block)
            return _firsts(scored, _join(scored, block), block)

        return self.examples.sum_over_blocks(work)

    def class_losses(self, theta: FloatArray) -> FloatArray:
        """Log loss of each class against all others, then that of the labels, (classes + 1,)."""

        def work(rows: slice, block: Logits) -> Array:
            xp, scored = block.xp, self._score(theta, rows, block)
            is_true = block.columns[None, :] == self._labels[rows][:, None]
            against = -xp.log1p(-xp.clip(scored.proba, None, _ALMOST_ONE))
            each = scored.weights @ xp.where(is_true, scored.loss[:, None], against)
            return xp.concat([each, xp.sum(scored.weights * scored.loss)[None]])

        return self.examples.sum_over_blocks(work)

    @property
    def _rows_per_block(self) -> int:
        return rows_per_block(2 * self.examples.n_classes, self.examples.logits.backend.block_size)

    def _sum_rows(self, theta: FloatArray, rows: slice) -> FloatArray:
        """All sums over some rows, one block after the other, in a flat array."""
        logits, xp = self.examples.logits, self.examples.logits.xp
        room = np.empty((theta.size, theta.size)) if logits.is_numpy else None
        total: list[Array] = []
        for start in range(rows.start, rows.stop, self._rows_per_block):
            part = slice(start, min(start + self._rows_per_block, rows.stop))
            found = self._sum_block(theta, part, self.examples.block(part), room)
            if not total:  # the room is used again
                total = [*found[:2], found[2] if room is None else found[2].copy()]
                continue
            for place, more in enumerate(found):
                total[place] += more
        return np.asarray(logits.on_host(xp.concat([xp.reshape(sums, (-1,)) for sums in total])))

    def _sum_block(
        self, theta: FloatArray, rows: slice, block: Logits, room: FloatArray | None
    ) -> tuple[Array, Array, Array]:
        """The three sums of `VectorSums`; the products are in the `room`, if there is one."""
        scored = self._score(theta, rows, block)
        joined = _join(scored, block)
        shares = joined[:, : self.examples.n_classes]
        squares = scored.weights @ (shares * scored.features)
        firsts = _firsts(scored, joined, block)
        joined *= block.xp.sqrt(scored.weights)[:, None]
        if room is not None:
            return firsts, squares, np.matmul(joined.T, joined, out=room)
        return firsts, squares, block.xp.matrix_transpose(joined) @ joined

    def _score(self, theta: FloatArray, rows: slice, block: Logits) -> _Scored:
        """Features, probabilities and log losses of a block."""
        xp, unit, labels = block.xp, self.unit, self._labels[rows]
        there, half = block.beside(theta), self.examples.n_classes
        slope, bias = unit / self.temperature + there[:half], there[half:]
        features = block.margins + self._offset[rows][:, None]
        features /= -unit
        masked = self._masked or (block.is_numpy and not block.possible.all())
        if masked:  # they must stay masked whatever their scale, and inf * 0 is not a number
            features = xp.where(block.possible, features, 0.0)
        with ignore_overflow():  # a trial step may go much too far
            scores = features * slope
            scores += bias
            if masked:
                scores = xp.where(block.possible, scores, -xp.inf)
            highest = xp.max(scores, axis=1)
            scores -= highest[:, None]
            proba = exp_in_place(scores, xp)
            sums = xp.sum(proba, axis=1)
            proba /= sums[:, None]
            own = self._true[rows] * xp.take(slope, labels) + xp.take(bias, labels)
            loss = highest + xp.log(sums) - own
        return _Scored(features, proba, loss, self.examples.weights_beside[rows])


def _join(scored: _Scored, block: Logits) -> Array:
    """[p x, p], (rows, 2 classes)."""
    return block.xp.concat([scored.proba * scored.features, scored.proba], axis=1)


def _firsts(scored: _Scored, joined: Array, block: Logits) -> Array:
    """Weighted sums of [p x, p, log loss], (2 classes + 1,)."""
    loss = block.xp.sum(scored.weights * scored.loss)
    return block.xp.concat([scored.weights @ joined, loss[None]])
