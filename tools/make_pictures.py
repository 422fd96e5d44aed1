"""Draw the pictures of the README and of the documentation, for light and for dark pages.

    python tools/make_pictures.py

`docs/assets/hero-*.png` is a CIFAR-10 ResNet-110 before and after the default method. The pictures
of other pages are made by the code on the page: a block before the picture
`assets/gallery/NAME-light.png` draws it on `ax`; those of the report are screenshots of Chromium
(`chromium --headless --screenshot`). Needs matplotlib (the extra `plot`).
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
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.plots import reliability
from hokical.report import Evaluation

DOCS = Path(__file__).parents[1] / "docs"
_GROUND = dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "#0d1117")
STYLES: dict[str, Any] = {"light": "default", "dark": ["dark_background", _GROUND]}
N_BINS = 15
#: Pages with a picture that their code draws. The last two need PyTorch and transformers.
PAGES = (
    "gallery", "groups", "language-models", "multilabel", "shift", "dense", "scikit-learn",
    "recipes/pytorch", "recipes/hugging-face",
)  # fmt: skip
TITLES = {"uncalibrated": "uncalibrated", "auto": "after hokical.auto"}
BEFORE, AFTER = "#dd8452", "#4c72b0"

_STEP = re.compile(
    r"^```python\n(.*?)^```$|\((?:\.\./)?assets/gallery/([\w-]+)-light\.png#only-light\)",
    re.MULTILINE | re.DOTALL,
)


def main() -> None:
    matplotlib.use("Agg")
    results = compare(*demo_logits(), list(TITLES)).results
    for theme, style in STYLES.items():
        with plt.style.context(style):
            save(draw_hero(results), DOCS / "assets" / f"hero-{theme}.png")
            for page in PAGES:
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
    axes[0].set_ylabel("accuracy")
    draw_classes(axes[2], results)
    return figure


def draw_classes(axis: plt.Axes, results: tuple[Evaluation, ...]) -> None:
    """Mean confidence minus accuracy of the rows of each label, before and after."""
    for result, colour, shift in zip(results, (BEFORE, AFTER), (-0.2, 0.2), strict=True):
        gaps = [100 * row.gap for row in result.classes.rows]
        places = np.arange(len(DEMO_CLASSES)) + shift
        axis.barh(places, gaps, height=0.4, color=colour, label=TITLES[result.name])
    axis.set_yticks(range(len(DEMO_CLASSES)), DEMO_CLASSES)
    axis.invert_yaxis()
    axis.axvline(0.0, color="0.5", linewidth=1)
    axis.set(xlabel="percentage points")
    axis.set_title("confidence minus accuracy, by predicted label", fontsize=11)
    axis.legend(loc="lower right", frameon=False)


def draw(axis: plt.Axes, result: Evaluation) -> None:
    """Accuracy per bin against the diagonal, with the share of examples in each bin."""
    logits, labels = demo_logits()[1]
    confidence = result.calibrator.predict_confidence(logits)
    bins = reliability(confidence, result.calibrator.predict(logits) == labels, n_bins=N_BINS)
    kept = bins.count >= 10  # the accuracy of fewer examples is noise
    left, accuracy, stated = bins.low[kept], bins.accuracy[kept], bins.confidence[kept]
    width = 1.0 / N_BINS
    shape = {"width": width, "align": "edge", "edgecolor": axis.get_facecolor()}
    axis.bar(left, accuracy, color=AFTER, label="accuracy", **shape)
    over = np.maximum(stated - accuracy, 0.0)
    axis.bar(left, over, bottom=accuracy, color=BEFORE, alpha=0.7, label="overconfident", **shape)
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle="--", label="calibrated")
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence")
    mean, right, ece = (result.score(name) for name in ("mean_confidence", "accuracy", "ece"))
    title = f"{TITLES[result.name]}\nconfidence {mean:.1%}, accuracy {right:.1%}, ECE {ece:.3f}"
    axis.set_title(title, fontsize=11)
    axis.legend(loc="upper left", frameon=False)


if __name__ == "__main__":
    main()
