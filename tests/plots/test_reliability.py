"""The reliability diagram against plain loops and SciPy's interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from hokical.metrics import ece
from hokical.plots import draw_histogram, draw_reliability, reliability

Answers = tuple[np.ndarray, np.ndarray]


@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_equal_width_bins_against_a_loop(answers: Answers, n_bins: int) -> None:
    confidence, correct = answers
    data = reliability(confidence, correct, n_bins=n_bins)
    place = 0
    for j in range(n_bins):
        low, high = j / n_bins, (j + 1) / n_bins
        inside = (confidence >= low) & ((confidence < high) | (j == n_bins - 1))
        if not inside.any():
            continue
        assert (data.low[place], data.high[place]) == (low, high)
        assert data.count[place] == inside.sum()
        assert data.confidence[place] == pytest.approx(confidence[inside].mean())
        assert data.accuracy[place] == pytest.approx(correct[inside].mean())
        place += 1
    assert place == data.count.shape[0]


@pytest.mark.parametrize("bins", ["width", "mass"])
@pytest.mark.parametrize("n_bins", [4, 15])
def test_its_gaps_are_the_ece(answers: Answers, bins: Any, n_bins: int) -> None:
    data = reliability(*answers, n_bins=n_bins, bins=bins)
    share = data.count / data.count.sum()
    assert data.ece == ece(*answers, n_bins=n_bins, bins=bins)
    assert (share * np.abs(data.gap)).sum() == pytest.approx(data.ece)


def test_equal_mass_bins_hold_their_examples(answers: Answers) -> None:
    confidence, _ = answers
    data = reliability(*answers, n_bins=8, bins="mass")
    assert data.count.sum() == confidence.shape[0]
    for low, high, count in zip(data.low, data.high, data.count, strict=True):
        assert ((confidence >= low) & (confidence <= high)).sum() == count
    assert (data.high[:-1] < data.low[1:]).all()


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.01])
def test_bands_are_exact(answers: Answers, delta: float) -> None:
    data = reliability(*answers, delta=delta)
    bands = zip(
        data.correct, data.count, data.accuracy_low, data.accuracy_high, strict=True
    )
    for hits, n, low, high in bands:
        interval = binomtest(int(hits), int(n)).proportion_ci(
            1.0 - delta, method="exact"
        )
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-12)


@pytest.mark.parametrize("bins", ["width", "mass"])
def test_a_weight_of_two_is_the_example_twice(answers: Answers, bins: Any) -> None:
    confidence, correct = answers
    weight = np.random.default_rng(0).integers(0, 4, size=confidence.shape[0])
    once = reliability(confidence, correct, bins=bins, sample_weight=weight)
    again = reliability(
        np.repeat(confidence, weight), np.repeat(correct, weight), bins=bins
    )
    for name in ("low", "high", "confidence", "accuracy", "count"):
        assert getattr(once, name) == pytest.approx(getattr(again, name))
    widths = [each.accuracy_high - each.accuracy_low for each in (once, again)]
    assert (widths[0] >= widths[1]).all()


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, float("nan")])
def test_delta_is_checked(answers: Answers, delta: float) -> None:
    with pytest.raises(
        ValueError, match=r"`delta` must lie strictly between 0 and 1; got"
    ):
        reliability(*answers, delta=delta)


@pytest.mark.parametrize("bins", ["width", "mass"])
def test_drawing_uses_the_axes_given(answers: Answers, ax: Any, bins: Any) -> None:
    data = reliability(*answers, bins=bins)
    assert draw_reliability(*answers, ax, bins=bins, alpha=0.5) is ax
    assert ax.containers[0][0].get_alpha() == 0.5
    assert f"{data.ece:.4f}" in ax.get_title()
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert heights == pytest.approx(data.accuracy.tolist())


def test_a_single_example_can_be_drawn(ax: Any) -> None:
    draw_reliability([1.0], [True], ax, bins="mass")
    assert [bar.get_height() for bar in ax.containers[0]] == [1.0]


def test_histogram_counts_right_and_wrong(answers: Answers, ax: Any) -> None:
    confidence, correct = answers
    assert draw_histogram(confidence, correct, ax, n_bins=10, alpha=0.5) is ax
    right, wrong = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert sum(right) == correct.sum()
    assert sum(wrong) == (~correct).sum()
    assert right[-1] == (correct & (confidence >= 0.9)).sum()
    places = [line.get_xdata()[0] for line in ax.lines]
    assert places == pytest.approx([confidence.mean(), correct.mean()])
    assert ax.containers[0][0].get_alpha() == 0.5
