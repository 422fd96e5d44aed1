"""Calibration errors, over bins and smooth, proper scores, and how confidence ranks
rows.

With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE.

The smooth ECE (Blasiok and Nakkiran, 2024) has a kernel for bins, and needs no choice
of bandwidth. With residuals r_i = correct_i - confidence_i at f_i and the Gaussian
kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with
    smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th
coefficient by exp(-(pi k s)^2 / 2), however many reflections that takes. So residuals
are put on a grid (each shared by its two nearest cells), and one cosine transform is
inverted per bandwidth. Sums add up over chunks.

AUROC, selective risk and the area under it say how well confidence separates right from
wrong. Examples of equal confidence cannot be ordered, so these average over their
orders. Risk is the share of wrong predictions among those kept, the most confident
first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import (
    as_number,
    bin_edges,
    bin_index,
    check_bins,
    check_positive,
    show,
    sum_by,
)
from hokical._core.logits import row_slices
from hokical._core.reading import to_floats
from hokical.metrics.levels import (
    IMPOSSIBLE,
    Bins,
    EventOutcomes,
    Levels,
    Outcomes,
    Predictions,
    add_chunks,
    as_examples,
    as_predictions,
    read_levels,
)

#: The values of a score for right and for wrong rows, by confidence.
Pair = tuple[FloatArray, FloatArray]
#: The scores (n,) whose means are metrics, by metric.
Scores = dict[str, FloatArray]
#: The largest log loss that one more row is expected to have: that of a confidence of 1
#: - 1e-16.
MOST_LOSS = 36.0


@dataclass(frozen=True)
class RowScore:
    """A score of rows, whose mean is a metric.

    `of_rows` are the scores (n,) of predictions for all classes, `of_confidence` those
    of right and of wrong rows by confidence (n,). `worst`, of predictions and their
    scores, is what each row would score with a wrong label; by default with the class
    of the least probability. `of_event` says whether the score of an event is that of
    both classes, not of its probability alone.
    """

    of_rows: Callable[[Predictions], FloatArray]
    of_confidence: Callable[[FloatArray], Pair]
    worst: Callable[[Predictions, FloatArray], FloatArray] | None = None
    of_event: bool = False

    def takes_classes(self, rows: Outcomes) -> bool:
        """Whether the probabilities of all classes are scored."""
        is_event = isinstance(rows, EventOutcomes)
        return rows.vectors is not None and (self.of_event or not is_event)

    def values(self, rows: Outcomes) -> FloatArray:
        """The scores (n,), of all classes if known, else of the label or the event."""
        if rows.vectors is not None and self.takes_classes(rows):
            return self.of_rows(rows.vectors)
        return np.where(rows.correct, *self.of_confidence(rows.confidence))

    def sums(self, data: Predictions, values: FloatArray) -> FloatArray:
        """Sums (8,) of scores (n,) over (proba, labels), which add up over chunks.

        Those of the scores, their squares and cubes; of the scores of wrong labels and
        their squares; of what all rows would score with a wrong one and its squares;
        and the number of infinite scores.
        """
        if self.worst is not None:
            worst = self.worst(data, values)
        else:
            worst = self.of_rows(replace(data, labels=data.proba.argmin(axis=1)))
        weight = data.filled_weight()
        wrong = weight * (data.proba.argmax(axis=1) != data.labels)
        powers = [(weight * values**k).sum() for k in (1, 2, 3)]
        of_wrong = np.where(wrong > 0.0, values, 0.0)
        wrong_powers = [wrong @ of_wrong, wrong @ of_wrong**2]
        infinite = weight @ np.isinf(values)
        worst_powers = [weight @ worst, weight @ worst**2]
        return np.array([*powers, *wrong_powers, *worst_powers, infinite])


def class_gaps(rows: Predictions, n_bins: int) -> FloatArray:
    """Weighted sums of 1{label} - probability by class and bin, (classes, bins).

    At most `n_bins` probabilities of a row lie beyond the first bin, and only these are
    looked at one by one.
    """
    n_classes = rows.proba.shape[1]
    weight = rows.filled_weight()
    shape = (n_classes, n_bins)
    first_edge = bin_edges(n_bins)[1]

    def sum_cells(
        columns: IntArray, proba: FloatArray, values: FloatArray
    ) -> FloatArray:
        cells = n_bins * columns + bin_index(proba, n_bins)
        return sum_by(cells, values, n_classes * n_bins).reshape(shape)

    gaps = np.zeros(shape)
    for block in row_slices(*rows.proba.shape):
        proba = np.ascontiguousarray(rows.proba[block], np.float64)
        labels = rows.labels[block]
        row, column = np.nonzero(proba >= first_edge)
        high = proba[row, column]
        beyond = sum_cells(column, high, high * weight[block][row])
        gaps[:, 0] -= np.einsum("n,nk->k", weight[block], proba) - beyond.sum(axis=1)
        gaps -= beyond
        gaps += sum_cells(labels, proba[np.arange(len(labels)), labels], weight[block])
    return gaps


def log_loss_rows(data: Predictions, limit: float = math.inf) -> FloatArray:
    """-log(probability of the true class) per example, (n,), at most `limit`."""
    likelihood = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    return _negative_log(likelihood, limit)


def _negative_log(likelihood: FloatArray, limit: float) -> FloatArray:
    """-log(likelihood), infinite where it is impossible, at most `limit`."""
    with np.errstate(divide="ignore"):
        possible = np.where(likelihood > IMPOSSIBLE, likelihood, 0.0)
        return np.minimum(-np.log(possible), limit)


def ranked_rows(data: Predictions) -> FloatArray:
    """Sum over k of (P(class <= k) - 1{label <= k})^2 per example, (n,)."""
    cumulative = np.cumsum(data.proba[:, :-1], axis=1, dtype=np.float64)
    reached = data.labels[:, None] <= np.arange(data.proba.shape[1] - 1)
    return np.asarray(((cumulative - reached) ** 2).sum(axis=1))


def brier_rows(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(*data.proba.shape):
        # The order in memory decides that of sums.
        block = data.proba[rows].astype(np.float64, order="C")
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def squared_errors(confidence: FloatArray) -> Pair:
    """(1{correct} - confidence)^2 of right and of wrong rows."""
    return (1.0 - confidence) ** 2, confidence**2


def log_loss_pair(confidence: FloatArray, limit: float = math.inf) -> Pair:
    """-log(probability of what happened) of right and of wrong rows, at most
    `limit`.
    """
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        wrong = np.minimum(-np.log1p(-confidence), limit)
    return _negative_log(confidence, limit), wrong


def _worst_brier(data: Predictions, scores: FloatArray) -> FloatArray:
    """Brier scores (n,) with a class of probability 0 as the label."""
    true_proba = data.proba[np.arange(data.n_rows), data.labels]
    return scores + 2.0 * true_proba.astype(np.float64)


def _worst_log_loss(data: Predictions, scores: FloatArray) -> FloatArray:
    """Log losses (n,) with a label of the mean probability of the less likely classes."""
    error_proba = 1.0 - data.proba.max(axis=1).astype(np.float64)
    least_proba = np.maximum(error_proba, math.exp(-MOST_LOSS))
    return np.asarray(math.log(data.proba.shape[1] - 1) - np.log(least_proba))


BRIER = RowScore(brier_rows, squared_errors, _worst_brier)
LOG_LOSS = RowScore(log_loss_rows, log_loss_pair, _worst_log_loss, of_event=True)


def ece(
    proba: object,
    labels: object = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: object = None,
) -> float:
    """Expected calibration error, in [0, 1]: the gap of confidence and accuracy, by
    bins.

    `proba` (n,) is the probability that each predicted label is right, and `labels`
    (n,) whether it was: booleans, or 0 and 1. Or `proba` (n, classes) are the
    probabilities of all classes, whose rows sum to 1 (within 1e-2, for float16) and are
    not rescaled, and `labels` (n,) the true classes as column indices; then the
    likeliest class is the predicted label. `labels` may be soft, (n, classes): votes of
    several annotators or a distribution, of which the metric is the mean. Each row is
    one example, whatever the number of its votes. `sample_weight` (n,) says how often each
    example counts; 2 is the same as passing it twice. Without weights the result does
    not depend on the order of the rows, to the bit.

    With `bins="width"` the J = `n_bins` bins are [j/J, (j+1)/J), the last closed;
    "mass" puts about equal weight in each, and equal confidences in one. `norm`, any
    exponent of at least 1 or inf, says how the bins' gaps are averaged.

    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([[0.1, 0.9], [0.9, 0.1], [0.4, 0.6]], [1, 1, 1]), 6)
    0.4
    """
    if isinstance(norm, bool) or not (isinstance(norm, Real) and norm >= 1):
        raise ValueError(
            f"`norm` must be a number of at least 1, or inf; got {norm!r}. Use 1, 2 or "
            "math.inf."
        )
    levels = read_levels(proba, labels, sample_weight)
    gap, weight, _ = levels.by_bin(check_bins(n_bins), bins)
    size = np.abs(gap)
    total = float(weight.sum())
    if norm == 1:
        return float(size.sum()) / total
    mean = size / weight
    largest = float(mean.max())
    if norm == math.inf or largest == 0.0:
        return largest
    # Relative to the largest gap, so that powers of small gaps do not all underflow.
    power = float((weight * (mean / largest) ** float(norm)).sum()) / total
    return float(largest * power ** (1.0 / float(norm)))


def debiased_ece(
    proba: object,
    labels: object = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    squared: bool = False,
    sample_weight: object = None,
) -> float:
    """The 2-norm calibration error without the bias that sampling adds (Kumar et al.,
    2019).

    sum_j w_j/W [gap_j^2 - acc_j (1 - acc_j)/(w_j - 1)]. The noise of a bin with one
    example cannot be estimated; it adds 0. Weights are read as numbers of examples. The
    result is the root, on the scale of `ece(norm=2)`, or 0 if the estimate is negative;
    `squared=True` gives the estimate itself, which is negative about half the time for
    a perfect model. Arguments are as in `ece`.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> (
    ...     round(ece(confidence, correct, norm=2), 4),
    ...     round(debiased_ece(confidence, correct), 4),
    ... )
    (0.0407, 0.0207)
    """
    sums = read_levels(proba, labels, sample_weight).by_bin(check_bins(n_bins), bins)
    total = sums[1].sum()
    gap, weight, correct = (column[sums[1] > 1] for column in sums)
    accuracy = correct / weight
    noise = accuracy * (1.0 - accuracy) / (weight - 1.0)
    square = (gap / weight) ** 2 - noise
    mean = float((weight * square).sum() / total)
    return mean if squared else math.sqrt(max(mean, 0.0))


def classwise_ece(
    proba: object,
    labels: object = None,
    *,
    n_bins: int = 15,
    sample_weight: object = None,
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k) (Kull et al.,
    2019).

    `proba` (n, classes) and the other arguments are as in `ece`. All classes count
    alike, even one that never occurs. With many classes most probabilities are near 0,
    and so is this mean: compare it only between models of the same classes.

    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    n_bins = check_bins(n_bins)

    def make(*chunk: Any) -> FloatArray:
        data = as_predictions(*chunk)
        return np.append(class_gaps(data, n_bins), data.filled_weight().sum())

    *gaps, total = add_chunks(make, proba, labels, sample_weight)
    return float(np.abs(gaps).sum() / (len(gaps) // n_bins * total))


def brier(
    proba: object, labels: object = None, *, sample_weight: object = None
) -> float:
    """The Brier score of all classes (n, classes), in [0, 2], or of a confidence (n,),
    in [0, 1].

    The mean of the squared distance of the probabilities to what happened: of all
    classes the sum over them of (proba - 1{label})^2, of a confidence (1{correct} -
    confidence)^2. Arguments are as in `ece`. Of two classes it is twice scikit-learn's
    `brier_score_loss`.

    >>> (
    ...     round(brier([0.9, 0.6], [True, False]), 6),
    ...     round(brier([[0.7, 0.2, 0.1]], [0]), 6),
    ... )
    (0.185, 0.14)
    """
    return _mean_score(brier_rows, squared_errors, proba, labels, sample_weight)


def log_loss(
    proba: object,
    labels: object = None,
    *,
    clip: float = 0.0,
    sample_weight: object = None,
) -> float:
    """Mean of -log(probability given to what happened), in nats.

    Of probabilities (n, classes) that is the probability of the true class; of a
    confidence (n,), that of being right, or wrong. Arguments are as in `ece`.
    Probabilities are raised to at least `clip`. By default they are not, and one
    outcome whose probability was 0 makes the result inf, on whichever side; at most
    1e-300, the floor of predictions, counts as 0. scikit-learn uses 2.2e-16.

    >>> (
    ...     round(log_loss([0.9, 0.6], [True, False]), 6),
    ...     round(log_loss([[0.7, 0.2, 0.1]], [0]), 6),
    ... )
    (0.510826, 0.356675)
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    if not 0.0 <= as_number(clip) < 0.5:
        raise ValueError(f"`clip` must be at least 0 and below 1/2; got {show(clip)}.")
    limit = -math.log(clip) if clip > 0.0 else math.inf
    of_rows = partial(log_loss_rows, limit=limit)
    of_confidence = partial(log_loss_pair, limit=limit)
    return _mean_score(of_rows, of_confidence, proba, labels, sample_weight)


