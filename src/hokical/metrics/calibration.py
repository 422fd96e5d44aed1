"""Calibration errors, over bins and smooth, and proper scores of a label or of all classes.

With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE.

The smooth ECE (Blasiok and Nakkiran, 2024) has a kernel for bins, and needs no choice of bandwidth.
With residuals r_i = correct_i - confidence_i at f_i and the Gaussian kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th coefficient by
exp(-(pi k s)^2 / 2), however many reflections that takes. So residuals are put on a grid (each
shared by its two nearest cells), and one cosine transform is inverted per bandwidth. Sums add up
over chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.checks import bin_index, check_count, sum_by
from hokical._core.logits import row_slices
from hokical.metrics import examples
from hokical.metrics.intervals import MOST_LOSS, worst_mean
from hokical.metrics.levels import (
    Bins,
    BinSums,
    Levels,
    LevelSums,
    add_chunks,
    level_sums,
    read_levels,
    run_starts,
)

#: The values of a score for right and for wrong rows, by confidence.
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class VectorSums:
    """Sums over (proba, labels), of `total` weight. They add with `+`.

    `scores` sums by name the scores of rows, their squares and cubes, the scores of wrong labels,
    their number, and what all rows would score with a wrong one, (6,); `gaps` (classes * bins) sums
    1{label} - probability by class and bin of the probability.
    """

    total: float
    scores: dict[str, FloatArray]
    gaps: FloatArray
    n_classes: int

    @classmethod
    def from_rows(cls, rows: examples.Predictions, n_bins: int, scores: Any = None) -> Self:
        """Sums of rows that were checked, whose `class_scores` may be known."""
        weight = rows.filled_weight()
        scores = scores or class_scores(rows)
        wrong = weight * (rows.proba.argmax(axis=1) != rows.labels)
        worst = worst_rows(rows, scores["brier"])
        sums = {
            name: np.array([*((weight * values**k).sum() for k in (1, 2, 3)),
                            np.where(wrong > 0.0, wrong * values, 0.0).sum(), wrong.sum(),
                            weight @ worst[name]])
            for name, values in scores.items()
        }  # fmt: skip
        return cls(float(weight.sum()), sums, class_gaps(rows, n_bins), rows.n_classes)

    def __add__(self, other: Self) -> Self:
        scores = {name: own + other.scores[name] for name, own in self.scores.items()}
        total, gaps = self.total + other.total, self.gaps + other.gaps
        return type(self)(total, scores, gaps, self.n_classes)

    def power_means(self, rows_per_weight: float) -> dict[str, tuple[FloatArray, float]]:
        """By name: means of a score, its square and its cube, and what a wrong row would score."""
        found = {}
        for name, sums in self.scores.items():
            seen, count = sums[3:5] * rows_per_weight
            found[name] = sums[:3] / self.total, worst_mean(count, seen, sums[5] / self.total)
        return found

    def classwise_ece(self) -> float:
        """See `hokical.metrics.classwise_ece`."""
        return float(np.abs(self.gaps).sum() / (self.n_classes * self.total))


def class_gaps(rows: examples.Predictions, n_bins: int) -> FloatArray:
    """Weighted sums of 1{label} - probability by class and bin, (classes * bins,)."""
    n_classes, weight = rows.n_classes, rows.filled_weight()
    gaps = np.zeros(n_classes * n_bins)
    for part in row_slices(rows.n_rows, n_classes):
        proba = rows.proba[part].astype(np.float64, order="C")
        cell = n_bins * np.arange(n_classes) + bin_index(proba, n_bins)
        proba[np.arange(proba.shape[0]), rows.labels[part]] -= 1.0
        gaps -= sum_by(cell.ravel(), (proba * weight[part, None]).ravel(), gaps.size)
    return gaps


def class_scores(data: examples.Predictions) -> dict[str, FloatArray]:
    """The scores (n,) whose means are metrics of all classes."""
    return {"brier": brier_rows(data), "log_loss": log_loss_rows(data)}


def worst_rows(data: examples.Predictions, brier: FloatArray) -> dict[str, FloatArray]:
    """What rows would score with another class: of probability 0, or the mean of the others'."""
    known = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    rest = np.maximum(1.0 - data.proba.max(axis=1).astype(np.float64), math.exp(-MOST_LOSS))
    return {"brier": brier + 2.0 * known, "log_loss": math.log(data.n_classes - 1) - np.log(rest)}


