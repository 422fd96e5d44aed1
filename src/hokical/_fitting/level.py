"""The level of probabilities: their mean for each class.

Class weights and resampling in training move all scores by a constant, and a fit that
shrinks towards the scores as they are leaves a part of it. The biases b of
`fit_level` bring the mean probabilities to the shares of the classes among the labels:
they minimise

    mean log loss of softmax(scores + b) + ridge |b|^2 / (2 n),

whose gradient is the difference of the two means, but for a ridge of a fraction of an
example. Without an example, with residual r = p - y, weight w and H_kk the sum of
w p_k (1 - p_k), the bias of class k changes by one Newton step,

    (1 - 1 / K) w r_k / (H_kk - w p_k (1 - p_k)),

where 1 - 1 / K is what a common constant of all biases leaves; it is exact for two
classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hokical._core.arrays import Array, FloatArray
from hokical._core.special import pick
from hokical._fitting import searches
from hokical._fitting.examples import Examples
from hokical._fitting.two_classes import PairLevel, as_table
from hokical.rules.base import LEAST, softmax

#: Ridge on the biases, in examples: for classes that no label has.
RIDGE = 0.1
MAX_ITER = 100


class LevelFit(NamedTuple):
    """The biases (classes,), and those of a fit without each example (n, classes)."""

    bias: FloatArray
    without_each: Array


class LevelProblem:
    """Scores (n, classes) and labels, whose shares the mean probabilities are to have.

    The probabilities are the softmax of scores and biases, mixed with a share `even` of
    the uniform distribution over the possible classes.
    """

    def __init__(
        self,
        scores: Array,
        examples: Examples,
        even: float = 0.0,
        *,
        ridge: float = RIDGE,
    ) -> None:
        logits = examples.logits
        self.logits = logits
        self.scores = scores
        self.share = logits.from_host(examples.share)[:, None]
        self.truth = logits.from_host(examples.labels)
        self.ridge = ridge / examples.effective_size
        #: Shares of the classes among the labels, and what the mean of the softmax alone
        #: must have, so that the mixture has them.
        self.label_share = np.bincount(
            examples.labels, examples.share, minlength=logits.n_classes
        )
        possible = logits.xp.astype(logits.possible, logits.xp.float64)
        uniform = self._mean(possible / logits.possible_counts[:, None])
        wanted = (self.label_share - even * uniform) / (1.0 - even)
        self.wanted = np.maximum(wanted, 0.0)

    def fit(self) -> LevelFit:
        start = np.zeros(self.label_share.size)
        bias = searches.minimize_dense(self.evaluate, start, MAX_ITER).x
        return LevelFit(bias, self.without_each(bias))

    def evaluate(self, bias: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The value, gradient (classes,) and Hessian (classes, classes) at biases."""
        xp = self.logits.xp
        proba = self.probabilities(bias)
        true = pick(proba, self.truth, xp)
        loss = -float(xp.sum(self.share[:, 0] * xp.log(xp.clip(true, LEAST, None))))
        excess = self.wanted - self.label_share
        mean = self._mean(proba)
        product = self.logits.to_host((proba * self.share).T @ proba)
        value = loss - float(excess @ bias) + 0.5 * self.ridge * float(bias @ bias)
        gradient = mean - self.wanted + self.ridge * bias
        hessian = np.diag(mean + self.ridge) - product
        return value, gradient, hessian

    def probabilities(self, bias: FloatArray) -> Array:
        biased = self.scores + self.logits.from_host(bias)[None, :]
        return softmax(biased, self.logits)

    def without_each(self, bias: FloatArray) -> Array:
        """The biases (n, classes) by a fit without each example."""
        from_host = self.logits.from_host
        xp = self.logits.xp
        proba = self.probabilities(bias)
        is_true = from_host(np.arange(bias.size))[None, :] == self.truth[:, None]
        residual = proba - xp.astype(is_true, xp.float64)
        variance = proba * (1.0 - proba)
        curvature = from_host(self._mean(variance) + self.ridge)[None, :]
        step = self.share * residual / (curvature - self.share * variance)
        return from_host(bias)[None, :] + (1.0 - 1.0 / bias.size) * step

    def _mean(self, table: Array) -> FloatArray:
        """The weighted mean (classes,) over the rows of a table (n, classes)."""
        sums = self.logits.xp.sum(self.share * table, axis=0)
        return np.asarray(self.logits.to_host(sums))


def fit_level(
    scores: Array, examples: Examples, even: float = 0.0, *, ridge: float = RIDGE
) -> LevelFit:
    """The biases of scores (n, classes) that give probabilities the labels' shares.

    The `ridge` is in examples.
    """
    if examples.n_classes == 2:
        return _fit_pair(PairLevel.of(scores, examples, even, ridge), examples)
    return LevelProblem(scores, examples, even, ridge=ridge).fit()


def _fit_pair(pair: PairLevel, examples: Examples) -> LevelFit:
    """The same for two classes."""
    bias = pair.fit()
    without_each = as_table(2.0 * pair.without_each(bias), examples.logits)
    return LevelFit(np.array([-bias, bias]), without_each)
