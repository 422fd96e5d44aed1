"""Draw the pictures of the README and of the documentation, for light and for dark
pages.

    python tools/make_pictures.py [NAME ...]    # of all, or of those named

`hero` is a CIFAR-10 ResNet-110 before and after the default method, wide and, for
phones, narrow. `report` are screenshots of the top of `hokical demo`'s report, by
Chromium. Pictures of the guide and of the theory are in `guide_pictures.py`. Those of
other pages (`gallery`, `groups`, ...) are made by the code on the page: a block before
the picture `assets/gallery/NAME-light.png` draws it on `ax`. Pictures of several panels
in a row have a narrow form, `NAME-narrow-light.png`, with the panels one above the
other, which `make_site.py` shows on phones. Needs matplotlib (the extra `plot`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from guide_pictures import BLUE, COLOURS, ORANGE, PICTURES

from hokical import compare
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.plots import draw_reliability
from hokical.report import Evaluation

DOCS = Path(__file__).parents[1] / "docs"
_GROUND = dict.fromkeys(
    ("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "#0d1117"
)
_SAME = {"axes.prop_cycle": cycler(color=COLOURS)}
STYLES: dict[str, Any] = {
    "light": ["default", _SAME],
    "dark": ["dark_background", _GROUND | _SAME],
}
N_BINS = 15
#: Inches of a picture for phones, of 110 pixels each.
NARROW_WIDTH = 4.6
#: Pages with a picture that their code draws. The last two need PyTorch and
#: transformers.
PAGES = (
    "gallery",
    "binary",
    "ensembles",
    "groups",
    "recipes/free-answers",
    "multilabel",
    "shift",
    "dense",
    "scikit-learn",
    "recipes/pytorch",
    "recipes/hugging-face",
)
TITLES = {"uncalibrated": "uncalibrated", "auto": "after hokical.auto"}
BEFORE, AFTER = ORANGE, BLUE

_STEP = re.compile(
    r"^```python\n(.*?)^```$|\((?:\.\./)?assets/gallery/([\w-]+)-light\.png#only-light\)",
    re.MULTILINE | re.DOTALL,
)


def main() -> None:
    matplotlib.use("Agg")
    known = ("hero", "report", *PAGES, *PICTURES)
    names = sys.argv[1:] or known
    if unknown := set(names) - set(known):
        raise SystemExit(
            f"no such pictures: {', '.join(unknown)}. Known are {', '.join(known)}."
        )
    for theme, style in STYLES.items():
        with plt.style.context(style):
            for name in names:
                make_picture(name, theme)


def make_picture(name: str, theme: str) -> None:
    """Draw and save what `name` stands for."""
    if name in PICTURES:
        save(PICTURES[name](), DOCS / "assets" / "guide" / f"{name}-{theme}.png")
    elif name == "hero":
        results = compare(*demo_logits(), list(TITLES)).results
        save(draw_hero(results), DOCS / "assets" / f"hero-{theme}.png")
    elif name == "report":
        photograph_report(DOCS / "assets" / "gallery" / f"report-{theme}.png", theme)
    else:
        draw_gallery(name, theme)


def save(figure: Any, path: Path) -> None:
    """The picture, and its narrow form where it has several columns of panels."""
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    panels = [axes for axes in figure.axes if axes.get_subplotspec() is not None]
    if any(axes.get_subplotspec().get_gridspec().ncols > 1 for axes in panels):
        stack(figure, panels)
        name, _, theme = path.stem.rpartition("-")
        figure.savefig(path.with_name(f"{name}-narrow-{theme}.png"), dpi=110)
    plt.close(figure)
    print(path.relative_to(DOCS.parent))


def stack(figure: Any, panels: list[plt.Axes]) -> None:
    """Put the panels of a figure one above the other."""
    shape = panels[0].get_subplotspec().get_gridspec()
    panel_height = figure.get_figheight() / shape.nrows
    grid = figure.add_gridspec(len(panels), 1)
    for place, axes in enumerate(panels):
        axes.set_subplotspec(grid[place, 0])
        axes.tick_params(labelleft=True, labelbottom=True)
    for legend in list(figure.legends):
        names = [text.get_text() for text in legend.get_texts()]
        legend.remove()
        figure.legend(
            legend.legend_handles,
            names,
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
    figure.set_size_inches(NARROW_WIDTH, panel_height * len(panels))


def photograph_report(path: Path, theme: str) -> None:
    """The top of the report that `hokical demo` writes."""
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "report.html"
        title = "ResNet-110 on CIFAR-10, 10,000 test images"
        compare(*demo_logits(), classes=DEMO_CLASSES).to_html(page, title=title)
        dark = ["--blink-settings=preferredColorScheme=0"] if theme == "dark" else []
        command = [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ]
        command += [
            *dark,
            "--window-size=1400,1060",
            f"--screenshot={path}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True)
    print(path.relative_to(DOCS.parent))


def draw_gallery(name: str, theme: str) -> None:
    """Run the code of a page, and save what it draws."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, chdir(place):
        steps = _STEP.findall(page)
        last = max(place for place, (_, picture) in enumerate(steps) if picture)
        for code, picture in steps[: last + 1]:
            if code:
                exec(code, namespace)
            elif picture != "report":
                path = DOCS / "assets" / "gallery" / f"{picture}-{theme}.png"
                save(namespace["ax"].figure, path)


def draw_hero(results: tuple[Evaluation, ...]) -> Any:
    """Reliability before and after, and the gap of every class."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    for axis, result in zip(axes[:2], results, strict=True):
        draw(axis, result)
    draw_classes(axes[2], results)
    return figure


def draw_classes(axis: plt.Axes, results: tuple[Evaluation, ...]) -> None:
    """Mean confidence minus accuracy of the rows of each label, before and after."""
    for result, colour, shift in zip(
        results, (BEFORE, AFTER), (-0.2, 0.2), strict=True
    ):
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
    """Its reliability diagram, as `hokical.plots` draws it."""
    logits, labels = demo_logits()[1]
    confidence = result.calibrator.predict_confidence(logits)
    right = result.calibrator.predict(logits) == labels
    draw_reliability(confidence, right, axis, n_bins=N_BINS)
    mean, accuracy, ece = (
        result.score(name) for name in ("mean_confidence", "accuracy", "ece")
    )
    title = (
        f"{TITLES[result.name]}\nconfidence {mean:.1%}, accuracy {accuracy:.1%}, ECE "
        f"{ece:.3f}"
    )
    axis.set_title(title, fontsize=11)


if __name__ == "__main__":
    main()