def ranked_probability_score(
    proba: object, labels: object = None, *, sample_weight: object = None
) -> float:
    """Mean over examples of the sum over k of (P(class <= k) - 1{label <= k})^2, below
    classes - 1.

    A proper score for classes whose columns are in order (Epstein, 1969): being off by
    one grade costs less than by two. Arguments are as in `ece`.

    >>> [
    ...     round(ranked_probability_score([[0.7, 0.2, 0.1]], [label]), 2)
    ...     for label in (0, 1, 2)
    ... ]
    [0.1, 0.5, 1.3]
    """
    return _mean_score(ranked_rows, None, proba, labels, sample_weight)


def _mean_score(
    of_rows: Callable[[Predictions], FloatArray],
    of_confidence: Callable[[FloatArray], Pair] | None,
    *columns: Any,
) -> float:
    """A proper score of all classes, or of a confidence if it has one; the shape
    decides.
    """

    def make(*chunk: Any) -> Any:
        if of_confidence is not None and np.ndim(chunk[0]) != 2:
            return Levels.from_rows(as_examples(*chunk))
        data = as_predictions(*chunk)
        weight = data.filled_weight()
        return np.array([(weight * of_rows(data)).sum(), weight.sum()])

    sums = add_chunks(make, *columns)
    if of_confidence is not None and isinstance(sums, Levels):
        return float(sums.power_means(*of_confidence(sums.confidence))[0])
    return float(sums[0] / sums[1])


