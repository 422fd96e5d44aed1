"""Draw the picture of the README from the shipped logits: reliability before and after.

    python tools/make_readme_picture.py docs/reliability.png

Needs matplotlib (the extra `plot`).
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

from hokical import compare
from hokical.core.bins import bin_edges, bin_index, sum_by
from hokical.demo import demo_logits
from hokical.report.comparison import MethodResult

N_BINS = 15
TITLES = {"uncalibrated": "as the network has it", "hoki": "after Hoki().fit"}


def main(path: str) -> None:
    results = compare(*demo_logits(), list(TITLES)).results
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.3), sharey=True, layout="constrained")
    for axis, result in zip(axes, results, strict=True):
        draw(axis, result)
    axes[0].set_ylabel("how often it is right")
    figure.savefig(path, dpi=120)


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
    axis.bar(left, accuracy, color="#4c72b0", label="right", **shape)
    gap = {"bottom": accuracy, "color": "#dd8452", "alpha": 0.6, "label": "gap"}
    axis.bar(left, said - accuracy, **gap, **shape)
    axis.plot([0, 1], [0, 1], color="0.3", linewidth=1, linestyle="--", label="honest")
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="how sure it says it is")
    said, right, ece = (result.score(name) for name in ("mean_confidence", "accuracy", "ece"))
    title = f"{TITLES[result.name]}\nsays {said:.1%}, is right {right:.1%}, ECE {ece:.3f}"
    axis.set_title(title, fontsize=11)
    axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main(sys.argv[1])
