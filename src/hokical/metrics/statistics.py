"""The metrics of `summary` for a batch of resamples, (batch,) each.

Sums here are plain float64; the tests compare them with the public functions under the same
weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hokical.core.bins import bin_index
from hokical.core.types import FloatArray, IntArray
from hokical.metrics.binned_sums import debiased_root, gap_norm
from hokical.metrics.checks import Predictions
from hokical.metrics.proper import bin_refinement, full_losses, full_squares, top_losses
from hokical.metrics.ranked import RankedExamples, row_dot, run_starts
from hokical.metrics.ranking import area_under_risk, area_under_roc, risk_at
from hokical.metrics.smooth import grid_masses, ks_distance, own_bandwidth

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def top_statistics(
    ranked: RankedExamples,
    *,
    n_bins: int,
    coverage: float,
    clip: float,
    cells: int,
    harmonic: FloatArray | None,
) -> dict[str, FloatArray]:
    """All top-label metrics: smooth ECE on a grid of `cells`, `harmonic` as in the AURC."""
    return {
        **_mean_statistics(ranked, clip),
        **_binned_statistics(ranked, n_bins),
        "ece_mass": _mass_errors(ranked, n_bins),
        "smooth_ece": own_bandwidth(grid_masses(ranked, cells), 1e-6),
        "ks_error": ks_distance(ranked),
        "auroc": area_under_roc(ranked),
        "aurc": area_under_risk(ranked, harmonic),
        "selective_risk": risk_at(ranked, coverage),
    }


@dataclass(frozen=True, eq=False)
class FullStatistics:
    """What full-vector metrics of resamples need, for the rows in sorted order.

    `squares` and `losses` (n,) are each row's scores; `cells` its residuals by (class, bin) cell,
    (n, classes * bins) sparse, or None to leave the classwise ECE out.
    """

    squares: FloatArray
    losses: FloatArray
    cells: csr_array | None
    n_classes: int

    @classmethod
    def from_rows(
        cls, data: Predictions, order: IntArray, *, n_bins: int, clip: float, classwise: bool
    ) -> FullStatistics:
        rows = Predictions(data.proba[order], data.labels[order], None)
        cells = _class_cells(rows, n_bins) if classwise else None
        return cls(full_squares(rows), full_losses(rows, clip), cells, rows.n_classes)

    def __call__(self, weight: FloatArray) -> dict[str, FloatArray]:
        """Full-vector metrics of resamples, from the weights (batch, n) of their rows."""
        total = weight.sum(axis=-1)
        found = {"brier_full": row_dot(weight, self.squares) / total}
        if np.isfinite(self.losses).all():
            found["log_loss_full"] = row_dot(weight, self.losses) / total
        if self.cells is not None:
            gaps = np.abs(self.cells.T @ weight.T).sum(axis=0)
            found["classwise_ece"] = gaps / (self.n_classes * total)
        return found


def _binned_statistics(ranked: RankedExamples, n_bins: int) -> dict[str, FloatArray]:
    """Metrics of equal-width bins: sums over neighbours, since the groups are sorted."""
    starts = run_starts(bin_index(ranked.confidence, n_bins))
    gap = np.add.reduceat(ranked.gap, starts, axis=-1)
    weight = np.add.reduceat(ranked.weight, starts, axis=-1)
    correct = weight - np.add.reduceat(ranked.errors, starts, axis=-1)
    return {
        "ece": gap_norm(gap, weight, 1.0),
        "mce": gap_norm(gap, weight, math.inf),
        "debiased_ece": debiased_root(gap, weight, correct),
        "refinement": bin_refinement(weight, correct),
    }


def _mass_errors(ranked: RankedExamples, n_bins: int) -> FloatArray:
    """ECE over equal-mass bins of each resample: differences of a running sum at the cuts."""
    # Twice the weight above the middle of each group.
    above = n_bins * (2.0 * ranked.weight_above - ranked.weight)
    errors = np.empty(above.shape[0])
    rows = zip(ranked.gap_upto, above, ranked.total, strict=True)
    for row, (sums, twice, whole) in enumerate(rows):
        # A group is below cut j if 2 n_bins whole - twice < 2 whole j, as in `mass_index`.
        wanted = 2.0 * whole * np.arange(n_bins - 1, 0, -1)
        cuts = above.shape[1] - np.searchsorted(twice[::-1], wanted, side="right")
        at_cuts = np.where(cuts > 0, sums[cuts - 1], 0.0)
        errors[row] = np.abs(np.diff(at_cuts, prepend=0.0, append=sums[-1])).sum() / whole
    return errors


def _mean_statistics(ranked: RankedExamples, clip: float) -> dict[str, FloatArray]:
    """Metrics that are linear in the examples, and the variance of the confidence."""
    confidence, total = ranked.confidence, ranked.total
    centre = confidence.mean()  # keeps the digits of a small variance
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


def _class_cells(rows: Predictions, n_bins: int) -> csr_array:
    """Each row's residuals by (class, bin) cell, (n, classes * n_bins) sparse."""
    from scipy.sparse import csr_array

    proba = rows.proba.astype(np.float64)
    cell = bin_index(proba.ravel(), n_bins).reshape(proba.shape)
    cell += n_bins * np.arange(rows.n_classes)
    residual = -proba
    residual[np.arange(rows.n_rows), rows.labels] += 1.0
    ends = np.arange(rows.n_rows + 1) * rows.n_classes
    shape = (rows.n_rows, rows.n_classes * n_bins)
    return csr_array((residual.ravel(), cell.ravel(), ends), shape=shape)


def _finite_losses(confidence: FloatArray, correct: bool, clip: float) -> FloatArray:
    # A probability of 0 for what never happened costs nothing, but 0 * inf would be NaN. If it did
    # happen the loss is inf, and `summary` says so without a bootstrap.
    losses = top_losses(confidence, np.full(confidence.shape, correct), clip)
    return np.where(np.isinf(losses), 0.0, losses)