_LEAST_CELLS = 1 << 12
_MOST_CELLS = 1 << 18


def smooth_ece(
    proba: object,
    labels: object = None,
    *,
    bandwidth: float | None = None,
    sample_weight: object = None,
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The `bandwidth` is the standard deviation s of the kernel, above 0; by default the
    one that equals its own error, which makes the result continuous in the confidences.
    The grid has 64 cells per bandwidth (at most 2^18 in all), so the result is accurate
    to about 1e-5 relative, or 2e-6 absolute if that is more. Other arguments are as in
    `ece`.

    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    from scipy.optimize import brentq

    levels = read_levels(proba, labels, sample_weight)
    if bandwidth is not None:
        check_positive(
            "bandwidth", bandwidth, "Leave it out for the one that equals its error."
        )
        return _smoothed_error(levels, bandwidth)(bandwidth)
    # The s with smECE_s = s, which decreases in s.
    low = abs(float(levels.gap.sum()))
    high = float(np.abs(levels.gap).sum())
    low = low / levels.total
    high = high / levels.total
    estimate = 1.0
    for tolerance in (1e-6, 1e-12):  # the first decides on the grid of the second
        error = _smoothed_error(levels, estimate)
        if error(low) <= low:
            return low
        if error(high) >= high:  # as when all residuals have one sign
            return high

        def excess(s: float, error: Callable[[float], float] = error) -> float:
            return error(s) - s

        estimate = float(brentq(excess, low, high, xtol=tolerance, rtol=1e-15))
    return estimate


def _smoothed_error(levels: Levels, bandwidth: float) -> Callable[[float], float]:
    """smECE_s as a function of s, on a grid that has 64 cells per `bandwidth`,
    within limits.
    """
    from scipy.fft import dct, idct

    cells_wanted = 64 / max(bandwidth, 64 / _MOST_CELLS)
    cells = max(_LEAST_CELLS, 1 << int(np.ceil(np.log2(cells_wanted))))
    # Each residual is shared between the two nearest of the cells' centres. Beyond the
    # first and the last the neighbour is the mirror image, in the same cell: one more,
    # folded back.
    position = levels.confidence * cells + 0.5
    lower = np.floor(position).astype(np.int64)
    share = position - lower
    masses = levels.gap / levels.total
    grid = sum_by(lower, masses * (1.0 - share), cells + 2)
    grid += sum_by(lower + 1, masses * share, cells + 2)
    grid[1] += grid[0]
    grid[-2] += grid[-1]
    coefficients = dct(grid[1:-1], norm="ortho")
    square = (np.pi * np.arange(cells)) ** 2

    def error(s: float) -> float:
        # Sharing a point between two cells adds a variance of h^2/6 on average: correct
        # for it.
        variance = max(s**2 - 1.0 / (6.0 * cells**2), 0.0)
        damping = np.exp(-0.5 * variance * square)
        return float(np.abs(idct(coefficients * damping, norm="ortho")).sum())

    return error


def auroc(
    proba: object, labels: object = None, *, sample_weight: object = None
) -> float:
    """Probability that a correct example is more confident than a wrong one; ties count
    1/2.

    NaN if all examples are correct, or none: there is no pair to compare. Arguments are
    as in `ece`.

    >>> auroc([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    0.875
    """
    return read_levels(proba, labels, sample_weight).roc_places[2]


def aurc(
    proba: object, labels: object = None, *, sample_weight: object = None
) -> float:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most
    confident.

    Weights are read as numbers of examples: weights that are twice as large mean twice
    as many, and the mean over k changes a little.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    """
    from scipy.special import digamma

    # Within a group of ties errors are spread evenly, so the k-th risk is (E + (k - K)
    # r)/k with E errors among the K kept before and r the group's own risk. Its sum
    # over the group is r w + (E - K r)(H(K + w) - H(K)), with the harmonic numbers H(k)
    # = 1 + 1/2 + ... + 1/k.
    levels = read_levels(proba, labels, sample_weight)
    upto = np.asarray(digamma(levels.weight_above + 1.0) + np.euler_gamma)
    steps = -np.diff(upto, append=0.0)
    # E - K r = (E + r w) - (K + w) r, in the sums that include the group
    tied = levels.weight_above * levels.errors / levels.weight
    excess = float(((levels.errors_above - tied) * steps).sum())
    return (excess + float(levels.errors_above[0])) / levels.total


def selective_risk(
    proba: object,
    labels: object = None,
    *,
    coverage: Any = 0.8,
    sample_weight: object = None,
) -> Any:
    """Share of wrong predictions among the most confident `coverage` of the examples.

    `coverage` is a share above 0 and at most 1, or several of them, which give an
    array. The example at the cut counts partly, so the risk is continuous in the
    coverage.

    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=0.5)
    0.0
    >>> selective_risk(
    ...     [0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=[0.8, 1.0]
    ... )
    array([0.375, 0.5  ])
    """
    shares = to_floats(coverage, "coverage")
    if not ((shares > 0.0) & (shares <= 1.0)).all():
        raise ValueError(f"`coverage` must be above 0 and at most 1; got {coverage!r}.")
    levels = read_levels(proba, labels, sample_weight)
    wanted = shares * levels.total
    # The highest threshold that keeps enough.
    n_above = np.searchsorted(levels.weight_above[::-1], wanted)
    index = np.maximum(levels.weight.size - 1 - n_above, 0)
    partial_errors = (
        (levels.weight_above[index] - wanted)
        * levels.errors[index]
        / levels.weight[index]
    )
    risks = (levels.errors_above[index] - partial_errors) / wanted
    return risks if shares.ndim else float(risks)


def risk_coverage_curve(
    proba: object, labels: object = None, *, sample_weight: object = None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk (groups,) at each distinct confidence as threshold, highest
    first.

    >>> coverage, risk = risk_coverage_curve(
    ...     [0.9, 0.8, 0.8, 0.3], [True, True, False, False]
    ... )
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    levels = read_levels(proba, labels, sample_weight)
    weight_kept = levels.weight_above[::-1]
    wrong = levels.errors_above[::-1]
    return weight_kept / levels.total, wrong / weight_kept
