"""Examples whose scores are a matrix times their features, in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hokical.calibrators import Examples
from hokical.rules import Logits
from hokical_paper.core.fitting import FeatureBlock, SoftmaxObjective, make_blocks
from hokical_paper.types import Array, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class MatrixExamples:
    """`blocks` of features, `labels` (n,), and `weights` (n,) that sum to 1."""

    blocks: Sequence[FeatureBlock]
    labels: IntArray
    weights: FloatArray
    n_classes: int

    @classmethod
    def of(
        cls, examples: Examples, features: Callable[[Logits], Array], scale: float = 1.0
    ) -> MatrixExamples:
        """The features of logits, multiplied by a scale."""
        blocks = make_blocks(
            examples, lambda block: (features(block) * scale,), cross_terms=True
        )
        return cls(blocks, examples.labels, examples.share, examples.n_classes)

    @property
    def absent(self) -> BoolArray:
        """Which classes have no examples, (classes,)."""
        return np.asarray(np.bincount(self.labels, minlength=self.n_classes) == 0)

    def objective(self, penalty: FloatArray) -> SoftmaxObjective:
        """The objective of a coefficient matrix less the identity, flat."""
        return SoftmaxObjective(self.blocks, penalty.ravel())

    def log_loss(self, coef: FloatArray) -> float:
        """Mean log loss by a coefficient matrix (classes, classes + 1)."""
        away = (coef - np.eye(*coef.shape)).ravel()
        return self.objective(np.zeros(away.size)).evaluate(away).log_loss

    def take(self, rows: BoolArray) -> MatrixExamples:
        """Some of the rows (n,), with weights that sum to 1 again."""
        weights = self.weights[rows]
        blocks = []
        first = 0
        total = float(weights.sum())
        for block in self.blocks:
            rows_of_block = rows[first : first + block.inputs.shape[0]]
            first += rows_of_block.size
            if rows_of_block.any():
                blocks.append(_take(block, np.flatnonzero(rows_of_block), total))
        return MatrixExamples(
            blocks, self.labels[rows], weights / total, self.n_classes
        )

    def all_right(self, diagonal: FloatArray) -> bool:
        """Whether a scale per class (classes,) alone gets every example right."""
        first = self.blocks[0]
        there = first.from_host(diagonal)
        present = first.from_host(~self.absent)
        return all(bool(_all_right(block, there, present)) for block in self.blocks)


def _take(block: FeatureBlock, rows: IntArray, total: float) -> FeatureBlock:
    """Rows by number, with weights divided by their total."""
    xp = block.xp
    where = block.from_host(rows)
    columns = (block.inputs, block.labels, block.weights)
    inputs, labels, weights = (xp.take(column, where, axis=0) for column in columns)
    possible = (
        None if block.possible is None else xp.take(block.possible, where, axis=0)
    )
    return replace(
        block, inputs=inputs, possible=possible, labels=labels, weights=weights / total
    )


def _all_right(block: FeatureBlock, diagonal: Array, present: Array) -> Array:
    """Whether features times `diagonal` (classes,) alone get every row right, ().

    The scores of classes that are not `present` do not grow with the others: 0 stands
    for them.
    """
    xp = block.xp
    scores = block.z * diagonal
    scores = xp.where(present[None, :], scores, xp.zeros_like(scores))
    if block.possible is not None:
        scores = xp.where(block.possible, scores, -xp.inf)
    true_scores = xp.take_along_axis(scores, block.labels[:, None], axis=1)[:, 0]
    return xp.all(true_scores > xp.max(block.replace_true(scores, -xp.inf), axis=1))
