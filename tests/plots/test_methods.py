"""Pictures of several methods."""

from __future__ import annotations

import numpy as np
import pytest

from hokical.plots import draw_histogram, draw_reliability, draw_risk_coverage

Data = tuple[np.ndarray, np.ndarray]


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [1, 12, 40])
@pytest.mark.parametrize("panels", [None, 1, 2])
def test_no_legend_is_cut(n: int, panels: int | None) -> None:
    import matplotlib.pyplot as plt

    names = tuple(
        f"Isotonic regression per class, {k}th variant of it (iso_{k})"
        for k in range(n)
    )
    ax = None if panels is None else plt.subplots(1, panels, squeeze=False)[1][0, 0]
    for name in names:
        ax = draw_risk_coverage([0.9, 0.8, 0.3], [True, False, False], ax, label=name)
    figure = ax.figure
    figure.set_layout_engine(
        "constrained"
    )  # with several panels it is the user's to choose
    figure.canvas.draw()
    box = figure.axes[0].get_legend().get_window_extent()
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1
    plt.close("all")


def test_plots_follow_a_dark_style(answers: Data) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.colors import same_color

    with plt.style.context("dark_background"):
        figure, axes = plt.subplots(1, 2)
        draw_reliability(*answers, axes[0])
        draw_histogram(*answers, axes[1])
    drawn = [line.get_color() for ax in axes.flat for line in ax.lines]
    drawn += [
        edge
        for ax in axes.flat
        for dots in ax.collections
        for edge in dots.get_edgecolor()
    ]
    assert any(same_color(colour, "white") for colour in drawn)
    assert not any(same_color(colour, "black") for colour in drawn)
    plt.close(figure)