def log_loss_rows(data: examples.Predictions, clip: float = 0.0) -> FloatArray:
    """-log(probability of the true class) per example, (n,)."""
    likelihood = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(likelihood), loss_limit(clip))


def ranked_rows(data: examples.Predictions) -> FloatArray:
    """Sum over k of (P(class <= k) - 1{label <= k})^2 per example, (n,)."""
    cumulative = np.cumsum(data.proba[:, :-1], axis=1, dtype=np.float64)
    reached = data.labels[:, None] <= np.arange(data.n_classes - 1)
    return np.asarray(((cumulative - reached) ** 2).sum(axis=1))


def brier_rows(data: examples.Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(data.n_rows, data.n_classes):
        block = data.proba[rows].astype(np.float64, order="C")  # which decides the order of sums
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def squared_errors(confidence: FloatArray) -> Pair:
    """(1{correct} - confidence)^2 of right and of wrong rows."""
    return (1.0 - confidence) ** 2, confidence**2


def log_loss_pair(confidence: FloatArray, clip: float = 0.0) -> Pair:
    """-log(probability of what happened) of right and of wrong rows."""
    limit = loss_limit(clip)
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        return np.minimum(-np.log(confidence), limit), np.minimum(-np.log1p(-confidence), limit)


def row_scores(rows: examples.Outcomes, data: examples.Predictions | None) -> dict[str, FloatArray]:
    """The scores (n,) whose means are metrics: of all classes if known, else of the label."""
    if data is not None:
        return class_scores(data)
    pairs = {"brier": squared_errors(rows.confidence), "log_loss": log_loss_pair(rows.confidence)}
    return {name: np.where(rows.correct, *pair) for name, pair in pairs.items()}


def loss_limit(clip: float) -> float:
    """The largest log loss of a row."""
    return math.inf if clip == 0.0 else -math.log(clip)


def ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error, in [0, 1]: the gap of confidence and accuracy, by bins.

    `proba` (n,) is the probability that each predicted label is right, and `labels` (n,) whether it
    was: booleans, or 0 and 1. Or `proba` (n, classes) are the probabilities of all classes, whose
    rows sum to 1 (within 1e-2, for float16) and are not rescaled, and `labels` (n,) the true
    classes as column indices; then the likeliest class is the predicted label. `sample_weight` (n,)
    says how often each example counts; 2 is the same as passing it twice. Without weights the
    result does not depend on the order of the rows, to the bit.

    With `bins="width"` the J = `n_bins` bins are [j/J, (j+1)/J), the last closed; "mass" puts about
    equal weight in each, and equal confidences in one. `norm`, any exponent of at least 1 or inf,
    says how the bins' gaps are averaged.

    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([[0.1, 0.9], [0.9, 0.1], [0.4, 0.6]], [1, 1, 1]), 6)
    0.4
    """
    n_bins, norm = check_count(n_bins), examples.check_norm(norm)
    found = read_levels(proba, labels, sample_weight).by_bin(n_bins, bins)
    return gap_norm(found, norm)


def debiased_ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    squared: bool = False,
    sample_weight: Any = None,
) -> float:
    """The 2-norm calibration error without the bias that sampling adds (Kumar et al., 2019).

    sum_j w_j/W [gap_j^2 - acc_j (1 - acc_j)/(w_j - 1)]. The noise of a bin with one example cannot
    be estimated; it adds 0. Weights are read as numbers of examples. The result is the root, on the
    scale of `ece(norm=2)`, or 0 if the estimate is negative; `squared=True` gives the estimate
    itself, which is negative about half the time for a perfect model. Arguments are as in `ece`.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> round(ece(confidence, correct, norm=2), 4), round(debiased_ece(confidence, correct), 4)
    (0.0407, 0.0207)
    """
    found = read_levels(proba, labels, sample_weight).by_bin(check_count(n_bins), bins)
    return debiased_error(found, squared=squared)


def classwise_ece(
    proba: Any, labels: Any = None, *, n_bins: int = 15, sample_weight: Any = None
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k) (Kull et al., 2019).

    `proba` (n, classes) and the other arguments are as in `ece`. All classes count alike, even one
    that never occurs. With many classes most probabilities are near 0, and so is this mean: compare
    it only between models of the same classes.

    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    n_bins = check_count(n_bins)

    def make(*chunk: Any) -> VectorSums:
        return VectorSums.from_rows(examples.as_predictions(*chunk), n_bins)

    return add_chunks(make, proba, labels, sample_weight).classwise_ece()


def brier(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """The Brier score of all classes (n, classes), in [0, 2], or of a confidence (n,), in [0, 1].

    The mean of the squared distance of the probabilities to what happened: of all classes the sum
    over them of (proba - 1{label})^2, of a confidence (1{correct} - confidence)^2. Arguments are as
    in `ece`. Of two classes it is twice scikit-learn's `brier_score_loss`.

    >>> round(brier([0.9, 0.6], [True, False]), 6), round(brier([[0.7, 0.2, 0.1]], [0]), 6)
    (0.185, 0.14)
    """
    return _mean_score(brier_rows, squared_errors, proba, labels, sample_weight)


def log_loss(
    proba: Any, labels: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability given to what happened), in nats.

    Of probabilities (n, classes) that is the probability of the true class; of a confidence (n,),
    that of being right, or wrong. Arguments are as in `ece`. Probabilities are raised to at least
    `clip`. By default they are not, and a label that was certain and wrong makes the result inf.
    scikit-learn uses 2.2e-16.

    >>> round(log_loss([0.9, 0.6], [True, False]), 6), round(log_loss([[0.7, 0.2, 0.1]], [0]), 6)
    (0.510826, 0.356675)
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    if not 0.0 <= clip < 0.5:
        raise ValueError(f"`clip` must be at least 0 and below 1/2; got {clip!r}.")
    return _mean_score(
        lambda data: log_loss_rows(data, clip),
        lambda confidence: log_loss_pair(confidence, clip),
        proba, labels, sample_weight,
    )  # fmt: skip


def ranked_probability_score(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over k of (P(class <= k) - 1{label <= k})^2, below classes - 1.

    A proper score for classes whose columns are in order (Epstein, 1969): being off by one grade
    costs less than by two. Arguments are as in `ece`.

    >>> [round(ranked_probability_score([[0.7, 0.2, 0.1]], [label]), 2) for label in (0, 1, 2)]
    [0.1, 0.5, 1.3]
    """
    return _mean_score(ranked_rows, None, proba, labels, sample_weight)


