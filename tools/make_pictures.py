"""Draw the pictures of the README and of the documentation, for light and for dark pages.

    python tools/make_pictures.py

`docs/assets/hero-*.png` is a CIFAR-10 ResNet-110 before and after the default method. The pictures
of the pages gallery, groups, language-models, multilabel and shift are made by the code on the
page: a block before the picture `assets/gallery/NAME-light.png` draws it on `ax`; those
of the report are screenshots of Chromium (`chromium --headless --screenshot`). Needs matplotlib
(the extra `plot`).
"""

from __future__ import annotations

import re
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from hokical import compare
from hokical._core.bins import bin_edges, bin_index, sum_by
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.report import Evaluation

DOCS = Path(__file__).parents[1] / "docs"
_GROUND = dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "#0d1117")
STYLES: dict[str, Any] = {"light": "default", "dark": ["dark_background", _GROUND]}
N_BINS = 15
TITLES = {"uncalibrated": "as the network has it", "auto": "after hokical.auto"}
BEFORE, AFTER = "#dd8452", "#4c72b0"

_STEP = re.compile(
    r"^```python\n(.*?)^```$|\(assets/gallery/([\w-]+)-light\.png#only-light\)",
    re.MULTILINE | re.DOTALL,
)


def main() -> None:
    matplotlib.use("Agg")
    results = compare(*demo_logits(), list(TITLES)).results
    for theme, style in STYLES.items():
        with plt.style.context(style):
            save(draw_hero(results), DOCS / "assets" / f"hero-{theme}.png")
            for page in ("gallery", "groups", "language-models", "multilabel", "shift"):
                draw_gallery(page, theme)


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(path.relative_to(DOCS.parent))


def draw_gallery(name: str, theme: str) -> None:
    """Run the code of a page, and save what it draws."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, chdir(place):
        for code, picture in _STEP.findall(page):
            if code:
                exec(code, namespace)
            elif picture != "report":
                path = DOCS / "assets" / "gallery" / f"{picture}-{theme}.png"
                path.parent.mkdir(exist_ok=True)
                save(namespace["ax"].figure, path)


def draw_hero(results: tuple[Evaluation, ...]) -> Any:
    """Reliability before and after, and the gap of every class."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    for axis, result in zip(axes[:2], results, strict=True):
        draw(axis, result)
    axes[0].set_ylabel("how often it is right")
    draw_classes(axes[2], results)
    return figure


def draw_classes(axis: plt.Axes, results: tuple[Evaluation, ...]) -> None:
    """What rows of each label say, before and after, less how often they are right."""
    for result, colour, shift in zip(results, (BEFORE, AFTER), (-0.2, 0.2), strict=True):
        gaps = [100 * row.gap for row in result.classes.rows]
        places = np.arange(len(DEMO_CLASSES)) + shift
        axis.barh(places, gaps, height=0.4, color=colour, label=TITLES[result.name])
    axis.set_yticks(range(len(DEMO_CLASSES)), DEMO_CLASSES)
    axis.invert_yaxis()
    axis.axvline(0.0, color="0.5", linewidth=1)
    axis.set(xlabel="points")
    axis.set_title("for every label: what it says less what is right", fontsize=11)
    axis.legend(loc="lower right", frameon=False)


def draw(axis: plt.Axes, result: Evaluation) -> None:
    """Accuracy per bin against the diagonal, with the share of examples in each bin."""
    bins = bin_index(result.confidence, N_BINS)
    count = sum_by(bins, np.ones_like(result.confidence), N_BINS)
    kept = count >= 10  # a handful of examples says nothing about accuracy
    accuracy = sum_by(bins, result.correct.astype(float), N_BINS)[kept] / count[kept]
    said = sum_by(bins, result.confidence, N_BINS)[kept] / count[kept]
    left = bin_edges(N_BINS)[:-1][kept]
    width = 1.0 / N_BINS
    shape = {"width": width, "align": "edge", "edgecolor": axis.get_facecolor()}
    axis.bar(left, accuracy, color=AFTER, label="right", **shape)
    over = np.maximum(said - accuracy, 0.0)
    axis.bar(left, over, bottom=accuracy, color=BEFORE, alpha=0.7, label="says more", **shape)
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle="--", label="honest")
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="how sure it says it is")
    said, right, ece = (result.score(name) for name in ("mean_confidence", "accuracy", "ece"))
    title = f"{TITLES[result.name]}\nsays {said:.1%}, is right {right:.1%}, ECE {ece:.3f}"
    axis.set_title(title, fontsize=11)
    axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main()
