"""Pictures of the user guide and of the theory, from the bundled logits: see
`make_pictures.py`.

Each function returns a figure; `PICTURES` names them, and `make_pictures.py` saves each
as `docs/assets/guide/NAME-light.png` and `NAME-dark.png`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import beta

import hokical
from hokical import Gaussian, Gumbel, Uniform, label_stability, make
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.metrics import brier, ece, log_loss
from hokical.plots import draw_reliability

BLUE, ORANGE, GREEN, GREY = "#3f74b5", "#e08a3c", "#3f9b6c", "#808080"
COLOURS = (BLUE, ORANGE, GREEN, "#a05195", GREY, "#8c6d31")
QUALITY = Path(__file__).parents[1] / "benchmarks" / "quality.json"
MEASUREMENTS = Path(__file__).parents[1] / "paper" / "docs" / "measurements.md"


def over_and_under() -> Any:
    """Three reliability diagrams of one network: the same labels, other confidences."""
    (val, truth), (logits, labels) = demo_logits()
    logits = np.asarray(logits, float)
    soft = make("uncalibrated").fit(val, truth)
    cal = make("temps").fit(val, truth)
    shown = {
        "overconfident: the softmax as it is": soft.predict_confidence(logits),
        "underconfident: logits divided by 6": soft.predict_confidence(logits / 6.0),
        "calibrated: `temps`, temperature learned": cal.predict_confidence(logits),
    }
    right = logits.argmax(axis=1) == labels
    figure, axes = plt.subplots(
        1, 3, figsize=(12, 4.6), layout="constrained", sharey=True
    )
    for axis, (title, confidence) in zip(axes, shown.items(), strict=True):
        draw_reliability(confidence, right, axis, n_bins=10)
        numbers = (
            f"accuracy {right.mean():.1%}, mean confidence {confidence.mean():.1%}"
        )
        axis.set_title(f"{title.replace('`', '')}\n{numbers}", fontsize=10.5)
    return figure


def expected_errors() -> Any:
    """Errors that confidence leads us to expect, and those that occur, above a
    threshold.
    """
    (val, truth), (logits, labels) = demo_logits()
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 4), layout="constrained", sharey=True
    )
    for axis, name, title in zip(
        axes,
        ("uncalibrated", "auto"),
        ("uncalibrated", "after hokical.auto"),
        strict=True,
    ):
        cal = make(name).fit(val, truth)
        confidence = cal.predict_confidence(logits)
        wrong = cal.predict(logits) != labels
        levels = np.linspace(0.5, 0.995, 100)
        kept = [confidence >= level for level in levels]
        axis.plot(
            levels,
            [100 * wrong[k].mean() for k in kept],
            color=BLUE,
            label="errors that occur",
        )
        expected = [100 * (1.0 - confidence[k]).mean() for k in kept]
        axis.plot(
            levels,
            expected,
            color=ORANGE,
            linestyle="--",
            label="errors expected from confidence",
        )
        axis.set(xlabel="lowest confidence that is used", ylim=(0, None), title=title)
    axes[0].set_ylabel("errors among the predictions used, %")
    _legend_below(figure, axes[0])
    return figure


def gamed() -> Any:
    """ECE against Brier score and log loss, of three ways to give a confidence."""
    (val, truth), (logits, labels) = demo_logits()
    right = np.asarray(logits, float).argmax(axis=1) == labels
    accuracy = (np.asarray(val, float).argmax(axis=1) == truth).mean()
    soft = make("uncalibrated").fit(val, truth).predict_confidence(logits)
    cal = hokical.auto(val, truth, keep_labels=True).predict_confidence(logits)
    ways = {
        "softmax": (soft, ORANGE),
        "auto": (cal, BLUE),
        f"constant\n{accuracy:.1%}": (np.full(right.size, accuracy), GREY),
    }
    scores = {"ECE": ece, "Brier score": brier, "log loss": log_loss}
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, (title, score) in zip(axes, scores.items(), strict=True):
        values = [float(score(confidence, right)) for confidence, _ in ways.values()]
        bars = axis.bar(
            list(ways), values, color=[colour for _, colour in ways.values()]
        )
        axis.bar_label(bars, [f"{value:.3f}" for value in values], padding=2)
        axis.set_title(
            f"{title}: lowest for {list(ways)[int(np.argmin(values))].split()[0]}"
        )
        axis.set(ylim=(0, 1.18 * max(values)), ylabel=f"{title}, lower is better")
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def ece_bias() -> Any:
    """ECE measured on samples of a perfectly calibrated classifier, whose true ECE
    is 0.
    """
    (val, truth), (logits, _) = demo_logits()
    confidence = make("temps").fit(val, truth).predict_confidence(logits)
    rng = np.random.default_rng(0)
    sizes = np.array([100, 200, 500, 1000, 2000, 5000, 10_000])
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for n_bins, colour, mark in ((10, BLUE, "o"), (15, ORANGE, "s"), (50, GREEN, "^")):
        means = []
        for n in sizes:
            drawn = []
            for _ in range(60):
                some = rng.choice(confidence, int(n))
                drawn.append(ece(some, rng.random(some.size) < some, n_bins=n_bins))
            means.append(np.mean(drawn))
        axis.plot(sizes, means, color=colour, marker=mark, label=f"{n_bins} bins")
    axis.axhline(0.0, color=GREY, linestyle="--", linewidth=1, label="true value")
    axis.set(
        xscale="log", xlabel="test examples", ylabel="ECE measured, mean of 60 samples"
    )
    axis.legend(frameon=False)
    return figure


def proper() -> Any:
    """Expected scores of a stated probability, where the true one is 0.7."""
    stated, true = np.linspace(0.02, 0.98, 200), 0.7
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    log = -true * np.log(stated) - (1.0 - true) * np.log(1.0 - stated)
    square = true * (1.0 - stated) ** 2 + (1.0 - true) * stated**2
    absolute = true * (1.0 - stated) + (1.0 - true) * stated
    axis.plot(stated, log, color=BLUE, label="log loss (proper)")
    axis.plot(stated, square, color=GREEN, linestyle="-.", label="Brier score (proper)")
    axis.plot(
        stated,
        absolute,
        color=ORANGE,
        linestyle="--",
        label="absolute error (not proper)",
    )
    for curve, colour in ((log, BLUE), (square, GREEN), (absolute, ORANGE)):
        axis.plot(stated[curve.argmin()], curve.min(), "o", color=colour)
    axis.axvline(true, color=GREY, linestyle=":", label="true probability 0.7")
    axis.set(
        xlabel="stated probability of the event", ylabel="expected score", ylim=(0, 1.6)
    )
    _legend_below(figure, axis, ncols=2)
    return figure


def conformal() -> Any:
    """A split, the threshold of the scores, and the coverage of new examples."""
    (val, truth), (logits, labels) = demo_logits()
    cal = make("temps").fit(val[::2], truth[::2])
    held, held_truth = val[1::2], truth[1::2]
    scores = 1.0 - cal.predict_proba(held)[np.arange(held_truth.size), held_truth]
    new = 1.0 - cal.predict_proba(logits)[np.arange(labels.size), labels]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    _draw_split(axes[0])
    rank = int(np.ceil((scores.size + 1) * 0.95))
    level = np.sort(scores)[rank - 1]
    axes[1].hist(scores, bins=40, color=BLUE)
    axes[1].axvline(level, color=ORANGE, linewidth=2)
    axes[1].text(
        level - 0.02, 300, f"threshold {level:.2f}:\n95 % are below", ha="right"
    )
    axes[1].set(
        yscale="log", xlabel="1 - probability of the true class", ylabel="examples"
    )
    axes[1].set_title("2. the threshold is a rank of\nthe held-out scores", fontsize=11)
    _draw_coverages(axes[2], np.concatenate([scores, new]))
    return figure


def _draw_split(axis: plt.Axes) -> None:
    parts = (
        ("training data", "fits the classifier", GREY),
        ("calibration examples", "`fit`: the calibrator", BLUE),
        ("held-out examples", "`certify`: the threshold", ORANGE),
        ("new examples", "the guarantee is about these", GREEN),
    )
    for row, (name, use, colour) in enumerate(parts):
        axis.barh(-row, 1.0, height=0.72, color=colour, alpha=0.85)
        axis.text(0.04, -row + 0.13, name, va="center", color="white", weight="bold")
        axis.text(0.04, -row - 0.17, use.replace("`", ""), va="center", color="white")
    axis.set(xlim=(0, 1), ylim=(-3.5, 0.5))
    axis.set_axis_off()
    axis.set_title("1. every example has\none purpose", fontsize=11)


def _draw_coverages(
    axis: plt.Axes, scores: Any, n: int = 500, goal: float = 0.95
) -> None:
    rng, found = np.random.default_rng(0), []
    rank = int(np.ceil((n + 1) * goal))
    for _ in range(2000):
        mixed = rng.permutation(scores)
        found.append((mixed[n:] <= np.sort(mixed[:n])[rank - 1]).mean())
    axis.hist(
        found, bins=40, color=BLUE, density=True, label="2000 splits of the images"
    )
    x = np.linspace(0.91, 0.985, 300)
    theory = beta.pdf(x, rank, n + 1 - rank)
    axis.plot(x, theory, color=ORANGE, linewidth=2, label="theory: a beta distribution")
    axis.axvline(goal, ymax=0.7, color=GREY, linestyle="--", linewidth=1)
    axis.set(xlabel="coverage of new examples", yticks=[], ylim=(0, 1.4 * theory.max()))
    axis.set_title(
        f"3. coverage varies about {goal:.0%}\nwith {n} held-out examples", fontsize=11
    )
    axis.legend(frameon=False, loc="upper left", fontsize=9)


def selective() -> Any:
    """Errors among accepted held-out examples, their upper bound, and the threshold
    chosen.
    """
    (val, truth), (logits, labels) = demo_logits()
    cal = make("temps").fit(val[::2], truth[::2]).certify(val[1::2], truth[1::2])
    found = cal.predict_or_abstain(logits, risk=0.02, delta=0.1)
    held, new = cal.predict_confidence(val[1::2]), cal.predict_confidence(logits)
    bad = cal.predict(val[1::2]) != truth[1::2]
    new_bad = cal.predict(logits) != labels
    levels = np.linspace(0.5, 0.995, 100)
    upper, seen, later = [], [], []
    for level in levels:
        kept = held >= level
        upper.append(
            100 * beta.ppf(0.9, bad[kept].sum() + 1, kept.sum() - bad[kept].sum())
        )
        seen.append(100 * bad[kept].mean())
        later.append(100 * new_bad[new >= level].mean())
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    axis.plot(levels, upper, color=ORANGE, label="90 % upper bound, one threshold")
    axis.plot(levels, seen, color=BLUE, label="errors among 2500 held-out examples")
    axis.plot(
        levels,
        later,
        color=GREEN,
        linestyle="--",
        label="errors among 10,000 new examples",
    )
    axis.axhline(2.0, color=GREY, linestyle=":", label="risk that was asked for: 2 %")
    axis.axvline(float(found.threshold), color=GREY, linewidth=1)
    note = (
        f"chosen threshold {float(found.threshold):.3f}:\n{found.accepted.mean():.0%} "
        "accepted"
    )
    axis.text(float(found.threshold) - 0.008, 0.4, note, ha="right", va="bottom")
    axis.set(
        xlabel="threshold of the confidence", ylabel="errors among accepted labels, %"
    )
    axis.set(ylim=(0, None), xlim=(0.5, 1.0))
    _legend_below(figure, axis, ncols=2)
    return figure


def not_covered() -> Any:
    """Coverage of 95 % sets: of all examples, of each class, of each size, and of
    other data.
    """
    (val, truth), (logits, labels) = demo_logits()
    logits = np.asarray(logits, float)
    cal = make("temps").fit(val[::2], truth[::2]).certify(val[1::2], truth[1::2])
    sets = cal.predict_set(logits, coverage=0.95)
    inside = sets.members[np.arange(labels.size), labels]
    noisy = logits + 6.0 * np.random.default_rng(0).normal(size=logits.shape)
    other = cal.predict_set(noisy, coverage=0.95).members[
        np.arange(labels.size), labels
    ]
    rows = {"all examples": (inside.mean(), BLUE)}
    rows |= {
        f"class {name}": (inside[labels == k].mean(), GREY)
        for k, name in enumerate(DEMO_CLASSES)
        if name in ("car", "bird", "cat")
    }
    rows |= {
        f"sets of {size} class{'es' * (size > 1)}": (
            inside[sets.sizes == size].mean(),
            GREY,
        )
        for size in (1, 2, 3)
    }
    rows["noise added to the logits"] = (other.mean(), ORANGE)
    figure, axis = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    values = [100 * value for value, _ in rows.values()]
    bars = axis.barh(list(rows), values, color=[colour for _, colour in rows.values()])
    axis.bar_label(bars, [f"{value:.1f} %" for value in values], padding=3)
    axis.axvline(95, color=GREY, linestyle="--", linewidth=1)
    axis.invert_yaxis()
    axis.set(
        xlim=(70, 102),
        xlabel="true class in the set, % (guaranteed: 95 % of all examples)",
    )
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def stability() -> Any:
    """Label stability of two classes and of ten, by margin, under three kinds of
    noise.
    """
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 3.9), layout="constrained", sharey=True
    )
    margins = np.linspace(0.0, 6.0, 121)
    kinds = (
        ("Gumbel", Gumbel(1.0)),
        ("Gaussian", Gaussian(1.28)),
        ("uniform", Uniform(-2.2, 2.2)),
    )
    for axis, classes in zip(axes, (2, 10), strict=True):
        logits = np.zeros((margins.size, classes))
        logits[:, 0] = margins
        for (name, noise), colour, dash in zip(
            kinds, COLOURS, ("-", "--", "-."), strict=False
        ):
            axis.plot(
                margins, label_stability(logits, noise), dash, color=colour, label=name
            )
        axis.axhline(1.0 / classes, color=GREY, linewidth=1, linestyle=":")
        axis.set(
            xlabel="margin of the label over all others", title=f"{classes} classes"
        )
        axis.set(ylim=(0, 1.02))
    axes[0].set_ylabel("label stability")
    axes[0].legend(frameon=False, loc="lower right", title="noise of equal variance")
    return figure


def hoki_curve() -> Any:
    """Hoki's confidence by label stability, with what was observed on test examples."""
    (val, truth), (logits, labels) = demo_logits()
    cal = hokical.Hoki().fit(val, truth)
    stable = label_stability(logits, cal.noise_)
    confidence, right = cal.predict_confidence(logits), cal.predict(logits) == labels
    order = np.argsort(stable)
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    axis.plot(
        stable[order],
        confidence[order],
        color=BLUE,
        label="confidence that Hoki learned",
    )
    parts = np.array_split(order, 25)
    axis.plot(
        [stable[part].mean() for part in parts],
        [right[part].mean() for part in parts],
        "o",
        color=ORANGE,
        label="accuracy of 400 test images each",
    )
    axis.plot(
        [0, 1],
        [0, 1],
        color=GREY,
        linestyle="--",
        linewidth=1,
        label="stability itself",
    )
    axis.set(xlabel="label stability", ylabel="confidence, accuracy", ylim=(0, 1.02))
    axis.legend(frameon=False)
    return figure


