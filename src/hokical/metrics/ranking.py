"""How well confidence separates right from wrong: AUROC, selective risk and the area under it.

Examples of equal confidence cannot be ordered, so every metric averages over their orders. Risk is
the share of wrong predictions among those kept, the most confident first.
"""

import math
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray
from hokical.metrics.examples import check_inside
from hokical.metrics.levels import Levels, read_levels, sum_from_top


def auroc(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Probability that a correct example is more confident than a wrong one; ties count 1/2.

    NaN if all examples are correct, or none: there is no pair to compare. Arguments of the metrics
    of this module are as in `ece`.

    >>> auroc([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    0.875
    """
    return area_under_roc(read_levels(proba, labels, sample_weight))


def aurc(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most confident.

    Weights are read as numbers of examples: weights that are twice as large mean twice as many, and
    the mean over k changes a little.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    """
    return area_under_risk(read_levels(proba, labels, sample_weight))


def selective_risk(
    proba: Any, labels: Any = None, *, coverage: Any = 0.8, sample_weight: Any = None
) -> Any:
    """Share of wrong predictions among the most confident `coverage` of the examples.

    `coverage` is a share above 0 and at most 1, or several of them, which give an array. The
    example at the cut counts partly, so the risk is continuous in the coverage.

    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=0.5)
    0.0
    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=[0.8, 1.0])
    array([0.375, 0.5  ])
    """
    levels = read_levels(proba, labels, sample_weight)
    shares = np.asarray(coverage, np.float64)
    risks = [risk_at(levels, check_inside("coverage", c, 0.0, 1.0)) for c in shares.flat]
    return risks[0] if shares.ndim == 0 else np.array(risks)


def risk_coverage_curve(
    proba: Any, labels: Any = None, *, sample_weight: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk (groups,) at each distinct confidence as threshold, highest first.

    >>> coverage, risk = risk_coverage_curve([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    return risk_coverage(read_levels(proba, labels, sample_weight))


def risk_coverage(levels: Levels) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk at each confidence as threshold, highest first, (levels,) each."""
    kept, wrong = levels.weight_above[::-1], levels.errors_above[::-1]
    return kept / levels.total, wrong / kept


def _near_one(values: FloatArray) -> FloatArray:
    """Values times a power of two, so that the largest is near 1."""
    return np.asarray(np.ldexp(values, -np.frexp(np.max(values))[1]))


def area_under_roc(levels: Levels) -> float:
    """AUROC; NaN without right or without wrong rows."""
    # Each side in its own unit, and summed by itself: one may weigh 1e300 times the other.
    correct, errors = _near_one(levels.correct), _near_one(levels.errors)
    pairs = float(correct.sum() * errors.sum())
    if pairs == 0.0:
        return math.nan
    return 1.0 - float((correct * (sum_from_top(errors) - 0.5 * errors)).sum()) / pairs


def area_under_risk(levels: Levels) -> float:
    """AURC, with the harmonic numbers H(k) = 1 + 1/2 + ... + 1/k.

    Within a group of ties errors are spread evenly, so the k-th risk is (E + (k - K) r)/k with E
    errors among the K kept before and r the group's own risk. Its sum over the group is
    r w + (E - K r)(H(K + w) - H(K)).
    """
    from scipy.special import digamma

    upto = np.asarray(digamma(levels.weight_above + 1.0) + np.euler_gamma)
    steps = -np.diff(upto, append=0.0)
    # E - K r = (E + r w) - (K + w) r, in the sums that include the group
    own = levels.weight_above * levels.errors / levels.weight
    excess = float(((levels.errors_above - own) * steps).sum())
    return (excess + float(levels.errors_above[0])) / levels.total


def risk_at(levels: Levels, coverage: float) -> float:
    """Risk at one coverage."""
    wanted = coverage * levels.total
    # The highest threshold that keeps enough.
    place = max(int((levels.weight_above >= wanted).sum()) - 1, 0)
    partly = (levels.weight_above[place] - wanted) * levels.errors[place] / levels.weight[place]
    return float((levels.errors_above[place] - partly) / wanted)
