"""How well confidence separates right from wrong: AUROC, selective risk and the area under it.

Examples of equal confidence cannot be ordered, so every metric averages over their orders. Risk is
the share of wrong answers among those kept, the most confident first.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.metrics._chunked import read_examples
from hokical.metrics._examples import Examples, check_inside


@dataclass(frozen=True, eq=False)
class RankedExamples:
    """`confidence` (groups,) ascending and distinct; `weight` and `errors` (..., groups).

    `errors` is the weight of the wrong examples. Leading axes are resamples of the same examples;
    there a group may have weight 0.
    """

    confidence: FloatArray
    weight: FloatArray
    errors: FloatArray

    @classmethod
    def from_examples(cls, examples: Examples) -> Self:
        """Sort and merge ties, which makes the metrics independent of the row order."""
        values, place = np.unique(examples.confidence, return_inverse=True)
        weight = examples.filled_weight()
        return cls(
            values,
            sum_by(place, weight, values.shape[0]),
            sum_by(place, weight * ~examples.correct, values.shape[0]),
        )

    @cached_property
    def correct(self) -> FloatArray:
        """Weight of the correct examples, (..., groups)."""
        return self.weight - self.errors

    @cached_property
    def gap(self) -> FloatArray:
        """Sum of 1{correct} - confidence, (..., groups)."""
        return self.weight * (1.0 - self.confidence) - self.errors

    @cached_property
    def weight_above(self) -> FloatArray:
        """Weight at or above each confidence, kept by a threshold there, (..., groups)."""
        return _sum_from_top(self.weight)

    @cached_property
    def errors_above(self) -> FloatArray:
        """Weight of the errors at or above each confidence, (..., groups)."""
        return _sum_from_top(self.errors)

    @cached_property
    def gap_upto(self) -> FloatArray:
        """Sum of `gap` at or below each confidence, (..., groups)."""
        return np.cumsum(self.gap, axis=-1)

    @property
    def total(self) -> FloatArray:
        """Sum of the weights, (...)."""
        return np.asarray(self.weight_above[..., 0])

    def risk_coverage(self) -> tuple[FloatArray, FloatArray]:
        """Coverage and risk at each confidence as threshold, highest first, (groups,) each."""
        kept, wrong = self.weight_above[::-1], self.errors_above[::-1]
        return kept / self.total, wrong / kept


def rank(confidence: Any, correct: Any, sample_weight: Any = None) -> RankedExamples:
    """Ranked examples from a metric's arguments."""
    return RankedExamples.from_examples(read_examples(confidence, correct, sample_weight))


def _near_one(values: FloatArray) -> FloatArray:
    """Values (..., groups) times a power of two, so that the largest is near 1."""
    power = np.frexp(np.max(values, axis=-1, keepdims=True))[1]
    return np.asarray(np.ldexp(values, -power))


def _sum_from_top(values: FloatArray) -> FloatArray:
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]


def row_dot(values: FloatArray, other: FloatArray) -> FloatArray:
    """Sum of products along the last axis, (...); does not depend on the number of threads."""
    return np.asarray(np.einsum("...g,...g->...", values, other))


def run_starts(sorted_values: AnyArray) -> IntArray:
    """Where each run of equal values begins, for `np.add.reduceat`.

    >>> run_starts(np.array([3, 3, 5, 7, 7]))
    array([0, 2, 3])
    """
    changed = np.flatnonzero(sorted_values[1:] != sorted_values[:-1]) + 1
    return np.concatenate([[0], changed]).astype(np.int64)


def auroc(confidence: Any, correct: Any = None, *, sample_weight: Any = None) -> float:
    """Probability that a correct example is more confident than a wrong one; ties count 1/2.

    NaN if all examples are correct, or none: there is no pair to compare.

    >>> auroc([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    0.875
    """
    return float(area_under_roc(rank(confidence, correct, sample_weight)))


def aurc(confidence: Any, correct: Any = None, *, sample_weight: Any = None) -> float:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most confident.

    Weights are read as numbers of examples: weights that are twice as large mean twice as many, and
    the mean over k changes a little.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    """
    return float(area_under_risk(rank(confidence, correct, sample_weight)))


def selective_risk(
    confidence: Any, correct: Any = None, *, coverage: Any = 0.8, sample_weight: Any = None
) -> Any:
    """Share of wrong answers among the most confident `coverage` of the examples.

    `coverage` is a share above 0 and at most 1, or several of them, which give an array. The
    example at the cut counts partly, so the risk is continuous in the coverage.

    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=0.5)
    0.0
    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=[0.8, 1.0])
    array([0.375, 0.5  ])
    """
    ranked = rank(confidence, correct, sample_weight)
    shares = np.asarray(coverage, np.float64)
    risks = [float(risk_at(ranked, check_inside("coverage", c, 0.0, 1.0))) for c in shares.flat]
    return risks[0] if shares.ndim == 0 else np.array(risks)


def risk_coverage_curve(
    confidence: Any, correct: Any = None, *, sample_weight: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk (groups,) at each distinct confidence as threshold, highest first.

    >>> coverage, risk = risk_coverage_curve([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    return rank(confidence, correct, sample_weight).risk_coverage()


def area_under_roc(ranked: RankedExamples) -> FloatArray:
    """AUROC of each resample, (...)."""
    # Each side in its own unit, and summed by itself: one may weigh 1e300 times the other.
    correct, errors = _near_one(ranked.correct), _near_one(ranked.errors)
    above = row_dot(correct, _sum_from_top(errors)) - 0.5 * row_dot(correct, errors)
    pairs = np.asarray(_sum_from_top(correct)[..., 0] * _sum_from_top(errors)[..., 0])
    lost = np.divide(above, pairs, out=np.full(pairs.shape, np.nan), where=pairs > 0)
    return np.asarray(1.0 - lost)


def area_under_risk(ranked: RankedExamples) -> FloatArray:
    """AURC of each resample, (...), with the harmonic numbers H(k) = 1 + 1/2 + ... + 1/k.

    Within a group of ties errors are spread evenly, so the k-th risk is (E + (k - K) r)/k with E
    errors among the K kept before and r the group's own risk. Its sum over the group is
    r w + (E - K r)(H(K + w) - H(K)).
    """
    from scipy.special import digamma

    upto = np.asarray(digamma(ranked.weight_above + 1.0) + np.euler_gamma)
    steps = -np.diff(upto, axis=-1, append=0.0)
    rate = np.divide(
        ranked.errors, ranked.weight, out=np.zeros_like(ranked.errors), where=ranked.weight > 0
    )
    # E - K r = (E + r w) - (K + w) r, in the sums that include the group
    excess = row_dot(ranked.errors_above, steps) - row_dot(ranked.weight_above, rate * steps)
    return np.asarray((excess + ranked.errors_above[..., 0]) / ranked.total)


def risk_at(ranked: RankedExamples, coverage: float) -> FloatArray:
    """Risk of each resample at one coverage, (...)."""
    wanted = coverage * ranked.total[..., None]
    reaching = (ranked.weight_above >= wanted).sum(axis=-1, keepdims=True)
    place = np.maximum(reaching - 1, 0)  # the highest threshold that keeps enough
    weight, errors, kept, wrong = (
        np.take_along_axis(values, place, axis=-1)
        for values in (ranked.weight, ranked.errors, ranked.weight_above, ranked.errors_above)
    )
    found = wrong - (kept - wanted) * errors / weight
    return np.asarray((found / wanted)[..., 0])
