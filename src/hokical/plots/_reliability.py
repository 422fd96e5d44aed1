"""Reliability diagram: how often labels were right, by confidence; and histogram of confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_edges, bin_index, check_count
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import clopper_pearson
from hokical.metrics._calibration import gap_norm
from hokical.metrics._chunked import read_levels
from hokical.metrics._levels import Bins, Levels
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new, ink


@dataclass(frozen=True, eq=False)
class Reliability:
    """The occupied bins of a reliability diagram, (bins,) each, in order of confidence.

    `low` and `high` are a bin's ends (of equal-mass bins, the lowest and highest confidence
    inside), `weight` and `correct` the weight of its examples and of the correct ones, `count` the
    weight in whole examples; `accuracy_low` and `accuracy_high` are Clopper and Pearson's interval,
    one bin at a time.
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

    @classmethod
    def from_levels(cls, levels: Levels, n_bins: int, bins: Bins, delta: float = 0.05) -> Self:
        """The bins of a table of levels."""
        n_bins = check_count(n_bins)
        found, starts = levels.by_bin(n_bins, bins), levels.bin_starts(n_bins, bins)
        gap, weight, hits = found
        worth = weight * levels.rows_per_weight
        accuracy = hits / weight
        ends = clopper_pearson(np.minimum(accuracy * worth, worth), worth, delta=delta).T
        low, high = _bin_ends(levels, starts, n_bins, bins)
        columns = (low, high, np.rint(weight).astype(np.int64), weight, hits)
        shares = ((hits - gap) / weight, accuracy, ends[0], ends[1])
        return cls(*columns, *shares, gap_norm(found), n_bins, bins, float(delta))

    @property
    def gap(self) -> FloatArray:
        """accuracy - confidence: below 0 in over-confident bins."""
        return self.accuracy - self.confidence

    def draw(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Bars of accuracy, the gap to the confidence, bands, and a strip of counts below."""
        ax = axes_or_new(ax)
        shape: dict[str, Any] = {"width": self.high - self.low, "align": "edge"}
        gap: dict[str, Any] = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////"}
        bars = {"color": BLUE, "edgecolor": ax.get_facecolor(), "label": "accuracy"} | style
        ax.bar(self.low, self.accuracy, **bars, **shape)
        gap |= {"bottom": self.accuracy, "label": "gap to the confidence"}
        ax.bar(self.low, -self.gap, **gap, **shape)
        ends = (self.accuracy - self.accuracy_low, self.accuracy_high - self.accuracy)
        band: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 1, "capsize": 2}
        band |= {"yerr": np.maximum(ends, 0.0), "label": f"{1.0 - self.delta:.0%} interval"}
        ax.errorbar(self.confidence, self.accuracy, color=ink(ax), **band)
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated")
        self._draw_counts(ax)
        ax.set(xlim=(0, 1), ylim=(-0.2, 1.02), yticks=np.arange(6) / 5)
        ax.set(xlabel="confidence", ylabel="accuracy")
        ax.set_title(f"ECE {self.ece:.4f} ({self.n_bins} bins of equal {self.scheme})")
        ax.legend(loc="upper left", edgecolor="none")  # bands may be behind it
        return ax

    def _draw_counts(self, ax: Axes) -> None:
        """The counts, in a strip below the diagram, the largest at full height."""
        height = 0.11 * self.weight / self.weight.max()
        shape: dict[str, Any] = {"width": self.high - self.low, "align": "edge", "bottom": -0.19}
        ax.bar(self.low, height, color=GREY, edgecolor=ax.get_facecolor(), **shape)
        ax.axhline(0.0, color=ink(ax), linewidth=0.8)
        ax.text(0.01, -0.04, f"examples per bin, most {self.count.max()}", fontsize=8, va="center")


def reliability(
    proba: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    delta: float = 0.05,
    sample_weight: Any = None,
) -> Reliability:
    """Accuracy per confidence bin, with counts and intervals; arguments as in `ece`.

    An interval misses its bin's accuracy with probability `delta` at most; with weights it is that
    of as many rows as they are worth, which is approximate.

    >>> data = reliability([0.92, 0.95, 0.97, 0.55], [True, True, False, True], n_bins=10)
    >>> data.count.tolist(), data.accuracy.round(3).tolist()
    ([1, 3], [1.0, 0.667])
    """
    levels = read_levels(proba, labels, sample_weight)
    return Reliability.from_levels(levels, n_bins, bins, delta)


def draw_reliability(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    delta: float = 0.05,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Reliability diagram; arguments as in `reliability`, `style` is that of matplotlib's bars."""
    options: dict[str, Any] = {"n_bins": n_bins, "bins": bins, "delta": delta}
    return reliability(proba, labels, sample_weight=sample_weight, **options).draw(ax, **style)


def _bin_ends(
    levels: Levels, starts: IntArray, n_bins: int, bins: Bins
) -> tuple[FloatArray, FloatArray]:
    """Ends of each occupied bin; of equal mass, the lowest and highest confidence inside."""
    confidence = levels.confidence
    if bins == "width":
        edges, place = bin_edges(n_bins), bin_index(confidence[starts], n_bins)
        return edges[place], edges[place + 1]
    return confidence[starts], confidence[np.append(starts[1:], confidence.size) - 1]


def draw_histogram(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    n_bins: int = 20,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Histogram of confidence, right and wrong examples stacked; arguments as in `ece`.

    Lines mark the mean confidence and the accuracy. `style` is that of matplotlib's bars.
    """
    ax, levels = axes_or_new(ax), read_levels(proba, labels, sample_weight)
    edges, place = bin_edges(check_count(n_bins)), bin_index(levels.confidence, n_bins)
    right, wrong = (np.bincount(place, w, n_bins) for w in (levels.correct, levels.errors))
    shape: dict[str, Any] = {"width": np.diff(edges), "align": "edge"}
    shape |= {"edgecolor": ax.get_facecolor()} | style
    ax.bar(edges[:-1], right, **({"color": BLUE, "label": "right"} | shape))
    stacked = {"color": ORANGE, "label": "wrong", "bottom": right, "hatch": "////"}
    ax.bar(edges[:-1], wrong, **(stacked | shape))
    mean = float(levels.weight @ levels.confidence) / levels.total
    accuracy = float(levels.correct.sum()) / levels.total
    ax.axvline(mean, color=ink(ax), label=f"mean confidence {mean:.1%}")
    ax.axvline(accuracy, color=ink(ax), linestyle=":", label=f"accuracy {accuracy:.1%}")
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="examples")
    ax.legend(loc="upper left", frameon=False)
    return ax
