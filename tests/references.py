"""Slow, obvious implementations to compare the fast ones with."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr
from sklearn.isotonic import IsotonicRegression


def isotonic_chance(
    x: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray | None,
    new: np.ndarray,
    least: float | None = None,
) -> np.ndarray:
    """scikit-learn's isotonic regression, with its values of 0 and 1 moved inside by
    their weight.

    Of m entries that are all 0 or all 1, 1 / (m + 2) is kept for the other outcome.
    """
    weights = np.ones(x.size) if weights is None else weights * (x.size / weights.sum())
    twin = IsotonicRegression(out_of_bounds="clip").fit(x, target, weights)
    fitted, values = twin.predict(x), twin.y_thresholds_.copy()
    kept = least or 1.0 / (weights[fitted < 1e-12].sum() + 2.0)
    most = 1.0 - 1.0 / (weights[fitted > 1.0 - 1e-12].sum() + 2.0)
    zeros, ones = values < 1e-12, values > 1.0 - 1e-12
    inner = values[~zeros & ~ones]
    values[ones] = max([most, *inner])
    values[zeros] = min([kept, *inner, *values[ones]])
    return np.interp(new, twin.X_thresholds_, values)


def gaussian_stability(values: np.ndarray, scale: float) -> np.ndarray:
    """Fine trapezoidal quadrature of the stability integral, row by row."""
    return np.array(
        [_gaussian_row(row.astype(np.float64), scale, row.argmax()) for row in values]
    )


def gaussian_distribution(values: np.ndarray, scale: float) -> np.ndarray:
    """The probability of every class to win, each by its own integral."""
    rows = values.astype(np.float64)
    return np.array([[_gaussian_row(r, scale, k) for k in range(r.size)] for r in rows])


def _gaussian_row(row: np.ndarray, scale: float, label: int) -> float:
    if row[label] == -np.inf:
        return 0.0
    u = np.linspace(-9.0, 9.0, 1801)
    others = np.delete(row, label)
    log_product = sum(log_ndtr(u + (row[label] - other) / scale) for other in others)
    density = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
    return float(np.trapezoid(density * np.exp(log_product), u))


def uniform_stability(values: np.ndarray, width: float) -> np.ndarray:
    """Midpoint rule on a very fine grid."""
    return np.array(
        [_uniform_row(row.astype(np.float64), width, row.argmax()) for row in values]
    )


def uniform_distribution(values: np.ndarray, width: float) -> np.ndarray:
    rows = values.astype(np.float64)
    return np.array([[_uniform_row(r, width, k) for k in range(r.size)] for r in rows])


def _uniform_row(row: np.ndarray, width: float, label: int) -> float:
    if row[label] == -np.inf:
        return 0.0
    u = (np.arange(100_000) + 0.5) / 100_000
    product = np.ones_like(u)
    for other in np.delete(row, label):
        product *= np.clip(u + (row[label] - other) / width, 0.0, 1.0)
    return float(product.mean())


def hoki_confidence(
    stability: np.ndarray,
    correct: np.ndarray,
    start: np.ndarray,
    *,
    n_bins: int,
    max_iter: int,
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Algorithm 1 as printed, example by example, without a table."""
    p = start.copy()
    before = None
    alphas, betas = [], []
    for _ in range(max_iter):
        bins = np.array([min(int(np.floor(x * n_bins + 1e-12)), n_bins - 1) for x in p])
        if before is not None and np.array_equal(bins, before):
            break
        before = bins
        alpha, beta = np.full(n_bins, np.nan), np.full(n_bins, np.nan)
        for j in np.unique(bins):
            members = bins == j
            g, c = stability[members], correct[members].astype(float)
            if g.sum() == 0 or (1 - g).sum() == 0:
                alpha[j] = beta[j] = c.mean()
            else:
                alpha[j] = (g * c).sum() / g.sum()
                beta[j] = ((1 - g) * c).sum() / (1 - g).sum()
            p[members] = (alpha[j] - beta[j]) * g + beta[j]
        alphas.append(alpha)
        betas.append(beta)
    return p, alphas, betas


def printed_hoki(
    logits: np.ndarray,
    labels: np.ndarray,
    new: np.ndarray,
    noise: np.ndarray,
    *,
    n_bins: int,
    max_iter: int,
    from_confidence: bool,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Algorithms 1 and 2 from the paper's text alone: confidences (n,), (new,) and the
    steps K*.

    `noise` (draws, classes) are the transformations. The text leaves one thing open, a
    bin without validation examples: an example that falls into it keeps its confidence.
    """
    parts = [np.asarray(rows, np.float64) for rows in (logits, new)]
    kept = [
        np.stack(
            [(rows + t).argmax(axis=1) == rows.argmax(axis=1) for t in noise], axis=1
        )
        for rows in parts
    ]
    right = parts[0].argmax(axis=1) == labels
    p, q = (_printed_start(rows, right.mean(), from_confidence) for rows in parts)
    before: list[list[int]] | None = None
    steps = 0
    for _ in range(max_iter):
        sets: list[list[int]] = [[] for _ in range(n_bins)]
        for n, value in enumerate(p):
            sets[_printed_bin(value, n_bins)].append(n)
        if sets == before:
            break
        place = [
            _printed_bin(value, n_bins) for value in q
        ]  # Algorithm 2, beside Algorithm 1
        for j, members in enumerate(sets):
            if not members:
                continue
            same, hit = kept[0][members], right[members]
            if same.sum() in (0, same.size):
                alpha = beta = hit.mean()
            else:
                alpha = (same & hit[:, None]).sum() / same.sum()
                beta = (~same & hit[:, None]).sum() / (~same).sum()
            p[members] = (alpha - beta) * same.mean(axis=1) + beta
            for n in (n for n, at in enumerate(place) if at == j):
                q[n] = (alpha - beta) * kept[1][n].mean() + beta
        before, steps = sets, steps + 1
    return p, q, steps


def _printed_start(
    rows: np.ndarray, accuracy: float, from_confidence: bool
) -> np.ndarray:
    if not from_confidence:
        return np.full(len(rows), accuracy)
    return 1.0 / np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1)


def _printed_bin(value: float, n_bins: int) -> int:
    return min(int(np.floor(value * n_bins + 1e-12)), n_bins - 1)


def ece(confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15) -> float:
    """Equal-width ECE, bin by bin."""
    total = 0.0
    for j in range(n_bins):
        low, high = j / n_bins, (j + 1) / n_bins
        inside = (confidence >= low) & ((confidence < high) | (j == n_bins - 1))
        total += abs((correct[inside] - confidence[inside]).sum())
    return total / confidence.size
