"""What a fitted Hoki turns stability into: confidence against gamma, with its bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from hokical.bins import bin_edges, bin_index, sum_by
from hokical.calibrators.hoki import Hoki
from hokical.plots.axes import BLUE, GREY, ORANGE, axes_or_new
from hokical.recursion import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_GRID_POINTS = 1001


@dataclass(frozen=True, eq=False)
class StabilityCurve:
    """The learned map, and the validation examples it was learned from, by confidence bin.

    Attributes
    ----------
    stability : (grid,)
    start : (curves,), the confidence each curve starts from: one, unless init="confidence"
    confidence : (curves, grid)
    edges : (J + 1,), the confidence bins
    bin_stability, bin_confidence, bin_accuracy, bin_weight : (J,), validation means, NaN if empty
    """

    stability: FloatArray
    start: FloatArray
    confidence: FloatArray
    edges: FloatArray
    bin_stability: FloatArray
    bin_confidence: FloatArray
    bin_accuracy: FloatArray
    bin_weight: FloatArray


def stability_curve(hoki: Hoki) -> StabilityCurve:
    """Confidence as a function of stability, of a fitted `Hoki`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=400)
    >>> logits = rng.normal(size=(400, 3)) + 2 * np.eye(3)[labels]
    >>> data = stability_curve(Hoki().fit(logits, labels))
    >>> gap = np.abs(data.bin_confidence - data.bin_accuracy)[data.bin_weight > 0]
    >>> data.confidence.shape, bool(gap.max() < 1e-9)
    ((1, 1001), True)
    """
    check_is_fitted(hoki, "table_")
    schedule = Schedule(hoki.alpha_, hoki.beta_, hoki.ending_, hoki.validation_ece_)
    grid = np.arange(_GRID_POINTS) / (_GRID_POINTS - 1)
    start = _starts(hoki)
    curves = [schedule.replay(grid, np.full(grid.shape, value)) for value in start]
    edges = bin_edges(schedule.n_bins)
    return StabilityCurve(grid, start, np.array(curves), edges, *_bin_means(hoki, schedule))


def draw_stability_curve(data: StabilityCurve, ax: Axes | None = None) -> Axes:
    """The curve, bin edges as thin lines, and each bin's accuracy at its mean stability."""
    ax = axes_or_new(ax)
    ax.hlines(data.edges, 0, 1, color=GREY, linewidth=0.4, alpha=0.6)
    for place, curve in enumerate(data.confidence):
        # Where an example changes its bin the map jumps; a joining line would be a claim.
        jumps = np.abs(np.diff(curve, append=curve[-1])) > 0.02
        label = "learned map" if place == 0 else None
        ax.plot(data.stability, np.where(jumps, np.nan, curve), color=BLUE, label=label)
    full = data.bin_weight > 0
    size = 20 + 180 * np.sqrt(data.bin_weight[full] / data.bin_weight.max())
    dots: dict[str, Any] = {"color": ORANGE, "edgecolors": "black", "alpha": 0.8, "zorder": 3}
    x, y = data.bin_stability[full], data.bin_accuracy[full]
    ax.scatter(x, y, s=size, label="accuracy of a bin (larger: more examples)", **dots)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set(xlabel=r"label stability $\gamma$", ylabel="confidence, and its bins")
    ax.legend(loc="upper left", frameon=True)
    return ax


def _starts(hoki: Hoki) -> FloatArray:
    """Starting confidences: the accuracy, or the centre of each bin that examples started in."""
    if hoki.init == "accuracy":
        return np.array([hoki.accuracy_])
    edges = bin_edges(hoki.n_bins)
    return np.asarray((0.5 * (edges[:-1] + edges[1:]))[hoki.occupied_[0]])


def _bin_means(
    hoki: Hoki, schedule: Schedule
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean stability, confidence and accuracy, and weight, of each bin's validation examples."""
    cells, n_bins = hoki.table_.occupied(), schedule.n_bins
    stability = cells.level / hoki.table_.levels
    centres = (cells.start + 0.5) / n_bins
    start = np.full(stability.shape, hoki.accuracy_) if hoki.init == "accuracy" else centres
    confidence = schedule.replay(stability, start)
    bins = bin_index(confidence, n_bins)
    weight = sum_by(bins, cells.weight, n_bins)
    sums = (cells.weight * stability, cells.weight * confidence, cells.correct)
    parts = (sum_by(bins, np.asarray(part, np.float64), n_bins) for part in sums)
    with np.errstate(invalid="ignore"):
        gamma, said, right = (part / weight for part in parts)
    return gamma, said, right, weight
