"""Draw the picture of the README: a CIFAR-10 ResNet-110 before and after the default method.

    python tools/make_readme_picture.py docs/reliability.png

Needs matplotlib (the extra `plot`) and the logits of `suite/`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hokical import compare
from hokical.core.bins import bin_edges, bin_index, sum_by
from hokical.report.results import MethodResult

SUITE = Path(__file__).parents[1] / "suite"
CLASSES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_BINS = 15
TITLES = {"uncalibrated": "as the network has it", "auto": "after hokical.auto"}
BEFORE, AFTER = "#dd8452", "#4c72b0"


def main(path: str) -> None:
    with np.load(SUITE / "cifar10_resnet110.npz") as stored:
        val, test = (
            (stored[f"{part}_logits"], stored[f"{part}_labels"]) for part in ("val", "test")
        )
    results = compare(val, test, list(TITLES), n_resamples=0).results
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    for axis, result in zip(axes[:2], results, strict=True):
        draw(axis, result)
    axes[0].set_ylabel("how often it is right")
    draw_classes(axes[2], results, test[0].argmax(axis=1))
    figure.savefig(path, dpi=110)


def draw_classes(axis: plt.Axes, results: tuple[MethodResult, ...], labels: np.ndarray) -> None:
    """What rows of each label say, before and after, less how often they are right."""
    for result, colour, shift in zip(results, (BEFORE, AFTER), (-0.2, 0.2), strict=True):
        gaps = [
            100 * (result.confidence[labels == k].mean() - result.correct[labels == k].mean())
            for k in range(len(CLASSES))
        ]
        places = np.arange(len(CLASSES)) + shift
        axis.barh(places, gaps, height=0.4, color=colour, label=TITLES[result.name])
    axis.set_yticks(range(len(CLASSES)), CLASSES)
    axis.invert_yaxis()
    axis.axvline(0.0, color="0.3", linewidth=1)
    axis.set(xlabel="points")
    axis.set_title("for every label: says less is right", fontsize=11)
    axis.legend(loc="lower right", frameon=False)


def draw(axis: plt.Axes, result: MethodResult) -> None:
    """Accuracy per bin against the diagonal, with the share of examples in each bin."""
    bins = bin_index(result.confidence, N_BINS)
    count = sum_by(bins, np.ones_like(result.confidence), N_BINS)
    kept = count >= 10  # a handful of examples says nothing about accuracy
    accuracy = sum_by(bins, result.correct.astype(float), N_BINS)[kept] / count[kept]
    said = sum_by(bins, result.confidence, N_BINS)[kept] / count[kept]
    left = bin_edges(N_BINS)[:-1][kept]
    width = 1.0 / N_BINS
    shape = {"width": width, "align": "edge", "edgecolor": "white"}
    axis.bar(left, accuracy, color=AFTER, label="right", **shape)
    gap = {"bottom": accuracy, "color": BEFORE, "alpha": 0.6, "label": "gap"}
    axis.bar(left, said - accuracy, **gap, **shape)
    axis.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle="--", label="honest")
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="how sure it says it is")
    said, right, ece = (result.score(name) for name in ("mean_confidence", "accuracy", "ece"))
    title = f"{TITLES[result.name]}\nsays {said:.1%}, is right {right:.1%}, ECE {ece:.3f}"
    axis.set_title(title, fontsize=11)
    axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main(sys.argv[1])
