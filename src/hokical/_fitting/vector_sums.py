"""Sums over examples that vector scaling is fitted from, on the device of the logits."""

import numpy as np

from hokical._core.arrays import Array, ignore_overflow
from hokical._core.blocks import by_blocks, rows_per_block
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray
from hokical._fitting.likelihood import WeightedExamples, exp_in_place, moment_sums

#: In how many parts NumPy sums the Hessian: the most threads it can use. Each holds two Hessians.
PARTS = 2
#: Probabilities this close to 1 are cut, so that the log of the rest is finite.
_ALMOST_ONE = 1.0 - 1e-16


class VectorPart:
    """Examples in memory, their features, and sums over them.

    theta = (unit (scale - 1/temperature), bias), (2 classes,); features x are log-probabilities
    divided by the unit.
    """

    def __init__(self, examples: WeightedExamples, temperature: float, unit: float) -> None:
        self.examples, self.temperature, self.unit = examples, temperature, unit
        logits = examples.logits
        #: Minus the log-probability of every row's label, (n,). Margins plus this are minus the
        #: log-probabilities; logits themselves may lie far from 0, where sums lose their digits.
        self._offset = by_blocks(lambda block: block.xp.log(moment_sums(block, 1.0)[0]), logits)
        self._labels = logits.from_host(examples.labels)
        self.true_features = np.asarray(
            (examples.true_margins + logits.to_host(self._offset)) / -unit
        )
        self._true = logits.from_host(self.true_features)
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
        """`first_sums`, then those of p x^2, and of the products of [p x, p] with itself, flat."""
        logits = self.examples.logits
        # As many parts whatever the threads, so that sums always add up in the same order.
        step = -(-logits.n_rows // (PARTS if logits.is_numpy else 1))
        step = max(step, self._rows_per_block)
        parts = map_slices(lambda rows: self._sum_rows(theta, rows), logits.n_rows, step)
        for part in parts[1:]:
            parts[0] += part
        return parts[0]

    def first_sums(self, theta: FloatArray) -> FloatArray:
        """Weighted sums over rows of [log loss, p x, p], (1 + 2 classes,)."""

        def work(rows: slice, block: Logits) -> Array:
            features, proba, loss = self._score(theta, rows, block)
            weights = self.examples.weights_on_device[rows]
            parts = [xp.sum(weights * loss)[None], weights @ (proba * features), weights @ proba]
            return xp.concat(parts)

        xp = self.examples.logits.xp
        return self.examples.sum_over_blocks(work)

    def class_losses(self, theta: FloatArray) -> FloatArray:
        """Log loss of each class against all others, then that of the labels, (classes + 1,)."""

        def work(rows: slice, block: Logits) -> Array:
            xp, (_, proba, loss) = block.xp, self._score(theta, rows, block)
            weights = self.examples.weights_on_device[rows]
            is_true = block.columns[None, :] == self._labels[rows][:, None]
            against = -xp.log1p(-xp.clip(proba, None, _ALMOST_ONE))
            each = weights @ xp.where(is_true, loss[:, None], against)
            return xp.concat([each, xp.sum(weights * loss)[None]])

        return self.examples.sum_over_blocks(work)

    @property
    def _rows_per_block(self) -> int:
        return rows_per_block(2 * self.examples.n_classes, self.examples.logits.backend.block_size)

    def _sum_rows(self, theta: FloatArray, rows: slice) -> FloatArray:
        """`second_sums` of some rows, one block after the other."""
        logits, xp = self.examples.logits, self.examples.logits.xp
        room = np.empty((theta.size, theta.size)) if logits.is_numpy else None
        total: list[Array] = []
        for start in range(rows.start, rows.stop, self._rows_per_block):
            part = slice(start, min(start + self._rows_per_block, rows.stop))
            sums, products = self._sum_block(theta, part, self.examples.block(part), room)
            if not total:  # the room is used again
                total = [sums, products if room is None else products.copy()]
                continue
            total[0] += sums
            total[1] += products
        return np.asarray(logits.to_host(xp.concat([xp.reshape(sums, (-1,)) for sums in total])))

    def _sum_block(
        self, theta: FloatArray, rows: slice, block: Logits, room: FloatArray | None
    ) -> tuple[Array, Array]:
        """Sums (1 + 3 classes,) and products, which are in the `room`, if there is one."""
        xp, weights = block.xp, self.examples.weights_on_device[rows]
        features, proba, loss = self._score(theta, rows, block)
        joined = xp.concat([proba * features, proba], axis=1)
        squares = weights @ (joined[:, : self.examples.n_classes] * features)
        sums = xp.concat([xp.sum(weights * loss)[None], weights @ joined, squares])
        joined *= xp.sqrt(weights)[:, None]
        if room is not None:
            return sums, np.matmul(joined.T, joined, out=room)
        return sums, xp.matrix_transpose(joined) @ joined

    def _score(self, theta: FloatArray, rows: slice, block: Logits) -> tuple[Array, Array, Array]:
        """Features x and probabilities p (rows, classes), and log losses (rows,) of a block."""
        xp, unit, labels = block.xp, self.unit, self._labels[rows]
        there, half = block.from_host(theta), self.examples.n_classes
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
        return features, proba, loss
