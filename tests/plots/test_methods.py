"""Pictures of Hoki and of several methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Hoki, select_noise
from hokical._core.bins import bin_index
from hokical.plots import (
    confidence_histogram,
    draw_histogram,
    draw_noise_widths,
    draw_reliability,
    draw_risk_coverage,
    draw_stability_curve,
    noise_widths,
    reliability,
    risk_coverage,
    stability_curve,
)

Data = tuple[np.ndarray, np.ndarray]


@pytest.mark.filterwarnings("ignore:Hoki did not converge")
@pytest.mark.parametrize("init", ["accuracy", "confidence"])
def test_bins_are_those_of_the_validation_set(overconfident: Data, ax: Any, init: Any) -> None:
    logits, labels = overconfident
    hoki = Hoki(noise=Gaussian(3.0), init=init).fit(logits, labels)
    data = stability_curve(hoki)
    confidence, gamma = hoki.predict_confidence(logits), hoki.stability(logits)
    bins = bin_index(confidence, hoki.n_bins)
    for j in np.unique(bins):
        inside = bins == j
        right = (hoki.predict(logits) == labels)[inside].mean()
        found = (data.bin_stability[j], data.bin_confidence[j], data.bin_accuracy[j])
        assert found == pytest.approx((gamma[inside].mean(), confidence[inside].mean(), right))
        assert data.bin_weight[j] == inside.sum()
    assert data.bin_weight.sum() == len(labels)
    assert draw_stability_curve(data, ax) is ax


def test_the_curve_is_what_the_calibrator_predicts(overconfident: Data) -> None:
    logits, labels = overconfident
    hoki = Hoki(noise=Gaussian(3.0), draws=1000, random_state=0).fit(logits, labels)
    data = stability_curve(hoki)  # its grid is the 1001 counts that 1000 draws can give
    level = np.rint(1000 * hoki.stability(logits)).astype(int)
    assert data.confidence.shape == (1, 1001)
    assert np.array_equal(data.confidence[0][level], hoki.predict_confidence(logits))


def test_noise_widths_hold_every_width_tried(overconfident: Data, ax: Any) -> None:
    selection = select_noise(*overconfident)
    data = noise_widths(selection)
    assert [family.family for family in data] == ["gaussian", "uniform"]
    tried = {(t.noise.family, t.noise.width, t.n_examples) for t in selection.trials}
    assert sum(family.width.shape[0] for family in data) == len(tried)
    assert sum(family.is_winner.sum() for family in data) == 1
    winner = next(family for family in data if family.is_winner.any())
    assert winner.sigma_hat[winner.is_winner] == [selection.sigma_hat]
    assert all((np.diff(family.width) >= 0).all() for family in data)
    assert draw_noise_widths(data, ax) is ax


def test_settings_that_differ_in_their_mean_alone_are_one_point(overconfident: Data) -> None:
    logits, labels = overconfident
    selection = select_noise(logits[:50], labels[:50], search="paper", families=["gaussian"])
    (data,) = noise_widths(selection)
    assert data.width.tolist() == list(range(1, 21))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 12, 40])
@pytest.mark.parametrize("panels", [None, 1, 2])
def test_no_legend_is_cut(n: int, panels: int | None) -> None:
    import matplotlib.pyplot as plt

    names = tuple(f"Isotonic regression per class, {k}th variant of it (iso_{k})" for k in range(n))
    ax = None if panels is None else plt.subplots(1, panels, squeeze=False)[1][0, 0]
    for name in names:
        ax = draw_risk_coverage(risk_coverage([0.9, 0.8, 0.3], [True, False, False]), ax, name)
    figure = ax.figure
    figure.set_layout_engine("constrained")  # with several panels it is the user's to choose
    figure.canvas.draw()
    box = figure.axes[0].get_legend().get_window_extent()
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1
    plt.close("all")


def test_plots_follow_a_dark_style(answers: Data, overconfident: Data) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.colors import same_color

    with plt.style.context("dark_background"):
        figure, axes = plt.subplots(2, 2)
        draw_reliability(reliability(*answers), axes[0, 0])
        draw_histogram(confidence_histogram(*answers), axes[0, 1])
        draw_stability_curve(
            stability_curve(Hoki(noise=Gaussian(3.0)).fit(*overconfident)), axes[1, 0]
        )
        draw_noise_widths(noise_widths(select_noise(*overconfident)), axes[1, 1])
    drawn = [line.get_color() for ax in axes.flat for line in ax.lines]
    drawn += [edge for ax in axes.flat for dots in ax.collections for edge in dots.get_edgecolor()]
    assert any(same_color(colour, "white") for colour in drawn)
    assert not any(same_color(colour, "black") for colour in drawn)
    plt.close(figure)
