"""The metrics of `summary` for a batch of resamples, (batch,) each.

Sums here are plain float64; the tests compare them with the public functions under the same
weights.
"""

import math
from dataclasses import dataclass

import numpy as np

from hokical.core.bins import bin_index, sum_by
from hokical.core.types import FloatArray, IntArray
from hokical.metrics import ranking
from hokical.metrics.binned_sums import debiased_root, gap_norm
from hokical.metrics.checks import Predictions
from hokical.metrics.proper import bin_refinement
from hokical.metrics.ranking import RankedExamples
from hokical.metrics.smooth import grid_masses, ks_distance, own_bandwidth
from hokical.metrics.sums import top_losses


def top_statistics(
    ranked: RankedExamples, *, n_bins: int, coverage: float, clip: float, cells: int
) -> dict[str, FloatArray]:
    """All top-label metrics: smooth ECE on a grid of `cells`."""
    return {
        **_mean_statistics(ranked, clip),
        **_binned_statistics(ranked, n_bins),
        "ece_mass": _mass_errors(ranked, n_bins),
        "smooth_ece": own_bandwidth(grid_masses(ranked, cells), 1e-6),
        "ks_error": ks_distance(ranked),
        "auroc": ranking.area_under_roc(ranked),
        "aurc": ranking.area_under_risk(ranked),
        "selective_risk": ranking.risk_at(ranked, coverage),
    }


@dataclass(frozen=True, eq=False)
class BlockSums:
    """Weighted sums over the blocks that resamples draw.

    `weight` (blocks,), `sums` (blocks,) by metric, and `cells` the residuals by (class, bin) cell,
    (blocks, classes * bins), or None to leave the classwise ECE out.
    """

    weight: FloatArray
    sums: dict[str, FloatArray]
    cells: FloatArray | None
    n_classes: int

    def __call__(self, counts: FloatArray) -> dict[str, FloatArray]:
        """Means of resamples, (batch,) each, from the counts (batch, blocks) of what they drew."""
        total = ranking.row_dot(counts, self.weight)
        finite = {name: sums for name, sums in self.sums.items() if np.isfinite(sums).all()}
        found = {name: ranking.row_dot(counts, sums) / total for name, sums in finite.items()}
        if self.cells is not None:
            gaps = np.abs(counts @ self.cells).sum(axis=-1)
            found["classwise_ece"] = gaps / (self.n_classes * total)
        return found


def class_cells(data: Predictions, blocks: list[IntArray], n_bins: int) -> FloatArray:
    """Weighted residuals by block and (class, bin) cell, (blocks, classes * n_bins)."""
    cells = np.empty((len(blocks), data.n_classes * n_bins))
    weight = data.filled_weight()
    for place, rows in enumerate(blocks):
        proba = data.proba[rows].astype(np.float64)
        cell = n_bins * np.arange(data.n_classes) + bin_index(proba, n_bins)
        proba[np.arange(rows.shape[0]), data.labels[rows]] -= 1.0
        residual = -proba * weight[rows, None]
        cells[place] = sum_by(cell.ravel(), residual.ravel(), cells.shape[1])
    return cells


def _binned_statistics(ranked: RankedExamples, n_bins: int) -> dict[str, FloatArray]:
    """Metrics of equal-width bins: sums over neighbours, since the groups are sorted."""
    starts = ranking.run_starts(bin_index(ranked.confidence, n_bins))
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
    mean = ranking.row_dot(ranked.weight, confidence - centre) / total
    spread = ranking.row_dot(ranked.weight, (confidence - centre) ** 2) / total
    hit, miss = (_finite_losses(confidence, outcome, clip) for outcome in (True, False))
    squares = ranking.row_dot(ranked.weight, confidence**2)
    squares += ranking.row_dot(ranked.correct, 1.0 - 2.0 * confidence)
    losses = ranking.row_dot(ranked.correct, hit) + ranking.row_dot(ranked.errors, miss)
    return {
        "accuracy": 1.0 - ranked.errors.sum(axis=-1) / total,
        "mean_confidence": centre + mean,
        "sharpness": spread - mean**2,
        "brier": squares / total,
        "log_loss": losses / total,
    }


def _finite_losses(confidence: FloatArray, correct: bool, clip: float) -> FloatArray:
    # A probability of 0 for what never happened costs nothing, but 0 * inf would be NaN. If it did
    # happen the loss is inf, and `summary` says so without a bootstrap.
    losses = top_losses(confidence, np.full(confidence.shape, correct), clip)
    return np.where(np.isinf(losses), 0.0, losses)
