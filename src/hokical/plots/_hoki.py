"""What Hoki learned: sigma_hat by the width of the noise, and confidence by label stability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.bins import bin_edges, bin_index, sum_by
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.noise_selection import NoiseSelection, Trial
from hokical.calibrators._hoki import Hoki
from hokical.plots._axes import BLUE, GREY, MARKERS, ORANGE, SERIES, Axes, axes_or_new, ink
from hokical.stability._stability_table import stability_levels

_GRID_POINTS = 1001


@dataclass(frozen=True, eq=False)
class NoiseWidths:
    """One family's trials by rising width, (trials,) each.

    Of trials with the same width and number of examples, which differ only in the mean of the noise
    or in their draws, the best is kept.
    """

    family: str
    width: FloatArray
    sigma_hat: FloatArray
    n_examples: IntArray
    is_winner: BoolArray


def noise_widths(selection: NoiseSelection) -> tuple[NoiseWidths, ...]:
    """The trials of `select_noise`, one entry per family in the order tried.

    >>> from hokical.stability._noise import Gaussian
    >>> trials = tuple(Trial(Gaussian(w), 0.9, 0.5, s, 100) for w, s in ((2, 0.2), (1, 0.1)))
    >>> data, = noise_widths(NoiseSelection(trials[0], trials))
    >>> data.width.tolist(), data.is_winner.tolist()
    ([1.0, 2.0], [False, True])
    """
    best: dict[tuple[str, float, int], Trial] = {}
    for trial in selection.trials:
        key = (trial.noise.family, trial.noise.width, trial.n_examples)
        if key not in best or trial.sigma_hat > best[key].sigma_hat:
            best[key] = trial
    found = []
    for family in dict.fromkeys(family for family, _, _ in best):
        trials = [best[key] for key in sorted(best) if key[0] == family]
        numbers = [(trial.noise.width, trial.sigma_hat, trial.n_examples) for trial in trials]
        width, sigma_hat, n_examples = np.array(numbers).T
        is_winner = np.array([trial == selection.best for trial in trials])
        found.append(NoiseWidths(family, width, sigma_hat, n_examples.astype(int), is_winner))
    return tuple(found)


def draw_noise_widths(data: tuple[NoiseWidths, ...], ax: Axes | None = None) -> Axes:
    """A marker per trial, hollow if only some examples were used, and a ring at the winner."""
    ax = axes_or_new(ax)
    most = max(int(family.n_examples.max()) for family in data)
    for place, family in enumerate(data):
        color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        for full in (False, True):
            of = (family.n_examples == most) == full
            if not of.any():
                continue
            (line,) = ax.plot(family.width[of], family.sigma_hat[of], color=color, linewidth=0.8)
            line.set(marker=marker, markerfacecolor=color if full else "none")
            line.set_label(f"{family.family}, {'all' if full else 'some'} examples")
        best = (family.width[family.is_winner], family.sigma_hat[family.is_winner])
        ax.scatter(*best, marker="o", s=160, facecolors="none", edgecolors=ink(ax))
    ax.set(xscale="log", xlabel="width of the noise", ylabel=r"spread of confidence $\hat\sigma$")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return ax


@dataclass(frozen=True, eq=False)
class StabilityCurve:
    """The fitted map, and the validation examples it was fitted on, by confidence bin.

    `confidence` (curves, grid) at each `stability` (grid,); a curve for each confidence in `start`:
    one, unless init="confidence". Means of the bins between `edges` (J + 1,) are NaN if empty.
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
    hoki.check_fitted()
    grid = np.arange(_GRID_POINTS) / (_GRID_POINTS - 1)
    level = stability_levels(grid, hoki.rule_.levels)
    edges, start = bin_edges(hoki.n_bins_), np.array([hoki.accuracy_])
    if hoki.init_ == "confidence":  # the centres of the bins that examples started in
        start = (0.5 * (edges[:-1] + edges[1:]))[hoki.occupied_[0]]
    curves = [hoki.rule_.confidence_at(level, np.full(grid.shape, value)) for value in start]
    return StabilityCurve(grid, start, np.array(curves), edges, *_bin_means(hoki))


def draw_stability_curve(data: StabilityCurve, ax: Axes | None = None) -> Axes:
    """The curve, bin edges as thin lines, and each bin's accuracy at its mean stability."""
    ax = axes_or_new(ax)
    ax.hlines(data.edges, 0, 1, color=GREY, linewidth=0.4, alpha=0.6)
    for place, curve in enumerate(data.confidence):
        # The map jumps where examples change their bin: draw no line across.
        jumps = np.abs(np.diff(curve, append=curve[-1])) > 0.02
        label = "fitted map" if place == 0 else None
        ax.plot(data.stability, np.where(jumps, np.nan, curve), color=BLUE, label=label)
    full = data.bin_weight > 0
    size = 20 + 180 * np.sqrt(data.bin_weight[full] / data.bin_weight.max())
    points = ax.scatter(data.bin_stability[full], data.bin_accuracy[full], s=size, zorder=3)
    points.set(facecolor=ORANGE, edgecolor=ink(ax), alpha=0.8)
    points.set_label("accuracy of a bin (larger: more examples)")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set(xlabel=r"label stability $\gamma$", ylabel="confidence, and its bins")
    ax.legend(loc="lower right", edgecolor="none")
    return ax


def _bin_means(hoki: Hoki) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean stability, confidence and accuracy, and weight, of each bin's validation examples."""
    cells, n_bins = hoki.table_.occupied_cells(), hoki.n_bins_
    stability = cells.level / hoki.table_.levels
    confidence = hoki.rule_.confidence_at(cells.level, (cells.start + 0.5) / n_bins)
    bins = bin_index(confidence, n_bins)
    weight = sum_by(bins, cells.weight, n_bins)
    sums = (cells.weight * stability, cells.weight * confidence, cells.correct)
    parts = (sum_by(bins, np.asarray(part, np.float64), n_bins) for part in sums)
    with np.errstate(invalid="ignore"):
        gamma, said, right = (part / weight for part in parts)
    return gamma, said, right, weight