def _mean_score(
    of_rows: Callable[[examples.Predictions], FloatArray],
    of_confidence: Callable[[FloatArray], Pair] | None,
    *columns: Any,
) -> float:
    """A proper score of all classes, or of a confidence if it has one; the shape decides."""

    def make(*chunk: Any) -> Any:
        if of_confidence is not None and np.ndim(chunk[0]) != 2:
            return level_sums(*chunk)
        data = examples.as_predictions(*chunk)
        weight = data.filled_weight()
        return np.array([(weight * of_rows(data)).sum(), weight.sum()])

    found = add_chunks(make, *columns)
    if of_confidence is not None and isinstance(found, LevelSums):
        return float(found.levels.power_means(*of_confidence(found.levels.confidence))[0])
    return float(found[0] / found[1])


def gap_norm(bins: BinSums, norm: float = 1.0) -> float:
    """The p-norm of gap / weight under the bins' shares of weight."""
    size, weight = np.abs(bins.gap), bins.weight
    whole = float(weight.sum())
    if norm == 1.0:
        return float(size.sum()) / whole
    mean = size / weight
    largest = float(mean.max())
    if math.isinf(norm) or largest == 0.0:
        return largest
    # Relative to the largest gap, so that powers of small gaps do not all underflow.
    power = float((weight * (mean / largest) ** norm).sum()) / whole
    return float(largest * power ** (1.0 / norm))


