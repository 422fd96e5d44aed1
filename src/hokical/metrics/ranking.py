"""Does confidence tell right from wrong? AUROC, selective risk, and the area under its curve.

Examples of equal confidence cannot be ordered, so every metric averages over their orders. Risk is
the share of wrong answers among those kept, the most confident first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from hokical.metrics.checks import as_examples, check_inside
from hokical.metrics.chunked import chunks_too
from hokical.metrics.ranked import Ranked, row_dot

FloatArray = NDArray[np.float64]


@chunks_too
def auroc(confidence: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Chance that a correct example is more confident than a wrong one; ties count one half.

    NaN where all examples are correct, or none: there is no pair to compare.

    Parameters
    ----------
    confidence, correct, sample_weight : array-like of shape (n,)
        As in `ece`.

    Examples
    --------
    >>> auroc([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    0.875
    """
    return float(area_under_roc(_ranked(confidence, correct, sample_weight)))


@chunks_too
def aurc(confidence: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most confident.

    Weights are read as numbers of examples.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    """
    return float(area_under_risk(_ranked(confidence, correct, sample_weight)))


@chunks_too
def selective_risk(
    confidence: Any, correct: Any, *, coverage: Any = 0.8, sample_weight: Any = None
) -> Any:
    """Share of wrong answers among the most confident `coverage` of the examples.

    Parameters
    ----------
    coverage : float or array-like
        Share to keep, above 0 and at most 1. The example at the cut counts in part, so the risk is
        continuous in the coverage.

    Returns
    -------
    risk : float, or (len(coverage),) float64

    Examples
    --------
    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=0.5)
    0.0
    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=[0.8, 1.0])
    array([0.375, 0.5  ])
    """
    ranked = _ranked(confidence, correct, sample_weight)
    shares = np.asarray(coverage, np.float64)
    risks = [float(risk_at(ranked, check_inside("coverage", c, 0.0, 1.0))) for c in shares.flat]
    return risks[0] if shares.ndim == 0 else np.array(risks)


@chunks_too
def risk_coverage_curve(
    confidence: Any, correct: Any, *, sample_weight: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk (groups,) as the threshold falls through the distinct confidences.

    >>> coverage, risk = risk_coverage_curve([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    ranked = _ranked(confidence, correct, sample_weight)
    return (ranked.kept / ranked.total)[::-1], (ranked.wrong / ranked.kept)[::-1]


def area_under_roc(ranked: Ranked) -> FloatArray:
    """AUROC of each resample, (...)."""
    errors = np.asarray(ranked.wrong[..., 0])
    above = row_dot(ranked.correct, ranked.wrong) - 0.5 * row_dot(ranked.correct, ranked.errors)
    pairs = np.asarray((ranked.total - errors) * errors)
    lost = np.divide(above, pairs, out=np.full(pairs.shape, np.nan), where=pairs > 0)
    return np.asarray(1.0 - lost)


def area_under_risk(ranked: Ranked, harmonic: FloatArray | None = None) -> FloatArray:
    """AURC of each resample, (...); `harmonic[k]` = 1 + 1/2 + ... + 1/k for whole weights.

    Within a group of ties the wrong answers come evenly, so the k-th risk is (E + (k - K) r)/k with
    E wrong among the K kept before and r the group's own risk. Its sum over the group is
    r w + (E - K r)(H(K + w) - H(K)).
    """
    upto = _harmonic(ranked.kept, harmonic)
    steps = -np.diff(upto, axis=-1, append=0.0)
    rate = np.divide(
        ranked.errors, ranked.weight, out=np.zeros_like(ranked.errors), where=ranked.weight > 0
    )
    # E - K r = (E + r w) - (K + w) r, in the sums that include the group
    excess = row_dot(ranked.wrong, steps) - row_dot(ranked.kept, rate * steps)
    return np.asarray((excess + ranked.wrong[..., 0]) / ranked.total)


def risk_at(ranked: Ranked, coverage: float) -> FloatArray:
    """Risk of each resample at one coverage, (...)."""
    wanted = coverage * ranked.total[..., None]
    reaching = (ranked.kept >= wanted).sum(axis=-1, keepdims=True)
    place = np.maximum(reaching - 1, 0)  # the highest threshold that keeps enough
    weight, errors, kept, wrong = (
        np.take_along_axis(values, place, axis=-1)
        for values in (ranked.weight, ranked.errors, ranked.kept, ranked.wrong)
    )
    found = wrong - (kept - wanted) * errors / weight
    return np.asarray((found / wanted)[..., 0])


def harmonic_numbers(n: int) -> FloatArray:
    """H(0), ..., H(n)."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])


def _harmonic(kept: FloatArray, table: FloatArray | None) -> FloatArray:
    if table is None:
        return np.asarray(digamma(kept + 1.0) + np.euler_gamma)
    return table[kept.astype(np.intp)]


def _ranked(confidence: Any, correct: Any, sample_weight: Any) -> Ranked:
    return Ranked.from_examples(as_examples(confidence, correct, sample_weight))
