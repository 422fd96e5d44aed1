"""The paper's figures from our results, and a few more; only drawing imports
matplotlib.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hokical_paper.figures.illustrations import (
    draw_label_switches,
    draw_process,
    illustrated,
)
from hokical_paper.figures.panels import add_legend, legend_below, make_panels
from hokical_paper.figures.styles import GREY, style_of
from hokical_paper.figures.theorems import draw_bounds, draw_sufficiency
from hokical_paper.figures.variances import draw_panel
from hokical_paper.published import BIN_COUNTS, number_for
from hokical_paper.running.methods import (
    AUTO,
    EXACT,
    SAMPLED,
    published_column,
    title_of,
)
from hokical_paper.running.results import Result, Results
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.method_columns import heads_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 130
_PALE = "#a9adb5"
_UNCALIBRATED = "uncalibrated"
_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "linestyle": "",
    "color": "white",
    "markeredgecolor": "black",
    "markersize": 4.5,
}


def require_matplotlib() -> None:
    """Fail before anything is computed if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ImportError(
            "figures need matplotlib, which is missing: pip install './paper[plot]' in "
            "a clone. `hokical paper tables` works without it."
        )


def figure_builders(results: Results) -> dict[str, tuple[str, Callable[[], Figure]]]:
    """The caption of each figure and the function that draws it, by name."""
    builders: dict[str, tuple[str, Callable[[], Figure]]] = {
        "ece_bars": (
            "ECE with 15 bins of equal width: ours as bars with 95 % intervals, the "
            "paper's as diamonds. Bars that exceed their panel are labelled with their "
            "value; diamonds that do are not shown.",
            lambda: draw_bars(results),
        ),
        "ece_bins": (
            "Mean ECE over the networks of a data set all of whose logits are known, "
            "by the number of bins of equal width.",
            lambda: draw_bin_counts(results),
        ),
    }
    drawn = illustrated(results.suite)
    if drawn is not None:
        builders["figure_1"] = (
            "Six draws of the same noise on the logits of two right examples of one "
            "class: all keep the label of the first, half switch that of the second "
            "(the paper's Figure 1).",
            lambda: draw_label_switches(drawn),
        )
        builders["figure_2"] = (
            f"From label switches to confidence, {drawn.title} on "
            f"{drawn.dataset_title} (the paper's Figure 2): the labels of one example "
            "under noise, the stability of all validation examples, what Hoki makes "
            "of it, and the test examples before and after.",
            lambda: draw_process(drawn),
        )
    theory: dict[str, tuple[str, Callable[[], Figure]]] = {
        "theorem_1": (
            "Both sides of Theorem 1 per bin: the mean confidence, and the accuracy "
            "that label switches imply. On the diagonal a bin is calibrated. Area: "
            "share of the examples.",
            lambda: draw_sufficiency(results),
        ),
        "theorem_2": (
            "Bounds on the calibration error (Theorem 2 and its corrections, 95 %): "
            "means over simulated test sets, and for exact Hoki against the error on "
            "held-out examples.",
            lambda: draw_bounds(results),
        ),
    }
    if any("sufficiency" in result.facts for result in results.by_cell.values()):
        builders |= theory
    for title, pairs in results.suite.datasets.items():
        key = pairs[0].dataset
        builders[f"variance_{key}"] = (
            f"{title}: ECE (log scale) against the variance of the confidences. Lower "
            "is better calibrated, further right is more informative. Arrows mark "
            "methods outside a panel.",
            lambda pairs=pairs: draw_variances(results, pairs),  # type: ignore[misc]
        )
        builders[f"reliability_{key}"] = (
            f"{title}: reliability before calibration and after Hoki (exact), 15 bins.",
            lambda pairs=pairs: draw_reliabilities(results, pairs),  # type: ignore[misc]
        )
    return builders


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG file with a palette, a third of the size; the figure is
    closed.
    """
    import matplotlib.pyplot as plt
    from PIL import Image  # comes with matplotlib

    drawn = io.BytesIO()
    small = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    plt.close(figure)
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def draw_variances(results: Results, pairs: list[Pair]) -> Figure:
    """One panel per network, one marker per method, one legend."""
    figure, panels = make_panels(len(pairs), columns=3, width=3.9, height=3.4)
    for pair, ax in zip(pairs, panels, strict=False):
        draw_panel(results, pair, ax)
        _use_plain_ticks(ax)
    add_legend(figure, panels, len(pairs))
    return figure


def draw_reliabilities(results: Results, pairs: list[Pair]) -> Figure:
    """One column per network: uncalibrated above, calibrated below."""
    import matplotlib.pyplot as plt

    n = len(pairs)
    handles = None
    figure, grid = plt.subplots(
        2, n, figsize=(max(3.4 * n, 4.4), 7.4), layout="constrained", squeeze=False
    )
    for column, pair in enumerate(pairs):
        for row, method in enumerate((_UNCALIBRATED, EXACT)):
            ax = grid[row, column]
            result = results.get(pair, method)
            if result is None:
                ax.set_axis_off()
                continue
            result.diagram.draw(ax)
            ax.set_title(
                f"{heads_of(pair)[1]}, {title_of(method)}\nECE "
                f"{result.score('ece'):.4f}"
            )
            handles = ax.get_legend_handles_labels()
            _remove_legend(ax)
            ax.set(
                xlabel=ax.get_xlabel() if row else "",
                ylabel="" if column else ax.get_ylabel(),
            )
    if handles is not None:
        legend_below(figure, *handles)
    return figure


def draw_bars(results: Results) -> Figure:
    """One panel per pair with a bar per method."""
    pairs = results.suite.pairs
    figure, panels = make_panels(len(pairs), columns=4, width=3.3, height=3.1)
    positions = np.arange(len(results.methods))
    for at, (pair, ax) in enumerate(zip(pairs, panels, strict=False)):
        right = _right_end(results, pair)
        for position, method in zip(positions, results.methods, strict=True):
            _draw_bar(ax, int(position), results.get(pair, method), end=right)
            _draw_published(ax, int(position), _published_ece(pair, method))
        ax.set(title=", ".join(heads_of(pair)), xlim=(0, right), xlabel="ECE")
        names = [title_of(method) for method in results.methods]
        ax.set_yticks(
            positions, names if at % 4 == 0 else [""] * len(names), fontsize=8
        )
        ax.invert_yaxis()
        ax.tick_params(axis="x", labelsize=8)
        ax.locator_params(axis="x", nbins=5)
    _add_bar_legend(figure)
    return figure


def draw_bin_counts(results: Results) -> Figure:
    """One panel per data set with a line per method.

    A method that needs all logits has no result where only the best classes are known,
    so means are over the other networks: those of all methods are then of the same.
    """
    datasets = results.suite.datasets
    figure, panels = make_panels(len(datasets), columns=3, width=3.9)
    for (dataset, in_dataset), ax in zip(datasets.items(), panels, strict=False):
        pairs = [pair for pair in in_dataset if pair.top_k is None] or in_dataset
        few = len(pairs) < len(in_dataset)
        title = (
            f"{dataset} ({len(pairs)} of {len(in_dataset)} networks)"
            if few
            else dataset
        )
        for method in results.methods:
            measured = [
                result for pair in pairs if (result := results.get(pair, method))
            ]
            means = [
                float(np.mean([result.ece_by_bins[bins] for result in measured]))
                if measured
                else np.nan
                for bins in BIN_COUNTS
            ]
            ax.plot(BIN_COUNTS, means, label=title_of(method), **style_of(method).line)
        ax.set(
            xscale="log",
            yscale="log",
            title=title,
            xlabel="number of bins",
            ylabel="ECE",
        )
        ax.set_xticks(BIN_COUNTS, [str(bins) for bins in BIN_COUNTS])
        ax.minorticks_off()
        _use_plain_ticks(ax)
    add_legend(figure, panels, len(datasets))
    return figure


def _draw_bar(ax: Axes, position: int, result: Result | None, *, end: float) -> None:
    """A bar with its interval; a bar that exceeds the panel is labelled with its
    value.
    """
    right: dict[str, Any] = {"fontsize": 7, "va": "center", "ha": "right"}
    if result is None:
        ax.text(0.98 * end, position, "not run", color=GREY, **right)
        return
    error = result.scores["ece"]
    ax.barh(position, error.value, color=_bar_colour(result.method), height=0.7)
    if error.value > end:
        ink = "white" if style_of(result.method).is_special else "black"
        ax.text(
            0.98 * end,
            position,
            f"{error.value:.3f}",
            color=ink,
            weight="bold",
            **right,
        )
    elif np.isfinite([error.low, error.high]).all():
        ax.hlines(position, error.low, error.high, color="black", linewidth=1)


def _bar_colour(method: str) -> str:
    """Bars are labelled with their method, so most can share a colour."""
    style = style_of(method)
    return style.colour if style.is_special else _PALE


def _published_ece(pair: Pair, method: str) -> float | None:
    """The paper's ECE, or None; its Hoki is the sampled one."""
    column = published_column(method)
    return None if column is None else number_for(pair, "ece_15_bins", column)