def bounds() -> Any:
    """What each bound adds to the measured ECE, by the number of test examples."""
    sizes = np.geomspace(300, 300_000, 60)
    figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("as published", "-", {"method": "paper"}),
        ("union", "--", {"method": "union"}),
        ("McDiarmid", "-.", {"method": "mcdiarmid"}),
        ("Bousquet, Brier score 0.05", "-", {"method": "bousquet", "brier": 0.05}),
    )
    for (name, dash, options), colour in zip(ways, COLOURS, strict=False):
        values = [hokical.calibration_bound(0.0, int(n), **options) for n in sizes]
        axis.loglog(sizes, values, dash, color=colour, label=name)
    axis.set(xlabel="test examples", ylabel="bound minus measured ECE", ylim=(2e-3, 1))
    axis.legend(frameon=False)
    return figure


def default_by_examples() -> Any:
    """Log loss by the number of examples to fit on: the tables of
    paper/docs/measurements.md.
    """
    tables = examples_tables(MEASUREMENTS.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    names = ("uncalibrated", "temps", "ets", "structured", "adaptive", "auto")
    looks = (GREY, ORANGE, "#a05195", GREEN, "#8c6d31", BLUE)
    for axis, (title, (sizes, rows)) in zip(axes.flat, tables.items(), strict=True):
        for name, colour in zip(names, looks, strict=True):
            main = name in ("auto", "uncalibrated")
            style: dict[str, Any] = {"linewidth": 2.5 if main else 1.3, "color": colour}
            axis.plot(
                range(len(sizes)), rows[name], "o-", markersize=4, label=name, **style
            )
        axis.set_xticks(range(len(sizes)), sizes)
        axis.set(title=title, xlabel="examples to fit on", ylabel="log loss")
    _legend_below(figure, axes[0, 0])
    return figure


def peers() -> Any:
    """The default beside other libraries by the number of examples; narrow, for
    phones.
    """
    results = json.loads(QUALITY.read_text(encoding="utf-8"))["results"]
    found = {
        (one["method"], one["size"]): one for one in results if one["task"] == "all"
    }
    sizes = list(dict.fromkeys(size for _, size in found))
    figure, axes = plt.subplots(
        2, 1, figsize=(6.6, 8.4), layout="constrained", sharex=True
    )
    for method, (title, colour, mark) in PEER_LOOKS.items():
        style: dict[str, Any] = {
            "label": title,
            "color": colour,
            "marker": mark,
            "markersize": 6,
        }
        style |= {"linewidth": 3.5 if method == "auto" else 1.6}
        loss = [found[method, size]["log_loss"] for size in sizes]
        axes[0].plot(range(len(sizes)), loss, **style)
        if method != "uncalibrated":
            worse = [100 * found[method, size]["worse"] for size in sizes]
            axes[1].plot(range(len(sizes)), worse, **style)
    axes[0].set(ylim=(0.47, 1.25))
    axes[0].set_title("mean log loss of 135 classifiers (lower is better)", fontsize=13)
    axes[1].set_title("classifiers that calibration made worse, %", fontsize=13)
    axes[1].set(ylim=(0, None))
    axes[1].set_xlabel("examples to calibrate with", fontsize=13)
    for axis in axes:
        axis.set_xticks(range(len(sizes)), sizes)
        axis.tick_params(labelsize=12)
        axis.spines[["top", "right"]].set_visible(False)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=12
    )
    return figure


