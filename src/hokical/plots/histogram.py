"""Histogram of confidence, with right and wrong examples apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical.core.bins import bin_edges
from hokical.core.types import FloatArray
from hokical.metrics.binned_sums import BinnedSums
from hokical.plots.axes import BLUE, ORANGE, Axes, axes_or_new, ink


@dataclass(frozen=True, eq=False)
class ConfidenceHistogram:
    """`edges` (bins + 1,), `right` and `wrong` (bins,) by weight, and the overall means."""

    edges: FloatArray
    right: FloatArray
    wrong: FloatArray
    mean_confidence: float
    accuracy: float


def confidence_histogram(
    confidence: Any, correct: Any, *, n_bins: int = 20, sample_weight: Any = None
) -> ConfidenceHistogram:
    """Weight of right and wrong examples in bins of equal width; arguments as in `ece`.

    >>> data = confidence_histogram([0.1, 0.9, 0.9], [False, True, False], n_bins=2)
    >>> data.right.tolist(), data.wrong.tolist()
    ([0.0, 1.0], [1.0, 1.0])
    """
    sums = BinnedSums.from_examples(confidence, correct, n_bins=n_bins, sample_weight=sample_weight)
    return ConfidenceHistogram(
        edges=bin_edges(sums.n_bins),
        right=sums.correct,
        wrong=sums.weight - sums.correct,
        mean_confidence=sums.overall_confidence,
        accuracy=sums.overall_accuracy,
    )


def draw_histogram(data: ConfidenceHistogram, ax: Axes | None = None) -> Axes:
    """Stacked bars, and lines at the mean confidence and the accuracy."""
    ax = axes_or_new(ax)
    shape: dict[str, Any] = {"width": np.diff(data.edges), "align": "edge"}
    shape["edgecolor"] = ax.get_facecolor()
    ax.bar(data.edges[:-1], data.right, color=BLUE, label="right", **shape)
    shape |= {"bottom": data.right, "hatch": "////"}
    ax.bar(data.edges[:-1], data.wrong, color=ORANGE, label="wrong", **shape)
    says = f"says {data.mean_confidence:.1%} on average"
    ax.axvline(data.mean_confidence, color=ink(ax), label=says)
    ax.axvline(data.accuracy, color=ink(ax), linestyle=":", label=f"right {data.accuracy:.1%}")
    ax.set(xlim=(0, 1), xlabel="how sure it says it is", ylabel="examples")
    ax.legend(loc="upper left", frameon=False)
    return ax
