"""Intervals of metrics at level 1 - delta, in closed form: nothing is resampled.

How often they hold is simulated in `tests/metrics/test_coverage.py`; docs/metrics.md has the
figures. With weights, n is the number of rows that they are worth, (sum w)^2 / sum w^2 (Kish).
"""

import math
from collections.abc import Mapping

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import bin_index
from hokical.guarantees.bounds import clopper_pearson
from hokical.metrics.examples import Outcomes
from hokical.metrics.levels import BinSums, Levels, LevelSums

Ends = tuple[float, float]
NONE: Ends = (math.nan, math.nan)
#: The least rows of either outcome for an interval of the AUROC.
LEAST_OF_KIND = 5.0
#: The largest log loss that one more row is expected to have: that of a confidence of 1 - 1e-16.
MOST_LOSS = 36.0


def share_ends(share: float, n: float, delta: float) -> Ends:
    """Clopper and Pearson's interval of a share of n rows."""
    hits = np.array([min(round(share * n, 9), n)])
    low, high = clopper_pearson(hits, np.array([n]), delta=delta)[0]
    return float(low), float(high)


def mean_ends(powers: FloatArray, n: float, delta: float, worst: float = 0.0) -> Ends:
    """Interval of a mean, from the means of a score, its square and its cube, (3,).

    Scores such as the log loss are mostly small and rarely large: the t statistic is transformed
    to remove its skewness (Hall, 1992, Journal of the Royal Statistical Society B 54, 221-228).
    A sample that by luck has none of the rare rows does not know its skewness. So for scores of
    at least 0, of which one more row may add up to `worst`, the interval is at least that of a
    gamma distribution: below, of this mean and variance; above, with one more row of `worst`. That
    is Fay and Feuer's for sums of rare events (1997, Statistics in Medicine 16, 791-801).
    None for scores so large that their cubes are no numbers.
    """
    from scipy.special import gammaincinv, stdtrit

    mean, second, third = powers.tolist()
    if not n > 2.0 or second > 1e180 or (second < 1e-180 and worst == 0.0):
        return NONE
    variance = max(second - mean**2, 0.0)
    low, high = NONE
    if second >= 1e-180 and variance > 1e-14 * second:
        skewness = (third - 3.0 * mean * second + 2.0 * mean**3) / variance**1.5
        a, z = skewness / math.sqrt(n), -float(stdtrit(n - 1.0, 0.5 * delta))
        low, high = (mean - math.sqrt(variance / (n - 1.0)) * unskewed(a, z)).tolist()
    if worst > 0.0:
        for step, tail in ((0.0, 0.5 * delta), (worst / n, 1.0 - 0.5 * delta)):
            middle, spread = mean + step, variance / (n - 1.0) + step**2
            end = middle
            if spread > 1e-14 * middle**2:
                end = float(gammaincinv(middle**2 / spread, tail)) * spread / middle
            low, high = (min(end, low), high) if step == 0.0 else (low, max(end, high))
    return low, high


def unskewed(a: float, z: float) -> FloatArray:
    """The t statistics (2,) that Hall's transformation takes to z and -z, by skewness / root n."""
    y = np.array([z, -z])
    return y if abs(a) < 1e-9 else 3.0 / a * (np.cbrt(1.0 + a * (y - a / 6.0)) - 1.0)


def worst_score(levels: Levels, right: FloatArray, wrong: FloatArray) -> float:
    """What one more row of the worse outcome is expected to score.

    The mean of the rows that had it, and of one row with the mean over all of what they would have
    scored: more than the truth unless the worse outcome is more frequent where it scores more.
    """
    worse = wrong >= right
    seen = np.where(worse, levels.errors, levels.correct) * levels.rows_per_weight
    score = np.minimum(np.where(worse, wrong, right), MOST_LOSS)
    expected = float(levels.weight @ score) / levels.total
    return worst_mean(float(seen.sum()), float(seen @ score), expected)


def worst_mean(n_seen: float, seen: float, expected: float) -> float:
    """The mean of `n_seen` scores of this sum and one that is expected."""
    return (seen + expected) / (n_seen + 1.0)


def confidence_ends(levels: Levels, delta: float) -> Ends:
    """Interval of the mean confidence: of its distance to 0 or 1, whichever is smaller."""
    low_side = float(levels.weight @ levels.confidence) < 0.5 * levels.total
    distance = levels.confidence if low_side else 1.0 - levels.confidence
    powers = levels.power_means(distance, distance)
    n, worst = levels.total * levels.rows_per_weight, max(0.5, float(distance.max()))
    low, high = mean_ends(powers, n, delta, worst)
    return (low, high) if low_side else (1.0 - high, 1.0 - low)