def _draw_published(ax: Axes, position: int, value: float | None) -> None:
    if value is not None:
        ax.plot([value], [position], **_DIAMOND)


def _add_bar_legend(figure: Figure) -> None:
    """One legend for the bars, lines and diamonds of all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        *(
            Patch(color=_bar_colour(name), label=f"ours: {title_of(name)}")
            for name in (SAMPLED, EXACT, "adaptive", AUTO)
        ),
        Patch(color=_PALE, label="ours: other methods"),
        Line2D([], [], color="black", linewidth=1, label="95 % interval"),
        Line2D([], [], label="paper", **_DIAMOND),
    ]
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])


def _right_end(results: Results, pair: Pair) -> float:
    """The end of the axis: enough for the calibrated methods; the uncalibrated may
    exceed it.
    """
    calibrated = [method for method in results.methods if method != _UNCALIBRATED]
    values = [r.score("ece") for r in results.of_pair(pair) if r.method in calibrated]
    published = [
        value
        for name in calibrated
        if (value := _published_ece(pair, name)) is not None
    ]
    if not values:
        return 1.0
    return float(min(2.5 * np.median(values), 1.1 * max(values + published)))


def _use_plain_ticks(ax: Axes) -> None:
    """Ticks at 1, 2 and 5, written as 0.005 instead of 5 x 10^-3, on a log scale."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _remove_legend(ax: Axes) -> None:
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
