"""Mean and covariance of several signals of an answer, of which some are missing.

The EM algorithm of a normal distribution with missing values: rows are completed by
regression on what is given, then the moments are those of the completed rows, with the
variance that the regression leaves.
"""

from __future__ import annotations

import numpy as np

from hokical._core.arrays import FloatArray
from hokical.rules.confidence import SignalMoments, cut_logs, missing_patterns

#: Steps of the EM algorithm, whose result is a start for a regression.
_N_STEPS = 30
#: Examples with independent signals that are added to the covariance.
_PRIOR_EXAMPLES = 5.0
#: The least variance of log-odds: signals may be constant.
_MIN_VARIANCE = 1e-3


def fit_moments(
    signals: FloatArray, counts: FloatArray, closest: float
) -> SignalMoments:
    """The moments of signals (n, k) with NaN, cut to [closest, 1 - closest].

    `counts` (n,) are the weights of the examples.
    """
    log_p, log_rest = cut_logs(signals, closest)
    log_odds = log_p - log_rest
    mean, variance = _moments_of_columns(log_odds, counts)
    moments = SignalMoments(mean, np.diag(variance), np.zeros(mean.size))
    for _ in range(_N_STEPS if np.isnan(signals).any() else 1):
        moments = _improve(moments, log_odds, counts, variance)
    return moments


def _moments_of_columns(
    log_odds: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (k,) of what is given of each signal."""
    weights = np.where(np.isnan(log_odds), 0.0, counts[:, None])
    weights = weights / weights.sum(axis=0)
    values = np.nan_to_num(log_odds)
    mean = np.sum(weights * values, axis=0)
    variance = np.sum(weights * (values - mean) ** 2, axis=0)
    return mean, np.maximum(variance, _MIN_VARIANCE)


def _improve(
    moments: SignalMoments,
    log_odds: FloatArray,
    counts: FloatArray,
    variance: FloatArray,
) -> SignalMoments:
    """The moments of completed rows: one step of the EM algorithm."""
    completed = moments.complete(log_odds)
    total = float(counts.sum())
    mean = counts @ completed / total
    residuals = completed - mean
    scatter = residuals.T @ (counts[:, None] * residuals)
    for pattern, rows in missing_patterns(log_odds):
        missing = np.flatnonzero(pattern)
        present = np.flatnonzero(~pattern)
        explained = moments.covariance[np.ix_(missing, present)] @ moments.regression(
            present, missing
        )
        left = moments.covariance[np.ix_(missing, missing)] - explained
        scatter[np.ix_(missing, missing)] += counts[rows].sum() * left
    scatter += _PRIOR_EXAMPLES * np.diag(variance)
    covariance = scatter / (total + _PRIOR_EXAMPLES)
    covariance = 0.5 * (covariance + covariance.T)
    return SignalMoments(mean, covariance, moments.absence)
