"""Calibration error against the variance of confidence, over methods: the paper's figure.

A method that says the accuracy for every example has no calibration error and no information. The
good corner is at the bottom right: a small error, and confidences that differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hokical.core.types import FloatArray
from hokical.metrics.summaries import Summary
from hokical.plots.axes import MARKERS, SERIES, Axes, axes_or_new, legend_beside


@dataclass(frozen=True, eq=False)
class ErrorAgainstVariance:
    """One point per method, (methods,) each; interval ends are NaN if there are none."""

    names: tuple[str, ...]
    ece: FloatArray
    ece_low: FloatArray
    ece_high: FloatArray
    variance: FloatArray


def error_against_variance(summaries: Mapping[str, Summary]) -> ErrorAgainstVariance:
    """ECE and variance of confidence from a summary per method.

    >>> from hokical.metrics import summary
    >>> one = summary([0.9, 0.7], [True, False], n_resamples=0)
    >>> data = error_against_variance({"mine": one})
    >>> data.names, data.ece.round(3).tolist(), data.variance.round(3).tolist()
    (('mine',), [0.4], [0.01])
    """
    if not summaries:
        raise ValueError("`summaries` must hold at least one method; got none.")
    errors = [found["ece"] for found in summaries.values()]
    return ErrorAgainstVariance(
        tuple(summaries),
        ece=np.array([error.value for error in errors]),
        ece_low=np.array([error.low for error in errors]),
        ece_high=np.array([error.high for error in errors]),
        variance=np.array([found["sharpness"].value for found in summaries.values()]),
    )


def draw_variance(data: ErrorAgainstVariance, ax: Axes | None = None) -> Axes:
    """A labelled marker with its interval per method, the error on a log scale."""
    ax = axes_or_new(ax)
    positive = data.ece[data.ece > 0.0]
    floor = 0.25 * float(positive.min()) if positive.size else 1e-6  # where 0 is shown
    for place, name in enumerate(data.names):
        ends = np.array([data.ece_low[place], data.ece_high[place]])
        color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        x, y = data.variance[place], max(data.ece[place], floor)
        ax.plot([x], [y], linestyle="none", label=name, color=color, marker=marker)
        if np.isfinite(ends).all():
            ax.vlines(x, *np.maximum(ends, floor), color=color, linewidth=1, alpha=0.6)
    ax.set(yscale="log", xlabel="variance of confidence (more is more informative)")
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylabel("ECE (less is better)")
    legend_beside(ax)  # points often overlap, so names are not in the plot
    return ax
