"""Reliability diagram: how often labels were right, by confidence; and histogram of confidence."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.bins import bin_edges
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._binned_sums import BinnedSums, Bins, mass_index
from hokical.metrics._examples import Examples, as_examples
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new, ink


@dataclass(frozen=True, eq=False)
class Reliability:
    """The occupied bins of a reliability diagram, (bins,) each, in order of confidence.

    `low` and `high` are a bin's ends (of equal-mass bins, the lowest and highest confidence
    inside), `weight` and `correct` the weight of its examples and of the correct ones;
    `accuracy_low` and `accuracy_high` are Wilson's interval, one bin at a time.
    """

    low: FloatArray
    high: FloatArray
    count: IntArray
    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray
    accuracy: FloatArray
    accuracy_low: FloatArray
    accuracy_high: FloatArray
    ece: float
    n_bins: int
    scheme: Bins
    delta: float

    @property
    def gap(self) -> FloatArray:
        """accuracy - confidence: below 0 in over-confident bins."""
        return self.accuracy - self.confidence


def reliability(
    confidence: Any,
    correct: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    delta: float = 0.05,
    sample_weight: Any = None,
) -> Reliability:
    """Accuracy per confidence bin, with counts and confidence bands; arguments as in `ece`.

    A band misses its bin's accuracy with probability `delta`. Weights count as examples.

    >>> data = reliability([0.92, 0.95, 0.97, 0.55], [True, True, False, True], n_bins=10)
    >>> data.count.tolist(), data.accuracy.round(3).tolist()
    ([1, 3], [1.0, 0.667])
    """
    z = -NormalDist().inv_cdf(0.5 * check_chance("delta", delta))
    examples = as_examples(confidence, correct, sample_weight)
    sums = BinnedSums.from_rows(examples, n_bins, bins)
    low, high = _bin_ends(examples, sums.n_bins, bins)
    full = sums.count > 0
    weight, hits = sums.weight[full], sums.correct[full]
    means = (sums.mean_confidence[full], sums.accuracy[full], *wilson_interval(hits, weight, z))
    found = (low[full], high[full], sums.count[full], weight, hits, *means)
    return Reliability(*found, sums.ece(), n_bins=sums.n_bins, scheme=bins, delta=float(delta))


def wilson_interval(
    correct: FloatArray, weight: FloatArray, z: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of Wilson's score interval for the share correct / weight; weights above 0."""
    share = correct / weight
    centre = share + z * z / (2.0 * weight)
    half = z * np.sqrt(share * (1.0 - share) / weight + (0.5 * z / weight) ** 2)
    scale = 1.0 + z * z / weight
    return np.maximum((centre - half) / scale, 0.0), np.minimum((centre + half) / scale, 1.0)


def draw_reliability(data: Reliability, ax: Axes | None = None) -> Axes:
    """Bars of accuracy, the gap to the confidence, bands, and a strip of counts below."""
    ax = axes_or_new(ax)
    shape: dict[str, Any] = {"width": data.high - data.low, "align": "edge"}
    gap: dict[str, Any] = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////"}
    ax.bar(
        data.low, data.accuracy, color=BLUE, edgecolor=ax.get_facecolor(), label="right", **shape
    )
    gap |= {"bottom": data.accuracy, "label": "gap to what it says"}
    ax.bar(data.low, -data.gap, **gap, **shape)
    ends = (data.accuracy - data.accuracy_low, data.accuracy_high - data.accuracy)
    band: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 1, "capsize": 2}
    band |= {"yerr": np.maximum(ends, 0.0), "label": f"{1.0 - data.delta:.0%} band"}
    ax.errorbar(data.confidence, data.accuracy, color=ink(ax), **band)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="honest")
    _draw_counts(data, ax)
    ax.set(xlim=(0, 1), ylim=(-0.2, 1.02), yticks=np.arange(6) / 5)
    ax.set(xlabel="how sure it says it is", ylabel="how often it is right")
    ax.set_title(f"ECE {data.ece:.4f} ({data.n_bins} bins of equal {data.scheme})")
    ax.legend(loc="upper left", edgecolor="none")  # bands may be behind it
    return ax


def _draw_counts(data: Reliability, ax: Axes) -> None:
    """The counts, in a strip below the diagram, the largest at full height."""
    height = 0.11 * data.count / data.count.max()
    shape: dict[str, Any] = {"width": data.high - data.low, "align": "edge", "bottom": -0.19}
    ax.bar(data.low, height, color=GREY, edgecolor=ax.get_facecolor(), **shape)
    ax.axhline(0.0, color=ink(ax), linewidth=0.8)
    ax.text(0.01, -0.04, f"examples per bin, most {data.count.max()}", fontsize=8, va="center")


def _bin_ends(examples: Examples, n_bins: int, bins: Bins) -> tuple[FloatArray, FloatArray]:
    """Ends of each bin; of equal-mass bins, the lowest and highest confidence inside."""
    if bins == "width":
        edges = bin_edges(n_bins)
        return edges[:-1], edges[1:]
    index = mass_index(examples.confidence, n_bins, examples.weight)
    low, high = np.full(n_bins, np.inf), np.full(n_bins, -np.inf)
    np.minimum.at(low, index, examples.confidence)
    np.maximum.at(high, index, examples.confidence)
    return low, high


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
