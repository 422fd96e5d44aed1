"""The metrics of `summary` for a batch of resamples, (batch,) each.

Sums here are plain float64; the tests hold them to the public functions under the same weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_index
from hokical.metrics.binned import debiased_square, gap_norm
from hokical.metrics.checks import Predictions
from hokical.metrics.ks import ks_distance
from hokical.metrics.proper import bin_refinement, top_losses
from hokical.metrics.ranked import Ranked, row_dot, run_starts
from hokical.metrics.ranking import area_under_risk, area_under_roc, risk_at
from hokical.metrics.smooth import grid_masses, own_bandwidth

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def binned_statistics(ranked: Ranked, n_bins: int) -> dict[str, FloatArray]:
    """What equal-width bins give: sums over neighbours, since the groups are sorted."""
    starts = run_starts(bin_index(ranked.confidence, n_bins))
    gap = np.add.reduceat(ranked.gap, starts, axis=-1)
    weight = np.add.reduceat(ranked.weight, starts, axis=-1)
    correct = weight - np.add.reduceat(ranked.errors, starts, axis=-1)
    return {
        "ece": gap_norm(gap, weight, 1.0),
        "mce": gap_norm(gap, weight, math.inf),
        "debiased_ece": np.sqrt(np.maximum(debiased_square(gap, weight, correct), 0.0)),
        "refinement": bin_refinement(weight, correct),
    }


def mass_statistics(ranked: Ranked, n_bins: int) -> dict[str, FloatArray]:
    """ECE over equal-mass bins of each resample: differences of a running sum at the cuts."""
    above = n_bins * (2.0 * ranked.kept - ranked.weight)  # twice the weight above the middles
    errors = np.empty(above.shape[0])
    rows = zip(ranked.gap_upto, above, ranked.total, strict=True)
    for row, (sums, twice, whole) in enumerate(rows):
        # A group is below cut j where 2 n_bins whole - twice < 2 whole j, as in `mass_bins`.
        wanted = 2.0 * whole * np.arange(n_bins - 1, 0, -1)
        cuts = above.shape[1] - np.searchsorted(twice[::-1], wanted, side="right")
        at_cuts = np.where(cuts > 0, sums[cuts - 1], 0.0)
        errors[row] = np.abs(np.diff(at_cuts, prepend=0.0, append=sums[-1])).sum() / whole
    return {"ece_mass": errors}


def mean_statistics(ranked: Ranked, clip: float) -> dict[str, FloatArray]:
    """What is linear in the examples, and the variance of the confidence."""
    confidence, total = ranked.confidence, ranked.total
    centre = confidence.mean()  # a variance of small numbers loses no digits
    mean = row_dot(ranked.weight, confidence - centre) / total
    spread = row_dot(ranked.weight, (confidence - centre) ** 2) / total
    hit, miss = (_finite_losses(confidence, outcome, clip) for outcome in (True, False))
    squares = row_dot(ranked.weight, confidence**2)
    squares += row_dot(ranked.correct, 1.0 - 2.0 * confidence)
    losses = row_dot(ranked.correct, hit) + row_dot(ranked.errors, miss)
    return {
        "accuracy": 1.0 - ranked.errors.sum(axis=-1) / total,
        "mean_confidence": centre + mean,
        "sharpness": spread - mean**2,
        "brier": squares / total,
        "log_loss": losses / total,
    }


def ranking_statistics(
    ranked: Ranked, coverage: float, harmonic: FloatArray | None
) -> dict[str, FloatArray]:
    """What depends on the order of the confidences alone, and the KS error."""
    return {
        "ks_error": ks_distance(ranked),
        "auroc": area_under_roc(ranked),
        "aurc": area_under_risk(ranked, harmonic),
        "selective_risk": risk_at(ranked, coverage),
    }


def smooth_statistics(ranked: Ranked, cells: int) -> dict[str, FloatArray]:
    """Smooth ECE on a grid just fine enough for an interval."""
    return {"smooth_ece": own_bandwidth(grid_masses(ranked, cells), 1e-6)}


def class_cells(data: Predictions, n_bins: int) -> csr_array:
    """Each row's residuals by (class, bin) cell, (n, classes * n_bins) sparse."""
    from scipy.sparse import csr_array

    proba = data.proba.astype(np.float64)
    cell = bin_index(proba.ravel(), n_bins).reshape(proba.shape)
    cell += n_bins * np.arange(data.n_classes)
    residual = -proba
    residual[np.arange(data.n_rows), data.labels] += 1.0
    ends = np.arange(data.n_rows + 1) * data.n_classes
    shape = (data.n_rows, data.n_classes * n_bins)
    return csr_array((residual.ravel(), cell.ravel(), ends), shape=shape)


def classwise_statistics(
    weight: FloatArray, cells: csr_array, n_classes: int
) -> dict[str, FloatArray]:
    """Classwise ECE of each resample, from the weights of its rows (batch, n)."""
    gaps = np.abs(cells.T @ weight.T).sum(axis=0)
    return {"classwise_ece": gaps / (n_classes * weight.sum(axis=-1))}


def _finite_losses(confidence: FloatArray, correct: bool, clip: float) -> FloatArray:
    # A chance of 0 given to what never happened costs nothing, but 0 * inf would be NaN. Where it
    # did happen the loss is inf, and `summary` says so without a bootstrap.
    losses = top_losses(confidence, np.full(confidence.shape, correct), clip)
    return np.where(np.isinf(losses), 0.0, losses)
