"""Slow, obvious metrics to compare the fast ones with, and data to try them on."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

# Ends, edges of 10 and 15 bins and their neighbours, ties, and anything in between.
_EDGES = [j / 15 for j in range(16)] + [j / 10 for j in range(11)]
_NEAR = [math.nextafter(edge, 0.5) for edge in _EDGES]
confidences = st.one_of(st.sampled_from(_EDGES + _NEAR), st.floats(0.0, 1.0))
#: Rows of (confidence, correct, whole weight).
rows = st.lists(
    st.tuples(confidences, st.booleans(), st.integers(1, 4)), min_size=1, max_size=40
)


def unpack(
    data: list[tuple[float, bool, int]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    confidence, correct, weight = zip(*data, strict=True)
    return np.array(confidence), np.array(correct), np.array(weight)


def model(n: int, *, seed: int, power: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Confidence mostly near 1, and correct with probability confidence^power."""
    rng = np.random.default_rng(seed)
    confidence = 1.0 - rng.beta(0.7, 4.0, size=n)
    return confidence, rng.uniform(size=n) < confidence**power


def width_bin(confidence: float, n_bins: int) -> int:
    """The last j with j/J <= confidence, and never beyond the last bin."""
    return max(j for j in range(n_bins) if j / n_bins <= confidence)


def mass_bin(confidence: np.ndarray, n_bins: int) -> list[int]:
    n = len(confidence)
    return [
        int(n_bins * (2 * (confidence < c).sum() + (confidence == c).sum()) // (2 * n))
        for c in confidence
    ]


def ece(
    confidence: np.ndarray, correct: np.ndarray, bins: list[int], norm: float
) -> float:
    """Exact fractions until the last step."""
    gaps = []
    for j in sorted(set(bins)):
        inside = [i for i, b in enumerate(bins) if b == j]
        gap = sum(
            Fraction(int(correct[i])) - Fraction(float(confidence[i])) for i in inside
        )
        gaps.append((Fraction(len(inside), len(bins)), abs(gap / len(inside))))
    if norm == math.inf:
        return float(max(gap for _, gap in gaps))
    if norm == 1:
        return float(sum(share * gap for share, gap in gaps))
    return float(sum(float(share) * float(gap) ** norm for share, gap in gaps)) ** (
        1 / norm
    )


def auroc(confidence: np.ndarray, correct: np.ndarray) -> float:
    right, wrong = confidence[correct], confidence[~correct]
    if not len(right) or not len(wrong):
        return math.nan
    won = (right[:, None] > wrong).sum() + 0.5 * (right[:, None] == wrong).sum()
    return float(won / (len(right) * len(wrong)))


def risks(confidence: np.ndarray, correct: np.ndarray) -> list[float]:
    """Risk of the k most confident, k = 1..n, each tie replaced by its group's mean
    error.
    """
    order = np.argsort(-confidence)
    error = [np.mean(~correct[confidence == confidence[i]]) for i in order]
    return [float(np.mean(error[: k + 1])) for k in range(len(error))]


def smooth_size(confidence: np.ndarray, correct: np.ndarray, bandwidth: float) -> float:
    """The integral by the midpoint rule, with the mirror images that matter."""
    cells = max(2000, int(60 / bandwidth))
    t = (np.arange(cells) + 0.5) / cells
    smoothed = np.zeros(cells)
    reach = math.ceil(5 * bandwidth) + 1
    for f, r in zip(confidence, correct - confidence, strict=True):
        for k in range(-reach, reach + 1):
            for image in (2 * k + f, 2 * k - f):
                smoothed += r * np.exp(-0.5 * ((t - image) / bandwidth) ** 2)
    scale = bandwidth * math.sqrt(2 * math.pi) * len(confidence)
    return float(np.abs(smoothed).mean() / scale)