#: How the chart of peers shows each method.
PEER_LOOKS = {
    "auto": ("hokical, the default", BLUE, "o"),
    "probmetrics:sms": ("probmetrics SMS", ORANGE, "s"),
    "sklearn:temperature": ("scikit-learn temperature", GREEN, "^"),
    "sklearn:sigmoid_logits": ("scikit-learn sigmoid, of logits", "#a05195", "v"),
    "sklearn:isotonic": ("scikit-learn isotonic", "#8c6d31", "D"),
    "netcal:logistic": ("netcal logistic", "#4fb0c6", "P"),
    "mapie:venn_abers": ("MAPIE Venn-Abers", "#d1495b", "X"),
    "uncalibrated": ("uncalibrated", GREY, ""),
}


def examples_tables(text: str) -> dict[str, tuple[list[str], dict[str, list[float]]]]:
    """Tables whose columns are numbers of examples: title, columns, and a row for
    each method.
    """
    found = {}
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        cells = [
            [c.strip(" *`") for c in line.strip("|\n ").split("|")]
            for line in block.splitlines()
        ]
        if cells[0][-1] == "all" and cells[0][1] == "30":
            rows = {row[0]: [float(value) for value in row[1:]] for row in cells[2:]}
            found[cells[0][0]] = (cells[0][1:], rows)
    return found


def _legend_below(figure: Any, axis: plt.Axes, *, ncols: int = 6) -> None:
    handles, names = axis.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=ncols, frameon=False
    )


PICTURES: dict[str, Callable[[], Any]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        over_and_under,
        expected_errors,
        proper,
        gamed,
        ece_bias,
        conformal,
        selective,
        not_covered,
        stability,
        hoki_curve,
        bounds,
        default_by_examples,
        peers,
    )
}