def debiased_error(bins: BinSums, *, squared: bool = False) -> float:
    """Kumar's estimate of the squared calibration error, or its root."""
    enough = bins.weight > 1
    gap, w, correct = (column[enough] for column in bins)
    accuracy = correct / w
    square = (gap / w) ** 2 - accuracy * (1.0 - accuracy) / (w - 1.0)
    mean = float((w * square).sum() / bins.weight.sum())
    return mean if squared else math.sqrt(max(mean, 0.0))


_LEAST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18


def smooth_ece(
    proba: Any,
    labels: Any = None,
    *,
    bandwidth: float | None = None,
    sample_weight: Any = None,
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The `bandwidth` is the standard deviation s of the kernel, above 0; by default the one that
    equals its own error, which makes the result continuous in the confidences. The grid has 64
    cells per bandwidth (at most 2^18 in all), so the result is accurate to about 1e-5 relative, or
    2e-6 absolute if that is more. Other arguments are as in `ece`.

    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    from scipy.fft import dct

    levels = read_levels(proba, labels, sample_weight)
    if bandwidth is None:
        return smooth_error(levels)
    width = examples.check_inside("bandwidth", bandwidth, 0.0, np.inf)
    return _size(dct(grid_masses(levels, cells_for(width)), norm="ortho"), width)


def smooth_error(levels: Levels) -> float:
    """The error that equals its own bandwidth."""
    rough = own_bandwidth(grid_masses(levels, _LEAST_CELLS), 1e-6)  # decides on the grid
    return own_bandwidth(grid_masses(levels, cells_for(rough)), 1e-12)


def own_bandwidth(masses: FloatArray, tolerance: float) -> float:
    """The s with smECE_s = s for gridded residuals (cells,); smECE_s decreases in s."""
    from scipy.fft import dct
    from scipy.optimize import brentq

    coefficients = dct(masses, norm="ortho")
    low, high = abs(float(masses.sum())), float(np.abs(masses).sum())

    def excess(s: float) -> float:
        return _size(coefficients, s) - s

    for end, sign in ((low, -1.0), (high, 1.0)):  # as when all residuals have one sign
        if sign * excess(end) >= 0.0:
            return end
    return float(brentq(excess, low, high, xtol=tolerance, rtol=1e-15))


def grid_masses(levels: Levels, cells: int) -> FloatArray:
    """Residuals shared between the two nearest of the cells' centres, (cells,).

    Beyond the first and last centre the neighbour is the mirror image, in the same cell.
    """
    place = levels.confidence * cells - 0.5
    lower = np.floor(place).astype(np.int64)
    upper_share = place - lower
    masses = levels.gap / levels.total
    starts = run_starts(lower)
    into = lower[starts] + 1  # one extra cell at either end, folded back below
    out = np.zeros(cells + 2)
    out[into] += np.add.reduceat(masses * (1.0 - upper_share), starts)
    out[into + 1] += np.add.reduceat(masses * upper_share, starts)
    out[1] += out[0]
    out[-2] += out[-1]
    return out[1:-1]


def cells_for(bandwidth: float) -> int:
    """A power of two with 64 cells per bandwidth, within limits."""
    wanted = 64 / max(bandwidth, 64 / _MOST_CELLS)
    return max(_LEAST_CELLS, 1 << int(np.ceil(np.log2(wanted))))


def _size(coefficients: FloatArray, bandwidth: float) -> float:
    """Sum over the cells of |smoothed residuals|."""
    from scipy.fft import idct

    cells = coefficients.shape[-1]
    # Sharing a point between two cells adds a variance of h^2/6 on average: correct for it.
    variance = max(bandwidth**2 - 1.0 / (6.0 * cells**2), 0.0)
    damping = np.exp(-0.5 * variance * (np.pi * np.arange(cells)) ** 2)
    return float(np.abs(idct(coefficients * damping, norm="ortho")).sum())