def gap_ends(bins: BinSums, rows_per_weight: float, delta: float) -> Ends:
    """Interval of a calibration error over bins, by inversion, for true gaps of any pattern.

    Let e be the error of the sample, E the true one, and N_j the noise of the summed gap of bin j,
    normal with variance V_j. By the triangle inequality e <= E + sum |N_j| / W; with the signs s_j
    of the true gaps e >= E + sum s_j N_j / W, which is normal whatever the signs are. So E is below
    e plus a normal quantile, and above e less a quantile of the sum of half-normal variables (by a
    gamma distribution of the same mean and variance); it is also above the size of the mean gap
    less its noise. The two lower ends share delta / 2.
    """
    from scipy.special import gammaincinv, ndtri

    share = (bins.correct * rows_per_weight + 0.5) / (bins.weight * rows_per_weight + 1.0)
    variance = bins.weight / rows_per_weight * share * (1.0 - share)
    total, whole = float(bins.weight.sum()), float(variance.sum())
    error = float(np.abs(bins.gap).sum()) / total
    mean, spread = math.sqrt(2.0 / math.pi) * float(np.sqrt(variance).sum()), 1.0 - 2.0 / math.pi
    scale = spread * whole / mean
    noise = scale * float(gammaincinv(mean / scale, 1.0 - 0.25 * delta))
    common = abs(float(bins.gap.sum())) + float(ndtri(0.125 * delta)) * math.sqrt(whole)
    high = error - float(ndtri(0.5 * delta)) * math.sqrt(whole) / total
    return max(error - noise / total, common / total), high


def roc_ends(levels: Levels, delta: float) -> Ends:
    """Interval of the AUROC by DeLong's variance, on the scale of log odds (t distribution).

    Few rows of one kind may lie closer together than others would: the variance is that of one row
    more whose place is 0 or 1. None with fewer than `LEAST_OF_KIND` rows of a kind, or if they
    are perfectly separated.
    """
    from scipy.special import expit, logit, stdtrit

    right, wrong = levels.correct, levels.errors
    n_right, n_wrong = float(right.sum()), float(wrong.sum())
    least = min(n_right, n_wrong) * levels.rows_per_weight
    if least < LEAST_OF_KIND:
        return NONE
    (below, above, area), variance = levels.roc_places, 0.0
    if not 0.0 < area < 1.0:
        return NONE
    for weight, n, place in ((right, n_right, below), (wrong, n_wrong, above)):
        rows = n * levels.rows_per_weight
        spread = max(float(weight @ place**2) / n - area**2, 0.0)
        variance += (spread + area * (1.0 - area) / rows) / (rows - 1.0)
    width = -float(stdtrit(least - 1.0, 0.5 * delta)) * math.sqrt(variance) / (area - area**2)
    low, high = expit(logit(area) + np.array([-width, width]))
    return float(low), float(high)


def design_effects(
    rows: Outcomes, scores: Mapping[str, FloatArray], codes: IntArray, n_bins: int = 15
) -> dict[str, float]:
    """How many rows of clusters (n,) are worth one independent row, by metric (Kish).

    `scores` (n,) are those whose mean is a metric. What each row moves a metric by is summed by
    cluster; the calibration errors have sums by bin, too.
    """
    weight, confidence = rows.filled_weight(), rows.confidence
    levels = LevelSums.from_rows(rows).levels
    right_rows = rows.correct.astype(np.float64)
    means: dict[str, FloatArray] = {"accuracy": right_rows, "mean_confidence": confidence}
    found = {}
    for name, values in (means | dict(scores)).items():
        middle = float(weight @ values) / levels.total
        found[name] = _effect(weight * (values - middle), codes) if math.isfinite(middle) else 1.0
    gap = weight * (rows.correct - confidence)
    cells = codes * n_bins + bin_index(confidence, n_bins)
    found["ece"] = found["ece_mass"] = max(_effect(gap, codes), _effect(gap, codes, cells))
    n_right, n_wrong = float(levels.correct.sum()), float(levels.errors.sum())
    if min(n_right, n_wrong) > 0.0:
        below, above, area = levels.roc_places
        place = np.minimum(np.searchsorted(levels.confidence, confidence), levels.weight.size - 1)
        pair = (below[place] - area) / n_right, (above[place] - area) / n_wrong
        found["auroc"] = _effect(weight * np.where(rows.correct, *pair), codes)
    return found


def _effect(moved: FloatArray, codes: IntArray, cells: IntArray | None = None) -> float:
    """The variance of a sum of clusters (n,), or of cells of them, to that of independent rows.

    Without a row that differs nothing is known of their correlation: one more, which its whole
    cluster shares, is counted. Few clusters determine a variance badly: by Student's quantile.
    """
    from scipy.special import stdtrit

    count = np.bincount(codes)
    n_clusters = int(np.count_nonzero(count))
    size = float(count @ count) / codes.size
    place = codes if cells is None else np.unique(cells, return_inverse=True)[1].ravel()
    together = np.bincount(place, moved)
    alone, one = float(moved @ moved), float((moved**2).max())
    if alone <= 0.0:
        alone, one = 0.0, 1.0
    whole = float(together @ together) * n_clusters / max(n_clusters - 1, 1)
    wider = (float(stdtrit(max(n_clusters - 1, 1), 0.975)) / 1.96) ** 2
    return max((whole + size * one) / (alone + one), 1.0) * wider
